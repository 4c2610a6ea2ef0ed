/*
 * Strict JSON in, canonical JSON out (RFC 8259, RFC 8785).
 *
 * What is accepted: one object, valid UTF-8, no duplicate keys, no lone surrogates, no NUL in
 * strings, nesting up to HB_JSON_DEPTH_MAX, numbers that are integers with |n| <= 2^53-1.
 * Parsing is jansson's; what it lets through that we don't is refused afterwards.
 */
#ifndef HB_COMMON_JSON_H
#define HB_COMMON_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/buf.h"
#include "common/error.h"

#define HB_JSON_DEPTH_MAX 32 /* no body of ours nests deeper than 6 */
#define HB_JSON_INT_MAX 9007199254740991LL

/* Parse one object; the caller owns the result (json_decref). Codes: bad_json, duplicate_key. */
json_t *hb_json_parse(const char *text, size_t len, struct hb_error *err);

/* The same for data from the outside that is not ours (registries, the Bot API, MCP): any JSON value
 * and reals are allowed; duplicate keys are still refused. */
json_t *hb_json_parse_foreign(const char *text, size_t len, struct hb_error *err);

/* Append the RFC 8785 form (keys sorted by UTF-16 code units, minimal escapes). */
int hb_json_canonical(const json_t *value, struct hb_buf *out, struct hb_error *err);

/* SHA-256 of the canonical form, lower-case hex. */
int hb_json_digest(const json_t *value, char hex[65], struct hb_error *err);

/* Borrowed pointer or fallback; type-checked. */
const char *hb_json_text(const json_t *object, const char *key, const char *fallback);
long long hb_json_int(const json_t *object, const char *key, long long fallback);
bool hb_json_bool(const json_t *object, const char *key, bool fallback);

/* {"error": message, "code": code}; a new reference. */
json_t *hb_json_error(const struct hb_error *err);

#endif
