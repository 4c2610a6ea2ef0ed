/* What an executor records about its operations, and what it tells (executor.h). */
#include <string.h>
#include <sysexits.h>

#include "common/fields.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "policy/executor_internal.h"
#include "policy/outcome.h"

#define REFUSED_MAX 64 /* remembered for /status */

static int audit(struct hb_executor *ex, const char *status, json_t *detail,
		 const struct hb_error *why, struct hb_error *err)
{
	int rc;

	if (why) {
		json_object_set_new(detail, "code", json_string(why->code));
		json_object_set_new(detail, "error", json_string(why->message));
	}
	rc = hb_audit_append(ex->options.process->audit, ex->options.target, status, detail, err);
	json_decref(detail);
	return rc;
}

int hb_exec_audit(struct hb_exec_job *job, const char *status, const char *phase,
		  const struct hb_error *why, struct hb_error *err)
{
	json_t *detail = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "operation_id",
				   job->operation_id, "feature", job->feature, "action",
				   job->action, "phase", phase, "grant_id", job->grant_id, "digest",
				   job->digest);

	return audit(job->ex, status, detail, why, err);
}

void hb_exec_settle(struct hb_exec_job *job, json_t *result, const struct hb_error *why,
		    bool unknown)
{
	double seconds = job->started_ms ? (double)(hb_monotonic_ms() - job->started_ms) / 1000.0
					 : 0;
	json_t *outcome = hb_outcome(result, why, seconds);
	bool ok = !why && hb_json_int(outcome, "returncode", 1) == 0;
	const char *state = unknown ? "outcome_unknown" : ok ? "succeeded" : "failed";
	const char *word = unknown                                     ? "unknown"
			   : ok                                        ? "ok"
			   : hb_json_bool(outcome, "timed_out", false) ? "timeout"
								       : "failed";
	struct hb_error err;

	/* The ledger first: the audit log repeats what it says. */
	if (hb_ledger_finish(job->ex->ledger, job->operation_id, state, outcome, &err) < 0 ||
	    hb_exec_audit(job, word, "outcome", why, &err) < 0) {
		/* The effect is what it is. A new start finds the row and says that the outcome is
		 * unknown. */
		hb_log(HB_LOG_ERROR, "outcome_not_recorded", "operation", job->operation_id, "code",
		       err.code, "msg", err.message, NULL);
		hb_process_exit(job->ex->options.process, EX_OSERR);
	}
	hb_log(ok ? HB_LOG_INFO : HB_LOG_WARN, "operation_ended", "operation", job->operation_id,
	       "action", job->action, "state", state, "code", why ? why->code : "", NULL);
	json_decref(outcome);
}

void hb_exec_refused(struct hb_exec_job *job, const struct hb_error *why)
{
	json_t *list = job->ex->refused;
	struct hb_error err;

	json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "operation_id", job->operation_id,
					      "error", why->message, "code", why->code));
	if (json_array_size(list) > REFUSED_MAX)
		json_array_remove(list, 0);
	if (hb_exec_audit(job, "refused", "gate", why, &err) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "msg", err.message, NULL);
}

void hb_executor_handle_execute(struct hb_executor *ex, struct hb_request *req)
{
	struct hb_execute x = {0};
	const char *state;
	struct hb_error err, failed;
	json_t *detail;

	if (hb_execute_decode(hb_request_json(req), &x, &err) == 0 &&
	    hb_exec_take(ex, &x, &state, &err) == 0) {
		hb_reply_json(req, 200,
			      json_pack("{s:s, s:s}", "status", "accepted", "state", state));
		return;
	}
	/* A refusal is an outcome too: who asked for what with which grant, and why not. */
	detail = json_pack("{s:s, s:s}", "operation_id", x.operation_id ? x.operation_id : "",
			   "phase", "gate");
	if (audit(ex, strcmp(err.code, "grant_denied") == 0 ? "denied" : "refused", detail, &err,
		  &failed) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "msg", failed.message, NULL);
	hb_log(HB_LOG_WARN, "execute_refused", "code", err.code, "msg", err.message, NULL);
	hb_reply_error(req, 200, &err);
}

static json_t *status_of_job(const struct hb_exec_job *job, const char *state)
{
	return json_pack("{s:s, s:s, s:O*, s:{}}", "status", "ok", "state", state, "progress",
			 job->progress, "result");
}

static struct hb_exec_job *find(const struct hb_exec_list *list, const char *operation_id)
{
	struct hb_exec_job *job;

	TAILQ_FOREACH (job, list, next)
		if (strcmp(job->operation_id, operation_id) == 0)
			return job;
	return NULL;
}

static json_t *status_of_row(const json_t *row)
{
	const json_t *result = json_object_get(row, "result");
	json_t *out = json_pack("{s:s, s:O, s:O}", "status", "ok", "state",
				json_object_get(row, "state"), "result", result);

	if (json_object_get(result, "error")) {
		json_object_set(out, "error", json_object_get(result, "error"));
		json_object_set(out, "code", json_object_get(result, "code"));
	}
	return out;
}

static json_t *status(struct hb_executor *ex, const char *operation_id, struct hb_error *err)
{
	struct hb_exec_job *job = find(&ex->active, operation_id);
	json_t *row, *item, *out;
	size_t i;

	if (job)
		return status_of_job(job, "executing");
	if ((job = find(&ex->waiting, operation_id)))
		return status_of_job(job, "queued");
	row = hb_ledger_find(ex->ledger, operation_id, err);
	if (row) {
		out = status_of_row(row);
		json_decref(row);
		return out;
	}
	json_array_foreach (ex->refused, i, item)
		if (strcmp(hb_json_text(item, "operation_id", ""), operation_id) == 0)
			return json_pack("{s:s, s:s, s:{}, s:O, s:O}", "status", "ok", "state",
					 "failed", "result", "error",
					 json_object_get(item, "error"), "code",
					 json_object_get(item, "code"));
	return NULL;
}

void hb_executor_handle_status(struct hb_executor *ex, struct hb_request *req)
{
	struct status_body {
		const char *operation_id;
	} body = {0};
	static const struct hb_field fields[] = {
		{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED,
		 offsetof(struct status_body, operation_id), 1, 64},
	};
	json_t *answer = NULL;
	struct hb_error err;

	if (hb_fields_decode(hb_request_json(req), fields, 1, &body, &err) == 0)
		answer = status(ex, body.operation_id, &err);
	if (answer)
		hb_reply_json(req, 200, answer);
	else
		hb_reply_error(req, 200, &err);
}

bool hb_executor_knows(struct hb_executor *ex, const char *operation_id, char state[24])
{
	const char *word = find(&ex->active, operation_id)    ? "executing"
			   : find(&ex->waiting, operation_id) ? "queued"
							      : NULL;
	json_t *row = word ? NULL : hb_ledger_find(ex->ledger, operation_id, NULL);

	if (row)
		word = hb_json_text(row, "state", "");
	if (word && state) {
		memset(state, 0, 24);
		memccpy(state, word, 0, 23);
	}
	json_decref(row);
	return word != NULL;
}

json_t *hb_executor_counts(const struct hb_executor *ex)
{
	return json_pack("{s:i, s:i, s:i, s:i}", "active", (int)ex->active_count, "queued",
			 (int)ex->waiting_count, "tasks", (int)ex->task_count, "tasks_waiting",
			 (int)ex->task_waiting_count);
}
