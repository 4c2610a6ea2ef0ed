/* GET /metrics: numbers for Prometheus (text format 0.0.4). No names of users, operations or containers: whoever scrapes
 * need not be trusted with what is done here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/admin.h"
#include "common/buf.h"
#include "common/ids.h"
#include "common/json.h"

static void family(struct hb_buf *out, const char *name, const char *type, const char *help)
{
	hb_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void single(struct hb_buf *out, const char *name, const char *type, const char *help, long long value)
{
	family(out, name, type, help);
	hb_buf_printf(out, "%s %lld\n", name, value);
}

static void services_out(struct hb_buf *out, json_t *services)
{
	const char *name;
	json_t *s;

	family(out, "hermes_service_up", "gauge", "1 when the process answers and says that it is well");
	json_object_foreach(services, name, s)
		hb_buf_printf(out, "hermes_service_up{service=\"%s\"} %d\n", name,
			      strcmp(hb_json_text(s, "status", ""), "ok") == 0);
	family(out, "hermes_service_start_time_seconds", "gauge", "Start of the process since the epoch");
	json_object_foreach(services, name, s) {
		long long t = hb_json_int(json_object_get(s, "checks"), "started_at", 0);
		if (t > 0)
			hb_buf_printf(out, "hermes_service_start_time_seconds{service=\"%s\"} %lld\n", name, t);
	}
	family(out, "hermes_audit_records", "gauge", "Length of the audit chain");
	json_object_foreach(services, name, s) {
		const json_t *head = json_object_get(json_object_get(s, "checks"), "audit");
		if (head)
			hb_buf_printf(out, "hermes_audit_records{service=\"%s\"} %lld\n", name,
				      hb_json_int(head, "seq", 0));
	}
}

static void runtime_out(struct hb_buf *out, const json_t *runtime)
{
	const json_t *process = json_object_get(runtime, "process"), *health = json_object_get(runtime, "health");

	if (!runtime)
		return;
	single(out, "hermes_runtime_installed", "gauge", "1 when a release is installed",
	       hb_json_bool(runtime, "installed", false));
	single(out, "hermes_runtime_healthy", "gauge", "1 when every check of the runtime passes",
	       hb_json_bool(health, "ok", false));
	single(out, "hermes_runtime_restarts", "gauge", "Restarts of the runtime in the present window",
	       hb_json_int(process, "restarts", 0));
	single(out, "hermes_runtime_operation_running", "gauge", "1 while an operation changes the runtime",
	       json_is_object(json_object_get(runtime, "operation")));
}

static void policy_out(struct hb_buf *out)
{
	struct hb_policy_view view = {0};
	bool ok = hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, NULL) == 0;

	single(out, "hermes_policy_usable", "gauge", "1 when policy and bounds can be read and agree", ok);
	if (!ok)
		return;
	single(out, "hermes_policy_generation", "counter", "Generation of live policy", view.live.generation);
	single(out, "hermes_policy_approvers", "gauge", "Users who may approve", (long long)view.live.user_count);
	family(out, "hermes_feature_enabled", "gauge", "1 when live policy has the feature on");
	for (unsigned bit = 1; bit <= HB_FEATURE_SSH; bit <<= 1)
		hb_buf_printf(out, "hermes_feature_enabled{feature=\"%s\"} %d\n", hb_feature_name(bit),
			      (view.live.features & bit) != 0);
	hb_policy_view_free(&view);
}

struct scrape {
	struct admin *admin;
	struct hb_request *req;
};

static void gathered(json_t *services, json_t *runtime, void *arg)
{
	struct scrape *s = arg;
	struct admin *a = s->admin;
	const json_t *approver = json_object_get(json_object_get(services, "approver"), "checks");
	struct hb_buf out = HB_BUF_INIT;

	if (s->req) {
		family(&out, "hermes_build_info", "gauge", "Version");
		hb_buf_printf(&out, "hermes_build_info{version=\"%s\"} 1\n", HB_VERSION);
		services_out(&out, services);
		policy_out(&out);
		single(&out, "hermes_approvals_pending", "gauge", "Requests that wait for a person",
		       hb_json_int(approver, "pending", 0));
		single(&out, "hermes_bot_configured", "gauge", "1 when a bot token is set",
		       hb_json_bool(approver, "bot_configured", false));
		runtime_out(&out, runtime);
		single(&out, "hermes_admin_requests_total", "counter", "Requests to this endpoint", a->requests);
		single(&out, "hermes_admin_refusals_total", "counter", "Requests refused before they were routed or read",
		       a->refusals);
		single(&out, "hermes_admin_wrong_keys_total", "counter", "Wrong admin keys", a->key_failures);
		single(&out, "hermes_admin_locked_out", "gauge", "1 while wrong keys have closed the endpoint",
		       hb_monotonic_ms() < a->locked_until);
		single(&out, "hermes_admin_event_streams", "gauge", "Open event streams",
		       (long long)admin_events_listeners(a->events));
		hb_reply_bytes(s->req, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
	}
	hb_buf_free(&out);
	free(s);
}

static void gone(void *arg)
{
	((struct scrape *)arg)->req = NULL;
}

void admin_metrics(struct hb_request *req, void *ctx)
{
	struct scrape *s = hb_calloc(1, sizeof *s);

	s->admin = ctx;
	s->req = req;
	hb_request_on_close(req, gone, s);
	admin_gather(ctx, gathered, s);
}
