/*
 * One job at a time: an operation, a verification, or the recovery after a worker that died. The
 * slow part runs in a forked worker (work.h); this side owns everything that must be durable and
 * true: ledger, journal, audit log, supervisor.
 */
#ifndef HB_INSTALLER_JOB_H
#define HB_INSTALLER_JOB_H

#include <jansson.h>
#include <stdbool.h>

#include "broker/installer/installer.h"
#include "policy/outcome.h"

struct hb_jobs *hb_jobs_new(void);
void hb_jobs_free(struct hb_jobs *j); /* ends a running worker */

/* Take an operation: checked by the gate, then started, or queued with its grant unburnt. *state is
 * "executing" or "queued". Codes: those of the gate, busy, and when it was to start at once: those
 * of starting. */
int hb_job_execute(struct hb_installer *in, const struct hb_execute *x, const char **state,
		   struct hb_error *err);
/* Code busy when one is running or waiting. */
int hb_job_verify(struct hb_installer *in, struct hb_error *err);

/* kind "verify" or "drill"; how it went appears in backup_check. Code busy when one is running or
 * waiting. */
int hb_job_check_backup(struct hb_installer *in, const char *kind, const char *backup,
			struct hb_error *err);

/* Slow work that no grant is needed for, in its turn. `finish` is called in the installer once it
 * has ended: err NULL for success; `result` is stolen. */
struct hb_work;
struct hb_task {
	const char *name;
	int (*work)(struct hb_work *w, json_t **result, struct hb_error *err);
	void (*finish)(struct hb_installer *in, const json_t *request, json_t *result,
		       const struct hb_error *err);
};
/* `request` is stolen. Code busy when the installer is stopping. */
int hb_job_task(struct hb_installer *in, const struct hb_task *task, json_t *request,
		struct hb_error *err);
/* Progress of this task when it runs now, borrowed; else NULL. */
const json_t *hb_job_task_progress(const struct hb_installer *in, const struct hb_task *task);
/* Nothing runs and nothing waits. */
bool hb_job_none(const struct hb_installer *in);

/* {status, state, progress, result, error?, code?}; NULL with code unknown_operation. */
json_t *hb_job_status(struct hb_installer *in, const char *operation_id, struct hb_error *err);
/* {id, phase} of the running operation, or JSON null. */
json_t *hb_job_present(const struct hb_installer *in);
bool hb_job_idle(const struct hb_installer *in);

#endif
