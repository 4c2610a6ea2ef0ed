/*
 * Who may speak to admin over TCP. Order: Host (DNS rebinding), Origin (other pages in the same browser), key. All three
 * apply to every request, unknown routes included, so that nothing can be learnt without the key; only GET /health, the
 * page's own files and preflights need none, and /metrics has a key of its own.
 *
 * Over the Unix socket the kernel says who asks, and the route table says whether root's command line may.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "admin/admin.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"

#define KEY_HEADER "X-Execution-Admin-Key"
#define WRONG_KEYS_FREE 5         /* mistyped keys that cost nothing */
#define LOCK_MAX_MS (60 * 1000)

void admin_refuse(struct hb_request *req, int status, const char *code, const char *text)
{
	hb_reply_json(req, status, json_pack("{s:s,s:s}", "error", text, "code", code));
}

void admin_audit_refusal(struct admin *a, const char *why, const char *path)
{
	json_t *detail;

	a->refusals++;
	/* One record a second: a stranger must not be able to make us write without end. */
	if (a->refused_audited_at == hb_now()) {
		a->refused_unrecorded++;
		return;
	}
	detail = json_pack("{s:s,s:s,s:I}", "why", why, "path", path, "more",
			   (json_int_t)a->refused_unrecorded);
	a->refused_audited_at = hb_now();
	a->refused_unrecorded = 0;
	hb_audit_append(a->process->audit, "access", "refused", detail, NULL);
	json_decref(detail);
}

void admin_refused(const char *why, uid_t uid, const char *path, void *ctx)
{
	(void)uid;
	hb_log(HB_LOG_WARN, "refused", "why", why, "path", path, NULL);
	((struct admin *)ctx)->refusals++;
}

/* The listener's own address, or localhost with its port; nothing else, in no other spelling. */
bool admin_listed(const char *text, const char (*allowed)[96], size_t count)
{
	for (size_t i = 0; text && i < count; i++)
		if (strcmp(text, allowed[i]) == 0)
			return true;
	return false;
}

bool admin_origin_listed(const char *origin, const char *const *allowed, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(origin, allowed[i]) == 0 && strncmp(origin, "http", 4) == 0)
			return true;
	return false;
}

/* Configured, or the page that we serve ourselves. */
static bool origin_ok(struct admin *a, const char *origin)
{
	const char **allowed;
	size_t n = hb_config_list(a->process->config, "admin.allowed_origins", &allowed);

	if (strncmp(origin, "http://", 7) == 0 &&
	    admin_listed(origin + 7, (const char(*)[96])a->names, a->name_count))
		return true;
	return admin_origin_listed(origin, (const char *const *)allowed, n);
}

static void cors(struct hb_request *req, const char *origin)
{
	const char *private_network = hb_request_header(req, "Access-Control-Request-Private-Network");

	hb_reply_header(req, "Access-Control-Allow-Origin", origin);
	hb_reply_header(req, "Access-Control-Allow-Headers", "Content-Type, " KEY_HEADER);
	hb_reply_header(req, "Access-Control-Allow-Methods", "GET, PUT, POST, OPTIONS");
	if (private_network && strcmp(private_network, "true") == 0)
		hb_reply_header(req, "Access-Control-Allow-Private-Network", "true");
}

static void count_wrong_key(struct admin *a)
{
	int64_t delay = 1000;

	a->key_failures++;
	a->wrong_keys++;
	if (a->wrong_keys <= WRONG_KEYS_FREE)
		return;
	for (int i = WRONG_KEYS_FREE + 1; i < a->wrong_keys && delay < LOCK_MAX_MS; i++)
		delay *= 2;
	a->locked_until = hb_monotonic_ms() + (delay < LOCK_MAX_MS ? delay : LOCK_MAX_MS);
}

static bool locked_out(struct admin *a, struct hb_request *req)
{
	int64_t left = a->locked_until - hb_monotonic_ms();
	char seconds[24];

	if (left <= 0)
		return false;
	snprintf(seconds, sizeof seconds, "%lld", (long long)(left + 999) / 1000);
	hb_reply_header(req, "Retry-After", seconds);
	admin_refuse(req, 429, "locked_out", "too many wrong keys: wait as long as Retry-After says");
	return true;
}

/* Compares what was given with the key in the file, as it is now. */
static int key_matches(const char *path, const char *given, bool *right, struct hb_error *err)
{
	struct hb_secret key;

	if (hb_secret_read(AT_FDCWD, path, hb_peer_uid(HB_PEER_ADMIN), 512, &key, err) < 0)
		return -1;
	*right = given && hb_secret_equal(&key, given) == 1;
	hb_secret_free(&key);
	return 0;
}

static bool admin_key_right(struct admin *a, struct hb_request *req)
{
	const char *given = hb_request_header(req, KEY_HEADER);
	struct hb_error err = {0};
	bool right = false;

	if (locked_out(a, req))
		return false;
	if (key_matches(HB_PATH_ADMIN_KEY, given, &right, &err) < 0) {
		hb_reply_error(req, 503, &err);
		return false;
	}
	if (right) {
		a->wrong_keys = 0;
		return true;
	}
	if (given)
		count_wrong_key(a);
	admin_audit_refusal(a, given ? "wrong_key" : "no_key", hb_request_path(req));
	admin_refuse(req, 401, "wrong_key",
		     given ? "the admin key is wrong" : "the header " KEY_HEADER " is missing");
	return false;
}

/* Reads numbers and nothing else, so a monitoring host need not hold the admin key. */
static bool scrape_key_right(struct admin *a, struct hb_request *req)
{
	const char *given = hb_request_header(req, "Authorization");
	struct hb_error err = {0};
	bool right = false;

	if (given)
		given = strncasecmp(given, "Bearer ", 7) == 0 ? given + 7 : NULL;
	if (key_matches(HB_PATH_SCRAPE_KEY, given, &right, &err) < 0) {
		hb_reply_error(req, 503, &err);
		return false;
	}
	if (right)
		return true;
	admin_audit_refusal(a, "wrong_scrape_key", hb_request_path(req));
	hb_reply_header(req, "WWW-Authenticate", "Bearer");
	admin_refuse(req, 401, "wrong_key", "this wants Authorization: Bearer and the scrape key");
	return false;
}

static bool is(struct hb_request *req, const char *method, const char *path)
{
	return strcmp(hb_request_method(req), method) == 0 &&
	       (!path || strcmp(hb_request_path(req), path) == 0);
}

/* What decides must be there once: two of them, and two programs on the way may take different ones. */
static bool sent_twice(struct hb_request *req)
{
	static const char *const once[] = {"Host", "Origin", KEY_HEADER, "Authorization"};

	for (size_t i = 0; i < sizeof once / sizeof once[0]; i++)
		if (hb_request_header_count(req, once[i]) > 1)
			return true;
	return false;
}

bool admin_before(struct hb_request *req, void *ctx)
{
	struct admin *a = ctx;
	const char *origin = hb_request_header(req, "Origin");

	a->requests++;
	if (!hb_request_is_tcp(req))
		return true;
	hb_reply_header(req, "Vary", "Origin");
	if (sent_twice(req)) {
		admin_audit_refusal(a, "header_twice", hb_request_path(req));
		admin_refuse(req, 400, "header_twice", "Host, Origin and the keys may be sent once each");
		return false;
	}
	if (!admin_listed(hb_request_header(req, "Host"), (const char(*)[96])a->names, a->name_count)) {
		admin_audit_refusal(a, "wrong_host", hb_request_path(req));
		admin_refuse(req, 421, "wrong_host", "this endpoint answers only to its own address and localhost");
		return false;
	}
	if (origin && !origin_ok(a, origin)) {
		admin_audit_refusal(a, "origin_not_allowed", hb_request_path(req));
		admin_refuse(req, 403, "origin_not_allowed",
			     "this page's origin is not in admin.allowed_origins of hermes.conf: add it with "
			     "manage.sh configure-execution-admin-browser ORIGIN");
		return false;
	}
	if (origin)
		cors(req, origin);
	if (is(req, "OPTIONS", NULL)) {
		hb_reply_bytes(req, 204, NULL, NULL, 0);
		return false;
	}
	if (is(req, "GET", "/health") || (is(req, "GET", NULL) && admin_is_page(hb_request_path(req))))
		return true;
	if (strcmp(hb_request_path(req), "/metrics") == 0)
		return scrape_key_right(a, req);
	return admin_key_right(a, req);
}
