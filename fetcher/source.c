/* See source.h. Blobs are in blob.c, layouts in layout.c. */
#include "fetcher/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/fs.h"
#include "fetcher/document.h"
#include "fetcher/retry.h"

#define DOCUMENT_TIMEOUT 120 /* seconds for a document of a few MiB */
#define MIRROR_ATTEMPTS 2
#define WRONG_CONTENT_MAX \
	3 /* complete but wrong data: fetched this often, then it is the server's word */
#define ATTEMPTS_MAX 200 /* of one thing at one site, however much progress each makes */

static bool
source_stopped(void *arg)
{
	return atomic_load(&((struct hb_source *)arg)->failed);
}

int
hb_source_open(const struct hb_pull_env *env, const struct hb_image_ref *ref, struct hb_source *out,
	       struct hb_error *err)
{
	const struct hb_config *c = env->config;

	memset(out, 0, sizeof(*out));
	out->store = env->store;
	out->layout_fd = -1;
	out->retries = (int)hb_config_int(c, "fetcher.retries");
	out->stop = (struct hb_stop){source_stopped, out};
	out->http = (struct hb_http_options){
		.connect_timeout = (long)hb_config_int(c, "fetcher.connect_timeout"),
		.stall_timeout = (long)hb_config_int(c, "fetcher.stall_timeout"),
		.ca_file = hb_config_text(c, "fetcher.ca_file"),
		.stop = &out->stop,
	};
	if (ref->layout) {
		snprintf(out->layout_name, sizeof(out->layout_name), "%s", ref->repository);
		return hb_layout_open(ref->repository, &out->layout_fd, err);
	}
	if (hb_registry_open(c, ref, env->uid, &out->registry, err))
		return -1;
	out->registry.stop = &out->stop;
	out->registry.note = env->note;
	out->registry.note_arg = env->note_arg;
	return 0;
}

void
hb_source_close(struct hb_source *s)
{
	hb_close(&s->layout_fd);
	hb_registry_close(&s->registry);
}

static bool
is_wrong_content(const struct hb_error *err)
{
	return strcmp(err->code, "digest_mismatch") == 0 || strcmp(err->code, "size_mismatch") == 0;
}

/* Errors that no other server can help with. */
static bool
is_local(const struct hb_error *err)
{
	return strcmp(err->code, "cancelled") == 0 || strcmp(err->code, "disk_full") == 0 ||
	       strncmp(err->code, "storage_", 8) == 0;
}

/* Waiting would take too long: the answer that told us to wait says more than that we would have
 * to. */
static int
give_up_waiting(const struct hb_error *before, struct hb_error *why)
{
	if (strcmp(before->code, "rate_limited") == 0)
		*why = *before;
	else
		snprintf(why->code, sizeof(why->code), "rate_limited");
	return -1;
}

static int
try_site(struct hb_source *s, struct hb_site *site, hb_attempt_fn attempt, void *arg,
	 struct hb_error *why)
{
	struct hb_error before = {0};
	int limit = site->mirror ? MIRROR_ATTEMPTS : s->retries + 1;

	for (int n = 0, wrong = 0, all = 0; n < limit && all < ATTEMPTS_MAX; n++, all++) {
		int rc = attempt(site, n, arg, why);

		if (rc == 0)
			return 0;
		if (strcmp(why->code, HB_STILL_LIMITED) == 0)
			return give_up_waiting(&before, why);
		before = *why;
		if (!hb_error_is_passing(why) ||
		    (is_wrong_content(why) && ++wrong == WRONG_CONTENT_MAX))
			return -1;
		if (rc > 0)
			n = -1;
		/* A rate limit has its own waiting, which another process sees too; a last failure
		 * needs none. */
		if (strcmp(why->code, "rate_limited") != 0 &&
		    strcmp(why->code, "range_refused") != 0 && n + 1 < limit &&
		    !hb_pause(&s->stop, rc > 0 ? 100 : hb_backoff_ms(n)))
			return hb_fail(why, "cancelled", "the job was cancelled");
	}
	return -1;
}

int
hb_source_try(struct hb_source *s, hb_attempt_fn attempt, void *arg, struct hb_error *err)
{
	struct hb_error why = {0};

	for (size_t i = 0; i < s->registry.count; i++) {
		struct hb_site *site = &s->registry.sites[i];

		if (try_site(s, site, attempt, arg, &why) == 0)
			return 0;
		if (is_local(&why))
			break;
		if (i + 1 < s->registry.count)
			hb_registry_note(&s->registry, "mirror %s failed, trying the next: %s",
					 site->base.hostport, why.message);
	}
	if (err)
		*err = why;
	return -1;
}

struct document {
	struct hb_source *source;
	struct hb_http *http;
	const char *kind, *hex;
	int64_t size;
	size_t max;
	struct hb_buf *out;
	bool too_large;
};

static int
document_data(const void *bytes, size_t len, void *arg)
{
	struct document *d = arg;

	if (d->out->len + len > d->max) {
		d->too_large = true;
		return -1;
	}
	hb_buf_add(d->out, bytes, len);
	return 0;
}

static int
document_begin(const struct hb_response *r, void *arg)
{
	struct document *d = arg;

	hb_buf_clear(d->out);
	return 1;
}

/* Whole and right? Everything else is named for what it is, so that only complete data is called
 * wrong. */
static int
judge_document(struct document *d, struct hb_site *site, const struct hb_response *r, int attempt,
	       struct hb_error *err)
{
	const char *data = d->out->len ? d->out->data : "";
	char found[HB_HEX256], reason[256];

	if (d->too_large)
		return hb_fail(err, "bad_manifest",
			       "sha256:%s is longer than the %zu bytes allowed", d->hex, d->max);
	if (!r->complete)
		return hb_fail(err, "connection_ended_early",
			       "%s: connection ended early after %zu bytes of sha256:%s "
			       "(%s)",
			       site->base.hostport, d->out->len, d->hex, r->trouble);
	hb_sha256_hex(data, d->out->len, found);
	if (strcmp(found, d->hex) == 0) {
		if (d->size < 0 || (uint64_t)d->size == d->out->len)
			return 0;
		return hb_fail(err, "size_mismatch",
			       "sha256:%s is %zu bytes long, not the %lld its index or manifest "
			       "says",
			       d->hex, d->out->len, (long long)d->size);
	}
	hb_response_reason(data, d->out->len, reason, sizeof(reason));
	if (hb_reason_is_rate_limit(reason))
		return hb_rate_limited(&d->source->registry, site->base.hostport, r->retry_after,
				       attempt, reason, err);
	if (reason[0])
		return hb_fail(err, "registry_error", "%s: %s", site->base.hostport, reason);
	return hb_fail(err, "digest_mismatch", "what %s gives for sha256:%s has digest sha256:%s",
		       site->base.hostport, d->hex, found);
}

static int
document_attempt(struct hb_site *site, int attempt, void *arg, struct hb_error *err)
{
	struct document *d = arg;
	char *path = hb_asprintf("%s/sha256:%s", d->kind, d->hex);
	struct hb_get get = {
		.path = path,
		.attempt = attempt,
		.total_timeout = DOCUMENT_TIMEOUT,
		.accept = strcmp(d->kind, "manifests") == 0 ? HB_ACCEPT_MANIFESTS : "*/*",
		.begin = document_begin,
		.data = document_data,
		.arg = d,
	};
	struct hb_response r;
	int rc;

	hb_buf_clear(d->out);
	rc = hb_site_get(&d->source->registry, site, d->http, &get, &r, err);
	if (rc == 0)
		rc = judge_document(d, site, &r, attempt, err);
	hb_response_clear(&r);
	free(path);
	return rc;
}

int
hb_source_document(struct hb_source *s, struct hb_http *http, const char *kind, const char *hex,
		   int64_t size, size_t max, struct hb_buf *out, struct hb_error *err)
{
	struct document d = {s, http, kind, hex, size, max, out, false};
	int have;

	if (size > (int64_t)max)
		return hb_fail(err, "bad_manifest",
			       "sha256:%s would be %lld bytes long, more than the %zu allowed", hex,
			       (long long)size, max);
	hb_buf_clear(out);
	have = hb_store_get(s->store, hex, max, out, err);
	if (have < 0)
		return -1;
	if (have && size >= 0 && (uint64_t)size != out->len)
		return hb_fail(err, "size_mismatch",
			       "sha256:%s is %zu bytes long, not the %lld its index or manifest "
			       "says",
			       hex, out->len, (long long)size);
	if (have)
		return 0;
	if (s->layout_fd >= 0 ? hb_layout_document(s->layout_fd, s->layout_name, hex, max, out, err)
			      : hb_source_try(s, document_attempt, &d, err))
		return -1;
	if (hb_store_space(s->store, out->len, 1, err))
		return -1;
	return hb_store_put(s->store, hex, out->len ? out->data : "", out->len, &s->stop, err);
}

static int
head_attempt(struct hb_site *site, int attempt, void *arg, struct hb_error *err)
{
	struct document *d = arg;
	char *path = hb_asprintf("blobs/sha256:%s", d->hex);
	struct hb_get get = {.path = path,
			     .head = true,
			     .accept = "*/*",
			     .attempt = attempt,
			     .total_timeout = DOCUMENT_TIMEOUT};
	struct hb_response r;
	int rc = hb_site_get(&d->source->registry, site, d->http, &get, &r, err);

	hb_response_clear(&r);
	free(path);
	return rc;
}

int
hb_source_has_blob(struct hb_source *s, struct hb_http *http, const char *hex, struct hb_error *err)
{
	struct document d = {.source = s, .http = http, .hex = hex};
	struct stat st;

	if (s->layout_fd >= 0)
		return fstatat(s->layout_fd, hex, &st, 0) == 0 ? 0
							       : hb_fail(err, "not_found",
									 "the image layout %s has "
									 "no blob sha256:%s",
									 s->layout_name, hex);
	return hb_source_try(s, head_attempt, &d, err);
}
