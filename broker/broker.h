/*
 * The front door's own state, shared by its files. It can do nothing itself: it checks, stores and
 * routes.
 *
 *   routes.c     what clients may call          prepare.c   seal, store, ask for a decision
 *   execute.c    clients that wait              events.c    server-sent events, and who is told of
 * a change flow.c       the state machine, grants      run.c       drives an executor through one
 *  control.c  pause, keys, silence, heads
 *   receipts.c   all there is of one operation, for root
 *   outbox.c     what the approver must hear    services.c  health of the others access.c
 * secret, policy                 operations.c  the table
 */
#ifndef HB_BROKER_BROKER_H
#define HB_BROKER_BROKER_H

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "broker/operations.h"
#include "common/keys.h"
#include "common/process.h"
#include "common/watched_secret.h"
#include "policy/control.h"
#include "policy/live.h"

/* Limits, each with its reason. */
#define HB_PENDING_MAX 65536	    /* not final: bounds the database (5 KB each) */
#define HB_ACTIVE_PER_EXECUTOR 4    /* run at once; broker.queue_max more may wait */
#define HB_OUTPUT_MAX 12000	    /* characters of output a client gets: the last ones */
#define HB_KEEPALIVE_SECONDS 10	    /* between white space; clients give up on silence */
#define HB_SEAL_TIMEOUT_MS 25000    /* a client gives up on /prepare after 30 s */
#define HB_REQUEST_TIMEOUT_MS 25000 /* the approver may have to wait for the Bot API */
#define HB_CALL_TIMEOUT_MS 10000
#define HB_LISTEN_MAX 7 /* TCP addresses; a client needs two */
#define HB_KEEP_DAYS 30 /* final operations older than this are removed */

struct hb_watcher; /* events.c: a client that waits or listens */
struct hb_run;	   /* run.c: one operation at an executor */

enum hb_service { HB_SVC_APPROVER, HB_SVC_INSTALLER, HB_SVC_DOCKER, HB_SVC_SSH, HB_SVC_COUNT };

struct hb_service_state {
	enum hb_peer peer;
	bool expected, asked, reachable, ok;
	int64_t checked_at, started_at;
	struct hb_audit_head
		head; /* of its audit chain, as it said at checked_at; seq 0: not said */
	char error[HB_ERROR_MESSAGE_MAX];
	struct hb_client_call *call;
	struct hb_broker *broker;
};

struct hb_broker {
	struct hb_process *process;
	struct hb_store *store;
	struct hb_keyring keys; /* as they were when last read */
	struct hb_watched_secret control, approval;
	struct hb_policy_stamp stamp;
	struct hb_policy_view policy;
	bool policy_ok;
	struct hb_error policy_error;
	LIST_HEAD(hb_watcher_list, hb_watcher) watchers;
	LIST_HEAD(hb_run_list, hb_run) runs;
	struct hb_service_state services[HB_SVC_COUNT];
	struct event *tick;
	int64_t ticks;
	/* the approver's own word: pause and revocations (control.c) */
	struct hb_control word;
	bool word_ok;
	struct hb_error word_error;
	int64_t word_seen; /* the highest sequence: it never goes back */
	long long approver_silence;
	int64_t approver_heard_ms; /* monotonic: when the approver last answered */
	bool coalesce;
	/* outbox */
	int64_t heads_sent_at;
	json_t *heads_sent; /* what the approver knows of audit chains */
	bool heads_inflight;
	int outbox_inflight, outbox_fails;
	int64_t outbox_not_before;
	char outbox_ids[8][HB_OP_ID];
	/* refusals are audited, but a stranger must not be able to make us write without end */
	int64_t refused_audited_at;
	int64_t refused_unrecorded;
	long long pending_life, queue_max;
	bool tcp;
};

/* access.c */
/* admin, by its uid: asks for changes of policy, and for nothing else. */
bool hb_broker_is_admin(const struct hb_request *req);
/* True when the caller may go on; otherwise it has been answered. */
bool hb_access_ok(struct hb_broker *b, struct hb_request *req);
void hb_access_refused(const char *why, uid_t uid, const char *path, void *ctx);
/* Present policy, reloaded if a file changed; revokes what an older generation left pending. */
int hb_broker_policy(struct hb_broker *b, struct hb_error *err);
void hb_broker_audit(struct hb_broker *b, const char *action, const char *status,
		     const struct hb_op *op, const char *why);

/* control.c */
/* Keys, pause and revocations as they are now; revokes approvals that the approver has taken back.
 */
void hb_broker_control(struct hb_broker *b);
/* May something be prepared or begun? Codes paused, control_unusable, control_went_back,
 * approver_silent. */
int hb_broker_ready(struct hb_broker *b, struct hb_error *err);
void hb_broker_heard(struct hb_broker *b); /* the approver answered */
json_t *hb_broker_heads(struct hb_broker *b); /* {process: {seq, hash, at}} */
void hb_broker_send_heads(struct hb_broker *b);

/* receipts.c */
void hb_route_receipt(struct hb_request *req, void *ctx);

/* routes.c */
extern const struct hb_route hb_broker_routes[];
extern const size_t hb_broker_route_count;
void hb_refuse(struct hb_request *req, const struct hb_error *err); /* 200 with error and code */

/* prepare.c, execute.c, events.c */
void hb_route_prepare(struct hb_request *req, void *ctx);
void hb_route_execute(struct hb_request *req, void *ctx);
void hb_route_events(struct hb_broker *b, struct hb_request *req, const char *id);
void hb_watch_execute(struct hb_broker *b, struct hb_request *req, const struct hb_op *op);
void hb_watchers_changed(struct hb_broker *b, const struct hb_op *op);
void hb_watchers_progress(struct hb_broker *b, const char *id, const json_t *progress);
void hb_watchers_refuse(struct hb_broker *b, const char *id,
			const struct hb_error *err); /* waiting clients only */
void hb_watchers_tick(struct hb_broker *b);
void hb_watchers_free(struct hb_broker *b);
json_t *hb_execute_answer(struct hb_broker *b, const struct hb_op *op);

/* flow.c */
int hb_flow_grant(struct hb_broker *b, const char *id, const json_t *envelope, const char *channel,
		  struct hb_error *err);
int hb_flow_execute(struct hb_broker *b, struct hb_op *op, struct hb_error *err);
int hb_flow_cancel(struct hb_broker *b, struct hb_op *op, struct hb_error *err);
/* To a final state that needs no result; code and message say why. Tells everybody. */
int hb_flow_end(struct hb_broker *b, struct hb_op *op, enum hb_op_state state, const char *code,
		const char *message);
/* An executor reported the outcome. */
int hb_flow_outcome(struct hb_broker *b, struct hb_op *op, enum hb_op_state state,
		    const json_t *reply);
void hb_flow_revoke_older(struct hb_broker *b, int64_t generation);
void hb_flow_tick(struct hb_broker *b);
int hb_flow_restore(struct hb_broker *b, struct hb_error *err);

/* run.c */
bool hb_run_active(struct hb_broker *b, const char *id);
size_t hb_run_count(struct hb_broker *b, const char *target);
/* resumed: the executor may have it already, so ask before sending. */
void hb_run_start(struct hb_broker *b, const struct hb_op *op, bool resumed);
const json_t *hb_run_progress(struct hb_broker *b, const char *id); /* borrowed or NULL */
void hb_runs_free(struct hb_broker *b);
enum hb_peer hb_target_peer(const char *target);

/* secret.c: a new control secret, and its way to the clients. Returns how many were reached. */
int hb_secret_deliver(struct hb_broker *b);
void hb_route_rotate(struct hb_request *req, void *ctx);

/* outbox.c */
void hb_outbox_tick(struct hb_broker *b);
json_t *hb_outbox_request(struct hb_broker *b, const struct hb_op *op, const char *request,
			  struct hb_error *err);

/* services.c */
void hb_services_init(struct hb_broker *b);
void hb_services_tick(struct hb_broker *b);
json_t *hb_broker_health(struct hb_broker *b);

/* main.c's parts, also used by tests */
int hb_broker_open(struct hb_process *p, struct hb_broker **out, struct hb_error *err);
/* broker.listen_tcp, before confinement. */
int hb_broker_listen(struct hb_process *p, struct hb_error *err);
int hb_broker_run(struct hb_process *p, struct hb_broker *b, struct hb_error *err);
void hb_broker_close(struct hb_broker *b);
/* broker.listen_tcp: numeric, loopback, or private when allowed. Fills at most max entries. */
struct hb_listen {
	char host[64];
	int port;
};
int hb_listen_parse(const char *text, bool private_ok, struct hb_listen *out, struct hb_error *err);

#endif
