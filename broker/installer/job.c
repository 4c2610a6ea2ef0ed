/* One job at a time (job.h). */
#include "broker/installer/job.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/installer/backup.h"
#include "broker/installer/job_internal.h"
#include "broker/installer/quiesce.h"
#include "broker/installer/work.h"
#include "common/buf.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "policy/operation.h"

#define LINE_MAX (1u << 20)
#define KEPT 6 /* descriptors of a worker besides 0, 1 and 2 */
#define KEPT_ALWAYS 4

struct hb_jobs *hb_jobs_new(void)
{
	struct hb_jobs *j = hb_calloc(1, sizeof *j);

	j->refused = json_array();
	STAILQ_INIT(&j->waiting);
	return j;
}

void hb_job_free(struct hb_job *job)
{
	if (!job)
		return;
	if (job->bev)
		bufferevent_free(job->bev);
	if (job->timer)
		event_free(job->timer);
	if (job->pid > 0) {
		/* A worker that said "done" has nothing left to do; any other has to end now. */
		kill(job->pid, SIGKILL);
		waitpid(job->pid, NULL, 0);
	}
	json_decref(job->request);
	json_decref(job->envelope);
	json_decref(job->progress);
	json_decref(job->old);
	hb_job_free(job->victim);
	free(job);
}

void hb_jobs_free(struct hb_jobs *j)
{
	struct hb_job *job;

	if (!j)
		return;
	while ((job = STAILQ_FIRST(&j->waiting))) {
		STAILQ_REMOVE_HEAD(&j->waiting, next);
		hb_job_free(job);
	}
	hb_job_free(j->running);
	json_decref(j->refused);
	free(j);
}

bool hb_job_idle(const struct hb_installer *in)
{
	return !in->jobs->running;
}

bool hb_job_none(const struct hb_installer *in)
{
	return !in->jobs->running && STAILQ_EMPTY(&in->jobs->waiting);
}

const json_t *hb_job_task_progress(const struct hb_installer *in, const struct hb_task *task)
{
	const struct hb_job *job = in->jobs->running;

	return job && job->task == task ? job->progress : NULL;
}

static const char *kind_name(enum hb_job_kind kind)
{
	static const char *const names[] = {"operation", "verify", "recover", "check of a backup", "task"};

	return names[kind];
}

/* The worker: everything that isn't its own is closed, and it dies with the installer. */
static void worker(struct hb_installer *in, struct hb_job *job, int fd, pid_t installer)
{
	static int (*const kinds[])(struct hb_work *, json_t **, struct hb_error *) = {
		hb_work_operation, hb_work_verify, hb_work_recover, hb_work_backup_check, NULL};
	struct hb_work w = {
		.store = &in->store,
		.config = in->process->config,
		.settings = in->settings,
		.request = job->request,
		.operation_id = job->operation_id,
		.old = job->old,
		.backups = &in->backups,
		.host_id = in->process->host_id,
		.runtime_uid = hb_peer_uid(HB_PEER_RUNTIME),
		.degraded_ok = in->process->sandbox.degraded,
	};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != installer)
		_exit(1);
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	/* Fixed places for what it keeps, those of the last two only when they are there. Copied up
	 * first, so that none is overwritten before it was copied. */
	int keep[] = {fd,
		      in->store.fd,
		      in->store.releases_fd,
		      in->store.blobs_fd,
		      in->backups.fd,
		      in->age_fd};
	int *places[] = {&w.fd,
			 &in->store.fd,
			 &in->store.releases_fd,
			 &in->store.blobs_fd,
			 &in->backups.fd,
			 &w.age_fd};

	for (size_t i = 0; i < KEPT; i++)
		keep[i] = keep[i] < 0 ? -1 : fcntl(keep[i], F_DUPFD_CLOEXEC, 64);
	for (int i = 0; i < KEPT; i++) {
		*places[i] = keep[i] < 0 ? -1 : 3 + i;
		if (i < KEPT_ALWAYS ? keep[i] < 0 : false)
			_exit(1);
		if (keep[i] < 0)
			close(3 + i);
		else if (dup3(keep[i], 3 + i, O_CLOEXEC) < 0)
			_exit(1);
	}
	if (close_range(3 + KEPT, ~0u, 0) < 0)
		_exit(1);
	hb_work_main(&w, job->task ? job->task->work : kinds[job->kind]);
}

static void on_read(struct bufferevent *bev, void *arg);
static void on_event(struct bufferevent *bev, short what, void *arg);

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct hb_job *job = arg;

	job->timed_out = true;
	kill(job->pid, SIGKILL); /* its end is seen as the end of the stream */
}

static int fork_worker(struct hb_installer *in, struct hb_job *job, struct hb_error *err)
{
	pid_t self = getpid();
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return hb_fail_errno(err, "no_worker", "a job worker can't be connected");
	job->pid = fork();
	if (job->pid == 0) {
		close(pair[0]);
		worker(in, job, pair[1], self);
		_exit(1);
	}
	close(pair[1]);
	if (job->pid < 0) {
		close(pair[0]);
		return hb_fail_errno(err, "no_worker", "a job worker can't be forked");
	}
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	job->bev = bufferevent_socket_new(in->process->base, pair[0], BEV_OPT_CLOSE_ON_FREE);
	bufferevent_setcb(job->bev, on_read, NULL, on_event, job);
	bufferevent_enable(job->bev, EV_READ | EV_WRITE);
	job->serial = ++in->jobs->serial;
	job->started_ms = hb_monotonic_ms();
	in->jobs->running = job;
	return 0;
}

/* -1: refused by the gate, nothing is burnt. 1: burnt, but it couldn't even begin; the outcome is
 * recorded. */
static int start_operation(struct hb_installer *in, struct hb_job *job, struct hb_error *err)
{
	struct hb_execute x = {job->operation_id, "runtime", job->request, job->envelope};
	struct timeval limit = {hb_operation_timeout("runtime", job->request), 0};
	struct hb_gate gate;
	struct hb_grant grant;

	if (hb_installer_gate(in, &gate, err) < 0 || hb_gate_pass(&gate, &x, &grant, err) < 0)
		return -1;
	if (hb_job_audit(in, job, "runtime", "ok", "intent", NULL, err) < 0 ||
	    hb_journal_append(in->journal, HB_STEP_BEGIN, job->operation_id, job->action, NULL,
			      err) < 0 ||
	    fork_worker(in, job, err) < 0) {
		hb_job_finish(in, job, NULL, err);
		return 1;
	}
	job->timer = evtimer_new(in->process->base, on_timeout, job);
	evtimer_add(job->timer, &limit);
	return 0;
}

/* Start what waits, until something runs. */
void hb_jobs_next(struct hb_installer *in)
{
	struct hb_job *job;
	struct hb_error err;

	while (!in->jobs->running && !in->stopping && (job = STAILQ_FIRST(&in->jobs->waiting))) {
		STAILQ_REMOVE_HEAD(&in->jobs->waiting, next);
		in->jobs->waiting_count--;
		if (job->kind == HB_JOB_OPERATION) {
			int rc = start_operation(in, job, &err);

			if (rc < 0)
				hb_job_refused(in, job, &err);
			if (rc != 0)
				hb_job_free(job);
		} else if (fork_worker(in, job, &err) < 0) {
			hb_job_finish(in, job, NULL, &err);
			hb_job_free(job);
		}
	}
}

/* A worker ended without saying how it went. What it had begun is undone (or found to be committed)
 * by a recovery. */
static void worker_died(struct hb_installer *in, struct hb_job *job)
{
	struct hb_job *recovery;
	struct hb_error err;

	hb_fail(&err, "worker_died", "the job worker of this %s ended unexpectedly",
		kind_name(job->kind));
	hb_log(HB_LOG_ERROR, "worker_died", "kind", kind_name(job->kind), "operation",
	       job->operation_id, NULL);
	if (job->kind != HB_JOB_OPERATION) {
		hb_job_finish(in, job, NULL, &err);
		hb_job_free(job);
		return;
	}
	waitpid(job->pid, NULL, 0);
	job->pid = 0;
	recovery = hb_calloc(1, sizeof *recovery);
	recovery->in = in;
	recovery->kind = HB_JOB_RECOVER;
	recovery->victim = job;
	memcpy(recovery->operation_id, job->operation_id, sizeof recovery->operation_id);
	memcpy(recovery->action, job->action, sizeof recovery->action);
	recovery->old = hb_journal_undo(in->journal);
	if (fork_worker(in, recovery, &err) < 0) {
		hb_job_finish(in, recovery, NULL, &err);
		hb_job_free(recovery);
	}
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	struct hb_job *job = arg;
	struct hb_installer *in = job->in;

	if (!(what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)))
		return;
	in->jobs->running = NULL;
	bufferevent_free(job->bev);
	job->bev = NULL;
	if (job->timer)
		event_free(job->timer);
	job->timer = NULL;
	worker_died(in, job);
	hb_jobs_next(in);
}

static void on_done(struct hb_job *job, json_t *line)
{
	struct hb_installer *in = job->in;
	const char *message = hb_json_text(line, "error", NULL);
	json_t *result = json_object_get(line, "result");
	struct hb_error err;

	if (message)
		hb_fail(&err, hb_json_text(line, "code", "failed"), "%s", message);
	in->jobs->running = NULL;
	hb_job_finish(in, job, json_incref(result), message ? &err : NULL);
	hb_job_free(job);
	hb_jobs_next(in);
}

static void on_read(struct bufferevent *bev, void *arg)
{
	struct hb_job *job = arg;
	struct evbuffer *input = bufferevent_get_input(bev);
	struct hb_error err;
	size_t len;
	char *text;

	while ((text = evbuffer_readln(input, &len, EVBUFFER_EOL_LF))) {
		json_t *line = hb_json_parse(text, len, &err);
		const char *event = hb_json_text(line, "event", "");

		free(text);
		if (strcmp(event, "done") == 0) {
			on_done(job, line);
			json_decref(line);
			return; /* the job is gone */
		}
		if (strcmp(event, "progress") == 0) {
			json_object_del(line, "event");
			json_decref(job->progress);
			job->progress = json_incref(line);
		} else if (line) {
			hb_job_answer(job, line);
		}
		json_decref(line);
	}
	if (evbuffer_get_length(input) > LINE_MAX)
		kill(job->pid, SIGKILL);
}

static bool known(const struct hb_installer *in, const char *operation_id)
{
	struct hb_job *job = in->jobs->running;
	json_t *row = hb_ledger_find(in->ledger, operation_id, NULL);
	bool used = row != NULL;

	json_decref(row);
	if (used)
		return true;

	if (job && strcmp(job->operation_id, operation_id) == 0)
		return true;
	STAILQ_FOREACH (job, &in->jobs->waiting, next)
		if (strcmp(job->operation_id, operation_id) == 0)
			return true;
	return false;
}

int hb_job_execute(struct hb_installer *in, const struct hb_execute *x, const char **state,
		   struct hb_error *err)
{
	struct hb_gate gate;
	struct hb_grant grant;
	struct hb_job *job;
	int rc;

	if (hb_installer_gate(in, &gate, err) < 0 || hb_gate_check(&gate, x, &grant, err) < 0)
		return -1;
	if (known(in, x->operation_id))
		return hb_fail(err, "grant_replayed",
			       "this operation was started already; it is never repeated");
	if (in->quiesced)
		return hb_quiesce_refuse(in, err);
	if (in->stopping || (long long)in->jobs->waiting_count >=
				    hb_config_int(in->process->config, "broker.queue_max"))
		return hb_fail(
			err, "busy",
			"%zu operations wait already; the grant is not used, try again later",
			in->jobs->waiting_count);
	job = hb_calloc(1, sizeof *job);
	job->in = in;
	job->kind = HB_JOB_OPERATION;
	memcpy(job->operation_id, grant.operation_id, sizeof job->operation_id);
	memcpy(job->grant_id, grant.grant_id, sizeof job->grant_id);
	memcpy(job->digest, grant.digest, sizeof job->digest);
	memcpy(job->action, grant.action, sizeof job->action);
	job->request = json_incref(x->request);
	job->envelope = json_incref(x->envelope);
	if (in->jobs->running) {
		STAILQ_INSERT_TAIL(&in->jobs->waiting, job, next);
		in->jobs->waiting_count++;
		*state = "queued";
		return 0;
	}
	rc = start_operation(in, job, err);
	if (rc != 0)
		hb_job_free(job);
	if (rc < 0)
		return -1;
	*state = rc == 0 ? "executing" : "failed";
	return 0;
}

int hb_job_verify(struct hb_installer *in, struct hb_error *err)
{
	struct hb_job *job;

	if (in->quiesced)
		return hb_quiesce_refuse(in, err);
	if (in->verify && strcmp(hb_json_text(in->verify, "state", ""), "running") == 0)
		return hb_fail(err, "busy", "a verification is under way already");
	if (in->stopping)
		return hb_fail(err, "busy", "the installer is stopping");
	job = hb_calloc(1, sizeof *job);
	job->in = in;
	job->kind = HB_JOB_VERIFY;
	json_decref(in->verify);
	in->verify =
		json_pack("{s:s, s:I}", "state", "running", "started_at", (json_int_t)hb_now());
	STAILQ_INSERT_TAIL(&in->jobs->waiting, job, next);
	in->jobs->waiting_count++;
	hb_jobs_next(in);
	return 0;
}

int hb_job_check_backup(struct hb_installer *in, const char *kind, const char *backup,
			struct hb_error *err)
{
	struct hb_job *job;

	if (in->backup_check &&
	    strcmp(hb_json_text(in->backup_check, "state", ""), "running") == 0)
		return hb_fail(err, "busy", "a check of a backup is under way already");
	if (in->stopping)
		return hb_fail(err, "busy", "the installer is stopping");
	job = hb_calloc(1, sizeof *job);
	job->in = in;
	job->kind = HB_JOB_BACKUP_CHECK;
	job->request = json_pack("{s:s, s:s}", "kind", kind, "backup", backup);
	json_decref(in->backup_check);
	in->backup_check = json_pack("{s:s, s:s, s:s, s:I}", "state", "running", "kind", kind,
				     "backup", backup, "started_at", (json_int_t)hb_now());
	STAILQ_INSERT_TAIL(&in->jobs->waiting, job, next);
	in->jobs->waiting_count++;
	hb_jobs_next(in);
	return 0;
}

int hb_job_task(struct hb_installer *in, const struct hb_task *task, json_t *request,
		struct hb_error *err)
{
	struct hb_job *job;

	if (in->stopping) {
		json_decref(request);
		return hb_fail(err, "busy", "the installer is stopping");
	}
	job = hb_calloc(1, sizeof *job);
	job->in = in;
	job->kind = HB_JOB_TASK;
	job->task = task;
	job->request = request;
	STAILQ_INSERT_TAIL(&in->jobs->waiting, job, next);
	in->jobs->waiting_count++;
	hb_jobs_next(in);
	return 0;
}
