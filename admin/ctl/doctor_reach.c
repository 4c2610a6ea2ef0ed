/*
 * hermesctl doctor --authority, second half: which live process reaches which secret or socket.
 *
 * Asked of the kernel twice. By identity: a child takes on exactly the ids and groups that /proc
 * shows of the process, without any capability, and tries. By possession: the descriptors the
 * process has open. A process that kept CAP_DAC_OVERRIDE (the installer) is told apart, since files'
 * modes don't bind it and what does, its Landlock domain, can't be seen from outside.
 */
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/doctor.h"
#include "common/buf.h"
#include "common/paths.h"

#define GROUPS_MAX 64
#define CAP_DAC_OVERRIDE_BIT (1ULL << 1)

static const enum hb_peer servers[] = {HB_PEER_BROKER,   HB_PEER_FETCHER, HB_PEER_INSTALLER,
				       HB_PEER_DOCKER,   HB_PEER_SSH,     HB_PEER_APPROVER,
				       HB_PEER_ADMIN};

/* A path relative to the state directory, or a setting that holds one; and the one process that may
 * reach it. */
static const struct {
	const char *what, *path, *setting;
	int mode;
	enum hb_peer owner;
} things[] = {
	{"Docker socket", NULL, "docker.socket", W_OK, HB_PEER_DOCKER},
	{"SSH profiles", HB_PATH_SSH_PROFILES, NULL, R_OK | X_OK, HB_PEER_SSH},
	{"SSH integrity secret", HB_PATH_SSH_INTEGRITY, NULL, R_OK, HB_PEER_SSH},
	{"signing key", HB_PATH_SIGNING_KEY, NULL, R_OK, HB_PEER_APPROVER},
	{"bot token", HB_PATH_BOT_TOKEN, NULL, R_OK, HB_PEER_APPROVER},
	{"control secret", HB_PATH_CONTROL_SECRET, NULL, R_OK, HB_PEER_BROKER},
	{"admin key", HB_PATH_ADMIN_KEY, NULL, R_OK, HB_PEER_ADMIN},
	/* The prober serves nothing, so it is none of those that are asked: no process of them may. */
	{"runtime keys", "probe/keys", NULL, R_OK | X_OK, HB_PEER_PROBE},
	{"inventory", "onboarding", NULL, R_OK | X_OK, HB_PEER_PROBE},
};

size_t ctl_status_groups(const char *status, gid_t *groups, size_t max)
{
	const char *at = strstr(status, "\nGroups:");
	size_t count = 0;
	char *end;

	for (at = at ? at + 8 : ""; *at && *at != '\n' && count < max; at = end) {
		unsigned long gid = strtoul(at, &end, 10);

		if (end == at)
			break;
		groups[count++] = (gid_t)gid;
		end += strspn(end, " \t");
	}
	return count;
}

static bool by_identity(const char *status, const char *path, int mode)
{
	uid_t uid = (uid_t)ctl_status_number(status, "\nUid:", 10);
	gid_t gid = (gid_t)ctl_status_number(status, "\nGid:", 10), groups[GROUPS_MAX];
	size_t count = ctl_status_groups(status, groups, GROUPS_MAX);
	int answer = 1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		if (setgroups(count, groups) < 0 || setresgid(gid, gid, gid) < 0 ||
		    setresuid(uid, uid, uid) < 0)
			_exit(2);
		_exit(faccessat(AT_FDCWD, path, mode, AT_EACCESS) == 0 ? 0 : 1);
	}
	return pid > 0 && waitpid(pid, &answer, 0) == pid && WIFEXITED(answer) &&
	       WEXITSTATUS(answer) == 0;
}

static bool by_descriptor(pid_t pid, const char *real)
{
	char dir[64], path[PATH_MAX + 64], target[PATH_MAX];
	bool found = false;
	struct dirent *de;
	DIR *d;

	snprintf(dir, sizeof dir, "/proc/%d/fd", pid);
	d = opendir(dir);
	while (d && (de = readdir(d))) {
		ssize_t n;

		snprintf(path, sizeof path, "%s/%s", dir, de->d_name);
		n = readlink(path, target, sizeof target - 1);
		target[n > 0 ? n : 0] = '\0';
		found = found || strncmp(target, real, strlen(real)) == 0;
	}
	if (d)
		closedir(d);
	return found;
}

static void add_name(struct hb_buf *list, enum hb_peer p, const char *how)
{
	hb_buf_printf(list, "%s%s%s", list->len ? ", " : "", hb_peer_name(p), how);
}

void ctl_doctor_reach(struct ctl_findings *f)
{
	char status[8192], real[PATH_MAX];

	for (size_t t = 0; t < sizeof things / sizeof things[0]; t++) {
		const char *path = things[t].setting
					   ? hb_config_text(f->c->config, things[t].setting)
					   : things[t].path;
		struct hb_buf who = HB_BUF_INIT;
		bool foreign = false;

		if (!realpath(path, real)) {
			ctl_finding(f, things[t].what, "it does not exist", NULL);
			continue;
		}
		for (size_t i = 0; i < sizeof servers / sizeof servers[0]; i++) {
			pid_t pid = ctl_server_pid(servers[i]);
			bool root, reaches, holds;

			if (pid <= 0 || !ctl_read_status(pid, status, sizeof status))
				continue;
			root = (ctl_status_number(status, "\nCapEff:", 16) &
				(long long)CAP_DAC_OVERRIDE_BIT) != 0;
			reaches = !root && by_identity(status, path, things[t].mode);
			holds = by_descriptor(pid, real);
			if (reaches || holds)
				add_name(&who, servers[i], holds ? " (open)" : "");
			foreign = foreign || ((reaches || holds) && servers[i] != things[t].owner);
		}
		ctl_finding(f, things[t].what, who.len ? who.data : "no process reaches it",
			    foreign ? "only one process may reach it: run hermesctl setup, and look at "
				      "who changed its owner, mode or groups"
				    : NULL);
		hb_buf_free(&who);
	}
}
