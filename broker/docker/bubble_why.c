/*
 * Why a sandbox can't be built here, in words that name the one thing to change. Only asked once
 * bubblewrap has failed: it may be allowed what this process is not (an AppArmor profile of its
 * own).
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/docker/bubble.h"

const char *hb_bubble_program(void)
{
	static const char *const places[] = {"/usr/bin/bwrap", "/usr/local/bin/bwrap",
					     "/bin/bwrap"};

	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		if (access(places[i], X_OK) == 0)
			return places[i];
	return NULL;
}

/* The first character of a setting of the kernel; '?' when there is none. */
static char setting(const char *path)
{
	char c = '?';
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, &c, 1) != 1)
		c = '?';
	if (fd >= 0)
		close(fd);
	return c;
}

enum step { STEP_USER = 1, STEP_MOUNT_SPACE, STEP_MOUNT, STEP_NONE };

/* What the kernel says to the same, step by step, in a child: the step that failed and errno. */
static enum step try_steps(int *error)
{
	int pair[2], got[2] = {STEP_NONE, 0};
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return STEP_NONE;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_DUMPABLE, 1);
		if (unshare(CLONE_NEWUSER) < 0)
			got[0] = STEP_USER;
		else if (unshare(CLONE_NEWNS) < 0)
			got[0] = STEP_MOUNT_SPACE;
		else if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
			got[0] = STEP_MOUNT;
		got[1] = errno;
		if (write(pair[1], got, sizeof got) < 0)
			_exit(1);
		_exit(0);
	}
	close(pair[1]);
	if (pid > 0 && read(pair[0], got, sizeof got) == sizeof got)
		*error = got[1];
	close(pair[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return (enum step)got[0];
}

void hb_bubble_why(struct hb_error *err)
{
	int error = 0;
	enum step step = try_steps(&error);
	const char *why;

	if (!hb_bubble_program()) {
		hb_fail(err, "sandbox_helper_missing",
			"bwrap is not installed: apt-get install bubblewrap. The command was not "
			"run");
		return;
	}
	if (step == STEP_USER && setting("/proc/sys/user/max_user_namespaces") == '0')
		why = "user namespaces are switched off: sysctl user.max_user_namespaces is 0, set "
		      "it to 1000 or so";
	else if (step == STEP_USER && setting("/proc/sys/kernel/unprivileged_userns_clone") == '0')
		why = "user namespaces are for root alone: sysctl kernel.unprivileged_userns_clone "
		      "is 0, set it to 1";
	else if (step == STEP_USER && (error == EINVAL || error == ENOSYS))
		why = "this kernel has no user namespaces (CONFIG_USER_NS)";
	else if (step == STEP_USER)
		why = "creating a user namespace is denied (unshare with CLONE_NEWUSER) by a "
		      "seccomp filter or security "
		      "module; allow that call for hermes-docker";
	else if (step != STEP_NONE &&
		 setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == '1')
		why = "AppArmor takes the rights away in user namespaces "
		      "(kernel.apparmor_restrict_unprivileged_userns is 1); "
		      "load a profile that gives /usr/bin/bwrap the permission userns";
	else if (step == STEP_MOUNT_SPACE)
		why = "a mount namespace is denied (unshare with CLONE_NEWNS) by a seccomp filter "
		      "or security module; allow "
		      "that call for hermes-docker";
	else if (step == STEP_MOUNT)
		why = "mounting is denied (mount in an own namespace) by a seccomp filter or "
		      "security module; allow that call "
		      "for hermes-docker";
	else
		why = "bubblewrap could not build it";
	hb_fail(err, "sandbox_unavailable",
		"local commands can't be kept apart on this host: %s. The command was not run",
		why);
}
