/*
 * What the files of admin share.
 *
 *   main.c      start, routes, sandbox        auth.c      Host, origin, key: before any route
 *   edit.c      changes of live policy        widen.c     those that wait for an approver's grant
 *                                             secrets.c   bot token, control secret: handed on, never read
 *   status.c    what every service says       metrics.c   the same for Prometheus
 *   relay.c     operations, runtime           events.c    changes as server-sent events
 *   history.c   what policy and health were   audit.c     the audit view
 *   page.c      the Operations Center page, from the binary
 */
#ifndef HB_ADMIN_ADMIN_H
#define HB_ADMIN_ADMIN_H

#include <event2/event.h>
#include <sys/queue.h>

#include "common/fs.h"
#include "common/ledger.h"
#include "common/process.h"
#include "policy/live.h"

#define ADMIN_NAMES_MAX 4     /* ways to write the addresses it listens on */
#define ADMIN_LISTENERS_MAX 16 /* event streams at once: a few open pages */

struct admin_history; /* history.c */
struct admin_events;  /* events.c */

struct admin {
	struct hb_process *process;
	char names[ADMIN_NAMES_MAX][96];   /* HOST:PORT as a browser writes it */
	size_t name_count;
	int wrong_keys;                    /* since the last right one */
	int64_t locked_until;              /* monotonic ms: wrong keys cost growing time */
	int64_t refused_audited_at;
	long long refused_unrecorded;
	long long requests, refusals, key_failures; /* since start, for /metrics */
	struct hb_ledger *ledger; /* of changes that approvers granted */
	struct admin_history *history;
	struct admin_events *events;
	struct event *tick;
	int64_t ticks;
	struct hb_policy_stamp stamp;
};

/* Host, origin and key, in this order, before any route is looked at (auth.c). False: answered already. */
bool admin_before(struct hb_request *req, void *ctx);
void admin_refused(const char *why, uid_t uid, const char *path, void *ctx);
/* The header names whose count and value decide, judged byte for byte; pure, for tests. */
bool admin_listed(const char *text, const char (*allowed)[96], size_t count);
bool admin_origin_listed(const char *origin, const char *const *allowed, size_t count);

/* Answers {"error": text, "code": code} (WIRE: an error is a string). */
void admin_refuse(struct hb_request *req, int status, const char *code, const char *text);

/* A record of who did what, at most one a second for what a stranger can cause. */
void admin_audit_refusal(struct admin *a, const char *why, const char *path);

/* status.c: every service's health and the runtime, asked at once. done gets both (borrowed; runtime may be NULL). */
typedef void (*admin_gathered)(json_t *services, json_t *runtime, void *arg);
void admin_gather(struct admin *a, admin_gathered done, void *arg);
json_t *admin_security(struct admin *a);
/* Our own failure to read key or policy, for /health. */
int admin_self_check(struct admin *a, struct hb_error *err);

/* history.c */
struct admin_history *admin_history_open(void);
void admin_history_free(struct admin_history *h);
void admin_history_policy(struct admin_history *h, const struct hb_policy *live, const char *by);
/* True when this differs from the last known state. */
bool admin_history_health(struct admin_history *h, const json_t *runtime);
json_t *admin_history_health_list(const struct admin_history *h); /* newest first; new reference */

/* events.c: to whoever listens; data is stolen. */
struct admin_events *admin_events_new(struct admin *a);
void admin_events_free(struct admin_events *e);
void admin_events_tick(struct admin_events *e);
void admin_events_send(struct admin_events *e, const char *event, json_t *data);
size_t admin_events_listeners(const struct admin_events *e);
/* The whole stream, or (id not NULL) one operation's until it is final. */
void admin_events_listen(struct admin_events *e, struct hb_request *req, const char *id);

/* relay.c: an operation without its text, its session and its output. New reference. */
json_t *admin_operation_view(const json_t *operation);
bool admin_state_final(const char *state);

/* edit.c: {"status":"ok","policy_generation":N}; the generation is also told to listeners and history. */
json_t *admin_changed(struct admin *a, const struct hb_policy *after);

/* widen.c: does `after` let more be asked or approved than `before`? */
bool admin_widens(const struct hb_policy *before, const struct hb_policy *after);
/* Ask the approvers for it; answers pending_approval, or why not. */
void admin_widen_ask(struct admin *a, struct hb_request *req, const struct hb_policy *before,
		     const struct hb_policy *after);

#define ADMIN_HANDLER(name) void name(struct hb_request *req, void *ctx)
ADMIN_HANDLER(admin_health);
ADMIN_HANDLER(admin_status);
ADMIN_HANDLER(admin_audit);
ADMIN_HANDLER(admin_audit_chain);
ADMIN_HANDLER(admin_put_features);
ADMIN_HANDLER(admin_put_users);
ADMIN_HANDLER(admin_put_runtime);
ADMIN_HANDLER(admin_put_bot_token);
ADMIN_HANDLER(admin_clear_bot_token);
ADMIN_HANDLER(admin_rotate_control_secret);
ADMIN_HANDLER(admin_operations);
ADMIN_HANDLER(admin_operation);
ADMIN_HANDLER(admin_runtime);
ADMIN_HANDLER(admin_policy);
ADMIN_HANDLER(admin_stream);
ADMIN_HANDLER(admin_metrics);
ADMIN_HANDLER(admin_page);
ADMIN_HANDLER(admin_seal);
ADMIN_HANDLER(admin_execute);
ADMIN_HANDLER(admin_execution);

/* page.c: is this the path of one of the page's files? They need no key. */
bool admin_is_page(const char *path);

#endif
