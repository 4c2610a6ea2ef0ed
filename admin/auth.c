/*
 * Who may speak to admin over TCP. Order: Host (DNS rebinding), Origin (other pages in the same browser), key. All three
 * apply to every request, unknown routes included, so that nothing can be learnt without the key; only GET /health and
 * preflights need none.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "admin/admin.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/paths.h"

#define KEY_HEADER "X-Execution-Admin-Key"
#define WRONG_KEYS_FREE 5         /* mistyped keys that cost nothing */
#define LOCK_MAX_MS (60 * 1000)

void admin_refuse(struct hb_request *req, int status, const char *code, const char *text)
{
	hb_reply_json(req, status, json_pack("{s:s,s:s}", "error", text, "code", code));
}

/* The listener's own address, or localhost with its port; nothing else, in no other spelling. */
bool admin_host_allowed(const char *host, const char *listen)
{
	const char *port = strrchr(listen, ':');
	char local[32];

	if (!host || !port)
		return false;
	snprintf(local, sizeof local, "localhost%s", port);
	return strcmp(host, listen) == 0 || strcmp(host, local) == 0;
}

bool admin_origin_allowed(const char *origin, const char *const *allowed, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(origin, allowed[i]) == 0 && strcmp(origin, "null") != 0)
			return true;
	return false;
}

static bool origin_listed(struct admin *a, const char *origin)
{
	const char **allowed;
	size_t n = hb_config_list(a->process->config, "admin.allowed_origins", &allowed);
	char own[128];

	snprintf(own, sizeof own, "http://%s", hb_config_text(a->process->config, "admin.listen"));
	return strcmp(origin, own) == 0 || admin_origin_allowed(origin, (const char *const *)allowed, n);
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

	a->wrong_keys++;
	if (a->wrong_keys <= WRONG_KEYS_FREE)
		return;
	for (int i = WRONG_KEYS_FREE + 1; i < a->wrong_keys && delay < LOCK_MAX_MS; i++)
		delay *= 2;
	a->locked_until = hb_monotonic_ms() + (delay < LOCK_MAX_MS ? delay : LOCK_MAX_MS);
}

static bool key_right(struct admin *a, struct hb_request *req)
{
	const char *given = hb_request_header(req, KEY_HEADER);
	struct hb_secret key;
	struct hb_error err = {0};
	bool right;

	if (hb_monotonic_ms() < a->locked_until) {
		admin_refuse(req, 429, "locked_out", "too many wrong keys: wait a minute and try again");
		return false;
	}
	if (hb_secret_read(AT_FDCWD, HB_PATH_ADMIN_KEY, hb_peer_uid(HB_PEER_ADMIN), 512, &key, &err) < 0) {
		hb_reply_error(req, 503, &err);
		return false;
	}
	right = given && hb_secret_equal(&key, given) == 1;
	hb_secret_free(&key);
	if (right) {
		a->wrong_keys = 0;
		return true;
	}
	if (given)
		count_wrong_key(a);
	hb_audit_append(a->process->audit, "admin_key", "refused", NULL, NULL);
	admin_refuse(req, 401, "wrong_key", given ? "the admin key is wrong" : "the header " KEY_HEADER " is missing");
	return false;
}

static bool is(struct hb_request *req, const char *method, const char *path)
{
	return strcmp(hb_request_method(req), method) == 0 && (!path || strcmp(hb_request_path(req), path) == 0);
}

bool admin_before(struct hb_request *req, void *ctx)
{
	struct admin *a = ctx;
	const char *origin = hb_request_header(req, "Origin");

	if (!hb_request_is_tcp(req))
		return true; /* the Unix socket serves health only; its route table says to whom */
	hb_reply_header(req, "Vary", "Origin");
	hb_reply_header(req, "Cache-Control", "no-store");
	hb_reply_header(req, "X-Content-Type-Options", "nosniff");
	if (!admin_host_allowed(hb_request_header(req, "Host"), hb_config_text(a->process->config, "admin.listen"))) {
		admin_refuse(req, 421, "wrong_host", "this endpoint answers only to its own address and localhost");
		return false;
	}
	if (origin && !origin_listed(a, origin)) {
		admin_refuse(req, 403, "origin_not_allowed",
			     "this page's origin is not in admin.allowed_origins of hermes.conf");
		return false;
	}
	if (origin)
		cors(req, origin);
	if (is(req, "OPTIONS", NULL)) {
		hb_reply_bytes(req, 204, NULL, NULL, 0);
		return false;
	}
	return is(req, "GET", "/health") || key_right(a, req);
}
