/*
 * One blob, from wherever it stopped last time. The rules, each paid for by someone:
 *   - a range is always closed, and asked for without waiting for Accept-Ranges
 *   - a 200 in answer to a range starts at 0; a 206 with another start than asked for is thrown
 * away
 *   - a short body is "connection ended early", keeps its bytes and is resumed; only complete data
 * is called wrong
 *   - complete wrong data is removed and fetched again from 0, a bounded number of times
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "fetcher/source.h"

#define PROGRESS_WORTH \
	(1u << 20) /* an attempt that brought this much does not count against the retries */

struct blob {
	struct hb_source *source;
	struct hb_http *http;
	const char *hex;
	uint64_t size;
	_Atomic uint64_t *done;
	struct hb_partial *partial;
	uint64_t from;           /* where this attempt began */
	bool ranged;             /* this attempt asked for a range */
	bool ranges_unreliable;  /* this site's answers to ranges were wrong */
	bool range_wrong;        /* this attempt's was */
	struct hb_error failure; /* of writing */
};

/* "bytes FIRST-LAST/TOTAL", the total perhaps a star (RFC 9110, 14.4). */
static bool
range_is_ours(const struct blob *b, const char *text)
{
	unsigned long long first, last, total;
	int used = 0;

	if (sscanf(text, "bytes %llu-%llu/%n", &first, &last, &used) < 2 || !used)
		return false;
	if (first != b->from || last < first || last >= b->size)
		return false;
	text += used;
	if (strcmp(text, "*") == 0)
		return true;
	used = 0;
	return sscanf(text, "%llu%n", &total, &used) == 1 && !text[used] && total == b->size;
}

static int
blob_begin(const struct hb_response *r, void *arg)
{
	struct blob *b = arg;

	if (r->status == 206 && (!b->ranged || !range_is_ours(b, r->content_range))) {
		b->range_wrong = true;
		return -1;
	}
	if (r->status == 200) {
		/* Not the blob: an error page or an error in JSON, kept aside and looked at. */
		if (r->content_length >= 0 && (uint64_t)r->content_length != b->size)
			return 0;
		if (hb_partial_done(b->partial) && hb_partial_restart(b->partial, &b->failure))
			return -1;
		b->from = 0;
		atomic_store(b->done, 0);
	}
	return hb_partial_mark(b->partial, &b->failure) ? -1 : 1;
}

static int
blob_data(const void *bytes, size_t len, void *arg)
{
	struct blob *b = arg;

	if (hb_partial_write(b->partial, bytes, len, &b->failure))
		return -1;
	atomic_store(b->done, hb_partial_done(b->partial));
	return 0;
}

static int
begin_again(struct blob *b, struct hb_error *err)
{
	atomic_store(b->done, 0);
	return hb_partial_restart(b->partial, err);
}

/* The 200 whose length is not the blob's. */
static int
judge_other_body(struct blob *b, struct hb_site *site, const struct hb_response *r, int attempt,
		 const char *body, size_t len, struct hb_error *err)
{
	char reason[256];

	hb_response_reason(body, len, reason, sizeof(reason));
	if (hb_reason_is_rate_limit(reason))
		return hb_rate_limited(&b->source->registry, site->base.hostport, r->retry_after,
				       attempt, reason, err);
	if (reason[0])
		return hb_fail(err, "registry_error", "%s: %s", site->base.hostport, reason);
	return hb_fail(err, "size_mismatch",
		       "%s offers %lld bytes for sha256:%s, the manifest says %llu",
		       site->base.hostport, (long long)r->content_length, b->hex,
		       (unsigned long long)b->size);
}

/* What was kept of an answer in the file although it was no part of the blob: an error without a
 * length. */
static bool
was_error_body(struct blob *b, const struct hb_response *r, const char **body, size_t *len)
{
	char reason[256];

	*body = hb_partial_since_mark(b->partial, len);
	if (!*body || !*len || r->status != 200 || r->content_length >= 0)
		return false;
	hb_response_reason(*body, *len, reason, sizeof(reason));
	return reason[0] != '\0';
}

static int
judge_blob(struct blob *b, struct hb_site *site, const struct hb_response *r, int attempt,
	   struct hb_error *err)
{
	const char *body;
	size_t len;
	int rc;

	if (b->range_wrong) {
		b->ranges_unreliable = true;
		if (begin_again(b, err))
			return -1;
		return hb_fail(err, "range_refused", "%s sent another range than asked for",
			       site->base.hostport);
	}
	if (b->failure.code[0]) {
		if (strcmp(b->failure.code, "size_mismatch") == 0 && begin_again(b, err))
			return -1;
		if (err)
			*err = b->failure;
		return -1;
	}
	if (r->status == 200 && r->content_length >= 0 && (uint64_t)r->content_length != b->size)
		return judge_other_body(b, site, r, attempt, r->body.len ? r->body.data : "",
					r->body.len, err);
	if (hb_partial_done(b->partial) < b->size) {
		if (was_error_body(b, r, &body, &len)) {
			rc = judge_other_body(b, site, r, attempt, body, len, err);
			hb_partial_drop(b->partial);
			atomic_store(b->done, hb_partial_done(b->partial));
			return rc;
		}
		return hb_fail(err, "connection_ended_early",
			       "%s: connection ended early after %llu of %llu bytes of "
			       "sha256:%s",
			       site->base.hostport, (unsigned long long)hb_partial_done(b->partial),
			       (unsigned long long)b->size, b->hex);
	}
	return 0;
}

static int
finish(struct blob *b, struct hb_error *err)
{
	int rc = hb_partial_finish(b->partial, err);

	if (rc)
		atomic_store(b->done, hb_partial_done(b->partial));
	return rc;
}

__attribute__((nonnull)) static int
blob_attempt(struct hb_site *site, int attempt, void *arg, struct hb_error *err)
{
	struct blob *b = arg;
	char path[HB_HEX256 + 16];
	struct hb_get get = {.path = path,
			     .accept = "*/*",
			     .attempt = attempt,
			     .begin = blob_begin,
			     .data = blob_data,
			     .arg = b};
	struct hb_response r;
	int rc;

	if (attempt == 0 && hb_partial_done(b->partial) == b->size && b->size) {
		/* Left complete by a process that died before the rename, or poisoned. */
		rc = finish(b, err);
		if (rc == 0 || strcmp(err->code, "digest_mismatch") != 0)
			return rc;
	}
	if (b->ranges_unreliable && hb_partial_done(b->partial) && begin_again(b, err))
		return -1;
	b->from = hb_partial_done(b->partial);
	b->ranged = b->from > 0;
	b->range_wrong = false;
	memset(&b->failure, 0, sizeof(b->failure));
	snprintf(path, sizeof(path), "blobs/sha256:%s", b->hex);
	get.ranged = b->ranged;
	get.first = b->from;
	get.last = b->size - 1;
	rc = hb_site_get(&b->source->registry, site, b->http, &get, &r, err);
	if (rc == 0)
		rc = judge_blob(b, site, &r, attempt, err);
	else if (strcmp(err->code, "range_refused") == 0) {
		b->ranges_unreliable = true;
		if (begin_again(b, err) == 0)
			hb_fail(err, "range_refused", "%s refuses the range", site->base.hostport);
	}
	hb_response_clear(&r);
	if (rc == 0)
		rc = finish(b, err);
	else if (strcmp(err->code, "connection_ended_early") == 0 &&
		 hb_partial_done(b->partial) >= b->from + PROGRESS_WORTH)
		rc = 1;
	return rc;
}

int
hb_source_blob(struct hb_source *s, struct hb_http *http, const char *hex, uint64_t size,
	       _Atomic uint64_t *done, struct hb_error *err)
{
	struct blob b = {.source = s, .http = http, .hex = hex, .size = size, .done = done};
	int rc;

	for (;;) {
		rc = hb_store_verified(s->store, hex, size, &s->stop, err);
		if (rc > 0)
			atomic_store(done, size);
		if (rc)
			return rc > 0 ? 0 : -1;
		if (hb_partial_open(s->store, hex, size, &s->stop, &b.partial, err))
			return -1;
		if (b.partial)
			break;
		/* another job has just finished it: look again */
	}
	atomic_store(done, hb_partial_done(b.partial));
	if (s->layout_fd >= 0)
		rc = hb_layout_blob(s->layout_fd, s->layout_name, hex, size, b.partial, done,
				    &s->stop, err);
	else
		rc = hb_source_try(s, blob_attempt, &b, err);
	hb_partial_close(b.partial);
	return rc;
}
