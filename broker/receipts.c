/*
 * GET /receipts/ID: everything there is of one decided operation: sealed request, exact summary,
 * the grant as it was signed, result. For root only: the grant's capability stands in it. hermesctl
 * makes a file of it, together with what the approver signs about decision and outcome.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "common/json.h"

static json_t *
column(struct hb_broker *b, const char *id, enum hb_op_column which)
{
	char *text = hb_store_text(b->store, id, which, NULL);
	json_t *value = text ? json_loads(text, 0, NULL) : NULL;

	free(text);
	return value;
}

void
hb_route_receipt(struct hb_request *req, void *ctx)
{
	struct hb_broker *b = ctx;
	const char *id = hb_request_tail(req);
	struct hb_error err;
	struct hb_op op;
	json_t *request, *envelope, *result;
	char *summary;

	if (strlen(id) != 32 || hb_store_find(b->store, id, &op, &err) < 0) {
		if (strlen(id) != 32)
			hb_fail(&err, "unknown_operation", "an operation id is 32 hex digits");
		hb_refuse(req, &err);
		return;
	}
	if (!hb_op_final(op.state)) {
		hb_fail(&err, "not_final",
			"operation %s is %s: there is a receipt when it has ended", id,
			hb_op_state_name(op.state));
		hb_refuse(req, &err);
		return;
	}
	request = column(b, id, HB_COL_REQUEST);
	envelope = column(b, id, HB_COL_ENVELOPE);
	result = column(b, id, HB_COL_RESULT);
	summary = hb_store_text(b->store, id, HB_COL_SUMMARY, NULL);
	if (!request || !envelope || !summary) {
		hb_fail(&err, "not_decided",
			"operation %s was %s without a signed decision, so there is no receipt", id,
			hb_op_state_name(op.state));
		hb_refuse(req, &err);
	} else {
		hb_reply_json(req, 200,
			      json_pack("{s:s, s:s, s:s, s:s, s:O, s:s, s:O, s:O}", "operation_id",
					op.id, "state", hb_op_state_name(op.state), "feature",
					op.feature, "target", op.target, "request", request,
					"summary", summary, "envelope", envelope, "result",
					result ? result : json_null()));
	}
	json_decref(request);
	json_decref(envelope);
	json_decref(result);
	free(summary);
}
