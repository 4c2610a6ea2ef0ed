/*
 * When to try again: Retry-After (RFC 9110, 10.2.3), exponential backoff with jitter, and the
 * memory of rate limits that outlives a restart (a registry that locked us out for an hour must not
 * be asked again by a new process).
 */
#ifndef HB_FETCHER_RETRY_H
#define HB_FETCHER_RETRY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

#define HB_RETRY_CEILING 3600 /* seconds: whatever a server asks for, after this we ask again */
#define HB_RATELIMIT_PATH "fetcher/ratelimit.json"

/* Seconds to wait from `now`, 1..HB_RETRY_CEILING; 0 when the header is absent, malformed,
 * negative, zero or past: then our own backoff counts. Both forms: seconds and HTTP date. */
int hb_retry_after(const char *value, int64_t now);

/* Milliseconds before attempt n (0: the first repetition): half fixed, half random, doubling to 20
 * s. */
int hb_backoff_ms(int n);

/* Remember that `host` must not be asked before `until`; keeps a later time that is already there.
 * Durable. */
int hb_ratelimit_set(int dirfd, const char *host, int64_t until, int64_t now, struct hb_error *err);
/* The time before which `host` must not be asked, 0 when it may be. A damaged file counts as empty.
 */
int64_t hb_ratelimit_until(int dirfd, const char *host, int64_t now);
/* [{host, next_try, text}] of what is still in force; a new reference. */
json_t *hb_ratelimit_list(int dirfd, int64_t now);

#endif
