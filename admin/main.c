/*
 * hermes-admin: edits live policy within the bounds, and shows what every service says.
 *
 * Holds: the admin key, write access to live policy. Never: the signing key, the Docker socket, SSH private material;
 * it can't read the bot token. Called by: whoever has the key, on loopback (127.0.0.1:8752); its health by the launcher
 * and the operator over the Unix socket. Calls: /health of every service, GET /runtime of the installer.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "admin/admin.h"
#include "common/buf.h"
#include "common/log.h"

#define ANYONE (HB_PEER_BIT(HB_PEER_OPERATOR) | HB_PEER_BIT(HB_PEER_LAUNCHER))

static const struct hb_route routes[] = {
	{HB_GET, "/health", ANYONE, 0, HB_ROUTE_TCP | HB_ROUTE_NOBODY, admin_health},
	{HB_GET, "/admin/status", 0, 0, HB_ROUTE_TCP | HB_ROUTE_NOBODY, admin_status},
	{HB_GET, "/admin/audit", 0, 0, HB_ROUTE_TCP | HB_ROUTE_NOBODY, admin_audit},
	{HB_PUT, "/admin/features", 0, 0, HB_ROUTE_TCP, admin_put_features},
	{HB_PUT, "/admin/users", 0, 0, HB_ROUTE_TCP, admin_put_users},
};

static void on_refused(const char *why, uid_t uid, const char *path, void *ctx)
{
	(void)uid;
	(void)ctx;
	hb_log(HB_LOG_WARN, "refused", "why", why, "path", path, NULL);
}

/* "127.0.0.1:8752" in two parts; only loopback addresses. */
static int parse_listen(const char *text, char host[64], int *port, struct hb_error *err)
{
	const char *colon = strrchr(text, ':');
	struct in_addr v4;

	if (!colon || (size_t)(colon - text) >= 64 || (*port = atoi(colon + 1)) < 1 || *port > 65535)
		return hb_fail(err, "bad_listen", "admin.listen must be ADDRESS:PORT, not \"%s\"", text);
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = 0;
	if (inet_pton(AF_INET, host, &v4) != 1 || (ntohl(v4.s_addr) >> 24) != 127)
		return hb_fail(err, "bad_listen", "admin.listen must be a loopback address (127.x.x.x), not %s", host);
	return 0;
}

static void *open_admin(struct hb_process *p, struct hb_error *err)
{
	struct admin *a = hb_calloc(1, sizeof *a);
	char host[64];
	int port;

	a->process = p;
	if (parse_listen(hb_config_text(p->config, "admin.listen"), host, &port, err) < 0) {
		free(a);
		return NULL;
	}
	a->port[0] = (uint16_t)port;
	return a;
}

static int run(struct hb_process *p, void *ctx, struct hb_error *err)
{
	char host[64];
	int port;

	(void)ctx;
	if (parse_listen(hb_config_text(p->config, "admin.listen"), host, &port, err) < 0)
		return -1;
	return hb_server_listen_tcp(p->server, host, port, NULL, err);
}

static int sandbox(struct hb_process *p, void *ctx, struct hb_sandbox *out, struct hb_error *err)
{
	static const struct hb_sandbox_path paths[] = {
		{"admin", HB_FS_READ | HB_FS_WRITE}, {"policy", HB_FS_READ | HB_FS_WRITE}, {"public", HB_FS_READ},
		{"bounds.conf", HB_FS_READ},         {"run", HB_FS_READ},
	};

	struct admin *a = ctx;

	(void)p;
	(void)err;
	*out = (struct hb_sandbox){
		.name = "hermes-admin",
		.syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_UNIX | HB_SYS_INET | HB_SYS_EVENTS,
		.paths = paths,
		.path_count = sizeof paths / sizeof paths[0],
		.tcp_bind = a->port, /* and it may connect nowhere */
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
			   .on_refused = on_refused,
			   .max_connections = 256},
		.open = open_admin,
		.sandbox = sandbox,
		.run = run,
		.close = free,
	};

	return hb_process_main(&program, argc, argv);
}
