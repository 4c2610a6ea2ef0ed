/*
 * One blob being written. Bytes collect in a buffer of one chunk, are hashed and written together;
 * the file's length is the only record of how far a download came, so an interrupted one is resumed
 * after hashing what is there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "common/fs.h"
#include "fetcher/store_internal.h"

struct hb_partial {
	const struct hb_store *store;
	char hex[HB_HEX256], name[HB_HEX256 + 16];
	int fd;
	uint64_t size, flushed; /* of the blob; bytes hashed and in the file */
	struct hb_sha256 *hash;
	unsigned char *pending;
	size_t pending_len;
	bool marked; /* pending holds everything since the mark */
	bool finished;
};

static int
cancelled(struct hb_error *err)
{
	return hb_fail(err, "cancelled", "the job was cancelled");
}

/* Is the file we locked still the one of that name? Another writer may have renamed it meanwhile.
 */
static bool
still_named(const struct hb_partial *p, const struct stat *st)
{
	struct stat now;

	return fstatat(p->store->dirfd, p->name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
	       now.st_ino == st->st_ino && now.st_dev == st->st_dev;
}

/* 1: locked; 0: the other writer has finished the blob; -1: error. */
static int
lock_file(struct hb_partial *p, const struct hb_stop *stop, struct stat *st, struct hb_error *err)
{
	const struct timespec pause = {.tv_nsec = 100000000};
	bool waited = false;

	for (;;) {
		p->fd = hb_store_open_file(p->store, p->name, O_RDWR | O_CREAT, st);
		if (p->fd < 0 && (errno == ELOOP || errno == EINVAL))
			return hb_fail(err, "storage_unusable",
				       "%s in the blob store is not a regular file; remove it",
				       p->name);
		if (p->fd < 0)
			return hb_fail_errno(err, "storage_unusable",
					     "creating %s in the blob store", p->name);
		if (flock(p->fd, LOCK_EX | LOCK_NB) == 0 && still_named(p, st) &&
		    fstat(p->fd, st) == 0)
			break;
		waited = true;
		hb_close(&p->fd);
		if (faccessat(p->store->dirfd, p->hex, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return 0;
		if (hb_stopped(stop))
			return cancelled(err);
		nanosleep(&pause, NULL);
	}
	/* Opened again after a wait we may have made a new empty file beside a finished blob. */
	if (waited && st->st_size == 0 &&
	    faccessat(p->store->dirfd, p->hex, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
		unlinkat(p->store->dirfd, p->name, 0);
		return 0;
	}
	return 1;
}

int
hb_partial_open(const struct hb_store *s, const char *hex, uint64_t size,
		const struct hb_stop *stop, struct hb_partial **out, struct hb_error *err)
{
	struct hb_partial *p = hb_calloc(1, sizeof(*p));
	struct stat st = {0};
	int locked;

	p->store = s;
	p->fd = -1;
	p->size = size;
	p->pending = hb_calloc(1, HB_STORE_CHUNK);
	p->hash = hb_sha256_new();
	snprintf(p->hex, sizeof(p->hex), "%s", hex);
	snprintf(p->name, sizeof(p->name), "%s.partial", hex);
	locked = lock_file(p, stop, &st, err);
	if (locked == 1 && (uint64_t)st.st_size > size) {
		if (hb_partial_restart(p, err))
			goto fail;
	} else if (locked == 1) {
		if (hb_store_hash_fd(p->fd, (uint64_t)st.st_size, p->hash, stop, err))
			goto fail;
		p->flushed = (uint64_t)st.st_size;
	}
	if (locked < 0)
		goto fail;
	if (locked == 0) {
		hb_partial_close(p);
		p = NULL;
	}
	*out = p;
	return 0;
fail:
	hb_partial_close(p);
	return -1;
}

uint64_t
hb_partial_done(const struct hb_partial *p)
{
	return p->flushed + p->pending_len;
}

int
hb_partial_restart(struct hb_partial *p, struct hb_error *err)
{
	p->pending_len = 0;
	p->marked = false;
	if (ftruncate(p->fd, 0))
		return hb_fail_errno(err, "storage_unusable", "emptying %s in the blob store",
				     p->name);
	p->flushed = 0;
	hb_sha256_reset(p->hash);
	return 0;
}

static int
flush(struct hb_partial *p, struct hb_error *err)
{
	size_t at = 0;

	while (at < p->pending_len) {
		ssize_t n = pwrite(p->fd, p->pending + at, p->pending_len - at,
				   (off_t)(p->flushed + at));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			/* What was written of the chunk are right bytes in the right place: they
			 * may stay. */
			return hb_fail_errno(err, "storage_unusable",
					     "writing %s in the blob store", p->name);
		}
		at += (size_t)n;
	}
	hb_sha256_update(p->hash, p->pending, p->pending_len);
	p->flushed += p->pending_len;
	p->pending_len = 0;
	p->marked = false;
	return 0;
}

int
hb_partial_mark(struct hb_partial *p, struct hb_error *err)
{
	if (flush(p, err))
		return -1;
	p->marked = true;
	return 0;
}

const char *
hb_partial_since_mark(const struct hb_partial *p, size_t *len)
{
	*len = p->pending_len;
	return p->marked ? (const char *)p->pending : NULL;
}

void
hb_partial_drop(struct hb_partial *p)
{
	p->pending_len = 0;
}

int
hb_partial_write(struct hb_partial *p, const void *data, size_t len, struct hb_error *err)
{
	const unsigned char *from = data;

	if (len > p->size - hb_partial_done(p))
		return hb_fail(err, "size_mismatch", "more bytes came for sha256:%s than its %llu",
			       p->hex, (unsigned long long)p->size);
	while (len) {
		size_t n = HB_STORE_CHUNK - p->pending_len < len ? HB_STORE_CHUNK - p->pending_len
								 : len;

		memcpy(p->pending + p->pending_len, from, n);
		p->pending_len += n;
		from += n;
		len -= n;
		if (p->pending_len == HB_STORE_CHUNK && flush(p, err))
			return -1;
	}
	return 0;
}

int
hb_partial_finish(struct hb_partial *p, struct hb_error *err)
{
	unsigned char sum[32];
	char found[HB_HEX256];

	if (flush(p, err))
		return -1;
	if (p->flushed != p->size)
		return hb_fail(err, "connection_ended_early",
			       "only %llu of %llu bytes of sha256:%s are there",
			       (unsigned long long)p->flushed, (unsigned long long)p->size, p->hex);
	hb_sha256_final(p->hash, sum);
	hb_hex(sum, sizeof(sum), found);
	if (strcmp(found, p->hex) != 0) {
		if (hb_partial_restart(p, err))
			return -1;
		return hb_fail(err, "digest_mismatch",
			       "what came for sha256:%s has digest sha256:%s", p->hex, found);
	}
	/* The content is durable before the name that claims it. */
	if (fchmod(p->fd, 0644) || fdatasync(p->fd))
		return hb_fail_errno(err, "storage_unusable", "finishing %s in the blob store",
				     p->name);
	if (renameat(p->store->dirfd, p->name, p->store->dirfd, p->hex))
		return hb_fail_errno(err, "storage_unusable", "renaming %s in the blob store",
				     p->name);
	p->finished = true;
	if (fsync(p->store->dirfd))
		return hb_fail_errno(err, "storage_unusable", "syncing the blob store");
	return 0;
}

void
hb_partial_close(struct hb_partial *p)
{
	struct stat st;

	if (!p)
		return;
	if (p->fd >= 0 && !p->finished) {
		flush(p, NULL);
		if (fstat(p->fd, &st) == 0 && st.st_size == 0)
			unlinkat(p->store->dirfd, p->name, 0);
	}
	hb_close(&p->fd);
	hb_sha256_free(p->hash);
	free(p->pending);
	free(p);
}

int
hb_store_put(const struct hb_store *s, const char *hex, const void *data, size_t len,
	     const struct hb_stop *stop, struct hb_error *err)
{
	struct hb_partial *p = NULL;
	int rc = -1;

	if (hb_partial_open(s, hex, len, stop, &p, err))
		return -1;
	if (!p)
		return 0;
	if (hb_partial_restart(p, err) == 0 && hb_partial_write(p, data, len, err) == 0)
		rc = hb_partial_finish(p, err);
	hb_partial_close(p);
	return rc;
}
