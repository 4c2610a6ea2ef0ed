/*
 * hermes-broker, the front door.
 *
 * Holds: the control secret, the secret it shares with the approver, the approver's PUBLIC key, its
 * operations database. Never holds: any power to act, the signing key, the bot token, the Docker
 * socket, SSH profiles. Called by: root (hermesctl) and the uids in broker.client_uids; the
 * approver, to deliver grants; admin and launcher for health. Calls: installer, docker and ssh
 * executors, the approver.
 */
#include <stdlib.h>

#include "broker/broker.h"
#include "common/log.h"
#include "common/paths.h"

static void *
open_broker(struct hb_process *p, struct hb_error *err)
{
	struct hb_broker *b;

	return hb_broker_open(p, &b, err) < 0 ? NULL : b;
}

static int
sandbox(struct hb_process *p, void *ctx, struct hb_sandbox *out, struct hb_error *err)
{
	static const struct hb_sandbox_path paths[] = {
		{"broker", HB_FS_READ | HB_FS_WRITE},
		{"public", HB_FS_READ},
		{"clients", HB_FS_WRITE | HB_FS_OPTIONAL}, /* the control secret goes there */
		{"policy", HB_FS_READ | HB_FS_OPTIONAL},
		{HB_PATH_CONF, HB_FS_READ},
	};

	*out = (struct hb_sandbox){
		.name = "hermes-broker",
		.syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_UNIX | HB_SYS_EVENTS,
		.paths = paths,
		.path_count = sizeof(paths) / sizeof(paths[0]),
		.max_files = 2048,
	};
	return 0;
}

static int
listen_also(struct hb_process *p, void *ctx, struct hb_error *err)
{
	return hb_broker_listen(p, err);
}

static int
run(struct hb_process *p, void *ctx, struct hb_error *err)
{
	return hb_broker_run(p, ctx, err);
}

static void
close_broker(void *ctx)
{
	hb_broker_close(ctx);
}

int
main(int argc, char **argv)
{
	struct hb_program program = {
		.self = HB_PEER_BROKER,
		.usage = "The front door: clients prepare and execute operations here, a person "
			 "decides elsewhere.\n",
		.server = {.routes = hb_broker_routes,
			   .route_count = hb_broker_route_count,
			   .on_refused = hb_access_refused},
		.open = open_broker,
		.listen = listen_also,
		.sandbox = sandbox,
		.run = run,
		.close = close_broker,
	};

	return hb_process_main(&program, argc, argv);
}
