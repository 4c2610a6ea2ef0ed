/*
 * The approver's own state, shared by its files.
 *
 *   routes.c     what may be called             requests.c  a request checked again, from nothing
 *   console.c    decisions in a terminal        telegram.c  the bot: token, polling, taps
 *   show.c       a request into a message       edit.c      messages kept true afterwards
 *   grants.c     signing and delivery           decisions.c, messages.c  the database
 *   botapi.c, botapi_read.c  the Bot API        approver.c  start, timers, policy
 */
#ifndef HB_APPROVER_APPROVER_H
#define HB_APPROVER_APPROVER_H

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>

#include "approver/decisions.h"
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
	long long grant_life;
	struct event *tick;
	int64_t ticks;
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
/* May this user decide about that request? Policy as it is now. */
int hb_may_decide(struct hb_approver *a, const struct hb_ask *ask, const char *user_id,
		  struct hb_error *err);
/* Users who must be asked. Returns how many. */
size_t hb_recipients(struct hb_approver *a, const struct hb_ask *ask, char (*users)[24],
		     size_t max);

/* console.c */
void hb_route_console_pending(struct hb_request *req, void *ctx);
void hb_route_console_decide(struct hb_request *req, void *ctx);
bool hb_console_can(struct hb_approver *a, const char *user_id);

/* grants.c */
void hb_grants_tick(struct hb_approver *a);

#endif
