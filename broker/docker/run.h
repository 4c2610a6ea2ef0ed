/*
 * Making, starting and waiting for a container of ours, and ending it in time.
 *
 * Attached: output and the wait for its end are asked for before it is started, so that neither a
 * quick end nor the engine's own removal is missed. It has ended when its first process has, which
 * ends all others in it; whoever still holds its output open is not waited for longer than a
 * moment.
 */
#ifndef HB_DOCKER_RUN_H
#define HB_DOCKER_RUN_H

#include <jansson.h>
#include <stdbool.h>

#include "broker/docker/docker.h"

struct hb_run_spec {
	const json_t *request; /* sealed */
	const json_t *body;    /* create.h */
	const char *name;      /* or NULL */
	bool detach;
	bool keep;        /* leave it when it has ended (feature docker without auto_remove) */
	bool auto_remove; /* the engine removes it */
};

/* 0 with the result, or -1 with err and perhaps a result (see policy/executor.h). */
int hb_run_container(struct hb_worker *w, struct hb_engine *e, const struct hb_run_spec *spec,
		     json_t **result, struct hb_error *err);

#endif
