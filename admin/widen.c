/*
 * Widening live policy with a person's consent (admin.widening_needs_grant): more features, more approvers.
 *
 * Asked of the broker like any operation, shown by the approver, signed, and carried out here behind the same gate as
 * everywhere: policy now, signature, digest, quorum, and the grant burnt in our own ledger before anything changes. What was
 * in force when it was asked is sealed, so a policy that changed meanwhile ends it. Narrowing never waits.
 */
#include <stdlib.h>
#include <string.h>

#include "admin/admin.h"
#include "common/fields.h"
#include "common/json.h"
#include "common/log.h"
#include "policy/gate.h"
#include "policy/operation.h"
#include "policy/outcome.h"

#define PREPARE_TIMEOUT_MS 30000 /* the approver may have to wait for the Bot API */
#define SESSION "admin"

bool admin_widens(const struct hb_policy *before, const struct hb_policy *after)
{
	if (after->features & ~before->features)
		return true;
	for (size_t i = 0; i < after->user_count; i++)
		if (!hb_policy_user(before, after->users[i]))
			return true;
	for (size_t i = 0; i < sizeof after->quorum / sizeof after->quorum[0]; i++)
		if (after->quorum[i] < before->quorum[i])
			return true;
	return before->paused && !after->paused;
}

/* ---- asking ---- */

struct asking {
	struct admin *admin;
	struct hb_request *req; /* NULL once the caller has gone */
	json_t *prepared;
	int64_t generation;
	char user[24];
};

static void finish(struct asking *k, int status, json_t *answer)
{
	json_t *detail = json_pack("{s:s,s:s}", "operation_id", hb_json_text(k->prepared, "operation_id", ""), "error",
				   hb_json_text(answer, "error", ""));

	hb_audit_append(k->admin->process->audit, "widen", status == 202 ? "intent" : "refused", detail, NULL);
	json_decref(detail);
	if (k->req)
		hb_reply_json(k->req, status, answer);
	else
		json_decref(answer);
	json_decref(k->prepared);
	free(k);
}

static bool failed(struct asking *k, int status, const json_t *body, const struct hb_error *why)
{
	struct hb_error err = {0};

	if (status == 0)
		err = *why;
	else if (hb_reply_failed(status, body, &err) == 0)
		return false;
	hb_fail_prefix(&err, "an approver has to grant this, and could not be asked");
	finish(k, status == 0 ? 503 : 422, hb_json_error(&err));
	return true;
}

static void accepted(int status, const json_t *body, const struct hb_error *why, void *arg)
{
	struct asking *k = arg;

	if (failed(k, status, body, why))
		return;
	finish(k, 202, json_pack("{s:s,s:I,s:s,s:I}", "status", "pending_approval", "policy_generation",
				 (json_int_t)k->generation, "operation_id", hb_json_text(k->prepared, "operation_id", ""),
				 "expires_at", (json_int_t)hb_json_int(k->prepared, "expires_at", 0)));
}

/* It runs as soon as it is granted. */
static void prepared(int status, const json_t *body, const struct hb_error *why, void *arg)
{
	struct asking *k = arg;
	json_t *execute;

	if (failed(k, status, body, why))
		return;
	k->prepared = json_incref((json_t *)body);
	execute = json_pack("{s:s,s:s,s:s,s:s,s:s,s:b}", "feature", "policy", "capability",
			    hb_json_text(body, "capability", ""), "digest", hb_json_text(body, "digest", ""), "user_id",
			    k->user, "session", SESSION, "async", 1);
	hb_client_start(k->admin->process->client,
			&(struct hb_call){.server = HB_PEER_BROKER, .method = "POST", .path = "/execute", .body = execute,
					  .timeout_ms = PREPARE_TIMEOUT_MS, .on_done = accepted, .arg = k});
	json_decref(execute);
}

static void gone(void *arg)
{
	((struct asking *)arg)->req = NULL;
}

void admin_widen_ask(struct admin *a, struct hb_request *req, const struct hb_policy *before,
		     const struct hb_policy *after)
{
	struct asking *k;
	json_t *policy, *body;

	if (before->user_count == 0) {
		admin_refuse(req, 422, "no_approver", "widening the policy needs an approver's grant, and there is no approver: "
			     "add one on the host with ./manage.sh add-execution-user ID");
		return;
	}
	k = hb_calloc(1, sizeof *k);
	k->admin = a;
	k->req = req;
	k->generation = before->generation;
	memcpy(k->user, before->users[0], sizeof k->user);
	policy = hb_policy_to_json(after);
	body = json_pack("{s:s,s:{s:s,s:O,s:O},s:s,s:s}", "feature", "policy", "request", "action", "widen", "features",
			 json_object_get(policy, "features"), "users", json_object_get(policy, "users"), "user_id", k->user,
			 "session", SESSION);
	json_decref(policy);
	hb_request_on_close(req, gone, k);
	hb_client_start(a->process->client,
			&(struct hb_call){.server = HB_PEER_BROKER, .method = "POST", .path = "/prepare", .body = body,
					  .timeout_ms = PREPARE_TIMEOUT_MS, .on_done = prepared, .arg = k});
	json_decref(body);
}

/* ---- carrying it out ---- */

static int seal(const json_t *body, json_t **out, struct hb_error *err)
{
	struct {
		const char *feature;
		json_t *request;
	} in = {0};
	static const struct hb_field fields[] = {
		{"feature", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(__typeof__(in), feature), 1, 16},
		{"request", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, offsetof(__typeof__(in), request), 0, 0},
	};
	struct hb_policy_view view = {0};
	json_t *live, *sealed;

	if (hb_fields_decode(body, fields, 2, &in, err) < 0)
		return -1;
	if (strcmp(in.feature, "policy") != 0)
		return hb_fail(err, "wrong_executor", "admin carries out changes of policy only");
	sealed = hb_operation_validate("policy", in.request, err);
	if (!sealed)
		return -1;
	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, err) < 0) {
		json_decref(sealed);
		return -1;
	}
	live = hb_policy_to_json(&view.live);
	json_object_set_new(sealed, "present_generation", json_integer(view.live.generation));
	json_object_set(sealed, "present_features", json_object_get(live, "features"));
	json_object_set(sealed, "present_users", json_object_get(live, "users"));
	json_decref(live);
	hb_policy_view_free(&view);
	*out = sealed;
	return 0;
}

void admin_seal(struct hb_request *req, void *ctx)
{
	struct hb_error err = {0};
	json_t *sealed;

	(void)ctx;
	if (seal(hb_request_json(req), &sealed, &err) < 0)
		hb_reply_error(req, 200, &err);
	else
		hb_reply_json(req, 200, json_pack("{s:s,s:o}", "status", "ok", "request", sealed));
}

/* Exactly what was shown, on exactly what was in force. */
static int change(struct hb_policy *p, const struct hb_bounds *b, void *arg, struct hb_error *err)
{
	const json_t *request = arg, *item;
	unsigned features = 0;
	size_t i;

	(void)b;
	if (p->generation != hb_json_int(request, "present_generation", 0))
		return hb_fail(err, "policy_changed", "the policy changed after this was asked for");
	json_array_foreach(json_object_get(request, "features"), i, item)
		features |= hb_feature_bit(json_string_value(item));
	p->features = features;
	p->user_count = 0;
	json_array_foreach(json_object_get(request, "users"), i, item)
		memccpy(p->users[p->user_count++], json_string_value(item), 0, sizeof p->users[0]);
	return 0;
}

static int gate_open(struct admin *a, struct hb_gate *g, struct hb_error *err)
{
	*g = (struct hb_gate){.target = "admin", .audience = a->process->host_id, .admin_uid = hb_peer_uid(HB_PEER_ADMIN),
			      .ledger = a->ledger};
	return hb_gate_load_keys(g, err);
}

static json_t *detail_of(const struct hb_execute *x, const struct hb_grant *grant, const struct hb_error *why)
{
	return json_pack("{s:s,s:s,s:O?,s:O?,s:s,s:s}", "operation_id", x->operation_id ? x->operation_id : "", "grant_id",
			 grant ? grant->grant_id : "", "old", json_object_get(x->request, "present_features"), "new",
			 json_object_get(x->request, "features"), "code", why ? why->code : "", "error",
			 why ? why->message : "");
}

/* The grant is burnt: whatever happens now is the outcome. */
static void carry_out(struct admin *a, const struct hb_execute *x, const struct hb_grant *grant)
{
	struct hb_policy after;
	struct hb_error err = {0}, ignored = {0};
	json_t *detail = detail_of(x, grant, NULL), *outcome;
	int rc = hb_audit_append(a->process->audit, "widen", "intent", detail, &err);

	if (rc == 0)
		rc = hb_policy_update(hb_peer_uid(HB_PEER_ADMIN), false, change, x->request, &after, &err);
	outcome = hb_outcome(NULL, rc < 0 ? &err : NULL, 0);
	if (hb_ledger_finish(a->ledger, x->operation_id, rc < 0 ? "failed" : "succeeded", outcome, &ignored) < 0)
		hb_log(HB_LOG_ERROR, "outcome_not_recorded", "operation", x->operation_id, "error", ignored.message, NULL);
	json_decref(outcome);
	json_decref(detail);
	detail = detail_of(x, grant, rc < 0 ? &err : NULL);
	hb_audit_append(a->process->audit, "widen", rc < 0 ? "failed" : "ok", detail, NULL);
	json_decref(detail);
	if (rc >= 0)
		json_decref(admin_changed(a, &after));
}

void admin_execute(struct hb_request *req, void *ctx)
{
	struct admin *a = ctx;
	struct hb_execute x = {0};
	struct hb_gate gate;
	struct hb_grant grant;
	struct hb_error err = {0};
	json_t *detail;

	if (hb_execute_decode(hb_request_json(req), &x, &err) == 0 && gate_open(a, &gate, &err) == 0 &&
	    hb_gate_pass(&gate, &x, &grant, &err) == 0) {
		carry_out(a, &x, &grant);
		hb_reply_json(req, 200, json_pack("{s:s,s:s}", "status", "accepted", "state", "executing"));
		return;
	}
	detail = detail_of(&x, NULL, &err);
	hb_audit_append(a->process->audit, "widen", strcmp(err.code, "grant_denied") == 0 ? "denied" : "refused", detail,
			NULL);
	json_decref(detail);
	hb_log(HB_LOG_WARN, "execute_refused", "code", err.code, "error", err.message, NULL);
	hb_reply_error(req, 200, &err);
}

void admin_execution(struct hb_request *req, void *ctx)
{
	struct admin *a = ctx;
	struct {
		const char *operation_id;
	} in = {0};
	static const struct hb_field fields[] = {{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED, 0, 1, 64}};
	struct hb_error err = {0};
	json_t *row = NULL, *out, *result;

	if (hb_fields_decode(hb_request_json(req), fields, 1, &in, &err) < 0 ||
	    !(row = hb_ledger_find(a->ledger, in.operation_id, &err))) {
		hb_reply_error(req, 200, &err);
		return;
	}
	result = json_object_get(row, "result");
	out = json_pack("{s:s,s:O,s:O}", "status", "ok", "state", json_object_get(row, "state"), "result", result);
	if (json_object_get(result, "error")) {
		json_object_set(out, "error", json_object_get(result, "error"));
		json_object_set(out, "code", json_object_get(result, "code"));
	}
	json_decref(row);
	hb_reply_json(req, 200, out);
}
