/*
 * WWW-Authenticate (RFC 9110, 11.6.1): a list of challenges, each a scheme with either parameters
 * or one token68. Registries send one or several in one field or in several fields; the caller
 * joins fields with ", ".
 *
 * The parser is strict about what could be read two ways (a parameter twice, an unterminated
 * string, control characters) and indifferent to what is merely missing: which of realm, service
 * and scope a challenge carries is for the caller to judge.
 */
#ifndef HB_FETCHER_CHALLENGE_H
#define HB_FETCHER_CHALLENGE_H

#include <stddef.h>

#include "common/error.h"

#define HB_CHALLENGE_MAX 8         /* more in one answer is no registry */
#define HB_CHALLENGE_TEXT_MAX 8192 /* of the joined fields */

enum hb_auth_scheme { HB_AUTH_OTHER, HB_AUTH_BASIC, HB_AUTH_BEARER };

struct hb_challenge {
	enum hb_auth_scheme scheme;
	char realm[1024], service[512], scope[1024]; /* "" when absent */
};

/* Fills at most HB_CHALLENGE_MAX entries. Code: bad_challenge. */
int hb_challenge_parse(const char *text, struct hb_challenge out[HB_CHALLENGE_MAX], size_t *count,
		       struct hb_error *err);

#endif
