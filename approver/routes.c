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
	json_t *heads;
};

static const struct hb_field outcome_fields[] = {
	{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED,
	 offsetof(struct outcome_in, operation_id), 32, 32},
	{"state", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct outcome_in, state), 1, 23},
	{"returncode", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct outcome_in, returncode),
	 -256, 65535},
	{"duration", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct outcome_in, duration), 0,
	 HB_JSON_INT_MAX},
	{"output_sha256", HB_FIELD_TEXT, HB_FIELD_REQUIRED,
	 offsetof(struct outcome_in, output_sha256), 0, 64},
	{"heads", HB_FIELD_OBJECT, 0, offsetof(struct outcome_in, heads), 0, 0},
};

/* The words are the broker's, so only known ones get into messages and records. */
static bool
known_state(const char *state)
{
	static const char *const words[] = {"succeeded", "failed",    "outcome_unknown", "denied",
					    "expired",	 "cancelled", "revoked"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(words[i], state) == 0)
			return true;
	return false;
}

static void
outcome_note(const struct outcome_in *in, char *note, size_t size)
{
	if (strcmp(in->state, "succeeded") == 0 || strcmp(in->state, "failed") == 0)
		snprintf(note, size, "Ran: %s, exit code %lld, %lld s\nOutput SHA-256 %.64s",
			 in->state, in->returncode, in->duration, in->output_sha256);
	else if (strcmp(in->state, "outcome_unknown") == 0)
		snprintf(note, size,
			 "OUTCOME UNKNOWN: the executor stopped in between. It is not repeated.");
	else
		snprintf(note, size, "Not run: %s before it began.", in->state);
}

/* What an operation came to, in the approver's own chain and then in its message. */
static int
take_outcome(struct hb_approver *a, const struct outcome_in *in, struct hb_error *err)
{
	struct hb_ask_record r;
	struct hb_ask ask;
	struct hb_buf witness = HB_BUF_INIT;
	char note[200];
	json_t *detail;
	int rc;

	if (in->heads && hb_heads_take(a, in->heads, false, err) < 0)
		return -1;
	if (hb_ask_find(a->decisions, in->operation_id, &ask, err) < 0 ||
	    hb_record_get(a->decisions, ask.id, &r, err) < 0)
		return -1;
	if (*r.outcome) {
		if (strcmp(r.outcome, in->state) == 0 &&
		    strcmp(r.output_sha256, in->output_sha256) == 0)
			return 0; /* told again: the answer got lost */
		hb_approver_audit(a, "alarm", "refused", &ask, "why", "outcome_differs", NULL);
		return hb_fail(err, "outcome_differs",
			       "another outcome of operation %s was told before", ask.id);
	}
	detail = json_pack("{s:s, s:s, s:I, s:I, s:s, s:s}", "operation_id", ask.id, "state",
			   in->state, "returncode", (json_int_t)in->returncode, "duration",
			   (json_int_t)in->duration, "output_sha256", in->output_sha256, "grant_id",
			   r.grant_id);
	rc = hb_audit_append(a->process->audit, "outcome",
			     strcmp(in->state, "succeeded") == 0	 ? "ok"
			     : strcmp(in->state, "failed") == 0		 ? "failed"
			     : strcmp(in->state, "outcome_unknown") == 0 ? "unknown"
									 : "cancelled",
			     detail, err);
	json_decref(detail);
	if (rc < 0)
		return -1;
	r.told = hb_audit_head(a->process->audit);
	memcpy(r.outcome, in->state, strlen(in->state) + 1);
	r.returncode = in->returncode;
	r.duration = in->duration;
	memccpy(r.output_sha256, in->output_sha256, 0, sizeof(r.output_sha256) - 1);
	hb_witness(&r.told, &witness);
	hb_witness_others(a, &witness);
	memccpy(r.witness, witness.data, 0, sizeof(r.witness) - 1);
	hb_buf_free(&witness);
	outcome_note(in, note, sizeof(note));
	a->checkpoint_due = true;
	return hb_record_outcome(a->decisions, ask.id, &r, note, err);
}

static void
route_outcome(struct hb_request *req, void *ctx)
{
	struct hb_approver *a = ctx;
	struct outcome_in in = {0};
	struct hb_error err;

	if (!hb_secret_ok(a, req))
		return;
	if (hb_fields_decode(hb_request_json(req), outcome_fields, 6, &in, &err) < 0)
		goto refused;
	if (!known_state(in.state) || (*in.output_sha256 && !hb_is_hex64(in.output_sha256))) {
		hb_fail(&err, "out_of_range", "state or output_sha256 is not one");
		goto refused;
	}
	if (take_outcome(a, &in, &err) < 0)
		goto refused;
	hb_reply_json(req, 200, json_pack("{s:s}", "status", "ok"));
	hb_telegram_edits(a->telegram);
	return;
refused:
	hb_refuse(req, &err);
}

static void
route_heads(struct hb_request *req, void *ctx)
{
	struct hb_approver *a = ctx;
	struct {
		json_t *heads;
	} in = {0};
	static const struct hb_field fields[] = {
		{"heads", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, 0, 0, 0}};
	struct hb_error err;

	if (!hb_secret_ok(a, req))
		return;
	if (hb_fields_decode(hb_request_json(req), fields, 1, &in, &err) < 0 ||
	    hb_heads_take(a, in.heads, false, &err) < 0)
		hb_refuse(req, &err);
	else
		hb_reply_json(req, 200, json_pack("{s:s}", "status", "ok"));
}

static void
route_health(struct hb_request *req, void *ctx)
{
	hb_reply_json(req, 200, hb_approver_health(ctx));
}

#define BROKER HB_PEER_BIT(HB_PEER_BROKER)
#define CONSOLE (HB_PEER_BIT(HB_PEER_CONSOLE) | HB_PEER_BIT(HB_PEER_OPERATOR))
#define KEEPERS (HB_PEER_BIT(HB_PEER_OPERATOR) | HB_PEER_BIT(HB_PEER_ADMIN))
#define WATCHERS (BROKER | CONSOLE | HB_PEER_BIT(HB_PEER_ADMIN) | HB_PEER_BIT(HB_PEER_LAUNCHER))

const struct hb_route hb_approver_routes[] = {
	{HB_POST, "/request", BROKER, 0, 0, hb_route_request},
	{HB_POST, "/withdraw", BROKER, 4096, 0, route_withdraw},
	{HB_POST, "/outcome", BROKER, 4096, 0, route_outcome},
	{HB_POST, "/heads", BROKER, 4096, 0, route_heads},
	{HB_GET, "/console/pending", CONSOLE, 0, HB_ROUTE_NOBODY, hb_route_console_pending},
	{HB_POST, "/console/decide", CONSOLE, 4096, 0, hb_route_console_decide},
	{HB_POST, "/console/control", CONSOLE, 4096, 0, hb_route_console_control},
	{HB_GET, "/console/receipt", CONSOLE, 0, HB_ROUTE_NOBODY, hb_route_console_receipt},
	{HB_POST, "/console/checkpoint", HB_PEER_BIT(HB_PEER_OPERATOR), 4096, 0,
	 hb_route_console_checkpoint},
	{HB_POST, "/bot-token", KEEPERS, 4096, 0, hb_route_bot_token},
	{HB_POST, "/bot-token/clear", KEEPERS, 4096, 0, hb_route_bot_token_clear},
	{HB_GET, "/health", WATCHERS, 0, HB_ROUTE_NOBODY, route_health},
};
const size_t hb_approver_route_count = sizeof(hb_approver_routes) / sizeof(hb_approver_routes[0]);
