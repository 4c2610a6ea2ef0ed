/*
 * The places an image can come from: configured mirrors in order, then its own registry. Each is a
 * `site` with its own authentication; credentials and tokens of a site go to that site's origin and
 * to the realm allowed for it, nowhere else.
 */
#ifndef HB_FETCHER_REGISTRY_H
#define HB_FETCHER_REGISTRY_H

#include <pthread.h>
#include <stdbool.h>

#include "common/config.h"
#include "common/error.h"
#include "fetcher/credentials.h"
#include "fetcher/http.h"
#include "fetcher/url.h"
#include "policy/image_ref.h"

#define HB_SITES_MAX 9 /* eight mirrors and the origin */
#define HB_REDIRECTS_MAX 5
#define HB_PATIENCE \
	120 /* seconds a job waits for a rate limit to end before it gives up and says when */

enum hb_site_auth { HB_SITE_ANONYMOUS, HB_SITE_BASIC, HB_SITE_BEARER };

struct hb_site {
	struct hb_url base; /* of the API, without /v2/ */
	char prefix[512];   /* base.text without a trailing slash */
	struct hb_site_rules rules;
	bool mirror;
	const struct hb_credential *credential; /* or NULL */
	pthread_mutex_t lock;
	char *authorization; /* header value for the origin, sodium_malloc'ed; NULL: none yet */
	unsigned auth_round; /* counts changes of it */
};

struct hb_registry {
	struct hb_site sites[HB_SITES_MAX];
	size_t count;
	char repository[300];
	struct hb_credentials credentials;
	int state_dir; /* where fetcher/ratelimit.json is: AT_FDCWD */
	const struct hb_stop *stop;
	/* Something worth a line in the log (a mirror that failed); may be called by several
	 * threads. */
	void (*note)(const char *text, void *arg);
	void *note_arg;
};

/* Codes: insecure_registry, bad_mirror, secret_permissions, bad_credentials. `uid`: owner of the
 * credentials file. */
int hb_registry_open(const struct hb_config *config, const struct hb_image_ref *ref, uid_t uid,
		     struct hb_registry *out, struct hb_error *err);
void hb_registry_close(struct hb_registry *r);
void hb_registry_note(const struct hb_registry *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

struct hb_get {
	const char *path; /* below /v2/<repository>/ */
	bool head;
	const char *accept;
	bool ranged;
	uint64_t first, last;
	long total_timeout;
	int attempt; /* lengthens our own backoff when the server names no time */
	/* As in hb_http_request; only answers 200 and 206 are offered to `begin`. */
	int (*begin)(const struct hb_response *r, void *arg);
	int (*data)(const void *bytes, size_t len, void *arg);
	void *arg;
};

/* One GET at one site: waits for rate limits, authenticates, follows redirects. 0: an answer with
 * status 200 or 206, perhaps incomplete; -1 otherwise. `out` must be cleared either way. */
int hb_site_get(struct hb_registry *r, struct hb_site *site, struct hb_http *http,
		const struct hb_get *get, struct hb_response *out, struct hb_error *err);

/* No request was made, since one is not allowed yet; hb_source_try makes rate_limited of it. */
#define HB_STILL_LIMITED "still_limited"

/* Remember that `host` wants us to wait, durably, and say so. Returns -1 with code rate_limited. */
int hb_rate_limited(struct hb_registry *r, const char *host, const char *retry_after, int attempt,
		    const char *reason, struct hb_error *err);
/* `reason` as hb_response_reason made it. */
bool hb_reason_is_rate_limit(const char *reason);

/* Is another attempt at the same site worth it? */
bool hb_error_is_passing(const struct hb_error *err);
/* Sleep for the backoff of attempt n; false when the job was stopped. */
bool hb_pause(const struct hb_stop *stop, int milliseconds);

#endif
