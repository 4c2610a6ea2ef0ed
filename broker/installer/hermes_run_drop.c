/*
 * Giving everything up, each step checked from the kernel's side: descriptors, Landlock, bounding set, groups, ids,
 * capabilities, limits, system calls. The order matters: the bounding set needs CAP_SETPCAP, the ids need CAP_SETUID,
 * the parent-death signal is forgotten by a change of ids, and the filters come last since they forbid some of what
 * stands above them.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broker/installer/hermes_run.h"
#include "common/fs.h"
#include "common/sandbox.h"

#define FILES_MAX 65536 /* bun and node open one a connection */

/* Newer than the headers of the oldest system we build on. */
#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13)
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#define SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0)
#define SCOPE_SIGNAL (1ULL << 1)

/* struct landlock_ruleset_attr as of ABI 6; an older kernel is given the part it knows. */
struct ruleset_attr {
	uint64_t files, net, scoped;
};

#define READ_ACCESS (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FILE_ACCESS \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | \
	 LANDLOCK_ACCESS_FS_TRUNCATE)

static int allow(int ruleset, const char *path, uint64_t access, struct hb_error *err)
{
	struct landlock_path_beneath_attr rule = {.allowed_access = access};
	struct stat st;
	int rc;

	rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
	if (rule.parent_fd < 0)
		return 0; /* not on this host: nothing to allow */
	if (fstat(rule.parent_fd, &st) == 0 && !S_ISDIR(st.st_mode))
		rule.allowed_access &= FILE_ACCESS;
	rc = (int)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
	close(rule.parent_fd);
	return rc < 0 ? hb_fail_errno(err, "landlock_failed", "cannot allow %s", path) : 0;
}

/* direct: the release, the host's programs and libraries and /proc are readable; data and /tmp are writable. */
static int allow_direct(int ruleset, const struct hb_run_spec *spec, uint64_t all, struct hb_error *err)
{
	static const char *const readable[] = {"/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/proc",
					       "/sys", "/run/systemd/resolve", "/run/resolvconf"};
	static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
					      "/dev/shm"};

	if (allow(ruleset, spec->rootfs, READ_ACCESS & all, err) < 0 || allow(ruleset, spec->data_dir, all, err) < 0 ||
	    allow(ruleset, "/tmp", all, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(readable) / sizeof(readable[0]); i++)
		if (allow(ruleset, readable[i], READ_ACCESS & all, err) < 0)
			return -1;
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
		if (allow(ruleset, devices[i], all, err) < 0)
			return -1;
	return 0;
}

/* Signals and abstract sockets end at the payload (ABI 6); files too for direct. A kernel without: false. */
static int landlock(struct hb_run_drop *drop, struct hb_error *err)
{
	int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	uint64_t files = (1ULL << 13) - 1;
	struct ruleset_attr attr = {0};
	size_t size = sizeof(attr);
	int ruleset = -1, rc = -1;

	if (abi < 1 || (abi < 6 && !drop->confine_files))
		return 0;
	if (abi >= 2)
		files |= LANDLOCK_ACCESS_FS_REFER;
	if (abi >= 3)
		files |= LANDLOCK_ACCESS_FS_TRUNCATE;
	if (drop->confine_files)
		attr.files = files;
	if (abi >= 6)
		attr.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
	else
		size = abi >= 4 ? 16 : 8;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (ruleset < 0) {
		hb_fail_errno(err, "landlock_failed", "cannot make a Landlock ruleset");
		goto out;
	}
	if (drop->confine_files && allow_direct(ruleset, drop->spec, files, err) < 0)
		goto out;
	if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0) {
		hb_fail_errno(err, "landlock_failed", "cannot enter the Landlock domain");
		goto out;
	}
	drop->landlocked = true;
	rc = 0;
out:
	hb_close(&ruleset);
	return rc;
}

static int identity(const struct hb_run_spec *spec, struct hb_error *err)
{
	uid_t r, e, s;
	gid_t rg, eg, sg;

	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return hb_fail_errno(err, "drop_failed", "cannot empty the capability bounding set");
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (setgroups(0, NULL) < 0 || setresgid(spec->gid, spec->gid, spec->gid) < 0 ||
	    setresuid(spec->uid, spec->uid, spec->uid) < 0)
		return hb_fail_errno(err, "drop_failed", "cannot become uid %u and gid %u", (unsigned)spec->uid,
				     (unsigned)spec->gid);
	if (getresuid(&r, &e, &s) < 0 || getresgid(&rg, &eg, &sg) < 0 || r != spec->uid || e != r || s != r ||
	    rg != spec->gid || eg != rg || sg != rg || getgroups(0, NULL) != 0 || setuid(0) == 0)
		return hb_fail(err, "drop_failed", "the kernel did not take root's rights away");
	return 0;
}

/* Unix, IPv4, IPv6, and netlink, which resolvers ask for addresses. The others are kernel code that no service needs. */
static int deny_socket_families(struct hb_error *err)
{
	static const int wanted[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int rc = ctx ? 0 : -ENOMEM;

	for (int family = 0; rc == 0 && family <= AF_MAX; family++) {
		enum scmp_compare op = family == AF_MAX ? SCMP_CMP_GE : SCMP_CMP_EQ;
		bool is_wanted = false;

		for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
			is_wanted = is_wanted || wanted[i] == family;
		if (!is_wanted)
			rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
					      SCMP_CMP(0, op, (scmp_datum_t)family));
	}
	if (rc == 0)
		rc = seccomp_load(ctx);
	if (ctx)
		seccomp_release(ctx);
	if (rc == 0)
		return 0;
	errno = -rc;
	return hb_fail_errno(err, "drop_failed", "cannot restrict the runtime's sockets");
}

/* Only 0, 1, 2 and the status descriptor (which closes itself at execve) stay. */
static int close_others(int keep)
{
	unsigned k = (unsigned)keep;

	if (keep < 3)
		return close_range(3, ~0u, 0);
	if (fcntl(keep, F_SETFD, FD_CLOEXEC) < 0 || close_range(k + 1, ~0u, 0) < 0)
		return -1;
	return k > 3 ? close_range(3, k - 1, 0) : 0;
}

int hb_run_drop(struct hb_run_drop *drop, struct hb_error *err)
{
	/* A deny-list, since the payload is a program we don't know; it may not mount, trace, or make namespaces. */
	const struct hb_sandbox box = {.name = "runtime", .deny_list = true, .max_files = FILES_MAX};

	if (close_others(drop->keep_fd) < 0)
		return hb_fail_errno(err, "drop_failed", "cannot close inherited descriptors");
	setsid(); /* no controlling terminal; a session leader already: fails, and is what we want */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return hb_fail_errno(err, "drop_failed", "cannot set no_new_privs");
	if (landlock(drop, err) < 0 || identity(drop->spec, err) < 0 ||
	    hb_sandbox_apply(&box, false, NULL, err) < 0 || deny_socket_families(err) < 0)
		return -1;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return hb_fail_errno(err, "drop_failed", "cannot ask to end with the supervisor");
	if (getppid() != drop->parent)
		return hb_fail(err, "parent_gone", "the supervisor ended while the runtime was being set up");
	return 0;
}
