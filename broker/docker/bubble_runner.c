/*
 * The runner: forked before the executor confines itself, takes commands, forks a keeper for each
 * (bubble.h).
 *
 * Neither is killed with its parent: a keeper killed at a bad moment would leave its command's
 * processes behind. The runner ends when nobody is there any more who could ask it, a keeper when
 * its worker has let go and all of its command is gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/docker/bubble.h"
#include "broker/docker/workspace.h"
#include "common/fs.h"
#include "common/json.h"
#include "common/log.h"

#define MESSAGE_MAX 65536 /* a command of 4,000 characters, escaped */

/* The message and its three descriptors; false when the other side is gone. */
static bool receive(int fd, char *text, size_t size, size_t *len, int fds[3])
{
	union {
		char space[CMSG_SPACE(3 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {text, size};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof control};
	ssize_t n;

	do
		n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return false;
	*len = (size_t)n;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
		    c->cmsg_len == CMSG_LEN(3 * sizeof(int)))
			memcpy(fds, CMSG_DATA(c), 3 * sizeof(int));
	return true;
}

static _Noreturn void keeper(const struct hb_config *config, const char *text, size_t len,
			     const int fds[3])
{
	json_t *message = hb_json_parse(text, len, NULL);
	struct hb_bubble_job job = {.config = config,
				    .command = hb_json_text(message, "command", ":"),
				    .workdir = hb_json_text(message, "workdir", HB_WORKSPACE),
				    .net_raw = hb_json_bool(message, "net_raw", false),
				    .seconds = hb_json_int(message, "seconds", 1),
				    .out = fds[0],
				    .error = fds[1],
				    .control = fds[2]};

	if (!message)
		_exit(1);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGTERM, SIG_IGN); /* sent to a whole group of processes, say */
	hb_bubble_keep(&job);
	_exit(0);
}

void hb_bubble_runner(int fd, const struct hb_config *config)
{
	static char text[MESSAGE_MAX];
	size_t len;

	signal(SIGCHLD, SIG_IGN); /* keepers are not waited for */
	for (;;) {
		int fds[3] = {-1, -1, -1};

		if (!receive(fd, text, sizeof text, &len, fds))
			_exit(0);
		if (fds[2] >= 0 && fork() == 0) {
			close(fd); /* its end is to be that of the runner */
			keeper(config, text, len, fds);
		}
		for (int i = 0; i < 3; i++)
			hb_close(&fds[i]);
	}
}

/* No Landlock: it would forbid the mounts. Everything that isn't needed to build a sandbox is
 * denied, for the command in it as well, since the filter is inherited. */
static int confine(bool degraded_ok, struct hb_error *err)
{
	const struct hb_sandbox box = {
		.name = "hermes-docker runner", .deny_list = true, .syscalls = HB_SYS_MOUNT};

	return hb_sandbox_apply(&box, degraded_ok, NULL, err);
}

int hb_bubble_start_runner(struct hb_docker *d, struct hb_error *err)
{
	bool degraded_ok = strcmp(hb_config_text(d->process->config, "sandbox.mode"), "degraded") ==
			   0;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return hb_fail_errno(err, "no_worker",
				     "the runner of local commands can't be connected");
	d->runner_pid = fork();
	if (d->runner_pid == 0) {
		struct hb_error why;
		int fd = fcntl(pair[1], F_DUPFD_CLOEXEC, 64);

		prctl(PR_SET_NAME, "hermes-bubble", 0, 0, 0);
		signal(SIGTERM, SIG_DFL);
		signal(SIGINT, SIG_IGN);
		if (dup3(fd, 3, O_CLOEXEC) < 0 || close_range(4, ~0u, 0) < 0)
			_exit(71);
		if (confine(degraded_ok, &why) < 0) {
			hb_log(HB_LOG_ERROR, "runner_not_confined", "code", why.code, "msg",
			       why.message, NULL);
			_exit(71);
		}
		hb_bubble_runner(3, d->process->config);
	}
	close(pair[1]);
	if (d->runner_pid < 0) {
		close(pair[0]);
		return hb_fail_errno(err, "no_worker",
				     "the runner of local commands can't be forked");
	}
	d->runner_fd = pair[0];
	return 0;
}
