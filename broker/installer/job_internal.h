/* Shared by job.c (workers and queue) and outcome.c (what workers ask for and how jobs end). */
#ifndef HB_INSTALLER_JOB_INTERNAL_H
#define HB_INSTALLER_JOB_INTERNAL_H

#include <event2/event.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "broker/installer/job.h"
#include "common/grant.h"

enum hb_job_kind {
	HB_JOB_OPERATION,
	HB_JOB_VERIFY,
	HB_JOB_RECOVER,
	HB_JOB_BACKUP_CHECK,
	HB_JOB_TASK
};

struct hb_job {
	STAILQ_ENTRY(hb_job) next;
	struct hb_installer *in;
	enum hb_job_kind kind;
	char operation_id[HB_ID_MAX], grant_id[HB_ID_MAX], digest[HB_HEX256], action[24];
	json_t *request, *envelope; /* of an operation; of a task: what it is to do */
	const struct hb_task *task; /* of a task */
	json_t *old;                /* of a recovery */
	struct hb_job *victim;      /* of a recovery: the operation whose worker died */
	bool timed_out;
	pid_t pid;
	unsigned serial;
	struct bufferevent *bev;
	struct event *timer;
	json_t *progress;
	int64_t started_ms;
};

struct hb_jobs {
	struct hb_job *running;
	STAILQ_HEAD(hb_job_list, hb_job) waiting;
	size_t waiting_count;
	unsigned serial; /* of the last worker: a late answer of the supervisor is for nobody */
	json_t *refused; /* {operation_id, error, code}: never burnt */
};

void hb_job_free(struct hb_job *job);
void hb_jobs_next(struct hb_installer *in);

/* Answer one question of the worker, at once or when the supervisor has done it. */
void hb_job_answer(struct hb_job *job, const json_t *question);
/* The job has ended: err NULL for success. Records the outcome everywhere it belongs; `result` is
 * stolen. */
void hb_job_finish(struct hb_installer *in, struct hb_job *job, json_t *result,
		   const struct hb_error *err);
/* An operation that the gate refused when its turn came. */
void hb_job_refused(struct hb_installer *in, const struct hb_job *job, const struct hb_error *err);
/* One audit record about an operation; `effect` is the action's name after "runtime." or the like.
 */
int hb_job_audit(struct hb_installer *in, const struct hb_job *job, const char *what,
		 const char *status, const char *phase, const struct hb_error *why,
		 struct hb_error *err);

#endif
