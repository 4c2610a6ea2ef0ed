/* The installer's side of the unpack worker: fork it, hand it layers, collect what it says. */
#include "broker/installer/unpack.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/installer/unpack_msg.h"
#include "common/buf.h"
#include "common/fs.h"

#define GIB ((uint64_t)1024 * 1024 * 1024)

const struct hb_unpack_limits hb_unpack_default_limits = {
	.total_bytes = 16 * GIB, /* six times the largest image known of */
	.file_bytes = 8 * GIB,
	.entries = 1000000, /* a large image of this kind has 200,000 */
	.path_bytes = 4094, /* what one system call can still name */
	.header_bytes = 1024 * 1024,
};

struct hb_unpacker {
	pid_t pid;
	int sock;
	bool failed;
};

/* How the worker ended, in words. */
static int worker_died(struct hb_unpacker *u, struct hb_error *err)
{
	int status = 0;

	u->failed = true;
	if (u->pid > 0 && waitpid(u->pid, &status, 0) == u->pid) {
		u->pid = -1;
		if (WIFSIGNALED(status))
			return hb_fail(err, "worker_died",
				       "the unpack worker was ended by signal %d (%s)",
				       WTERMSIG(status), strsignal(WTERMSIG(status)));
		return hb_fail(err, "worker_died", "the unpack worker ended with status %d",
			       WEXITSTATUS(status));
	}
	return hb_fail(err, "worker_died", "the unpack worker is gone");
}

static int receive(struct hb_unpacker *u, struct hb_unpack_reply *r, struct hb_error *err)
{
	ssize_t n;

	do {
		n = recv(u->sock, r, sizeof(*r), 0);
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(*r))
		return worker_died(u, err);
	r->error.code[sizeof(r->error.code) - 1] = '\0';
	r->error.message[sizeof(r->error.message) - 1] = '\0';
	if (r->kind == HB_UNPACK_FAILED) {
		u->failed = true;
		return hb_fail(err, r->error.code, "%s", r->error.message);
	}
	return 0;
}

int hb_unpack_start(int staging_fd, uid_t uid, gid_t gid, const struct hb_unpack_limits *limits,
		    bool degraded_ok, struct hb_unpacker **out, struct hb_error *err)
{
	struct hb_unpack_limits own = *(limits == NULL ? &hb_unpack_default_limits : limits);
	struct hb_unpack_reply r;
	struct hb_unpacker *u;
	int pair[2];
	pid_t pid;

	if (own.path_bytes > hb_unpack_default_limits.path_bytes)
		own.path_bytes = hb_unpack_default_limits.path_bytes;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return hb_fail_errno(err, "io_failed", "the unpack worker cannot be started");
	pid = fork();
	if (pid == 0)
		hb_unpack_worker(pair[1], staging_fd, uid, gid, &own, degraded_ok);
	hb_close(&pair[1]);
	if (pid < 0) {
		hb_close(&pair[0]);
		return hb_fail_errno(err, "io_failed", "the unpack worker cannot be started");
	}
	u = hb_calloc(1, sizeof(*u));
	u->pid = pid;
	u->sock = pair[0];
	if (receive(u, &r, err) < 0) {
		hb_unpack_free(u);
		return -1;
	}
	*out = u;
	return 0;
}

static int send_request(struct hb_unpacker *u, const struct hb_unpack_request *q, int fd,
			struct hb_error *err)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {{0}};
	struct iovec iov = {(void *)(uintptr_t)q, sizeof(*q)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;
	ssize_t n;

	if (u->failed)
		return hb_fail(err, "worker_died",
			       "the unpack worker failed before and takes no more work");
	if (fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	do {
		n = sendmsg(u->sock, &m, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(*q) ? 0 : worker_died(u, err);
}

int hb_unpack_layer(struct hb_unpacker *u, const struct hb_unpack_layer *layer,
		    void (*progress)(const struct hb_unpack_progress *p, void *arg), void *arg,
		    struct hb_error *err)
{
	struct hb_unpack_request q = {.kind = HB_UNPACK_LAYER, .layer = *layer};
	struct hb_unpack_reply r;

	if (send_request(u, &q, layer->blob_fd, err) < 0)
		return -1;
	for (;;) {
		if (receive(u, &r, err) < 0)
			return -1;
		if (r.kind == HB_UNPACK_DONE)
			return 0;
		if (r.kind == HB_UNPACK_PROGRESS && progress != NULL)
			progress(&r.progress, arg);
	}
}

int hb_unpack_finish(struct hb_unpacker *u, struct hb_tree_info *info, struct hb_error *err)
{
	struct hb_unpack_request q = {.kind = HB_UNPACK_FINISH};
	struct hb_unpack_reply r;

	if (send_request(u, &q, -1, err) < 0 || receive(u, &r, err) < 0)
		return -1;
	r.info.tree_digest[HB_HEX256 - 1] = '\0';
	if (r.kind != HB_UNPACK_DONE || !hb_is_hex64(r.info.tree_digest)) {
		u->failed = true;
		return hb_fail(err, "worker_died", "the unpack worker gave no result");
	}
	*info = r.info;
	u->failed = true; /* there is nothing left it could do */
	return 0;
}

void hb_unpack_free(struct hb_unpacker *u)
{
	if (u == NULL)
		return;
	hb_close(&u->sock);
	if (u->pid > 0) {
		kill(u->pid, SIGKILL);
		while (waitpid(u->pid, NULL, 0) < 0 && errno == EINTR)
			continue;
	}
	free(u);
}
