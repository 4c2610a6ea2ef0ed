/*
 * Answers and notices: small messages without a decision in them. One is sent at a time; the queue
 * is short, and what doesn't fit or can't be delivered after a few tries is dropped, with a line in
 * the log. Requests for decisions never wait behind them (show.c).
 */
#include <stdlib.h>
#include <string.h>

#include "approver/telegram_internal.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define QUEUE_MAX 64 /* all approvers once, for a pause */
#define TRIES_MAX 5
#define RETRY_MS 2000
#define MESSAGE_MAX 4096 /* UTF-16 units */

struct hb_reply {
	TAILQ_ENTRY(hb_reply) next;
	char user[24];
	char *text;
	char token[65]; /* of a button, or "" */
	int tries;
};

static void reply_next(struct hb_telegram *t);

static void
reply_free(struct hb_telegram *t, struct hb_reply *r)
{
	TAILQ_REMOVE(&t->replies, r, next);
	t->reply_count--;
	free(r->text);
	free(r);
}

static void
sent(const struct hb_bot_reply *answer, void *arg)
{
	struct hb_telegram *t = arg;
	struct hb_reply *r = TAILQ_FIRST(&t->replies);

	t->reply_call = NULL;
	if (answer->ok) {
		/* The button counts only on the message that has it. */
		if (*r->token && strcmp(r->token, t->resume.token) == 0)
			t->resume.message_id = hb_json_int(answer->result, "message_id", 0);
		reply_free(t, r);
	} else if (answer->error_code == 429) {
		hb_method_block(t, HB_M_SEND, answer->retry_after);
	} else if (answer->http != 0 && answer->http < 500) {
		hb_log(HB_LOG_WARN, "reply_refused", "user", r->user, "error", answer->description,
		       NULL);
		reply_free(t, r);
	} else {
		if (++r->tries >= TRIES_MAX) {
			hb_log(HB_LOG_WARN, "reply_dropped", "user", r->user, "error",
			       answer->description, NULL);
			reply_free(t, r);
		}
		t->reply_not_before_ms = hb_monotonic_ms() + RETRY_MS;
	}
	reply_next(t);
}

static void
reply_next(struct hb_telegram *t)
{
	struct hb_reply *r = TAILQ_FIRST(&t->replies);
	json_t *params;

	if (!r || t->reply_call || !*t->fp || !hb_bot_usable(t) ||
	    hb_method_wait(t, HB_M_SEND) > 0 || hb_monotonic_ms() < t->reply_not_before_ms)
		return;
	params = json_pack("{s:s, s:s, s:{s:b}}", "chat_id", r->user, "text", r->text,
			   "link_preview_options", "is_disabled", 1);
	if (*r->token) {
		char data[80];

		snprintf(data, sizeof(data), "r:%s", r->token);
		json_object_set_new(params, "reply_markup",
				    json_pack("{s:[[{s:s, s:s}]]}", "inline_keyboard", "text",
					      "Resume", "callback_data", data));
	}
	t->reply_call = hb_bot_call(t->bot, "sendMessage", params, HB_CALL_MS, sent, t);
}

void
hb_reply_send(struct hb_telegram *t, const char *user, struct hb_buf *text, const char *token)
{
	struct hb_reply *r;

	if (!*t->fp || t->reply_count >= QUEUE_MAX || strcmp(user, "0") == 0) {
		hb_buf_free(text);
		return;
	}
	if (hb_utf16_length(text->data) > MESSAGE_MAX) {
		hb_buf_free(text);
		hb_buf_adds(text,
			    "The answer is too long for one message; use hermesctl on the host.");
	}
	r = hb_calloc(1, sizeof(*r));
	memccpy(r->user, user, 0, sizeof(r->user) - 1);
	if (token)
		memccpy(r->token, token, 0, sizeof(r->token) - 1);
	r->text = hb_buf_take(text);
	TAILQ_INSERT_TAIL(&t->replies, r, next);
	t->reply_count++;
	reply_next(t);
}

void
hb_telegram_notice(struct hb_telegram *t, const char *except, const char *text)
{
	struct hb_approver *a = t->a;
	struct hb_buf copy;

	for (size_t i = 0; a->policy_ok && i < a->policy.live.user_count; i++) {
		if (strcmp(a->policy.live.users[i], except) == 0)
			continue;
		copy = (struct hb_buf)HB_BUF_INIT;
		hb_buf_adds(&copy, text);
		hb_reply_send(t, a->policy.live.users[i], &copy, NULL);
	}
}

void
hb_replies_tick(struct hb_telegram *t)
{
	reply_next(t);
}

/* The token is gone, or we are. */
void
hb_replies_drop(struct hb_telegram *t)
{
	struct hb_reply *r;

	if (t->reply_call)
		hb_bot_cancel(t->reply_call);
	t->reply_call = NULL;
	while ((r = TAILQ_FIRST(&t->replies)))
		reply_free(t, r);
	memset(&t->resume, 0, sizeof(t->resume));
}
