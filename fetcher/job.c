/*
 * The parent's side of a job: forks, passes lines on, and sees to it that every request is answered
 * exactly once and every child is reaped, whichever of client, child and parent ends first.
 */
#include "fetcher/job.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/json.h"
#include "common/log.h"
#include "fetcher/known.h"

#define LINE_MAX_BYTES 262144 /* a result with 512 layers is about 100 KiB */
#define KEEP_ALIVE_SECONDS 5

struct hb_job {
	struct hb_jobs *jobs;
	struct hb_job *next;
	struct hb_request *req; /* NULL once the client is gone */
	pid_t pid;
	int fd;
	bool stream;  /* /fetch: lines go to the client as they come */
	bool started; /* the reply has begun */
	bool ended;   /* the last event was seen */
	struct hb_resolve_request what; /* of /resolve */
	char image[700];
	struct event *readable, *keep_alive;
	struct evbuffer *input;
};

static void
job_free(struct hb_job *job)
{
	struct hb_jobs *jobs = job->jobs;
	struct hb_job **at = &jobs->first;

	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
	job->jobs->count--;
	event_free(job->readable);
	if (job->keep_alive)
		event_free(job->keep_alive);
	evbuffer_free(job->input);
	hb_close(&job->fd);
	/* Either it has closed the pipe, and then it is ending anyway, or nobody wants it. */
	kill(job->pid, SIGKILL);
	while (waitpid(job->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(job);
	hb_line_advance(jobs);
}

void
hb_job_image(const struct hb_image_ref *ref, char *out, size_t size)
{
	hb_image_ref_name(ref, out, size - HB_HEX256 - 8);
	snprintf(out + strlen(out), HB_HEX256 + 8, "@sha256:%s", ref->digest);
}

void
hb_job_record(struct hb_jobs *jobs, const char *action, const char *image, const char *status,
       const struct hb_error *why)
{
	json_t *detail = json_pack("{s:s}", "image", image);
	struct hb_error err;

	if (why) {
		json_object_set_new(detail, "code", json_string(why->code));
		json_object_set_new(detail, "error", json_string(why->message));
		hb_log(HB_LOG_WARN, action, "image", image, "code", why->code, "msg",
		       why->message, NULL);
	} else {
		hb_log(HB_LOG_INFO, action, "image", image, "status", status, NULL);
	}
	if (hb_audit_append(jobs->process->audit, action, status, detail, &err))
		hb_log(HB_LOG_ERROR, "audit_failed", "code", err.code, "msg", err.message, NULL);
	json_decref(detail);
}

static void
record_job(struct hb_job *job, const char *status, const struct hb_error *why)
{
	hb_job_record(job->jobs, job->stream ? "fetch" : "resolve", job->image, status, why);
}

static void
send_line(struct hb_job *job, const json_t *event)
{
	char *text = json_dumps(event, JSON_COMPACT | JSON_ENSURE_ASCII);
	size_t len = text ? strlen(text) : 0;

	if (text) {
		text[len] = '\n';
		hb_reply_write(job->req, text, len + 1);
	}
	free(text);
}

/* The one JSON answer of /resolve, before or after white space was sent. Takes the reference. */
static void
answer(struct hb_job *job, json_t *body)
{
	struct hb_request *req = job->req;
	char *text;

	job->req = NULL;
	hb_request_on_close(req, NULL, NULL);
	if (!job->started) {
		hb_reply_json(req, 200, body);
		return;
	}
	text = json_dumps(body, JSON_COMPACT | JSON_ENSURE_ASCII);
	if (text)
		hb_reply_write(req, text, strlen(text));
	free(text);
	json_decref(body);
	hb_reply_end(req);
}

static void
fail(struct hb_job *job, const struct hb_error *why)
{
	json_t *event;

	job->ended = true;
	record_job(job, strcmp(why->code, "cancelled") == 0 ? "cancelled" : "failed", why);
	if (!job->stream) {
		answer(job, hb_json_error(why));
		return;
	}
	event = json_pack("{s:s, s:s, s:s}", "event", "error", "error", why->message, "code",
			  why->code);
	send_line(job, event);
	json_decref(event);
}

/* What the child says is taken apart before it is passed on: it has talked to strangers. */
static void
handle(struct hb_job *job, json_t *event)
{
	const char *kind = hb_json_text(event, "event", "");
	json_t *reply = json_object_get(event, "reply");
	struct hb_error why;

	if (strcmp(kind, "note") == 0) {
		hb_log(HB_LOG_WARN, "note", "image", job->image, "msg",
		       hb_json_text(event, "text", ""), NULL);
	} else if (strcmp(kind, "error") == 0) {
		hb_fail(&why, hb_json_text(event, "code", "failed"), "%s",
			hb_json_text(event, "error", ""));
		fail(job, &why);
	} else if (strcmp(kind, "result") == 0 && !job->stream && json_is_object(reply)) {
		job->ended = true;
		record_job(job, "ok", NULL);
		hb_known_add(job->jobs->known, &job->what, reply);
		answer(job, json_incref(reply));
	} else if (job->stream) {
		job->ended = strcmp(kind, "done") == 0;
		if (job->ended)
			record_job(job, "ok", NULL);
		send_line(job, event);
	}
}

static void
finish(struct hb_job *job)
{
	struct hb_error why;

	if (!job->ended) {
		hb_fail(&why, "worker_died",
			"the process that fetched ended unexpectedly; what was downloaded is kept, "
			"try again");
		fail(job, &why);
	}
	if (job->req) {
		hb_request_on_close(job->req, NULL, NULL);
		hb_reply_end(job->req);
	}
	job_free(job);
}

static void
on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct hb_job *job = arg;
	int n = evbuffer_read(job->input, fd, -1);
	json_t *event;
	char *line;
	size_t len;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	while (!job->ended && (line = evbuffer_readln(job->input, &len, EVBUFFER_EOL_LF))) {
		event = hb_json_parse(line, len, NULL);
		if (event)
			handle(job, event);
		json_decref(event);
		free(line);
	}
	if (n <= 0 || job->ended || evbuffer_get_length(job->input) > LINE_MAX_BYTES)
		finish(job);
}

/* White space before the JSON: whoever waits can tell a slow registry from a dead fetcher. */
static void
on_keep_alive(evutil_socket_t fd, short what, void *arg)
{
	struct hb_job *job = arg;

	if (!job->started)
		hb_reply_start(job->req, 200, "application/json");
	job->started = true;
	hb_reply_write(job->req, " ", 1);
}

static void
on_client_gone(void *arg)
{
	struct hb_job *job = arg;
	struct hb_error why;

	job->req = NULL;
	hb_fail(&why, "cancelled", "the caller went away; what was downloaded is kept");
	if (!job->ended)
		record_job(job, "cancelled", &why);
	job_free(job);
}

static int
begin(struct hb_jobs *jobs, const struct hb_resolve_request *resolve,
      const struct hb_fetch_request *fetch, pid_t *pid, int *fd, struct hb_error *err)
{
	int ends[2];

	if (jobs->count >= HB_JOBS_MAX)
		return hb_fail(err, "busy", "%d jobs run already; try again later", HB_JOBS_MAX);
	if (pipe2(ends, O_CLOEXEC))
		return hb_fail_errno(err, "no_worker", "making a pipe");
	*pid = fork();
	if (*pid == 0)
		hb_worker_run(jobs->process->config, &jobs->store, ends[1], resolve, fetch);
	hb_close(&ends[1]);
	if (*pid < 0) {
		hb_close(&ends[0]);
		return hb_fail_errno(err, "no_worker", "starting a process");
	}
	*fd = ends[0];
	return 0;
}

void
hb_job_start(struct hb_jobs *jobs, struct hb_request *req, const struct hb_image_ref *ref,
      const struct hb_resolve_request *resolve, const struct hb_fetch_request *fetch)
{
	const struct timeval every = {.tv_sec = KEEP_ALIVE_SECONDS};
	struct hb_job *job;
	struct hb_error err;
	int fd = -1;
	pid_t pid = -1;

	if (begin(jobs, resolve, fetch, &pid, &fd, &err)) {
		hb_reply_error(req, 200, &err);
		return;
	}
	evutil_make_socket_nonblocking(fd);
	job = hb_calloc(1, sizeof(*job));
	*job = (struct hb_job){.jobs = jobs,
			       .next = jobs->first,
			       .req = req,
			       .pid = pid,
			       .fd = fd,
			       .stream = fetch != NULL,
			       .started = fetch != NULL};
	if (resolve)
		job->what = *resolve;
	hb_job_image(ref, job->image, sizeof(job->image));
	jobs->first = job;
	jobs->count++;
	job->input = evbuffer_new();
	job->readable = event_new(jobs->process->base, fd, EV_READ | EV_PERSIST, on_readable, job);
	if (!job->input || !job->readable)
		abort(); /* the same rule as buf.h: nothing can go on without memory */
	event_add(job->readable, NULL);
	hb_request_on_close(req, on_client_gone, job);
	if (job->stream) {
		hb_reply_start(req, 200, "application/x-ndjson");
	} else {
		job->keep_alive = event_new(jobs->process->base, -1, EV_PERSIST, on_keep_alive,
					    job);
		if (job->keep_alive)
			event_add(job->keep_alive, &every);
	}
}

void
hb_job_fetch(struct hb_jobs *jobs, struct hb_request *req, struct hb_fetch_request *what)
{
	hb_job_start(jobs, req, &what->ref, NULL, what);
	hb_fetch_request_free(what);
}

void
hb_jobs_stop(struct hb_jobs *jobs)
{
	struct hb_error why;

	hb_line_stop(jobs);
	while (jobs->first) {
		struct hb_job *job = jobs->first;

		hb_fail(&why, "cancelled", "the fetcher is stopping; what was downloaded is kept");
		if (!job->ended)
			fail(job, &why);
		finish(job);
	}
}
