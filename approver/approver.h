/*
 * The approver's own state, shared by its files.
 *
 *   routes.c     what may be called             requests.c  a request checked again, from nothing
 *   console.c    decisions in a terminal        telegram.c  the bot: token, polling, taps
 *   show.c       a request into a message       edit.c      messages kept true afterwards
 *   grants.c     signing and delivery           decisions.c, messages.c  the database
 *   botapi.c, botapi_read.c  the Bot API        approver.c  start, timers, policy
 *   control.c    pause, resume, revoke; keys    checkpoint.c  heads of audit chains, receipts
 *   commands.c   what approvers write           words.c     what they are answered
 *   reviews.c    what is due, told weekly
 *   replies.c    answers and notices            records.c   outcomes, control and heads in the
 * database
 */
#ifndef HB_APPROVER_APPROVER_H
#define HB_APPROVER_APPROVER_H

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>

#include <sys/stat.h>

#include "approver/decisions.h"
#include "approver/records.h"
#include "common/keys.h"
#include "common/process.h"
#include "common/watched_secret.h"
#include "policy/live.h"

/* Limits, each with its reason. */
#define HB_PENDING_MAX 65536	  /* as many as the broker keeps; bounds the database */
#define HB_CONSOLE_MAX 32	  /* console approvers, as common/process.c takes */
#define HB_CONSOLE_LIST_MAX 100	  /* pending requests in one answer */
#define HB_SHOW_MAX 64		  /* messages on their way at once: nobody reads more */
#define HB_SHOW_BUDGET_MS 20000	  /* to get a request shown; the broker waits 25 s */
#define HB_REQUEST_LIFE_MAX 86400 /* seconds a request may ask to stay pending */
#define HB_TEXT_MAX 3900	  /* of a message; Telegram's 4096 less room for the outcome */
#define HB_KEEP_DAYS 30
#define HB_REVOKED_KEEP 60 /* seconds a single revocation outlives the grant it is about */

struct hb_telegram;

struct hb_console_user {
	uid_t uid;
	char user_id[24];
};

struct hb_approver {
	struct hb_process *process;
	struct hb_decisions *decisions;
	struct hb_signing_key *key;
	struct hb_watched_secret secret;
	struct hb_policy_stamp stamp;
	struct hb_policy_view policy;
	bool policy_ok;
	struct hb_error policy_error;
	struct hb_console_user console[HB_CONSOLE_MAX];
	size_t console_count;
	struct hb_telegram *telegram;
	long long grant_life, pending_per_user, denial_cooldown;
	struct hb_control control; /* as in the database */
	bool control_due;	   /* its signed form has to be written */
	struct stat key_seen;
	struct hb_error key_error; /* why the key file can't be used (any more) */
	bool checkpoint_due;
	int64_t checkpoint_at, checkpoint_own; /* when, and our own sequence after it */
	struct event *tick;
	int64_t ticks;
	int64_t reviews_look_ms; /* monotonic; when reviews are looked at next */
	/* delivery of grants */
	int delivering, delivery_fails;
	int64_t deliver_not_before;
	char delivering_ids[8][HB_OP_ID];
	int64_t refused_audited_at, refused_unrecorded;
};

/* approver.c */
int hb_approver_open(struct hb_process *p, struct hb_approver **out, struct hb_error *err);
int hb_approver_run(struct hb_process *p, struct hb_approver *a, struct hb_error *err);
void hb_approver_close(struct hb_approver *a);
int hb_approver_policy(struct hb_approver *a, struct hb_error *err);
/* Record; -1 when that failed, and then what was to be done must not be done. */
int hb_approver_audit(struct hb_approver *a, const char *action, const char *status,
		      const struct hb_ask *ask, const char *key, const char *value,
		      struct hb_error *err);
void hb_access_refused(const char *why, uid_t uid, const char *path, void *ctx);
json_t *hb_approver_health(struct hb_approver *a);
int hb_console_parse(const struct hb_config *config, struct hb_console_user *users, size_t *count,
		     struct hb_error *err);

/* routes.c */
extern const struct hb_route hb_approver_routes[];
extern const size_t hb_approver_route_count;
void hb_refuse(struct hb_request *req, const struct hb_error *err); /* 200 with error and code */
bool hb_secret_ok(struct hb_approver *a, struct hb_request *req);

/* requests.c */
void hb_route_request(struct hb_request *req, void *ctx);
/* May this user decide so about that request? Policy as it is now. */
int hb_may_decide(struct hb_approver *a, const struct hb_ask *ask, const char *user_id,
		  bool approve, struct hb_error *err);
/* Users who must be asked. Returns how many. */
size_t hb_recipients(struct hb_approver *a, const struct hb_ask *ask, char (*users)[24],
		     size_t max);

/* console.c */
void hb_route_console_pending(struct hb_request *req, void *ctx);
void hb_route_console_decide(struct hb_request *req, void *ctx);
void hb_route_console_control(struct hb_request *req, void *ctx);
void hb_route_console_receipt(struct hb_request *req, void *ctx);
void hb_route_console_checkpoint(struct hb_request *req, void *ctx);
bool hb_console_can(struct hb_approver *a, const char *user_id);

/* control.c: user is on the list of approvers already. Code not_paused, request_closed; what stops
 * things may fail to be published (then it is tried again) and counts here all the same. */
int hb_control_start(struct hb_approver *a, struct hb_error *err);
void hb_control_tick(struct hb_approver *a);
int hb_control_pause(struct hb_approver *a, const char *user, const char *channel,
		     const struct hb_update_mark *mark, struct hb_error *err);
int hb_control_resume(struct hb_approver *a, const char *user, const char *channel,
		      const struct hb_update_mark *mark, struct hb_error *err);
int hb_control_revoke(struct hb_approver *a, const char *id, const char *user, const char *channel,
		      const struct hb_update_mark *mark, struct hb_error *err);
int hb_control_revoke_all(struct hb_approver *a, const char *user, const char *channel,
			  const struct hb_update_mark *mark, size_t *denied, struct hb_error *err);
/* The signing key, read again when its file changed. */
int hb_approver_key(struct hb_approver *a, struct hb_error *err);
const char *hb_approver_key_trouble(struct hb_approver *a); /* or NULL */

/* checkpoint.c */
/* {process: {seq, hash, at}}; accept: root says that a chain that went back is explained. */
int hb_heads_take(struct hb_approver *a, json_t *heads, bool accept, struct hb_error *err);
const char *hb_heads_alarm(struct hb_approver *a, char *text, size_t size); /* or NULL */
/* "Witness: approver 12 0123456789ab", and what is known of the others, on the same line. */
void hb_witness(const struct hb_audit_head *own, struct hb_buf *out);
void hb_witness_others(struct hb_approver *a, struct hb_buf *out);
int hb_checkpoint_now(struct hb_approver *a, struct hb_error *err);
void hb_checkpoint_tick(struct hb_approver *a);
/* Signed; NULL with err (not_decided). */
json_t *hb_receipt(struct hb_approver *a, const char *id, struct hb_error *err);

/* words.c: plain text for people; every value from outside is escaped. */
void hb_local_time(int64_t t, char *out, size_t size); /* "2025-06-01 14:05:10 CEST" */
void hb_words_help(struct hb_buf *out);
void hb_words_pending(struct hb_approver *a, struct hb_buf *out);
void hb_words_status(struct hb_approver *a, struct hb_buf *out);
void hb_words_history(struct hb_approver *a, struct hb_buf *out);
int hb_words_receipt(struct hb_approver *a, const char *id, struct hb_buf *out,
		     struct hb_error *err);

/* token.c: a new bot token, or none */
void hb_route_bot_token(struct hb_request *req, void *ctx);
void hb_route_bot_token_clear(struct hb_request *req, void *ctx);

/* reviews.c */
void hb_reviews_tick(struct hb_approver *a);

/* grants.c */
void hb_grants_tick(struct hb_approver *a);

#endif
