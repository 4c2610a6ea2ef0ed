/*
 * Bearer tokens (distribution-spec token authentication): the query for one, and reading the
 * answer.
 */
#ifndef HB_FETCHER_TOKEN_H
#define HB_FETCHER_TOKEN_H

#include <stdint.h>

#include "common/error.h"
#include "fetcher/challenge.h"
#include "fetcher/http.h"

#define HB_TOKEN_MAX 16384

/* The scope to ask for: the offered one when it is exactly pull on one repository and, if
 * credentials go along, on ours; else repository:<name>:pull. Nobody gets a wider token out of us
 * than this pull needs. */
void hb_token_scope(const char *offered, const char *repository, bool credentials, char *out,
		    size_t size);

/* "token" or "access_token" of the answer; the result is sodium_malloc'ed "Bearer <token>". Code:
 * bad_token_reply. */
char *hb_token_decode(const char *body, size_t len, const char *host, struct hb_error *err);

/* Ask `realm` (already checked). `basic`: base64 credentials or NULL. Codes: those of
 * hb_http_perform, bad_token_reply, unauthorized, rate_limited (out_retry_after is then the
 * header). */
char *hb_token_fetch(struct hb_http *http, const struct hb_challenge *challenge,
		     const struct hb_url *realm, const char *repository, const char *basic,
		     bool loopback_allowed, char retry_after[64], struct hb_error *err);

#endif
