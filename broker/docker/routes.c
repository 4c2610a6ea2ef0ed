/* The docker executor's routes: who may call what. Anything not in this table is refused. */
#include <stdlib.h>
#include <string.h>

#include "broker/docker/docker.h"
#include "broker/docker/redact.h"
#include "broker/docker/seal.h"
#include "common/buf.h"
#include "common/fields.h"
#include "common/json.h"
#include "common/log.h"

#define SEAL_SECONDS 20 /* below the 25 s that the broker waits */

/* A caller that waits for a task; req NULL once it is gone. */
struct waiting {
	struct hb_request *req;
};

static void on_gone(void *arg)
{
	struct waiting *w = arg;

	w->req = NULL;
}

static void on_done(const json_t *result, const struct hb_error *err, void *arg)
{
	struct waiting *w = arg;
	json_t *answer;

	if (w->req && err) {
		hb_log(HB_LOG_INFO, "refused", "code", err->code, "msg", err->message, NULL);
		hb_reply_error(w->req, 200, err);
	} else if (w->req) {
		answer = json_pack("{s:s}", "status", "ok");
		json_object_update(answer, (json_t *)(uintptr_t)result);
		hb_reply_json(w->req, 200, answer);
	}
	free(w);
}

static void ask(struct hb_docker *d, struct hb_request *req, hb_executor_work work,
		const json_t *input)
{
	struct waiting *w = hb_calloc(1, sizeof *w);
	struct hb_error err;

	w->req = req;
	if (hb_executor_task(d->executor, work, input, SEAL_SECONDS, on_done, w, &err) < 0) {
		free(w);
		hb_reply_error(req, 200, &err);
		return;
	}
	hb_request_on_close(req, on_gone, w);
}

struct seal_body {
	const char *feature;
	json_t *request;
};

static void handle_seal(struct hb_request *req, void *ctx)
{
	static const struct hb_field fields[] = {
		{"feature", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct seal_body, feature),
		 1, 32},
		{"request", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, offsetof(struct seal_body, request),
		 0, 0},
	};
	struct seal_body body = {0};
	struct hb_error err;

	if (hb_fields_decode(hb_request_json(req), fields, 2, &body, &err) < 0)
		goto refused;
	if (strcmp(body.feature, "docker") != 0 && strcmp(body.feature, "local") != 0) {
		hb_fail(&err, "wrong_executor",
			"this executor seals docker and local operations only");
		goto refused;
	}
	ask(ctx, req, hb_seal_task, hb_request_json(req));
	return;
refused:
	hb_reply_error(req, 200, &err);
}

static int containers_task(struct hb_worker *w, json_t **result, struct hb_error *err)
{
	json_t *rows = NULL, *out = json_array(), *row;
	struct hb_engine e;
	size_t i;
	int rc = hb_docker_engine(w, &e, err);

	if (rc == 0)
		rc = hb_engine_ask(&e, "GET", "/containers/json?all=1", NULL, "listing containers",
				   &rows, err);
	json_array_foreach (rows, i, row)
		json_array_append_new(out, hb_redact_row(row));
	json_decref(rows);
	if (rc == 0)
		*result = json_pack("{s:o}", "containers", out);
	else
		json_decref(out);
	return rc;
}

static void handle_containers(struct hb_request *req, void *ctx)
{
	json_t *input = json_object();

	ask(ctx, req, containers_task, input);
	json_decref(input);
}

static void handle_execute(struct hb_request *req, void *ctx)
{
	struct hb_docker *d = ctx;

	hb_executor_handle_execute(d->executor, req);
}

static void handle_status(struct hb_request *req, void *ctx)
{
	struct hb_docker *d = ctx;

	hb_executor_handle_status(d->executor, req);
}

static void handle_health(struct hb_request *req, void *ctx)
{
	hb_reply_json(req, 200, hb_docker_health(ctx));
}

#define BROKER HB_PEER_BIT(HB_PEER_BROKER)

const struct hb_route hb_docker_routes[HB_DOCKER_ROUTES] = {
	{HB_POST, "/seal", BROKER, 0, 0, handle_seal},
	{HB_POST, "/execute", BROKER, 0, 0, handle_execute},
	{HB_POST, "/status", BROKER, 4096, 0, handle_status},
	{HB_GET, "/containers", BROKER, 0, HB_ROUTE_NOBODY, handle_containers},
	{HB_GET, "/health", BROKER | HB_PEER_BIT(HB_PEER_ADMIN) | HB_PEER_BIT(HB_PEER_LAUNCHER), 0,
	 HB_ROUTE_NOBODY, handle_health},
};
