/* Staging, and checking on demand: what may be done without a grant (stage.h). */
#include "broker/installer/stage.h"

#include <stdlib.h>
#include <string.h>

#include "broker/installer/install.h"
#include "broker/installer/job.h"
#include "broker/installer/lifecycle.h"
#include "broker/installer/quiesce.h"
#include "broker/installer/seal.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "policy/operation.h"

/* Nobody decides about staging, so that what may be staged is bounded: not more releases than are
 * kept and one more. */
static int check_room(const struct hb_work *w, const char *manifest, struct hb_error *err)
{
	json_t *all = hb_store_list(w->store, err);
	long long limit = hb_config_int(w->config, "runtime.keep_releases") + 1;
	size_t count = json_array_size(all);

	if (!all)
		return -1;
	json_decref(all);
	if ((long long)count < limit || hb_store_has(w->store, manifest))
		return 0;
	return hb_fail(err, "prune_first",
		       "%zu releases are on disk and runtime.keep_releases is %lld; remove some with "
		       "`hermesctl runtime prune` before staging another",
		       count, limit - 1);
}

static int work_stage(struct hb_work *w, json_t **result, struct hb_error *err)
{
	json_t *request = json_deep_copy(w->request), *resolved = NULL;
	struct hb_chain c = {0};
	int rc = -1;

	if (hb_fetch_resolve(request, err) < 0 ||
	    hb_seal_chain(w->store, w->config, request, &c, err) < 0)
		goto out;
	resolved = hb_seal_resolved(w->config, request, &c, err);
	if (!resolved || check_room(w, c.manifest, err) < 0)
		goto out;
	json_object_set_new(request, "sealed", json_pack("{s:O}", "resolved", resolved));
	w->request = request;
	rc = hb_work_staged(w, "", result, err);
out:
	hb_chain_free(&c);
	json_decref(resolved);
	json_decref(request);
	return rc;
}

/* --- in the installer --- */

static void on_staged(struct hb_installer *in, const json_t *request, json_t *result,
		      const struct hb_error *err)
{
	struct hb_error failed;

	if (err) {
		json_decref(result);
		result = hb_json_error(err);
	}
	json_object_set_new(result, "state", json_string(err ? "failed" : "done"));
	json_object_set(result, "image", json_object_get(request, "image"));
	json_object_set_new(result, "finished_at", json_integer(hb_now()));
	json_decref(in->staged);
	in->staged = result;
	if (hb_audit_append(in->process->audit, "runtime.stage", err ? "failed" : "ok", result,
			    &failed) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "msg", failed.message, NULL);
}

static const struct hb_task stage_task = {"staging", work_stage, on_staged};

/* The validated request of an operation "stage", held against everything an operation would be. */
static json_t *request_of(struct hb_installer *in, const json_t *body, struct hb_error *err)
{
	json_t *asked = json_deep_copy(body), *request = NULL;
	char pin[HB_HEX256];

	if (json_object_get(asked, "action"))
		hb_fail(err, "unknown_field", "/stage takes image, platform and platform_digest");
	else {
		json_object_set_new(asked, "action", json_string("stage"));
		request = hb_operation_validate("runtime", asked, err);
	}
	json_decref(asked);
	if (request && (hb_seal_check(in, request, err) < 0 ||
			hb_seal_pin(in->process->config, request, pin, err) < 0)) {
		json_decref(request);
		request = NULL;
	}
	return request;
}

void hb_stage_handle(struct hb_request *req, void *ctx)
{
	struct hb_installer *in = ctx;
	json_t *request = NULL;
	struct hb_error err;

	if (in->quiesced)
		hb_quiesce_refuse(in, &err);
	else if (strcmp(hb_json_text(in->staged, "state", ""), "running") == 0)
		hb_fail(&err, "busy", "a release is being staged already");
	else
		request = request_of(in, hb_request_json(req), &err);
	if (!request) {
		hb_reply_error(req, 200, &err);
		return;
	}
	json_decref(in->staged);
	in->staged = json_pack("{s:s, s:O, s:I}", "state", "running", "image",
			       json_object_get(request, "image"), "started_at",
			       (json_int_t)hb_now());
	if (hb_job_task(in, &stage_task, request, &err) < 0) {
		json_decref(in->staged);
		in->staged = NULL;
		hb_reply_error(req, 200, &err);
		return;
	}
	hb_reply_json(req, 200, json_pack("{s:s}", "status", "accepted"));
}

json_t *hb_stage_status(const struct hb_installer *in)
{
	const json_t *progress = hb_job_task_progress(in, &stage_task);
	json_t *out = in->staged ? json_copy(in->staged) : json_null();

	if (progress)
		json_object_set(out, "progress", (json_t *)(uintptr_t)progress);
	return out;
}

/* --- checks on demand --- */

struct probing {
	struct hb_request *req; /* NULL: the asker has gone */
};

static void on_gone(void *arg)
{
	struct probing *p = arg;

	p->req = NULL;
}

static void on_probed(int ok, const struct hb_error *err, void *arg)
{
	struct probing *p = arg;

	if (p->req) {
		hb_request_on_close(p->req, NULL, NULL);
		if (ok)
			hb_reply_json(p->req, 200, json_pack("{s:s}", "status", "ok"));
		else
			hb_reply_error(p->req, 200, err);
	}
	free(p);
}

void hb_probe_now(struct hb_installer *in, struct hb_request *req)
{
	struct probing *p = hb_calloc(1, sizeof *p);

	p->req = req;
	hb_request_on_close(req, on_gone, p);
	hb_supervisor_probe(in->supervisor, on_probed, p);
}
