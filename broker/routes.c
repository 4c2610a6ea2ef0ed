/*
 * What may be called: one line a route. Refusals of the application are answered with status 200
 * and `error`, since clients that exist read the body of a 2xx only; wrong secrets are 401.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "common/fields.h"
#include "common/json.h"
#include "common/log.h"

#define LIST_DEFAULT 50
#define LIST_MAX 500

void
hb_refuse(struct hb_request *req, const struct hb_error *err)
{
	hb_reply_error(req, 200, err);
}

/* GET routes over TCP: no peer uid tells who asks, so the secret must. Over the Unix socket the uid
 * has been checked. */
static bool
may_read(struct hb_broker *b, struct hb_request *req)
{
	return !hb_request_is_tcp(req) || hb_access_ok(b, req);
}

/* By the capability, which only whoever prepared it has; root on the host may name it by its id. */
static int
cancel(struct hb_broker *b, struct hb_request *req, struct hb_error *err)
{
	struct {
		const char *capability, *operation_id;
	} in = {0};
	const struct hb_field fields[] = {
		{"capability", HB_FIELD_TEXT, HB_FIELD_HEX64, offsetof(__typeof__(in), capability), 64, 64},
		{"operation_id", HB_FIELD_TEXT, 0, offsetof(__typeof__(in), operation_id), 32, 32},
	};
	struct hb_op op;

	if (hb_fields_decode(hb_request_json(req), fields, 2, &in, err) < 0)
		return -1;
	if ((in.capability == NULL) == (in.operation_id == NULL))
		return hb_fail(err, "missing_field", "name the operation by its capability");
	if (in.operation_id && !(hb_request_roles(req) & HB_PEER_BIT(HB_PEER_OPERATOR)))
		return hb_fail(err, "not_operator",
			       "only root on this host may name an operation by its id: give its capability");
	if ((in.capability ? hb_store_find_capability(b->store, in.capability, &op, err)
			   : hb_store_find(b->store, in.operation_id, &op, err)) < 0)
		return -1;
	return hb_flow_cancel(b, &op, err);
}

static void
route_cancel(struct hb_request *req, void *ctx)
{
	struct hb_error err;

	if (!hb_access_ok(ctx, req))
		return;
	if (cancel(ctx, req, &err) < 0)
		hb_refuse(req, &err);
	else
		hb_reply_json(req, 200, json_pack("{s:s}", "status", "cancelled"));
}

struct grant_in {
	const char *operation_id, *channel;
	json_t *envelope;
};

#define AT(member) offsetof(struct grant_in, member)
static const struct hb_field grant_fields[] = {
	{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(operation_id), 32, 32},
	{"channel", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(channel), 1, 23},
	{"envelope", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, AT(envelope), 0, 0},
};
#undef AT

static void
route_grant(struct hb_request *req, void *ctx)
{
	struct hb_broker *b = ctx;
	struct grant_in in = {0};
	struct hb_error err;
	json_t *detail;

	if (hb_fields_decode(hb_request_json(req), grant_fields, 3, &in, &err) == 0 &&
	    hb_flow_grant(b, in.operation_id, in.envelope, in.channel, &err) == 0) {
		hb_reply_json(req, 200, json_pack("{s:s}", "status", "ok"));
		return;
	}
	hb_log(HB_LOG_WARN, "grant_refused", "operation", in.operation_id ? in.operation_id : "",
	       "code", err.code, "error", err.message, NULL);
	detail = json_pack("{s:s, s:s}", "operation_id", in.operation_id ? in.operation_id : "",
			   "why", err.code);
	hb_audit_append(b->process->audit, "grant", "refused", detail, NULL);
	json_decref(detail);
	hb_refuse(req, &err);
}

static void
route_health(struct hb_request *req, void *ctx)
{
	hb_reply_json(req, 200, hb_broker_health(ctx));
}

static void
route_list(struct hb_request *req, void *ctx)
{
	struct hb_broker *b = ctx;
	const char *text = hb_request_query(req, "limit");
	char *end = NULL;
	long limit = text ? strtol(text, &end, 10) : LIST_DEFAULT;
	struct hb_error err;
	json_t *list;

	if (!may_read(b, req))
		return;
	if (text && (*end || end == text || limit < 1 || limit > LIST_MAX)) {
		hb_fail(&err, "out_of_range", "limit is a number from 1 to %d", LIST_MAX);
		hb_refuse(req, &err);
		return;
	}
	list = hb_store_list(b->store, (int)limit, &err);
	if (!list) {
		hb_refuse(req, &err);
		return;
	}
	hb_reply_json(req, 200, json_pack("{s:s, s:o}", "status", "ok", "operations", list));
}

/* While it runs, what the executor said last is fresher than the row. */
static json_t *
one_operation(struct hb_broker *b, const char *id, struct hb_error *err)
{
	json_t *o = hb_store_json(b->store, id, err);
	const json_t *progress = o ? hb_run_progress(b, id) : NULL;

	if (progress)
		json_object_set(o, "progress", (json_t *)progress);
	return o;
}

static void
route_operation(struct hb_request *req, void *ctx)
{
	struct hb_broker *b = ctx;
	const char *tail = hb_request_tail(req), *slash = strchr(tail, '/');
	char id[HB_OP_ID] = "";
	struct hb_error err;
	json_t *o;

	if (!may_read(b, req))
		return;
	if ((slash ? (size_t)(slash - tail) : strlen(tail)) != 32 ||
	    (slash && strcmp(slash, "/events") != 0)) {
		hb_fail(&err, "unknown_operation",
			"an operation id is 32 hex digits; /operations/ID or "
			"/operations/ID/events");
		hb_refuse(req, &err);
		return;
	}
	memcpy(id, tail, 32);
	if (slash) {
		hb_route_events(b, req, id);
		return;
	}
	o = one_operation(b, id, &err);
	if (o)
		hb_reply_json(req, 200, o);
	else
		hb_refuse(req, &err);
}

/* A call passed on to an executor: its answer is parsed, and given back as an object of our own.
 */
struct relay {
	struct hb_broker *b;
	struct hb_request *req;
	enum hb_peer server;
	const char *wanted; /* only this member, with status; NULL: all of it */
};

static void
relay_gone(void *arg)
{
	struct relay *r = arg;

	r->req = NULL;
}

static void
relay_answered(int status, const json_t *body, const struct hb_error *reason, void *arg)
{
	struct relay *r = arg;
	struct hb_error err;
	json_t *part;

	if (!r->req)
		goto out;
	if (status == 0) {
		hb_fail(&err, "executor_unreachable", "%s can't be asked: %s",
			hb_peer_name(r->server), reason->message);
		hb_refuse(r->req, &err);
	} else if (hb_reply_failed(status, body, &err) < 0) {
		hb_refuse(r->req, &err);
	} else if (!r->wanted) {
		hb_reply_json(r->req, 200, json_deep_copy(body));
	} else if (json_is_array(part = json_object_get(body, r->wanted))) {
		hb_reply_json(r->req, 200,
			      json_pack("{s:s, s:O}", "status", "ok", r->wanted, part));
	} else {
		hb_fail(&err, "bad_reply", "the answer of %s has no %s",
			hb_peer_name(r->server), r->wanted);
		hb_refuse(r->req, &err);
	}
out:
	free(r);
}

/* body is stolen; NULL for GET. */
static void
relay_body(struct hb_broker *b, struct hb_request *req, enum hb_peer server, const char *method,
	   const char *path, json_t *body, const char *wanted)
{
	struct relay *r = hb_calloc(1, sizeof(*r));
	struct hb_call call = {.server = server,
			       .method = method,
			       .path = path,
			       .body = body,
			       .timeout_ms = HB_SEAL_TIMEOUT_MS,
			       .on_done = relay_answered,
			       .arg = r};

	r->b = b;
	r->req = req;
	r->server = server;
	r->wanted = wanted;
	hb_request_on_close(req, relay_gone, r);
	hb_client_start(b->process->client, &call);
	json_decref(body);
}

static void
relay(struct hb_broker *b, struct hb_request *req, enum hb_peer server, const char *method,
      const char *path, const char *wanted)
{
	relay_body(b, req, server, method, path, strcmp(method, "POST") == 0 ? json_object() : NULL,
		   wanted);
}

/* Who knows what can be asked for. feature: must be on, since its answer tells about the host; path
 * NULL: nobody yet. */
static const struct {
	const char *kind;
	enum hb_peer server;
	const char *feature, *path, *member;
} kinds[] = {
	{"runtime_releases", HB_PEER_INSTALLER, NULL, "/releases", "releases"},
	{"docker_containers", HB_PEER_DOCKER, "docker", "/containers", "containers"},
	{"ssh_profiles", HB_PEER_SSH, "ssh", "/profiles", "profiles"},
	{"backups", HB_PEER_INSTALLER, NULL, "/backups", "backups"},
};

static int
discover(struct hb_broker *b, struct hb_request *req, const char *kind, struct hb_error *err)
{
	size_t i = 0;

	while (i < sizeof(kinds) / sizeof(kinds[0]) && strcmp(kinds[i].kind, kind) != 0)
		i++;
	if (i == sizeof(kinds) / sizeof(kinds[0]))
		return hb_fail(
			err, "unknown_kind",
			"kind is runtime_releases, ssh_profiles, docker_containers or backups");
	if (!kinds[i].path)
		return hb_fail(err, "not_deployed",
			       "%s can't be listed: the executor that knows them is not deployed",
			       kind);
	if (kinds[i].feature) {
		if (hb_broker_policy(b, err) < 0)
			return -1;
		if (!hb_bounds_executor(b->policy.bounds, hb_peer_dir(kinds[i].server)))
			return hb_fail(
				err, "not_deployed",
				"%s can't be listed: the executor that knows them is not deployed",
				kind);
		if (hb_policy_permits(&b->policy.live, kinds[i].feature, NULL, err) < 0)
			return -1;
	}
	relay(b, req, kinds[i].server, "GET", kinds[i].path, kinds[i].member);
	return 0;
}

static void
route_discover(struct hb_request *req, void *ctx)
{
	struct hb_broker *b = ctx;
	struct {
		const char *kind;
	} in = {0};
	static const struct hb_field fields[] = {
		{"kind", HB_FIELD_TEXT, HB_FIELD_REQUIRED, 0, 1, 32}};
	struct hb_error err;

	if (!hb_access_ok(b, req))
		return;
	if (hb_fields_decode(hb_request_json(req), fields, 1, &in, &err) < 0 ||
	    discover(b, req, in.kind, &err) < 0)
		hb_refuse(req, &err);
}

static void
route_runtime(struct hb_request *req, void *ctx)
{
	if (may_read(ctx, req))
		relay(ctx, req, HB_PEER_INSTALLER, "GET", "/runtime", NULL);
}

/* Passed on to the installer as it is: it knows what may be in there. */
static void
route_passed_on(struct hb_request *req, void *ctx)
{
	const char *path = hb_request_path(req) + strlen("/runtime");

	if (hb_access_ok(ctx, req))
		relay_body(ctx, req, HB_PEER_INSTALLER, "POST", path,
			   json_deep_copy(hb_request_json(req)), NULL);
}

static void
route_backups(struct hb_request *req, void *ctx)
{
	if (may_read(ctx, req))
		relay(ctx, req, HB_PEER_INSTALLER, "GET", "/backups", NULL);
}

/* A drill runs the payload with the secrets of a backup: on the host itself, for its operator. */
static void
check_backup(struct hb_broker *b, struct hb_request *req, const char *path)
{
	struct {
		const char *backup;
	} in = {0};
	static const struct hb_field fields[] = {
		{"backup", HB_FIELD_TEXT, HB_FIELD_REQUIRED, 0, 1, 255}};
	struct hb_error err;

	if (!hb_access_ok(b, req))
		return;
	if (hb_fields_decode(hb_request_json(req), fields, 1, &in, &err) < 0)
		hb_refuse(req, &err);
	else
		relay_body(b, req, HB_PEER_INSTALLER, "POST", path,
			   json_pack("{s:s}", "backup", in.backup), NULL);
}

static void
route_backup_verify(struct hb_request *req, void *ctx)
{
	check_backup(ctx, req, "/backups/verify");
}

static void
route_backup_drill(struct hb_request *req, void *ctx)
{
	check_backup(ctx, req, "/backups/drill");
}

#define CALLERS (HB_PEER_BIT(HB_PEER_CLIENT) | HB_PEER_BIT(HB_PEER_OPERATOR))
#define LOOKERS                                                                                    \
	(CALLERS | HB_PEER_BIT(HB_PEER_ADMIN)) /* admin shows what happens, without the texts */
#define KEEPERS (HB_PEER_BIT(HB_PEER_OPERATOR) | HB_PEER_BIT(HB_PEER_ADMIN))
#define WATCHERS (CALLERS | HB_PEER_BIT(HB_PEER_ADMIN) | HB_PEER_BIT(HB_PEER_LAUNCHER))
#define SMALL 4096 /* bodies that hold one id */

const struct hb_route hb_broker_routes[] = {
	{HB_POST, "/prepare", LOOKERS, 0, HB_ROUTE_TCP, hb_route_prepare},
	{HB_POST, "/execute", LOOKERS, SMALL, HB_ROUTE_TCP, hb_route_execute},
	{HB_POST, "/cancel", CALLERS, SMALL, HB_ROUTE_TCP, route_cancel},
	{HB_POST, "/discover", CALLERS, SMALL, HB_ROUTE_TCP, route_discover},
	{HB_GET, "/health", WATCHERS, 0, HB_ROUTE_TCP | HB_ROUTE_NOBODY, route_health},
	{HB_GET, "/operations", LOOKERS, 0, HB_ROUTE_TCP | HB_ROUTE_NOBODY, route_list},
	{HB_GET, "/operations/", LOOKERS, 0, HB_ROUTE_TCP | HB_ROUTE_NOBODY | HB_ROUTE_PREFIX,
	 route_operation},
	{HB_GET, "/receipts/", HB_PEER_BIT(HB_PEER_OPERATOR), 0, HB_ROUTE_NOBODY | HB_ROUTE_PREFIX,
	 hb_route_receipt},
	{HB_GET, "/runtime", LOOKERS, 0, HB_ROUTE_TCP | HB_ROUTE_NOBODY, route_runtime},
	{HB_POST, "/runtime/verify", CALLERS, SMALL, HB_ROUTE_TCP, route_passed_on},
	{HB_POST, "/runtime/stage", CALLERS, SMALL, HB_ROUTE_TCP, route_passed_on},
	{HB_POST, "/runtime/probe", CALLERS, SMALL, HB_ROUTE_TCP, route_passed_on},
	{HB_GET, "/backups", LOOKERS, 0, HB_ROUTE_TCP | HB_ROUTE_NOBODY, route_backups},
	{HB_POST, "/backups/verify", CALLERS, SMALL, HB_ROUTE_TCP, route_backup_verify},
	{HB_POST, "/backups/drill", HB_PEER_BIT(HB_PEER_OPERATOR), SMALL, 0, route_backup_drill},
	{HB_POST, "/control-secret", KEEPERS, SMALL, 0, hb_route_rotate},
	{HB_POST, "/approval-grant", HB_PEER_BIT(HB_PEER_APPROVER), 16384, 0, route_grant},
};
const size_t hb_broker_route_count = sizeof(hb_broker_routes) / sizeof(hb_broker_routes[0]);
