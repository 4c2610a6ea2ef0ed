/*
 * The console channel: a listed Unix user decides in a terminal. The kernel says who calls
 * (SO_PEERCRED), the configuration says which user id that is, and the live policy must allow that
 * user like any other. The caller names the digest of what it read, so that nothing else can be
 * decided by mistake.
 */
#include <stdlib.h>
#include <string.h>

#include "approver/approver.h"
#include "approver/telegram.h"
#include "common/fields.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

int
hb_console_parse(const struct hb_config *config, struct hb_console_user *users, size_t *count,
		 struct hb_error *err)
{
	const char **items;
	size_t n = hb_config_list(config, "approver.console_approvers", &items), digits;

	if (n > HB_CONSOLE_MAX)
		return hb_fail(err, "config_console",
			       "approver.console_approvers has more than %d entries",
			       HB_CONSOLE_MAX);
	for (size_t i = 0; i < n; i++) {
		const char *equals = strchr(items[i], '=');

		digits = equals ? strspn(equals + 1, "0123456789") : 0;
		if (digits < 1 || digits > 20 || equals[1 + digits] ||
		    (digits > 1 && equals[1] == '0') ||
		    strspn(items[i], "0123456789") != (size_t)(equals - items[i]) ||
		    equals == items[i])
			return hb_fail(err, "config_console",
				       "approver.console_approvers: \"%s\" is not UID=USER_ID",
				       items[i]);
		users[i].uid = (uid_t)strtoul(items[i], NULL, 10);
		memset(users[i].user_id, 0, sizeof(users[i].user_id));
		memcpy(users[i].user_id, equals + 1, digits);
		for (size_t k = 0; k < i; k++)
			if (users[k].uid == users[i].uid)
				return hb_fail(err, "config_console",
					       "approver.console_approvers names uid %u twice",
					       (unsigned)users[i].uid);
	}
	*count = n;
	return 0;
}

bool
hb_console_can(struct hb_approver *a, const char *user_id)
{
	for (size_t i = 0; i < a->console_count; i++)
		if (strcmp(a->console[i].user_id, user_id) == 0)
			return true;
	return false;
}

static const char *
user_of(struct hb_approver *a, uid_t uid)
{
	for (size_t i = 0; i < a->console_count; i++)
		if (a->console[i].uid == uid)
			return a->console[i].user_id;
	return NULL;
}

static json_t *
describe(struct hb_approver *a, const char *id)
{
	struct hb_ask ask;
	char *summary;
	char users[16][24];
	json_t *o, *approved;
	size_t n;

	if (hb_ask_find(a->decisions, id, &ask, NULL) < 0 || ask.state != HB_ASK_PENDING ||
	    ask.expires_at <= hb_now())
		return NULL;
	summary = hb_ask_summary(a->decisions, id, NULL);
	if (!summary)
		return NULL;
	n = hb_decided_by(a->decisions, id, true, users, 16);
	approved = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(approved, json_string(users[i]));
	o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:o}",
		      "operation_id", ask.id, "feature", ask.feature, "action", ask.action,
		      "digest", ask.digest, "summary", summary, "user_id", ask.user_id, "session",
		      ask.session, "generation", (json_int_t)ask.generation, "created_at",
		      (json_int_t)ask.created_at, "expires_at", (json_int_t)ask.expires_at,
		      "quorum", ask.quorum, "approved_by", approved);
	free(summary);
	return o;
}

/* ?operation_id=ID for one; else the oldest ones, as many as fit an answer. */
void
hb_route_console_pending(struct hb_request *req, void *ctx)
{
	struct hb_approver *a = ctx;
	const char *only = hb_request_query(req, "operation_id");
	char(*ids)[HB_OP_ID] = NULL;
	size_t count = 0;
	struct hb_error err;
	json_t *list = json_array(), *o;

	if (only) {
		o = describe(a, only);
		if (o)
			json_array_append_new(list, o);
	} else if (hb_ask_ids(a->decisions, HB_A_PENDING, hb_now(), HB_CONSOLE_LIST_MAX, &ids,
			      &count, &err) < 0) {
		json_decref(list);
		hb_refuse(req, &err);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		o = describe(a, ids[i]);
		if (o)
			json_array_append_new(list, o);
	}
	free(ids);
	hb_reply_json(req, 200,
		      json_pack("{s:s, s:o, s:I}", "status", "ok", "pending", list, "pending_count",
				(json_int_t)hb_ask_pending(a->decisions)));
}

struct decide_in {
	const char *operation_id, *decision, *digest;
};

static const struct hb_field decide_fields[] = {
	{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct decide_in, operation_id),
	 32, 32},
	{"decision", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct decide_in, decision), 1, 16},
	{"digest", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_HEX64,
	 offsetof(struct decide_in, digest), 64, 64},
};

static int
decide(struct hb_approver *a, const char *user, const struct decide_in *in, struct hb_error *err)
{
	bool approve = strcmp(in->decision, "approved") == 0;
	struct hb_ask ask;

	if (!approve && strcmp(in->decision, "denied") != 0)
		return hb_fail(err, "out_of_range", "decision is \"approved\" or \"denied\"");
	if (hb_ask_find(a->decisions, in->operation_id, &ask, err) < 0)
		return -1;
	if (strcmp(ask.digest, in->digest) != 0)
		return hb_fail(
			err, "digest_mismatch",
			"this is not the digest of operation %s: read it again before you decide",
			ask.id);
	if (ask.state == HB_ASK_PENDING && hb_may_decide(a, &ask, user, approve, err) < 0)
		return -1;
	return hb_decide(a->decisions, ask.id, user, approve, "console", hb_now(), NULL, &ask, err);
}

void
hb_route_console_decide(struct hb_request *req, void *ctx)
{
	struct hb_approver *a = ctx;
	const char *user = user_of(a, hb_request_uid(req));
	struct decide_in in = {0};
	struct hb_error err;
	struct hb_ask ask = {0};

	if (!user) {
		hb_access_refused("not_a_console_approver", hb_request_uid(req),
				  hb_request_path(req), a);
		hb_fail(&err, "not_a_console_approver",
			"uid %u is not listed in [approver] console_approvers",
			(unsigned)hb_request_uid(req));
		hb_refuse(req, &err);
		return;
	}
	if (hb_fields_decode(hb_request_json(req), decide_fields, 3, &in, &err) == 0 &&
	    decide(a, user, &in, &err) == 0) {
		hb_log(HB_LOG_INFO, "decided", "operation", in.operation_id, "decision",
		       in.decision, "user", user, "channel", "console", NULL);
		hb_reply_json(req, 200,
			      json_pack("{s:s, s:s}", "status", "ok", "decision", in.decision));
		hb_grants_tick(a);
		return;
	}
	hb_log(HB_LOG_WARN, "decision_refused", "code", err.code, "user", user, "error",
	       err.message, NULL);
	if (in.operation_id && hb_ask_find(a->decisions, in.operation_id, &ask, NULL) == 0)
		hb_approver_audit(a, "decision", "refused", &ask, "why", err.code, NULL);
	hb_refuse(req, &err);
}

struct control_in {
	const char *action, *operation_id;
};

static const struct hb_field control_fields[] = {
	{"action", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct control_in, action), 1, 16},
	{"operation_id", HB_FIELD_TEXT, 0, offsetof(struct control_in, operation_id), 32, 32},
};

static int
control(struct hb_approver *a, const char *user, const struct control_in *in, size_t *denied,
	struct hb_error *err)
{
	if (strcmp(in->action, "revoke") == 0 && in->operation_id)
		return hb_control_revoke(a, in->operation_id, user, "console", NULL, err);
	if (in->operation_id)
		return hb_fail(err, "unknown_field",
			       "operation_id goes with action \"revoke\" only");
	if (strcmp(in->action, "pause") == 0)
		return hb_control_pause(a, user, "console", NULL, err);
	if (strcmp(in->action, "resume") == 0)
		return hb_control_resume(a, user, "console", NULL, err);
	if (strcmp(in->action, "revoke_all") == 0)
		return hb_control_revoke_all(a, user, "console", NULL, denied, err);
	return hb_fail(err, "out_of_range",
		       "action is pause, resume, revoke (with operation_id) or revoke_all");
}

/* What approvers can say in the chat, said in a terminal. */
void
hb_route_console_control(struct hb_request *req, void *ctx)
{
	struct hb_approver *a = ctx;
	const char *user = user_of(a, hb_request_uid(req));
	struct control_in in = {0};
	struct hb_error err;
	size_t denied = 0;
	char note[128];

	if (!user) {
		hb_access_refused("not_a_console_approver", hb_request_uid(req),
				  hb_request_path(req), a);
		hb_fail(&err, "not_a_console_approver",
			"uid %u is not listed in [approver] console_approvers",
			(unsigned)hb_request_uid(req));
		hb_refuse(req, &err);
		return;
	}
	if (hb_approver_policy(a, &err) == 0 && !hb_policy_user(&a->policy.live, user))
		hb_fail(&err, "user_not_allowed", "user %s is not one of the execution approvers",
			user);
	else if (a->policy_ok &&
		 hb_fields_decode(hb_request_json(req), control_fields, 2, &in, &err) == 0 &&
		 control(a, user, &in, &denied, &err) == 0) {
		struct hb_audit_head head = hb_audit_head(a->process->audit);

		if (strncmp(in.action, "revoke", 6) != 0) {
			snprintf(note, sizeof(note), "%s by user %s at the console.",
				 a->control.paused ? "PAUSED" : "RESUMED", user);
			hb_telegram_notice(a->telegram, "", note);
		}
		hb_reply_json(req, 200,
			      json_pack("{s:s, s:b, s:I, s:I, s:{s:I, s:s}}", "status", "ok",
					"paused", a->control.paused, "sequence",
					(json_int_t)a->control.sequence, "denied",
					(json_int_t)denied, "audit", "seq", (json_int_t)head.seq,
					"hash", head.hash));
		hb_grants_tick(a);
		return;
	}
	hb_log(HB_LOG_WARN, "control_refused", "code", err.code, "user", user, "error", err.message,
	       NULL);
	hb_refuse(req, &err);
}

/* ?operation_id=ID: signed, for the file that hermesctl makes of it. */
void
hb_route_console_receipt(struct hb_request *req, void *ctx)
{
	const char *id = hb_request_query(req, "operation_id");
	struct hb_error err;
	json_t *receipt = hb_receipt(ctx, id ? id : "", &err);

	if (receipt)
		hb_reply_json(req, 200, receipt);
	else
		hb_refuse(req, &err);
}

struct heads_in {
	json_t *heads;
	bool accept;
};

static const struct hb_field heads_fields[] = {
	{"heads", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, offsetof(struct heads_in, heads), 0, 0},
	{"accept", HB_FIELD_BOOL, 0, offsetof(struct heads_in, accept), 0, 0},
};

/* Root shows the heads of all chains, those included that the broker can't ask for, and gets a
 * checkpoint. */
void
hb_route_console_checkpoint(struct hb_request *req, void *ctx)
{
	struct hb_approver *a = ctx;
	struct heads_in in = {0};
	struct hb_error err;

	if (hb_fields_decode(hb_request_json(req), heads_fields, 2, &in, &err) < 0 ||
	    hb_heads_take(a, in.heads, in.accept, &err) < 0 || hb_checkpoint_now(a, &err) < 0)
		hb_refuse(req, &err);
	else
		hb_reply_json(req, 200, json_pack("{s:s}", "status", "ok"));
}
