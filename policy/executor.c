/* The queue and the workers of an executor (executor.h). */
#include "policy/executor.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"
#include "policy/executor_internal.h"
#include "policy/operation.h"

#define LINE_MAX (2u << 20) /* 12,000 characters of output, escaped, several times */
#define TASKS_MAX 256       /* questions that may wait: a burst of clients, not an attack */
#define TASKS_ACTIVE_MAX 8  /* worked on at once: more only get in each other's way at the engine */
#define STOP_SECONDS 20     /* for workers to end what they started */

/* --- in the worker --- */

static volatile sig_atomic_t told_to_stop;

static void on_stop_signal(int number)
{
	told_to_stop = 1;
}

bool hb_worker_stopping(void)
{
	return told_to_stop != 0;
}

/* The executor may be gone: then nobody is told. */
static void tell(struct hb_worker *w, json_t *line)
{
	char *text = json_dumps(line, JSON_COMPACT);
	size_t len = text ? strlen(text) : 0, at = 0;

	json_decref(line);
	if (!text)
		return;
	text[len++] = '\n';
	while (at < len) {
		ssize_t n = write(w->fd, text + at, len - at);

		if (n < 0 && errno != EINTR)
			break;
		at += n > 0 ? (size_t)n : 0;
	}
	free(text);
}

void hb_worker_progress(struct hb_worker *w, const char *phase, int64_t done, int64_t total,
			const char *unit)
{
	tell(w,
	     json_pack("{s:s, s:{s:s, s:I, s:I, s:s}}", "event", "progress", "progress", "phase",
		       phase, "done", (json_int_t)done, "total", (json_int_t)total, "unit", unit));
}

void hb_worker_note(struct hb_worker *w, json_t *note)
{
	tell(w, json_pack("{s:s, s:o}", "event", "note", "note", note));
}

static void signals_of_worker(void)
{
	struct sigaction stop = {
		.sa_handler = on_stop_signal}; /* no SA_RESTART: waiting calls return */
	sigset_t none;

	sigemptyset(&none);
	sigaction(SIGTERM, &stop, NULL);
	signal(SIGINT, SIG_IGN);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void worker(struct hb_exec_job *job, int fd, pid_t executor)
{
	const struct hb_executor_options *o = &job->ex->options;
	struct hb_worker w = {.operation_id = job->operation_id,
			      .feature = job->feature,
			      .request = job->request,
			      .ctx = o->ctx,
			      .fd = 3,
			      .keep_fd = o->keep_fd >= 0 ? 4 : -1};
	json_t *result = NULL, *line;
	struct hb_error err = {"", ""};
	int rc;

	signals_of_worker();
	/* It is told when the executor dies, and ends what it has started. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != executor)
		_exit(1);
	/* Copied up first, so that none is overwritten before it was copied. */
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 64);
	int keep = o->keep_fd >= 0 ? fcntl(o->keep_fd, F_DUPFD_CLOEXEC, 64) : -1;
	if (dup3(fd, 3, O_CLOEXEC) < 0 || (o->keep_fd >= 0 && dup3(keep, 4, O_CLOEXEC) < 0) ||
	    close_range(o->keep_fd >= 0 ? 5 : 4, ~0u, 0) < 0)
		_exit(1);
	w.deadline_ms = job->started_ms + (int64_t)job->seconds * 1000;
	rc = job->work(&w, &result, &err);
	line = json_pack("{s:s, s:b, s:o*}", "event", "done", "unknown", w.unknown, "result",
			 result);
	if (rc < 0) {
		json_object_set_new(line, "error", json_string(err.message));
		json_object_set_new(line, "code", json_string(err.code));
	}
	tell(&w, line);
	_exit(0);
}

/* --- in the executor --- */

static void jobs_next(struct hb_executor *ex);
static void tasks_next(struct hb_executor *ex);

static void job_free(struct hb_exec_job *job)
{
	if (job->bev)
		bufferevent_free(job->bev);
	if (job->timer)
		event_free(job->timer);
	if (job->pid > 0) {
		/* One that said "done" has nothing left to do; any other has to end now. */
		kill(job->pid, SIGKILL);
		while (waitpid(job->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	json_decref(job->request);
	json_decref(job->envelope);
	json_decref(job->progress);
	free(job);
}

static void list_free(struct hb_exec_list *list)
{
	struct hb_exec_job *job;

	while ((job = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, job, next);
		job_free(job);
	}
}

static void maybe_stopped(struct hb_executor *ex)
{
	if (ex->stopping && ex->active_count == 0 && ex->stopped) {
		void (*stopped)(void *) = ex->stopped;

		ex->stopped = NULL;
		stopped(ex->stopped_arg);
	}
}

/* Its worker has said how it went, or is gone (line NULL). */
static void job_end(struct hb_exec_job *job, const json_t *line)
{
	struct hb_executor *ex = job->ex;
	const char *message = hb_json_text(line, "error", NULL);
	json_t *result = json_object_get(line, "result");
	struct hb_error err;

	if (message)
		hb_fail(&err, hb_json_text(line, "code", "failed"), "%s", message);
	else if (!line && job->overdue)
		hb_fail(&err, "worker_overdue",
			"the worker did not end in time and was killed; what it had begun may go "
			"on");
	else if (!line)
		hb_fail(&err, "worker_died",
			"the worker of this operation ended without saying how it went");
	if (job->done) {
		TAILQ_REMOVE(&ex->tasks, job, next);
		ex->task_count--;
		job->done(result, message || !line ? &err : NULL, job->arg);
		job_free(job);
		tasks_next(ex);
		return;
	}
	TAILQ_REMOVE(&ex->active, job, next);
	ex->active_count--;
	hb_exec_settle(job, json_incref(result), message || !line ? &err : NULL,
		       !line || hb_json_bool(line, "unknown", false));
	job_free(job);
	jobs_next(ex);
	maybe_stopped(ex);
}

static void on_read(struct bufferevent *bev, void *arg)
{
	struct hb_exec_job *job = arg;
	struct evbuffer *input = bufferevent_get_input(bev);
	struct hb_error err;
	size_t len;
	char *text;

	while ((text = evbuffer_readln(input, &len, EVBUFFER_EOL_LF))) {
		json_t *line = hb_json_parse_foreign(text, len, &err);
		const char *event = hb_json_text(line, "event", "");

		free(text);
		if (strcmp(event, "done") == 0) {
			job_end(job, line);
			json_decref(line);
			return; /* the job is gone */
		}
		if (strcmp(event, "progress") == 0) {
			json_decref(job->progress);
			job->progress = json_incref(json_object_get(line, "progress"));
		} else if (strcmp(event, "note") == 0 && job->ex->options.on_note) {
			job->ex->options.on_note(json_object_get(line, "note"),
						 job->ex->options.ctx);
		}
		json_decref(line);
	}
	if (evbuffer_get_length(input) > LINE_MAX)
		kill(job->pid, SIGKILL);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
		job_end(arg, NULL);
}

static void on_overdue(evutil_socket_t fd, short what, void *arg)
{
	struct hb_exec_job *job = arg;

	job->overdue = true;
	kill(job->pid, SIGKILL); /* its end is seen as the end of the stream */
}

static int fork_worker(struct hb_exec_job *job, int overtime, struct hb_error *err)
{
	struct hb_process *process = job->ex->options.process;
	struct timeval limit = {job->seconds + overtime, 0};
	pid_t self = getpid();
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return hb_fail_errno(err, "no_worker", "a worker can't be connected");
	job->started_ms = hb_monotonic_ms();
	job->pid = fork();
	if (job->pid == 0)
		worker(job, pair[1], self);
	close(pair[1]);
	if (job->pid < 0) {
		close(pair[0]);
		return hb_fail_errno(err, "no_worker", "a worker can't be forked");
	}
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	job->bev = bufferevent_socket_new(process->base, pair[0], BEV_OPT_CLOSE_ON_FREE);
	bufferevent_setcb(job->bev, on_read, NULL, on_event, job);
	bufferevent_enable(job->bev, EV_READ);
	job->timer = evtimer_new(process->base, on_overdue, job);
	evtimer_add(job->timer, &limit);
	return 0;
}

/* -1: refused by the gate, nothing is burnt. 1: burnt, but it couldn't even begin; the outcome is
 * recorded. */
static int start_operation(struct hb_exec_job *job, struct hb_error *err)
{
	struct hb_executor *ex = job->ex;
	struct hb_execute x = {job->operation_id, job->feature, job->request, job->envelope};
	struct hb_gate gate;
	struct hb_grant grant;

	if (hb_executor_gate(ex, &gate, err) < 0 || hb_gate_pass(&gate, &x, &grant, err) < 0)
		return -1;
	if (hb_exec_audit(job, "intent", "intent", NULL, err) < 0 ||
	    fork_worker(job, ex->options.overtime, err) < 0) {
		hb_exec_settle(job, NULL, err, false);
		return 1;
	}
	TAILQ_INSERT_TAIL(&ex->active, job, next);
	ex->active_count++;
	return 0;
}

static void jobs_next(struct hb_executor *ex)
{
	struct hb_exec_job *job;
	struct hb_error err;

	while (!ex->stopping && ex->active_count < ex->options.active_max &&
	       (job = TAILQ_FIRST(&ex->waiting))) {
		TAILQ_REMOVE(&ex->waiting, job, next);
		ex->waiting_count--;
		int rc = start_operation(job, &err);

		if (rc < 0)
			hb_exec_refused(job, &err);
		if (rc != 0)
			job_free(job);
	}
}

static struct hb_exec_job *job_new(struct hb_executor *ex, const struct hb_execute *x,
				   const struct hb_grant *grant)
{
	struct hb_exec_job *job = hb_calloc(1, sizeof *job);

	job->ex = ex;
	job->work = ex->options.work;
	memcpy(job->operation_id, grant->operation_id, sizeof job->operation_id);
	memcpy(job->grant_id, grant->grant_id, sizeof job->grant_id);
	memcpy(job->digest, grant->digest, sizeof job->digest);
	memcpy(job->feature, grant->feature, sizeof job->feature);
	memcpy(job->action, grant->action, sizeof job->action);
	job->request = json_incref(x->request);
	job->envelope = json_incref(x->envelope);
	job->seconds = hb_operation_timeout(x->feature, x->request);
	return job;
}

int hb_exec_take(struct hb_executor *ex, const struct hb_execute *x, const char **state,
		 struct hb_error *err)
{
	struct hb_gate gate;
	struct hb_grant grant;
	struct hb_exec_job *job;
	int rc;

	if (hb_executor_gate(ex, &gate, err) < 0 || hb_gate_check(&gate, x, &grant, err) < 0)
		return -1;
	if (hb_executor_knows(ex, x->operation_id, NULL))
		return hb_fail(err, "grant_replayed",
			       "this operation was started already; it is never repeated");
	if (ex->stopping || (long long)ex->waiting_count >=
				    hb_config_int(ex->options.process->config, "broker.queue_max"))
		return hb_fail(
			err, "busy",
			"%zu operations wait already; the grant is not used, try again later",
			ex->waiting_count);
	job = job_new(ex, x, &grant);
	if (ex->active_count >= ex->options.active_max || ex->waiting_count > 0) {
		TAILQ_INSERT_TAIL(&ex->waiting, job, next);
		ex->waiting_count++;
		*state = "queued";
		return 0;
	}
	rc = start_operation(job, err);
	if (rc != 0)
		job_free(job);
	if (rc < 0)
		return -1;
	*state = rc == 0 ? "executing" : "failed";
	return 0;
}

/* Its time began when it was asked: who asks does not wait longer because others were first. */
static int start_task(struct hb_exec_job *job, struct hb_error *err)
{
	struct hb_executor *ex = job->ex;
	int64_t waited = (hb_monotonic_ms() - job->started_ms) / 1000;

	if (waited >= job->seconds)
		return hb_fail(err, "busy", "too many requests were there before this one; try again");
	job->seconds -= (int)waited;
	if (fork_worker(job, 2, err) < 0)
		return -1;
	TAILQ_INSERT_TAIL(&ex->tasks, job, next);
	ex->task_count++;
	return 0;
}

static void tasks_next(struct hb_executor *ex)
{
	struct hb_exec_job *job;
	struct hb_error err;

	while (!ex->stopping && ex->task_count < TASKS_ACTIVE_MAX &&
	       (job = TAILQ_FIRST(&ex->tasks_waiting))) {
		TAILQ_REMOVE(&ex->tasks_waiting, job, next);
		ex->task_waiting_count--;
		if (start_task(job, &err) == 0)
			continue;
		job->done(NULL, &err, job->arg);
		job_free(job);
	}
}

int hb_executor_task(struct hb_executor *ex, hb_executor_work work, const json_t *input,
		     int seconds, hb_task_done done, void *arg, struct hb_error *err)
{
	struct hb_exec_job *job;

	if (ex->stopping || ex->task_waiting_count >= TASKS_MAX)
		return hb_fail(err, "busy", "%zu requests are being worked on already; try again",
			       ex->task_count + ex->task_waiting_count);
	job = hb_calloc(1, sizeof *job);
	job->ex = ex;
	job->work = work;
	job->request = json_incref((json_t *)(uintptr_t)input);
	job->seconds = seconds;
	job->done = done;
	job->arg = arg;
	job->started_ms = hb_monotonic_ms();
	if (ex->task_count >= TASKS_ACTIVE_MAX) {
		TAILQ_INSERT_TAIL(&ex->tasks_waiting, job, next);
		ex->task_waiting_count++;
		return 0;
	}
	if (start_task(job, err) == 0)
		return 0;
	job_free(job);
	return -1;
}

/* --- its life --- */

int hb_executor_gate(struct hb_executor *ex, struct hb_gate *out, struct hb_error *err)
{
	struct hb_gate gate = {
		.target = ex->options.target,
		.audience = ex->options.process->host_id,
		.admin_uid = hb_peer_uid(HB_PEER_ADMIN),
		.ledger = ex->ledger,
		.own = ex->options.own ? ex->options.own(ex->options.ctx) : NULL,
	};

	if (hb_gate_load_keys(&gate, err) < 0)
		return -1;
	*out = gate;
	return 0;
}

int hb_executor_new(const struct hb_executor_options *options, struct hb_executor **out,
		    int *recovered, struct hb_error *err)
{
	struct hb_executor *ex = hb_calloc(1, sizeof *ex);

	ex->options = *options;
	TAILQ_INIT(&ex->active);
	TAILQ_INIT(&ex->waiting);
	TAILQ_INIT(&ex->tasks);
	TAILQ_INIT(&ex->tasks_waiting);
	ex->refused = json_array();
	if (hb_ledger_open(options->ledger_path, &ex->ledger, recovered, err) < 0) {
		hb_executor_free(ex);
		return -1;
	}
	*out = ex;
	return 0;
}

void hb_executor_free(struct hb_executor *ex)
{
	if (!ex)
		return;
	list_free(&ex->active);
	list_free(&ex->waiting);
	list_free(&ex->tasks);
	list_free(&ex->tasks_waiting);
	if (ex->stop_timer)
		event_free(ex->stop_timer);
	json_decref(ex->refused);
	hb_ledger_close(ex->ledger);
	free(ex);
}

static void on_stop_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct hb_executor *ex = arg;
	struct hb_exec_job *job;

	TAILQ_FOREACH (job, &ex->active, next) {
		job->overdue = true;
		kill(job->pid, SIGKILL);
	}
}

void hb_executor_stop(struct hb_executor *ex, void (*done)(void *arg), void *arg)
{
	struct timeval limit = {STOP_SECONDS, 0};
	struct hb_exec_job *job;

	ex->stopping = true;
	ex->stopped = done;
	ex->stopped_arg = arg;
	TAILQ_FOREACH (job, &ex->active, next)
		kill(job->pid, SIGTERM);
	ex->stop_timer = evtimer_new(ex->options.process->base, on_stop_timeout, ex);
	evtimer_add(ex->stop_timer, &limit);
	maybe_stopped(ex);
}
