/*
 * A request becomes a message with buttons, in three steps.
 *
 *   sendMessage             plain text, no buttons
 *   compare                 the text Telegram says it keeps is byte for byte what was sent, in that
 * user's private chat editMessageReplyMarkup  only then the buttons
 *
 * Each message has its own random token, which the buttons carry. A sendMessage without an answer
 * may have arrived: its token is void and one more message is tried. Nothing here decides; a token
 * only finds its row.
 */
#include <stdlib.h>
#include <string.h>

#include "approver/telegram_internal.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "common/utf8.h"
#include "policy/summary.h"

#define SENDS_MAX 2   /* the second only after one that wasn't answered */
#define MARKUPS_MAX 3 /* setting buttons twice does no harm */
#define PAUSE_MS 500

struct hb_show {
	LIST_ENTRY(hb_show) link;
	struct hb_telegram *t;
	struct hb_message m;
	char *text;
	int sends, markups;
	bool have_message;
	int64_t deadline_ms;
	struct event *timer; /* next try */
	struct hb_bot_call *call;
	hb_shown done;
	void *arg;
};

static void send_message(struct hb_show *s);
static void set_buttons(struct hb_show *s);

size_t
hb_utf16_length(const char *text)
{
	const char *end = text + strlen(text);
	size_t n = 0;

	while (text < end)
		n += hb_utf8_next(&text, end) > 0xFFFF ? 2 : 1;
	return n;
}

int
hb_message_text(struct hb_approver *a, const struct hb_ask *ask, struct hb_buf *out,
		struct hb_error *err)
{
	char *summary = hb_ask_summary(a->decisions, ask->id, err);
	char until[48], left[48] = "";
	int64_t seconds = ask->expires_at - hb_now();
	size_t len, end;

	if (!summary)
		return -1;
	hb_local_time(ask->expires_at, until, sizeof(until));
	/* Only while it can be decided: in an old message it would be wrong. */
	if (ask->state == HB_ASK_PENDING && seconds > 0)
		snprintf(left, sizeof(left), " (%lld min left)", (long long)((seconds + 59) / 60));
	hb_buf_printf(out, "Approval request\n\n%s", summary);
	free(summary);
	for (end = out->len; end > 0 && out->data[end - 1] == '\n'; end--)
		out->data[end - 1] = 0;
	out->len = end;
	hb_buf_printf(out, "\n\nAsked for user %s, session ", ask->user_id);
	hb_escape_value(ask->session, out);
	hb_buf_printf(out,
		      "\nDecide until %s%s\nOperation %s\nDigest %s\nPolicy generation %lld, "
		      "approvals needed: %d",
		      until, left, ask->id, ask->digest, (long long)ask->generation, ask->quorum);
	len = hb_utf16_length(out->data);
	if (len > HB_TEXT_MAX)
		return hb_fail(err, "too_long_to_show",
			       "the message would be %zu characters long, %d can be shown", len,
			       HB_TEXT_MAX);
	return 0;
}

json_t *
hb_buttons(const char *token)
{
	char approve[80], deny[80];

	snprintf(approve, sizeof(approve), "a:%s", token);
	snprintf(deny, sizeof(deny), "d:%s", token);
	return json_pack("{s:[[{s:s, s:s}, {s:s, s:s}]]}", "inline_keyboard", "text",
			 "Approve once", "callback_data", approve, "text", "Deny", "callback_data",
			 deny);
}

static void
show_free(struct hb_show *s)
{
	LIST_REMOVE(s, link);
	s->t->show_count--;
	if (s->call)
		hb_bot_cancel(s->call);
	event_free(s->timer);
	free(s->text);
	free(s);
}

static void
show_end(struct hb_show *s, const struct hb_error *err)
{
	struct hb_decisions *d = s->t->a->decisions;
	hb_shown done = s->done;
	void *arg = s->arg;

	if (err) {
		s->m.state = HB_MSG_VOID;
		s->m.edit_due = s->m.message_id != 0;
		hb_log(HB_LOG_WARN, "message_not_shown", "operation", s->m.id, "user", s->m.user_id,
		       "code", err->code, "error", err->message, NULL);
	} else {
		s->m.state = HB_MSG_SHOWN;
	}
	hb_message_save(d, &s->m, NULL);
	hb_telegram_edits(s->t);
	show_free(s);
	if (done)
		done(err, arg);
}

__attribute__((format(printf, 3, 4))) static void
show_fail(struct hb_show *s, const char *code, const char *fmt, ...)
{
	struct hb_error err;
	va_list ap;

	va_start(ap, fmt);
	hb_vfail(&err, code, fmt, ap);
	va_end(ap);
	show_end(s, &err);
}

static void
again_in(struct hb_show *s, int64_t ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};

	event_add(s->timer, &tv);
}

static void
due(evutil_socket_t fd, short what, void *arg)
{
	struct hb_show *s = arg;

	if (s->have_message)
		set_buttons(s);
	else
		send_message(s);
}

static int
time_for_call(const struct hb_show *s)
{
	int64_t left = s->deadline_ms - hb_monotonic_ms();

	return left < 1 ? 0 : left < HB_CALL_MS ? (int)left : HB_CALL_MS;
}

/* True when the call can be made now; else it has been put off or given up. */
static bool
may_call(struct hb_show *s, enum hb_bot_method method)
{
	int64_t wait = hb_method_wait(s->t, method);

	if (!hb_bot_usable(s->t)) {
		show_fail(s, "approver_unreachable", "the bot can't be used: %s",
			  *s->t->advice ? s->t->advice
					: "no poll of the Bot API has succeeded for too long");
	} else if (hb_monotonic_ms() + wait >= s->deadline_ms) {
		show_fail(s, wait ? "rate_limited" : "approver_unreachable",
			  wait ? "Telegram limits messages of this bot for %lld more seconds"
			       : "the message could not be delivered in time (%lld)",
			  (long long)(wait / 1000));
	} else if (wait > 0) {
		again_in(s, wait + 1);
	} else {
		return true;
	}
	return false;
}

/* What a refused call means whatever the step. False: not handled here. */
static bool
common_refusal(struct hb_show *s, enum hb_bot_method method, const struct hb_bot_reply *r)
{
	switch (r->error_code) {
	case 429:
		hb_method_block(s->t, method, r->retry_after);
		again_in(s, 0); /* may_call waits or gives up */
		return true;
	case 401:
	case 404:
		show_fail(s, "approver_unreachable", "Telegram does not accept the bot token");
		return true;
	case 403:
		show_fail(s, "approver_unreachable",
			  "user %s can't be reached by the bot (%s): they must open the bot in "
			  "Telegram and press Start, and not block it",
			  s->m.user_id, r->description);
		return true;
	default:
		return false;
	}
}

/* Says at least that something was refused; has no buttons and needs no answer. */
static void
notice_done(const struct hb_bot_reply *r, void *arg)
{
}

static void
send_notice(struct hb_telegram *t, const struct hb_message *m)
{
	char text[256];

	snprintf(text, sizeof(text),
		 "A request could not be shown here as it is, so it was refused. Nothing was run.\n"
		 "Operation %s",
		 m->id);
	hb_bot_call(t->bot, "sendMessage",
		    json_pack("{s:s, s:s}", "chat_id", m->user_id, "text", text), HB_CALL_MS,
		    notice_done, NULL);
}

static void
buttons_set(const struct hb_bot_reply *r, void *arg)
{
	struct hb_show *s = arg;

	s->call = NULL;
	if (r->ok || (r->error_code == 400 && strstr(r->description, "not modified"))) {
		hb_log(HB_LOG_INFO, "shown", "operation", s->m.id, "user", s->m.user_id, NULL);
		show_end(s, NULL);
	} else if (!common_refusal(s, HB_M_MARKUP, r)) {
		if (s->markups < MARKUPS_MAX && (r->http == 0 || r->http >= 500))
			again_in(s, PAUSE_MS);
		else
			show_fail(s, "approver_unreachable",
				  "Telegram did not take the buttons: %s",
				  *r->description ? r->description : "no answer");
	}
}

static void
set_buttons(struct hb_show *s)
{
	struct hb_ask ask;
	json_t *params;

	if (!may_call(s, HB_M_MARKUP))
		return;
	if (hb_ask_find(s->t->a->decisions, s->m.id, &ask, NULL) < 0 ||
	    ask.state != HB_ASK_PENDING) {
		show_fail(s, "request_closed", "operation %s was closed meanwhile", s->m.id);
		return;
	}
	s->markups++;
	params = json_pack("{s:s, s:I, s:o}", "chat_id", s->m.user_id, "message_id",
			   (json_int_t)s->m.message_id, "reply_markup", hb_buttons(s->m.token));
	s->call = hb_bot_call(s->t->bot, "editMessageReplyMarkup", params, time_for_call(s),
			      buttons_set, s);
}

/* No answer: the message may be there. Its token is dead from now on, one more is tried with a new
 * one. */
static void
unanswered(struct hb_show *s, const struct hb_bot_reply *r)
{
	struct hb_decisions *d = s->t->a->decisions;
	struct hb_error err;

	if (s->sends >= SENDS_MAX) {
		show_fail(s, "approver_unreachable", "the Bot API does not answer: %s",
			  *r->description ? r->description : "server error");
		return;
	}
	s->m.state = HB_MSG_VOID;
	if (hb_message_save(d, &s->m, &err) < 0) {
		show_end(s, &err);
		return;
	}
	s->m.state = HB_MSG_SENDING;
	hb_random_hex(HB_TAP_TOKEN_BYTES, s->m.token);
	if (hb_message_insert(d, &s->m, &err) < 0)
		show_end(s, &err);
	else
		again_in(s, PAUSE_MS);
}

static void
message_sent(const struct hb_bot_reply *r, void *arg)
{
	struct hb_show *s = arg;
	struct hb_error err;
	bool faithful;

	s->call = NULL;
	if (!r->ok) {
		if (common_refusal(s, HB_M_SEND, r))
			return;
		if (r->http == 0 || r->http >= 500) {
			unanswered(s, r);
		} else if (strstr(r->description, "chat not found")) {
			show_fail(s, "approver_unreachable",
				  "user %s has no chat with the bot: they must open it in Telegram "
				  "and press Start",
				  s->m.user_id);
		} else {
			send_notice(s->t, &s->m);
			show_fail(s, "not_shown_faithfully",
				  "Telegram did not take the message: %s", r->description);
		}
		return;
	}
	faithful = hb_message_faithful(r->result, s->text, s->m.user_id, &s->m.message_id);
	if (!faithful) {
		show_fail(s, "not_shown_faithfully",
			  "Telegram altered the text of the message, so it can't be approved");
		return;
	}
	s->have_message = true;
	s->m.state = HB_MSG_SENT;
	if (hb_message_save(s->t->a->decisions, &s->m, &err) < 0)
		show_end(s, &err);
	else
		set_buttons(s);
}

static void
send_message(struct hb_show *s)
{
	json_t *params;

	if (!may_call(s, HB_M_SEND))
		return;
	s->sends++;
	params = json_pack("{s:s, s:s, s:{s:b}}", "chat_id", s->m.user_id, "text", s->text,
			   "link_preview_options", "is_disabled", 1);
	s->call = hb_bot_call(s->t->bot, "sendMessage", params, time_for_call(s), message_sent, s);
}

bool
hb_show_under_way(const struct hb_telegram *t, const char *id, const char *user_id)
{
	const struct hb_show *s;

	LIST_FOREACH(s, &t->shows, link)
		if (strcmp(s->m.id, id) == 0 && strcmp(s->m.user_id, user_id) == 0)
			return true;
	return false;
}

void
hb_telegram_show(struct hb_telegram *t, const struct hb_ask *ask, const char *user_id,
		 hb_shown done, void *arg)
{
	struct hb_show *s;
	struct hb_buf text = HB_BUF_INIT;
	struct hb_error err;

	if (t->show_count >= HB_SHOW_MAX) {
		hb_fail(&err, "busy", "%d messages are on their way already", HB_SHOW_MAX);
		goto refused;
	}
	if (hb_message_text(t->a, ask, &text, &err) < 0)
		goto refused;
	s = hb_calloc(1, sizeof(*s));
	s->t = t;
	s->done = done;
	s->arg = arg;
	s->text = hb_buf_take(&text);
	s->deadline_ms = hb_monotonic_ms() + HB_SHOW_BUDGET_MS;
	s->timer = evtimer_new(t->a->process->base, due, s);
	memcpy(s->m.id, ask->id, sizeof(s->m.id));
	memccpy(s->m.user_id, user_id, 0, sizeof(s->m.user_id) - 1);
	memcpy(s->m.bot, t->fp, sizeof(s->m.bot));
	hb_random_hex(HB_TAP_TOKEN_BYTES, s->m.token);
	s->m.state = HB_MSG_SENDING;
	LIST_INSERT_HEAD(&t->shows, s, link);
	t->show_count++;
	/* The row is there before the message can be: a tap always finds what it belongs to. */
	if (hb_message_insert(t->a->decisions, &s->m, &err) < 0)
		show_end(s, &err);
	else
		send_message(s);
	return;
refused:
	hb_buf_free(&text);
	if (done)
		done(&err, arg);
}

void
hb_shows_abort(struct hb_telegram *t, const char *why)
{
	for (struct hb_show *s = LIST_FIRST(&t->shows), *next; s; s = next) {
		next = LIST_NEXT(s, link);
		show_fail(s, "approver_unreachable", "%s", why);
	}
}

void
hb_shows_free(struct hb_telegram *t)
{
	for (struct hb_show *s = LIST_FIRST(&t->shows), *next; s; s = next) {
		next = LIST_NEXT(s, link);
		show_free(s);
	}
}
