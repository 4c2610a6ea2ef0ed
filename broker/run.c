/*
 * One approved operation at its executor: send the grant once, then ask how it goes until there is
 * an outcome.
 *
 * The executor's ledger decides whether a grant was used; this file only has to avoid guessing, so
 * it asks /status before anything else, also the first time. `unknown_operation` there means that
 * no ledger row exists, so nothing was burnt and nothing ran: while the grant is valid it is sent
 * (again). And an executor that could not be reached before the first sending certainly has
 * nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define SEND_TIMEOUT_MS 30000
#define POLL_FIRST_MS 100
#define POLL_MS 250
#define POLL_FAST_COUNT 20  /* so many at the first pace */
#define BACKOFF_MAX_MS 5000 /* while the executor can't be reached */

struct hb_run {
	LIST_ENTRY(hb_run) link;
	struct hb_broker *b;
	char id[HB_OP_ID], target[24];
	enum hb_peer peer;
	bool maybe_sent; /* an /execute may have arrived there, now or before a restart of ours */
	int polls, fails;
	struct event *timer;
	struct hb_client_call *call;
	json_t *progress;
};

static void poll_status(struct hb_run *r);

enum hb_peer
hb_target_peer(const char *target)
{
	if (strcmp(target, "installer") == 0)
		return HB_PEER_INSTALLER;
	if (strcmp(target, "admin") == 0)
		return HB_PEER_ADMIN;
	return strcmp(target, "ssh") == 0 ? HB_PEER_SSH : HB_PEER_DOCKER;
}

static struct hb_run *
find_run(struct hb_broker *b, const char *id)
{
	struct hb_run *r;

	LIST_FOREACH(r, &b->runs, link)
		if (strcmp(r->id, id) == 0)
			return r;
	return NULL;
}

bool
hb_run_active(struct hb_broker *b, const char *id)
{
	return find_run(b, id) != NULL;
}

size_t
hb_run_count(struct hb_broker *b, const char *target)
{
	struct hb_run *r;
	size_t n = 0;

	LIST_FOREACH(r, &b->runs, link)
		n += strcmp(r->target, target) == 0;
	return n;
}

const json_t *
hb_run_progress(struct hb_broker *b, const char *id)
{
	struct hb_run *r = find_run(b, id);

	return r ? r->progress : NULL;
}

static void
run_free(struct hb_run *r)
{
	LIST_REMOVE(r, link);
	if (r->call)
		hb_client_cancel(r->call);
	event_free(r->timer);
	json_decref(r->progress);
	free(r);
}

void
hb_runs_free(struct hb_broker *b)
{
	struct hb_run *r, *next;

	/* At the end of the process the client is gone already, and its calls with it. */
	for (r = LIST_FIRST(&b->runs); r; r = next) {
		next = LIST_NEXT(r, link);
		r->call = NULL;
		run_free(r);
	}
}

static void
again_in(struct hb_run *r, int ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000L};

	event_add(r->timer, &tv);
}

static void
again_later(struct hb_run *r)
{
	int ms = POLL_MS << (r->fails < 5 ? r->fails : 5);

	r->fails++;
	again_in(r, ms > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : ms);
}

static void
timer_fired(evutil_socket_t fd, short what, void *arg)
{
	struct hb_run *r = arg;

	poll_status(r);
}

/* Ends the run and the operation with it. */
static void
end(struct hb_run *r, struct hb_op *op, enum hb_op_state state, const char *code,
    const char *message)
{
	struct hb_broker *b = r->b;

	run_free(r);
	hb_flow_end(b, op, state, code, message);
}

/* The executor would not take it: nothing was burnt. */
static void
refused(struct hb_run *r, struct hb_op *op, const struct hb_error *err)
{
	struct hb_broker *b = r->b;

	if (strcmp(err->code, "grant_replayed") == 0) {
		/* It has run there before, so it has an outcome to tell. */
		again_later(r);
	} else if (strcmp(err->code, "busy") == 0) {
		run_free(r);
		op->execute_requested = false;
		if (hb_store_update(b->store, op, op->state, NULL, false, NULL) == 0)
			hb_watchers_refuse(b, op->id, err);
	} else if (strcmp(err->code, "grant_expired") == 0) {
		end(r, op, HB_OP_EXPIRED, err->code, err->message);
	} else {
		end(r, op, HB_OP_REVOKED, err->code, err->message);
	}
}

static void
execute_answered(int status, const json_t *body, const struct hb_error *reason, void *arg)
{
	struct hb_run *r = arg;
	struct hb_error err;
	struct hb_op op;

	r->call = NULL;
	if (hb_store_find(r->b->store, r->id, &op, &err) < 0 || hb_op_final(op.state)) {
		run_free(r);
		return;
	}
	if (status == 0) {
		hb_log(HB_LOG_WARN, "execute_unanswered", "operation", r->id, "error",
		       reason->message, NULL);
		again_later(r);
		return;
	}
	if (hb_reply_failed(status, body, &err) < 0) {
		refused(r, &op, &err);
		return;
	}
	r->fails = 0;
	again_in(r, POLL_FIRST_MS);
	if (op.state == HB_OP_APPROVED) {
		op.state = HB_OP_EXECUTING;
		op.sent = true;
		op.started_at = hb_now();
		if (hb_store_update(r->b->store, &op, HB_OP_APPROVED, NULL, false, &err) == 0) {
			hb_broker_audit(r->b, "execute", "ok", &op, NULL);
			hb_watchers_changed(r->b, &op);
		}
	}
}

static void
send_grant(struct hb_run *r)
{
	struct hb_call call = {.server = r->peer,
			       .method = "POST",
			       .path = "/execute",
			       .timeout_ms = SEND_TIMEOUT_MS,
			       .on_done = execute_answered,
			       .arg = r};
	struct hb_store *store = r->b->store;
	struct hb_op op;
	json_t *request = NULL, *envelope = NULL, *body = NULL;
	char *text;

	if (hb_store_find(store, r->id, &op, NULL) < 0 || hb_op_final(op.state)) {
		run_free(r);
		return;
	}
	text = hb_store_text(store, r->id, HB_COL_REQUEST, NULL);
	request = text ? json_loads(text, 0, NULL) : NULL;
	free(text);
	text = hb_store_text(store, r->id, HB_COL_ENVELOPE, NULL);
	envelope = text ? json_loads(text, 0, NULL) : NULL;
	free(text);
	body = json_pack("{s:s, s:s, s:o, s:o}", "operation_id", op.id, "feature", op.feature,
			 "request", request, "envelope", envelope);
	if (!body) {
		end(r, &op, HB_OP_REVOKED, "storage_failed",
		    "the stored request or grant can't be read");
		return;
	}
	r->maybe_sent = true;
	call.body = body;
	r->call = hb_client_start(r->b->process->client, &call);
	json_decref(body);
}

static void
note_progress(struct hb_run *r, const json_t *body)
{
	json_t *progress = json_object_get(body, "progress");

	if (!json_is_object(progress) || json_equal(progress, r->progress))
		return;
	json_decref(r->progress);
	r->progress = json_incref(progress);
	hb_watchers_progress(r->b, r->id, progress);
}

static void
not_known_there(struct hb_run *r, struct hb_op *op)
{
	if (op->grant_expires > hb_now()) {
		send_grant(r);
	} else if (op->sent) {
		end(r, op, HB_OP_UNKNOWN, "executor_forgot",
		    "the executor accepted the operation and doesn't know it any more");
	} else {
		end(r, op, HB_OP_EXPIRED, "grant_expired",
		    "the approval expired before the executor had it");
	}
}

static void
status_answered(int status, const json_t *body, const struct hb_error *reason, void *arg)
{
	struct hb_run *r = arg;
	struct hb_broker *b = r->b;
	struct hb_error err;
	struct hb_op op;
	const char *state = hb_json_text(body, "state", "");
	static const enum hb_op_state finals[] = {HB_OP_SUCCEEDED, HB_OP_FAILED, HB_OP_UNKNOWN};

	r->call = NULL;
	if (hb_store_find(b->store, r->id, &op, NULL) < 0 || hb_op_final(op.state)) {
		run_free(r);
		return;
	}
	if (status == 0 || (!*state && hb_reply_failed(status, body, &err) < 0 &&
			    strcmp(err.code, "unknown_operation") != 0)) {
		hb_log(HB_LOG_WARN, "status_unknown", "operation", r->id, "error",
		       status ? err.message : reason->message, NULL);
		if (!r->maybe_sent && op.grant_expires <= hb_now())
			end(r, &op, HB_OP_EXPIRED, "executor_unreachable",
			    status ? err.message : reason->message);
		else
			again_later(r);
		return;
	}
	if (!*state) {
		not_known_there(r, &op);
		return;
	}
	r->fails = 0;
	note_progress(r, body);
	for (size_t i = 0; i < sizeof(finals) / sizeof(finals[0]); i++)
		if (strcmp(state, hb_op_state_name(finals[i])) == 0) {
			run_free(r);
			/* Its turn came too late: refused before the burn, so it never ran. */
			if (strcmp(hb_json_text(body, "code", ""), "grant_expired") == 0)
				hb_flow_end(b, &op, HB_OP_EXPIRED, "grant_expired",
					    "the approval expired while it waited for its turn");
			else
				hb_flow_outcome(b, &op, finals[i], body);
			return;
		}
	if (op.state == HB_OP_APPROVED) {
		/* Found there after a restart of ours. */
		op.state = HB_OP_EXECUTING;
		op.sent = true;
		op.started_at = hb_now();
		if (hb_store_update(b->store, &op, HB_OP_APPROVED, NULL, false, NULL) == 0)
			hb_watchers_changed(b, &op);
	}
	again_in(r, ++r->polls < POLL_FAST_COUNT ? POLL_FIRST_MS : POLL_MS);
}

static void
poll_status(struct hb_run *r)
{
	struct hb_call call = {.server = r->peer,
			       .method = "POST",
			       .path = "/status",
			       .timeout_ms = HB_CALL_TIMEOUT_MS,
			       .on_done = status_answered,
			       .arg = r};
	json_t *body = json_pack("{s:s}", "operation_id", r->id);

	call.body = body;
	r->call = hb_client_start(r->b->process->client, &call);
	json_decref(body);
}

void
hb_run_start(struct hb_broker *b, const struct hb_op *op, bool resumed)
{
	struct hb_run *r;

	if (hb_run_active(b, op->id))
		return;
	r = hb_calloc(1, sizeof(*r));
	r->b = b;
	memcpy(r->id, op->id, sizeof(r->id));
	memcpy(r->target, op->target, sizeof(r->target));
	r->peer = hb_target_peer(op->target);
	r->maybe_sent = resumed;
	r->timer = evtimer_new(b->process->base, timer_fired, r);
	LIST_INSERT_HEAD(&b->runs, r, link);
	again_in(r, 0);
}
