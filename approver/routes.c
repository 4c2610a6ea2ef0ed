/* What may be called: one line a route. The broker proves itself by uid and secret, a person in a
 * terminal by uid. */
#include <stdlib.h>
#include <string.h>

#include "approver/approver.h"
#include "approver/telegram.h"
#include "common/fields.h"
#include "common/json.h"
#include "common/log.h"

void
hb_refuse(struct hb_request *req, const struct hb_error *err)
{
	hb_reply_error(req, 200, err);
}

bool
hb_secret_ok(struct hb_approver *a, struct hb_request *req)
{
	const char *given = hb_request_header(req, "X-Approval-Secret");
	struct hb_error err;

	if (hb_secret_watch(&a->secret, &err) == 0 && given &&
	    hb_secret_equal(&a->secret.secret, given))
		return true;
	if (a->secret.loaded) {
		hb_access_refused("wrong_secret", hb_request_uid(req), hb_request_path(req), a);
		hb_fail(&err, "wrong_secret",
			"X-Approval-Secret is missing or wrong: approver/approval-secret and "
			"broker/approval-secret must be equal");
	}
	hb_reply_error(req, 401, &err);
	return false;
}

struct withdraw_in {
	const char *operation_id, *reason;
};

static const struct hb_field withdraw_fields[] = {
	{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED,
	 offsetof(struct withdraw_in, operation_id), 32, 32},
	{"reason", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct withdraw_in, reason), 1, 64},
};

/* Unknown and closed ones are fine: what is wanted is that nobody can decide it any more. */
static void
route_withdraw(struct hb_request *req, void *ctx)
{
	struct hb_approver *a = ctx;
	struct withdraw_in in = {0};
	struct hb_error err;
	char note[128];
	bool expired;

	if (!hb_secret_ok(a, req))
		return;
	if (hb_fields_decode(hb_request_json(req), withdraw_fields, 2, &in, &err) < 0) {
		hb_refuse(req, &err);
		return;
	}
	expired = strcmp(in.reason, "expired") == 0;
	snprintf(note, sizeof(note), expired ? "Nobody decided in time." : "It was %s.", in.reason);
	if (hb_ask_close(a->decisions, in.operation_id, expired ? HB_ASK_EXPIRED : HB_ASK_WITHDRAWN,
			 note, &err) < 0 &&
	    strcmp(err.code, "request_closed") != 0) {
		hb_refuse(req, &err);
		return;
	}
	hb_reply_json(req, 200, json_pack("{s:s}", "status", "ok"));
	hb_telegram_edits(a->telegram);
}

struct outcome_in {
	const char *operation_id, *state, *output_sha256;
	long long returncode, duration;
};

static const struct hb_field outcome_fields[] = {
	{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED,
	 offsetof(struct outcome_in, operation_id), 32, 32},
	{"state", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct outcome_in, state), 1, 32},
	{"returncode", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct outcome_in, returncode),
	 -256, 65535},
	{"duration", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct outcome_in, duration), 0,
	 HB_JSON_INT_MAX},
	{"output_sha256", HB_FIELD_TEXT, HB_FIELD_REQUIRED,
	 offsetof(struct outcome_in, output_sha256), 0, 64},
};

static void
route_outcome(struct hb_request *req, void *ctx)
{
	struct hb_approver *a = ctx;
	struct outcome_in in = {0};
	struct hb_error err;
	char note[200];

	if (!hb_secret_ok(a, req))
		return;
	if (hb_fields_decode(hb_request_json(req), outcome_fields, 5, &in, &err) < 0) {
		hb_refuse(req, &err);
		return;
	}
	if (strcmp(in.state, "succeeded") == 0 || strcmp(in.state, "failed") == 0)
		snprintf(note, sizeof(note),
			 "Ran: %s, exit code %lld, %lld s\nOutput SHA-256 %.64s", in.state,
			 in.returncode, in.duration, in.output_sha256);
	else if (strcmp(in.state, "outcome_unknown") == 0)
		snprintf(note, sizeof(note),
			 "OUTCOME UNKNOWN: the executor stopped in between. It is not repeated.");
	else
		snprintf(note, sizeof(note), "Not run: %.32s before it began.", in.state);
	if (hb_ask_note(a->decisions, in.operation_id, note, &err) < 0) {
		hb_refuse(req, &err);
		return;
	}
	hb_reply_json(req, 200, json_pack("{s:s}", "status", "ok"));
	hb_telegram_edits(a->telegram);
}

static void
route_health(struct hb_request *req, void *ctx)
{
	hb_reply_json(req, 200, hb_approver_health(ctx));
}

#define BROKER HB_PEER_BIT(HB_PEER_BROKER)
#define CONSOLE (HB_PEER_BIT(HB_PEER_CONSOLE) | HB_PEER_BIT(HB_PEER_OPERATOR))
#define WATCHERS (BROKER | CONSOLE | HB_PEER_BIT(HB_PEER_ADMIN) | HB_PEER_BIT(HB_PEER_LAUNCHER))

const struct hb_route hb_approver_routes[] = {
	{HB_POST, "/request", BROKER, 0, 0, hb_route_request},
	{HB_POST, "/withdraw", BROKER, 4096, 0, route_withdraw},
	{HB_POST, "/outcome", BROKER, 4096, 0, route_outcome},
	{HB_GET, "/console/pending", CONSOLE, 0, HB_ROUTE_NOBODY, hb_route_console_pending},
	{HB_POST, "/console/decide", CONSOLE, 4096, 0, hb_route_console_decide},
	{HB_GET, "/health", WATCHERS, 0, HB_ROUTE_NOBODY, route_health},
};
const size_t hb_approver_route_count = sizeof(hb_approver_routes) / sizeof(hb_approver_routes[0]);
