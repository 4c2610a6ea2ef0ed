/*
 * The installer's side of the caller worker: POST /mcp. One call is with the worker at a time, the
 * others wait in line; the time of each runs from when it was asked. A worker that does not answer
 * in time, or not sensibly, is ended and not replaced before the next start of the installer (which
 * is confined by now and can't make another): health goes on.
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "broker/installer/caller.h"
#include "broker/installer/supervise.h"
#include "common/buf.h"
#include "common/fields.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "onboarding/keys.h"
#include "onboarding/mcp_call.h"

#define WAITING_MAX 16
#define GRACE_MS 5000 /* the worker keeps the time itself */
#define LINE_EXTRA 65536

struct waiting {
	struct hb_request *req; /* NULL: the asker has gone */
	json_t *question;
	int64_t deadline_ms;
	struct waiting *next;
};

struct hb_caller {
	struct hb_process *process;
	struct hb_supervisor *supervisor;
	int fd;
	pid_t pid;
	struct bufferevent *io;
	struct event *late;   /* of the call that is with the worker */
	struct waiting *line; /* first: with the worker when `busy` */
	size_t count;
	bool busy, lost;
	json_int_t id;
};

int hb_caller_new(struct hb_process *process, uint16_t port, struct hb_caller **out,
		  struct hb_error *err)
{
	const struct hb_caller_options options = {
		.uid = hb_peer_uid(HB_PEER_PROBE),
		.gid = hb_peer_gid(HB_PEER_PROBE),
		.port = port,
		.mcp_path = hb_config_text(process->config, "runtime.mcp_path"),
		.degraded_ok = strcmp(hb_config_text(process->config, "sandbox.mode"),
				      "degraded") == 0};
	struct hb_caller *c = hb_calloc(1, sizeof *c);

	c->process = process;
	if (hb_caller_fork(&options, &c->fd, &c->pid, err) < 0) {
		free(c);
		return -1;
	}
	*out = c;
	return 0;
}

/* --- the end of a call --- */

static void next(struct hb_caller *c);

/* `answer` is stolen; NULL: err. */
static void finish(struct hb_caller *c, json_t *answer, const struct hb_error *err)
{
	struct waiting *w = c->line;

	c->line = w->next;
	c->count--;
	if (w->req) {
		hb_request_on_close(w->req, NULL, NULL);
		if (answer)
			hb_reply_json(w->req, 200, json_incref(answer));
		else
			hb_reply_error(w->req, 200, err);
	}
	json_decref(answer);
	json_decref(w->question);
	free(w);
}

static void lose(struct hb_caller *c, const char *why)
{
	struct hb_error err;

	hb_fail(&err, "worker_failed",
		"%s; restart hermes-installer (hermesctl down, hermesctl up)", why);
	hb_log(HB_LOG_ERROR, "worker_lost", "worker", "caller", "msg", why, NULL);
	c->lost = true;
	c->busy = false;
	event_del(c->late);
	bufferevent_disable(c->io, EV_READ | EV_WRITE);
	if (kill(c->pid, SIGKILL) == 0)
		waitpid(c->pid, NULL, 0);
	while (c->line)
		finish(c, NULL, &err);
}

static void on_late(evutil_socket_t fd, short what, void *arg)
{
	lose(arg, "the worker that calls the runtime did not keep the time of a call");
}

static void on_event(struct bufferevent *io, short what, void *arg)
{
	lose(arg, "the worker that calls the runtime has ended");
}

static void on_line(struct bufferevent *io, void *arg)
{
	struct hb_caller *c = arg;
	size_t len;
	char *line = evbuffer_readln(bufferevent_get_input(io), &len, EVBUFFER_EOL_LF);
	json_t *answer;

	if (!line) {
		if (evbuffer_get_length(bufferevent_get_input(io)) >
		    2 * HB_MCP_REPLY_MAX + LINE_EXTRA)
			lose(c, "the worker that calls the runtime answers without end");
		return;
	}
	answer = hb_json_parse_foreign(line, len, NULL);
	free(line);
	if (!c->busy || !json_is_object(answer) || hb_json_int(answer, "id", -1) != c->id) {
		json_decref(answer);
		lose(c, "the worker that calls the runtime answered what was not asked");
		return;
	}
	c->busy = false;
	event_del(c->late);
	json_object_del(answer, "id");
	finish(c, answer, NULL);
	next(c);
}

/* --- the beginning --- */

/* The key must reach nobody but the payload: only its own user may be listening on the port. */
static int hand_over(struct hb_caller *c, struct waiting *w, struct hb_error *err)
{
	int64_t left = w->deadline_ms - hb_monotonic_ms();
	struct timeval tv = {.tv_sec = (left + GRACE_MS) / 1000};
	char *text;

	if (left <= 0)
		return hb_fail(err, "timeout",
			       "other calls of the runtime took all the time of this one");
	if (hb_supervisor_serves(c->supervisor, err) < 0)
		return -1;
	json_object_set_new(w->question, "id", json_integer(++c->id));
	json_object_set_new(w->question, "timeout_ms", json_integer(left));
	text = json_dumps(w->question, JSON_COMPACT);
	if (!text || bufferevent_write(c->io, text, strlen(text)) < 0 ||
	    bufferevent_write(c->io, "\n", 1) < 0) {
		free(text);
		return hb_fail(err, "worker_failed", "the call can't be passed to the worker");
	}
	free(text);
	hb_named_key_used(hb_json_text(w->question, "key", ""));
	event_add(c->late, &tv);
	c->busy = true;
	return 0;
}

static void next(struct hb_caller *c)
{
	struct hb_error err;

	while (c->line && !c->busy) {
		if (!c->line->req)
			hb_fail(&err, "cancelled", "nobody waits for it any more");
		else if (hand_over(c, c->line, &err) == 0)
			return;
		finish(c, NULL, &err);
	}
}

static void on_gone(void *arg)
{
	struct waiting *w = arg;

	w->req = NULL;
}

/* A question as the worker wants it, or NULL. */
static json_t *read_question(const json_t *body, int64_t *timeout_ms, struct hb_error *err)
{
	struct question {
		const char *key, *tool;
		const json_t *arguments;
		long long timeout_ms, reply_max;
	} q = {.timeout_ms = HB_MCP_TIMEOUT_MS, .reply_max = HB_MCP_REPLY_BYTES};
	static const struct hb_field fields[] = {
		{"key", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct question, key), 1,
		 HB_MCP_NAME_MAX},
		{"tool", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct question, tool), 0, 16},
		{"arguments", HB_FIELD_OBJECT, HB_FIELD_REQUIRED,
		 offsetof(struct question, arguments), 0, 0},
		{"timeout_ms", HB_FIELD_INT, 0, offsetof(struct question, timeout_ms), 100,
		 HB_MCP_TIMEOUT_MAX_MS},
		{"reply_max", HB_FIELD_INT, 0, offsetof(struct question, reply_max), 1024,
		 HB_MCP_REPLY_MAX},
	};

	if (hb_fields_decode(body, fields, sizeof fields / sizeof fields[0], &q, err) < 0 ||
	    hb_mcp_key_name_check(q.key, err) < 0)
		return NULL;
	if (q.tool[0] && strcmp(q.tool, "execute") != 0 && strcmp(q.tool, "resume") != 0) {
		hb_fail(err, "bad_request", "only the tools execute and resume are called");
		return NULL;
	}
	*timeout_ms = q.timeout_ms;
	return json_pack("{s:s, s:s, s:O, s:I}", "key", q.key, "tool", q.tool, "arguments",
			 q.arguments, "reply_max", (json_int_t)q.reply_max);
}

void hb_caller_handle(struct hb_caller *c, struct hb_request *req)
{
	struct waiting *w, **end = &c->line;
	json_t *question = NULL;
	int64_t timeout_ms = 0;
	struct hb_error err;

	if (c->lost)
		hb_fail(&err, "worker_failed",
			"the worker that calls the runtime has ended; restart hermes-installer "
			"(hermesctl down, hermesctl up)");
	else if (c->count >= WAITING_MAX)
		hb_fail(&err, "busy", "%d calls of the runtime are waiting already", WAITING_MAX);
	else
		question = read_question(hb_request_json(req), &timeout_ms, &err);
	if (!question) {
		hb_reply_error(req, 200, &err);
		return;
	}
	w = hb_calloc(1, sizeof *w);
	w->req = req;
	w->question = question;
	w->deadline_ms = hb_monotonic_ms() + timeout_ms;
	while (*end)
		end = &(*end)->next;
	*end = w;
	c->count++;
	hb_request_on_close(req, on_gone, w);
	next(c);
}

int hb_caller_listen(struct hb_caller *c, struct hb_supervisor *supervisor, struct hb_error *err)
{
	c->supervisor = supervisor;
	c->late = evtimer_new(c->process->base, on_late, c);
	c->io = bufferevent_socket_new(c->process->base, c->fd, BEV_OPT_CLOSE_ON_FREE);
	if (!c->late || !c->io)
		return hb_fail(err, "event_failed",
			       "cannot listen to the worker that calls the runtime");
	bufferevent_setcb(c->io, on_line, NULL, on_event, c);
	return bufferevent_enable(c->io, EV_READ | EV_WRITE) < 0
		       ? hb_fail(err, "event_failed",
				 "cannot listen to the worker that calls the runtime")
		       : 0;
}

/* Requests are the server's, which is gone by now. */
void hb_caller_free(struct hb_caller *c)
{
	if (!c)
		return;
	while (c->line) {
		struct waiting *w = c->line;

		c->line = w->next;
		json_decref(w->question);
		free(w);
	}
	if (c->io)
		bufferevent_free(c->io);
	if (c->late)
		event_free(c->late);
	if (!c->lost && kill(c->pid, SIGKILL) == 0)
		waitpid(c->pid, NULL, 0);
	free(c);
}
