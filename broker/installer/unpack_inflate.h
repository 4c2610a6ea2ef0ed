/*
 * Decompression of a layer in pieces: none, gzip (RFC 1952, any number of members) or zstd (RFC
 * 8878, any number of frames). ISA-L inflates gzip two to three times as fast as zlib on the same
 * machine.
 */
#ifndef HB_INSTALLER_UNPACK_INFLATE_H
#define HB_INSTALLER_UNPACK_INFLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

struct hb_inflate;

/* By media type: ...tar, ...tar+gzip (Docker: tar.gzip), ...tar+zstd. Code: bad_archive. */
struct hb_inflate *hb_inflate_new(const char *media_type, struct hb_error *err);
void hb_inflate_free(struct hb_inflate *z);

struct hb_inflate_io {
	const unsigned char *in;
	size_t in_len; /* taken from on return */
	unsigned char *out;
	size_t out_len; /* room left on return */
};
/* Works until the input is used up or the output is full. Code: bad_archive, limit_exceeded (zstd
 * window). */
int hb_inflate_step(struct hb_inflate *z, struct hb_inflate_io *io, struct hb_error *err);
/* May the input end here? */
bool hb_inflate_at_end(const struct hb_inflate *z);

#endif
