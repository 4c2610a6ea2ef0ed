/*
 * hermes-approver: a person decides here, and only here something is signed.
 *
 * Holds: the Ed25519 SIGNING key (locked memory), the bot token, the secret it shares with the
 * broker, its database. Never holds: the Docker socket, SSH profiles, the control secret, any power
 * to act. Called by: the broker, with requests; root and the uids of approver.console_approvers, to
 * decide; admin and launcher for health. Calls: the Telegram Bot API, and the broker to deliver
 * grants.
 */
#include <stdlib.h>

#include "approver/approver.h"
#include "approver/botapi.h"
#include "common/paths.h"

#define PATHS_MAX 32
#define DNS_PORT 53 /* answers that are too long for a datagram */

static void *
open_approver(struct hb_process *p, struct hb_error *err)
{
	struct hb_approver *a;

	return hb_approver_open(p, &a, err) < 0 ? NULL : a;
}

static int
sandbox(struct hb_process *p, void *ctx, struct hb_sandbox *out, struct hb_error *err)
{
	static const struct hb_sandbox_path own[] = {
		{"approver", HB_FS_READ | HB_FS_WRITE},
		{"public", HB_FS_READ},
		{HB_PATH_APPROVER_PUBLIC, HB_FS_READ | HB_FS_WRITE | HB_FS_OPTIONAL},
		{"policy", HB_FS_READ | HB_FS_OPTIONAL},
		{HB_PATH_CONF, HB_FS_READ},
		/* Names are resolved by glibc, which loads its modules from here. */
		{"/usr/lib", HB_FS_READ},
	};
	static struct hb_sandbox_path paths[PATHS_MAX];
	static uint16_t ports[] = {DNS_PORT, 0, 0};
	const char *ca = hb_config_text(p->config, "approver.ca_file");
	const char *agents = hb_config_text(p->config, "approver.agent_bot_sha256_file");
	size_t n = 0;

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		paths[n++] = own[i];
	for (size_t i = 0; i < hb_sandbox_inet_path_count && n < PATHS_MAX - 2; i++)
		paths[n++] = hb_sandbox_inet_paths[i];
	if (*agents)
		paths[n++] = (struct hb_sandbox_path){agents, HB_FS_READ | HB_FS_OPTIONAL};
	if (*ca)
		paths[n++] = (struct hb_sandbox_path){ca, HB_FS_READ};
	if (hb_bot_port(hb_config_text(p->config, "approver.api_base"), &ports[1], err) < 0)
		return -1;
	*out = (struct hb_sandbox){
		.name = "hermes-approver",
		.syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_UNIX | HB_SYS_INET | HB_SYS_EVENTS,
		.paths = paths,
		.path_count = n,
		.tcp_connect = ports,
	};
	return 0;
}

static int
run(struct hb_process *p, void *ctx, struct hb_error *err)
{
	return hb_approver_run(p, ctx, err);
}

static void
close_approver(void *ctx)
{
	hb_approver_close(ctx);
}

int
main(int argc, char **argv)
{
	struct hb_program program = {
		.self = HB_PEER_APPROVER,
		.usage = "Shows operations to a person, by Telegram or in a terminal, and signs "
			 "what they decide.\n",
		.server = {.routes = hb_approver_routes,
			   .route_count = hb_approver_route_count,
			   .on_refused = hb_access_refused},
		.open = open_approver,
		.sandbox = sandbox,
		.run = run,
		.close = close_approver,
	};

	return hb_process_main(&program, argc, argv);
}
