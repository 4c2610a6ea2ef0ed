/*
 * hermes-fetcher: gets images from registries into the blob store.
 *
 * Holds: registry credentials (fetcher/credentials.json), the blob store, outbound network.
 * Never holds: root, keys, tokens of ours, sockets of executors. It is not believed: whoever uses a
 * blob hashes it. Called by: the installer (/resolve, /fetch); admin, launcher and hermesctl for
 * /health.
 */
#include "fetcher/service.h"

int
main(int argc, char **argv)
{
	struct hb_program program = {
		.self = HB_PEER_FETCHER,
		.usage = "Fetches images from OCI registries into <runtime.storage>/blobs. "
			 "Settings: [fetcher].\n",
		.server = {.routes = hb_fetcher_routes, .route_count = hb_fetcher_route_count},
		.open = hb_fetcher_open,
		.sandbox = hb_fetcher_sandbox,
		.stop = hb_fetcher_stop,
		.close = hb_fetcher_close,
	};

	return hb_process_main(&program, argc, argv);
}
