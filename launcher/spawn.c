/*
 * One process: fork, put on its identity, exec by descriptor. What the child does between fork and
 * exec is the whole of what a service manager would be asked to do, in the order in which each step
 * is still allowed.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/process.h"
#include "launcher/launcher.h"

#define READY_FD 3
#define GROUPS_MAX 64
#define EXIT_SPAWN 71 /* EX_OSERR */

/* In the child there is one way out: say what failed where the process's log goes. */
static _Noreturn void
give_up(const char *what)
{
	dprintf(2,
		"level=error process=hermes-launcher event=spawn_failed step=\"%s\" msg=\"%s\"\n",
		what, strerror(errno));
	_exit(EXIT_SPAWN);
}

static void
descriptors(const struct hb_spawn *what)
{
	/* Above everything that is about to be replaced. */
	int program = fcntl(what->program_fd, F_DUPFD_CLOEXEC, 16);
	int error = fcntl(what->error_fd, F_DUPFD_CLOEXEC, 16);
	int ready = fcntl(what->ready_fd, F_DUPFD_CLOEXEC, 16);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (program < 0 || error < 0 || ready < 0 || null < 0 || dup2(null, 0) < 0 ||
	    dup2(error, 1) < 0 || dup2(error, 2) < 0 || dup2(ready, READY_FD) < 0 ||
	    dup2(program, READY_FD + 1) < 0)
		give_up("descriptors");
	if (close_range(READY_FD + 2, ~0U, 0) != 0 || fcntl(READY_FD + 1, F_SETFD, FD_CLOEXEC) != 0)
		give_up("close descriptors");
}

static void
signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	for (int n = 1; n < NSIG; n++)
		signal(n,
		       SIG_DFL); /* not all exist or can be set: those stay as exec resets them */
	if (sigprocmask(SIG_SETMASK, &none, NULL) != 0)
		give_up("signals");
}

static void
capabilities(uint64_t keep)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data) != 0)
		give_up("capget");
	for (int i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(keep >> (32 * i));
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &header, data) != 0)
		give_up("capset");
}

static void
identity(const struct hb_spawn *what)
{
	const struct hb_service *s = what->service;
	uid_t uid = hb_peer_uid(s->peer);
	gid_t gid = hb_peer_gid(s->peer), groups[GROUPS_MAX];
	size_t count = hb_process_groups(what->config, s->peer, groups, GROUPS_MAX);

	for (int cap = 0; cap < 64 && prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
		if (!(s->caps & (1ULL << cap)) && prctl(PR_CAPBSET_DROP, cap) != 0)
			give_up("drop the bounding set");
	if (setgroups(count, groups) != 0 || setresgid(gid, gid, gid) != 0 ||
	    setresuid(uid, uid, uid) != 0)
		give_up("change identity");
	/* Leaving uid 0 has emptied the sets; root keeps what is declared. */
	capabilities(s->caps);
	if (uid != 0 && (setuid(0) == 0 || setgid(0) == 0)) {
		errno = EPERM;
		give_up("root could be had back");
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		give_up("no_new_privs");
}

static _Noreturn void
child(const struct hb_spawn *what, pid_t parent)
{
	static char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin", lang[] = "LANG=C.UTF-8",
		    home[] = "HOME=/nonexistent";
	/* "." : the state directory is entered already, and the way to it may be closed to the new
	 * uid. */
	static char name[32], state[] = "--state", here[] = ".", ready[] = "--ready-fd", fd[] = "3";
	char *const environment[] = {path, lang, home, NULL};
	char *const argv[] = {name, state, here, ready, fd, NULL};

	snprintf(name, sizeof(name), "%s", hb_peer_name(what->service->peer));
	signals();
	descriptors(what);
	umask(077);
	if (setsid() < 0)
		give_up("new session");
	identity(what);
	/* After the change of identity, which would clear it. */
	if (prctl(PR_SET_PDEATHSIG, what->service->death_signal, 0, 0, 0) != 0)
		give_up("death signal");
	if (getppid() != parent)
		_exit(EXIT_SPAWN); /* the launcher died in between */
	execveat(READY_FD + 1, "", argv, environment, AT_EMPTY_PATH);
	give_up("exec");
}

pid_t
hb_spawn(const struct hb_spawn *what, struct hb_error *err)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		return hb_fail_errno(err, "spawn_failed", "cannot start %s",
				     hb_peer_name(what->service->peer));
	if (pid == 0)
		child(what, parent);
	return pid;
}
