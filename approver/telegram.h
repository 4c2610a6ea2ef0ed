/*
 * The Telegram channel. It is off when no bot token is configured; the token file is looked at
 * every second, so a new token takes effect without a restart, and everything issued under another
 * token is void from then on.
 */
#ifndef HB_APPROVER_TELEGRAM_H
#define HB_APPROVER_TELEGRAM_H

#include <jansson.h>
#include <stdbool.h>

#include "approver/decisions.h"
#include "common/error.h"

struct hb_approver;
struct hb_telegram;

int hb_telegram_new(struct hb_approver *a, struct hb_telegram **out, struct hb_error *err);
void hb_telegram_run(struct hb_telegram *t);
void hb_telegram_tick(struct hb_telegram *t);
void hb_telegram_free(struct hb_telegram *t);

/* Could this user be asked by message? (a token is configured, and the user isn't the console's
 * "0") */
bool hb_telegram_may_show(const struct hb_telegram *t, const char *user_id);

/* Get the request before this user's eyes, with buttons. done (may be NULL) is called once, perhaps
 * at once: err NULL when it is shown. Codes: approver_unreachable, rate_limited,
 * not_shown_faithfully, too_long_to_show, busy. */
typedef void (*hb_shown)(const struct hb_error *err, void *arg);
void hb_telegram_show(struct hb_telegram *t, const struct hb_ask *ask, const char *user_id,
		      hb_shown done, void *arg);

/* Messages whose request changed are brought up to date, one at a time. */
void hb_telegram_edits(struct hb_telegram *t);

/* A line to every approver except one ("": to all). */
void hb_telegram_notice(struct hb_telegram *t, const char *except, const char *text);

/* Adds bot_* and last_poll_age to checks; returns what is wrong, or NULL. */
const char *hb_telegram_health(struct hb_telegram *t, json_t *checks);

#endif
