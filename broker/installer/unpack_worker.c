/*
 * The unpack worker: the process that reads hostile archives.
 *
 * Holds: the staging directory, one socket to the installer, the descriptor of the layer at work.
 * Must never hold: anything else; it gives up identity, files, network and exec before the first
 * byte is read.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <locale.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/unpack_flush.h"
#include "broker/installer/unpack_layer.h"
#include "broker/installer/unpack_msg.h"
#include "common/fs.h"
#include "common/sandbox.h"

#define SOCK_FD 3
#define STAGING_FD 4

/* Memory: a backstop far above what a legitimate image needs (tables of all entries, one
 * directory's names), so that an image made to fill memory ends the worker and not the machine. */
#define MAX_MEMORY ((size_t)1024 * 1024 * 1024)

struct worker {
	const struct hb_unpack_limits *limits;
	struct hb_tree *tree;
	struct hb_unpack_totals totals;
	struct hb_flusher *flusher;
};

static const struct hb_sandbox_path paths[] = {
	{".", HB_FS_READ | HB_FS_WRITE},
};

static const struct hb_sandbox box = {
	.name = "unpack",
	.syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_OWNERS,
	.paths = paths,
	.path_count = sizeof(paths) / sizeof(paths[0]),
	.max_files = 1024,
#if !defined(__SANITIZE_ADDRESS__)
	.max_memory = MAX_MEMORY,
#endif
};

static int reply(const struct hb_unpack_reply *r)
{
	ssize_t n;

	do {
		n = send(SOCK_FD, r, sizeof(*r), MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(*r) ? 0 : -1;
}

static void reply_failed(const struct hb_error *err)
{
	struct hb_unpack_reply r = {.kind = HB_UNPACK_FAILED, .error = *err};

	reply(&r);
}

static int keep_descriptors(int sock, int staging_fd, struct hb_error *err)
{
	/* Out of the way first, since the two may be each other's places. */
	int a = fcntl(sock, F_DUPFD, 10), b = fcntl(staging_fd, F_DUPFD, 10), null;

	if (a < 0 || b < 0 || dup3(a, SOCK_FD, O_CLOEXEC) < 0 ||
	    dup3(b, STAGING_FD, O_CLOEXEC) < 0 || close_range(STAGING_FD + 1, ~0U, 0) < 0)
		return hb_fail_errno(err, "io_failed",
				     "the unpack worker cannot close its descriptors");
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
		return hb_fail_errno(err, "io_failed", "the unpack worker cannot open /dev/null");
	hb_close(&null);
	return 0;
}

static int become(uid_t uid, gid_t gid, struct hb_error *err)
{
	if (geteuid() == uid && getegid() == gid)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return hb_fail_errno(err, "io_failed",
				     "the unpack worker cannot become uid %u gid %u", (unsigned)uid,
				     (unsigned)gid);
	if (uid != 0 && (setuid(0) == 0 || geteuid() != uid || getegid() != gid))
		return hb_fail(err, "io_failed", "the unpack worker still has its old identity");
	return 0;
}

static int confine(uid_t uid, gid_t gid, bool degraded_ok, struct hb_error *err)
{
	struct hb_sandbox_report report;

	setlocale(LC_ALL, "C"); /* names are bytes, see unpack_layer.c */
	mallopt(M_ARENA_MAX, 1);
	hb_unpack_layer_prepare();
	if (fchdir(STAGING_FD) < 0)
		return hb_fail_errno(err, "io_failed",
				     "the unpack worker cannot enter the staging directory");
	if (become(uid, gid, err) < 0)
		return -1;
	/* Even stuck in a library it must not outlive the installer; after the change of identity,
	 * which would clear it. A parent that is gone already shows as the end of the socket. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return hb_fail_errno(err, "io_failed", "the unpack worker cannot bind its life");
	if (hb_sandbox_apply(&box, degraded_ok, &report, err) < 0)
		return -1;
	umask(0); /* modes come from the layers; directories are 0700 until the end */
	return 0;
}

static int send_progress(const struct hb_unpack_progress *p, void *arg)
{
	struct hb_unpack_reply r = {.kind = HB_UNPACK_PROGRESS, .progress = *p};

	return reply(&r);
}

static int do_layer(struct worker *w, struct hb_unpack_request *q, struct hb_error *err)
{
	int rc;

	q->layer.digest[HB_HEX256 - 1] = q->layer.diff_id[HB_HEX256 - 1] = '\0';
	q->layer.media_type[sizeof(q->layer.media_type) - 1] = '\0';
	rc = hb_unpack_apply(w->tree, &q->layer, w->limits, &w->totals, send_progress, NULL, err);
	hb_close(&q->layer.blob_fd);
	return rc;
}

static int do_finish(struct worker *w, struct hb_tree_info *info, struct hb_error *err)
{
	hb_flusher_stop(w->flusher);
	w->flusher = NULL;
	info->setuid_stripped = w->totals.setuid_stripped;
	info->xattrs_dropped = w->totals.xattrs_dropped;
	info->devices_skipped = w->totals.devices_skipped;
	return hb_tree_finish(w->tree, info, err);
}

/* 0 with the request and, for a layer, its descriptor; -1 when the installer is gone or talks
 * nonsense. */
static int receive(struct hb_unpack_request *q)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {q, sizeof(*q)};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	ssize_t n;

	do {
		n = recvmsg(SOCK_FD, &m, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(*q) || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
		return -1;
	q->layer.blob_fd = -1;
	c = CMSG_FIRSTHDR(&m);
	if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(&q->layer.blob_fd, CMSG_DATA(c), sizeof(int));
	return q->kind == HB_UNPACK_FINISH || (q->kind == HB_UNPACK_LAYER && q->layer.blob_fd >= 0)
		       ? 0
		       : -1;
}

static void serve(struct worker *w)
{
	struct hb_unpack_request q = {0};
	struct hb_unpack_reply r;
	int rc;

	while (receive(&q) == 0) {
		r = (struct hb_unpack_reply){.kind = HB_UNPACK_DONE};
		rc = q.kind == HB_UNPACK_LAYER ? do_layer(w, &q, &r.error)
					       : do_finish(w, &r.info, &r.error);
		if (rc < 0)
			r.kind = HB_UNPACK_FAILED;
		if (reply(&r) < 0 || rc < 0 || q.kind == HB_UNPACK_FINISH)
			return;
	}
}

void hb_unpack_worker(int sock, int staging_fd, uid_t uid, gid_t gid,
		      const struct hb_unpack_limits *limits, bool degraded_ok)
{
	struct worker w = {.limits = limits};
	struct hb_unpack_reply ready = {.kind = HB_UNPACK_READY};
	struct hb_error err = {0};

	prctl(PR_SET_NAME, "hermes-unpack");
	if (keep_descriptors(sock, staging_fd, &err) < 0 ||
	    confine(uid, gid, degraded_ok, &err) < 0 ||
	    hb_tree_new(STAGING_FD, limits, &w.tree, &err) < 0) {
		reply_failed(&err);
		_exit(1);
	}
	w.flusher = hb_flusher_start(STAGING_FD);
	if (reply(&ready) == 0)
		serve(&w);
	_exit(0);
}
