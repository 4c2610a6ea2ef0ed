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

#define HB_JOBS_MAX 8     /* the installer has one or two */
#define HB_WAITING_MAX 64 /* questions that wait for a job's end; more are refused as busy */

struct hb_job;
struct hb_waiting;
struct hb_known;

struct hb_jobs {
	struct hb_process *process;
	struct hb_store store;
	struct hb_known *known;
	struct hb_job *first;
	size_t count;
	struct hb_waiting *line; /* the first to come is the first */
	size_t waiting;
};

/* Both answer the request, at once or later. The fetch request is taken over. */
void hb_job_resolve(struct hb_jobs *jobs, struct hb_request *req,
		    const struct hb_resolve_request *what);
void hb_job_fetch(struct hb_jobs *jobs, struct hb_request *req, struct hb_fetch_request *what);
/* Ends every job. */
void hb_jobs_stop(struct hb_jobs *jobs);

/* --- between job.c and line.c --- */

/* Answers the request as soon as a child has; "busy" when as many run as may. One of the two is not
 * NULL. */
void hb_job_start(struct hb_jobs *jobs, struct hb_request *req, const struct hb_image_ref *ref,
		  const struct hb_resolve_request *resolve, const struct hb_fetch_request *fetch);
/* Into log and audit; `why` is NULL unless it failed. */
void hb_job_record(struct hb_jobs *jobs, const char *action, const char *image, const char *status,
		   const struct hb_error *why);
/* The image as records name it; 700 bytes are enough. */
void hb_job_image(const struct hb_image_ref *ref, char *out, size_t size);
/* After the end of a job: who waits is next. */
void hb_line_advance(struct hb_jobs *jobs);
/* Who waits is refused. */
void hb_line_stop(struct hb_jobs *jobs);

/* The child's side (worker.c): runs the job and writes events to `fd`; never returns. One of the
 * two is not NULL. */
_Noreturn void hb_worker_run(const struct hb_config *config, const struct hb_store *store, int fd,
			     const struct hb_resolve_request *resolve,
			     const struct hb_fetch_request *fetch);

#endif
