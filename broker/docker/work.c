/*
 * One approved operation, in its worker. The gate has been passed and the grant is burnt; before
 * anything happens what is ours is looked up as it is now, everything that was sealed is resolved
 * again, and both must still hold.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/docker/actions.h"
#include "broker/docker/bubble.h"
#include "broker/docker/create.h"
#include "broker/docker/run.h"
#include "broker/docker/seal.h"
#include "broker/docker/workspace.h"
#include "common/json.h"
#include "policy/operation.h"

int hb_docker_engine(struct hb_worker *w, struct hb_engine *e, struct hb_error *err)
{
	struct hb_docker *d = w->ctx;
	struct hb_error why;

	*e = (struct hb_engine){.socket = hb_config_text(d->process->config, "docker.socket"),
				.minor = d->api_minor,
				.deadline_ms = w->deadline_ms};
	memcpy(e->release, d->release, sizeof e->release);
	if (hb_engine_negotiate(e, &why) < 0) {
		hb_docker_note_engine(w, e, &why);
		return hb_fail(err, why.code, "%s", why.message);
	}
	return 0;
}

void hb_docker_note_engine(struct hb_worker *w, const struct hb_engine *e,
			   const struct hb_error *err)
{
	hb_worker_note(w, json_pack("{s:{s:i, s:s, s:s, s:s}}", "engine", "api_minor", e->minor,
				    "release", e->release, "code", err ? err->code : "", "error",
				    err ? err->message : ""));
}

int hb_docker_look(struct hb_worker *w, struct hb_engine *e, struct hb_error *err)
{
	struct hb_docker *d = w->ctx;
	struct hb_error why;
	json_t *found;

	if (hb_own_scan(e, d->process->config, &d->own, &found, &why) < 0) {
		hb_docker_note_engine(w, e, &why);
		return hb_fail(err, why.code, "%s", why.message);
	}
	hb_docker_note_engine(w, e, NULL);
	hb_worker_note(w, json_pack("{s:o}", "own", found));
	return 0;
}

static struct hb_create_labels labels(const struct hb_worker *w, const char *kind)
{
	const struct hb_docker *d = w->ctx;

	return (struct hb_create_labels){d->process->host_id, w->operation_id, kind};
}

static int run(struct hb_worker *w, struct hb_engine *e, json_t **result, struct hb_error *err)
{
	bool detach = hb_json_bool(w->request, "detach", false),
	     gone = hb_json_bool(w->request, "auto_remove", false);
	struct hb_create_labels l = labels(w, detach ? "detached" : "attached");
	json_t *body = hb_create_run(w->request, &l);
	const struct hb_run_spec spec = {.request = w->request,
					 .body = body,
					 .detach = detach,
					 .keep = true,
					 .auto_remove = gone,
					 .name = hb_json_text(w->request, "name", NULL)};
	int rc = hb_run_container(w, e, &spec, result, err);

	json_decref(body);
	return rc;
}

static int work_docker(struct hb_worker *w, json_t **result, struct hb_error *err)
{
	static const struct {
		const char *action;
		int (*run)(struct hb_worker *w, struct hb_engine *e, json_t **result,
			   struct hb_error *err);
	} table[] = {{"list", hb_action_list},
		     {"inspect", hb_action_inspect},
		     {"logs", hb_action_logs},
		     {"pull", hb_action_pull},
		     {"run", run},
		     {"start", hb_action_change},
		     {"stop", hb_action_change},
		     {"restart", hb_action_change},
		     {"remove", hb_action_change}};
	const char *action = hb_operation_action("docker", w->request);
	struct hb_engine e;

	if (hb_docker_engine(w, &e, err) < 0 || hb_docker_look(w, &e, err) < 0 ||
	    hb_seal_again(w, &e, "docker", w->request, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (strcmp(action, table[i].action) == 0)
			return table[i].run(w, &e, result, err);
	return hb_fail(err, "unknown_action", "there is no Docker action of this name");
}

static int work_local(struct hb_worker *w, json_t **result, struct hb_error *err)
{
	struct hb_docker *d = w->ctx;
	const struct hb_config *config = d->process->config;
	struct hb_create_labels l = labels(w, "sandbox");
	struct hb_run_spec spec = {.request = w->request};
	struct hb_engine e;
	json_t *body;
	char *workspace;
	int rc;

	if (hb_docker_engine(w, &e, err) < 0 || hb_docker_look(w, &e, err) < 0 ||
	    hb_seal_again(w, &e, "local", w->request, err) < 0 ||
	    hb_workspace_path(w, &workspace, err) < 0)
		return -1;
	body = hb_create_local(w->request, config, workspace, &l);
	spec.body = body;
	rc = hb_run_container(w, &e, &spec, result, err);
	json_decref(body);
	free(workspace);
	return rc;
}

int hb_docker_work(struct hb_worker *w, json_t **result, struct hb_error *err)
{
	struct hb_docker *d = w->ctx;

	if (strcmp(w->feature, "docker") == 0)
		return work_docker(w, result, err);
	if (strcmp(w->feature, "local") != 0)
		return hb_fail(err, "wrong_executor", "this executor does not carry out %s",
			       w->feature);
	if (!hb_local_bubblewrap(d->process->config))
		return work_local(w, result, err);
	return hb_bubble_work(w, result, err);
}
