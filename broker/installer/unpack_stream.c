/* The reading and the hashing thread, and the ring between them and the caller. */
#include "broker/installer/unpack_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/unpack_inflate.h"
#include "common/buf.h"

/* Enough that neither side waits for the other's bursts (a run of tiny files, a large one). */
#define BLOCKS 8
#define READ_SIZE ((size_t)1024 * 1024)
#define STACK_SIZE ((size_t)256 * 1024)

enum { PARSE, HASH, READERS };

struct hb_stream {
	int fd;
	uint64_t blob_size, max_bytes;
	struct hb_inflate *inflate;
	unsigned char *blocks, *input;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	size_t len[BLOCKS];
	uint64_t made, taken[READERS]; /* blocks, counted from the start */
	bool holding, ended, failed;
	atomic_bool stop;
	struct hb_error error;

	atomic_uint_fast64_t blob_done, bytes;
	struct hb_sha256 *blob_hash, *tar_hash;
	pthread_t reader, hasher;
	bool joined;
};

static unsigned char *block(struct hb_stream *s, uint64_t n)
{
	return s->blocks + (size_t)(n % BLOCKS) * HB_STREAM_BLOCK;
}

static uint64_t slowest(const struct hb_stream *s)
{
	return s->taken[PARSE] < s->taken[HASH] ? s->taken[PARSE] : s->taken[HASH];
}

/* A free block to fill, or NULL when the caller gave up. */
static unsigned char *claim(struct hb_stream *s)
{
	unsigned char *free_block = NULL;

	pthread_mutex_lock(&s->lock);
	while (!s->stop && s->made - slowest(s) == BLOCKS)
		pthread_cond_wait(&s->changed, &s->lock);
	if (!s->stop)
		free_block = block(s, s->made);
	pthread_mutex_unlock(&s->lock);
	return free_block;
}

static void publish(struct hb_stream *s, size_t len)
{
	pthread_mutex_lock(&s->lock);
	s->len[s->made % BLOCKS] = len;
	s->made++;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* The next block for one of the two that read; 0 at the end or when there will be no more. */
static size_t take(struct hb_stream *s, int who, const unsigned char **data)
{
	size_t len = 0;

	pthread_mutex_lock(&s->lock);
	while (s->made == s->taken[who] && !s->ended && !s->stop)
		pthread_cond_wait(&s->changed, &s->lock);
	if (s->made > s->taken[who] && !s->stop) {
		*data = block(s, s->taken[who]);
		len = s->len[s->taken[who] % BLOCKS];
	}
	pthread_mutex_unlock(&s->lock);
	return len;
}

static void give_back(struct hb_stream *s, int who)
{
	pthread_mutex_lock(&s->lock);
	s->taken[who]++;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static int read_input(struct hb_stream *s, size_t *len, struct hb_error *err)
{
	uint64_t done = s->blob_done, left = s->blob_size - done;
	size_t want = left < READ_SIZE ? (size_t)left : READ_SIZE;
	ssize_t n;

	*len = 0;
	while (*len < want) {
		n = pread(s->fd, s->input + *len, want - *len, (off_t)(done + *len));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return hb_fail_errno(err, "io_failed", "the layer's blob cannot be read");
		if (n == 0)
			return hb_fail(err, "short_blob",
				       "the layer's blob ends after %" PRIu64 " of %" PRIu64
				       " bytes",
				       done + *len, s->blob_size);
		*len += (size_t)n;
	}
	hb_sha256_update(s->blob_hash, s->input, *len);
	s->blob_done = done + *len;
	return 0;
}

/* Fill one block as far as the blob reaches. 1: full or at the end; 0: nothing came, at the end. */
static int fill(struct hb_stream *s, struct hb_inflate_io *io, unsigned char *out,
		struct hb_error *err)
{
	bool more = true;
	size_t before;

	io->out = out;
	io->out_len = HB_STREAM_BLOCK;
	while (io->out_len > 0 && more) {
		if (io->in_len == 0) {
			io->in = s->input;
			if (read_input(s, &io->in_len, err) < 0)
				return -1;
		}
		before = io->out_len;
		if (hb_inflate_step(s->inflate, io, err) < 0)
			return -1;
		more = io->in_len > 0 || s->blob_done < s->blob_size || io->out_len != before;
	}
	return io->out_len < HB_STREAM_BLOCK;
}

static int pump(struct hb_stream *s, struct hb_error *err)
{
	struct hb_inflate_io io = {0};
	unsigned char *out;
	size_t len;
	int rc;

	while ((out = claim(s)) != NULL) {
		rc = fill(s, &io, out, err);
		if (rc < 0)
			return -1;
		if (rc == 0)
			break;
		len = HB_STREAM_BLOCK - io.out_len;
		s->bytes += len;
		if (s->bytes > s->max_bytes)
			return hb_fail(err, "limit_exceeded",
				       "the image is larger than %llu bytes unpacked",
				       (unsigned long long)s->max_bytes);
		publish(s, len);
	}
	if (out != NULL && s->blob_size > 0 && !hb_inflate_at_end(s->inflate))
		return hb_fail(err, "bad_archive", "the layer's compressed stream is cut off");
	return 0;
}

/* A damaged stream is most often a damaged blob: hash the rest of it, so that the cause is named
 * and not the symptom. */
static void blame_blob(struct hb_stream *s)
{
	size_t len;

	while (!s->stop && s->blob_done < s->blob_size)
		if (read_input(s, &len, NULL) < 0)
			return;
}

static void *reader_main(void *arg)
{
	struct hb_stream *s = arg;
	struct hb_error err = {0};
	int rc = pump(s, &err);

	if (rc < 0 && strcmp(err.code, "bad_archive") == 0)
		blame_blob(s);
	pthread_mutex_lock(&s->lock);
	s->ended = true;
	if (rc < 0) {
		s->failed = true;
		s->error = err;
	}
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void *hasher_main(void *arg)
{
	struct hb_stream *s = arg;
	const unsigned char *data;
	size_t len;

	while ((len = take(s, HASH, &data)) > 0) {
		hb_sha256_update(s->tar_hash, data, len);
		give_back(s, HASH);
	}
	return NULL;
}

static int start_threads(struct hb_stream *s, struct hb_error *err)
{
	pthread_attr_t attr;
	int rc;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	rc = pthread_create(&s->reader, &attr, reader_main, s);
	if (rc == 0) {
		rc = pthread_create(&s->hasher, &attr, hasher_main, s);
		if (rc != 0) {
			pthread_mutex_lock(&s->lock);
			s->stop = true;
			pthread_cond_broadcast(&s->changed);
			pthread_mutex_unlock(&s->lock);
			pthread_join(s->reader, NULL);
		}
	}
	pthread_attr_destroy(&attr);
	if (rc == 0)
		return 0;
	s->joined = true;
	return hb_fail(err, "io_failed", "threads for unpacking cannot be started: %s",
		       strerror(rc));
}

int hb_stream_start(int blob_fd, uint64_t blob_size, const char *media_type, uint64_t max_bytes,
		    struct hb_stream **out, struct hb_error *err)
{
	struct hb_inflate *inflate = hb_inflate_new(media_type, err);
	struct hb_stream *s;

	if (inflate == NULL)
		return -1;
	s = hb_calloc(1, sizeof(*s));
	s->fd = blob_fd;
	s->blob_size = blob_size;
	s->max_bytes = max_bytes;
	s->inflate = inflate;
	s->blocks = malloc(BLOCKS * HB_STREAM_BLOCK);
	s->input = malloc(READ_SIZE);
	if (s->blocks == NULL || s->input == NULL)
		abort();
	s->blob_hash = hb_sha256_new();
	s->tar_hash = hb_sha256_new();
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	posix_fadvise(blob_fd, 0, (off_t)blob_size, POSIX_FADV_SEQUENTIAL);
	if (start_threads(s, err) < 0) {
		hb_stream_free(s);
		return -1;
	}
	*out = s;
	return 0;
}

int64_t hb_stream_next(struct hb_stream *s, const void **data)
{
	const unsigned char *block_data = NULL;
	size_t len;

	if (s->holding)
		give_back(s, PARSE);
	len = take(s, PARSE, &block_data);
	s->holding = len > 0;
	*data = block_data;
	if (len == 0 && hb_stream_failed(s, NULL))
		return -1;
	return (int64_t)len;
}

int hb_stream_failed(struct hb_stream *s, struct hb_error *err)
{
	bool failed;

	pthread_mutex_lock(&s->lock);
	failed = s->failed;
	if (failed && err != NULL)
		*err = s->error;
	pthread_mutex_unlock(&s->lock);
	return failed;
}

static void join(struct hb_stream *s)
{
	if (s->joined)
		return;
	pthread_join(s->reader, NULL);
	pthread_join(s->hasher, NULL);
	s->joined = true;
}

static int check_size(struct hb_stream *s, struct hb_error *err)
{
	struct stat st;

	if (fstat(s->fd, &st) < 0)
		return hb_fail_errno(err, "io_failed", "the layer's blob cannot be examined");
	if (S_ISREG(st.st_mode) && (uint64_t)st.st_size != s->blob_size)
		return hb_fail(err, "digest_mismatch",
			       "the layer's blob has %lld bytes instead of %llu",
			       (long long)st.st_size, (unsigned long long)s->blob_size);
	return 0;
}

static int compare(struct hb_sha256 *hash, const char *want, const char *code, const char *what,
		   struct hb_error *err)
{
	unsigned char sum[32];
	char hex[HB_HEX256];

	hb_sha256_final(hash, sum);
	hb_hex(sum, sizeof(sum), hex);
	if (strcmp(hex, want) == 0)
		return 0;
	return hb_fail(err, code, "%s is sha256:%s instead of sha256:%s", what, hex, want);
}

int hb_stream_end(struct hb_stream *s, const char digest[HB_HEX256], const char diff_id[HB_HEX256],
		  struct hb_error *err)
{
	const void *data;

	while (hb_stream_next(s, &data) > 0)
		continue;
	join(s);
	if (hb_stream_failed(s, err) && s->blob_done < s->blob_size)
		return -1;
	if (check_size(s, err) < 0)
		return -1;
	if (compare(s->blob_hash, digest, "digest_mismatch", "the layer's blob", err) < 0)
		return -1;
	if (hb_stream_failed(s, err))
		return -1;
	return compare(s->tar_hash, diff_id, "diff_id_mismatch", "the layer's tar stream", err);
}

void hb_stream_progress(const struct hb_stream *s, uint64_t *blob_done, uint64_t *bytes)
{
	*blob_done = s->blob_done;
	*bytes = s->bytes;
}

void hb_stream_free(struct hb_stream *s)
{
	if (s == NULL)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	join(s);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->changed);
	hb_sha256_free(s->blob_hash);
	hb_sha256_free(s->tar_hash);
	hb_inflate_free(s->inflate);
	free(s->blocks);
	free(s->input);
	free(s);
}
