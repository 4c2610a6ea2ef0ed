/*
 * Operations and the runtime, asked of those who know. What a person decides about is theirs to see in full in Telegram or
 * a terminal: here is only what kind of thing it is, when, for whom, and what became of it. An operation's text, its
 * session and its output stay with the broker.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/admin.h"
#include "common/json.h"

#define ASK_TIMEOUT_MS 10000
#define LIST_DEFAULT 50
#define LIST_MAX 200

bool admin_state_final(const char *state)
{
	static const char *const final[] = {"succeeded", "failed", "outcome_unknown", "denied",
					    "expired",   "cancelled", "revoked"};

	for (size_t i = 0; i < sizeof final / sizeof final[0]; i++)
		if (strcmp(state, final[i]) == 0)
			return true;
	return false;
}

json_t *admin_operation_view(const json_t *op)
{
	static const char *const shown[] = {
		"operation_id", "feature",    "action",     "target",      "state",   "digest",     "user_id", "generation",
		"created_at",   "expires_at", "decided_at", "decided_by",  "channel", "started_at", "finished_at",
		"progress",     "error",      "code"};
	static const char *const result_shown[] = {"returncode", "timed_out", "truncated", "duration", "duration_ms",
						   "output_sha256"};
	const json_t *result = json_object_get(op, "result");
	json_t *view = json_object(), *short_result = json_object();

	for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++)
		if (json_object_get(op, shown[i]))
			json_object_set(view, shown[i], json_object_get(op, shown[i]));
	for (size_t i = 0; i < sizeof result_shown / sizeof result_shown[0]; i++)
		if (json_object_get(result, result_shown[i]))
			json_object_set(short_result, result_shown[i], json_object_get(result, result_shown[i]));
	json_object_set_new(view, "result", json_object_size(short_result) ? json_incref(short_result) : json_null());
	json_decref(short_result);
	return view;
}

struct relay {
	struct admin *admin;
	struct hb_request *req; /* NULL once the caller has gone */
	json_t *answer;         /* runtime: what is put together */
	size_t waiting;
};

static void gone(void *arg)
{
	((struct relay *)arg)->req = NULL;
}

static struct relay *relay_new(struct admin *a, struct hb_request *req)
{
	struct relay *r = hb_calloc(1, sizeof *r);

	r->admin = a;
	r->req = req;
	hb_request_on_close(req, gone, r);
	return r;
}

/* False: refused, and told so. */
static bool usable(struct relay *r, int status, const json_t *body, const struct hb_error *why)
{
	struct hb_error err = {0};

	if (!r->req)
		return false;
	if (status == 0) {
		hb_reply_error(r->req, 503, why);
		return false;
	}
	if (json_object_get(body, "operation_id") || hb_reply_failed(status, body, &err) == 0)
		return true;
	hb_reply_error(r->req, strcmp(err.code, "unknown_operation") == 0 ? 404 : 503, &err);
	return false;
}

static void list_answered(int status, const json_t *body, const struct hb_error *why, void *arg)
{
	struct relay *r = arg;
	json_t *list, *op;
	size_t i;

	if (usable(r, status, body, why)) {
		list = json_array();
		json_array_foreach(json_object_get(body, "operations"), i, op)
			json_array_append_new(list, admin_operation_view(op));
		hb_reply_json(r->req, 200, json_pack("{s:s,s:o}", "status", "ok", "operations", list));
	}
	free(r);
}

void admin_operations(struct hb_request *req, void *ctx)
{
	struct admin *a = ctx;
	const char *text = hb_request_query(req, "limit");
	char *end = NULL, path[64];
	long limit = text ? strtol(text, &end, 10) : LIST_DEFAULT;

	if (text && (*end || end == text || limit < 1 || limit > LIST_MAX)) {
		admin_refuse(req, 422, "out_of_range", "limit must be 1 to 200");
		return;
	}
	snprintf(path, sizeof path, "/operations?limit=%ld", limit);
	hb_client_start(a->process->client,
			&(struct hb_call){.server = HB_PEER_BROKER, .method = "GET", .path = path,
					  .timeout_ms = ASK_TIMEOUT_MS, .on_done = list_answered,
					  .arg = relay_new(a, req)});
}

static void one_answered(int status, const json_t *body, const struct hb_error *why, void *arg)
{
	struct relay *r = arg;

	if (usable(r, status, body, why))
		hb_reply_json(r->req, 200, admin_operation_view(body));
	free(r);
}

void admin_operation(struct hb_request *req, void *ctx)
{
	struct admin *a = ctx;
	const char *tail = hb_request_tail(req);
	size_t hex = strspn(tail, "0123456789abcdef");
	char path[96], id[33] = "";

	if (hex != 32 || (tail[32] && strcmp(tail + 32, "/events") != 0)) {
		admin_refuse(req, 404, "unknown_operation",
			     "an operation id is 32 hex digits: /admin/operations/ID or /admin/operations/ID/events");
		return;
	}
	memcpy(id, tail, 32);
	if (tail[32]) {
		admin_events_listen(a->events, req, id);
		return;
	}
	snprintf(path, sizeof path, "/operations/%s", id);
	hb_client_start(a->process->client,
			&(struct hb_call){.server = HB_PEER_BROKER, .method = "GET", .path = path,
					  .timeout_ms = ASK_TIMEOUT_MS, .on_done = one_answered,
					  .arg = relay_new(a, req)});
}

/* ---- the runtime: its status, what is on disk to go back to, and how it was ---- */

static void runtime_part(struct relay *r)
{
	if (--r->waiting > 0)
		return;
	if (r->req) {
		json_object_set_new(r->answer, "history", admin_history_health_list(r->admin->history));
		hb_reply_json(r->req, 200, json_incref(r->answer));
	}
	json_decref(r->answer);
	free(r);
}

static void runtime_answered(int status, const json_t *body, const struct hb_error *why, void *arg)
{
	struct relay *r = arg;

	if (status == 200) {
		json_object_set(r->answer, "runtime", (json_t *)body);
		admin_history_health(r->admin->history, body);
	} else
		json_object_set_new(r->answer, "error", json_string(status ? "the installer gave no usable answer"
									     : why->message));
	runtime_part(r);
}

static void backups_answered(int status, const json_t *body, const struct hb_error *why, void *arg)
{
	static const char *const members[] = {"backups", "last_drill", "drills"};
	struct relay *r = arg;
	struct hb_error err = {0};

	if (status == 0)
		err = *why;
	if (status != 0 && hb_reply_failed(status, body, &err) == 0)
		for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
			if (json_object_get(body, members[i]))
				json_object_set(r->answer, members[i], json_object_get(body, members[i]));
		}
	else
		json_object_set_new(r->answer, "backups_error", json_string(err.message));
	runtime_part(r);
}

void admin_runtime(struct hb_request *req, void *ctx)
{
	struct admin *a = ctx;
	struct relay *r = relay_new(a, req);
	struct hb_call call = {.server = HB_PEER_INSTALLER, .method = "GET", .timeout_ms = ASK_TIMEOUT_MS, .arg = r};

	r->answer = json_pack("{s:s,s:n,s:[]}", "status", "ok", "runtime", "backups");
	r->waiting = 2;
	call.path = "/runtime";
	call.on_done = runtime_answered;
	hb_client_start(a->process->client, &call);
	call.path = "/backups";
	call.on_done = backups_answered;
	hb_client_start(a->process->client, &call);
}
