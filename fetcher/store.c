/* Looking things up in the store; writing is in partial.c. */
#include "fetcher/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/fs.h"
#include "fetcher/store_internal.h"

#define MARGIN_BYTES (32ull << 20) /* for metadata and for what others write meanwhile */
#define MARGIN_FILES 64

int
hb_store_open(const char *storage, struct hb_store *out, struct hb_error *err)
{
	char *path = hb_asprintf("%s/blobs/sha256", storage);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = 0;

	if (fd < 0 && errno == ENOENT)
		rc = hb_fail(err, "storage_missing",
			     "the blob store %s does not exist; run manage.sh up (or "
			     "quickstart), which makes it",
			     path);
	else if (fd < 0)
		rc = hb_fail_errno(err, "storage_unusable", "the blob store %s", path);
	else
		out->dirfd = fd;
	free(path);
	return rc;
}

void
hb_store_close(struct hb_store *s)
{
	hb_close(&s->dirfd);
}

int
hb_store_usable(const struct hb_store *s, struct hb_error *err)
{
	struct stat st;

	if (fstat(s->dirfd, &st))
		return hb_fail_errno(err, "storage_unusable", "the blob store");
	if (st.st_nlink == 0)
		return hb_fail(err, "storage_missing",
			       "the blob store was removed while the fetcher ran; run "
			       "manage.sh up, which makes it again");
	return 0;
}

bool
hb_stopped(const struct hb_stop *stop)
{
	return stop && stop->stopped && stop->stopped(stop->arg);
}

/* Regular, ours alone: a link or device under a blob's name is never followed. Returns -1 quietly
 * if absent. */
int
hb_store_open_file(const struct hb_store *s, const char *name, int flags, struct stat *st)
{
	int fd = openat(s->dirfd, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);

	if (fd >= 0 && (fstat(fd, st) || !S_ISREG(st->st_mode))) {
		hb_close(&fd);
		errno = EINVAL;
	}
	return fd;
}

int
hb_store_hash_fd(int fd, uint64_t len, struct hb_sha256 *hash, const struct hb_stop *stop,
		 struct hb_error *err)
{
	unsigned char *chunk = hb_calloc(1, HB_STORE_CHUNK);
	uint64_t at = 0;
	int rc = -1;

	while (at < len) {
		size_t want = len - at < HB_STORE_CHUNK ? (size_t)(len - at) : HB_STORE_CHUNK;
		ssize_t n = pread(fd, chunk, want, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			if (n == 0)
				errno = EIO; /* shorter than a moment ago */
			hb_fail_errno(err, "storage_unusable", "reading the blob store");
			goto out;
		}
		if (hb_stopped(stop)) {
			hb_fail(err, "cancelled", "the job was cancelled");
			goto out;
		}
		hb_sha256_update(hash, chunk, (size_t)n);
		at += (uint64_t)n;
	}
	rc = 0;
out:
	free(chunk);
	return rc;
}

int
hb_store_verified(const struct hb_store *s, const char *hex, uint64_t size,
		  const struct hb_stop *stop, struct hb_error *err)
{
	struct hb_sha256 *hash = NULL;
	unsigned char sum[32];
	char found[HB_HEX256] = "";
	struct stat st;
	int rc = -1, fd = hb_store_open_file(s, hex, O_RDONLY, &st);

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd >= 0 && (uint64_t)st.st_size == size) {
		hash = hb_sha256_new();
		if (hb_store_hash_fd(fd, size, hash, stop, err))
			goto out;
		hb_sha256_final(hash, sum);
		hb_hex(sum, sizeof(sum), found);
	}
	rc = strcmp(found, hex) == 0;
	/* A wrong one would make every later pull fail the same way: exactly this file goes. */
	if (!rc && unlinkat(s->dirfd, hex, 0) && errno != ENOENT)
		rc = hb_fail_errno(err, "storage_unusable", "removing the damaged blob %s", hex);
out:
	hb_sha256_free(hash);
	hb_close(&fd);
	return rc;
}

int
hb_store_get(const struct hb_store *s, const char *hex, size_t max, struct hb_buf *out,
	     struct hb_error *err)
{
	struct hb_buf bytes = HB_BUF_INIT;
	char found[HB_HEX256];
	struct stat st;
	int rc, fd = hb_store_open_file(s, hex, O_RDONLY, &st);

	if (fd < 0)
		return 0;
	hb_close(&fd);
	if (hb_fs_read(s->dirfd, hex, max, &bytes, err)) {
		rc = -1;
	} else {
		hb_sha256_hex(bytes.len ? bytes.data : "", bytes.len, found);
		rc = strcmp(found, hex) == 0;
		if (rc)
			hb_buf_add(out, bytes.len ? bytes.data : "", bytes.len);
		else if (unlinkat(s->dirfd, hex, 0) && errno != ENOENT)
			rc = hb_fail_errno(err, "storage_unusable", "removing the damaged blob %s",
					   hex);
	}
	hb_buf_free(&bytes);
	return rc;
}

bool
hb_store_seems_present(const struct hb_store *s, const char *hex, uint64_t size)
{
	struct stat st;

	return fstatat(s->dirfd, hex, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (uint64_t)st.st_size == size;
}

uint64_t
hb_store_partial_size(const struct hb_store *s, const char *hex)
{
	char name[HB_HEX256 + 16];
	struct stat st;

	snprintf(name, sizeof(name), "%s.partial", hex);
	if (fstatat(s->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
		return 0;
	return (uint64_t)st.st_size;
}

int
hb_store_space(const struct hb_store *s, uint64_t bytes, uint64_t files, struct hb_error *err)
{
	struct statvfs vfs;
	uint64_t room;

	if (fstatvfs(s->dirfd, &vfs))
		return hb_fail_errno(err, "storage_unusable",
				     "asking the blob store's file system for its room");
	room = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	if (bytes && room < bytes + MARGIN_BYTES)
		return hb_fail(err, "not_enough_space",
			       "the blob store needs %llu MiB (and 32 MiB to spare) but its "
			       "file system has %llu MiB free; make room or set runtime.storage "
			       "elsewhere",
			       (unsigned long long)((bytes + 1048575) >> 20),
			       (unsigned long long)(room >> 20));
	/* Some file systems have no fixed number of inodes and report none. */
	if (files && vfs.f_files && vfs.f_favail < files + MARGIN_FILES)
		return hb_fail(err, "not_enough_space",
			       "the blob store needs %llu free inodes but its file system has "
			       "%llu",
			       (unsigned long long)(files + MARGIN_FILES),
			       (unsigned long long)vfs.f_favail);
	return 0;
}
