/*
 * Clients that wait for an operation (/execute) or listen to it (/operations/ID/events).
 *
 * They only look on: when one vanishes, its entry goes and the operation carries on. A waiting
 * client's status line is sent at once and white space follows before the JSON object, since
 * clients give up on silence, not on slowness.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "common/ids.h"
#include "common/json.h"

struct hb_watcher {
	LIST_ENTRY(hb_watcher) link;
	struct hb_broker *b;
	struct hb_request *req;
	char id[HB_OP_ID];
	bool stream; /* server-sent events; else one JSON object at the end */
	int64_t wrote_at;
};

static void
watcher_free(struct hb_watcher *w)
{
	LIST_REMOVE(w, link);
	free(w);
}

static void
gone(void *arg)
{
	watcher_free(arg);
}

static struct hb_watcher *
watch(struct hb_broker *b, struct hb_request *req, const char *id, bool stream)
{
	struct hb_watcher *w = hb_calloc(1, sizeof(*w));

	w->b = b;
	w->req = req;
	w->stream = stream;
	w->wrote_at = hb_monotonic_ms();
	memcpy(w->id, id, sizeof(w->id));
	LIST_INSERT_HEAD(&b->watchers, w, link);
	hb_request_on_close(req, gone, w);
	hb_reply_start(req, 200, stream ? "text/event-stream" : "application/json");
	return w;
}

static void
send_event(struct hb_watcher *w, const char *event, const json_t *data)
{
	struct hb_buf out = HB_BUF_INIT;
	char *text = json_dumps(data, JSON_COMPACT);

	hb_buf_printf(&out, "event: %s\ndata: %s\n\n", event, text ? text : "{}");
	free(text);
	w->wrote_at = hb_monotonic_ms();
	hb_reply_write(w->req, out.data, out.len);
	hb_buf_free(&out);
}

/* The JSON goes out as the last chunk of an answer that has begun already. */
static void
finish(struct hb_watcher *w, json_t *answer)
{
	char *text = json_dumps(answer, JSON_COMPACT);
	struct hb_request *req = w->req;

	watcher_free(w);
	if (text) {
		hb_reply_write(req, text, strlen(text));
		hb_reply_write(req, "\n", 1);
	}
	hb_reply_end(req);
	free(text);
	json_decref(answer);
}

static json_t *
state_event(struct hb_broker *b, const struct hb_op *op)
{
	json_t *o = hb_store_json(b->store, op->id, NULL);

	/* The text is long and doesn't change; whoever wants it reads /operations/ID. */
	json_object_del(o, "summary");
	return o ? o : json_object();
}

void
hb_watchers_changed(struct hb_broker *b, const struct hb_op *op)
{
	struct hb_watcher *w, *next;
	json_t *event = NULL;

	for (w = LIST_FIRST(&b->watchers); w; w = next) {
		next = LIST_NEXT(w, link);
		if (strcmp(w->id, op->id) != 0)
			continue;
		if (!w->stream) {
			if (hb_op_final(op->state))
				finish(w, hb_execute_answer(b, op));
			continue;
		}
		if (!event)
			event = state_event(b, op);
		send_event(w, "state", event);
		if (hb_op_final(op->state)) {
			struct hb_request *req = w->req;

			watcher_free(w);
			hb_reply_end(req);
		}
	}
	json_decref(event);
}

void
hb_watchers_progress(struct hb_broker *b, const char *id, const json_t *progress)
{
	struct hb_watcher *w, *next;

	for (w = LIST_FIRST(&b->watchers); w; w = next) {
		next = LIST_NEXT(w, link);
		if (w->stream && strcmp(w->id, id) == 0)
			send_event(w, "progress", progress);
	}
}

void
hb_watchers_refuse(struct hb_broker *b, const char *id, const struct hb_error *err)
{
	struct hb_watcher *w, *next;

	for (w = LIST_FIRST(&b->watchers); w; w = next) {
		next = LIST_NEXT(w, link);
		if (!w->stream && strcmp(w->id, id) == 0)
			finish(w, hb_json_error(err));
	}
}

void
hb_watchers_tick(struct hb_broker *b)
{
	struct hb_watcher *w, *next;
	int64_t now = hb_monotonic_ms();

	for (w = LIST_FIRST(&b->watchers); w; w = next) {
		next = LIST_NEXT(w, link);
		if (now - w->wrote_at < HB_KEEPALIVE_SECONDS * 1000LL)
			continue;
		w->wrote_at = now;
		if (w->stream)
			hb_reply_write(w->req, ": still here\n\n", 14);
		else
			hb_reply_write(w->req, " ", 1);
	}
}

void
hb_watch_execute(struct hb_broker *b, struct hb_request *req, const struct hb_op *op)
{
	struct hb_watcher *w = watch(b, req, op->id, false);

	hb_reply_write(w->req, " ", 1); /* the status line leaves now, not with the first answer */
}

void
hb_route_events(struct hb_broker *b, struct hb_request *req, const char *id)
{
	struct hb_watcher *w;
	struct hb_op op;
	struct hb_error err;
	const json_t *progress;
	json_t *event;

	if (hb_store_find(b->store, id, &op, &err) < 0) {
		hb_refuse(req, &err);
		return;
	}
	w = watch(b, req, op.id, true);
	event = state_event(b, &op);
	send_event(w, "state", event);
	json_decref(event);
	if (hb_op_final(op.state)) {
		watcher_free(w);
		hb_reply_end(req);
		return;
	}
	progress = hb_run_progress(b, op.id);
	if (progress)
		send_event(w, "progress", progress);
}

void
hb_watchers_free(struct hb_broker *b)
{
	struct hb_watcher *w, *next;

	for (w = LIST_FIRST(&b->watchers); w; w = next) {
		next = LIST_NEXT(w, link);
		watcher_free(w);
	}
}
