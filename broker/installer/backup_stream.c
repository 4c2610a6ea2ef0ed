/* From a file to tar, by libzstd and libarchive (backup_stream.h). */
#include "broker/installer/backup_stream.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "common/buf.h"

#define IN_SIZE ((size_t)128 * 1024)
#define OUT_SIZE ((size_t)256 * 1024)
#define END_BYTES 1024 /* tar ends with two blocks of zeros */

struct hb_backup_stream {
	int fd;
	struct archive *archive;
	ZSTD_DStream *zstd;
	unsigned char *in, *out;
	ZSTD_inBuffer input;
	bool frame_over;
	uint64_t total,
		content_end; /* what came out so far, and where its last byte that isn't 0 ends */
	struct hb_error error;
};

static int refill(struct hb_backup_stream *s)
{
	ssize_t n;

	if (s->input.pos < s->input.size)
		return 0;
	do
		n = read(s->fd, s->in, IN_SIZE);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return hb_fail_errno(&s->error, "io_failed", "reading the backup");
	s->input = (ZSTD_inBuffer){.src = s->in, .size = (size_t)n};
	return 0;
}

static void note_end(struct hb_backup_stream *s, size_t len)
{
	size_t tail = 0;

	while (tail < len && s->out[len - 1 - tail] == 0)
		tail++;
	s->total += len;
	if (tail < len)
		s->content_end = s->total - tail;
}

/* Up to OUT_SIZE bytes of tar into s->out; 0 at the end, -1 with error. */
static ssize_t produce(struct hb_backup_stream *s)
{
	ZSTD_outBuffer out = {.dst = s->out, .size = OUT_SIZE};
	size_t left;

	while (out.pos == 0) {
		if (refill(s) < 0)
			return -1;
		if (s->frame_over)
			return s->input.size == 0 ? 0
						  : hb_fail(&s->error, "bad_backup",
							    "there are bytes behind the end of the "
							    "archive");
		if (s->input.size == 0)
			return hb_fail(&s->error, "bad_backup",
				       "the archive ends early; it was cut off");
		left = ZSTD_decompressStream(s->zstd, &out, &s->input);
		if (ZSTD_isError(left))
			return hb_fail(&s->error, "bad_backup",
				       "the archive is not zstd or damaged: %s",
				       ZSTD_getErrorName(left));
		s->frame_over = left == 0;
	}
	note_end(s, out.pos);
	return (ssize_t)out.pos;
}

static la_ssize_t on_read(struct archive *a, void *arg, const void **data)
{
	struct hb_backup_stream *s = arg;
	ssize_t n = produce(s);

	*data = s->out;
	if (n < 0)
		archive_set_error(a, EIO, "%s", s->error.message);
	return n;
}

int hb_backup_stream_failed(const struct hb_backup_stream *s, struct hb_error *err)
{
	const char *why = archive_error_string(s->archive);

	if (s->error.code[0]) {
		*err = s->error;
		return -1;
	}
	return hb_fail(err, "bad_backup", "the archive is damaged: %.200s", why ? why : "not tar");
}

int hb_backup_stream_open(int fd, struct hb_backup_stream **out, struct hb_error *err)
{
	struct hb_backup_stream *s = hb_calloc(1, sizeof *s);
	int rc = 0;

	s->fd = fd;
	s->in = hb_calloc(1, IN_SIZE);
	s->out = hb_calloc(1, OUT_SIZE);
	s->zstd = ZSTD_createDStream();
	s->archive = archive_read_new();
	if (!s->zstd || !s->archive || lseek(fd, 0, SEEK_SET) != 0)
		rc = hb_fail_errno(err, "io_failed", "the backup can't be read from its beginning");
	else if (archive_read_support_format_tar(s->archive) != ARCHIVE_OK ||
		 archive_read_open(s->archive, s, NULL, on_read, NULL) != ARCHIVE_OK)
		rc = hb_backup_stream_failed(s, err);
	if (rc < 0)
		hb_backup_stream_free(s);
	else
		*out = s;
	return rc;
}

void hb_backup_stream_free(struct hb_backup_stream *s)
{
	if (!s)
		return;
	archive_read_free(s->archive);
	ZSTD_freeDStream(s->zstd);
	free(s->in);
	free(s->out);
	free(s);
}

struct archive *hb_backup_stream_archive(struct hb_backup_stream *s)
{
	return s->archive;
}

int hb_backup_stream_end(struct hb_backup_stream *s, struct hb_error *err)
{
	uint64_t taken = (uint64_t)archive_filter_bytes(s->archive, 0);
	ssize_t n;

	while ((n = produce(s)) > 0)
		continue;
	if (n < 0)
		return hb_backup_stream_failed(s, err);
	if (s->content_end > taken)
		return hb_fail(err, "bad_backup", "there are bytes behind the end of the archive");
	if (s->total - s->content_end < END_BYTES)
		return hb_fail(err, "bad_backup", "the archive has no end; it was cut off");
	return 0;
}
