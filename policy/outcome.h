/*
 * What an executor's ledger and /status keep of an outcome, the same shape from all three:
 * {returncode, output, truncated, timed_out, duration, duration_ms, output_sha256, ...}.
 */
#ifndef HB_POLICY_OUTCOME_H
#define HB_POLICY_OUTCOME_H

#include <jansson.h>

#include "common/error.h"

/* err NULL: it ran; what `result` (may be NULL; stolen) says of returncode, truncated and timed_out
 * counts, else 0 and false. With err: returncode 1, the message as output unless there is one.
 * Durations are integers, since canonical JSON knows no other numbers. */
json_t *hb_outcome(json_t *result, const struct hb_error *err, double seconds);

#endif
