/*
 * Files below a directory descriptor: opening beneath, whole-file reads, secrets, atomic writes.
 * Every judgement (owner, mode, type) is made on the opened descriptor, never on a name. Trees are
 * in fs_tree.c.
 */
#include "common/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/ids.h"

void
hb_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int
hb_fs_open_beneath(int dirfd, const char *path, int flags, mode_t mode, struct hb_error *err)
{
	struct open_how how = {
		.flags = (unsigned)flags | O_CLOEXEC,
		.mode = flags & (O_CREAT | O_TMPFILE) ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	int tries = 16, fd;

	/* EAGAIN: a ".." raced with a rename; the kernel asks to try again. */
	do
		fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || (errno == EAGAIN && --tries > 0)));
	if (fd >= 0)
		return fd;
	if (errno == ENOENT)
		return hb_fail_errno(err, "not_found", "%s", path);
	if (errno == ELOOP || errno == EXDEV)
		return hb_fail_errno(err, "unsafe_path",
				     "%s goes through a symbolic link or out of its directory",
				     path);
	return hb_fail_errno(err, "open_failed", "opening %s", path);
}

/* Read to the end; 0 at the end, 1 when more than `len` bytes were there. */
static int
read_all(int fd, char *data, size_t len, size_t *got)
{
	ssize_t n;
	char extra;

	*got = 0;
	while (*got < len) {
		n = read(fd, data + *got, len - *got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			return 0;
		*got += (size_t)n;
	}
	do
		n = read(fd, &extra, 1);
	while (n < 0 && errno == EINTR);
	return (int)n;
}

static int
read_whole(int fd, const char *path, size_t max, struct hb_buf *out, struct hb_error *err)
{
	struct stat st;
	size_t got, room;
	char *data;
	int n, rc = -1;

	if (fstat(fd, &st) != 0)
		return hb_fail_errno(err, "read_failed", "reading %s", path);
	if (!S_ISREG(st.st_mode))
		return hb_fail(err, "not_regular", "%s is not a regular file", path);
	if (st.st_size < 0 || (uintmax_t)st.st_size > max)
		return hb_fail(err, "too_large", "%s has %jd bytes; at most %zu are allowed", path,
			       (intmax_t)st.st_size, max);
	/* Files of /proc and /sys say 0 and have contents all the same. */
	room = st.st_size > 0 ? (size_t)st.st_size : max < 65536 ? max : 65536;
	data = hb_calloc(1, room + 1);
	n = read_all(fd, data, room, &got);
	if (n < 0)
		hb_fail_errno(err, "read_failed", "reading %s", path);
	else if (n > 0)
		hb_fail(err, "too_large", "%s grew while it was read, or is over %zu bytes", path,
			max);
	else {
		hb_buf_add(out, data, got);
		rc = 0;
	}
	free(data);
	return rc;
}

/* O_NONBLOCK: a FIFO put in the file's place must not hang us. */
int
hb_fs_read(int dirfd, const char *path, size_t max, struct hb_buf *out, struct hb_error *err)
{
	int fd = hb_fs_open_beneath(dirfd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, err), rc;

	if (fd < 0)
		return -1;
	rc = read_whole(fd, path, max, out, err);
	hb_close(&fd);
	return rc;
}

int
hb_fs_read_trusted(int dirfd, const char *path, uid_t owner, size_t max, struct hb_buf *out,
		   struct hb_error *err)
{
	int fd = hb_fs_open_beneath(dirfd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, err), rc;

	if (fd < 0)
		return -1;
	rc = hb_fs_check_trusted(fd, path, owner, err);
	if (rc == 0)
		rc = read_whole(fd, path, max, out, err);
	hb_close(&fd);
	return rc;
}

static int
check_secret(int fd, const char *path, uid_t owner, gid_t writer, size_t max, struct stat *st,
	     struct hb_error *err)
{
	mode_t closed = 077;

	if (fstat(fd, st) != 0)
		return hb_fail_errno(err, "secret_permissions", "reading %s", path);
	if (!S_ISREG(st->st_mode) || st->st_nlink != 1)
		return hb_fail(
			err, "secret_permissions",
			"%s must be a regular file with one name: remove the other links to it",
			path);
	if (st->st_uid != 0 && st->st_uid != owner)
		return hb_fail(err, "secret_permissions", "%s belongs to uid %u; run: chown %u %s",
			       path, st->st_uid, owner, path);
	if (writer != (gid_t)-1 && st->st_gid == writer)
		closed = 057;
	if ((st->st_mode & closed) != 0)
		return hb_fail(
			err, "secret_permissions",
			"%s can be reached by its group or others (mode %04o); run: chmod 600 %s",
			path, st->st_mode & 07777, path);
	if ((uintmax_t)st->st_size > max)
		return hb_fail(err, "too_large", "%s has %jd bytes; at most %zu are allowed", path,
			       (intmax_t)st->st_size, max);
	return 0;
}

int
hb_secret_read(int dirfd, const char *path, uid_t owner, size_t max, struct hb_secret *out,
	       struct hb_error *err)
{
	return hb_secret_read_delivered(dirfd, path, owner, (gid_t)-1, max, out, err);
}

int
hb_secret_read_delivered(int dirfd, const char *path, uid_t owner, gid_t writer, size_t max,
			 struct hb_secret *out, struct hb_error *err)
{
	struct hb_error e;
	char *text = NULL;
	struct stat st;
	size_t len;
	int fd, n, rc = -1;

	fd = hb_fs_open_beneath(dirfd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, &e);
	if (fd < 0 && strcmp(e.code, "not_found") == 0)
		return hb_fail(err, "secret_missing", "%s does not exist", path);
	if (fd < 0)
		return hb_fail(err, "secret_permissions", "%s", e.message);
	if (check_secret(fd, path, owner, writer, max, &st, err) != 0)
		goto out;
	if (sodium_init() < 0 || (text = sodium_malloc((size_t)st.st_size + 1)) == NULL) {
		hb_fail(err, "no_memory", "no protected memory for %s", path);
		goto out;
	}
	/* Straight into protected memory: no copy stays in a stdio buffer. */
	n = read_all(fd, text, (size_t)st.st_size, &len);
	if (n != 0) {
		hb_fail(err, "secret_permissions", "%s can't be read or changed while it was read",
			path);
		goto out;
	}
	if (len > 0 && text[len - 1] == '\n')
		len--;
	text[len] = '\0';
	if (len == 0) {
		hb_fail(err, "secret_empty", "%s is empty", path);
		goto out;
	}
	if (strlen(text) != len) {
		hb_fail(err, "secret_empty", "%s holds a NUL byte", path);
		goto out;
	}
	out->text = text;
	out->len = len;
	text = NULL;
	rc = 0;
out:
	sodium_free(text);
	hb_close(&fd);
	return rc;
}

void
hb_secret_free(struct hb_secret *s)
{
	sodium_free(s->text); /* wipes */
	s->text = NULL;
	s->len = 0;
}

int
hb_secret_equal(const struct hb_secret *s, const char *given)
{
	size_t given_len, i;
	unsigned diff;

	if (s->text == NULL || s->len == 0 || given == NULL)
		return 0;
	given_len = strlen(given);
	diff = given_len != s->len;
	/* Time depends on the length of the expected value and on what the caller sent, not on
	 * where they differ. */
	for (i = 0; i < s->len; i++)
		diff |= (unsigned char)s->text[i] ^
			(unsigned char)given[i < given_len ? i : given_len];
	return diff == 0;
}

/* Open the directory that holds path and point *base at the last component. */
static int
open_parent(int dirfd, const char *path, const char **base, struct hb_error *err)
{
	const char *slash = strrchr(path, '/');
	char *parent;
	int fd;

	*base = slash != NULL ? slash + 1 : path;
	if (**base == '\0' || strcmp(*base, ".") == 0 || strcmp(*base, "..") == 0)
		return hb_fail(err, "unsafe_path", "%s does not name a file", path);
	parent = slash != NULL ? strndup(path, (size_t)(slash - path)) : hb_strdup(".");
	if (parent == NULL)
		abort();
	fd = hb_fs_open_beneath(dirfd, *parent == '\0' ? "/" : parent, O_RDONLY | O_DIRECTORY, 0,
				err);
	free(parent);
	return fd;
}

static int
write_file(int fd, const void *data, size_t len, mode_t mode, uid_t uid, gid_t gid)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	/* Owner before mode: the file is private until it is whole and belongs to its owner. */
	if ((uid != (uid_t)-1 || gid != (gid_t)-1) && fchown(fd, uid, gid) != 0)
		return -1;
	if (fchmod(fd, mode) != 0)
		return -1;
	return fsync(fd);
}

static int
write_durable(int dirfd, const char *path, const void *data, size_t len, mode_t mode, uid_t uid,
	      gid_t gid, unsigned rename_flags, struct hb_error *err)
{
	char random[17], temporary[300];
	const char *base;
	int dir, fd = -1, rc = -1;

	dir = open_parent(dirfd, path, &base, err);
	if (dir < 0)
		return hb_fail_prefix(err, "writing %s", path);
	/* A random name, O_EXCL and O_NOFOLLOW: nothing can be planted in its place. */
	hb_random_hex(8, random);
	snprintf(temporary, sizeof(temporary), ".%.200s.%s", base, random);
	fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		hb_fail_errno(err, "write_failed", "writing %s", path);
		goto out;
	}
	if (write_file(fd, data, len, mode, uid, gid) != 0 ||
	    renameat2(dir, temporary, dir, base, rename_flags) != 0) {
		if (errno == EEXIST && rename_flags != 0)
			hb_fail(err, "exists", "%s exists already", path);
		else
			hb_fail_errno(err, "write_failed", "writing %s", path);
		unlinkat(dir, temporary, 0);
		goto out;
	}
	if (fsync(dir) != 0) {
		hb_fail_errno(err, "write_failed", "syncing the directory of %s", path);
		goto out;
	}
	rc = 0;
out:
	hb_close(&fd);
	hb_close(&dir);
	return rc;
}

int
hb_fs_write_atomic(int dirfd, const char *path, const void *data, size_t len, mode_t mode,
		   uid_t uid, gid_t gid, struct hb_error *err)
{
	return write_durable(dirfd, path, data, len, mode, uid, gid, 0, err);
}

int
hb_fs_write_new(int dirfd, const char *path, const void *data, size_t len, mode_t mode, uid_t uid,
		gid_t gid, struct hb_error *err)
{
	return write_durable(dirfd, path, data, len, mode, uid, gid, RENAME_NOREPLACE, err);
}

int
hb_fs_space(int dirfd, const char *path, uint64_t *bytes, uint64_t *inodes, struct hb_error *err)
{
	struct statvfs vfs;
	int fd, rc;

	fd = openat(dirfd, path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return hb_fail_errno(err, "open_failed", "opening %s", path);
	rc = fstatvfs(fd, &vfs);
	if (rc != 0)
		hb_fail_errno(err, "open_failed", "asking for the free space at %s", path);
	hb_close(&fd);
	if (rc != 0)
		return -1;
	*bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	/* Btrfs and others count no inodes: no limit. */
	*inodes = vfs.f_files > 0 ? vfs.f_favail : UINT64_MAX;
	return 0;
}

int
hb_fs_check_trusted(int fd, const char *name, uid_t owner, struct hb_error *err)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return hb_fail_errno(err, "loose_permissions", "checking %s", name);
	if (!S_ISREG(st.st_mode))
		return hb_fail(err, "loose_permissions", "%s is not a regular file", name);
	if (st.st_uid != 0 && st.st_uid != owner)
		return hb_fail(err, "loose_permissions", "%s belongs to uid %u; run: chown %u %s",
			       name, st.st_uid, owner, name);
	if ((st.st_mode & 022) != 0)
		return hb_fail(
			err, "loose_permissions",
			"%s can be written by its group or others (mode %04o); run: chmod go-w %s",
			name, st.st_mode & 07777, name);
	return 0;
}
