/*
 * What the approver has to hear: requests submitted again, requests withdrawn, outcomes. Each
 * operation's row holds what is due, so that neither side's restart loses it; here it is sent, a
 * few at a time, until it was answered.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define INFLIGHT_MAX (sizeof(((struct hb_broker *)0)->outbox_ids) / HB_OP_ID)
#define BACKOFF_MAX_SECONDS 30

struct letter {
	struct hb_broker *b;
	enum hb_op_tell tell;
	char id[HB_OP_ID];
};

static char *
slot_of(struct hb_broker *b, const char *id)
{
	for (size_t i = 0; i < INFLIGHT_MAX; i++)
		if (strcmp(b->outbox_ids[i], id) == 0)
			return b->outbox_ids[i];
	return NULL;
}

json_t *
hb_outbox_request(struct hb_broker *b, const struct hb_op *op, const char *request,
		  struct hb_error *err)
{
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:I, s:I}", "target",
			      op->target, "feature", op->feature, "capability", op->capability,
			      "operation_id", op->id, "digest", op->digest, "request",
			      json_loads(request, 0, NULL), "summary_digest", op->summary_digest,
			      "user_id", op->user_id, "session", op->session, "generation",
			      (json_int_t)op->generation, "expires_at", (json_int_t)op->expires_at);

	if (!o)
		hb_fail(err, "storage_failed", "operation %s: the stored request can't be read",
			op->id);
	return o;
}

static void
delivered(int status, const json_t *body, const struct hb_error *reason, void *arg)
{
	struct letter *l = arg;
	struct hb_broker *b = l->b;
	char *slot = slot_of(b, l->id);
	struct hb_error err;
	struct hb_op op;

	if (slot)
		*slot = 0;
	b->outbox_inflight--;
	if (status == 0) {
		b->outbox_fails++;
		b->outbox_not_before = hb_now() + (b->outbox_fails < 5 ? 1 << b->outbox_fails
								       : BACKOFF_MAX_SECONDS);
		hb_log(HB_LOG_WARN, "approver_unreachable", "operation", l->id, "error",
		       reason->message, NULL);
		goto out;
	}
	b->outbox_fails = 0;
	hb_broker_heard(b);
	if (hb_store_find(b->store, l->id, &op, NULL) < 0 || op.tell != l->tell)
		goto out; /* something newer is due by now */
	op.tell = HB_TELL_NOTHING;
	if (hb_store_update(b->store, &op, op.state, NULL, false, NULL) < 0)
		goto out;
	/* Submitted again and refused: nobody will be able to decide. Its own word goes to the
	 * client. */
	if (l->tell == HB_TELL_SUBMIT && hb_reply_failed(status, body, &err) < 0 &&
	    op.state == HB_OP_AWAITING)
		hb_flow_end(b, &op, HB_OP_CANCELLED, err.code, err.message);
out:
	free(l);
	hb_outbox_tick(b);
}

static json_t *
outcome(struct hb_broker *b, const struct hb_op *op)
{
	char *text = hb_store_text(b->store, op->id, HB_COL_RESULT, NULL);
	json_t *result = text ? json_loads(text, 0, NULL) : NULL;
	json_t *o;

	free(text);
	o = json_pack("{s:s, s:s, s:I, s:I, s:s}", "operation_id", op->id, "state",
		      hb_op_state_name(op->state), "returncode",
		      (json_int_t)hb_json_int(result, "returncode", -1), "duration",
		      (json_int_t)hb_json_int(result, "duration", 0), "output_sha256",
		      hb_json_text(result, "output_sha256", ""));
	json_object_set_new(o, "heads", hb_broker_heads(b));
	json_decref(result);
	return o;
}

static int
send_letter(struct hb_broker *b, const char *id)
{
	struct hb_call call = {.server = HB_PEER_APPROVER,
			       .method = "POST",
			       .header_name = "X-Approval-Secret",
			       .timeout_ms = HB_CALL_TIMEOUT_MS,
			       .on_done = delivered};
	struct letter *l;
	struct hb_error err;
	struct hb_op op;
	json_t *body = NULL;
	char *request, *slot = slot_of(b, "");

	if (!slot || hb_secret_watch(&b->approval, &err) < 0 ||
	    hb_store_find(b->store, id, &op, &err) < 0)
		return -1;
	switch (op.tell) {
	case HB_TELL_SUBMIT:
		call.path = "/request";
		call.timeout_ms = HB_REQUEST_TIMEOUT_MS;
		request = hb_store_text(b->store, id, HB_COL_REQUEST, NULL);
		body = request ? hb_outbox_request(b, &op, request, &err) : NULL;
		free(request);
		break;
	case HB_TELL_WITHDRAW:
		call.path = "/withdraw";
		body = json_pack("{s:s, s:s}", "operation_id", id, "reason",
				 hb_op_state_name(op.state));
		break;
	case HB_TELL_OUTCOME:
		call.path = "/outcome";
		body = outcome(b, &op);
		break;
	case HB_TELL_NOTHING:
		break;
	}
	if (!body)
		return -1;
	l = hb_calloc(1, sizeof(*l));
	l->b = b;
	l->tell = op.tell;
	memcpy(l->id, id, sizeof(l->id));
	memcpy(slot, id, HB_OP_ID);
	b->outbox_inflight++;
	call.header_value = b->approval.secret.text;
	call.body = body;
	call.arg = l;
	hb_client_start(b->process->client, &call);
	json_decref(body);
	return 0;
}

void
hb_outbox_tick(struct hb_broker *b)
{
	char(*ids)[HB_OP_ID];
	size_t count;

	if (b->outbox_inflight >= (int)INFLIGHT_MAX || hb_now() < b->outbox_not_before)
		return;
	if (hb_store_ids(b->store, HB_Q_TELL, 0, 2 * INFLIGHT_MAX, &ids, &count, NULL) < 0)
		return;
	for (size_t i = 0; i < count && b->outbox_inflight < (int)INFLIGHT_MAX; i++)
		if (!slot_of(b, ids[i]))
			send_letter(b, ids[i]);
	free(ids);
}
