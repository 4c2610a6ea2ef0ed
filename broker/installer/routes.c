/* The installer's routes: who may call what. Anything not in this table is refused. */
#include <string.h>

#include "broker/installer/backup_routes.h"
#include "broker/installer/caller.h"
#include "broker/installer/installer.h"
#include "broker/installer/job.h"
#include "broker/installer/quiesce.h"
#include "broker/installer/seal.h"
#include "broker/installer/stage.h"
#include "common/fields.h"
#include "common/json.h"
#include "common/log.h"

/* A refusal is an outcome too: who asked for what with which grant, and why not. */
static void audit_refusal(struct hb_installer *in, const struct hb_execute *x,
			  const struct hb_error *why)
{
	bool denied = strcmp(why->code, "grant_denied") == 0;
	json_t *detail = json_pack("{s:s, s:s, s:s, s:s}", "operation_id",
				   x->operation_id ? x->operation_id : "", "phase", "gate", "code",
				   why->code, "error", why->message);
	struct hb_error err;

	if (hb_audit_append(in->process->audit, "runtime", denied ? "denied" : "refused", detail,
			    &err) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "msg", err.message, NULL);
	json_decref(detail);
}

static void handle_execute(struct hb_request *req, void *ctx)
{
	struct hb_installer *in = ctx;
	struct hb_execute x = {0};
	const char *state;
	struct hb_error err;

	if (hb_execute_decode(hb_request_json(req), &x, &err) < 0)
		goto refused;
	if (strcmp(x.feature, "runtime") != 0) {
		hb_fail(&err, "wrong_executor", "the installer executes runtime operations only");
		goto refused;
	}
	if (hb_job_execute(in, &x, &state, &err) < 0)
		goto refused;
	hb_reply_json(req, 200, json_pack("{s:s, s:s}", "status", "accepted", "state", state));
	return;
refused:
	audit_refusal(in, &x, &err);
	hb_log(HB_LOG_WARN, "execute_refused", "code", err.code, "msg", err.message, NULL);
	hb_reply_error(req, 200, &err);
}

static void handle_status(struct hb_request *req, void *ctx)
{
	struct status_body {
		const char *operation_id;
	} body = {0};
	static const struct hb_field fields[] = {
		{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED,
		 offsetof(struct status_body, operation_id), 1, 64},
	};
	json_t *answer = NULL;
	struct hb_error err;

	if (hb_fields_decode(hb_request_json(req), fields, 1, &body, &err) == 0)
		answer = hb_job_status(ctx, body.operation_id, &err);
	if (answer)
		hb_reply_json(req, 200, answer);
	else
		hb_reply_error(req, 200, &err);
}

static void handle_health(struct hb_request *req, void *ctx)
{
	hb_reply_json(req, 200, hb_installer_health(ctx));
}

static void handle_runtime(struct hb_request *req, void *ctx)
{
	hb_reply_json(req, 200, hb_installer_runtime(ctx));
}

static void handle_releases(struct hb_request *req, void *ctx)
{
	struct hb_installer *in = ctx;
	struct hb_error err;
	json_t *list = hb_store_list(&in->store, &err);

	if (list)
		hb_reply_json(req, 200, json_pack("{s:s, s:o}", "status", "ok", "releases", list));
	else
		hb_reply_error(req, 200, &err);
}

static void handle_verify(struct hb_request *req, void *ctx)
{
	struct hb_error err;

	if (hb_fields_decode(hb_request_json(req), NULL, 0, NULL, &err) < 0 ||
	    hb_job_verify(ctx, &err) < 0)
		hb_reply_error(req, 200, &err);
	else
		hb_reply_json(req, 200, json_pack("{s:s}", "status", "accepted"));
}

static void handle_probe(struct hb_request *req, void *ctx)
{
	struct hb_error err;

	if (hb_fields_decode(hb_request_json(req), NULL, 0, NULL, &err) < 0)
		hb_reply_error(req, 200, &err);
	else
		hb_probe_now(ctx, req);
}

static void handle_mcp(struct hb_request *req, void *ctx)
{
	struct hb_installer *in = ctx;

	hb_caller_handle(in->caller, req);
}

#define BROKER HB_PEER_BIT(HB_PEER_BROKER)
#define OPERATOR HB_PEER_BIT(HB_PEER_OPERATOR)
#define LOOKERS (BROKER | HB_PEER_BIT(HB_PEER_ADMIN) | HB_PEER_BIT(HB_PEER_LAUNCHER) | OPERATOR)

const struct hb_route hb_installer_routes[] = {
	/* Sealing only looks and resolves: root on the host may ask what an approver would be shown. */
	{HB_POST, "/seal", BROKER | OPERATOR, 0, 0, hb_seal_handle},
	{HB_POST, "/execute", BROKER, 0, 0, handle_execute},
	{HB_POST, "/status", BROKER, 4096, 0, handle_status},
	{HB_GET, "/backups", LOOKERS, 0, HB_ROUTE_NOBODY, hb_backup_handle_list},
	{HB_POST, "/backups/verify", BROKER | OPERATOR, 4096, 0,
	 hb_backup_handle_verify},
	{HB_POST, "/backups/drill", BROKER | OPERATOR, 4096, 0,
	 hb_backup_handle_drill},
	{HB_POST, "/verify", BROKER | OPERATOR, 4096, 0, handle_verify},
	{HB_POST, "/stage", BROKER | OPERATOR, 4096, 0, hb_stage_handle},
	{HB_POST, "/probe", BROKER | OPERATOR, 4096, 0, handle_probe},
	{HB_POST, "/mcp", OPERATOR, 0, 0, handle_mcp},
	{HB_POST, "/quiesce", OPERATOR, 4096, 0, hb_quiesce_handle},
	{HB_POST, "/resume", OPERATOR, 4096, 0, hb_resume_handle},
	{HB_GET, "/runtime", LOOKERS, 0, HB_ROUTE_NOBODY, handle_runtime},
	{HB_GET, "/releases", LOOKERS, 0, HB_ROUTE_NOBODY, handle_releases},
	{HB_GET, "/health", LOOKERS, 0, HB_ROUTE_NOBODY, handle_health},
};
const size_t hb_installer_route_count = sizeof hb_installer_routes / sizeof *hb_installer_routes;
