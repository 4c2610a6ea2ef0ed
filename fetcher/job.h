/*
 * A job: one /resolve or /fetch, in a forked child that inherits the confinement and talks back in
 * lines of JSON over a pipe. What a registry sends is parsed in the child only; a job that is no
 * longer wanted is simply killed.
 */
#ifndef HB_FETCHER_JOB_H
#define HB_FETCHER_JOB_H

#include <stddef.h>

#include "common/process.h"
#include "fetcher/pull.h"

#define HB_JOBS_MAX 8 /* the installer has one or two */

struct hb_job;

struct hb_jobs {
	struct hb_process *process;
	struct hb_store store;
	struct hb_job *first;
	size_t count;
};

/* Both answer the request, at once or later. The fetch request is taken over. */
void hb_job_resolve(struct hb_jobs *jobs, struct hb_request *req,
		    const struct hb_resolve_request *what);
void hb_job_fetch(struct hb_jobs *jobs, struct hb_request *req, struct hb_fetch_request *what);
/* Ends every job. */
void hb_jobs_stop(struct hb_jobs *jobs);

/* The child's side (worker.c): runs the job and writes events to `fd`; never returns. One of the
 * two is not NULL. */
_Noreturn void hb_worker_run(const struct hb_config *config, const struct hb_store *store, int fd,
			     const struct hb_resolve_request *resolve,
			     const struct hb_fetch_request *fetch);

#endif
