/*
 * What a crash left: containers that we made for operations nobody waits for any more. Looked for
 * at the start, and from then on every few seconds together with a look at which containers are
 * ours.
 *
 * Two tasks with the ledger between them. The first lists what carries our label; the executor
 * picks those of operations that its own ledger knows and that are over; the second ends or removes
 * exactly these. A label alone moves nothing: anybody with access to the engine can set one.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "broker/docker/docker.h"
#include "common/digest.h"
#include "common/json.h"
#include "common/log.h"

#define AGAIN_SECONDS 10 /* also how soon a new container of ours is known by its id */
#define TASK_SECONDS 60

/* --- in workers --- */

static int list_work(struct hb_worker *w, json_t **result, struct hb_error *err)
{
	struct hb_docker *d = w->ctx;
	char *filter = hb_asprintf("{\"label\":[\"" HB_LABEL_HOST "=%s\"]}", d->process->host_id);
	char *escaped = hb_engine_escape(filter, ""),
	     *path = hb_asprintf("/containers/json?all=1&filters=%s", escaped);
	json_t *rows = NULL, *out = json_array(), *row;
	struct hb_engine e;
	size_t i;
	int rc = -1;

	/* A look as well, so that what is ours is known by its id before anybody renames it. */
	if (hb_docker_engine(w, &e, err) == 0 && hb_docker_look(w, &e, err) == 0)
		rc = hb_engine_ask(&e, "GET", path, NULL, "listing containers", &rows, err);
	json_array_foreach (rows, i, row) {
		const json_t *labels = json_object_get(row, "Labels");

		json_array_append_new(
			out, json_pack("{s:s, s:s, s:s, s:s}", "id", hb_json_text(row, "Id", ""),
				       "operation_id", hb_json_text(labels, HB_LABEL_OPERATION, ""),
				       "kind", hb_json_text(labels, HB_LABEL_KIND, ""), "state",
				       hb_json_text(row, "State", "")));
	}
	json_decref(rows);
	free(filter);
	free(escaped);
	free(path);
	if (rc == 0)
		*result = json_pack("{s:o}", "containers", out);
	else
		json_decref(out);
	return rc;
}

static int clear_work(struct hb_worker *w, json_t **result, struct hb_error *err)
{
	const json_t *item;
	struct hb_engine e;
	struct hb_error why;
	size_t i;

	if (hb_docker_engine(w, &e, err) < 0)
		return -1;
	json_array_foreach (json_object_get(w->request, "containers"), i, item) {
		bool remove = strcmp(hb_json_text(item, "how", ""), "remove") == 0;
		char *path = hb_asprintf("/containers/%.64s%s", hb_json_text(item, "id", ""),
					 remove ? "?force=1&v=1" : "/kill");
		int rc = hb_engine_ask(&e, remove ? "DELETE" : "POST", path, NULL,
				       "clearing away a container", NULL, &why);

		free(path);
		if (rc < 0 && strcmp(why.code, "not_found") != 0 &&
		    strcmp(why.code, "conflict") != 0)
			return hb_fail(err, why.code, "%s", why.message);
	}
	return 0;
}

/* --- in the executor --- */

static void again(struct hb_docker *d, int seconds)
{
	struct timeval tv = {seconds, 0};

	event_add(d->sweep, &tv);
}

static void on_cleared(const json_t *result, const struct hb_error *err, void *arg)
{
	struct hb_docker *d = arg;
	struct hb_error failed;
	json_t *detail = json_pack("{s:s}", "phase", "sweep");

	if (err) {
		json_object_set_new(detail, "code", json_string(err->code));
		json_object_set_new(detail, "error", json_string(err->message));
	}
	if (hb_audit_append(d->process->audit, "docker", err ? "failed" : "ok", detail, &failed) <
	    0)
		hb_log(HB_LOG_ERROR, "audit_failed", "msg", failed.message, NULL);
	json_decref(detail);
	d->swept = !err;
	again(d, AGAIN_SECONDS);
}

/* What is to be done with it; NULL: nothing. */
static const char *what_with(struct hb_docker *d, const json_t *item)
{
	const char *kind = hb_json_text(item, "kind", ""), *state = hb_json_text(item, "state", "");
	bool made = strcmp(state, "created") == 0;
	char operation[24];

	if (!hb_executor_knows(d->executor, hb_json_text(item, "operation_id", ""), operation) ||
	    strcmp(operation, "executing") == 0 || strcmp(operation, "queued") == 0 ||
	    !hb_is_hex64(hb_json_text(item, "id", "")))
		return NULL;
	if (strcmp(kind, "sandbox") == 0)
		return "remove";
	/* Others stay when their operation came to an end; when it did not, what was not started
	 * never will be, and what should have been waited for is over. */
	if (strcmp(operation, "outcome_unknown") != 0)
		return NULL;
	if (made)
		return "remove";
	return strcmp(kind, "attached") == 0 && strcmp(state, "running") == 0 ? "kill" : NULL;
}

static void on_listed(const json_t *result, const struct hb_error *err, void *arg)
{
	struct hb_docker *d = arg;
	json_t *todo = json_array(), *input, *item, *one;
	struct hb_error failed;
	size_t i;

	again(d, AGAIN_SECONDS);
	if (err) {
		json_decref(todo);
		return;
	}
	json_array_foreach (json_object_get(result, "containers"), i, item) {
		const char *how = what_with(d, item);

		if (!how)
			continue;
		one = json_pack("{s:s, s:s, s:s}", "id", hb_json_text(item, "id", ""),
				"operation_id", hb_json_text(item, "operation_id", ""), "how", how);
		json_array_append_new(todo, one);
	}
	d->swept = json_array_size(todo) == 0;
	input = json_pack("{s:s, s:o}", "phase", "sweep", "containers", todo);
	if (!d->swept &&
	    (hb_audit_append(d->process->audit, "docker", "intent", input, &failed) < 0 ||
	     hb_executor_task(d->executor, clear_work, input, TASK_SECONDS, on_cleared, d,
			      &failed) < 0)) {
		hb_log(HB_LOG_ERROR, "sweep_failed", "code", failed.code, "msg", failed.message,
		       NULL);
	}
	json_decref(input);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct hb_docker *d = arg;
	struct hb_error err;
	struct stat st;
	json_t *input = json_object();

	/* No engine, nothing of ours in it. */
	if (stat(hb_config_text(d->process->config, "docker.socket"), &st) < 0 ||
	    hb_executor_task(d->executor, list_work, input, TASK_SECONDS, on_listed, d, &err) < 0)
		again(d, AGAIN_SECONDS);
	json_decref(input);
}

void hb_docker_sweep(struct hb_docker *d)
{
	d->swept = false;
	if (!d->sweep)
		d->sweep = evtimer_new(d->process->base, on_timer, d);
	event_del(d->sweep);
	again(d, 0);
}
