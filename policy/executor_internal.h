/* Shared by executor.c (queue, workers) and executor_record.c (what is recorded and told). */
#ifndef HB_POLICY_EXECUTOR_INTERNAL_H
#define HB_POLICY_EXECUTOR_INTERNAL_H

#include <event2/event.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "policy/executor.h"

struct hb_exec_job {
	TAILQ_ENTRY(hb_exec_job) next;
	struct hb_executor *ex;
	hb_executor_work work;
	/* of an operation */
	char operation_id[HB_ID_MAX], grant_id[HB_ID_MAX], digest[HB_HEX256], feature[16],
		action[24];
	json_t *request, *envelope, *progress;
	/* of a task */
	hb_task_done done;
	void *arg;

	int seconds;
	pid_t pid;
	bool overdue;
	struct bufferevent *bev;
	struct event *timer;
	int64_t started_ms; /* of a task: when it was asked, until its worker is there */
};

TAILQ_HEAD(hb_exec_list, hb_exec_job);

struct hb_executor {
	struct hb_executor_options options;
	struct hb_ledger *ledger;
	struct hb_exec_list active, waiting, tasks, tasks_waiting;
	size_t active_count, waiting_count, task_count, task_waiting_count;
	json_t *refused; /* {operation_id, error, code}: refused when their turn came, never burnt
			  */
	bool stopping;
	void (*stopped)(void *arg);
	void *stopped_arg;
	struct event *stop_timer;
};

/* executor_record.c */
int hb_exec_audit(struct hb_exec_job *job, const char *status, const char *phase,
		  const struct hb_error *why, struct hb_error *err);
/* An operation has ended; result is stolen, why NULL: it ran. */
void hb_exec_settle(struct hb_exec_job *job, json_t *result, const struct hb_error *why,
		    bool unknown);
/* The gate refused it when its turn came. */
void hb_exec_refused(struct hb_exec_job *job, const struct hb_error *err);
/* executor.c: -1 refused; *state as /execute answers it. */
int hb_exec_take(struct hb_executor *ex, const struct hb_execute *x, const char **state,
		 struct hb_error *err);

#endif
