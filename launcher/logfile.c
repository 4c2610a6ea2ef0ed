/*
 * What the processes say, when nobody else collects it: one file each in log/, with one older part.
 *
 * The processes write into a pipe and not into the file, so that it can be cut while they run, and
 * so that they need no right on it.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/fs.h"
#include "launcher/launcher.h"

/* Two of them for each of seven processes: bounded, and days of an idle system. */
#define LOG_BYTES_MAX (1 << 20)

struct hb_logfile {
	struct event_base *base;
	char path[64], old[64];
	int fd;
	off_t size;
	struct event *input; /* the pipe of the process that runs now */
	int input_fd;
};

static int
reopen(struct hb_logfile *l, struct hb_error *err)
{
	struct stat st;

	hb_close(&l->fd);
	l->fd = open(l->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
	if (l->fd < 0 || fstat(l->fd, &st) != 0)
		return hb_fail_errno(err, "log_unwritable", "cannot write %s", l->path);
	l->size = st.st_size;
	return 0;
}

static void
input_close(struct hb_logfile *l)
{
	if (l->input != NULL)
		event_free(l->input);
	l->input = NULL;
	hb_close(&l->input_fd);
}

static void
on_input(evutil_socket_t fd, short what, void *arg)
{
	struct hb_logfile *l = arg;
	char text[16384];
	ssize_t len = read(fd, text, sizeof(text));

	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (len <= 0) {
		input_close(l);
		return;
	}
	/* A full disk must not stop the processes: what can't be written is lost. */
	if (l->fd >= 0 && write(l->fd, text, (size_t)len) == len)
		l->size += len;
	if (l->size > LOG_BYTES_MAX && text[len - 1] == '\n' && rename(l->path, l->old) == 0)
		reopen(l, NULL);
}

int
hb_logfile_open(struct event_base *base, const char *name, struct hb_logfile **out,
		struct hb_error *err)
{
	struct hb_logfile *l = hb_calloc(1, sizeof(*l));

	l->base = base;
	l->fd = l->input_fd = -1;
	snprintf(l->path, sizeof(l->path), "log/%s.log", name);
	snprintf(l->old, sizeof(l->old), "log/%s.log.1", name);
	if (reopen(l, err) != 0) {
		free(l);
		return -1;
	}
	*out = l;
	return 0;
}

int
hb_logfile_pipe(struct hb_logfile *l, struct hb_error *err)
{
	int ends[2];

	if (l->input_fd >= 0)
		on_input(l->input_fd, EV_READ, l); /* the last words of the one before */
	input_close(l);
	if (pipe2(ends, O_CLOEXEC) != 0)
		return hb_fail_errno(err, "spawn_failed", "cannot create a pipe for %s", l->path);
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	l->input_fd = ends[0];
	l->input = event_new(l->base, ends[0], EV_READ | EV_PERSIST, on_input, l);
	if (l->input == NULL || event_add(l->input, NULL) != 0) {
		input_close(l);
		close(ends[1]);
		return hb_fail(err, "internal", "cannot watch the log pipe of %s", l->path);
	}
	return ends[1];
}

void
hb_logfile_free(struct hb_logfile *l)
{
	if (l == NULL)
		return;
	input_close(l);
	hb_close(&l->fd);
	free(l);
}
