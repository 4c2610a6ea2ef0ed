/* What the files of the Telegram channel share; nobody else includes it. */
#ifndef HB_APPROVER_TELEGRAM_INTERNAL_H
#define HB_APPROVER_TELEGRAM_INTERNAL_H

#include <sys/queue.h>

#include "approver/approver.h"
#include "approver/botapi.h"
#include "approver/telegram.h"
#include "common/buf.h"

enum hb_bot_state {
	HB_BOT_OFF,	 /* no token */
	HB_BOT_STARTING, /* a token, and no answer yet */
	HB_BOT_OK,
	HB_BOT_REJECTED,     /* 401 or 404: the token is not (any more) one */
	HB_BOT_OTHER_POLLER, /* 409: somebody else reads this bot's updates */
	HB_BOT_WEBHOOK,	     /* 409: a webhook is set */
	HB_BOT_LIMITED,	     /* 429 on polling */
	HB_BOT_UNREACHABLE   /* no answer, or none that makes sense */
};

/* Rate limits are said per method, so they are kept per method. */
enum hb_bot_method { HB_M_POLL, HB_M_SEND, HB_M_MARKUP, HB_M_EDIT, HB_M_ANSWER, HB_M_COUNT };

/* 192 random bits; "a:" and 48 hex digits are within Telegram's 64 bytes */
#define HB_TAP_TOKEN_BYTES 24
#define HB_CALL_MS 8000 /* one method call, other than the poll */

/* After a week without updates Telegram numbers anew, so an older offset means nothing. */
#define HB_OFFSET_AGE_SECONDS (6 * 86400LL)

struct hb_show;
struct hb_reply;

/* The second tap that ends a pause. Kept in memory only: after a restart the button is dead, and it
 * stays paused. */
struct hb_resume {
	char token[65], user[24];
	int64_t message_id, until_ms;
};

struct hb_telegram {
	struct hb_approver *a;
	struct hb_bot *bot;
	struct hb_watched_secret token;
	unsigned token_seen;
	struct hb_error token_error; /* why there is no token although a file is there */
	char fp[17];		     /* first 16 hex of SHA-256 of the token; "" when off */
	char bot_id[24];	     /* digits before ':' */
	enum hb_bot_state state;
	char advice[256];
	/* polling */
	struct hb_bot_call *poll;
	struct event *poll_timer;
	int poll_timeout, poll_fails;
	int64_t poll_started_ms, last_ok_ms, since_ms;
	int64_t offset, seen_at;
	bool reshown; /* pending requests have messages by this token */
	int64_t blocked_until_ms[HB_M_COUNT];
	LIST_HEAD(hb_show_list, hb_show) shows;
	int show_count;
	/* edits */
	struct hb_bot_call *edit;
	struct hb_message editing;
	char edit_version[320]; /* what the edit under way says */
	int edit_fails;
	int64_t edit_not_before_ms;
	/* answers to commands, notices */
	TAILQ_HEAD(hb_reply_list, hb_reply) replies;
	size_t reply_count;
	struct hb_bot_call *reply_call;
	int64_t reply_not_before_ms;
	struct hb_resume resume;
};

void hb_bot_state_set(struct hb_telegram *t, enum hb_bot_state state, const char *advice);
bool hb_bot_usable(const struct hb_telegram *t);
/* Notes a 429 for the method; milliseconds until it may be used, 0: now. */
void hb_method_block(struct hb_telegram *t, enum hb_bot_method m, int seconds);
int64_t hb_method_wait(const struct hb_telegram *t, enum hb_bot_method m);

/* show.c */
void hb_shows_abort(struct hb_telegram *t, const char *why); /* the token is gone */
bool hb_show_under_way(const struct hb_telegram *t, const char *id, const char *user_id);
void hb_shows_free(struct hb_telegram *t);
/* The message, without what became of it. */
int hb_message_text(struct hb_approver *a, const struct hb_ask *ask, struct hb_buf *out,
		    struct hb_error *err);
json_t *hb_buttons(const char *token);
size_t hb_utf16_length(const char *text);

/* edit.c */
void hb_status_line(struct hb_approver *a, const struct hb_ask *ask, const struct hb_message *m,
		    struct hb_buf *out);

/* replies.c: text is taken; token: of a "Resume" button, or NULL */
void hb_reply_send(struct hb_telegram *t, const char *user, struct hb_buf *text, const char *token);
void hb_replies_tick(struct hb_telegram *t);
void hb_replies_drop(struct hb_telegram *t);

/* commands.c: 1 the offset was stored with the effect, 0 it was not, -1 the database failed */
int hb_command_take(struct hb_telegram *t, const struct hb_said *said,
		    const struct hb_update_mark *mark);
int hb_resume_tap(struct hb_telegram *t, const struct hb_tap *tap,
		  const struct hb_update_mark *mark, const char **answer);

/* taps.c: recorded, at most once a second */
void hb_foreign_refused(struct hb_telegram *t, int64_t from, const char *why, const char *id);
/* taps.c: 0 done with it (offset stored), -1: the database failed, ask for it again later */
int hb_update_take(struct hb_telegram *t, const json_t *update);

#endif
