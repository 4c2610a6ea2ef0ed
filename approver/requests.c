/*
 * POST /request: the broker asks for a decision, and nothing of what it says is taken on trust.
 *
 * From the sealed request alone digest, summary and its digest are made again, with the library the
 * executors use too. A difference means that somebody wants a person to read one thing and sign
 * another: it is refused and goes to the audit chain as an alarm. Then policy, bounds and floor as
 * they are now. Only then is anybody asked, and the broker hears `pending` when enough of those who
 * may decide have it before their eyes.
 */
#include <stdlib.h>
#include <string.h>

#include "approver/approver.h"
#include "approver/telegram.h"
#include "common/fields.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "policy/floor.h"
#include "policy/operation.h"
#include "policy/summary.h"

struct request_in {
	const char *target, *feature, *capability, *operation_id, *digest, *summary_digest,
		*user_id, *session;
	json_t *request;
	long long generation, expires_at;
};

#define AT(member) offsetof(struct request_in, member)
static const struct hb_field request_fields[] = {
	{"target", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(target), 1, 23},
	{"feature", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(feature), 1, 15},
	{"capability", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_HEX64, AT(capability), 64, 64},
	{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(operation_id), 32, 32},
	{"digest", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_HEX64, AT(digest), 64, 64},
	{"request", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, AT(request), 0, 0},
	{"summary_digest", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_HEX64, AT(summary_digest),
	 64, 64},
	{"user_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_DECIMAL, AT(user_id), 1, 20},
	{"session", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(session), 1, 127},
	{"generation", HB_FIELD_INT, HB_FIELD_REQUIRED, AT(generation), 1, HB_JSON_INT_MAX},
	{"expires_at", HB_FIELD_INT, HB_FIELD_REQUIRED, AT(expires_at), 1, HB_JSON_INT_MAX},
};

/* One request being shown to the people it concerns. */
struct asking {
	struct hb_approver *a;
	struct hb_request *req; /* NULL once the broker is gone */
	struct hb_ask ask;
	int outstanding, able; /* messages on their way; people who can decide */
	bool starting;
	struct hb_error first; /* why somebody could not be reached */
};

static void
copy(char *out, size_t size, const char *text)
{
	memset(out, 0, size);
	memccpy(out, text, 0, size - 1);
}

/* Who may approve is every approver's business, whoever is at the page. */
static bool
for_everyone(const struct hb_ask *ask)
{
	return strcmp(ask->feature, "policy") == 0;
}

size_t
hb_recipients(struct hb_approver *a, const struct hb_ask *ask, char (*users)[24], size_t max)
{
	size_t n = 0;

	bool no_self = a->policy_ok && hb_policy_no_self(&a->policy, ask->feature);

	if (ask->quorum <= 1 && !no_self && !for_everyone(ask)) {
		copy(users[0], 24, ask->user_id);
		return 1;
	}
	for (size_t i = 0; a->policy_ok && i < a->policy.live.user_count && n < max; i++)
		if (!no_self || strcmp(a->policy.live.users[i], ask->user_id) != 0)
			copy(users[n++], 24, a->policy.live.users[i]);
	return n;
}

int
hb_may_decide(struct hb_approver *a, const struct hb_ask *ask, const char *user_id, bool approve,
	      struct hb_error *err)
{
	bool self = strcmp(ask->user_id, user_id) == 0, no_self;

	if (approve && hb_control_permits(&a->control, err) < 0)
		return -1;
	if (hb_approver_policy(a, err) < 0 ||
	    hb_policy_permits(&a->policy.live, ask->feature, user_id, err) < 0)
		return -1;
	if (ask->generation != a->policy.live.generation)
		return hb_fail(err, "policy_changed",
			       "the policy changed after this was asked for");
	no_self = hb_policy_no_self(&a->policy, ask->feature);
	if (no_self && self && approve)
		return hb_fail(err, "self_approval",
			       "%s operations can't be approved by whoever asked for them; another "
			       "approver must",
			       ask->feature);
	if (ask->quorum <= 1 && !no_self && !self && !for_everyone(ask))
		return hb_fail(err, "not_a_recipient", "this operation is for user %s to decide",
			       ask->user_id);
	return 0;
}

static void
asking_gone(void *arg)
{
	struct asking *k = arg;

	k->req = NULL;
}

/* Everybody has been reached or not: answer. */
static void
conclude(struct asking *k)
{
	struct hb_approver *a = k->a;
	struct hb_ask now;

	if (k->starting || k->outstanding > 0)
		return;
	if (k->able < k->ask.quorum) {
		if (!*k->first.code)
			hb_fail(&k->first, "no_channel",
				"%d of the %d approvers that are needed can be asked: no bot token "
				"is configured, "
				"or %s (hermes.conf, [approver] console_approvers; live policy)",
				k->able, k->ask.quorum,
				a->policy_ok && hb_policy_no_self(&a->policy, k->ask.feature)
					? "nobody else than the user who asked may approve"
					: "no console approver is the user to be asked");
		hb_log(HB_LOG_WARN, "not_shown", "operation", k->ask.id, "code", k->first.code,
		       "error", k->first.message, NULL);
		hb_ask_close(a->decisions, k->ask.id, HB_ASK_NOT_SHOWN, "It could not be shown.",
			     NULL);
		if (k->req)
			hb_refuse(k->req, &k->first);
	} else if (k->req) {
		/* It may have been closed meanwhile (withdrawn, policy); then saying pending would
		 * be wrong. */
		if (hb_ask_find(a->decisions, k->ask.id, &now, &k->first) < 0 ||
		    (now.state != HB_ASK_PENDING && now.state != HB_ASK_APPROVED &&
		     now.state != HB_ASK_DENIED &&
		     hb_fail(&k->first, "request_closed", "operation %s is %s already", now.id,
			     hb_ask_state_name(now.state)) < 0))
			hb_refuse(k->req, &k->first);
		else
			hb_reply_json(k->req, 200, json_pack("{s:s}", "status", "pending"));
	}
	free(k);
}

static void
shown(const struct hb_error *err, void *arg)
{
	struct asking *k = arg;

	k->outstanding--;
	if (!err)
		k->able++;
	else if (!*k->first.code)
		k->first = *err;
	conclude(k);
}

static void
ask_people(struct asking *k)
{
	char users[HB_POLICY_USERS_MAX][24];
	size_t n = hb_recipients(k->a, &k->ask, users, HB_POLICY_USERS_MAX);

	k->starting = true;
	for (size_t i = 0; i < n; i++) {
		if (hb_console_can(k->a, users[i])) {
			/* A terminal needs no message; the phone may have one as well, but nothing
			 * depends on it. */
			k->able++;
			if (hb_telegram_may_show(k->a->telegram, users[i]))
				hb_telegram_show(k->a->telegram, &k->ask, users[i], NULL, NULL);
		} else if (hb_telegram_may_show(k->a->telegram, users[i])) {
			k->outstanding++;
			hb_telegram_show(k->a->telegram, &k->ask, users[i], shown, k);
		}
	}
	k->starting = false;
	conclude(k);
}

/* Nothing here uses what the broker derived, except to compare. */
static int
check(struct hb_approver *a, const struct request_in *in, struct hb_ask *ask,
      struct hb_buf *summary, struct hb_error *err)
{
	const char *feature = hb_feature_canonical(in->feature);
	int64_t now = hb_now();

	if (!feature || strcmp(feature, in->feature) != 0)
		return hb_fail(err, "unknown_feature", "unknown feature");
	if (strcmp(hb_feature_target(feature), in->target) != 0)
		return hb_fail(err, "wrong_target", "feature %s is not carried out by %s", feature,
			       in->target);
	if (strspn(in->operation_id, "0123456789abcdef") != 32)
		return hb_fail(err, "bad_type", "operation_id is 32 hex digits");
	if (strlen(in->session) >= sizeof(ask->session))
		return hb_fail(err, "out_of_range", "session is longer than %zu bytes",
			       sizeof(ask->session) - 1);
	if (in->expires_at <= now || in->expires_at > now + HB_REQUEST_LIFE_MAX)
		return hb_fail(err, "out_of_range",
			       "expires_at is past or too far ahead; are the clocks right?");
	if (hb_operation_check_sealed(feature, in->request, err) < 0 ||
	    hb_operation_digest(feature, in->request, ask->digest, err) < 0 ||
	    hb_summary(feature, in->request, summary, NULL, err) < 0)
		return -1;
	hb_summary_digest(summary, ask->summary_digest);
	if (strcmp(ask->digest, in->digest) != 0)
		return hb_fail(err, "digest_mismatch",
			       "the digest that came with operation %s is not that of its request",
			       in->operation_id);
	if (strcmp(ask->summary_digest, in->summary_digest) != 0)
		return hb_fail(err, "summary_mismatch",
			       "the broker's summary of operation %s differs from the approver's",
			       in->operation_id);
	if (hb_approver_policy(a, err) < 0 ||
	    hb_policy_permits(&a->policy.live, feature, in->user_id, err) < 0)
		return -1;
	if (in->generation != a->policy.live.generation)
		return hb_fail(err, "old_generation",
			       "the request is of policy generation %lld and %lld is in force",
			       in->generation, (long long)a->policy.live.generation);
	if (hb_bounds_check(a->policy.bounds, feature, in->request, err) < 0 ||
	    hb_floor_check(feature, in->request, err) < 0)
		return -1;
	ask->quorum = hb_policy_quorum(&a->policy.live, a->policy.bounds, feature);
	copy(ask->feature, sizeof(ask->feature), feature);
	copy(ask->target, sizeof(ask->target), in->target);
	copy(ask->action, sizeof(ask->action), hb_operation_action(feature, in->request));
	copy(ask->id, sizeof(ask->id), in->operation_id);
	copy(ask->capability, sizeof(ask->capability), in->capability);
	copy(ask->user_id, sizeof(ask->user_id), in->user_id);
	copy(ask->session, sizeof(ask->session), in->session);
	ask->generation = in->generation;
	ask->created_at = now;
	ask->expires_at = in->expires_at;
	return 0;
}

/* For new questions only: what waits already goes on waiting. Nothing is asked during a pause; and
 * so that nobody can be worn down, not too many at once, and a "no" stands for a while. */
static int
patience(struct hb_approver *a, const struct hb_ask *ask, struct hb_error *err)
{
	int64_t waiting = hb_pending_of(a->decisions, ask->user_id, err), denied;

	if (waiting < 0 || hb_control_permits(&a->control, err) < 0)
		return -1;
	if (waiting >= a->pending_per_user)
		return hb_fail(err, "too_many_pending",
			       "%lld requests for user %s wait for a decision already "
			       "(approver.pending_per_user)",
			       (long long)waiting, ask->user_id);
	denied =
		a->denial_cooldown ? hb_denied_at(a->decisions, ask->digest, ask->user_id, err) : 0;
	if (denied < 0)
		return -1;
	/* A clock that was set back must not make it stand for ever. */
	if (denied > 0 && denied <= hb_now() && denied + a->denial_cooldown > hb_now())
		return hb_fail(
			err, "denied_recently",
			"exactly this operation was denied; it can be asked for again in %lld s",
			(long long)(denied + a->denial_cooldown - hb_now()));
	return 0;
}

/* The same operation again: 1 answered, 0 go on and show it, -1 refused. */
static int
again(struct asking *k, struct hb_error *err)
{
	struct hb_ask old;

	if (hb_ask_find(k->a->decisions, k->ask.id, &old, NULL) < 0)
		return 0;
	if (strcmp(old.digest, k->ask.digest) != 0 ||
	    strcmp(old.capability, k->ask.capability) != 0 ||
	    strcmp(old.user_id, k->ask.user_id) != 0 || strcmp(old.session, k->ask.session) != 0)
		return hb_fail(err, "request_differs",
			       "operation %s was asked about before, and differently", old.id);
	if (old.state == HB_ASK_APPROVED || old.state == HB_ASK_DENIED) {
		hb_grants_tick(k->a); /* the grant is on its way, or goes again */
		return 1;
	}
	if (old.state != HB_ASK_PENDING)
		return hb_fail(err, "request_closed", "operation %s is %s already", old.id,
			       hb_ask_state_name(old.state));
	k->ask = old;
	return 1;
}

static void
alarm_if_forged(struct hb_approver *a, const struct request_in *in, const struct hb_error *err)
{
	struct hb_ask ask = {0};
	bool forged = strcmp(err->code, "digest_mismatch") == 0 ||
		      strcmp(err->code, "summary_mismatch") == 0 ||
		      strcmp(err->code, "request_differs") == 0;

	if (!forged)
		return;
	copy(ask.id, sizeof(ask.id), in->operation_id);
	copy(ask.digest, sizeof(ask.digest), in->digest);
	hb_log(HB_LOG_ERROR, "alarm", "operation", ask.id, "code", err->code, "error", err->message,
	       NULL);
	hb_approver_audit(a, "alarm", "refused", &ask, "why", err->code, NULL);
}

void
hb_route_request(struct hb_request *req, void *ctx)
{
	struct hb_approver *a = ctx;
	struct asking *k = NULL;
	struct request_in in = {0};
	struct hb_buf summary = HB_BUF_INIT;
	struct hb_error err = {0};
	int known;

	if (!hb_secret_ok(a, req))
		return;
	k = hb_calloc(1, sizeof(*k));
	k->a = a;
	k->req = req;
	if (hb_fields_decode(hb_request_json(req), request_fields,
			     sizeof(request_fields) / sizeof(request_fields[0]), &in, &err) < 0 ||
	    check(a, &in, &k->ask, &summary, &err) < 0)
		goto refused;
	known = again(k, &err);
	if (known < 0)
		goto refused;
	if (known > 0) {
		hb_reply_json(req, 200, json_pack("{s:s}", "status", "pending"));
		goto out;
	}
	if (hb_ask_pending(a->decisions) >= HB_PENDING_MAX) {
		hb_fail(&err, "busy", "%d requests are pending already", HB_PENDING_MAX);
		goto refused;
	}
	if (patience(a, &k->ask, &err) < 0 ||
	    hb_ask_insert(a->decisions, &k->ask, summary.data, &err) < 0)
		goto refused;
	hb_log(HB_LOG_DEBUG, "asked", "operation", k->ask.id, "feature", k->ask.feature, "user",
	       k->ask.user_id, NULL);
	hb_buf_free(&summary);
	hb_request_on_close(req, asking_gone, k);
	ask_people(k);
	return;
refused:
	if (in.operation_id && in.digest)
		alarm_if_forged(a, &in, &err);
	hb_log(HB_LOG_WARN, "request_refused", "code", err.code, "error", err.message, NULL);
	hb_refuse(req, &err);
out:
	hb_buf_free(&summary);
	free(k);
}
