/* Two hashing threads behind a queue of open files. Most files are small, and waking a thread costs more than hashing one:
 * files are taken several at a time, and nobody is woken who isn't waiting for enough. */
#include "broker/installer/verify_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/installer/mtree.h"
#include "common/buf.h"
#include "common/fs.h"

#define THREADS 2
#define QUEUE 128
#define BATCH 16 /* taken at once; as much room must be free before the walk goes on */
#define READ_SIZE ((size_t)256 * 1024)
#define SHOWN 20

struct job {
	int fd;
	char *path;
	uint64_t size;
	char sha256[HB_HEX256];
};

struct difference {
	char *path, *what, *expected, *found;
};

struct hb_verify_hash {
	pthread_mutex_t lock;
	pthread_cond_t filled, drained;
	struct job queue[QUEUE];
	size_t head, count, waiting; /* waiting: threads without work */
	bool full;                   /* the walk waits */
	bool ending, failed;
	struct hb_error error;
	uint64_t files, bytes;

	struct difference first[SHOWN]; /* the lowest paths, sorted */
	size_t shown;
	uint64_t differences;

	pthread_t threads[THREADS];
	size_t started;
};

static char *escaped(const char *text)
{
	struct hb_buf b = HB_BUF_INIT;

	hb_mtree_escape(&b, text, strlen(text));
	return hb_buf_take(&b);
}

static void free_difference(struct difference *d)
{
	free(d->path);
	free(d->what);
	free(d->expected);
	free(d->found);
}

/* The threads finish in any order; keeping the lowest paths makes the report the same every time.
 */
void hb_verify_difference(struct hb_verify_hash *h, const char *path, const char *what,
			  const char *expected, const char *found)
{
	size_t at;

	pthread_mutex_lock(&h->lock);
	h->differences++;
	for (at = h->shown; at > 0 && hb_mtree_compare(path, h->first[at - 1].path) < 0; at--)
		continue;
	if (at < SHOWN) {
		if (h->shown == SHOWN)
			free_difference(&h->first[--h->shown]);
		memmove(&h->first[at + 1], &h->first[at], (h->shown - at) * sizeof(h->first[0]));
		h->shown++;
		h->first[at] = (struct difference){hb_strdup(path), hb_strdup(what),
						   escaped(expected), escaped(found)};
	}
	pthread_mutex_unlock(&h->lock);
}

uint64_t hb_verify_differences(struct hb_verify_hash *h, json_t **list)
{
	char *path;

	*list = json_array();
	for (size_t i = 0; i < h->shown; i++) {
		path = escaped(h->first[i].path);
		json_array_append_new(*list,
				      json_pack("{s:s, s:s, s:s, s:s}", "path", path, "what",
						h->first[i].what, "expected", h->first[i].expected,
						"found", h->first[i].found));
		free(path);
	}
	return h->differences;
}

static int hash_file(const struct job *j, struct hb_sha256 *hash, unsigned char *buffer,
		     char hex[HB_HEX256], struct hb_error *err)
{
	unsigned char sum[32];
	uint64_t done = 0;
	ssize_t n;

	hb_sha256_reset(hash);
	while (done < j->size) {
		n = read(j->fd, buffer, READ_SIZE);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return hb_fail_errno(err, "io_failed", "a file of the tree cannot be read");
		if (n == 0)
			break;
		hb_sha256_update(hash, buffer, (size_t)n);
		done += (uint64_t)n;
	}
	hb_sha256_final(hash, sum);
	hb_hex(sum, sizeof(sum), hex);
	return 0;
}

/* Up to BATCH files; 0 at the end. */
static size_t take(struct hb_verify_hash *h, struct job jobs[BATCH])
{
	size_t n;

	pthread_mutex_lock(&h->lock);
	while (h->count == 0 && !h->ending) {
		h->waiting++;
		pthread_cond_wait(&h->filled, &h->lock);
		h->waiting--;
	}
	for (n = 0; n < BATCH && h->count > 0; n++) {
		jobs[n] = h->queue[h->head];
		h->head = (h->head + 1) % QUEUE;
		h->count--;
	}
	if (h->full && h->count <= QUEUE - BATCH)
		pthread_cond_signal(&h->drained);
	pthread_mutex_unlock(&h->lock);
	return n;
}

static void finish(struct hb_verify_hash *h, uint64_t files, uint64_t bytes, int rc,
		   const struct hb_error *err)
{
	pthread_mutex_lock(&h->lock);
	h->files += files;
	h->bytes += bytes;
	if (rc < 0 && !h->failed) {
		h->failed = true;
		h->error = *err;
	}
	pthread_mutex_unlock(&h->lock);
}

static int look_at(struct hb_verify_hash *h, struct job *j, struct hb_sha256 *hash,
		   unsigned char *buffer, struct hb_error *err)
{
	char hex[HB_HEX256];
	int rc = hash_file(j, hash, buffer, hex, err);

	if (rc == 0 && strcmp(hex, j->sha256) != 0)
		hb_verify_difference(h, j->path, "content", j->sha256, hex);
	hb_close(&j->fd);
	free(j->path);
	return rc;
}

static void *thread_main(void *arg)
{
	struct hb_verify_hash *h = arg;
	unsigned char *buffer = hb_calloc(1, READ_SIZE);
	struct hb_sha256 *hash = hb_sha256_new();
	struct job jobs[BATCH];
	struct hb_error err;
	uint64_t bytes;
	size_t n;
	int rc;

	while ((n = take(h, jobs)) > 0) {
		bytes = 0;
		rc = 0;
		for (size_t i = 0; i < n; i++) {
			struct hb_error why;

			bytes += jobs[i].size;
			if (look_at(h, &jobs[i], hash, buffer, &why) < 0) {
				rc = -1;
				err = why;
			}
		}
		finish(h, n, bytes, rc, &err);
	}
	hb_sha256_free(hash);
	free(buffer);
	return NULL;
}

int hb_verify_hash_start(struct hb_verify_hash **out, struct hb_error *err)
{
	struct hb_verify_hash *h = hb_calloc(1, sizeof(*h));
	int rc;

	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->filled, NULL);
	pthread_cond_init(&h->drained, NULL);
	for (; h->started < THREADS; h->started++) {
		rc = pthread_create(&h->threads[h->started], NULL, thread_main, h);
		if (rc != 0) {
			hb_verify_hash_free(h);
			return hb_fail(err, "io_failed",
				       "threads for verifying cannot be started: %s", strerror(rc));
		}
	}
	*out = h;
	return 0;
}

void hb_verify_hash_add(struct hb_verify_hash *h, int fd, const char *path, uint64_t size,
			const char sha256[HB_HEX256])
{
	struct job j = {.fd = fd, .path = hb_strdup(path), .size = size};

	memcpy(j.sha256, sha256, sizeof(j.sha256));
	pthread_mutex_lock(&h->lock);
	if (h->count == QUEUE) {
		h->full = true;
		while (h->count > QUEUE - BATCH)
			pthread_cond_wait(&h->drained, &h->lock);
		h->full = false;
	}
	h->queue[(h->head + h->count++) % QUEUE] = j;
	/* One that waits alone is woken for the first file, both for a batch: a large file is never left lying. */
	if (h->waiting > 0 && (h->count == 1 || h->count % BATCH == 0))
		pthread_cond_signal(&h->filled);
	pthread_mutex_unlock(&h->lock);
}

int hb_verify_hash_end(struct hb_verify_hash *h, struct hb_error *err)
{
	pthread_mutex_lock(&h->lock);
	h->ending = true;
	pthread_cond_broadcast(&h->filled);
	pthread_mutex_unlock(&h->lock);
	while (h->started > 0)
		pthread_join(h->threads[--h->started], NULL);
	if (!h->failed)
		return 0;
	if (err != NULL)
		*err = h->error;
	return -1;
}

void hb_verify_hash_progress(struct hb_verify_hash *h, uint64_t *files, uint64_t *bytes)
{
	pthread_mutex_lock(&h->lock);
	*files = h->files;
	*bytes = h->bytes;
	pthread_mutex_unlock(&h->lock);
}

void hb_verify_hash_free(struct hb_verify_hash *h)
{
	if (h == NULL)
		return;
	hb_verify_hash_end(h, NULL);
	for (size_t i = 0; i < h->shown; i++)
		free_difference(&h->first[i]);
	pthread_mutex_destroy(&h->lock);
	pthread_cond_destroy(&h->filled);
	pthread_cond_destroy(&h->drained);
	free(h);
}
