/* Reading the payload's pipe without ever waiting for it. A full disk loses lines, never the payload. */
#include "broker/installer/runner_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/runner.h"
#include "common/fs.h"

#define PIECES_AT_ONCE 16 /* then the loop looks at its other descriptors */

static int open_file(struct hb_runtime_log *log, struct hb_error *err)
{
	struct stat st;

	log->file_fd = openat(log->dir_fd, HB_RUNTIME_LOG, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
			      0600);
	if (log->file_fd < 0 || fstat(log->file_fd, &st) < 0)
		return hb_fail_errno(err, "log_failed", "cannot open %s/%s", HB_RUNTIME_LOG_DIR, HB_RUNTIME_LOG);
	log->size = (uint64_t)st.st_size;
	return 0;
}

int hb_runtime_log_open(struct hb_runtime_log *log, struct hb_error *err)
{
	log->file_fd = log->pipe_fd = -1;
	if (hb_fs_mkdirs(AT_FDCWD, HB_RUNTIME_LOG_DIR, 0700, 0, 0, err) < 0)
		return -1;
	log->dir_fd = hb_fs_open_beneath(AT_FDCWD, HB_RUNTIME_LOG_DIR, O_RDONLY | O_DIRECTORY, 0, err);
	return log->dir_fd < 0 ? -1 : open_file(log, err);
}

void hb_runtime_log_attach(struct hb_runtime_log *log, int pipe_fd)
{
	hb_runtime_log_detach(log);
	fcntl(pipe_fd, F_SETFL, O_NONBLOCK);
	log->pipe_fd = pipe_fd;
}

int hb_runtime_log_fd(const struct hb_runtime_log *log)
{
	return log->pipe_fd;
}

static void keep(struct hb_runtime_log *log, const char *data, size_t len)
{
	ssize_t n;

	if (log->size + len > HB_RUNTIME_LOG_MAX) {
		renameat(log->dir_fd, HB_RUNTIME_LOG, log->dir_fd, HB_RUNTIME_LOG ".1");
		hb_close(&log->file_fd);
		open_file(log, NULL);
	}
	n = log->file_fd < 0 ? -1 : write(log->file_fd, data, len);
	if (n > 0)
		log->size += (uint64_t)n;
}

void hb_runtime_log_read(struct hb_runtime_log *log)
{
	char piece[16384];

	for (int i = 0; i < PIECES_AT_ONCE && log->pipe_fd >= 0; i++) {
		ssize_t n = read(log->pipe_fd, piece, sizeof(piece));

		if (n > 0)
			keep(log, piece, (size_t)n);
		else if (n == 0)
			hb_close(&log->pipe_fd);
		else if (errno != EINTR)
			return;
	}
}

void hb_runtime_log_detach(struct hb_runtime_log *log)
{
	hb_runtime_log_read(log);
	hb_close(&log->pipe_fd);
}
