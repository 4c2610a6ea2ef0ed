/*
 * The walk, iterative: one frame a level, each with the sorted names of its directory.
 *
 * A path may have two thousand components while a process has a thousand descriptors, so only the
 * innermost levels keep theirs; an outer one is opened again through ".." on the way back and must
 * be the same inode.
 */
#include "broker/installer/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/fs.h"

#define OPEN_LEVELS 64

struct frame {
	int fd;
	char *names; /* packed, each with its NUL */
	const char **sorted;
	size_t count, next;
	size_t path_len; /* of the directory itself */
	size_t name_at;  /* where its own name begins in the path */
	struct stat st;
};

struct walk {
	struct frame *frames;
	size_t depth, cap; /* depth: frames in use */
	struct hb_buf path;
	hb_walk_visit visit;
	hb_walk_leave leave;
	void *arg;
};

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Packs the names first and points at them afterwards, since the buffer moves while it grows. */
static int read_names(struct frame *f, const char *path, struct hb_error *err)
{
	struct hb_buf packed = HB_BUF_INIT;
	struct dirent *d;
	DIR *dir = NULL;
	const char *p;
	int fd, rc = -1;

	fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (dir == NULL) {
		hb_close(&fd);
		return hb_fail_errno(err, "io_failed", "directory %s cannot be opened", path);
	}
	while (errno = 0, (d = readdir(dir)) != NULL) {
		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		hb_buf_add(&packed, d->d_name, strlen(d->d_name) + 1);
		f->count++;
	}
	if (errno != 0) {
		hb_fail_errno(err, "io_failed", "directory %s cannot be read", path);
		goto out;
	}
	f->names = hb_buf_take(&packed);
	f->sorted = hb_calloc(f->count + 1, sizeof(*f->sorted));
	p = f->names;
	for (size_t i = 0; i < f->count; i++, p += strlen(p) + 1)
		f->sorted[i] = p;
	qsort(f->sorted, f->count, sizeof(*f->sorted), by_bytes);
	rc = 0;
out:
	closedir(dir);
	hb_buf_free(&packed);
	return rc;
}

static void set_path(struct walk *w, size_t len)
{
	w->path.len = len;
	w->path.data[len] = '\0';
}

static void free_frame(struct frame *f, bool is_top)
{
	if (!is_top)
		hb_close(&f->fd);
	free(f->names);
	free(f->sorted);
}

/* Takes fd over. The path holds the directory's own by now. */
static int push(struct walk *w, int fd, const struct stat *st, size_t name_at, struct hb_error *err)
{
	struct frame *f;

	if (w->depth == w->cap) {
		w->cap = w->cap == 0 ? 32 : w->cap * 2;
		w->frames = realloc(w->frames, w->cap * sizeof(*w->frames));
		if (w->frames == NULL)
			abort();
	}
	f = &w->frames[w->depth++];
	*f = (struct frame){.fd = fd, .st = *st, .path_len = w->path.len, .name_at = name_at};
	if (w->depth > OPEN_LEVELS + 1)
		hb_close(&w->frames[w->depth - OPEN_LEVELS - 1].fd);
	return read_names(f, w->path.data, err);
}

static int reopen(struct walk *w, struct frame *outer, int inner_fd, struct hb_error *err)
{
	struct stat st;

	if (outer->fd >= 0)
		return 0;
	outer->fd = openat(inner_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (outer->fd < 0 || fstat(outer->fd, &st) < 0)
		return hb_fail_errno(err, "io_failed", "directory above %s cannot be opened",
				     w->path.data);
	if (st.st_dev != outer->st.st_dev || st.st_ino != outer->st.st_ino)
		return hb_fail(err, "tree_changed",
			       "directory above %s was moved while it was read", w->path.data);
	return 0;
}

/* The innermost directory is done. */
static int pop(struct walk *w, struct hb_error *err)
{
	struct frame *f = &w->frames[w->depth - 1], *outer = w->depth > 1 ? f - 1 : NULL;
	struct hb_walk_entry e = {.dirfd = -1, .fd = f->fd, .st = f->st};
	int rc = 0;

	set_path(w, f->path_len);
	if (outer != NULL) {
		if (reopen(w, outer, f->fd, err) < 0)
			return -1;
		e.dirfd = outer->fd;
	}
	e.path = w->path.data;
	e.name = w->path.data + f->name_at;
	if (w->leave != NULL)
		rc = w->leave(&e, w->arg, err);
	free_frame(f, outer == NULL);
	w->depth--;
	return rc;
}

static int step(struct walk *w, struct hb_error *err)
{
	struct frame *f = &w->frames[w->depth - 1];
	struct hb_walk_entry e = {.dirfd = f->fd, .name = f->sorted[f->next++], .fd = -1};
	int rc;

	set_path(w, f->path_len);
	hb_buf_addc(&w->path, '/');
	hb_buf_adds(&w->path, e.name);
	e.path = w->path.data;
	if (fstatat(e.dirfd, e.name, &e.st, AT_SYMLINK_NOFOLLOW) < 0)
		return hb_fail_errno(err, "io_failed", "%s cannot be examined", e.path);
	if (!S_ISDIR(e.st.st_mode))
		return w->visit(&e, w->arg, err) < 0 ? -1 : 0;
	e.fd = openat(e.dirfd, e.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (e.fd < 0)
		return hb_fail_errno(err, "io_failed", "directory %s cannot be opened", e.path);
	rc = w->visit(&e, w->arg, err);
	if (rc != 0) {
		hb_close(&e.fd);
		return rc < 0 ? -1 : 0;
	}
	return push(w, e.fd, &e.st, f->path_len + 1, err);
}

int hb_walk(int top, hb_walk_visit visit, hb_walk_leave leave, void *arg, struct hb_error *err)
{
	struct walk w = {.visit = visit, .leave = leave, .arg = arg};
	struct hb_walk_entry e = {.dirfd = -1, .name = ".", .path = ".", .fd = top};
	int rc = -1;

	hb_buf_adds(&w.path, ".");
	if (fstat(top, &e.st) < 0) {
		hb_fail_errno(err, "io_failed", "the top directory cannot be examined");
		goto out;
	}
	rc = visit(&e, arg, err);
	if (rc != 0) {
		rc = rc < 0 ? -1 : 0;
		goto out;
	}
	rc = push(&w, top, &e.st, 0, err);
	while (rc == 0 && w.depth > 0) {
		struct frame *f = &w.frames[w.depth - 1];

		rc = f->next < f->count ? step(&w, err) : pop(&w, err);
	}
out:
	while (w.depth > 0) {
		w.depth--;
		free_frame(&w.frames[w.depth], w.depth == 0);
	}
	free(w.frames);
	hb_buf_free(&w.path);
	return rc;
}
