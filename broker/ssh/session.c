/*
 * A session: the parent of one ssh (run.h).
 *
 * It enters a Landlock domain of its own, so that an ssh taken over by its server sees neither
 * other sessions' keys nor their processes, starts ssh, and ends everything that came of it: when
 * the worker says so, when the worker is gone, when ssh itself has ended. As the subreaper it
 * inherits every orphan; no child left means no descendant left.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/ssh/run.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/sandbox.h"

#define TERM_MS 2000 /* for ssh to say goodbye to its server */
#define KILL_MS 5000

struct session {
	const struct hb_run_order *order;
	const struct hb_run_helpers *helpers;
	int *fds, signal_fd, children_fd;
	pid_t pid; /* of ssh; 0 once it is reaped */
	int status, killed;
	bool ending;
	int64_t deadline;
};

/* In the child. */
static _Noreturn void exec_ssh(const struct session *s, pid_t session)
{
	bool password = strcmp(s->order->auth, "password") == 0;
	char askpass[64], preload[64];
	/* The password is standard input: ssh itself doesn't read it (-n), its child hermes-askpass
	 * does. */
	char *const env[] = {(char *)"PATH=/nonexistent",
			     (char *)"LC_ALL=C",
			     preload,
			     password ? (char *)"SSH_ASKPASS_REQUIRE=force" : NULL,
			     askpass,
			     NULL};
	struct hb_error err;
	char **argv = hb_run_arguments(s->order, session, s->fds, &err);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != session)
		_exit(127);
	snprintf(askpass, sizeof(askpass), "SSH_ASKPASS=/proc/%d/fd/%d", session,
		 s->helpers->askpass);
	snprintf(preload, sizeof(preload), "LD_PRELOAD=/proc/%d/fd/%d", session,
		 s->helpers->account);
	setpgid(0, 0);
	if (!argv || null < 0 || dup2(password ? s->fds[HB_RUN_CREDENTIAL] : null, 0) < 0 ||
	    dup2(s->fds[HB_RUN_OUTPUT], 1) < 0 || dup2(s->fds[HB_RUN_OUTPUT], 2) < 0) {
		dprintf(s->fds[HB_RUN_LOG], "hermes: ssh can't be prepared: %s\r\n",
			argv ? strerror(errno) : err.message);
		_exit(127);
	}
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve(HB_SSH_PROGRAM, argv, env);
	dprintf(s->fds[HB_RUN_LOG], "hermes: " HB_SSH_PROGRAM " can't be started: %s\r\n",
		strerror(errno));
	_exit(127);
}

/* The group, and whatever has left it: each child the kernel lists. */
static void signal_all(struct session *s, int sig)
{
	char text[1024];
	ssize_t n = s->children_fd < 0 ? 0 : pread(s->children_fd, text, sizeof(text) - 1, 0);

	if (s->pid > 0 && kill(-s->pid, sig) == 0)
		s->killed += sig == SIGKILL;
	text[n > 0 ? n : 0] = '\0';
	for (char *at = text, *end; (n = strtol(at, &end, 10)) > 0; at = end)
		kill((pid_t)n, sig);
}

static void begin_ending(struct session *s, int grace_ms)
{
	if (s->ending)
		return;
	s->ending = true;
	s->deadline = hb_monotonic_ms() + grace_ms;
	signal_all(s, grace_ms ? SIGTERM : SIGKILL);
}

/* False when no child is left. */
static bool reap(struct session *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != s->pid)
			continue;
		/* What ssh leaves behind has nothing more to do. */
		kill(-s->pid, SIGKILL);
		s->pid = 0;
		s->status = status;
		begin_ending(s, 0);
	}
	return pid == 0 || errno != ECHILD;
}

static void watch(struct session *s)
{
	struct signalfd_siginfo info;
	int64_t give_up = 0;
	char word[16];

	while (reap(s)) {
		struct pollfd fds[] = {
			{.fd = s->signal_fd, .events = POLLIN},
			{.fd = s->ending ? -1 : s->fds[HB_RUN_SESSION], .events = POLLIN}};
		int64_t now = hb_monotonic_ms(), wait = s->ending ? s->deadline - now : -1;

		if (s->ending && wait <= 0) {
			signal_all(s, SIGKILL);
			give_up = give_up ? give_up : now + KILL_MS;
			if (now > give_up)
				return; /* stuck in the kernel; PDEATHSIG has it when it comes back
					 */
			wait = 50;
			s->deadline = now + wait;
		}
		if (poll(fds, 2, (int)wait) < 0 && errno != EINTR)
			return;
		if (fds[0].revents)
			while (read(s->signal_fd, &info, sizeof(info)) == sizeof(info))
				;
		/* "stop", or the worker is gone. */
		if (fds[1].revents &&
		    recv(s->fds[HB_RUN_SESSION], word, sizeof(word), MSG_DONTWAIT) >= 0)
			begin_ending(s, TERM_MS);
	}
}

static void report(const struct session *s)
{
	char text[96];
	int n = snprintf(text, sizeof(text), "{\"exit\":%d,\"signal\":%d,\"killed\":%d}",
			 WIFEXITED(s->status) ? WEXITSTATUS(s->status) : -1,
			 WIFSIGNALED(s->status) ? WTERMSIG(s->status) : 0, s->killed);

	(void)!send(s->fds[HB_RUN_SESSION], text, (size_t)n, MSG_NOSIGNAL);
}

void hb_session_main(const struct hb_run_order *order, int fds[HB_RUN_FDS],
		     const struct hb_run_helpers *helpers, pid_t starter, bool degraded_ok)
{
	struct session s = {
		.order = order, .helpers = helpers, .fds = fds, .signal_fd = -1, .children_fd = -1};
	struct hb_sandbox box;
	struct hb_error err = {"", ""};
	pid_t self = getpid();
	sigset_t child;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	signal(SIGCHLD, SIG_DFL);
	if (getppid() != starter || setsid() < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		_exit(71);
	s.children_fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	hb_session_sandbox(&box, false);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	s.signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	/* ssh opens its memory files below /proc/PID/fd of this process, which the kernel allows
	 * only for one that may be looked at; the domain keeps everybody else from looking. */
	if (s.signal_fd < 0 || hb_sandbox_apply(&box, degraded_ok, NULL, &err) < 0 ||
	    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0) {
		dprintf(fds[HB_RUN_LOG], "hermes: the session can't be confined: %s\r\n",
			err.message);
		_exit(71);
	}
	s.pid = fork();
	if (s.pid == 0)
		exec_ssh(&s, self);
	hb_close(&fds[HB_RUN_OUTPUT]);
	if (s.pid < 0) {
		dprintf(fds[HB_RUN_LOG], "hermes: ssh can't be forked\r\n");
		_exit(71);
	}
	setpgid(s.pid, s.pid); /* both sides, so that it is so before either goes on */
	watch(&s);
	report(&s);
	_exit(0);
}
