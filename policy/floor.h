/*
 * What is refused whatever anyone approves. A last net, incomplete by nature; nothing else relies
 * on it.
 */
#ifndef HB_POLICY_FLOOR_H
#define HB_POLICY_FLOOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"
#include "policy/bounds.h"

/* Code floor_<rule>; the message names the rule. */
int hb_floor_check(const char *feature, const json_t *request, struct hb_error *err);

/* A name that our own containers, networks and volumes go by, also with a project in front and a number behind. */
bool hb_floor_own_name(const char *name);

/* What on this host is ours, by identity, so that renaming it does not help. hb_floor_check knows
 * our usual names; a program that knows more (the docker executor its containers, each its state
 * directory) asks this as well. */
struct hb_floor_own {
	const char *const *container_ids; /* 64 hex */
	size_t container_count;
	const char *const *network_ids; /* 64 hex: networks that no other container may join */
	size_t network_count;
	const char *const *paths; /* absolute, normal: state, storage, data, profiles */
	size_t path_count;
};
/* Codes: floor_own_container, floor_own_network, floor_bind. */
int hb_floor_check_own(const struct hb_floor_own *own, const char *feature, const json_t *request,
		       struct hb_error *err);

/* Against bounds.conf: repositories, docker fields (code out_of_bounds), executors (code
 * not_deployed). */
int hb_bounds_check(const struct hb_bounds *b, const char *feature, const json_t *request,
		    struct hb_error *err);

#endif
