/*
 * The starter: the one worker of the ssh executor whose children may exec (run.h). It is forked
 * before the executor confines itself, holds the two helpers and one socket, and forks a session
 * for each packet. It never sees a profile directory, a ledger or a grant.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/ssh/embedded.h"
#include "broker/ssh/run.h"
#include "common/fs.h"
#include "common/log.h"
#include "common/sandbox.h"

/* What ssh needs to start and to find a host. Programs are started by name from /usr/bin/ssh only;
 * the loader has to be executable too, and can start nothing else, since no other program may be
 * read. */
static const struct hb_sandbox_path session_paths[] = {
	{HB_SSH_PROGRAM, HB_FS_EXEC | HB_FS_OPTIONAL},
#if defined(__x86_64__)
	{"/lib64/ld-linux-x86-64.so.2", HB_FS_EXEC | HB_FS_OPTIONAL},
	{"/lib/x86_64-linux-gnu", HB_FS_READ | HB_FS_OPTIONAL},
	{"/usr/lib/x86_64-linux-gnu", HB_FS_READ | HB_FS_OPTIONAL},
#elif defined(__aarch64__)
	{"/lib/ld-linux-aarch64.so.1", HB_FS_EXEC | HB_FS_OPTIONAL},
	{"/lib/aarch64-linux-gnu", HB_FS_READ | HB_FS_OPTIONAL},
	{"/usr/lib/aarch64-linux-gnu", HB_FS_READ | HB_FS_OPTIONAL},
#endif
	{"/lib64", HB_FS_READ | HB_FS_OPTIONAL},
	{"/usr/lib64", HB_FS_READ | HB_FS_OPTIONAL},
	{"/etc", HB_FS_READ}, /* names of hosts and services, the loader's cache */
	{"/run/systemd/resolve", HB_FS_READ | HB_FS_OPTIONAL},
	{"/run/resolvconf", HB_FS_READ | HB_FS_OPTIONAL},
	{"/run/NetworkManager", HB_FS_READ | HB_FS_OPTIONAL},
	{"/dev/null", HB_FS_READ | HB_FS_WRITE},
	{"/proc", HB_FS_READ}, /* last: the starter alone, for confining its sessions */
};

void hb_session_sandbox(struct hb_sandbox *box, bool with_proc)
{
	size_t count = sizeof(session_paths) / sizeof(session_paths[0]);

	*box = (struct hb_sandbox){
		.name = with_proc ? "hermes-ssh starter" : "hermes-ssh session",
		.deny_list = true,
		.paths = session_paths,
		.path_count = with_proc ? count : count - 1,
		.tcp_connect_any = true,
		.max_files = 256,
	};
}

int hb_run_helpers_open(struct hb_run_helpers *out, struct hb_error *err)
{
	out->askpass = hb_memory_file("hermes-askpass", hb_embedded_askpass,
				      hb_embedded_askpass_len, 0500, err);
	out->account = out->askpass < 0 ? -1
					: hb_memory_file("hermes-account", hb_embedded_account,
							 hb_embedded_account_len, 0500, err);
	return out->account < 0 ? -1 : 0;
}

static void isolate(int *fd, struct hb_run_helpers *helpers)
{
	sigset_t none;
	int keep[3] = {*fd, helpers->askpass, helpers->account};

	/* Up, then down, so that none is overwritten before it was copied. */
	for (int i = 0; i < 3; i++)
		keep[i] = fcntl(keep[i], F_DUPFD_CLOEXEC, 64);
	for (int i = 0; i < 3; i++)
		if (keep[i] < 0 || dup3(keep[i], 3 + i, O_CLOEXEC) < 0)
			_exit(71);
	close_range(6, ~0u, 0);
	*fd = 3;
	helpers->askpass = 4;
	helpers->account = 5;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	/* Whoever stops the service signals the whole group: this one ends when its socket does.
	 * Sessions reap themselves. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGCHLD, SIG_IGN);
}

static _Noreturn void starter_main(int fd, bool degraded_ok, pid_t executor)
{
	struct hb_run_helpers helpers;
	struct hb_run_order order;
	struct hb_sandbox box;
	struct hb_error err;
	int fds[HB_RUN_FDS], rc;
	json_t *body;
	pid_t self = getpid();

	prctl(PR_SET_NAME, "hermes-ssh-run", 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != executor)
		_exit(71);
	hb_session_sandbox(&box, true);
	if (hb_run_helpers_open(&helpers, &err) < 0)
		goto failed;
	isolate(&fd, &helpers);
	if (hb_sandbox_apply(&box, degraded_ok, NULL, &err) < 0)
		goto failed;
	while ((rc = hb_run_receive(fd, &body, &order, fds, &err)) != 0) {
		if (rc < 0) {
			hb_log(HB_LOG_ERROR, "order_refused", "code", err.code, "msg", err.message,
			       NULL);
			continue;
		}
		if (fork() == 0) {
			close(fd);
			hb_session_main(&order, fds, &helpers, self, degraded_ok);
		}
		/* Without a session nobody holds the worker's other ends any more, and it is told
		 * so by that. */
		for (size_t i = 0; i < HB_RUN_FDS; i++)
			hb_close(&fds[i]);
		json_decref(body);
	}
	_exit(0);
failed:
	hb_log(HB_LOG_ERROR, "starter_failed", "code", err.code, "msg", err.message, NULL);
	_exit(71);
}

int hb_starter_fork(bool degraded_ok, int *fd, pid_t *pid, struct hb_error *err)
{
	pid_t self = getpid(), child;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return hb_fail_errno(err, "worker_failed", "the starter's socket can't be made");
	child = fork();
	if (child == 0) {
		close(pair[0]);
		starter_main(pair[1], degraded_ok, self);
	}
	close(pair[1]);
	if (child < 0) {
		close(pair[0]);
		return hb_fail_errno(err, "worker_failed", "the starter can't be forked");
	}
	*fd = pair[0];
	*pid = child;
	return 0;
}
