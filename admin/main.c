/*
 * hermes-admin: edits live policy within the bounds, and shows what every service says.
 *
 * Holds: the admin key, the scrape key, write access to live policy. Never: the signing key, the Docker socket, SSH
 * private material; a bot token passes through it on the way to the approver and can't be read back, a control secret is
 * made by the broker and never seen here. Called by: whoever has the key, on loopback (127.0.0.1:8752) and on one private
 * address if one is configured; over the Unix socket by root's command line, and its health by the launcher. Calls:
 * /health of every service, the runtime's status at the installer, operations and a new control secret at the broker, a
 * new bot token at the approver. With admin.widening_needs_grant it is also the executor of changes that widen the policy,
 * which the broker hands it with a person's grant.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/admin.h"
#include "common/bind_address.h"
#include "common/buf.h"
#include "common/log.h"
#include "common/paths.h"
#include "common/paths.h"

#define OPERATOR HB_PEER_BIT(HB_PEER_OPERATOR)
#define BROKER HB_PEER_BIT(HB_PEER_BROKER)
#define ANYONE (OPERATOR | HB_PEER_BIT(HB_PEER_LAUNCHER))
#define LOOK (HB_ROUTE_TCP | HB_ROUTE_NOBODY)
#define SMALL 8192 /* a list of 64 users and a bot token fit many times */
#define CONNECTIONS_MAX 256 /* a few pages and scripts; the rest is room for clients that are slow */
#define CROWDED_MS 1000     /* honest requests come whole within a second on loopback */

static const struct hb_route routes[] = {
	{HB_GET, "/health", ANYONE, 0, LOOK, admin_health},
	{HB_GET, "/admin/status", OPERATOR, 0, LOOK, admin_status},
	{HB_GET, "/admin/audit", OPERATOR, 0, LOOK, admin_audit},
	{HB_GET, "/admin/audit/chain", OPERATOR, 0, LOOK, admin_audit_chain},
	{HB_PUT, "/admin/features", OPERATOR, SMALL, HB_ROUTE_TCP, admin_put_features},
	{HB_PUT, "/admin/users", OPERATOR, SMALL, HB_ROUTE_TCP, admin_put_users},
	{HB_PUT, "/admin/runtime", OPERATOR, SMALL, HB_ROUTE_TCP, admin_put_runtime},
	{HB_PUT, "/admin/bot-token", OPERATOR, SMALL, HB_ROUTE_TCP, admin_put_bot_token},
	{HB_POST, "/admin/bot-token/clear", OPERATOR, SMALL, HB_ROUTE_TCP | HB_ROUTE_MAYBODY, admin_clear_bot_token},
	{HB_POST, "/admin/rotate-control-secret", OPERATOR, SMALL, HB_ROUTE_TCP | HB_ROUTE_MAYBODY,
	 admin_rotate_control_secret},
	{HB_GET, "/admin/operations", OPERATOR, 0, LOOK, admin_operations},
	{HB_GET, "/admin/operations/", OPERATOR, 0, LOOK | HB_ROUTE_PREFIX, admin_operation},
	{HB_GET, "/admin/runtime", OPERATOR, 0, LOOK, admin_runtime},
	{HB_GET, "/admin/policy", OPERATOR, 0, LOOK, admin_policy},
	{HB_GET, "/admin/events", OPERATOR, 0, LOOK, admin_stream},
	{HB_GET, "/metrics", OPERATOR, 0, LOOK, admin_metrics},
	{HB_POST, "/seal", BROKER, 0, 0, admin_seal},
	{HB_POST, "/execute", BROKER, 0, 0, admin_execute},
	{HB_POST, "/status", BROKER, SMALL, 0, admin_execution},
	{HB_GET, "/", 0, 0, LOOK, admin_page},
	{HB_GET, "/index.html", 0, 0, LOOK, admin_page},
	{HB_GET, "/style.css", 0, 0, LOOK, admin_page},
	{HB_GET, "/icon.svg", 0, 0, LOOK, admin_page},
	{HB_GET, "/app.js", 0, 0, LOOK, admin_page},
	{HB_GET, "/api.js", 0, 0, LOOK, admin_page},
	{HB_GET, "/dom.js", 0, 0, LOOK, admin_page},
	{HB_GET, "/views.js", 0, 0, LOOK, admin_page},
};

/* How a browser may write one of our addresses. */
static void add_name(struct admin *a, const char *host, int port)
{
	snprintf(a->names[a->name_count++], sizeof a->names[0], "%s:%d", host, port);
}

/* Only loopback; and one private address, if the configuration names one. */
static int read_listen(struct admin *a, struct hb_bind_address at[2], size_t *count, struct hb_error *err)
{
	const char *own = hb_config_text(a->process->config, "admin.listen");
	const char *private = hb_config_text(a->process->config, "admin.listen_private");
	char host[72];

	*count = 0;
	a->name_count = 0;
	if (!hb_config_bool(a->process->config, "admin.enabled"))
		return 0;
	if (hb_bind_address_parse("admin.listen", own, false, &at[0], err) < 0 ||
	    (*private && hb_bind_address_parse("admin.listen_private", private, true, &at[1], err) < 0))
		return -1;
	*count = *private ? 2 : 1;
	for (size_t i = 0; i < *count; i++) {
		snprintf(host, sizeof host, strchr(at[i].host, ':') ? "[%s]" : "%s", at[i].host);
		add_name(a, host, at[i].port);
	}
	add_name(a, "localhost", at[0].port);
	return 0;
}

static void close_admin(void *ctx)
{
	struct admin *a = ctx;

	if (a->tick)
		event_free(a->tick);
	admin_events_free(a->events);
	admin_history_free(a->history);
	hb_ledger_close(a->ledger);
	free(a);
}

static void *open_admin(struct hb_process *p, struct hb_error *err)
{
	struct admin *a = hb_calloc(1, sizeof *a);
	struct hb_bind_address at[2];
	size_t count;

	a->process = p;
	a->history = admin_history_open();
	a->events = admin_events_new(a);
	if (read_listen(a, at, &count, err) < 0 || hb_ledger_open(HB_PATH_LEDGER("admin"), &a->ledger, NULL, err) < 0) {
		close_admin(a);
		return NULL;
	}
	return a;
}

/* Policy also changes without us (hermesctl as root): history and listeners hear of it here. */
static void watch_policy(struct admin *a)
{
	struct hb_policy_view view = {0};
	struct hb_error err = {0};

	if (!hb_policy_changed(&a->stamp))
		return;
	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, &err) < 0) {
		hb_log(HB_LOG_ERROR, "policy_unusable", "code", err.code, "error", err.message, NULL);
		admin_events_send(a->events, "policy", json_pack("{s:s}", "error", err.message));
		return;
	}
	admin_history_policy(a->history, &view.live, "host");
	admin_events_send(a->events, "policy",
			  json_pack("{s:I}", "policy_generation", (json_int_t)view.live.generation));
	hb_policy_view_free(&view);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct admin *a = arg;

	(void)fd;
	(void)what;
	watch_policy(a);
	admin_events_tick(a->events);
	a->ticks++;
}

static int listen_also(struct hb_process *p, void *ctx, struct hb_error *err)
{
	struct admin *a = ctx;
	struct hb_bind_address at[2];
	size_t count;

	if (read_listen(a, at, &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++)
		if (hb_server_listen_tcp(p->server, at[i].host, at[i].port, NULL, err) < 0)
			return -1;
	return 0;
}

static int run(struct hb_process *p, void *ctx, struct hb_error *err)
{
	struct admin *a = ctx;
	struct timeval second = {1, 0};

	a->tick = event_new(p->base, -1, EV_PERSIST, on_tick, a);
	if (!a->tick || event_add(a->tick, &second) < 0)
		return hb_fail(err, "internal", "no timer could be made");
	watch_policy(a);
	return 0;
}

static int sandbox(struct hb_process *p, void *ctx, struct hb_sandbox *out, struct hb_error *err)
{
	static const struct hb_sandbox_path paths[] = {
		{"admin", HB_FS_READ | HB_FS_WRITE}, {"policy", HB_FS_READ | HB_FS_WRITE}, {"public", HB_FS_READ},
		{HB_PATH_CONF, HB_FS_READ},         {"run", HB_FS_READ},
	};

	(void)p;
	(void)ctx;
	(void)err;
	*out = (struct hb_sandbox){
		.name = "hermes-admin",
		.syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_UNIX | HB_SYS_EVENTS,
		.paths = paths,
		.path_count = sizeof paths / sizeof paths[0],
	};
	return 0;
}

int main(int argc, char **argv)
{
	static const struct hb_program program = {
		.self = HB_PEER_ADMIN,
		.usage = "Edits live policy within the bounds; serves 127.0.0.1:8752 (admin.listen).",
		.server = {.routes = routes,
			   .route_count = sizeof routes / sizeof routes[0],
			   .before = admin_before,
			   .on_refused = admin_refused,
			   .max_connections = CONNECTIONS_MAX,
			   .crowded_ms = CROWDED_MS},
		.open = open_admin,
		.listen = listen_also,
		.sandbox = sandbox,
		.run = run,
		.close = close_admin,
	};

	return hb_process_main(&program, argc, argv);
}
