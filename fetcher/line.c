/*
 * What happens to a /resolve before it is a job: answered from what is known, or made to wait while
 * as many jobs as there may be are running.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/paths.h"
#include "fetcher/credentials.h"
#include "fetcher/job.h"
#include "fetcher/known.h"

struct hb_waiting {
	struct hb_jobs *jobs;
	struct hb_waiting *next;
	struct hb_request *req;
	struct hb_resolve_request what;
};

/* Credentials that can't be used are a reason to refuse even when they are not needed; a child says
 * so. */
static json_t *
find_known(struct hb_jobs *jobs, const struct hb_resolve_request *what)
{
	struct hb_credentials c;
	struct hb_error err;

	if (hb_store_usable(&jobs->store, &err) ||
	    hb_credentials_load(AT_FDCWD, HB_PATH_FETCHER_CREDENTIALS, geteuid(), &c, &err))
		return NULL;
	hb_credentials_free(&c);
	return hb_known_find(jobs->known, &jobs->store, what);
}

static bool
answer_known(struct hb_jobs *jobs, struct hb_request *req, const struct hb_resolve_request *what)
{
	json_t *reply = find_known(jobs, what);
	char image[700];

	if (!reply)
		return false;
	hb_job_image(&what->ref, image, sizeof(image));
	hb_job_record(jobs, "resolve", image, "ok", NULL);
	hb_reply_json(req, 200, reply);
	return true;
}

static void
waiting_free(struct hb_waiting *w)
{
	struct hb_waiting **at = &w->jobs->line;

	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	w->jobs->waiting--;
	free(w);
}

static void
on_waiting_gone(void *arg)
{
	waiting_free(arg);
}

void
hb_line_advance(struct hb_jobs *jobs)
{
	while (jobs->line && jobs->count < HB_JOBS_MAX) {
		struct hb_request *req = jobs->line->req;
		struct hb_resolve_request what = jobs->line->what;

		hb_request_on_close(req, NULL, NULL);
		waiting_free(jobs->line);
		if (!answer_known(jobs, req, &what))
			hb_job_start(jobs, req, &what.ref, &what, NULL);
	}
}

static void
wait_in_line(struct hb_jobs *jobs, struct hb_request *req, const struct hb_resolve_request *what)
{
	struct hb_waiting *w = hb_calloc(1, sizeof(*w)), **at = &jobs->line;

	*w = (struct hb_waiting){.jobs = jobs, .req = req, .what = *what};
	while (*at)
		at = &(*at)->next;
	*at = w;
	jobs->waiting++;
	hb_request_on_close(req, on_waiting_gone, w);
}

void
hb_job_resolve(struct hb_jobs *jobs, struct hb_request *req, const struct hb_resolve_request *what)
{
	if (answer_known(jobs, req, what))
		return;
	if (jobs->count >= HB_JOBS_MAX && jobs->waiting < HB_WAITING_MAX)
		wait_in_line(jobs, req, what);
	else
		hb_job_start(jobs, req, &what->ref, what, NULL);
}

void
hb_line_stop(struct hb_jobs *jobs)
{
	struct hb_error why;

	while (jobs->line) {
		struct hb_request *req = jobs->line->req;

		hb_fail(&why, "cancelled", "the fetcher is stopping; try again");
		hb_request_on_close(req, NULL, NULL);
		waiting_free(jobs->line);
		hb_reply_error(req, 200, &why);
	}
}
