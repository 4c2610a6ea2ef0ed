/*
 * The state machine of an operation, and the only file that moves one from a state to the next.
 *
 *   prepared -> awaiting_approval -> approved -> executing -> succeeded | failed | outcome_unknown
 *   and from the first three: denied | expired | cancelled | revoked
 *
 * Each change is first written to the row (which refuses when somebody else was quicker), then
 * told: to those who wait, to the audit chain, to the approver. An operation runs when it is
 * approved and its client asked for it.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "common/grant.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define PRUNE_EVERY 3600 /* ticks */

/* What the audit chain calls each end: one word for one kind of outcome. */
static const char *
audit_word(enum hb_op_state state)
{
	switch (state) {
	case HB_OP_SUCCEEDED:
		return "ok";
	case HB_OP_FAILED:
		return "failed";
	case HB_OP_UNKNOWN:
		return "unknown";
	case HB_OP_DENIED:
		return "denied";
	case HB_OP_EXPIRED:
		return "timeout";
	case HB_OP_CANCELLED:
		return "cancelled";
	case HB_OP_REVOKED:
		return "refused";
	default:
		return "ok";
	}
}

/* Writes op, whose state was `from`, and tells everybody. */
static int
change(struct hb_broker *b, struct hb_op *op, enum hb_op_state from,
       const struct hb_op_extra *extra, bool durable, struct hb_error *err)
{
	if (hb_store_update(b->store, op, from, extra, durable, err) < 0)
		return -1;
	hb_log(HB_LOG_INFO, "state", "operation", op->id, "feature", op->feature, "from",
	       hb_op_state_name(from), "to", hb_op_state_name(op->state), "code", op->code, NULL);
	hb_watchers_changed(b, op);
	if (op->tell != HB_TELL_NOTHING)
		hb_outbox_tick(b);
	return 0;
}

int
hb_flow_end(struct hb_broker *b, struct hb_op *op, enum hb_op_state state, const char *code,
	    const char *message)
{
	enum hb_op_state from = op->state;
	struct hb_error err;

	op->state = state;
	op->finished_at = hb_now();
	/* Asked and not yet answered: take the question back. Answered: say what came of it. */
	op->tell = from <= HB_OP_AWAITING ? HB_TELL_WITHDRAW : HB_TELL_OUTCOME;
	memset(op->code, 0, sizeof(op->code));
	memset(op->error, 0, sizeof(op->error));
	memccpy(op->code, code, 0, sizeof(op->code) - 1);
	memccpy(op->error, message, 0, sizeof(op->error) - 1);
	if (change(b, op, from, NULL, false, &err) < 0) {
		hb_log(HB_LOG_ERROR, "state_not_changed", "operation", op->id, "error", err.message,
		       NULL);
		op->state = from;
		return -1;
	}
	/* Questions that never were answered leave no audit record each: they had no power and
	 * number thousands. */
	if (from > HB_OP_AWAITING)
		hb_broker_audit(b, "operation", audit_word(state), op, code);
	return 0;
}

/* Everything a grant says about the operation must be what the row says. The executor checks the
 * same and more: this is so that a wrong grant is noticed here, and a client isn't told "approved"
 * for nothing. */
static int
check_grant(struct hb_broker *b, const struct hb_op *op, const struct hb_grant *g,
	    struct hb_error *err)
{
	struct hb_grant as_approved = *g; /* a denial is held to the same facts */
	struct hb_grant_expect expect = {.audience = b->process->host_id,
					 .target = op->target,
					 .feature = op->feature,
					 .action = op->action,
					 .operation_id = op->id,
					 .digest = op->digest,
					 .summary_digest = op->summary_digest,
					 .generation = op->generation,
					 .now = hb_now()};
	int needed = hb_policy_quorum(&b->policy.live, b->policy.bounds, op->feature);

	as_approved.approved = true;
	if (hb_grant_check(&as_approved, &expect, err) < 0)
		return -1;
	if (strlen(g->capability) != 64 || sodium_memcmp(g->capability, op->capability, 64) != 0)
		return hb_fail(err, "grant_wrong_operation", "the grant is for another capability");
	if (strcmp(g->session, op->session) != 0)
		return hb_fail(err, "grant_wrong_session", "the grant is for another session");
	if (g->user_count == 0)
		return hb_fail(err, "grant_no_user", "the grant names nobody who decided");
	for (size_t i = 0; i < g->user_count; i++) {
		if (!hb_policy_user(&b->policy.live, g->user_ids[i]))
			return hb_fail(err, "grant_user_not_allowed", "user %s may not decide",
				       g->user_ids[i]);
		for (size_t k = 0; k < i; k++)
			if (strcmp(g->user_ids[i], g->user_ids[k]) == 0)
				return hb_fail(err, "grant_malformed", "user %s is named twice",
					       g->user_ids[i]);
	}
	if (*g->requested_by && strcmp(g->requested_by, op->user_id) != 0)
		return hb_fail(err, "grant_wrong_operation",
			       "the grant names another user as the one who asked");
	for (size_t i = 0;
	     g->approved && hb_policy_no_self(&b->policy, op->feature) && i < g->user_count; i++)
		if (strcmp(g->user_ids[i], op->user_id) == 0)
			return hb_fail(err, "grant_self_approval",
				       "user %s asked for it and may not approve it", op->user_id);
	if (g->approved && (int)g->user_count < needed)
		return hb_fail(err, "grant_quorum", "%zu of %d approvers have signed",
			       g->user_count, needed);
	return 0;
}

static int
store_grant(struct hb_broker *b, struct hb_op *op, const struct hb_grant *g, const json_t *envelope,
	    const char *channel, struct hb_error *err)
{
	json_t *users = json_array();
	enum hb_op_state from = op->state;
	struct hb_op_extra extra;
	char *envelope_text = json_dumps(envelope, JSON_COMPACT), *users_text;
	int result;

	for (size_t i = 0; i < g->user_count; i++)
		json_array_append_new(users, json_string(g->user_ids[i]));
	users_text = json_dumps(users, JSON_COMPACT);
	json_decref(users);
	op->state = g->approved ? HB_OP_APPROVED : HB_OP_DENIED;
	op->tell = HB_TELL_NOTHING;
	op->decided_at = g->issued_at;
	op->grant_expires = g->expires_at;
	if (!g->approved)
		op->finished_at = hb_now();
	memcpy(op->grant_id, g->grant_id, sizeof(op->grant_id));
	memset(op->channel, 0, sizeof(op->channel));
	memccpy(op->channel, channel, 0, sizeof(op->channel) - 1);
	extra = (struct hb_op_extra){.envelope = envelope_text, .decided_by = users_text};
	result = change(b, op, from, &extra, true, err);
	free(envelope_text);
	free(users_text);
	return result;
}

int
hb_flow_grant(struct hb_broker *b, const char *id, const json_t *envelope, const char *channel,
	      struct hb_error *err)
{
	struct hb_grant g;
	struct hb_op op;

	/* The signature first: what isn't signed by the approver isn't read further. */
	hb_broker_control(b);
	if (hb_grant_open_ring(envelope, &b->keys, &g, err) < 0 || hb_broker_policy(b, err) < 0 ||
	    hb_store_find(b->store, id, &op, err) < 0)
		return -1;
	if (*op.grant_id && sodium_memcmp(op.grant_id, g.grant_id, sizeof(op.grant_id)) == 0)
		return 0; /* delivered again: the acknowledgement got lost */
	if (op.state != HB_OP_PREPARED && op.state != HB_OP_AWAITING)
		return hb_fail(err, "operation_final",
			       "operation %s is %s; the grant came too late or is a replay", id,
			       hb_op_state_name(op.state));
	if (check_grant(b, &op, &g, err) < 0)
		return -1;
	if (store_grant(b, &op, &g, envelope, channel, err) < 0)
		return -1;
	hb_broker_audit(b, "grant", g.approved ? "ok" : "denied", &op, channel);
	if (op.state == HB_OP_APPROVED && op.execute_requested)
		hb_run_start(b, &op, false);
	return 0;
}

int
hb_flow_execute(struct hb_broker *b, struct hb_op *op, struct hb_error *err)
{
	if (op->state == HB_OP_APPROVED && op->grant_expires <= hb_now() &&
	    !hb_run_active(b, op->id)) {
		hb_flow_end(b, op, HB_OP_EXPIRED, "grant_expired",
			    "the approval was not used in time");
		return 0;
	}
	if (op->execute_requested)
		return 0;
	if (op->state == HB_OP_APPROVED && hb_broker_ready(b, err) < 0)
		return -1;
	if (op->state == HB_OP_APPROVED &&
	    hb_run_count(b, op->target) >= (size_t)(HB_ACTIVE_PER_EXECUTOR + b->queue_max))
		return hb_fail(
			err, "busy",
			"the %s executor's queue is full; the approval stays valid for a while, "
			"try again soon",
			op->target);
	op->execute_requested = true;
	if (hb_store_update(b->store, op, op->state, NULL, false, err) < 0)
		return -1;
	if (op->state == HB_OP_APPROVED)
		hb_run_start(b, op, false);
	return 0;
}

int
hb_flow_cancel(struct hb_broker *b, struct hb_op *op, struct hb_error *err)
{
	if (op->state == HB_OP_CANCELLED)
		return 0;
	if (op->state == HB_OP_EXECUTING || hb_run_active(b, op->id))
		return hb_fail(err, "executing",
			       "operation %s is with the executor already and can't be cancelled",
			       op->id);
	if (hb_op_final(op->state))
		return hb_fail(err, "operation_final", "operation %s is %s already", op->id,
			       hb_op_state_name(op->state));
	if (hb_flow_end(b, op, HB_OP_CANCELLED, "cancelled_by_client", "the client cancelled it") <
	    0)
		return hb_fail(err, "storage_failed",
			       "operation %s could not be cancelled; see the broker's log", op->id);
	return 0;
}

/* The last HB_OUTPUT_MAX characters of output; true when something was cut off. */
static bool
last_characters(const char **text)
{
	const char *p = *text + strlen(*text);
	size_t count = 0;

	while (p > *text) {
		p--;
		if (((unsigned char)*p & 0xC0) == 0x80)
			continue; /* inside a character */
		if (++count == HB_OUTPUT_MAX)
			break;
	}
	if (p == *text)
		return false;
	*text = p;
	return true;
}

/* What every client may rely on finding, whatever the executor's result looks like. */
static json_t *
complete_result(const struct hb_op *op, const json_t *reply)
{
	json_t *given = json_object_get(reply, "result");
	json_t *result = json_is_object(given) ? json_copy(given) : json_object();
	const char *output = hb_json_text(result, "output", hb_json_text(reply, "error", ""));
	char sha[HB_HEX256];

	if (!json_is_string(json_object_get(result, "output_sha256"))) {
		hb_sha256_hex(output, strlen(output), sha);
		json_object_set_new(result, "output_sha256", json_string(sha));
	}
	if (last_characters(&output))
		json_object_set_new(result, "truncated", json_true());
	json_object_set_new(result, "output", json_string(output));
	if (!json_is_boolean(json_object_get(result, "truncated")))
		json_object_set_new(result, "truncated", json_false());
	if (!json_is_boolean(json_object_get(result, "timed_out")))
		json_object_set_new(result, "timed_out", json_false());
	if (hb_json_bool(result, "timed_out", false))
		json_object_set_new(result, "returncode", json_integer(124));
	if (!json_is_integer(json_object_get(result, "returncode")))
		json_object_set_new(result, "returncode",
				    json_integer(op->state == HB_OP_SUCCEEDED ? 0 : 1));
	if (!json_is_number(json_object_get(result, "duration")))
		json_object_set_new(result, "duration",
				    json_integer(op->finished_at - op->started_at));
	return result;
}

int
hb_flow_outcome(struct hb_broker *b, struct hb_op *op, enum hb_op_state state, const json_t *reply)
{
	enum hb_op_state from = op->state;
	const json_t *progress = json_object_get(reply, "progress");
	struct hb_op_extra extra = {0};
	struct hb_error err;
	char *progress_text = NULL, *result_text = NULL;
	json_t *result;
	int rc;

	op->state = state;
	op->tell = HB_TELL_OUTCOME;
	op->sent = true;
	op->finished_at = hb_now();
	if (!op->started_at)
		op->started_at = op->finished_at;
	memccpy(op->code, hb_json_text(reply, "code", ""), 0, sizeof(op->code) - 1);
	memccpy(op->error, hb_json_text(reply, "error", ""), 0, sizeof(op->error) - 1);
	result = complete_result(op, reply);
	extra.result = result_text = json_dumps(result, JSON_COMPACT);
	if (json_is_object(progress))
		extra.progress = progress_text = json_dumps(progress, JSON_COMPACT);
	rc = change(b, op, from, &extra, true, &err);
	if (rc < 0)
		hb_log(HB_LOG_ERROR, "outcome_not_stored", "operation", op->id, "error",
		       err.message, NULL);
	else
		hb_broker_audit(b, "operation",
				hb_json_bool(result, "timed_out", false) ? "timeout"
									 : audit_word(state),
				op, op->code);
	json_decref(result);
	free(result_text);
	free(progress_text);
	return rc;
}

void
hb_flow_revoke_older(struct hb_broker *b, int64_t generation)
{
	char(*ids)[HB_OP_ID];
	size_t count;
	struct hb_op op;
	char why[128];

	if (hb_store_ids(b->store, HB_Q_OLD_POLICY, generation, hb_store_live(b->store) + 1, &ids,
			 &count, NULL) < 0)
		return;
	snprintf(why, sizeof(why), "the policy changed to generation %lld after it was asked for",
		 (long long)generation);
	for (size_t i = 0; i < count; i++) {
		/* Already with the executor: that one compares generations itself, right before the
		 * effect. */
		if (hb_run_active(b, ids[i]) || hb_store_find(b->store, ids[i], &op, NULL) < 0)
			continue;
		hb_flow_end(b, &op, HB_OP_REVOKED, "policy_changed", why);
	}
	free(ids);
}

static void
end_due(struct hb_broker *b, enum hb_op_query query, const char *code, const char *message)
{
	char(*ids)[HB_OP_ID];
	size_t count;
	struct hb_op op;

	if (hb_store_ids(b->store, query, hb_now(), 1000, &ids, &count, NULL) < 0)
		return;
	for (size_t i = 0; i < count; i++)
		if (!hb_run_active(b, ids[i]) && hb_store_find(b->store, ids[i], &op, NULL) == 0)
			hb_flow_end(b, &op, HB_OP_EXPIRED, code, message);
	free(ids);
}

void
hb_flow_tick(struct hb_broker *b)
{
	hb_broker_policy(b, NULL);
	end_due(b, HB_Q_PENDING_DUE, "not_decided", "nobody decided in time");
	end_due(b, HB_Q_GRANT_DUE, "grant_expired", "the approval was not used in time");
	if (b->ticks++ % PRUNE_EVERY == 0)
		hb_store_prune(b->store, hb_now() - (int64_t)HB_KEEP_DAYS * 86400, NULL);
}

int
hb_flow_restore(struct hb_broker *b, struct hb_error *err)
{
	char(*ids)[HB_OP_ID];
	size_t count;
	struct hb_op op;

	if (hb_store_ids(b->store, HB_Q_RESTORE, 0, hb_store_live(b->store) + 1, &ids, &count,
			 err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		if (hb_store_find(b->store, ids[i], &op, NULL) < 0)
			continue;
		if (op.state == HB_OP_PREPARED)
			hb_flow_end(b, &op, HB_OP_CANCELLED, "interrupted",
				    "the broker restarted before its client was answered");
		else if (op.state == HB_OP_EXECUTING || op.execute_requested)
			hb_run_start(b, &op, true);
	}
	free(ids);
	return hb_store_resubmit(b->store, err);
}
