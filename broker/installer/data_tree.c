/* Copies of the payload's data directory (data_tree.h). */
#include "broker/installer/data_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fs.h"

/* Two descriptors a level, of the thousand a process has. Services don't nest this deep. */
#define DEPTH_MAX 200
#define PIECE (1u << 20)

static DIR *list(int fd, struct hb_error *err)
{
	/* A fresh description: readdir moves the offset that a dup would share. */
	int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = again >= 0 ? fdopendir(again) : NULL;

	if (!dir) {
		hb_fail_errno(err, "data_unreadable", "a directory below the data directory");
		hb_close(&again);
	}
	return dir;
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int enter(int dir, const char *name, int depth, struct hb_error *err)
{
	int fd;

	if (depth >= DEPTH_MAX)
		return hb_fail(err, "data_too_deep",
			       "the data directory is nested more than %d deep", DEPTH_MAX);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 ? fd : hb_fail_errno(err, "data_unreadable", "%s in the data", name);
}

static int measure(int fd, int depth, uint64_t max, struct hb_data_size *out,
		   struct hb_error *err)
{
	DIR *dir = list(fd, err);
	struct dirent *e;
	struct stat st;
	int rc = dir ? 0 : -1, child;

	while (rc == 0 && out->entries < max && (e = readdir(dir))) {
		if (is_dots(e->d_name) || fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		out->entries++;
		out->bytes += (uint64_t)st.st_blocks * 512;
		if (!S_ISDIR(st.st_mode))
			continue;
		child = enter(fd, e->d_name, depth + 1, err);
		rc = child < 0 ? -1 : measure(child, depth + 1, max, out, err);
		hb_close(&child);
	}
	if (dir)
		closedir(dir);
	return rc;
}

int hb_data_measure(int fd, uint64_t entries_max, struct hb_data_size *out, struct hb_error *err)
{
	*out = (struct hb_data_size){0};
	return measure(fd, 0, entries_max ? entries_max : UINT64_MAX, out, err);
}

/* --- copying --- */

static int copy_by_hand(int from, int to, off_t at, off_t end)
{
	static char piece[PIECE];

	while (at < end) {
		size_t want = end - at < (off_t)sizeof piece ? (size_t)(end - at) : sizeof piece;
		ssize_t n = pread(from, piece, want, at), done = 0, m;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return (int)n;
		while (done < n) {
			m = pwrite(to, piece + done, (size_t)(n - done), at + done);
			if (m < 0 && errno != EINTR)
				return -1;
			done += m > 0 ? m : 0;
		}
		at += n;
	}
	return 0;
}

/* copy_file_range(2) shares blocks on file systems that can; elsewhere it copies in the kernel. */
static int copy_range(int from, int to, off_t at, off_t end)
{
	while (at < end) {
		off_t in = at, out = at;
		ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(end - at), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS ||
			      errno == EOPNOTSUPP))
			return copy_by_hand(from, to, at, end);
		if (n <= 0)
			return (int)n; /* 0: shorter than it was, which stopped services aren't */
		at += n;
	}
	return 0;
}

static int copy_bytes(int from, int to, off_t size)
{
	off_t at = 0, hole;

	while (at < size) {
		off_t data = lseek(from, at, SEEK_DATA);

		if (data < 0 && errno == ENXIO)
			break; /* a hole up to the end */
		if (data < 0)
			data = at; /* not a file system that knows holes */
		hole = lseek(from, data, SEEK_HOLE);
		if (hole < 0 || hole > size)
			hole = size;
		if (copy_range(from, to, data, hole) < 0)
			return -1;
		at = hole;
	}
	return ftruncate(to, size);
}

/* Owner first: changing it drops setuid bits. Times last: everything before changes them. */
static int finish(int fd, const struct stat *st)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};

	if (fchown(fd, st->st_uid, st->st_gid) < 0 || fchmod(fd, st->st_mode & 07777) < 0)
		return -1;
	return futimens(fd, times);
}

static int copy_file(int from_dir, int to_dir, const char *name, struct hb_data_size *copied,
		     struct hb_error *err)
{
	int from = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), to = -1;
	struct stat st;
	int rc = -1;

	if (from < 0 || fstat(from, &st) < 0 || !S_ISREG(st.st_mode)) {
		hb_fail_errno(err, "data_unreadable", "%s in the data", name);
		goto out;
	}
	to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0 || copy_bytes(from, to, st.st_size) < 0 || finish(to, &st) < 0) {
		hb_fail_errno(err, "copy_failed", "copying %s of the data", name);
		goto out;
	}
	copied->bytes += (uint64_t)st.st_blocks * 512;
	rc = 0;
out:
	hb_close(&from);
	hb_close(&to);
	return rc;
}

static int copy_link(int from_dir, int to_dir, const char *name, const struct stat *st,
		     struct hb_error *err)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};
	char target[PATH_MAX];
	ssize_t n = readlinkat(from_dir, name, target, sizeof target - 1);

	if (n < 0)
		return hb_fail_errno(err, "data_unreadable", "the link %s in the data", name);
	target[n] = '\0';
	if (symlinkat(target, to_dir, name) < 0 ||
	    fchownat(to_dir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
	    utimensat(to_dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return hb_fail_errno(err, "copy_failed", "copying the link %s of the data", name);
	return 0;
}

static int copy_tree(int from, int to, int depth, struct hb_data_size *copied,
		     struct hb_error *err);

static int copy_directory(int from_dir, int to_dir, const char *name, int depth,
			  struct hb_data_size *copied, struct hb_error *err)
{
	int from = enter(from_dir, name, depth, err), to = -1, rc = -1;

	if (from < 0)
		return -1;
	if (mkdirat(to_dir, name, 0700) < 0 ||
	    (to = openat(to_dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
		hb_fail_errno(err, "copy_failed", "making the directory %s", name);
	else
		rc = copy_tree(from, to, depth, copied, err);
	hb_close(&from);
	hb_close(&to);
	return rc;
}

static int copy_entry(int from, int to, const char *name, int depth, struct hb_data_size *copied,
		      struct hb_error *err)
{
	struct stat st;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return hb_fail_errno(err, "data_unreadable", "%s in the data", name);
	if (S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode))
		return 0;
	copied->entries++;
	if (S_ISDIR(st.st_mode))
		return copy_directory(from, to, name, depth + 1, copied, err);
	if (S_ISREG(st.st_mode))
		return copy_file(from, to, name, copied, err);
	if (S_ISLNK(st.st_mode))
		return copy_link(from, to, name, &st, err);
	return hb_fail(err, "unsafe_file", "%s in the data is a device", name);
}

static int copy_tree(int from, int to, int depth, struct hb_data_size *copied, struct hb_error *err)
{
	DIR *dir = list(from, err);
	struct dirent *e;
	struct stat st;
	int rc = dir ? 0 : -1;

	while (rc == 0 && (e = readdir(dir)))
		if (!is_dots(e->d_name))
			rc = copy_entry(from, to, e->d_name, depth, copied, err);
	if (dir)
		closedir(dir);
	if (rc == 0 && (fstat(from, &st) < 0 || finish(to, &st) < 0))
		rc = hb_fail_errno(err, "copy_failed", "finishing a directory of the data");
	return rc;
}

int hb_data_copy(int from, int to, struct hb_data_size *copied, struct hb_error *err)
{
	*copied = (struct hb_data_size){0};
	return copy_tree(from, to, 0, copied, err);
}
