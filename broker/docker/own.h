/*
 * What of this host is ours, by identity: our containers and the networks they are on, and our
 * directories.
 *
 * A container is ours when it had one of our names when it was first seen, when hermes.conf lists
 * it (docker.protected_containers), or when this process runs in it. Its id is remembered
 * (docker/protected.json), so that renaming it does not make it somebody else's. Directories are
 * compared by resolved path, and by device and inode of each directory on the way, so that neither
 * a link nor a bind mount is a way around.
 */
#ifndef HB_DOCKER_OWN_H
#define HB_DOCKER_OWN_H

#include <jansson.h>
#include <stdbool.h>

#include "broker/docker/engine.h"
#include "common/config.h"
#include "policy/floor.h"

struct hb_own {
	json_t *containers, *networks, *paths; /* arrays of texts */
	const char **ids, **nets, **dirs;
	struct hb_floor_own floor; /* points into the above */
};

/* Our directories from the configuration, the container we run in, and what was remembered. */
int hb_own_load(const struct hb_config *config, struct hb_own *out, struct hb_error *err);
void hb_own_free(struct hb_own *own);
/* Take over {"containers":[..],"networks":[..],"engine_root":".."} as a worker found it; remembers
 * what is new. */
int hb_own_learn(struct hb_own *own, const json_t *found, struct hb_error *err);

/* In a worker: look at the engine's containers and networks as they are now; own is brought up to
 * date and *found is what hb_own_learn takes (new reference). */
int hb_own_scan(struct hb_engine *e, const struct hb_config *config, struct hb_own *own,
		json_t **found, struct hb_error *err);

/* The directory by identity: code floor_bind when it is one of ours, holds one, or lies in one. */
int hb_own_check_dir(const struct hb_own *own, const char *path, struct hb_error *err);

/* The real path of something that exists. Codes: bind_missing, bind_unresolved. The caller frees
 * *out. */
int hb_resolve_path(const char *path, char **out, struct hb_error *err);

#endif
