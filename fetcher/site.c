/*
 * One request at one site. Each step is a request of its own: authorization is attached only while
 * the URL's origin is the site's, a redirect target is judged before it is asked, and nothing goes
 * to a host that told us to wait.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/ids.h"
#include "fetcher/registry.h"
#include "fetcher/retry.h"
#include "fetcher/token.h"

#define HEARTBEAT_MS 100

bool
hb_pause(const struct hb_stop *stop, int milliseconds)
{
	int64_t until = hb_monotonic_ms() + milliseconds;

	for (int64_t left = milliseconds; left > 0; left = until - hb_monotonic_ms()) {
		struct timespec ts = {.tv_nsec = (left < HEARTBEAT_MS ? left : HEARTBEAT_MS) *
						 1000000L};

		if (hb_stopped(stop))
			return false;
		nanosleep(&ts, NULL);
	}
	return !hb_stopped(stop);
}

bool
hb_reason_is_rate_limit(const char *reason)
{
	return strncmp(reason, "TOOMANYREQUESTS", 15) == 0;
}

bool
hb_error_is_passing(const struct hb_error *err)
{
	static const char *const codes[] = {
		"unreachable",  "timeout",       "registry_error",  "connection_ended_early",
		"rate_limited", "range_refused", "digest_mismatch", "size_mismatch"};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (strcmp(err->code, codes[i]) == 0)
			return true;
	return false;
}

/* Wait until `host` may be asked again. Read from the file each time: another job may have been
 * told. */
static int
wait_for_host(struct hb_registry *r, const struct hb_site *site, const char *host,
	      struct hb_error *err)
{
	/* There is something to do instead of waiting for a mirror: ask the next site. */
	int64_t patience = hb_monotonic_ms() + (site->mirror ? 0 : HB_PATIENCE * 1000LL);
	char when[21];

	for (;;) {
		int64_t now = hb_now(), until = hb_ratelimit_until(r->state_dir, host, now);

		if (!until)
			return 0;
		if ((until - now) * 1000 > patience - hb_monotonic_ms()) {
			hb_time_rfc3339(until, when);
			return hb_fail(err, HB_STILL_LIMITED,
				       "%s limits our rate: rate limited, next try at %s", host,
				       when);
		}
		if (!hb_pause(r->stop, 500))
			return hb_fail(err, "cancelled", "the job was cancelled");
	}
}

int
hb_rate_limited(struct hb_registry *r, const char *host, const char *retry_after, int attempt,
		const char *reason, struct hb_error *err)
{
	int64_t now = hb_now(), until = now + hb_retry_after(retry_after, now);
	struct hb_error why;
	char when[21];

	if (until == now)
		until += (hb_backoff_ms(attempt + 2) + 999) / 1000;
	/* Whole seconds: one more, so that no request goes out within the last of them. */
	until++;
	if (hb_ratelimit_set(r->state_dir, host, until, now, &why))
		hb_registry_note(r, "the rate limit of %s can't be remembered: %s", host,
				 why.message);
	hb_time_rfc3339(until, when);
	return hb_fail(err, "rate_limited", "%s limits our rate%s%s: rate limited, next try at %s",
		       host, reason[0] ? ", " : "", reason, when);
}

/* Picks the challenge: Bearer when it is offered, else Basic. */
static const struct hb_challenge *
pick(const struct hb_challenge *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (list[i].scheme == HB_AUTH_BEARER && list[i].realm[0])
			return &list[i];
	for (size_t i = 0; i < n; i++)
		if (list[i].scheme == HB_AUTH_BASIC)
			return &list[i];
	return NULL;
}

static char *
basic_header(const struct hb_site *site, struct hb_error *err)
{
	size_t size;
	char *out;

	if (!site->credential) {
		hb_fail(err, "unauthorized",
			"%s wants a user name and password; put them into "
			"fetcher/credentials.json",
			site->base.hostport);
		return NULL;
	}
	if (site->authorization) {
		hb_fail(err, "unauthorized",
			"%s refused the user name and password of fetcher/credentials.json",
			site->base.hostport);
		return NULL;
	}
	size = strlen(site->credential->basic) + 7;
	out = sodium_malloc(size);
	if (!out)
		abort(); /* the same rule as buf.h: nothing can go on without memory */
	snprintf(out, size, "Basic %s", site->credential->basic);
	return out;
}

static char *
bearer_header(struct hb_registry *r, struct hb_site *site, struct hb_http *http,
	      const struct hb_challenge *c, struct hb_error *err)
{
	const struct hb_credential *cred = site->credential;
	char retry_after[64] = "";
	struct hb_url realm;
	struct hb_error why = {0};
	char *token;

	if (hb_realm_check(&site->rules, &site->base, c->realm, cred != NULL,
			   cred ? cred->realm_list : NULL, &realm, err) ||
	    wait_for_host(r, site, realm.hostport, err))
		return NULL;
	token = hb_token_fetch(http, c, &realm, r->repository, cred ? cred->basic : NULL,
			       site->rules.loopback, retry_after, &why);
	if (!token && strcmp(why.code, "rate_limited") == 0)
		hb_rate_limited(r, realm.hostport, retry_after, 0, "its token server", &why);
	if (!token && err)
		*err = why;
	return token;
}

/* Get authorization in answer to a challenge. `round` is the one whose header was just refused:
 * when another thread has renewed it since, that one is tried first. */
static int
authenticate(struct hb_registry *r, struct hb_site *site, struct hb_http *http,
	     const struct hb_response *resp, unsigned round, struct hb_error *err)
{
	struct hb_challenge list[HB_CHALLENGE_MAX];
	const struct hb_challenge *c;
	size_t n = 0;
	char *header;
	int rc = -1;

	if (resp->oversized_headers)
		return hb_fail(err, "bad_challenge",
			       "the WWW-Authenticate header of %s is too long",
			       site->base.hostport);
	if (hb_challenge_parse(resp->challenge, list, &n, err))
		return -1;
	c = pick(list, n);
	if (!c)
		return hb_fail(err, "unauthorized",
			       "%s wants authentication of a kind that is not known here (neither "
			       "Bearer nor Basic)",
			       site->base.hostport);
	pthread_mutex_lock(&site->lock);
	if (site->auth_round != round) {
		rc = 0;
		goto out;
	}
	header = c->scheme == HB_AUTH_BEARER ? bearer_header(r, site, http, c, err)
					     : basic_header(site, err);
	if (!header)
		goto out;
	sodium_free(site->authorization);
	site->authorization = header;
	site->auth_round++;
	rc = 0;
out:
	pthread_mutex_unlock(&site->lock);
	return rc;
}

/* A copy, so that another thread's renewal can't free it under a request. */
static char *
copy_authorization(struct hb_site *site, unsigned *round)
{
	char *copy = NULL;

	pthread_mutex_lock(&site->lock);
	*round = site->auth_round;
	if (site->authorization) {
		copy = sodium_malloc(strlen(site->authorization) + 1);
		if (!copy)
			abort(); /* the same rule as buf.h: nothing can go on without memory */
		strcpy(copy, site->authorization);
	}
	pthread_mutex_unlock(&site->lock);
	return copy;
}

/* The sink only sees what was asked for; every other answer is kept as an error body. */
static int
offer(const struct hb_response *r, void *arg)
{
	const struct hb_get *get = arg;

	if (r->status != 200 && r->status != 206)
		return 0;
	return get->begin ? get->begin(r, get->arg) : 0;
}

static int
deliver(const void *bytes, size_t len, void *arg)
{
	const struct hb_get *get = arg;

	return get->data(bytes, len, get->arg);
}

static int
is_redirect(int status)
{
	return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* What an answer other than 200, 206, 3xx and 401 means. */
static int
refuse(struct hb_registry *r, const struct hb_url *url, const struct hb_response *resp,
       const struct hb_get *get, struct hb_error *err)
{
	char reason[256];
	const char *colon;

	hb_response_reason(resp->body.data ? resp->body.data : "", resp->body.len, reason,
			   sizeof(reason));
	colon = reason[0] ? ": " : "";
	if (resp->status == 429 || (resp->status == 503 && resp->retry_after[0]) ||
	    hb_reason_is_rate_limit(reason))
		return hb_rate_limited(r, url->hostport, resp->retry_after, get->attempt, reason,
				       err);
	if (resp->status == 401)
		return hb_fail(err, "unauthorized", "%s does not give out %s%s%s", url->hostport,
			       r->repository, colon, reason);
	if (resp->status == 403)
		return hb_fail(err, "forbidden", "%s does not give out %s%s%s", url->hostport,
			       r->repository, colon, reason);
	if (resp->status == 404 || resp->status == 410)
		return hb_fail(err, "not_found", "%s has no %s/%s%s%s", url->hostport,
			       r->repository, get->path, colon, reason);
	if (resp->status == 416)
		return hb_fail(err, "range_refused", "%s refuses the range", url->hostport);
	return hb_fail(err,
		       resp->status >= 500 || resp->status == 408 ? "registry_error"
								  : "refused_by_registry",
		       "%s answered with status %d%s%s", url->hostport, resp->status, colon,
		       reason);
}

/* One step of a request: attaches authorization where it may go. */
static int
step(struct hb_registry *r, struct hb_site *site, struct hb_http *http, const struct hb_get *get,
     const struct hb_url *url, unsigned *round, struct hb_response *out, struct hb_error *err)
{
	bool home = strcmp(url->origin, site->base.origin) == 0;
	char *authorization = home ? copy_authorization(site, round) : NULL;
	struct hb_http_request req = {
		.url = url,
		.head = get->head,
		.accept = get->accept,
		.authorization = authorization,
		.ranged = get->ranged,
		.range_first = get->first,
		.range_last = get->last,
		.loopback_allowed = site->rules.loopback,
		.total_timeout = get->total_timeout,
		.begin = offer,
		.data = deliver,
		.arg = (void *)(uintptr_t)get,
	};
	int rc = -1;

	if (wait_for_host(r, site, url->hostport, err) == 0)
		rc = hb_http_perform(http, &req, out, err);
	sodium_free(authorization);
	return rc;
}

int
hb_site_get(struct hb_registry *r, struct hb_site *site, struct hb_http *http,
	    const struct hb_get *get, struct hb_response *out, struct hb_error *err)
{
	char *first = hb_asprintf("%s/v2/%s/%s", site->prefix, r->repository, get->path);
	int redirects = 0, tries = 0, rc = -1;
	struct hb_url url, next;
	unsigned round = 0;

	memset(out, 0, sizeof(*out));
	if (hb_url_parse(first, &url, err))
		goto out;
	for (;;) {
		hb_response_clear(out);
		if (step(r, site, http, get, &url, &round, out, err))
			break;
		if (out->status == 200 || out->status == 206) {
			rc = 0;
			break;
		}
		if (is_redirect(out->status)) {
			if (++redirects > HB_REDIRECTS_MAX) {
				hb_fail(err, "redirect_refused", "%s redirects more than %d times",
					site->base.hostport, HB_REDIRECTS_MAX);
				break;
			}
			if (out->oversized_headers ||
			    hb_url_resolve(&url, out->location, &next, err)) {
				hb_fail(err, "redirect_refused",
					"%s redirects to something that is not a URL",
					url.hostport);
				break;
			}
			if (hb_redirect_check(&site->rules, &next, err))
				break;
			url = next;
			continue;
		}
		/* A challenge counts only from the site itself, and twice: the token may just have
		 * expired. */
		if (out->status == 401 && tries++ < 2 &&
		    strcmp(url.origin, site->base.origin) == 0) {
			if (authenticate(r, site, http, out, round, err))
				break;
			continue;
		}
		refuse(r, &url, out, get, err);
		break;
	}
out:
	free(first);
	return rc;
}
