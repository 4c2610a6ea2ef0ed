/*
 * Operations: what may be asked. One file a feature (schema_runtime.c, schema_local.c,
 * schema_docker.c, schema_ssh.c) holds fields, limits and defaults; unknown fields are refused.
 *
 * An operation lives through two exact forms:
 *   validated  the client's request with every default filled in
 *   sealed     the same plus the fields that only the executor can fill in (resolved identities)
 * The digest is over canonical {"feature":F,"request":R} of the sealed form.
 */
#ifndef HB_POLICY_OPERATION_H
#define HB_POLICY_OPERATION_H

#include <jansson.h>

#include "common/digest.h"
#include "common/error.h"

/* Feature names as clients send them; "sandbox" becomes "local". NULL if unknown. */
const char *hb_feature_canonical(const char *name);

/* A new object: validated form of `request`. Codes from common/fields.h plus per-feature ones
 * (image_not_pinned, bad_workdir, ...). Schema only: bounds and floor are separate. */
json_t *hb_operation_validate(const char *feature, const json_t *request, struct hb_error *err);

/* Exact shape of a sealed request: validated part and every sealed field present and well-formed.
 * Code not_sealed when sealed fields are missing. */
int hb_operation_check_sealed(const char *feature, const json_t *request, struct hb_error *err);

/* True if `request` carries any sealed field (explain accepts both forms). */
int hb_operation_is_sealed(const char *feature, const json_t *request);

/* Take the sealed fields off: gives back the validated form (new reference). */
json_t *hb_operation_unsealed(const char *feature, const json_t *request);

int hb_operation_digest(const char *feature, const json_t *request, char hex[HB_HEX256],
			struct hb_error *err);

/* "install", "run", ...: the request's action, or the feature's only verb ("command" for local and
 * ssh). */
const char *hb_operation_action(const char *feature, const json_t *request);
/* Seconds the operation itself may take. */
int hb_operation_timeout(const char *feature, const json_t *request);

#endif
