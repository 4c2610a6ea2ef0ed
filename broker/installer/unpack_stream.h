/*
 * From the blob of a layer to its tar stream: reading, decompressing and hashing, on two threads
 * beside the caller's.
 *
 * One thread reads the blob, hashes what it reads (digest) and inflates it into a ring of large
 * blocks. A second one hashes those blocks (diff-id), while the caller takes the same blocks and
 * writes files straight from them. A block is used again when both are done with it. The whole
 * stream is hashed whatever the tar reader thinks of its end.
 *
 * Nothing is believed before hb_stream_end returned 0: bytes are handed out while the hashes are
 * still open.
 */
#ifndef HB_INSTALLER_UNPACK_STREAM_H
#define HB_INSTALLER_UNPACK_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/error.h"

#define HB_STREAM_BLOCK ((size_t)1024 * 1024)

struct hb_stream;

/* max_bytes: of the tar stream, more is limit_exceeded. blob_fd is borrowed. Codes: bad_archive
 * (media type). */
int hb_stream_start(int blob_fd, uint64_t blob_size, const char *media_type, uint64_t max_bytes,
		    struct hb_stream **out, struct hb_error *err);

/* The next block, valid until the next call; 0 at the end; -1 when the stream failed (hb_stream_end
 * says why). Blocks are full but for the last one. */
int64_t hb_stream_next(struct hb_stream *s, const void **data);

/* Reads the rest, waits for the hashes and compares them. Codes: short_blob, bad_archive,
 * limit_exceeded, digest_mismatch, diff_id_mismatch. */
int hb_stream_end(struct hb_stream *s, const char digest[HB_HEX256], const char diff_id[HB_HEX256],
		  struct hb_error *err);

/* The stream's own failure if it has one: 1 and err, else 0. Used to prefer the cause over
 * "truncated archive". */
int hb_stream_failed(struct hb_stream *s, struct hb_error *err);

void hb_stream_progress(const struct hb_stream *s, uint64_t *blob_done, uint64_t *bytes);

/* Ends the threads at any time. */
void hb_stream_free(struct hb_stream *s);

#endif
