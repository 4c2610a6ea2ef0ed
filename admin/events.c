/*
 * Server-sent events (WHATWG HTML, 9.2): what changes, told to open pages at once.
 *
 *   event: hello       {policy_generation, version}       first
 *   event: policy      {policy_generation} | {error}
 *   event: operation   an operation as in /admin/operations
 *   event: progress    {operation_id, phase, done, total, ...}
 *   event: runtime     {state, ok, release}
 *
 * While somebody listens, the broker's list is read each second for operations not seen yet, and each that is not over is
 * followed through the broker's own stream of it. Nobody listens: nothing is asked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/admin.h"
#include "common/ids.h"
#include "common/json.h"

#define FOLLOW_MAX 16           /* operations followed at once */
#define FOLLOW_SILENCE_MS 60000 /* the broker writes every ten seconds */
#define LIST_PATH "/operations?limit=25"
#define ASK_TIMEOUT_MS 5000
#define KEEPALIVE_MS 10000
#define RUNTIME_EVERY 5         /* ticks */

struct listener {
	LIST_ENTRY(listener) link;
	struct admin_events *events;
	struct hb_request *req;
	char id[33]; /* "" : everything */
	int64_t wrote_ms;
};

struct follow {
	struct admin_events *events;
	struct hb_client_call *call;
	char id[33]; /* "": a free place */
};

struct admin_events {
	struct admin *admin;
	LIST_HEAD(, listener) listeners;
	size_t count; /* those that listen, and those who wait for the answer whether they may */
	json_t *seen; /* operation id -> state last told */
	struct follow follows[FOLLOW_MAX];
	struct hb_client_call *list, *runtime;
};

struct admin_events *admin_events_new(struct admin *a)
{
	struct admin_events *e = hb_calloc(1, sizeof *e);

	e->admin = a;
	LIST_INIT(&e->listeners);
	e->seen = json_object();
	return e;
}

/* The server has let go of its requests already, and the client of its calls. */
void admin_events_free(struct admin_events *e)
{
	struct listener *l;

	if (!e)
		return;
	while ((l = LIST_FIRST(&e->listeners))) {
		LIST_REMOVE(l, link);
		free(l);
	}
	json_decref(e->seen);
	free(e);
}

size_t admin_events_listeners(const struct admin_events *e)
{
	return e->count;
}

static void listener_free(struct admin_events *e, struct listener *l)
{
	LIST_REMOVE(l, link);
	e->count--;
	free(l);
}

static void write_event(struct listener *l, const char *event, const char *text)
{
	struct hb_buf out = HB_BUF_INIT;

	hb_buf_printf(&out, "event: %s\ndata: %s\n\n", event, text);
	l->wrote_ms = hb_monotonic_ms();
	hb_reply_write(l->req, out.data, out.len);
	hb_buf_free(&out);
}

/* To all, and to those who listen to this operation; the latter are done when it is. */
static void tell(struct admin_events *e, const char *event, json_t *data, const char *id, bool final)
{
	char *text = json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII);
	struct listener *l, *next;

	json_decref(data);
	for (l = LIST_FIRST(&e->listeners); text && l; l = next) {
		next = LIST_NEXT(l, link);
		if (*l->id && strcmp(l->id, id) != 0)
			continue;
		write_event(l, event, text);
		if (*l->id && final) {
			struct hb_request *req = l->req;
			listener_free(e, l);
			hb_reply_end(req);
		}
	}
	free(text);
}

void admin_events_send(struct admin_events *e, const char *event, json_t *data)
{
	tell(e, event, data, "", false);
}

/* ---- following operations ---- */

static struct follow *follow_find(struct admin_events *e, const char *id)
{
	for (size_t i = 0; i < FOLLOW_MAX; i++)
		if (strcmp(e->follows[i].id, id) == 0)
			return &e->follows[i];
	return NULL;
}

static void operation_seen(struct admin_events *e, const json_t *op)
{
	const char *id = hb_json_text(op, "operation_id", ""), *state = hb_json_text(op, "state", "");

	if (strcmp(hb_json_text(e->seen, id, ""), state) == 0)
		return;
	json_object_set_new(e->seen, id, json_string(state));
	tell(e, "operation", admin_operation_view(op), id, admin_state_final(state));
}

/* The broker sends a description when the state changes, and progress in between. */
static void on_line(json_t *line, void *arg)
{
	struct follow *f = arg;
	json_t *progress;

	if (json_object_get(line, "operation_id")) {
		operation_seen(f->events, line);
		return;
	}
	progress = json_copy(line);
	json_object_set_new(progress, "operation_id", json_string(f->id));
	tell(f->events, "progress", progress, f->id, false);
}

/* Over, or the broker went away: the list, read each second, says how things stand. */
static void on_followed(int status, const json_t *body, const struct hb_error *err, void *arg)
{
	struct follow *f = arg;

	(void)status;
	(void)body;
	(void)err;
	memset(f->id, 0, sizeof f->id);
	f->call = NULL;
}

static void follow(struct admin_events *e, const char *id)
{
	struct follow *f = follow_find(e, id);
	char path[80];

	if (f || !(f = follow_find(e, "")))
		return;
	f->events = e;
	snprintf(f->id, sizeof f->id, "%s", id);
	snprintf(path, sizeof path, "/operations/%s/events", id);
	f->call = hb_client_start(e->admin->process->client,
				  &(struct hb_call){.server = HB_PEER_BROKER, .method = "GET", .path = path,
						    .timeout_ms = FOLLOW_SILENCE_MS, .on_line = on_line,
						    .on_done = on_followed, .arg = f});
}

static void on_list(int status, const json_t *body, const struct hb_error *err, void *arg)
{
	struct admin_events *e = arg;
	json_t *list = json_object_get(body, "operations"), *op;
	json_t *fresh = json_object();
	size_t i;

	(void)status;
	(void)err;
	e->list = NULL;
	/* Oldest first, as they came to be. */
	for (i = json_array_size(list); i-- > 0;) {
		const char *id, *state;
		op = json_array_get(list, i);
		id = hb_json_text(op, "operation_id", "");
		state = hb_json_text(op, "state", "");
		operation_seen(e, op);
		json_object_set_new(fresh, id, json_string(state));
		if (!admin_state_final(state) && strlen(id) == 32)
			follow(e, id);
	}
	if (json_array_size(list) > 0) { /* what has left the list is forgotten */
		json_decref(e->seen);
		e->seen = json_incref(fresh);
	}
	json_decref(fresh);
}

static void on_runtime(int status, const json_t *body, const struct hb_error *err, void *arg)
{
	struct admin_events *e = arg;

	(void)err;
	e->runtime = NULL;
	if (status == 200 && admin_history_health(e->admin->history, body))
		admin_events_send(e, "runtime",
				  json_pack("{s:s,s:b,s:s}", "state",
					    hb_json_text(json_object_get(body, "process"), "state", "unknown"), "ok",
					    hb_json_bool(json_object_get(body, "health"), "ok", false), "release",
					    hb_json_text(body, "manifest_digest", "")));
}

static struct hb_client_call *ask(struct admin_events *e, enum hb_peer server, const char *path,
				  void (*done)(int, const json_t *, const struct hb_error *, void *))
{
	return hb_client_start(e->admin->process->client,
			       &(struct hb_call){.server = server, .method = "GET", .path = path,
						 .timeout_ms = ASK_TIMEOUT_MS, .on_done = done, .arg = e});
}

void admin_events_tick(struct admin_events *e)
{
	int64_t now = hb_monotonic_ms();
	struct listener *l;

	/* The history of health is kept also when no page is open. */
	if (!e->runtime && e->admin->ticks % RUNTIME_EVERY == 0)
		e->runtime = ask(e, HB_PEER_INSTALLER, "/runtime", on_runtime);
	if (e->count == 0) {
		for (size_t i = 0; i < FOLLOW_MAX; i++)
			if (e->follows[i].call) {
				hb_client_cancel(e->follows[i].call);
				on_followed(0, NULL, NULL, &e->follows[i]);
			}
		json_object_clear(e->seen);
		return;
	}
	if (!e->list)
		e->list = ask(e, HB_PEER_BROKER, LIST_PATH, on_list);
	LIST_FOREACH(l, &e->listeners, link)
		if (now - l->wrote_ms >= KEEPALIVE_MS) {
			l->wrote_ms = now;
			hb_reply_write(l->req, ": here\n\n", 8);
		}
}

/* ---- listeners ---- */

static void on_closed(void *arg)
{
	struct listener *l = arg;

	listener_free(l->events, l);
}

static struct listener *listen_now(struct admin_events *e, struct hb_request *req, const char *id)
{
	struct listener *l = hb_calloc(1, sizeof *l);
	struct hb_policy_view view = {0};
	long long generation = 0;
	char text[128];

	l->events = e;
	l->req = req;
	snprintf(l->id, sizeof l->id, "%s", id);
	LIST_INSERT_HEAD(&e->listeners, l, link);
	e->count++;
	hb_request_on_close(req, on_closed, l);
	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, NULL) == 0) {
		generation = view.live.generation;
		hb_policy_view_free(&view);
	}
	snprintf(text, sizeof text, "{\"version\":\"%s\",\"policy_generation\":%lld}", HB_VERSION, generation);
	hb_reply_start(req, 200, "text/event-stream");
	write_event(l, "hello", text);
	return l;
}

/* Somebody who wants one operation: does it exist, and is it over already? */
struct wish {
	struct admin_events *events;
	struct hb_request *req;
	char id[33];
};

static void wish_gone(void *arg)
{
	((struct wish *)arg)->req = NULL;
}

static void wish_answered(int status, const json_t *body, const struct hb_error *why, void *arg)
{
	struct wish *w = arg;
	struct hb_error err = {0};
	struct listener *l;
	json_t *view;
	char *text;

	w->events->count--; /* its place; listen_now takes it again */
	if (!w->req)
		goto out;
	if (status == 0) {
		hb_reply_error(w->req, 503, why);
		goto out;
	}
	if (!json_object_get(body, "operation_id")) {
		hb_reply_failed(status, body, &err);
		hb_reply_error(w->req, 404, &err);
		goto out;
	}
	l = listen_now(w->events, w->req, w->id);
	view = admin_operation_view(body);
	text = json_dumps(view, JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(view);
	write_event(l, "operation", text ? text : "{}");
	free(text);
	if (admin_state_final(hb_json_text(body, "state", ""))) {
		listener_free(w->events, l);
		hb_reply_end(w->req);
	} else
		follow(w->events, w->id);
out:
	free(w);
}

void admin_events_listen(struct admin_events *e, struct hb_request *req, const char *id)
{
	struct hb_call call = {.server = HB_PEER_BROKER, .method = "GET", .timeout_ms = ASK_TIMEOUT_MS};
	struct wish *w;
	char path[80];

	if (e->count >= ADMIN_LISTENERS_MAX) {
		admin_refuse(req, 503, "busy", "too many event streams are open: close a page that shows this");
		return;
	}
	if (!id) {
		listen_now(e, req, "");
		return;
	}
	w = hb_calloc(1, sizeof *w);
	e->count++; /* else any number could pass while the broker is slow to answer */
	w->events = e;
	w->req = req;
	snprintf(w->id, sizeof w->id, "%s", id);
	snprintf(path, sizeof path, "/operations/%s", id);
	hb_request_on_close(req, wish_gone, w);
	call.path = path;
	call.on_done = wish_answered;
	call.arg = w;
	hb_client_start(e->admin->process->client, &call);
}

void admin_stream(struct hb_request *req, void *ctx)
{
	struct admin *a = ctx;

	admin_events_listen(a->events, req, NULL);
}
