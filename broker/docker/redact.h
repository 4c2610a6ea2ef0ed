/*
 * What the answer to `inspect` tells: a fixed selection, without the values of environment
 * variables, without labels and arguments that look like secrets. Pure.
 */
#ifndef HB_DOCKER_REDACT_H
#define HB_DOCKER_REDACT_H

#include <jansson.h>

/* New references. */
json_t *hb_redact_inspect(const json_t *container);
/* One row of a list of containers: id, name, image, state, status, created, ports, networks. */
json_t *hb_redact_row(const json_t *row);

#endif
