/*
 * Blobs in parallel threads, each with its own connection, in the order they were listed. The
 * calling thread only watches counters and tells: ten events a second at most, and one every five
 * seconds when nothing moves, so that whoever listens can tell waiting from death.
 */
#include <curl/curl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/ids.h"
#include "fetcher/source.h"

#define TICK_NS 100000000
#define QUIET_MS 5000

enum blob_state { WAITING, ACTIVE, VERIFIED };

struct slot {
	const struct hb_fetch_blob *blob;
	_Atomic uint64_t done;
	_Atomic int state;
	bool announced;
	uint64_t told;
};

struct fetch {
	struct hb_source source;
	struct slot *slots;
	size_t count;
	uint64_t total;
	atomic_size_t next, running;
	pthread_mutex_t lock; /* of error */
	struct hb_error error;
};

static void *
fetch_thread(void *arg)
{
	struct fetch *f = arg;
	struct hb_http *http = hb_http_new(&f->source.http);
	struct hb_error why;

	while (!atomic_load(&f->source.failed)) {
		size_t i = atomic_fetch_add(&f->next, 1);
		struct slot *s = i < f->count ? &f->slots[i] : NULL;

		if (!s)
			break;
		atomic_store(&s->state, ACTIVE);
		memset(&why, 0, sizeof(why));
		if (hb_source_blob(&f->source, http, s->blob->hex, s->blob->size, &s->done, &why) ==
		    0) {
			atomic_store(&s->state, VERIFIED);
			continue;
		}
		pthread_mutex_lock(&f->lock);
		/* The first failure is the cause; the others were only stopped. */
		if (!atomic_exchange(&f->source.failed, true))
			f->error = why;
		pthread_mutex_unlock(&f->lock);
	}
	hb_http_free(http);
	atomic_fetch_sub(&f->running, 1);
	return NULL;
}

static json_t *
progress_event(const struct fetch *f, const struct slot *s)
{
	uint64_t all = 0;

	for (size_t i = 0; i < f->count; i++)
		all += atomic_load(&f->slots[i].done);
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "event", "progress", "digest",
			 s->blob->hex, "done", (json_int_t)atomic_load(&s->done), "total",
			 (json_int_t)s->blob->size, "all_done", (json_int_t)all, "all_total",
			 (json_int_t)f->total);
}

/* One tick: every blob that is newly complete, else the next one that moved. Returns whether
 * anything was said. */
static bool
tell(struct fetch *f, size_t *turn, bool must, void (*emit)(json_t *, void *), void *arg)
{
	struct slot *moved = NULL, *any = NULL;
	bool said = false;

	for (size_t k = 0; k < f->count; k++) {
		struct slot *s = &f->slots[(*turn + k) % f->count];
		int state = atomic_load(&s->state);

		if (state == VERIFIED && !s->announced) {
			s->announced = true;
			s->told = s->blob->size;
			emit(progress_event(f, s), arg);
			emit(json_pack("{s:s, s:s}", "event", "blob", "digest", s->blob->hex), arg);
			said = true;
		} else if (state == ACTIVE) {
			any = any ? any : s;
			if (!moved && atomic_load(&s->done) != s->told)
				moved = s;
		}
	}
	if (!moved && must)
		moved = any;
	if (said || !moved)
		return said;
	moved->told = atomic_load(&moved->done);
	*turn = (size_t)(moved - f->slots) + 1;
	emit(progress_event(f, moved), arg);
	return true;
}

static int
watch(struct fetch *f, size_t threads, void (*emit)(json_t *, void *), void *arg,
      struct hb_error *err)
{
	const struct timespec tick = {.tv_nsec = TICK_NS};
	pthread_t ids[64];
	size_t started = 0, turn = 0;
	int64_t last = hb_monotonic_ms();

	atomic_store(&f->running, threads);
	while (started < threads && pthread_create(&ids[started], NULL, fetch_thread, f) == 0)
		started++;
	atomic_fetch_sub(&f->running, threads - started);
	while (atomic_load(&f->running)) {
		if (tell(f, &turn, hb_monotonic_ms() - last > QUIET_MS, emit, arg))
			last = hb_monotonic_ms();
		nanosleep(&tick, NULL);
	}
	for (size_t i = 0; i < started; i++)
		pthread_join(ids[i], NULL);
	tell(f, &turn, false, emit, arg);
	if (!started)
		return hb_fail(err, "no_thread", "no thread could be started");
	if (!atomic_load(&f->source.failed))
		return 0;
	if (err)
		*err = f->error;
	return -1;
}

/* Everything that can be known before the first byte. */
static int
check_limits(const struct hb_pull_env *env, const struct hb_fetch_request *req, uint64_t *total,
	     struct hb_error *err)
{
	uint64_t blob_max = (uint64_t)hb_config_int(env->config, "fetcher.max_blob_size");
	uint64_t image_max = (uint64_t)hb_config_int(env->config, "fetcher.max_image_size");
	uint64_t all = 0, need = 0, files = 0;

	for (size_t i = 0; i < req->count; i++) {
		const struct hb_fetch_blob *b = &req->blobs[i];
		uint64_t have = hb_store_partial_size(env->store, b->hex);

		if (b->size > blob_max)
			return hb_fail(err, "blob_too_large",
				       "sha256:%s has %llu bytes, fetcher.max_blob_size allows "
				       "%llu",
				       b->hex, (unsigned long long)b->size,
				       (unsigned long long)blob_max);
		all += b->size;
		if (hb_store_seems_present(env->store, b->hex, b->size))
			continue;
		need += have < b->size ? b->size - have : 0;
		files++;
	}
	if (all > image_max)
		return hb_fail(err, "image_too_large",
			       "the image has %llu bytes, fetcher.max_image_size allows %llu",
			       (unsigned long long)all, (unsigned long long)image_max);
	*total = all;
	return hb_store_space(env->store, need, files, err);
}

int
hb_fetch(const struct hb_pull_env *env, const struct hb_fetch_request *req,
	 void (*emit)(json_t *event, void *arg), void *arg, struct hb_error *err)
{
	size_t threads = (size_t)hb_config_int(env->config, "fetcher.parallel");
	struct fetch f = {.count = req->count};
	int rc = -1;

	if (hb_store_usable(env->store, err) || check_limits(env, req, &f.total, err))
		return -1;
	if (!req->count)
		return 0;
	if (hb_source_open(env, &req->ref, &f.source, err))
		return -1;
	pthread_mutex_init(&f.lock, NULL);
	f.slots = hb_calloc(req->count, sizeof(*f.slots));
	for (size_t i = 0; i < req->count; i++)
		f.slots[i].blob = &req->blobs[i];
	if (threads > req->count)
		threads = req->count;
	if (threads > 64)
		threads = 64;
	rc = watch(&f, threads ? threads : 1, emit, arg, err);
	free(f.slots);
	pthread_mutex_destroy(&f.lock);
	hb_source_close(&f.source);
	return rc;
}
