/* Actions on what is there (actions.h). */
#include "broker/docker/actions.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/docker/output.h"
#include "broker/docker/redact.h"
#include "common/ids.h"
#include "common/json.h"
#include "policy/operation.h"
#include "policy/text.h"

#define STOP_SECONDS 10 /* from SIGTERM to SIGKILL, as everywhere with Docker */
#define LOOK_MS 5000    /* to see how things are when time is up */
#define SLICE_MS 250
#define PULL_LINE_MAX (1u << 20)

static json_t *text_result(const char *text)
{
	struct hb_output o = {0};
	json_t *result = json_object();

	hb_output_sink(HB_FRAME_STDOUT, text, strlen(text), &o);
	hb_output_result(&o, result);
	hb_output_free(&o);
	return result;
}

static json_t *json_result(const json_t *value, size_t flags)
{
	char *text = json_dumps(value, flags);
	json_t *result = text_result(text ? text : "");

	free(text);
	return result;
}

/* Time is up: as an error that says so. *result as clients know it from programs that were ended.
 */
static int timed_out(json_t **result, struct hb_error *err, const char *what)
{
	if (!*result)
		*result = json_object();
	json_object_set_new(*result, "returncode", json_integer(124));
	json_object_set_new(*result, "timed_out", json_true());
	return hb_fail(err, "timeout", "the operation took longer than its timeout; %s", what);
}

static bool is_timeout(const struct hb_error *err)
{
	return strcmp(err->code, "engine_timeout") == 0;
}

int hb_action_list(struct hb_worker *w, struct hb_engine *e, json_t **result, struct hb_error *err)
{
	bool all = hb_json_bool(w->request, "all", false);
	json_t *rows = NULL, *out = json_array(), *row;
	size_t i;
	int rc = hb_engine_ask(e, "GET", all ? "/containers/json?all=1" : "/containers/json", NULL,
			       "listing containers", &rows, err);

	json_array_foreach (rows, i, row)
		json_array_append_new(out, hb_redact_row(row));
	if (rc == 0)
		*result = json_result(out, JSON_INDENT(1) | JSON_SORT_KEYS);
	else if (is_timeout(err))
		timed_out(result, err, "nothing was changed");
	json_decref(rows);
	json_decref(out);
	return rc;
}

static int inspect(struct hb_worker *w, struct hb_engine *e, json_t **answer, struct hb_error *err)
{
	char path[120];

	snprintf(path, sizeof path, "/containers/%.64s/json",
		 hb_json_text(w->request, "container", ""));
	return hb_engine_ask(e, "GET", path, NULL, "inspecting the container", answer, err);
}

int hb_action_inspect(struct hb_worker *w, struct hb_engine *e, json_t **result,
		      struct hb_error *err)
{
	json_t *answer = NULL, *shown;
	int rc = inspect(w, e, &answer, err);

	if (rc == 0) {
		shown = hb_redact_inspect(answer);
		*result = json_result(shown, JSON_INDENT(1) | JSON_SORT_KEYS);
		json_decref(shown);
	} else if (is_timeout(err)) {
		timed_out(result, err, "nothing was changed");
	}
	json_decref(answer);
	return rc;
}

/* --- logs --- */

/* 0 when the stream is over, 1 when time is up, -1 when it is no valid stream. */
static int read_logs(struct hb_worker *w, struct hb_engine_stream *s, struct hb_frames *frames,
		     struct hb_output *o, struct hb_error *err)
{
	while (!s->complete && !s->failed && !s->ended) {
		struct pollfd p = {.fd = s->fd, .events = POLLIN};

		if (hb_monotonic_ms() >= w->deadline_ms || hb_worker_stopping())
			return 1;
		if (poll(&p, 1, SLICE_MS) > 0)
			hb_engine_stream_pump(s);
		if (s->body.len > 0 &&
		    hb_frames_feed(frames, s->body.data, s->body.len, hb_output_sink, o, err) < 0)
			return -1;
		hb_buf_clear(&s->body);
	}
	if (s->body.len > 0 &&
	    hb_frames_feed(frames, s->body.data, s->body.len, hb_output_sink, o, err) < 0)
		return -1;
	return 0;
}

int hb_action_logs(struct hb_worker *w, struct hb_engine *e, json_t **result, struct hb_error *err)
{
	struct hb_output o = {0};
	struct hb_frames frames = {0};
	struct hb_engine_stream *s = NULL;
	json_t *answer = NULL;
	char path[200];
	int rc = inspect(w, e, &answer, err);

	snprintf(path, sizeof path, "/containers/%.64s/logs?stdout=1&stderr=1&tail=%lld",
		 hb_json_text(w->request, "container", ""), hb_json_int(w->request, "tail", 200));
	frames.plain = hb_json_bool(json_object_get(answer, "Config"), "Tty", false);
	json_decref(answer);
	if (rc < 0 || hb_engine_stream_open(e, "GET", path, NULL, "reading the log", &s, err) < 0) {
		rc = -1;
		goto out;
	}
	rc = read_logs(w, s, &frames, &o, err);
	o.incomplete = rc != 0 || !s->complete || !hb_frames_whole(&frames);
	*result = json_object();
	hb_output_result(&o, *result);
	if (rc > 0)
		rc = timed_out(result, err, "the output is what had come until then");
	else if (rc == 0 && o.incomplete)
		rc = hb_fail(err, "log_incomplete",
			     "the Docker engine ended the log in the middle");
out:
	if (rc < 0 && is_timeout(err))
		timed_out(result, err, "nothing was changed");
	hb_engine_stream_close(s);
	hb_output_free(&o);
	return rc;
}

/* --- pull --- */

/* One line of the engine's report; -1 when it says that the pull failed. */
static int pull_line(struct hb_worker *w, const char *text, size_t len, struct hb_error *err)
{
	json_t *line = hb_json_parse_foreign(text, len, NULL),
	       *detail = json_object_get(line, "progressDetail");
	const char *error = hb_json_text(line, "error", NULL);
	char shown[301];
	int rc = 0;

	if (error) {
		hb_show(error, shown, sizeof shown);
		rc = hb_fail(err, "pull_failed", "the Docker engine could not pull the image: %s",
			     shown);
	} else if (hb_json_int(detail, "total", 0) > 0) {
		hb_worker_progress(w, "pull", hb_json_int(detail, "current", 0),
				   hb_json_int(detail, "total", 0), "bytes");
	}
	json_decref(line);
	return rc;
}

static int pull_lines(struct hb_worker *w, struct hb_engine_stream *s, struct hb_error *err)
{
	char *at = s->body.data, *end;
	size_t left = s->body.len;

	while (left > 0 && (end = memchr(at, '\n', left))) {
		if (pull_line(w, at, (size_t)(end - at), err) < 0)
			return -1;
		left -= (size_t)(end + 1 - at);
		at = end + 1;
	}
	if (left > PULL_LINE_MAX)
		return hb_fail(err, "engine_bad_reply",
			       "the Docker engine reports on the pull in a line without end");
	if (at != s->body.data && s->body.data) {
		memmove(s->body.data, at, left);
		s->body.len = left;
	}
	return 0;
}

static int follow_pull(struct hb_worker *w, struct hb_engine_stream *s, json_t **result,
		       struct hb_error *err)
{
	while (!s->complete && !s->failed && !s->ended) {
		struct pollfd p = {.fd = s->fd, .events = POLLIN};

		/* Closing the connection makes the engine give up. */
		if (hb_worker_stopping())
			return hb_fail(err, "interrupted",
				       "the executor was stopped; the pull was broken off");
		if (hb_monotonic_ms() >= w->deadline_ms)
			return timed_out(
				result, err,
				"the pull was broken off; layers that had arrived may stay");
		if (poll(&p, 1, SLICE_MS) > 0)
			hb_engine_stream_pump(s);
		if (pull_lines(w, s, err) < 0)
			return -1;
	}
	if (s->body.len > 0 && pull_line(w, s->body.data, s->body.len, err) < 0)
		return -1;
	if (!s->complete) {
		w->unknown = true;
		return hb_fail(err, "engine_bad_reply",
			       "the Docker engine broke off its report on the pull");
	}
	return 0;
}

/* The engine has it now, under the digest that was asked for. */
static int pulled(struct hb_engine *e, const char *image, json_t **result, struct hb_error *err)
{
	char *escaped = hb_engine_escape(image, "/:@"),
	     *path = hb_asprintf("/images/%s/json", escaped), *text;
	json_t *answer = NULL;
	int rc = hb_engine_ask(e, "GET", path, NULL, "looking at the pulled image", &answer, err);

	if (rc == 0) {
		text = hb_asprintf("pulled %s\nimage id %s\n", image,
				   hb_json_text(answer, "Id", "?"));
		*result = text_result(text);
		json_object_set(*result, "image_id", json_object_get(answer, "Id"));
		free(text);
	}
	json_decref(answer);
	free(escaped);
	free(path);
	return rc;
}

int hb_action_pull(struct hb_worker *w, struct hb_engine *e, json_t **result, struct hb_error *err)
{
	const char *image = hb_json_text(w->request, "image", ""), *sign = strchr(image, '@');
	char *name = hb_asprintf("%.*s", sign ? (int)(sign - image) : 0, image);
	char *from = hb_engine_escape(name, ""), *tag = hb_engine_escape(sign ? sign + 1 : "", "");
	char *path = hb_asprintf("/images/create?fromImage=%s&tag=%s", from, tag);
	struct hb_engine_stream *s = NULL;
	int rc = hb_engine_stream_open(e, "POST", path, NULL, "pulling the image", &s, err);

	if (rc < 0 && is_timeout(err))
		timed_out(result, err, "the pull was broken off");
	if (rc == 0)
		rc = follow_pull(w, s, result, err);
	if (rc == 0)
		rc = pulled(e, image, result, err);
	hb_engine_stream_close(s);
	free(name);
	free(from);
	free(tag);
	free(path);
	return rc;
}

/* --- start, stop, restart, remove --- */

/* "running", "exited", ..., "gone", or "unknown". */
static void look(struct hb_worker *w, struct hb_engine *e, char out[24])
{
	json_t *answer = NULL;
	struct hb_error err;
	const char *status = "unknown";

	e->finishing = true;
	e->deadline_ms = hb_monotonic_ms() + LOOK_MS;
	if (inspect(w, e, &answer, &err) == 0)
		status = hb_json_text(json_object_get(answer, "State"), "Status", "unknown");
	else if (strcmp(err.code, "not_found") == 0)
		status = "gone";
	memset(out, 0, 24);
	memccpy(out, status, 0, 23);
	json_decref(answer);
}

static void path_of_change(const json_t *request, const char *action, char *out, size_t size)
{
	const char *id = hb_json_text(request, "container", "");

	if (strcmp(action, "remove") == 0)
		snprintf(out, size, "/containers/%.64s?force=%d&v=%d", id,
			 hb_json_bool(request, "force", false),
			 hb_json_bool(request, "remove_volumes", false));
	else if (strcmp(action, "start") == 0)
		snprintf(out, size, "/containers/%.64s/start", id);
	else
		snprintf(out, size, "/containers/%.64s/%s?t=%d", id, action, STOP_SECONDS);
}

int hb_action_change(struct hb_worker *w, struct hb_engine *e, json_t **result,
		     struct hb_error *err)
{
	const char *action = hb_operation_action("docker", w->request),
		   *name = hb_json_text(w->request, "resolved_name", "");
	char path[160], state[24], *text;
	struct hb_error why = {"", ""};
	int rc;

	path_of_change(w->request, action, path, sizeof path);
	rc = hb_engine_ask(e, strcmp(action, "remove") == 0 ? "DELETE" : "POST", path, NULL, action,
			   NULL, &why);
	look(w, e, state);
	text = hb_asprintf("%s: the container %s is %s now\n", action, name, state);
	*result = text_result(text);
	json_object_set_new(*result, "container_state", json_string(state));
	free(text);
	if (rc == 0)
		return 0;
	if (is_timeout(&why)) {
		char what[120];

		snprintf(what, sizeof what,
			 "the engine was asked and may still do it; the container is %s now",
			 state);
		return timed_out(result, err, what);
	}
	/* Not answered: it may have been done, or be done yet. */
	w->unknown = strcmp(why.code, "engine_bad_reply") == 0 ||
		     strcmp(why.code, "interrupted") == 0;
	return hb_fail(err, why.code, "%.300s; the container is %s now", why.message, state);
}
