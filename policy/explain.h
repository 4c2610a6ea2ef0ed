/*
 * `hermesctl explain`: what would be asked and shown, without any process running. Reads
 * {"feature":..., "request":...}; a request may be as a client sends it or already sealed.
 */
#ifndef HB_POLICY_EXPLAIN_H
#define HB_POLICY_EXPLAIN_H

#include <jansson.h>
#include <stddef.h>

#include "common/error.h"
#include "policy/bounds.h"

/* {request, digest, summary, warnings}: validated (or sealed) request, its digest, the exact text,
 * its warnings. New reference, or NULL with the code that /prepare would answer. bounds NULL: not
 * applied. */
json_t *hb_explain(const char *text, size_t len, const struct hb_bounds *bounds,
		   struct hb_error *err);

#endif
