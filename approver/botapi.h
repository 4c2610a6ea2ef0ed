/*
 * Calls of the Telegram Bot API over libcurl, driven by the event loop. Nothing here knows about
 * approvals.
 *
 * The bot token is part of every URL, so no URL is ever logged or put into an error: failures are
 * curl's own words for the error code, and texts from the server are searched for the token.
 * Redirects are not followed (they would carry the token to another host), proxies are not used,
 * certificates are always verified. Plain http is for loopback only.
 */
#ifndef HB_APPROVER_BOTAPI_H
#define HB_APPROVER_BOTAPI_H

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

#define HB_BOT_REPLY_MAX (4 << 20) /* 100 updates of at most a few KB each */

struct hb_bot_reply {
	int http; /* status; 0: no answer, or none that could be read whole */
	bool ok;
	int error_code;	       /* the API's own, or the status */
	int retry_after;       /* seconds; 0: not said */
	char description[256]; /* for people; never holds the token */
	json_t *result;	       /* borrowed; NULL when absent */
};

typedef void (*hb_bot_done)(const struct hb_bot_reply *reply, void *arg);

struct hb_bot;
struct hb_bot_call;

/* https://HOST[:PORT][/PATH], or http:// to a loopback address. Code config_api_base. */
int hb_bot_check_base(const char *api_base, struct hb_error *err);
/* Its TCP port, written or the scheme's: the one that the approver may connect to. */
int hb_bot_port(const char *api_base, uint16_t *port, struct hb_error *err);
int hb_bot_new(struct event_base *base, const char *api_base, const char *ca_file,
	       struct hb_bot **out, struct hb_error *err);
void hb_bot_free(struct hb_bot *bot); /* calls under way are dropped without their callbacks */

/* <digits>:<20 or more of A-Z a-z 0-9 _ -> */
bool hb_bot_token_ok(const char *token);
/* NULL: none. Calls under way go on with the old one; the caller cancels those it doesn't want. */
void hb_bot_set_token(struct hb_bot *bot, const char *token);

/* POST with JSON parameters (stolen). timeout_ms covers the whole call. done is called once, from
 * the loop. */
struct hb_bot_call *hb_bot_call(struct hb_bot *bot, const char *method, json_t *params,
				int timeout_ms, hb_bot_done done, void *arg);
void hb_bot_cancel(struct hb_bot_call *call); /* no callback */

/* Reads one answer; `parsed` (new reference, may be NULL) holds what reply->result points into. */
void hb_bot_read_reply(int http, const char *text, size_t len, const char *token,
		       struct hb_bot_reply *reply, json_t **parsed);
/* Copy text without the token, raw or percent-encoded, and without control characters. */
void hb_bot_scrub(const char *text, const char *token, char *out, size_t size);

/* A tap on a button, as far as it can be one: every part has the right type. */
struct hb_tap {
	char callback_id[64];
	int64_t from_id, chat_id, message_id;
	bool private_chat;
	char data[65];
};
/* update_id of any update; -1 when it has none. */
int64_t hb_update_id(const json_t *update);
/* False when the update is something else. Missing parts are 0 or "". */
bool hb_update_tap(const json_t *update, struct hb_tap *out);

/* Text that somebody wrote to the bot. */
struct hb_said {
	int64_t from_id, chat_id;
	bool private_chat;
	bool foreign;	/* forwarded, or written through another bot: not this person's word */
	char text[256]; /* "" when longer */
};
bool hb_update_said(const json_t *update, struct hb_said *out);

/* The message in a sendMessage answer is the text that was sent, in the private chat with that
 * user. */
bool hb_message_faithful(const json_t *message, const char *text, const char *user_id,
			 int64_t *message_id);

#endif
