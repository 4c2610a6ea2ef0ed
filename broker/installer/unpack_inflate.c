/* gzip by ISA-L, zstd by libzstd, or copying. */
#include "broker/installer/unpack_inflate.h"

#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "common/buf.h"

/* 32 MiB: four times what RFC 8878 asks every decoder to support; what `zstd --ultra` makes beyond
 * it would cost more memory than the whole worker is given. */
#define ZSTD_WINDOW_LOG_MAX 25

enum kind { PLAIN, GZIP, ZSTD };

struct hb_inflate {
	enum kind kind;
	struct inflate_state gzip;
	bool in_member; /* gzip: bytes of a member were taken; zstd: of a frame */
	bool any;       /* something was decompressed at all */
	ZSTD_DStream *zstd;
};

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && strcmp(text + n - m, end) == 0;
}

static int kind_of(const char *media_type)
{
	if (ends_with(media_type, "tar+gzip") || ends_with(media_type, "tar.gzip"))
		return GZIP;
	if (ends_with(media_type, "tar+zstd") || ends_with(media_type, "tar.zstd"))
		return ZSTD;
	if (ends_with(media_type, ".tar") || strcmp(media_type, "tar") == 0)
		return PLAIN;
	return -1;
}

struct hb_inflate *hb_inflate_new(const char *media_type, struct hb_error *err)
{
	int kind = kind_of(media_type);
	struct hb_inflate *z;

	if (kind < 0) {
		hb_fail(err, "bad_archive",
			"layers of type \"%.100s\" are not supported "
			"(tar, tar+gzip and tar+zstd are)",
			media_type);
		return NULL;
	}
	z = hb_calloc(1, sizeof(*z));
	z->kind = (enum kind)kind;
	if (kind == GZIP) {
		isal_inflate_init(&z->gzip);
		z->gzip.crc_flag = ISAL_GZIP;
	} else if (kind == ZSTD) {
		z->zstd = ZSTD_createDStream();
		if (z->zstd == NULL)
			abort();
		ZSTD_DCtx_setParameter(z->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
	}
	return z;
}

void hb_inflate_free(struct hb_inflate *z)
{
	if (z == NULL)
		return;
	ZSTD_freeDStream(z->zstd);
	free(z);
}

static int step_plain(struct hb_inflate_io *io)
{
	size_t n = io->in_len < io->out_len ? io->in_len : io->out_len;

	memcpy(io->out, io->in, n);
	io->in += n;
	io->in_len -= n;
	io->out += n;
	io->out_len -= n;
	return 0;
}

static const char *gzip_error(int code)
{
	switch (code) {
	case ISAL_INVALID_WRAPPER:
		return "no gzip header where one is due";
	case ISAL_UNSUPPORTED_METHOD:
		return "unknown compression method";
	case ISAL_INCORRECT_CHECKSUM:
		return "wrong checksum";
	default:
		return "damaged deflate data";
	}
}

static int step_gzip(struct hb_inflate *z, struct hb_inflate_io *io, struct hb_error *err)
{
	struct inflate_state *s = &z->gzip;
	int code = ISAL_DECOMP_OK;

	s->next_in = (uint8_t *)(uintptr_t)io->in;
	s->avail_in = (uint32_t)io->in_len;
	s->next_out = io->out;
	s->avail_out = (uint32_t)io->out_len;
	/* With no input left there may still be output inside the state. */
	for (;;) {
		uint32_t in = s->avail_in, out = s->avail_out;

		if (s->block_state == ISAL_BLOCK_FINISH) {
			if (in == 0)
				break;
			isal_inflate_reset(s);
			s->crc_flag = ISAL_GZIP;
		}
		code = isal_inflate(s);
		if (code < 0)
			return hb_fail(err, "bad_archive", "the gzip stream is damaged: %s",
				       gzip_error(code));
		z->any = true;
		z->in_member = s->block_state != ISAL_BLOCK_FINISH;
		if (s->avail_out == 0 || (s->avail_in == in && s->avail_out == out))
			break;
	}
	io->in = s->next_in;
	io->in_len = s->avail_in;
	io->out = s->next_out;
	io->out_len = s->avail_out;
	return 0;
}

static int step_zstd(struct hb_inflate *z, struct hb_inflate_io *io, struct hb_error *err)
{
	ZSTD_inBuffer in = {io->in, io->in_len, 0};
	ZSTD_outBuffer out = {io->out, io->out_len, 0};
	size_t rc, in_before, out_before;

	do {
		in_before = in.pos;
		out_before = out.pos;
		rc = ZSTD_decompressStream(z->zstd, &out, &in);
		if (ZSTD_isError(rc))
			return hb_fail(err, "bad_archive", "the zstd stream is damaged: %s",
				       ZSTD_getErrorName(rc));
		if (in.pos != in_before || out.pos != out_before) {
			z->any = true;
			z->in_member = rc != 0;
		}
	} while (out.pos < out.size && (in.pos != in_before || out.pos != out_before));
	io->in += in.pos;
	io->in_len -= in.pos;
	io->out += out.pos;
	io->out_len -= out.pos;
	return 0;
}

int hb_inflate_step(struct hb_inflate *z, struct hb_inflate_io *io, struct hb_error *err)
{
	if (z->kind == GZIP)
		return step_gzip(z, io, err);
	if (z->kind == ZSTD)
		return step_zstd(z, io, err);
	return step_plain(io);
}

bool hb_inflate_at_end(const struct hb_inflate *z)
{
	return z->kind == PLAIN || (z->any && !z->in_member);
}
