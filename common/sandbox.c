/*
 * Confinement of the calling process, step by step, and then a look at what the kernel says came of
 * it.
 *
 * The steps are in the order in which each is still possible: capabilities are needed to empty the
 * bounding set, no_new_privs to enter Landlock and seccomp without them, and seccomp comes last
 * because it forbids the rest.  The status file is opened first: afterwards the process may not
 * open it any more.
 */
#include "common/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/sandbox_internal.h"

#define FILES_MAX 1024
#define CAPS_MAX 63

/* The directory and not the single files: resolv.conf is replaced by rename whenever the network
 * changes, and a rule would stay with the old file. What is secret below /etc is so by its mode. */
const struct hb_sandbox_path hb_sandbox_inet_paths[] = {
	{"/etc", HB_FS_READ},
	{"/run/systemd/resolve", HB_FS_READ | HB_FS_OPTIONAL},
	{"/run/resolvconf", HB_FS_READ | HB_FS_OPTIONAL},
	{"/run/NetworkManager", HB_FS_READ | HB_FS_OPTIONAL},
	{"/usr/share/ca-certificates", HB_FS_READ | HB_FS_OPTIONAL},
	{"/usr/local/share/ca-certificates", HB_FS_READ | HB_FS_OPTIONAL},
	{"/usr/lib/ssl", HB_FS_READ | HB_FS_OPTIONAL},
};
const size_t hb_sandbox_inet_path_count =
	sizeof(hb_sandbox_inet_paths) / sizeof(hb_sandbox_inet_paths[0]);

static int
limit(int what, rlim_t value, const char *name, struct hb_error *err)
{
	struct rlimit now, rl = {.rlim_cur = value, .rlim_max = value};

	if (getrlimit(what, &now) == 0 && now.rlim_max != RLIM_INFINITY &&
	    rl.rlim_max > now.rlim_max)
		rl.rlim_cur = rl.rlim_max = now.rlim_max; /* only ever less */
	if (setrlimit(what, &rl) != 0)
		return hb_fail_errno(err, "sandbox_failed", "cannot set the limit %s", name);
	return 0;
}

static int
caps_reduce(uint64_t keep, struct hb_error *err)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data) != 0)
		return hb_fail_errno(err, "sandbox_failed", "cannot read the capabilities");
	/* Without CAP_SETPCAP the bounding set stays; no_new_privs makes it meaningless then. */
	if (data[CAP_TO_INDEX(CAP_SETPCAP)].effective & CAP_TO_MASK(CAP_SETPCAP)) {
		for (int cap = 0; cap <= CAPS_MAX && prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
			if (!(keep & (1ULL << cap)) && prctl(PR_CAPBSET_DROP, cap) != 0)
				return hb_fail_errno(err, "sandbox_failed",
						     "cannot drop capability %d", cap);
	}
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
		return hb_fail_errno(err, "sandbox_failed",
				     "cannot clear the ambient capabilities");
	for (int i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(keep >> (32 * i));
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &header, data) != 0)
		return hb_fail_errno(err, "sandbox_failed", "cannot reduce the capabilities");
	return 0;
}

/* Landlock and capabilities hold for one thread: there must be no other yet. */
static int
alone(struct hb_error *err)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *de;
	int count = 0;

	if (dir == NULL)
		return hb_fail_errno(err, "sandbox_failed",
				     "cannot count the threads (is /proc mounted?)");
	while ((de = readdir(dir)) != NULL)
		count += de->d_name[0] != '.';
	closedir(dir);
	if (count != 1)
		return hb_fail(err, "sandbox_failed",
			       "%d threads run already; the sandbox binds only one", count);
	return 0;
}

static unsigned long long
status_value(const char *text, const char *name, int base)
{
	const char *at = strstr(text, name);

	return at != NULL ? strtoull(at + strlen(name), NULL, base) : ~0ULL;
}

static int
verify(const struct hb_sandbox *box, int status_fd, struct hb_sandbox_report *report,
       bool degraded_ok, struct hb_error *err)
{
	char text[8192];
	ssize_t len = pread(status_fd, text, sizeof(text) - 1, 0);
	uint64_t effective;

	if (len <= 0)
		return hb_fail_errno(err, "sandbox_failed", "cannot read /proc/self/status");
	text[len] = '\0';
	report->no_new_privs = status_value(text, "\nNoNewPrivs:", 10) == 1;
	report->seccomp = status_value(text, "\nSeccomp:", 10) == 2;
	report->caps_permitted = status_value(text, "\nCapPrm:", 16);
	report->caps_bounding = status_value(text, "\nCapBnd:", 16);
	effective = status_value(text, "\nCapEff:", 16);
	if (!report->no_new_privs)
		return hb_fail(err, "sandbox_failed", "no_new_privs is not in force");
	if ((report->caps_permitted & ~box->keep_caps) != 0 || (effective & ~box->keep_caps) != 0)
		return hb_fail(err, "sandbox_failed",
			       "capabilities %llx are left, only %llx are declared",
			       (unsigned long long)report->caps_permitted,
			       (unsigned long long)box->keep_caps);
	if (!report->seccomp && !degraded_ok)
		return hb_fail(err, "sandbox_failed", "the seccomp filter is not in force");
	return 0;
}

static int
confine_files(const struct hb_sandbox *box, bool degraded_ok, struct hb_sandbox_report *report,
	      struct hb_error *err)
{
	/* A Landlock domain forbids every mount, so who mounts declares no paths. */
	if (box->deny_list && box->path_count == 0)
		return 0;
	report->landlock_abi = hb_landlock_abi();
	if (report->landlock_abi > 0)
		return hb_landlock_apply(box, report->landlock_abi, err);
	if (!degraded_ok)
		return hb_fail(err, "sandbox_unavailable",
			       "this kernel offers no Landlock: boot one that does "
			       "(5.13 or later, lsm=landlock), or accept less with [sandbox] mode "
			       "= degraded");
	report->degraded = true;
	return 0;
}

int
hb_sandbox_apply(const struct hb_sandbox *box, bool degraded_ok, struct hb_sandbox_report *report,
		 struct hb_error *err)
{
	struct hb_sandbox_report found = {0};
	struct hb_error why;
	int status_fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC), rc = -1;

	if (status_fd < 0)
		return hb_fail_errno(err, "sandbox_failed", "cannot open /proc/self/status");
	umask(077);
	if (alone(err) != 0 || limit(RLIMIT_CORE, 0, "core", err) != 0 ||
	    limit(RLIMIT_NOFILE, box->max_files > 0 ? box->max_files : FILES_MAX, "nofile", err) !=
		    0 ||
	    (box->max_memory > 0 && limit(RLIMIT_AS, box->max_memory, "as", err) != 0))
		goto out;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
		hb_fail_errno(err, "sandbox_failed", "cannot forbid core dumps and debuggers");
		goto out;
	}
	if (caps_reduce(box->keep_caps, err) != 0)
		goto out;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
		hb_fail_errno(err, "sandbox_failed", "cannot set no_new_privs");
		goto out;
	}
	if (confine_files(box, degraded_ok, &found, err) != 0)
		goto out;
	if (hb_seccomp_apply(box, &why) != 0) {
		if (!degraded_ok) {
			hb_fail(err, "sandbox_unavailable", "%s", why.message);
			goto out;
		}
		found.degraded = true;
	}
	if (verify(box, status_fd, &found, degraded_ok, err) != 0)
		goto out;
	if (report != NULL)
		*report = found;
	rc = 0;
out:
	hb_close(&status_fd);
	return rc;
}
