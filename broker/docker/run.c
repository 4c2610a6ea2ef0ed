/* Running containers (run.h). */
#include "broker/docker/run.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/docker/output.h"
#include "broker/docker/seal.h"
#include "common/ids.h"
#include "common/json.h"

#define FINISH_MS 20000 /* for putting things in order when time is up */
#define END_MS 10000    /* from SIGKILL until the engine says it has ended */
#define DRAIN_MS 2000   /* for the last output after the end */
#define SLICE_MS 200
#define LOOK_AGAIN_US 300000

struct run {
	struct hb_worker *w;
	struct hb_engine *e;
	const struct hb_run_spec *spec;
	char id[HB_HEX256];
	struct hb_engine_stream *attach, *wait;
	struct hb_frames frames;
	struct hb_output out;
	bool ended; /* the engine says so */
	int code; /* exit status; -1: not known */
};

/* From here on only what ends and clears away: it has time of its own. */
static void finishing(struct run *r, int64_t ms)
{
	r->e->finishing = true;
	r->e->deadline_ms = hb_monotonic_ms() + ms;
}

static int call(struct run *r, const char *method, const char *fmt, const char *what,
		json_t **answer, struct hb_error *err)
{
	char path[160];

	snprintf(path, sizeof path, "/containers/%s%s", r->id, fmt);
	return hb_engine_ask(r->e, method, path, NULL, what, answer, err);
}

/* 0 when it is gone for certain. */
static int remove_it(struct run *r, struct hb_error *err)
{
	char path[160];
	struct hb_error why;

	snprintf(path, sizeof path, "/containers/%s?force=1&v=1", r->id);
	if (hb_engine_ask(r->e, "DELETE", path, NULL, "removing the container", NULL, &why) < 0 &&
	    strcmp(why.code, "not_found") != 0 &&
	    strstr(why.message, "already in progress") == NULL)
		return hb_fail(err, why.code, "%s", why.message);
	return 0;
}

/* The answer to create was lost: a container may be there under our label. -1: nobody can tell. */
static int find_lost(struct run *r, struct hb_error *err)
{
	char *filter = hb_asprintf("{\"label\":[\"" HB_LABEL_OPERATION "=%s\"]}",
				   r->w->operation_id);
	char *escaped = hb_engine_escape(filter, ""),
	     *path = hb_asprintf("/containers/json?all=1&filters=%s", escaped);
	json_t *found = NULL;
	int rc = hb_engine_ask(r->e, "GET", path, NULL, "looking for the container", &found, err);
	const char *id = hb_json_text(json_array_get(found, 0), "Id", "");

	if (rc == 0 && hb_is_hex64(id))
		memcpy(r->id, id, sizeof r->id);
	json_decref(found);
	free(filter);
	free(escaped);
	free(path);
	return rc;
}

/* Clear away what was made; `err` says what went wrong before and is added to when that fails too.
 */
static void give_up(struct run *r, struct hb_error *err)
{
	struct hb_error why;
	int rc = 0;

	finishing(r, FINISH_MS);
	if (!r->id[0])
		rc = find_lost(r, &why);
	if (rc == 0 && r->id[0])
		rc = remove_it(r, &why);
	if (rc < 0) {
		struct hb_error before = *err;

		r->w->unknown = true;
		hb_fail(err, before.code, "%.200s; a container may have been left behind: %.200s",
			before.message, why.message);
	}
}

static int create(struct run *r, struct hb_error *err)
{
	char *name = hb_engine_escape(r->spec->name ? r->spec->name : "", "");
	char *path = hb_asprintf("/containers/create%s%s", *name ? "?name=" : "", name);
	json_t *answer = NULL;
	struct hb_error why;
	int rc = hb_engine_ask(r->e, "POST", path, r->spec->body, "making the container", &answer,
			       &why);
	const char *id = hb_json_text(answer, "Id", "");

	if (rc == 0 && !hb_is_hex64(id))
		rc = hb_fail(&why, "engine_bad_reply",
			     "the Docker engine gives the new container no usable id");
	if (rc == 0)
		memcpy(r->id, id, sizeof r->id);
	else if (strcmp(why.code, "conflict") == 0)
		hb_fail(err, "name_in_use", "%s", why.message);
	else if (strcmp(why.code, "not_found") == 0)
		hb_fail(err, "image_changed", "%s", why.message);
	else
		*err = why;
	/* Refused: nothing was made. Not answered: perhaps. */
	if (rc < 0 &&
	    (strcmp(why.code, "engine_bad_reply") == 0 || strcmp(why.code, "engine_timeout") == 0 ||
	     strcmp(why.code, "interrupted") == 0))
		give_up(r, err);
	json_decref(answer);
	free(name);
	free(path);
	return rc;
}

static int open_streams(struct run *r, struct hb_error *err)
{
	char path[160];

	snprintf(path, sizeof path, "/containers/%s/attach?stream=1&stdout=1&stderr=1", r->id);
	if (hb_engine_stream_open(r->e, "POST", path, NULL, "attaching to the container",
				  &r->attach, err) < 0)
		return -1;
	snprintf(path, sizeof path, "/containers/%s/wait?condition=next-exit", r->id);
	return hb_engine_stream_open(r->e, "POST", path, NULL, "waiting for the container",
				     &r->wait, err);
}

/* --- its output and its end --- */

static void take_output(struct run *r)
{
	struct hb_error err;

	hb_engine_stream_pump(r->attach);
	if (r->attach->body.len > 0 && !r->out.incomplete &&
	    hb_frames_feed(&r->frames, r->attach->body.data, r->attach->body.len, hb_output_sink,
			   &r->out, &err) < 0)
		r->out.incomplete = true;
	hb_buf_clear(&r->attach->body);
	if (r->attach->failed || (r->attach->complete && !hb_frames_whole(&r->frames)))
		r->out.incomplete = true;
}

static bool over(const struct hb_engine_stream *s)
{
	return s->complete || s->failed || s->ended;
}

/* Until the container ends or the stream breaks: r->ended says which. Returns false when time is
 * up. */
static bool wait_end(struct run *r, int64_t deadline, bool interruptible)
{
	while (!over(r->wait)) {
		struct pollfd p[2] = {
			{.fd = r->wait->fd, .events = POLLIN},
			{.fd = over(r->attach) ? -1 : r->attach->fd, .events = POLLIN}};
		int64_t left = deadline - hb_monotonic_ms();

		if (left <= 0 || (interruptible && hb_worker_stopping()))
			return false;
		if (poll(p, 2, left < SLICE_MS ? (int)left : SLICE_MS) <= 0)
			continue;
		if (p[1].revents)
			take_output(r);
		if (p[0].revents)
			hb_engine_stream_pump(r->wait);
	}
	if (r->wait->complete) {
		json_t *answer = r->wait->body.len > 0
					 ? hb_json_parse_foreign(r->wait->body.data,
								 r->wait->body.len, NULL)
					 : NULL;

		r->code = (int)hb_json_int(answer, "StatusCode", -1);
		r->ended = r->code >= 0;
		json_decref(answer);
	}
	return true;
}

static void drain(struct run *r)
{
	int64_t deadline = hb_monotonic_ms() + DRAIN_MS;

	while (!over(r->attach) && hb_monotonic_ms() < deadline) {
		struct pollfd p = {.fd = r->attach->fd, .events = POLLIN};

		if (poll(&p, 1, SLICE_MS) > 0)
			take_output(r);
	}
	take_output(r);
	if (!r->attach->complete)
		r->out.incomplete = true;
}

/* The wait broke off (an engine that restarts): ask how the container is until the engine can tell.
 */
static void look_until_ended(struct run *r, int64_t deadline)
{
	struct hb_error err;

	r->out.incomplete = true;
	while (hb_monotonic_ms() < deadline && !hb_worker_stopping()) {
		json_t *answer = NULL;
		const json_t *state;
		int64_t kept = r->e->deadline_ms;

		r->e->deadline_ms = 0;
		int rc = call(r, "GET", "/json", "looking at the container", &answer, &err);
		r->e->deadline_ms = kept;
		state = json_object_get(answer, "State");
		if (rc == 0 && !hb_json_bool(state, "Running", true)) {
			r->ended = true;
			r->code = (int)hb_json_int(state, "ExitCode", -1);
		}
		json_decref(answer);
		if (r->ended || (rc < 0 && strcmp(err.code, "not_found") == 0))
			return;
		usleep(LOOK_AGAIN_US);
	}
}

/* Time is up, or the executor stops: end it, and say whether it has ended. */
static void end_it(struct run *r)
{
	struct hb_error err;

	finishing(r, FINISH_MS);
	if (call(r, "POST", "/kill", "ending the container", NULL, &err) < 0 &&
	    strcmp(err.code, "conflict") != 0 && strcmp(err.code, "not_found") != 0)
		return;
	if (!over(r->wait))
		wait_end(r, hb_monotonic_ms() + END_MS, false);
	if (!r->ended && over(r->wait)) {
		json_t *answer = NULL;

		if (call(r, "GET", "/json", "looking at the container", &answer, &err) == 0)
			r->ended = !hb_json_bool(json_object_get(answer, "State"), "Running", true);
		else
			r->ended = strcmp(err.code, "not_found") == 0;
		json_decref(answer);
	}
}

static bool was_out_of_memory(struct run *r)
{
	json_t *answer = NULL;
	bool oom;

	call(r, "GET", "/json", "looking at the container", &answer, NULL);
	oom = hb_json_bool(json_object_get(answer, "State"), "OOMKilled", false);
	json_decref(answer);
	return oom;
}

static int time_is_up(struct run *r, json_t *result, struct hb_error *err)
{
	bool stopping = hb_worker_stopping();
	const char *why = stopping ? "the executor was stopped"
				   : "the operation took longer than its timeout";

	end_it(r);
	json_object_set_new(result, "timed_out", json_boolean(!stopping));
	json_object_set_new(result, "returncode", json_integer(stopping ? 1 : 124));
	if (r->ended)
		return hb_fail(err, stopping ? "interrupted" : "timeout", "%s; what ran was ended",
			       why);
	return hb_fail(err, stopping ? "interrupted" : "timeout",
		       "%s, and what ran could not be ended: container %.12s may still be running",
		       why, r->id);
}

static int follow(struct run *r, json_t *result, struct hb_error *err)
{
	int rc = 0;

	if (!wait_end(r, r->w->deadline_ms, true))
		rc = time_is_up(r, result, err);
	else if (!r->ended)
		look_until_ended(r, r->w->deadline_ms);
	if (rc == 0 && !r->ended &&
	    (hb_worker_stopping() || hb_monotonic_ms() >= r->w->deadline_ms))
		rc = time_is_up(r, result, err);
	drain(r);
	if (rc == 0 && r->code >= 0) {
		json_object_set_new(result, "returncode", json_integer(r->code));
		json_object_set_new(result, "oom_killed",
				    json_boolean(!r->spec->auto_remove && r->code == 137 &&
						 was_out_of_memory(r)));
	} else if (rc == 0) {
		r->w->unknown = true;
		rc = hb_fail(err, "exit_unknown",
			     "the connection to the Docker engine was lost and the exit status "
			     "can't be learned any more");
	}
	hb_output_result(&r->out, result);
	return rc;
}

/* From "made" to "started": whatever goes wrong here, nothing of it stays. */
static int start(struct run *r, struct hb_error *err)
{
	struct hb_error why;

	/* Making it has fixed what its volumes are; the sources of binds are looked up by the
	 * engine at its start. */
	if (hb_seal_volumes(r->e, r->spec->request, err) < 0 ||
	    (!r->spec->detach && open_streams(r, err) < 0) ||
	    hb_seal_binds(r->spec->request, err) < 0)
		goto failed;
	if (call(r, "POST", "/start", "starting the container", NULL, &why) < 0) {
		bool answered = strcmp(why.code, "engine_error") == 0 ||
				strcmp(why.code, "not_found") == 0 ||
				strcmp(why.code, "conflict") == 0;

		/* Without an answer it may have run for a moment. */
		r->w->unknown = !answered;
		hb_fail(err, answered ? "start_failed" : why.code, "%s", why.message);
		goto failed;
	}
	if (hb_seal_binds(r->spec->request, err) < 0) {
		hb_fail_prefix(err, "it was ended right after its start");
		goto failed;
	}
	return 0;
failed:
	give_up(r, err);
	return -1;
}

static void clear_away(struct run *r, json_t *result)
{
	struct hb_error err;

	if (r->spec->keep || r->spec->auto_remove || r->spec->detach)
		return;
	finishing(r, FINISH_MS);
	if (remove_it(r, &err) < 0) {
		json_object_set_new(result, "left_behind", json_string(r->id));
		hb_worker_note(r->w, json_pack("{s:b}", "sweep", 1));
	}
}

int hb_run_container(struct hb_worker *w, struct hb_engine *e, const struct hb_run_spec *spec,
		     json_t **result, struct hb_error *err)
{
	struct run r = {.w = w, .e = e, .spec = spec, .code = -1};
	int rc = -1;

	if (create(&r, err) < 0 || start(&r, err) < 0)
		goto out;
	*result = json_pack("{s:s}", "container", r.id);
	if (spec->name)
		json_object_set_new(*result, "name", json_string(spec->name));
	if (spec->detach) {
		char text[100];

		snprintf(text, sizeof text, "started %.64s\n", r.id);
		json_object_set_new(*result, "output", json_string(text));
		rc = 0;
		goto out;
	}
	hb_worker_progress(w, "running", 0, 0, "");
	rc = follow(&r, *result, err);
	clear_away(&r, *result);
out:
	hb_engine_stream_close(r.attach);
	hb_engine_stream_close(r.wait);
	hb_output_free(&r.out);
	return rc;
}
