/*
 * POST /execute: the client that prepared an operation asks for it to be carried out, and waits.
 *
 * The wish is recorded in the row; the operation runs when it is approved as well, once. A second
 * /execute with the same capability joins the first: it gets the same outcome, and nothing runs
 * again.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "common/fields.h"
#include "common/json.h"
#include "policy/operation.h"

struct execute_in {
	const char *feature, *capability, *digest, *user_id, *session;
	bool async;
};

static const struct hb_field execute_fields[] = {
	{"feature", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct execute_in, feature), 1, 15},
	{"capability", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_HEX64,
	 offsetof(struct execute_in, capability), 64, 64},
	{"digest", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_HEX64,
	 offsetof(struct execute_in, digest), 64, 64},
	{"user_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_DECIMAL,
	 offsetof(struct execute_in, user_id), 1, 20},
	{"session", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct execute_in, session), 1, 127},
	{"async", HB_FIELD_BOOL, 0, offsetof(struct execute_in, async), 0, 0},
};

/* Why an operation that ended without running did so, as the client is told. */
static json_t *
refusal(const struct hb_op *op)
{
	static const struct {
		enum hb_op_state state;
		const char *text;
	} texts[] = {
		{HB_OP_DENIED, "the approver denied this operation; nothing was run"},
		{HB_OP_EXPIRED, "this operation expired before it could run; nothing was run"},
		{HB_OP_CANCELLED, "this operation was cancelled; nothing was run"},
		{HB_OP_REVOKED, "this operation was revoked; nothing was run"},
		{HB_OP_UNKNOWN,
		 "the outcome is unknown: the executor stopped in between; look at the host before "
		 "asking again, it won't be repeated by itself"},
	};
	struct hb_error err = {0};
	json_t *o;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].state == op->state)
			hb_fail(&err, hb_op_state_name(op->state), "%s%s%s", texts[i].text,
				*op->error ? ": " : "", op->error);
	o = hb_json_error(&err);
	json_object_set_new(o, "operation_id", json_string(op->id));
	json_object_set_new(o, "state", json_string(hb_op_state_name(op->state)));
	if (*op->code)
		json_object_set_new(o, "reason", json_string(op->code));
	return o;
}

json_t *
hb_execute_answer(struct hb_broker *b, const struct hb_op *op)
{
	static const char *const copied[] = {"returncode", "output", "truncated", "timed_out",
					     "duration"};
	char *text;
	json_t *result, *o;

	if (op->state != HB_OP_SUCCEEDED && op->state != HB_OP_FAILED)
		return refusal(op);
	text = hb_store_text(b->store, op->id, HB_COL_RESULT, NULL);
	result = text ? json_loads(text, 0, NULL) : NULL;
	free(text);
	if (!result)
		result = json_object();
	o = json_pack("{s:s, s:s, s:s}", "status", "executed", "operation_id", op->id, "state",
		      hb_op_state_name(op->state));
	for (size_t i = 0; i < sizeof(copied) / sizeof(copied[0]); i++)
		json_object_set(o, copied[i], json_object_get(result, copied[i]));
	if (*op->code) {
		/* Not "error": clients take that word for "it was refused and nothing ran". */
		json_object_set_new(o, "code", json_string(op->code));
		json_object_set_new(o, "failure", json_string(op->error));
	}
	json_object_set_new(o, "result", result);
	return o;
}

/* Bound to the exact operation: whoever holds the capability must also name what it stands for. */
static int
matches(const struct execute_in *in, const struct hb_op *op, struct hb_error *err)
{
	const char *feature = hb_feature_canonical(in->feature);

	if (!feature || strcmp(feature, op->feature) != 0)
		return hb_fail(err, "feature_mismatch", "this capability is for feature %s",
			       op->feature);
	if (sodium_memcmp(in->digest, op->digest, 64) != 0)
		return hb_fail(
			err, "digest_mismatch",
			"the digest is not that of the operation this capability stands for");
	if (strcmp(in->user_id, op->user_id) != 0)
		return hb_fail(err, "user_mismatch", "this capability was issued for another user");
	if (strcmp(in->session, op->session) != 0)
		return hb_fail(err, "session_mismatch",
			       "this capability was issued in another session");
	return 0;
}

void
hb_route_execute(struct hb_request *req, void *ctx)
{
	struct hb_broker *b = ctx;
	struct execute_in in = {0};
	struct hb_error err;
	struct hb_op op;

	if (!hb_access_ok(b, req))
		return;
	if (hb_fields_decode(hb_request_json(req), execute_fields,
			     sizeof(execute_fields) / sizeof(execute_fields[0]), &in, &err) < 0 ||
	    hb_store_find_capability(b->store, in.capability, &op, &err) < 0 ||
	    matches(&in, &op, &err) < 0)
		goto refused;
	/* Before /execute can change anything: a policy that changed in this second revokes it
	 * here. */
	if (!hb_op_final(op.state) && op.state != HB_OP_EXECUTING) {
		if (hb_broker_policy(b, &err) < 0 || hb_store_find(b->store, op.id, &op, &err) < 0)
			goto refused;
	}
	if (hb_op_final(op.state)) {
		hb_reply_json(req, 200, hb_execute_answer(b, &op));
		return;
	}
	if (in.async) {
		if (hb_flow_execute(b, &op, &err) < 0)
			goto refused;
		hb_reply_json(req, 200,
			      json_pack("{s:s, s:s}", "status", "accepted", "operation_id", op.id));
		return;
	}
	if (hb_flow_execute(b, &op, &err) < 0)
		goto refused;
	/* It may have ended within hb_flow_execute (a grant that has just expired). */
	if (hb_op_final(op.state))
		hb_reply_json(req, 200, hb_execute_answer(b, &op));
	else
		hb_watch_execute(b, req, &op);
	return;
refused:
	hb_refuse(req, &err);
}
