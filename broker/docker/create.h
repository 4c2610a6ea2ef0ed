/*
 * The body of the engine's container-create, made from an approved operation and from nothing else:
 * a fixed list of fields, each set here, so that what isn't in the list can't be asked for (Docker
 * Engine API, "Create a container").
 */
#ifndef HB_DOCKER_CREATE_H
#define HB_DOCKER_CREATE_H

#include <jansson.h>

#include "common/config.h"

/* Whose container it is. */
struct hb_create_labels {
	const char *host_id, *operation_id, *kind;
};

/* `run` of feature docker, sealed. A new reference. */
json_t *hb_create_run(const json_t *request, const struct hb_create_labels *labels);
/* A local command: the sandbox. `workspace`: its real path on the host. */
json_t *hb_create_local(const json_t *request, const struct hb_config *config,
			const char *workspace, const struct hb_create_labels *labels);

#endif
