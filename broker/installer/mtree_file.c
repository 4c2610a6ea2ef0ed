/* Streaming a manifest to and from a file, hashing on the way. */
#include "broker/installer/mtree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD "#mtree\n"
#define WRITE_AT ((size_t)256 * 1024)
#define READ_SIZE ((size_t)128 * 1024)

struct hb_mtree_writer {
	int fd;
	struct hb_buf buf;
	struct hb_sha256 *hash;
};

struct hb_mtree_writer *hb_mtree_writer_new(int fd)
{
	struct hb_mtree_writer *w = hb_calloc(1, sizeof(*w));

	w->fd = fd;
	w->hash = hb_sha256_new();
	hb_buf_adds(&w->buf, HEAD);
	return w;
}

void hb_mtree_writer_free(struct hb_mtree_writer *w)
{
	if (w == NULL)
		return;
	hb_buf_free(&w->buf);
	hb_sha256_free(w->hash);
	free(w);
}

static int flush(struct hb_mtree_writer *w, struct hb_error *err)
{
	size_t done = 0;
	ssize_t n;

	hb_sha256_update(w->hash, w->buf.data, w->buf.len);
	while (done < w->buf.len) {
		n = write(w->fd, w->buf.data + done, w->buf.len - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return hb_fail_errno(err, "io_failed",
					     "the tree manifest cannot be written");
		done += (size_t)n;
	}
	hb_buf_clear(&w->buf);
	return 0;
}

int hb_mtree_write(struct hb_mtree_writer *w, const struct hb_mtree_entry *e, struct hb_error *err)
{
	hb_mtree_format(e, &w->buf);
	return w->buf.len < WRITE_AT ? 0 : flush(w, err);
}

int hb_mtree_writer_finish(struct hb_mtree_writer *w, char tree_digest[HB_HEX256],
			   struct hb_error *err)
{
	unsigned char sum[32];

	if (flush(w, err) < 0)
		return -1;
	hb_sha256_final(w->hash, sum);
	hb_hex(sum, sizeof(sum), tree_digest);
	return 0;
}

struct hb_mtree_reader {
	int fd;
	uint64_t lines;
	char *data;
	size_t at, len;
	struct hb_sha256 *hash;
};

struct hb_mtree_reader *hb_mtree_reader_new(int fd)
{
	struct hb_mtree_reader *r = hb_calloc(1, sizeof(*r));

	r->fd = fd;
	r->data = hb_calloc(1, READ_SIZE);
	r->hash = hb_sha256_new();
	return r;
}

void hb_mtree_reader_free(struct hb_mtree_reader *r)
{
	if (r == NULL)
		return;
	free(r->data);
	hb_sha256_free(r->hash);
	free(r);
}

/* 1: a line, cut out of the buffer; 0: end of file; -1. */
static int next_line(struct hb_mtree_reader *r, char **line, struct hb_error *err)
{
	char *end;
	ssize_t n;

	for (;;) {
		end = r->len == 0 ? NULL : memchr(r->data + r->at, '\n', r->len);
		if (end != NULL) {
			*end = '\0';
			*line = r->data + r->at;
			r->len -= (size_t)(end + 1 - *line);
			r->at = (size_t)(end + 1 - r->data);
			if (memchr(*line, '\0', (size_t)(end - *line)) != NULL)
				return hb_fail(err, "bad_manifest",
					       "the tree manifest holds a NUL byte");
			return 1;
		}
		if (r->len > HB_MTREE_LINE_MAX)
			return hb_fail(err, "bad_manifest",
				       "the tree manifest has a line that is too long");
		if (r->len > 0)
			memmove(r->data, r->data + r->at, r->len);
		r->at = 0;
		n = read(r->fd, r->data + r->len, READ_SIZE - r->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return hb_fail_errno(err, "io_failed", "the tree manifest cannot be read");
		if (n == 0 && r->len > 0)
			return hb_fail(err, "bad_manifest",
				       "the tree manifest ends in the middle of a line");
		if (n == 0)
			return 0;
		hb_sha256_update(r->hash, r->data + r->len, (size_t)n);
		r->len += (size_t)n;
	}
}

int hb_mtree_read(struct hb_mtree_reader *r, struct hb_mtree_entry *e, struct hb_error *err)
{
	char *line = NULL;
	int rc = next_line(r, &line, err);

	if (r->lines == 0) {
		if (rc == 0 || (line != NULL && strcmp(line, "#mtree") != 0))
			return hb_fail(err, "bad_manifest",
				       "the tree manifest does not begin with #mtree");
		r->lines++;
		if (rc > 0)
			rc = next_line(r, &line, err);
	}
	if (rc <= 0)
		return rc;
	r->lines++;
	if (hb_mtree_parse(line, e, err) < 0)
		return hb_fail_prefix(err, "line %llu", (unsigned long long)r->lines);
	return 1;
}

void hb_mtree_reader_digest(struct hb_mtree_reader *r, char tree_digest[HB_HEX256])
{
	unsigned char sum[32];

	hb_sha256_final(r->hash, sum);
	hb_hex(sum, sizeof(sum), tree_digest);
}
