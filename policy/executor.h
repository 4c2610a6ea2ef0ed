/*
 * Operations carried out several at once, each in a forked worker: what the docker and ssh
 * executors share.
 *
 * This side, in the executor's own loop, owns everything that must be durable and true: the gate,
 * the ledger, the audit log, the queue. The slow part runs in a worker with plain blocking code; it
 * holds one socket to this side (and one descriptor of the program's choice), and says how it went
 * once. A worker that dies without a word leaves an outcome that is unknown, and is never repeated.
 *
 *   /execute   gate checked; started, or queued with its grant unburnt
 *   its turn   gate passed (burnt), intent in the audit log, worker
 *   its end    ledger, audit log
 *
 * Tasks are questions without a grant (sealing, listing): same workers, nothing recorded. A few are
 * worked on at once, more wait in order.
 */
#ifndef HB_POLICY_EXECUTOR_H
#define HB_POLICY_EXECUTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/process.h"
#include "policy/gate.h"

struct hb_executor;

/* What a worker knows. */
struct hb_worker {
	int fd;                             /* to the executor */
	int keep_fd;                        /* options.keep_fd as it is numbered here, or -1 */
	const char *operation_id, *feature; /* "" for a task */
	const json_t *request;              /* sealed; of a task: its input */
	int64_t deadline_ms; /* hb_monotonic_ms: the operation's timeout; it must end by itself */
	bool unknown;        /* set by the work: what became of it can't be said */
	void *ctx;
};

/* In the worker. 0 with *result (may be NULL), or -1 with err; then *result may be set as well.
 * result.returncode other than 0 means that it ran and failed. */
typedef int (*hb_executor_work)(struct hb_worker *w, json_t **result, struct hb_error *err);

void hb_worker_progress(struct hb_worker *w, const char *phase, int64_t done, int64_t total,
			const char *unit);
/* Something for options.on_note; stolen. */
void hb_worker_note(struct hb_worker *w, json_t *note);
/* The executor is stopping or gone: end what was started, then return. */
bool hb_worker_stopping(void);

struct hb_executor_options {
	struct hb_process *process;
	const char *target;      /* "docker": also the word of audit records */
	const char *ledger_path; /* relative to the state directory */
	size_t active_max;       /* operations at once */
	int overtime; /* seconds a worker may need beyond its operation's timeout before it is
			 killed */
	int keep_fd;  /* for workers, or -1 */
	hb_executor_work work;
	/* What of this host is ours, now; may be NULL. */
	const struct hb_floor_own *(*own)(void *ctx);
	void (*on_note)(const json_t *note, void *ctx);
	void *ctx;
};

/* *recovered: operations that a crash left without an outcome, now outcome_unknown. */
int hb_executor_new(const struct hb_executor_options *options, struct hb_executor **out,
		    int *recovered, struct hb_error *err);
void hb_executor_free(struct hb_executor *ex);
/* Workers are told to end; `done` when they have, or were killed. Nothing is taken any more. */
void hb_executor_stop(struct hb_executor *ex, void (*done)(void *arg), void *arg);

/* The key is read anew, so that a replaced file counts at once. */
int hb_executor_gate(struct hb_executor *ex, struct hb_gate *out, struct hb_error *err);

/* Routes: the handlers of POST /execute and POST /status. */
void hb_executor_handle_execute(struct hb_executor *ex, struct hb_request *req);
void hb_executor_handle_status(struct hb_executor *ex, struct hb_request *req);

/* True when the ledger or the queue knows it; *state (may be NULL) "queued", "executing" or final.
 */
bool hb_executor_knows(struct hb_executor *ex, const char *operation_id, char state[24]);
/* {active, queued, tasks, tasks_waiting} */
json_t *hb_executor_counts(const struct hb_executor *ex);

/* `input` is borrowed; done is called once, from the loop: result borrowed, err NULL for success.
 * Code busy when too many wait, or when its `seconds` were over before its turn came. */
typedef void (*hb_task_done)(const json_t *result, const struct hb_error *err, void *arg);
int hb_executor_task(struct hb_executor *ex, hb_executor_work work, const json_t *input,
		     int seconds, hb_task_done done, void *arg, struct hb_error *err);

#endif
