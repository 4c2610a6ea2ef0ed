/*
 * What names stand for now: image, network and container ids, real paths, the state of the
 * workspace.
 *
 * At execution the same is done again with the unsealed form, and the two must be equal: what was
 * approved is what is there, or nothing happens. Codes then: image_changed, network_changed,
 * container_changed, bind_changed, workspace_changed.
 */
#ifndef HB_DOCKER_SEAL_H
#define HB_DOCKER_SEAL_H

#include <jansson.h>

#include "broker/docker/docker.h"

/* In a worker. `request` is validated; a new reference, or NULL. Codes: image_absent,
 * network_unknown, container_unknown, bind_missing, volume_reaches_host, label_reserved, those of
 * the engine, floor and bounds. */
json_t *hb_seal_docker(struct hb_worker *w, struct hb_engine *e, const json_t *request,
		       struct hb_error *err);
/* e may be NULL with the bubblewrap backend. */
json_t *hb_seal_local(struct hb_worker *w, struct hb_engine *e, const json_t *request,
		      struct hb_error *err);

/* Seal anew and compare. */
int hb_seal_again(struct hb_worker *w, struct hb_engine *e, const char *feature,
		  const json_t *sealed, struct hb_error *err);

/* A named volume is plain storage of the engine, or doesn't exist yet; one made with options may be
 * any directory of the host. Code volume_reaches_host. */
int hb_seal_volumes(struct hb_engine *e, const json_t *request, struct hb_error *err);
/* The sealed bind sources still resolve to themselves. Code bind_changed. */
int hb_seal_binds(const json_t *request, struct hb_error *err);

/* The task of POST /seal: input {feature, request}, result {request}. */
int hb_seal_task(struct hb_worker *w, json_t **result, struct hb_error *err);

#endif
