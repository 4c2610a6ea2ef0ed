/*
 * POST /prepare: a client's wish becomes a sealed, stored operation that a person has been asked
 * about.
 *
 *   decode, validate, policy, bounds, floor     here, at once
 *   seal                                        the executor fills in what names stand for now
 *   check again, digest, summary                over the sealed form: this is what will be shown
 * and run store, submit                               first the row, then the approver, then the
 * answer
 *
 * A client that goes away before it has its answer never learns the capability, so nobody could use
 * what was prepared: the operation is cancelled and withdrawn instead of bothering a person.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "common/fields.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "policy/floor.h"
#include "policy/operation.h"
#include "policy/summary.h"

struct prepare {
	struct hb_broker *b;
	struct hb_request *req; /* NULL once the client is gone */
	struct hb_op op;
	struct hb_buf summary;
};

struct prepare_in {
	const char *feature, *user_id, *session;
	json_t *request;
};

static const struct hb_field prepare_fields[] = {
	{"feature", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct prepare_in, feature), 1, 15},
	{"request", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, offsetof(struct prepare_in, request), 0, 0},
	{"user_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_DECIMAL,
	 offsetof(struct prepare_in, user_id), 1, 20},
	{"session", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct prepare_in, session), 1, 127},
};

static void
prepare_free(struct prepare *p)
{
	hb_buf_free(&p->summary);
	free(p);
}

static void
client_gone(void *arg)
{
	struct prepare *p = arg;

	p->req = NULL;
}

static void
refuse(struct prepare *p, const struct hb_error *err)
{
	hb_log(HB_LOG_INFO, "prepare_refused", "feature", p->op.feature, "user", p->op.user_id,
	       "code", err->code, "error", err->message, NULL);
	if (p->req)
		hb_refuse(p->req, err);
	prepare_free(p);
}

/* The same checks twice: on what the client wrote, so that nonsense never reaches an executor, and
 * on what the executor made of it, since that is what would run. */
static int
permitted(struct hb_broker *b, const struct hb_op *op, const json_t *request, struct hb_error *err)
{
	if (hb_broker_ready(b, err) < 0 || hb_broker_policy(b, err) < 0 ||
	    hb_policy_permits(&b->policy.live, op->feature, op->user_id, err) < 0)
		return -1;
	if (!hb_bounds_executor(b->policy.bounds, op->target))
		return hb_fail(err, "not_deployed",
			       "the %s executor is not deployed on this host (bounds.conf, "
			       "[executors] deployed)",
			       op->target);
	if (hb_bounds_check(b->policy.bounds, op->feature, request, err) < 0)
		return -1;
	return hb_floor_check(op->feature, request, err);
}

/* What a prepared operation is answered with. */
static json_t *
prepared(const struct hb_op *op, const char *summary)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "status", "prepared", "capability",
			 op->capability, "digest", op->digest, "summary", summary, "operation_id",
			 op->id, "expires_at", (json_int_t)op->expires_at);
}

static void
submitted(int status, const json_t *body, const struct hb_error *err, void *arg)
{
	struct prepare *p = arg;
	struct hb_broker *b = p->b;
	struct hb_error why, ignored;

	if (status == 0)
		hb_fail(&why, "approver_unreachable", "hermes-approver can't be asked: %s",
			err->message);
	if (status == 0 || hb_reply_failed(status, body, &why) < 0) {
		/* It may have been recorded there all the same: withdraw it. */
		hb_flow_end(b, &p->op, HB_OP_CANCELLED, why.code, why.message);
		refuse(p, &why);
		return;
	}
	if (!p->req) {
		hb_flow_end(b, &p->op, HB_OP_CANCELLED, "client_gone",
			    "the client went away before it was told the capability");
		prepare_free(p);
		return;
	}
	p->op.state = HB_OP_AWAITING;
	/* A very quick decision, or a change of policy, may have come first; the answer is the
	 * same. */
	if (hb_store_update(b->store, &p->op, HB_OP_PREPARED, NULL, false, &ignored) == 0)
		hb_watchers_changed(b, &p->op);
	hb_reply_json(p->req, 200, prepared(&p->op, p->summary.data));
	prepare_free(p);
}

/* Fill in everything that is derived from the sealed form. */
static int
describe(struct prepare *p, const json_t *sealed, struct hb_error *err)
{
	struct hb_op *op = &p->op;
	const char *action;

	if (hb_operation_check_sealed(op->feature, sealed, err) < 0)
		return hb_fail_prefix(err, "the %s executor's sealed form", op->target);
	if (permitted(p->b, op, sealed, err) < 0 ||
	    hb_operation_digest(op->feature, sealed, op->digest, err) < 0 ||
	    hb_summary(op->feature, sealed, &p->summary, NULL, err) < 0)
		return -1;
	hb_summary_digest(&p->summary, op->summary_digest);
	action = hb_operation_action(op->feature, sealed);
	memccpy(op->action, action, 0, sizeof(op->action) - 1);
	hb_random_hex(16, op->id);
	hb_random_hex(32, op->capability);
	op->created_at = hb_now();
	op->expires_at = op->created_at + p->b->pending_life;
	op->generation = p->b->policy.live.generation;
	op->state = HB_OP_PREPARED;
	return 0;
}

/* The same user asks for exactly the same in the same session while it waits: it is the same
 * question, and a person is not asked twice. One approval is one run, whoever of them sends
 * /execute. */
static bool
answered_by_twin(struct prepare *p)
{
	struct hb_broker *b = p->b;
	struct hb_op twin;

	if (!b->coalesce || hb_store_find_waiting(b->store, &p->op, hb_now(), &twin) != 1)
		return false;
	hb_log(HB_LOG_INFO, "coalesced", "operation", twin.id, "user", twin.user_id, NULL);
	hb_reply_json(p->req, 200, prepared(&twin, p->summary.data));
	prepare_free(p);
	return true;
}

static void
sealed(int status, const json_t *body, const struct hb_error *reason, void *arg)
{
	struct prepare *p = arg;
	struct hb_broker *b = p->b;
	struct hb_call call = {.server = HB_PEER_APPROVER,
			       .method = "POST",
			       .path = "/request",
			       .header_name = "X-Approval-Secret",
			       .timeout_ms = HB_REQUEST_TIMEOUT_MS,
			       .on_done = submitted,
			       .arg = p};
	struct hb_error err;
	json_t *request, *ask = NULL;
	char *text = NULL;

	if (status == 0) {
		hb_fail(&err, "executor_unreachable", "the %s executor can't be asked: %s",
			p->op.target, reason->message);
		goto refused;
	}
	if (hb_reply_failed(status, body, &err) < 0)
		goto refused;
	request = json_object_get(body, "request");
	if (!json_is_object(request)) {
		hb_fail(&err, "bad_reply", "the %s executor sealed nothing", p->op.target);
		goto refused;
	}
	if (!p->req) {
		prepare_free(p);
		return;
	}
	if (describe(p, request, &err) < 0)
		goto refused;
	if (answered_by_twin(p))
		return;
	if (hb_secret_watch(&b->approval, &err) < 0)
		goto refused;
	text = json_dumps(request, JSON_COMPACT);
	if (hb_store_insert(b->store, &p->op, text, p->summary.data, &err) < 0)
		goto refused;
	hb_log(HB_LOG_DEBUG, "prepared", "operation", p->op.id, "feature", p->op.feature, "action",
	       p->op.action, "user", p->op.user_id, NULL);
	ask = hb_outbox_request(b, &p->op, text, &err);
	free(text);
	if (!ask) {
		hb_flow_end(b, &p->op, HB_OP_CANCELLED, err.code, err.message);
		goto refused_stored;
	}
	call.header_value = b->approval.secret.text;
	call.body = ask;
	hb_client_start(b->process->client, &call);
	json_decref(ask);
	return;
refused:
	free(text);
refused_stored:
	refuse(p, &err);
}

void
hb_route_prepare(struct hb_request *req, void *ctx)
{
	struct hb_broker *b = ctx;
	struct prepare *p;
	struct prepare_in in = {0};
	struct hb_error err;
	struct hb_call call = {.method = "POST",
			       .path = "/seal",
			       .timeout_ms = HB_SEAL_TIMEOUT_MS,
			       .on_done = sealed};
	const char *feature;
	json_t *validated = NULL, *body;

	if (!hb_access_ok(b, req))
		return;
	p = hb_calloc(1, sizeof(*p));
	p->b = b;
	p->req = req;
	if (hb_fields_decode(hb_request_json(req), prepare_fields,
			     sizeof(prepare_fields) / sizeof(prepare_fields[0]), &in, &err) < 0)
		goto refused;
	memccpy(p->op.user_id, in.user_id, 0, sizeof(p->op.user_id) - 1);
	memccpy(p->op.session, in.session, 0, sizeof(p->op.session) - 1);
	if (strlen(in.session) >= sizeof(p->op.session)) {
		hb_fail(&err, "out_of_range", "session is %zu bytes long; at most %zu are accepted",
			strlen(in.session), sizeof(p->op.session) - 1);
		goto refused;
	}
	feature = hb_feature_canonical(in.feature);
	if (!feature) {
		hb_fail(&err, "unknown_feature",
			"unknown feature; there are runtime, local, docker and ssh");
		goto refused;
	}
	if ((strcmp(feature, "policy") == 0) != hb_broker_is_admin(req)) {
		hb_fail(&err, "unknown_feature",
			"changes of policy are asked for by admin, and admin asks for nothing else");
		goto refused;
	}
	memccpy(p->op.feature, feature, 0, sizeof(p->op.feature) - 1);
	memccpy(p->op.target, hb_feature_target(feature), 0, sizeof(p->op.target) - 1);
	validated = hb_operation_validate(feature, in.request, &err);
	if (!validated || permitted(b, &p->op, validated, &err) < 0)
		goto refused;
	if (hb_store_live(b->store) >= HB_PENDING_MAX) {
		hb_fail(&err, "busy",
			"%d operations wait for a decision already; cancel some or let them expire",
			HB_PENDING_MAX);
		goto refused;
	}
	body = json_pack("{s:s, s:o}", "feature", feature, "request", validated);
	call.server = hb_target_peer(p->op.target);
	call.body = body;
	call.arg = p;
	hb_request_on_close(req, client_gone, p);
	hb_client_start(b->process->client, &call);
	json_decref(body);
	return;
refused:
	json_decref(validated);
	refuse(p, &err);
}
