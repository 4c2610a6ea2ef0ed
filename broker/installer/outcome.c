/* What a job worker may ask for, and what is recorded when a job ends (job_internal.h). */
#include <stdlib.h>
#include <string.h>

#include <event2/bufferevent.h>

#include "broker/installer/job_internal.h"
#include "common/buf.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define REFUSED_MAX 64 /* operations refused when their turn came, remembered for /status */

int hb_job_audit(struct hb_installer *in, const struct hb_job *job, const char *what,
		 const char *status, const char *phase, const struct hb_error *why,
		 struct hb_error *err)
{
	json_t *detail = json_pack("{s:s, s:s, s:s}", "operation_id", job->operation_id, "action",
				   job->action, "phase", phase);
	int rc;

	if (job->grant_id[0]) {
		json_object_set_new(detail, "grant_id", json_string(job->grant_id));
		json_object_set_new(detail, "digest", json_string(job->digest));
	}
	if (why) {
		json_object_set_new(detail, "code", json_string(why->code));
		json_object_set_new(detail, "error", json_string(why->message));
	}
	rc = hb_audit_append(in->process->audit, what, status, detail, err);
	json_decref(detail);
	return rc;
}

/* --- what the worker asks for --- */

static void reply(struct hb_job *job, json_t *answer)
{
	struct hb_buf text = HB_BUF_INIT;

	if (job->bev && hb_json_canonical(answer, &text, NULL) == 0) {
		hb_buf_addc(&text, '\n');
		bufferevent_write(job->bev, text.data, text.len);
	}
	hb_buf_free(&text);
	json_decref(answer);
}

static void reply_to(struct hb_job *job, int rc, const struct hb_error *err)
{
	reply(job, rc == 0 ? json_pack("{s:b}", "ok", 1) : hb_json_error(err));
}

/* A supervisor action on behalf of a worker. The worker may be gone when it is done. */
struct pending {
	struct hb_installer *in;
	unsigned serial;
	const char *what;
};
static void on_supervised(int ok, const struct hb_error *err, void *arg)
{
	struct pending *p = arg;
	struct hb_job *job = p->in->jobs->running;
	struct hb_error failed;

	if (job && job->serial == p->serial) {
		if (hb_job_audit(p->in, job, p->what, ok ? "ok" : "failed", "outcome",
				 ok ? NULL : err, &failed) < 0)
			reply(job, hb_json_error(&failed));
		else
			reply_to(job, ok ? 0 : -1, err);
	}
	free(p);
}

static struct pending *pending_new(struct hb_job *job, const char *what)
{
	struct pending *p = hb_calloc(1, sizeof *p);

	p->in = job->in;
	p->serial = job->serial;
	p->what = what;
	return p;
}

static int answer_start(struct hb_job *job, struct hb_supervisor *supervisor, const char *what,
			const json_t *question, struct hb_error *err)
{
	struct hb_run_spec spec;

	if (hb_run_spec_from_json(json_object_get(question, "spec"), &spec, err) < 0)
		return -1;
	if (hb_job_audit(job->in, job, what, "ok", "intent", NULL, err) < 0) {
		hb_run_spec_free(&spec);
		return -1;
	}
	hb_supervisor_start(supervisor, &spec, on_supervised, pending_new(job, what));
	hb_run_spec_free(&spec);
	return 0;
}

static int answer_stop(struct hb_job *job, struct hb_supervisor *supervisor, const char *what,
		       struct hb_error *err)
{
	if (hb_job_audit(job->in, job, what, "ok", "intent", NULL, err) < 0)
		return -1;
	hb_supervisor_stop(supervisor, on_supervised, pending_new(job, what));
	return 0;
}

/* The root that chroot isolation mounts is in the host's namespace, so there can be only one. */
static int trial_possible(struct hb_job *job, const json_t *question, struct hb_error *err)
{
	const char *asked =
		hb_json_text(json_object_get(question, "spec"), "isolation", "auto");
	json_t *status = hb_supervisor_status(job->in->supervisor);
	bool chroot = strcmp(asked, "chroot") == 0 ||
		      strcmp(hb_json_text(status, "isolation", ""), "chroot") == 0;

	json_decref(status);
	return chroot ? hb_fail(err, "drill_unavailable",
				"with isolation chroot no second instance can run beside the first; "
				"`hermesctl backup verify` checks everything but that")
		      : 0;
}

static int answer_step(struct hb_job *job, const json_t *question, struct hb_error *err)
{
	static const enum hb_step allowed[] = {HB_STEP_ACTIVATE, HB_STEP_SNAPSHOT,
					       HB_STEP_COMMITTED, HB_STEP_UNDONE};
	const char *name = hb_json_text(question, "step", "");

	for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
		if (strcmp(name, hb_step_name(allowed[i])) == 0) {
			if (hb_job_audit(job->in, job, "runtime.step", "ok", name, NULL, err) < 0)
				return -1;
			return hb_journal_append(job->in->journal, allowed[i], job->operation_id,
						 job->action, json_object_get(question, "more"),
						 err);
		}
	return hb_fail(err, "unknown_step", "a worker can't take step %.20s", name);
}

void hb_job_answer(struct hb_job *job, const json_t *question)
{
	const char *ask = hb_json_text(question, "ask", "");
	struct hb_error err;
	int rc;

	if (strcmp(ask, "running") == 0) {
		json_t *status = hb_supervisor_status(job->in->supervisor);
		const char *state = hb_json_text(json_object_get(status, "process"), "state", "");

		reply(job,
		      json_pack("{s:b, s:b}", "ok", 1, "running", strcmp(state, "healthy") == 0));
		json_decref(status);
		return;
	}
	if (strcmp(ask, "drill_port") == 0) {
		reply(job, json_pack("{s:b, s:i}", "ok", 1, "port",
				     hb_supervisor_port(job->in->trial)));
		return;
	}
	if (strcmp(ask, "start") == 0) {
		rc = answer_start(job, job->in->supervisor, "payload.start", question, &err);
	} else if (strcmp(ask, "stop") == 0) {
		rc = answer_stop(job, job->in->supervisor, "payload.stop", &err);
	} else if (strcmp(ask, "drill_start") == 0) {
		rc = trial_possible(job, question, &err);
		rc = rc < 0 ? rc
			    : answer_start(job, job->in->trial, "drill.start", question, &err);
	} else if (strcmp(ask, "drill_stop") == 0) {
		rc = answer_stop(job, job->in->trial, "drill.stop", &err);
	} else {
		rc = strcmp(ask, "step") == 0 ? answer_step(job, question, &err)
					      : hb_fail(&err, "unknown_question",
							"a worker asked for \"%.20s\"", ask);
		reply_to(job, rc, &err);
		return;
	}
	if (rc < 0)
		reply_to(job, rc, &err); /* else on_supervised answers */
}

/* --- how a job ends --- */

static double seconds_since(const struct hb_job *job)
{
	return job->started_ms ? (double)(hb_monotonic_ms() - job->started_ms) / 1000.0 : 0;
}

/* Ledger, audit, journal, in this order: after a crash in between, the journal still says that
 * something is to be done. */
static void settle(struct hb_installer *in, struct hb_job *job, const char *state, const char *word,
		   json_t *result, const struct hb_error *why)
{
	json_t *outcome = hb_outcome(result, why, seconds_since(job));
	struct hb_error err;

	if (hb_ledger_finish(in->ledger, job->operation_id, state, outcome, &err) < 0 ||
	    hb_job_audit(in, job, "runtime", word, "outcome", why, &err) < 0 ||
	    (hb_journal_open_operation(in->journal) &&
	     hb_journal_append(in->journal, HB_STEP_END, job->operation_id, job->action, NULL,
			       &err) < 0)) {
		/* The effect is what it is; starting anew settles the books from the journal. */
		hb_log(HB_LOG_ERROR, "outcome_not_recorded", "operation", job->operation_id, "code",
		       err.code, "msg", err.message, NULL);
		hb_process_exit(in->process, HB_EXIT_WORKER_LOST);
	}
	hb_log(why ? HB_LOG_WARN : HB_LOG_INFO, "operation_ended", "operation", job->operation_id,
	       "action", job->action, "state", state, "code", why ? why->code : "", NULL);
	json_decref(outcome);
}

static void finish_verify(struct hb_installer *in, json_t *result, const struct hb_error *err)
{
	bool ok = !err && hb_json_bool(result, "ok", false);
	struct hb_error failed;

	if (err) {
		json_decref(result);
		result = hb_json_error(err);
		json_object_set_new(result, "ok", json_false());
	}
	json_object_set_new(result, "state", json_string(err ? "failed" : "done"));
	json_object_set_new(result, "finished_at", json_integer(hb_now()));
	json_decref(in->verify);
	in->verify = result;
	if (hb_audit_append(in->process->audit, "runtime.verify", ok ? "ok" : "failed", result,
			    &failed) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "msg", failed.message, NULL);
}

static void finish_backup_check(struct hb_installer *in, const struct hb_job *job, json_t *result,
				const struct hb_error *err)
{
	const char *kind = hb_json_text(job->request, "kind", "");
	struct hb_error failed;
	bool ok;

	/* Nothing of a drill outlives it, also when its worker died. */
	if (hb_supervisor_is_running(in->trial))
		hb_supervisor_stop(in->trial, NULL, NULL);
	if (err) {
		json_decref(result);
		result = hb_json_error(err);
	}
	ok = !err && hb_json_bool(result, "ok", true);
	json_object_set_new(result, "ok", json_boolean(ok));
	json_object_update(result, job->request);
	json_object_set_new(result, "state", json_string(err ? "failed" : "done"));
	json_object_set_new(result, "finished_at", json_integer(hb_now()));
	json_decref(in->backup_check);
	in->backup_check = result;
	if (hb_audit_append(in->process->audit,
			    strcmp(kind, "drill") == 0 ? "backup.drill" : "backup.verify",
			    ok ? "ok" : "failed", result, &failed) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "msg", failed.message, NULL);
}

/* The operation whose worker died: what the journal proves, else unknown. A timeout is known:
 * everything was undone. */
static void finish_recovery(struct hb_installer *in, struct hb_job *job, json_t *result,
			    const struct hb_error *err)
{
	struct hb_journal_state state = hb_journal_state(in->journal);
	struct hb_job *victim = job->victim;
	const char *trouble = hb_json_text(result, "trouble", "");
	struct hb_error why;

	if (err) {
		hb_log(HB_LOG_ERROR, "recovery_failed", "code", err->code, "msg", err->message,
		       NULL);
		hb_process_exit(in->process, HB_EXIT_WORKER_LOST);
		return;
	}
	if (state.step == HB_STEP_COMMITTED) {
		settle(in, victim, "succeeded", "ok", json_deep_copy(state.result), NULL);
		return;
	}
	if (victim->timed_out)
		hb_fail(&why, "timeout",
			"the operation took longer than its timeout; it was ended and the state "
			"before "
			"it put back%s%s",
			trouble[0] ? ", but: " : "", trouble);
	else
		hb_fail(&why, "worker_died",
			"the worker of this operation ended unexpectedly; the state before it was "
			"put back%s%s",
			trouble[0] ? ", but: " : "", trouble);
	settle(in, victim, victim->timed_out ? "failed" : "outcome_unknown",
	       victim->timed_out ? "timeout" : "crashed", NULL, &why);
}

void hb_job_finish(struct hb_installer *in, struct hb_job *job, json_t *result,
		   const struct hb_error *err)
{
	switch (job->kind) {
	case HB_JOB_OPERATION:
		settle(in, job, err ? "failed" : "succeeded", err ? "failed" : "ok", result, err);
		hb_installer_reconcile(in);
		return;
	case HB_JOB_VERIFY:
		finish_verify(in, result, err);
		return;
	case HB_JOB_BACKUP_CHECK:
		finish_backup_check(in, job, result, err);
		return;
	case HB_JOB_TASK:
		job->task->finish(in, job->request, result, err);
		hb_installer_reconcile(in);
		return;
	case HB_JOB_RECOVER:
		finish_recovery(in, job, result, err);
		json_decref(result);
		hb_installer_reconcile(in);
		return;
	}
}

void hb_job_refused(struct hb_installer *in, const struct hb_job *job, const struct hb_error *err)
{
	json_t *list = in->jobs->refused;
	struct hb_error failed;

	json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "operation_id", job->operation_id,
					      "error", err->message, "code", err->code));
	if (json_array_size(list) > REFUSED_MAX)
		json_array_remove(list, 0);
	if (hb_job_audit(in, job, "runtime", "refused", "gate", err, &failed) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "msg", failed.message, NULL);
}

/* --- what is told about jobs --- */

static json_t *status_of_job(const struct hb_job *job, bool running)
{
	return json_pack("{s:s, s:s, s:O*, s:{}}", "status", "ok", "state",
			 running ? "executing" : "queued", "progress", job->progress, "result");
}

json_t *hb_job_status(struct hb_installer *in, const char *operation_id, struct hb_error *err)
{
	struct hb_job *job = in->jobs->running;
	json_t *row, *out, *item;
	const json_t *result;
	size_t i;

	if (job && strcmp(job->operation_id, operation_id) == 0)
		return status_of_job(job, true);
	STAILQ_FOREACH (job, &in->jobs->waiting, next)
		if (strcmp(job->operation_id, operation_id) == 0)
			return status_of_job(job, false);
	row = hb_ledger_find(in->ledger, operation_id, err);
	if (!row) {
		json_array_foreach (in->jobs->refused, i, item)
			if (strcmp(hb_json_text(item, "operation_id", ""), operation_id) == 0)
				return json_pack("{s:s, s:s, s:{}, s:O, s:O}", "status", "ok",
						 "state", "failed", "result", "error",
						 json_object_get(item, "error"), "code",
						 json_object_get(item, "code"));
		return NULL;
	}
	result = json_object_get(row, "result");
	out = json_pack("{s:s, s:O, s:O}", "status", "ok", "state", json_object_get(row, "state"),
			"result", result);
	if (json_object_get(result, "error")) {
		json_object_set(out, "error", json_object_get(result, "error"));
		json_object_set(out, "code", json_object_get(result, "code"));
	}
	json_decref(row);
	return out;
}

json_t *hb_job_present(const struct hb_installer *in)
{
	const struct hb_job *job = in->jobs->running;

	if (!job || job->operation_id[0] == '\0')
		return json_null();
	return json_pack("{s:s, s:s}", "id", job->operation_id, "phase",
			 job->kind == HB_JOB_RECOVER
				 ? "recover"
				 : hb_json_text(job->progress, "phase", job->action));
}
