/*
 * The blob store: <storage>/blobs/sha256/<hex>, partial downloads <hex>.partial beside it.
 *
 * A name proves nothing: a file that is already there is hashed before it counts. One writer a
 * blob, by flock on the partial file. A finished blob was hashed while it was written, is synced,
 * and appears by rename, 0644 so that the installer can read it.
 */
#ifndef HB_FETCHER_STORE_H
#define HB_FETCHER_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/digest.h"
#include "common/error.h"

struct hb_store {
	int dirfd; /* blobs/sha256 */
};

/* `storage` is the configured directory. Code: storage_missing, storage_unusable. */
int hb_store_open(const char *storage, struct hb_store *out, struct hb_error *err);
void hb_store_close(struct hb_store *s);
/* The directory may have been removed (it is disposable): code storage_missing. */
int hb_store_usable(const struct hb_store *s, struct hb_error *err);

/* Called now and then during long work; true ends it with code cancelled. */
typedef bool (*hb_stop_fn)(void *arg);
struct hb_stop {
	hb_stop_fn stopped;
	void *arg;
};
bool hb_stopped(const struct hb_stop *stop);

/* 1: present and hashed whole; 0: absent (a wrong file of that name was removed); -1: error. */
int hb_store_verified(const struct hb_store *s, const char *hex, uint64_t size,
		      const struct hb_stop *stop, struct hb_error *err);
/* 1: read and hash equal; 0: absent. For documents. */
int hb_store_get(const struct hb_store *s, const char *hex, size_t max, struct hb_buf *out,
		 struct hb_error *err);
/* Store a document whose hash the caller has checked (it is checked again). */
int hb_store_put(const struct hb_store *s, const char *hex, const void *data, size_t len,
		 const struct hb_stop *stop, struct hb_error *err);
/* A file of that name and size is there; for estimates only. */
bool hb_store_seems_present(const struct hb_store *s, const char *hex, uint64_t size);
/* Bytes of a partial file of that blob, 0 when there is none. */
uint64_t hb_store_partial_size(const struct hb_store *s, const char *hex);
/* Refuse with numbers when the file system lacks room. Code: not_enough_space. */
int hb_store_space(const struct hb_store *s, uint64_t bytes, uint64_t files, struct hb_error *err);

struct hb_partial;

/* Opens or creates and locks (waits for another writer), hashes what is there. If the other writer
 * finished the blob meanwhile *out is NULL and 0 is returned: look again with hb_store_verified. */
int hb_partial_open(const struct hb_store *s, const char *hex, uint64_t size,
		    const struct hb_stop *stop, struct hb_partial **out, struct hb_error *err);
uint64_t hb_partial_done(const struct hb_partial *p);
/* Begin again at offset 0. */
int hb_partial_restart(struct hb_partial *p, struct hb_error *err);
/* Everything added so far goes to the file; what follows can be dropped while it is small. */
int hb_partial_mark(struct hb_partial *p, struct hb_error *err);
/* The bytes since the mark, when they are all still in memory; NULL otherwise. */
const char *hb_partial_since_mark(const struct hb_partial *p, size_t *len);
void hb_partial_drop(struct hb_partial *p); /* forget them */
/* Code size_mismatch when more comes than the blob's size, disk_full. */
int hb_partial_write(struct hb_partial *p, const void *data, size_t len, struct hb_error *err);
/* All there: hash, sync, rename, sync the directory. Code digest_mismatch: nothing is left of the
 * content. */
int hb_partial_finish(struct hb_partial *p, struct hb_error *err);
/* Keeps what is there for a later resume, unless it was finished; removes an empty one. */
void hb_partial_close(struct hb_partial *p);

#endif
