/* Bringing the approver up and down, its timers, the policy it goes by, its health. */
#include "approver/approver.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "approver/telegram.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"

#define PRUNE_EVERY 3600 /* ticks */

void
hb_access_refused(const char *why, uid_t uid, const char *path, void *ctx)
{
	struct hb_approver *a = ctx;
	char number[16];
	json_t *detail;

	snprintf(number, sizeof(number), "%d", (int)uid);
	hb_log(HB_LOG_WARN, "refused", "why", why, "uid", number, "path", path, NULL);
	/* One record a second: a stranger must not be able to make us write without end. */
	if (a->refused_audited_at == hb_now()) {
		a->refused_unrecorded++;
		return;
	}
	detail = json_pack("{s:s, s:i, s:s, s:I}", "why", why, "uid", (int)uid, "path", path,
			   "more", (json_int_t)a->refused_unrecorded);
	a->refused_audited_at = hb_now();
	a->refused_unrecorded = 0;
	hb_audit_append(a->process->audit, "access", "refused", detail, NULL);
	json_decref(detail);
}

int
hb_approver_audit(struct hb_approver *a, const char *action, const char *status,
		  const struct hb_ask *ask, const char *key, const char *value,
		  struct hb_error *err)
{
	json_t *detail =
		json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "operation_id", ask->id, "feature",
			  ask->feature, "action", ask->action, "digest", ask->digest, "user_id",
			  ask->user_id, "channel", ask->channel, key, value);
	int rc = hb_audit_append(a->process->audit, action, status, detail, err);

	json_decref(detail);
	return rc;
}

static void
revoke_older(struct hb_approver *a, int64_t generation)
{
	char(*ids)[HB_OP_ID];
	size_t count;
	char note[128];

	if (hb_ask_ids(a->decisions, HB_A_OLD_POLICY, generation, HB_PENDING_MAX, &ids, &count,
		       NULL) < 0)
		return;
	snprintf(note, sizeof(note), "The policy changed (generation %lld).",
		 (long long)generation);
	for (size_t i = 0; i < count; i++)
		hb_ask_close(a->decisions, ids[i], HB_ASK_REVOKED, note, NULL);
	free(ids);
	if (count && a->telegram)
		hb_telegram_edits(a->telegram);
}

static int
reload_policy(struct hb_approver *a, struct hb_error *err)
{
	struct hb_policy_view fresh = {0};
	bool had = a->policy_ok;
	int64_t before = had ? a->policy.live.generation : -1;

	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &fresh, err) < 0)
		goto bad;
	if (hb_decisions_see_generation(a->decisions, fresh.live.generation, err) < 0) {
		hb_policy_view_free(&fresh);
		goto bad;
	}
	if (had)
		hb_policy_view_free(&a->policy);
	a->policy = fresh;
	a->policy_ok = true;
	if (before != fresh.live.generation)
		revoke_older(a, fresh.live.generation);
	return 0;
bad:
	if (had)
		hb_policy_view_free(&a->policy);
	a->policy_ok = false;
	a->policy_error = *err;
	hb_log(HB_LOG_ERROR, "policy_unusable", "code", err->code, "error", err->message, NULL);
	return -1;
}

int
hb_approver_policy(struct hb_approver *a, struct hb_error *err)
{
	struct hb_error local;

	if (!err)
		err = &local;
	if (hb_policy_changed(&a->stamp))
		return reload_policy(a, err);
	if (a->policy_ok)
		return 0;
	*err = a->policy_error;
	return -1;
}

static void
expire(struct hb_approver *a)
{
	char(*ids)[HB_OP_ID];
	size_t count;

	if (hb_ask_ids(a->decisions, HB_A_DUE, hb_now(), 1000, &ids, &count, NULL) < 0)
		return;
	for (size_t i = 0; i < count; i++)
		hb_ask_close(a->decisions, ids[i], HB_ASK_EXPIRED, "Nobody decided in time.", NULL);
	free(ids);
}

static void
tick(evutil_socket_t fd, short what, void *arg)
{
	struct hb_approver *a = arg;
	struct hb_error err;

	hb_approver_policy(a, NULL);
	hb_approver_key(a, &err);
	hb_control_tick(a);
	expire(a);
	hb_grants_tick(a);
	hb_telegram_tick(a->telegram);
	hb_checkpoint_tick(a);
	hb_reviews_tick(a);
	if (a->ticks++ % PRUNE_EVERY == 0)
		hb_decisions_prune(a->decisions, hb_now() - (int64_t)HB_KEEP_DAYS * 86400, NULL);
}

int
hb_approver_open(struct hb_process *p, struct hb_approver **out, struct hb_error *err)
{
	struct hb_approver *a = hb_calloc(1, sizeof(*a));
	struct hb_error policy_error;

	a->process = p;
	a->secret.path = HB_PATH_APPROVER_APPROVAL_SECRET;
	a->grant_life = hb_config_int(p->config, "broker.grant_life");
	a->pending_per_user = hb_config_int(p->config, "approver.pending_per_user");
	a->denial_cooldown = hb_config_int(p->config, "approver.denial_cooldown");
	/* Read now: once confined, /etc is out of reach. */
	tzset();
	/* The policy may be mended while we run and a bot token may come later; the rest must be
	 * right now. */
	if (hb_console_parse(p->config, a->console, &a->console_count, err) < 0 ||
	    hb_approver_key(a, err) < 0 ||
	    hb_secret_watch(&a->secret, err) < 0 ||
	    hb_decisions_open(HB_PATH_APPROVER_DB, &a->decisions, err) < 0 ||
	    hb_telegram_new(a, &a->telegram, err) < 0) {
		hb_approver_close(a);
		return -1;
	}
	hb_approver_policy(a, &policy_error);
	*out = a;
	return 0;
}

int
hb_approver_run(struct hb_process *p, struct hb_approver *a, struct hb_error *err)
{
	struct timeval second = {1, 0};

	a->tick = event_new(p->base, -1, EV_PERSIST, tick, a);
	if (!a->tick || event_add(a->tick, &second) < 0)
		return hb_fail(err, "internal", "no timer could be made");
	if (hb_control_start(a, err) < 0)
		return -1;
	expire(a);
	hb_telegram_run(a->telegram);
	hb_grants_tick(a);
	return 0;
}

void
hb_approver_close(struct hb_approver *a)
{
	if (!a)
		return;
	if (a->tick)
		event_free(a->tick);
	hb_telegram_free(a->telegram);
	hb_secret_unwatch(&a->secret);
	hb_signing_key_free(a->key);
	if (a->policy_ok)
		hb_policy_view_free(&a->policy);
	hb_decisions_close(a->decisions);
	free(a);
}

json_t *
hb_approver_health(struct hb_approver *a)
{
	json_t *bot = json_object(), *health, *checks;
	const char *bot_error = hb_telegram_health(a->telegram, bot), *error = NULL, *trouble;
	char alarm[400];
	struct hb_error err;

	if (hb_approver_policy(a, &err) < 0 || hb_secret_watch(&a->secret, &err) < 0)
		error = err.message;
	else if ((trouble = hb_approver_key_trouble(a)) ||
		 (trouble = hb_heads_alarm(a, alarm, sizeof(alarm))))
		error = trouble;
	else if (a->policy.live.user_count == 0)
		error = "no user may approve anything: the list of execution users is empty";
	else if (bot_error)
		error = bot_error;
	else if (!json_is_true(json_object_get(bot, "bot_configured")) && a->console_count == 0)
		error = "nobody can be asked: no bot token is configured and no console approver "
			"is listed";
	health = hb_process_health(a->process, error);
	checks = json_object_get(health, "checks");
	json_object_update(checks, bot);
	json_decref(bot);
	json_object_set_new(checks, "pending", json_integer(hb_ask_pending(a->decisions)));
	json_object_set_new(checks, "console_approvers",
			    json_integer((json_int_t)a->console_count));
	json_object_set_new(checks, "key_id", json_string(hb_signing_key_public(a->key)->id));
	json_object_set_new(checks, "paused", json_boolean(a->control.paused));
	json_object_set_new(checks, "control_sequence", json_integer(a->control.sequence));
	json_object_set_new(checks, "policy_generation",
			    json_integer(a->policy_ok ? a->policy.live.generation : 0));
	return health;
}
