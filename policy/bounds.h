/*
 * bounds.conf: what can't be widened from a phone or a web page. Root-owned, changed only on the
 * host. Strict INI. [users] allowed = 123, 456        Telegram user ids that may ever be approvers
 * ("0": the local console) [executors] deployed = installer, docker, ssh [images] repositories =
 * ghcr.io/owner/name, 127.0.0.1:5000/all    (a last component "all" is any name below) [docker]
 * privileged = no, host_namespaces = no, devices = no, capabilities = no, published_addresses = no,
 *            security_opt = no, sysctls = no, bind_roots = (none)
 *   [quorum] runtime = 1, local = 1, docker = 1, ssh = 1   (least number of approvers)
 *            no_self_approval = (none)     features where whoever asked can't approve
 * A key that is absent allows nothing (quorum: 1). Names are written in full, in one spelling.
 * Missing, unreadable, malformed or group/world-writable: nothing is allowed, and the error says
 * why. Codes: bounds_missing, bounds_malformed, loose_permissions, too_large.
 */
#ifndef HB_POLICY_BOUNDS_H
#define HB_POLICY_BOUNDS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

struct hb_bounds;

int hb_bounds_load(int dirfd, const char *path, struct hb_bounds **out, struct hb_error *err);
void hb_bounds_free(struct hb_bounds *b);
bool hb_bounds_user(const struct hb_bounds *b, const char *user_id);
size_t hb_bounds_users(const struct hb_bounds *b, const char *const **users);
bool hb_bounds_executor(const struct hb_bounds *b, const char *executor);
/* name: registry/repository, or "oci:/dir" */
bool hb_bounds_repository(const struct hb_bounds *b, const char *name);
bool hb_bounds_docker_field(const struct hb_bounds *b, const char *field);
size_t hb_bounds_bind_roots(const struct hb_bounds *b, const char *const **roots);
/* [quorum] no_self_approval = runtime, docker: there whoever asked can't approve. */
bool hb_bounds_no_self(const struct hb_bounds *b, const char *feature);
int hb_bounds_quorum(const struct hb_bounds *b, const char *feature);

#endif
