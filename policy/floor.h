/*
 * What is refused whatever anyone approves. A last net, incomplete by nature; nothing else relies on it.
 */
#ifndef HB_POLICY_FLOOR_H
#define HB_POLICY_FLOOR_H

#include <jansson.h>

#include "common/error.h"
#include "policy/bounds.h"

/* Code floor_<rule>; the message names the rule. */
int hb_floor_check(const char *feature, const json_t *request, struct hb_error *err);

/* Against bounds.conf: repositories, docker fields, executors. Code out_of_bounds. */
int hb_bounds_check(const struct hb_bounds *b, const char *feature, const json_t *request, struct hb_error *err);

#endif
