/*
 * A tap counts when everything about it fits: an unguessable token of this bot token, from the user
 * it was sent to, in the private chat with that user, on that very message, while the request is
 * pending, by somebody the policy allows now. Anything else changes nothing, is answered neutrally
 * and recorded. The decision and the update's number are one transaction, so an update that comes
 * twice finds itself done.
 */
#include <stdlib.h>
#include <string.h>

#include "approver/telegram_internal.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define TAP_HEX (2 * HB_TAP_TOKEN_BYTES)

static void
answered(const struct hb_bot_reply *r, void *arg)
{
	struct hb_telegram *t = arg;

	/* "query is too old" and the like: the decision stands whether or not the phone stops its
	 * spinner. */
	if (!r->ok && r->error_code == 429)
		hb_method_block(t, HB_M_ANSWER, r->retry_after);
}

static void
answer(struct hb_telegram *t, const struct hb_tap *tap, const char *text)
{
	if (!*tap->callback_id || hb_method_wait(t, HB_M_ANSWER) > 0)
		return;
	hb_bot_call(t->bot, "answerCallbackQuery",
		    json_pack("{s:s, s:s}", "callback_query_id", tap->callback_id, "text", text),
		    HB_CALL_MS, answered, t);
}

/* At most one record a second: anybody can tap as often as they like. */
void
hb_foreign_refused(struct hb_telegram *t, int64_t from_id, const char *why, const char *id)
{
	struct hb_approver *a = t->a;
	char from[32];
	json_t *detail;

	snprintf(from, sizeof(from), "%lld", (long long)from_id);
	hb_log(HB_LOG_WARN, "tap_refused", "why", why, "from", from, "operation", id, NULL);
	if (a->refused_audited_at == hb_now()) {
		a->refused_unrecorded++;
		return;
	}
	detail = json_pack("{s:s, s:s, s:s, s:I}", "why", why, "from", from, "operation_id", id,
			   "more", (json_int_t)a->refused_unrecorded);
	a->refused_audited_at = hb_now();
	a->refused_unrecorded = 0;
	hb_audit_append(a->process->audit, "tap", "refused", detail, NULL);
	json_decref(detail);
}

static void
record_refused(struct hb_telegram *t, const struct hb_tap *tap, const char *why, const char *id)
{
	hb_foreign_refused(t, tap->from_id, why, id);
}

static const char *
closed_text(enum hb_ask_state state)
{
	switch (state) {
	case HB_ASK_APPROVED:
		return "This was approved before; this tap changed nothing.";
	case HB_ASK_DENIED:
		return "This was denied before. Nothing was run.";
	case HB_ASK_WITHDRAWN:
		return "Withdrawn. Nothing was run.";
	case HB_ASK_REVOKED:
		return "The policy changed since. Nothing was run.";
	default:
		return "Expired. Nothing was run.";
	}
}

/* Why the tap doesn't belong to the message, or NULL. */
static const char *
foreign(const struct hb_telegram *t, const struct hb_tap *tap, const struct hb_message *m)
{
	char from[32];

	snprintf(from, sizeof(from), "%lld", (long long)tap->from_id);
	if (tap->from_id <= 0 || strcmp(from, m->user_id) != 0)
		return "wrong_user";
	if (!tap->private_chat || tap->chat_id != tap->from_id)
		return "wrong_chat";
	if (m->message_id != 0 && tap->message_id != m->message_id)
		return "wrong_message";
	if (strcmp(m->bot, t->fp) != 0)
		return "other_token";
	return NULL;
}

/* 1: decided, the offset is stored with it. 0: not. -1: the database failed. */
static int
decide(struct hb_telegram *t, const struct hb_tap *tap, const struct hb_message *m,
       const struct hb_update_mark *mark)
{
	struct hb_approver *a = t->a;
	bool approve = tap->data[0] == 'a';
	struct hb_error err;
	struct hb_ask ask;
	const char *text;

	if (hb_ask_find(a->decisions, m->id, &ask, &err) < 0)
		return strcmp(err.code, "unknown_operation") == 0 ? 0 : -1;
	if (ask.state == HB_ASK_PENDING && ask.expires_at > hb_now() && m->state == HB_MSG_VOID) {
		record_refused(t, tap, "superseded", m->id);
		answer(t, tap, "Superseded by a newer message. Nothing was run.");
		return 0;
	}
	if (ask.state == HB_ASK_PENDING && hb_may_decide(a, &ask, m->user_id, approve, &err) < 0) {
		record_refused(t, tap, err.code, m->id);
		answer(t, tap,
		       strcmp(err.code, "paused") == 0
			       ? "Paused: nothing can be approved. Nothing was run."
			       : "This can't be decided by you now. Nothing was run.");
		return 0;
	}
	if (hb_decide(a->decisions, m->id, m->user_id, approve, "telegram", hb_now(), mark, &ask,
		      &err) == 0) {
		hb_log(HB_LOG_INFO, "decided", "operation", m->id, "decision",
		       approve ? "approved" : "denied", "user", m->user_id, "channel", "telegram",
		       NULL);
		answer(t, tap, approve ? "Approved once." : "Denied. Nothing will be run.");
		hb_grants_tick(a);
		return 1;
	}
	if (strcmp(err.code, "already_decided") == 0)
		text = "You have decided about this already.";
	else if (strcmp(err.code, "request_closed") == 0)
		text = closed_text(ask.state);
	else
		return -1;
	record_refused(t, tap, err.code, m->id);
	answer(t, tap, text);
	return 0;
}

/* As decide(). */
static int
take_tap(struct hb_telegram *t, const struct hb_tap *tap, const struct hb_update_mark *mark)
{
	struct hb_message m;
	const char *why = NULL;
	struct hb_error err;
	const char *text;
	int found, rc;

	if (strncmp(tap->data, "r:", 2) == 0 && strlen(tap->data) == 2 + TAP_HEX) {
		rc = hb_resume_tap(t, tap, mark, &text);
		answer(t, tap, text);
		return rc;
	}
	if ((strncmp(tap->data, "a:", 2) != 0 && strncmp(tap->data, "d:", 2) != 0) ||
	    strlen(tap->data) != 2 + TAP_HEX) {
		record_refused(t, tap, "unknown_button", "");
		answer(t, tap, "This button is unknown. Nothing was run.");
		return 0;
	}
	found = hb_message_by_token(t->a->decisions, tap->data + 2, &m, &err);
	if (found < 0)
		return -1;
	why = found ? foreign(t, tap, &m) : "unknown_token";
	/* An honest old button of the same person is told so; anybody else learns nothing. */
	if (why) {
		record_refused(t, tap, why, found ? m.id : "");
		answer(t, tap,
		       strcmp(why, "unknown_token") == 0 || strcmp(why, "other_token") == 0
			       ? "Expired. Nothing was run."
			       : "This button is not yours. Nothing was run.");
		return 0;
	}
	return decide(t, tap, &m, mark);
}

int
hb_update_take(struct hb_telegram *t, const json_t *update)
{
	struct hb_update_mark mark = {.bot = t->bot_id, .update_id = hb_update_id(update)};
	bool aged = t->offset > 0 && hb_now() - t->seen_at >= HB_OFFSET_AGE_SECONDS;
	struct hb_error err;
	struct hb_tap tap;
	struct hb_said said;
	int rc = 0;

	if (mark.update_id < 0 || (mark.update_id < t->offset && !aged))
		return 0; /* seen before, or nothing of Telegram's */
	if (hb_update_tap(update, &tap))
		rc = take_tap(t, &tap, &mark);
	else if (hb_update_said(update, &said))
		rc = hb_command_take(t, &said, &mark);
	if (rc == 0 && hb_offset_set(t->a->decisions, &mark, hb_now(), &err) < 0)
		rc = -1;
	if (rc < 0) {
		hb_log(HB_LOG_ERROR, "update_not_taken", NULL);
		return -1;
	}
	t->offset = mark.update_id + 1;
	t->seen_at = hb_now();
	return 0;
}
