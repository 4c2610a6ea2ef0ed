/*
 * The bot: its token, its state, and the long poll that brings taps.
 *
 * One poll is under way at any time, with a deadline above the long-poll time, so that a dead
 * connection is noticed. What goes wrong becomes a state with advice, logged when it changes and
 * not each time; polling slows down, and while the bot can't be relied on (token rejected, somebody
 * else reading its updates) new requests are refused.
 */
#include "approver/telegram.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "approver/telegram_internal.h"
#include "common/digest.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"

/* A server that doesn't hold the poll must not be asked in a circle */
#define EMPTY_POLL_PAUSE_MS 500
#define NETWORK_BACKOFF_MAX_MS 30000
#define CONFLICT_BACKOFF_MAX_MS 60000
#define REJECTED_BACKOFF_MAX_MS 300000
/* A last good poll older than deadline and this is a fault in itself */
#define STALE_SLACK_SECONDS 60

static const char *const state_words[] = {
	[HB_BOT_OFF] = "off",
	[HB_BOT_STARTING] = "starting",
	[HB_BOT_OK] = "ok",
	[HB_BOT_REJECTED] = "token_rejected",
	[HB_BOT_OTHER_POLLER] = "conflict_other_poller",
	[HB_BOT_WEBHOOK] = "conflict_webhook",
	[HB_BOT_LIMITED] = "rate_limited",
	[HB_BOT_UNREACHABLE] = "unreachable",
};

static void poll_start(struct hb_telegram *t);

void
hb_bot_state_set(struct hb_telegram *t, enum hb_bot_state state, const char *advice)
{
	bool news = t->state != state;

	t->state = state;
	snprintf(t->advice, sizeof(t->advice), "%s", advice);
	if (!news)
		return;
	t->since_ms = hb_monotonic_ms();
	hb_log(state == HB_BOT_OK || state == HB_BOT_OFF || state == HB_BOT_STARTING ? HB_LOG_INFO
										     : HB_LOG_WARN,
	       "bot_state", "state", state_words[state], "advice", advice, NULL);
	if (state == HB_BOT_OTHER_POLLER) {
		struct hb_ask nothing = {0};

		/* Whoever else has the token could also send messages in our name. */
		hb_approver_audit(t->a, "telegram", "failed", &nothing, "why",
				  "another_program_uses_the_token", NULL);
	}
}

static int
poll_deadline_ms(const struct hb_telegram *t)
{
	return t->poll_timeout * 1000 + (t->poll_timeout < 10 ? 3000 : 10000);
}

/* Also when nothing failed: silence is a fault too. */
static bool
stale(const struct hb_telegram *t)
{
	int64_t silent = (hb_monotonic_ms() - (t->last_ok_ms ? t->last_ok_ms : t->since_ms)) / 1000;

	return silent > poll_deadline_ms(t) / 1000 + STALE_SLACK_SECONDS;
}

bool
hb_bot_usable(const struct hb_telegram *t)
{
	return !stale(t) && t->state != HB_BOT_OFF && t->state != HB_BOT_REJECTED &&
	       t->state != HB_BOT_OTHER_POLLER && t->state != HB_BOT_WEBHOOK;
}

void
hb_method_block(struct hb_telegram *t, enum hb_bot_method m, int seconds)
{
	int64_t until = hb_monotonic_ms() + (int64_t)(seconds > 0 ? seconds : 1) * 1000;

	if (until > t->blocked_until_ms[m])
		t->blocked_until_ms[m] = until;
}

int64_t
hb_method_wait(const struct hb_telegram *t, enum hb_bot_method m)
{
	int64_t left = t->blocked_until_ms[m] - hb_monotonic_ms();

	return left > 0 ? left : 0;
}

/* ---- polling
 * ------------------------------------------------------------------------------------- */

static void
poll_in(struct hb_telegram *t, int64_t ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};

	event_add(t->poll_timer, &tv);
}

/* Doubling from `first`, with a quarter of jitter so that several hosts don't keep step. */
static int64_t
backoff(int fails, int64_t first, int64_t max)
{
	int64_t ms = first << (fails < 10 ? fails : 10);

	if (ms > max)
		ms = max;
	return ms + (int64_t)(hb_monotonic_ms() % (ms / 4 + 1));
}

struct numbered {
	int64_t id;
	const json_t *update;
};

static int
by_id(const void *x, const void *y)
{
	const struct numbered *a = x, *b = y;

	return a->id < b->id ? -1 : a->id > b->id;
}

/* In the order of their numbers, whatever order they came in. -1: the database would not take one.
 */
static int
take_updates(struct hb_telegram *t, const json_t *updates)
{
	size_t n = json_array_size(updates);
	struct numbered *sorted = hb_calloc(n + 1, sizeof(*sorted));
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		sorted[i] = (struct numbered){hb_update_id(json_array_get(updates, i)),
					      json_array_get(updates, i)};
	qsort(sorted, n, sizeof(*sorted), by_id);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = hb_update_take(t, sorted[i].update);
	free(sorted);
	return rc;
}

/* Requests that were pending when the token changed or we restarted get a message they can be
 * decided on. */
static void
show_again(struct hb_telegram *t)
{
	struct hb_approver *a = t->a;
	char(*ids)[HB_OP_ID], users[HB_POLICY_USERS_MAX][24];
	struct hb_message m;
	struct hb_ask ask;
	size_t count, n;

	if (hb_ask_ids(a->decisions, HB_A_PENDING, hb_now(), HB_SHOW_MAX, &ids, &count, NULL) < 0)
		return;
	t->reshown = true;
	for (size_t i = 0; i < count; i++) {
		if (hb_ask_find(a->decisions, ids[i], &ask, NULL) < 0)
			continue;
		n = hb_recipients(a, &ask, users, HB_POLICY_USERS_MAX);
		for (size_t k = 0; k < n; k++)
			if (hb_telegram_may_show(t, users[k]) &&
			    !hb_show_under_way(t, ids[i], users[k]) &&
			    hb_message_shown(a->decisions, ids[i], users[k], t->fp, &m, NULL) == 0)
				hb_telegram_show(t, &ask, users[k], NULL, NULL);
	}
	free(ids);
}

static void
poll_ok(struct hb_telegram *t, const json_t *updates)
{
	bool none = json_array_size(updates) == 0;
	bool at_once = hb_monotonic_ms() - t->poll_started_ms < EMPTY_POLL_PAUSE_MS;

	t->poll_fails = 0;
	t->last_ok_ms = hb_monotonic_ms();
	hb_bot_state_set(t, HB_BOT_OK, "");
	if (take_updates(t, updates) < 0)
		poll_in(t, 2000);
	else
		poll_in(t, none && at_once ? EMPTY_POLL_PAUSE_MS : 0);
	if (!t->reshown)
		show_again(t);
	hb_telegram_edits(t);
}

static void
poll_failed(struct hb_telegram *t, const struct hb_bot_reply *r)
{
	char advice[256];
	int fails = t->poll_fails++;

	switch (r->error_code) {
	case 401:
	case 404:
		hb_bot_state_set(
			t, HB_BOT_REJECTED,
			"Telegram does not know the bot token (any more): set the right one with "
			"set-execution-approval-bot-token");
		poll_in(t, backoff(fails, 5000, REJECTED_BACKOFF_MAX_MS));
		return;
	case 409:
		if (strstr(r->description, "webhook"))
			hb_bot_state_set(
				t, HB_BOT_WEBHOOK,
				"a webhook is set for this bot, so its updates go elsewhere: "
				"remove "
				"it (deleteWebhook) if it is yours; it is not removed by itself");
		else
			hb_bot_state_set(
				t, HB_BOT_OTHER_POLLER,
				"SECURITY: another program uses this bot token; stop it, or "
				"revoke the token with @BotFather and set a new one");
		poll_in(t, backoff(fails, 2000, CONFLICT_BACKOFF_MAX_MS));
		return;
	case 429:
		hb_bot_state_set(t, HB_BOT_LIMITED,
				 "Telegram limits how often this bot may ask; waiting as it says");
		hb_method_block(t, HB_M_POLL, r->retry_after);
		poll_in(t, hb_method_wait(t, HB_M_POLL));
		return;
	default:
		snprintf(advice, sizeof(advice), "the Bot API can't be reached: %.180s",
			 *r->description ? r->description : "no answer");
		hb_bot_state_set(t, HB_BOT_UNREACHABLE, advice);
		poll_in(t, backoff(fails, 1000, NETWORK_BACKOFF_MAX_MS));
	}
}

static void
poll_done(const struct hb_bot_reply *r, void *arg)
{
	struct hb_telegram *t = arg;

	t->poll = NULL;
	if (r->ok && json_is_array(r->result))
		poll_ok(t, r->result);
	else
		poll_failed(t, r);
}

static void
poll_start(struct hb_telegram *t)
{
	json_t *params;

	if (t->poll || t->state == HB_BOT_OFF)
		return;
	params = json_pack("{s:i, s:[s,s]}", "timeout", t->poll_timeout, "allowed_updates",
			   "callback_query", "message");
	if (t->offset > 0 && hb_now() - t->seen_at < HB_OFFSET_AGE_SECONDS)
		json_object_set_new(params, "offset", json_integer(t->offset));
	t->poll_started_ms = hb_monotonic_ms();
	t->poll = hb_bot_call(t->bot, "getUpdates", params, poll_deadline_ms(t), poll_done, t);
}

static void
poll_due(evutil_socket_t fd, short what, void *arg)
{
	poll_start(arg);
}

/* ---- the token
 * ----------------------------------------------------------------------------------- */

static void
stop_using(struct hb_telegram *t, const char *why)
{
	if (t->poll)
		hb_bot_cancel(t->poll);
	t->poll = NULL;
	if (t->edit)
		hb_bot_cancel(t->edit);
	t->edit = NULL;
	event_del(t->poll_timer);
	hb_shows_abort(t, why);
	hb_replies_drop(t);
	memset(t->fp, 0, sizeof(t->fp));
	memset(t->blocked_until_ms, 0, sizeof(t->blocked_until_ms));
	t->poll_fails = t->edit_fails = 0;
	t->edit_not_before_ms = t->last_ok_ms = 0;
	t->reshown = false;
}

static void
start_using(struct hb_telegram *t, const char *token)
{
	char hex[HB_HEX256];
	size_t digits = strcspn(token, ":");
	struct hb_error err;

	hb_sha256_hex(token, strlen(token), hex);
	memcpy(t->fp, hex, 16);
	memset(t->bot_id, 0, sizeof(t->bot_id));
	memcpy(t->bot_id, token, digits < sizeof(t->bot_id) ? digits : sizeof(t->bot_id) - 1);
	hb_bot_set_token(t->bot, token);
	/* Nothing that was issued under another token, or was half sent, may decide anything. */
	if (hb_messages_void(t->a->decisions, t->fp, &err) < 0 ||
	    hb_offset_get(t->a->decisions, t->bot_id, &t->offset, &t->seen_at, &err) < 0) {
		hb_log(HB_LOG_ERROR, "bot_not_started", "error", err.message, NULL);
		t->token_error = err;
		hb_bot_state_set(t, HB_BOT_OFF, err.message);
		return;
	}
	hb_bot_state_set(t, HB_BOT_STARTING, "");
	poll_start(t);
}

/* A file that is simply absent means "no bot"; one that can't be used is an error that health
 * shows. */
static void
check_token(struct hb_telegram *t)
{
	struct hb_error err;
	struct stat st;

	if (hb_secret_watch(&t->token, &err) < 0) {
		bool absent = fstatat(AT_FDCWD, t->token.path, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
			      errno == ENOENT;
		bool news = *t->fp || strcmp(t->token_error.message, err.message) != 0;

		if (absent)
			memset(&t->token_error, 0, sizeof(t->token_error));
		else
			t->token_error = err;
		if (*t->fp)
			stop_using(t, "the bot token was removed");
		if (!absent && news)
			hb_log(HB_LOG_ERROR, "bot_token_unusable", "code", err.code, "error",
			       err.message, NULL);
		hb_bot_state_set(t, HB_BOT_OFF, absent ? "" : err.message);
		return;
	}
	if (t->token.changes == t->token_seen)
		return;
	t->token_seen = t->token.changes;
	stop_using(t, "the bot token was changed");
	if (!hb_bot_token_ok(t->token.secret.text)) {
		hb_fail(&t->token_error, "bot_token_malformed",
			"%s does not hold a bot token (digits, a colon, 20 or more "
			"letters)",
			t->token.path);
		hb_log(HB_LOG_ERROR, "bot_token_unusable", "code", t->token_error.code, "error",
		       t->token_error.message, NULL);
		hb_bot_state_set(t, HB_BOT_OFF, t->token_error.message);
		return;
	}
	memset(&t->token_error, 0, sizeof(t->token_error));
	start_using(t, t->token.secret.text);
}

/* ---- life
 * ----------------------------------------------------------------------------------------- */

int
hb_telegram_new(struct hb_approver *a, struct hb_telegram **out, struct hb_error *err)
{
	const struct hb_config *config = a->process->config;
	struct hb_telegram *t = hb_calloc(1, sizeof(*t));

	t->a = a;
	t->token.path = HB_PATH_BOT_TOKEN;
	t->poll_timeout = (int)hb_config_int(config, "approver.poll_timeout");
	LIST_INIT(&t->shows);
	TAILQ_INIT(&t->replies);
	if (hb_bot_new(a->process->base, hb_config_text(config, "approver.api_base"),
		       hb_config_text(config, "approver.ca_file"), &t->bot, err) < 0) {
		free(t);
		return -1;
	}
	t->poll_timer = evtimer_new(a->process->base, poll_due, t);
	*out = t;
	return 0;
}

void
hb_telegram_run(struct hb_telegram *t)
{
	check_token(t);
}

void
hb_telegram_tick(struct hb_telegram *t)
{
	check_token(t);
	hb_telegram_edits(t);
	hb_replies_tick(t);
}

void
hb_telegram_free(struct hb_telegram *t)
{
	if (!t)
		return;
	hb_shows_free(t);
	hb_replies_drop(t);
	event_free(t->poll_timer);
	hb_bot_free(t->bot);
	hb_secret_unwatch(&t->token);
	free(t);
}

bool
hb_telegram_may_show(const struct hb_telegram *t, const char *user_id)
{
	return t->state != HB_BOT_OFF && strcmp(user_id, "0") != 0;
}

const char *
hb_telegram_health(struct hb_telegram *t, json_t *checks)
{
	int64_t now = hb_monotonic_ms();
	int64_t age = t->last_ok_ms ? (now - t->last_ok_ms) / 1000 : -1;

	json_object_set_new(checks, "bot_configured", json_boolean(t->state != HB_BOT_OFF));
	json_object_set_new(checks, "bot_state", json_string(state_words[t->state]));
	json_object_set_new(checks, "last_poll_age", json_integer(age));
	if (t->state == HB_BOT_OFF)
		return *t->token_error.code ? t->token_error.message : NULL;
	if (t->state != HB_BOT_OK && t->state != HB_BOT_STARTING)
		return t->advice;
	if (stale(t))
		return "no poll of the Bot API has succeeded for too long";
	return NULL;
}
