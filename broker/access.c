/*
 * Who gets in: the control secret, and the policy as it is now.
 *
 * Both are files that other processes replace while we run (rotation, a change of policy). They are
 * looked at with one fstatat(2) before each use and read again only when they changed, so a
 * rotation takes effect at once.
 */
#include <string.h>

#include "broker/broker.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

/* Refusals go to the log each time and to the audit chain at most once a second, with the number
 * left out. */
void
hb_access_refused(const char *why, uid_t uid, const char *path, void *ctx)
{
	struct hb_broker *b = ctx;
	char uid_text[16];
	int64_t now = hb_now();
	struct hb_error err;
	json_t *detail;

	snprintf(uid_text, sizeof(uid_text), "%d", (int)uid);
	hb_log(HB_LOG_WARN, "refused", "why", why, "uid", uid_text, "path", path, NULL);
	if (now == b->refused_audited_at) {
		b->refused_unrecorded++;
		return;
	}
	detail = json_pack("{s:s, s:i, s:s, s:I}", "why", why, "uid", (int)uid, "path", path,
			   "more", (json_int_t)b->refused_unrecorded);
	b->refused_audited_at = now;
	b->refused_unrecorded = 0;
	if (hb_audit_append(b->process->audit, "access", "refused", detail, &err) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "error", err.message, NULL);
	json_decref(detail);
}

bool
hb_broker_is_admin(const struct hb_request *req)
{
	return !hb_request_is_tcp(req) &&
	       (hb_request_roles(req) & HB_PEER_BIT(HB_PEER_ADMIN)) != 0;
}

bool
hb_access_ok(struct hb_broker *b, struct hb_request *req)
{
	const char *given = hb_request_header(req, "X-Broker-Secret");
	struct hb_error err;

	/* admin holds no control secret; its uid says who it is, and its routes what it may. */
	if (hb_broker_is_admin(req))
		return true;
	if (hb_secret_watch(&b->control, &err) < 0) {
		hb_log(HB_LOG_ERROR, "secret_unusable", "code", err.code, "error", err.message,
		       NULL);
		hb_reply_error(req, 401, &err);
		return false;
	}
	if (given && hb_secret_equal(&b->control.secret, given))
		return true;
	hb_access_refused("wrong_secret", hb_request_uid(req), hb_request_path(req), b);
	hb_fail(&err, "wrong_secret", "%s",
		given ? "X-Broker-Secret is not the control secret; read it again from the secret "
			"file, it may have been rotated"
		      : "the header X-Broker-Secret is missing");
	hb_reply_error(req, 401, &err);
	return false;
}

static int
reload_policy(struct hb_broker *b, struct hb_error *err)
{
	struct hb_policy_view fresh = {0};
	int64_t before = b->policy_ok ? b->policy.live.generation : -1;

	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &fresh, err) < 0)
		goto bad;
	if (hb_store_see_generation(b->store, fresh.live.generation, err) < 0) {
		hb_policy_view_free(&fresh);
		goto bad;
	}
	if (b->policy_ok)
		hb_policy_view_free(&b->policy);
	b->policy = fresh;
	b->policy_ok = true;
	if (before != fresh.live.generation)
		hb_flow_revoke_older(b, fresh.live.generation);
	return 0;
bad:
	if (b->policy_ok)
		hb_policy_view_free(&b->policy);
	b->policy_ok = false;
	b->policy_error = *err;
	hb_log(HB_LOG_ERROR, "policy_unusable", "code", err->code, "error", err->message, NULL);
	return -1;
}

int
hb_broker_policy(struct hb_broker *b, struct hb_error *err)
{
	struct hb_error local;

	if (!err)
		err = &local;
	if (hb_policy_changed(&b->stamp))
		return reload_policy(b, err);
	if (b->policy_ok)
		return 0;
	*err = b->policy_error;
	return -1;
}

void
hb_broker_audit(struct hb_broker *b, const char *action, const char *status, const struct hb_op *op,
		const char *why)
{
	struct hb_error err;
	json_t *detail =
		json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "operation_id", op->id, "feature",
			  op->feature, "action", op->action, "digest", op->digest, "user_id",
			  op->user_id, "state", hb_op_state_name(op->state));

	if (why && *why)
		json_object_set_new(detail, "why", json_string(why));
	if (hb_audit_append(b->process->audit, action, status, detail, &err) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "error", err.message, NULL);
	json_decref(detail);
}
