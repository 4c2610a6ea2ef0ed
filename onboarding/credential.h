/*
 * Does a text look like a credential? Names of people, accounts and scopes are written down in the
 * inventory and shown in reports; a token that was pasted beside them must not be. What is found is
 * named by its pattern and never repeated.
 *
 * Refused are forms that are known (private keys, JWTs, prefixes of well-known services, cookies,
 * Authorization values, URLs with a user part, webhooks), `password = ...` pairs, and strings of
 * letters and digits that are too long and too evenly spread to have been written by a person, in
 * one run or as base64 with its two signs between. Percent-encoded text is judged decoded too. A
 * UUID counts as one: some services hand them out as keys.
 */
#ifndef HB_ONBOARDING_CREDENTIAL_H
#define HB_ONBOARDING_CREDENTIAL_H

#include <stddef.h>

#include "common/error.h"

/* Longest unbroken run of letters and digits that is never judged by its spread: longer ones may
 * be. */
#define HB_CREDENTIAL_RUN 20

/* Name of the pattern that `text` matches, for people ("a JSON Web Token"), or NULL. Any
 * bytes; not meant for more than some thousands of them. */
const char *hb_credential_find(const char *text, size_t len);

/* Code looks_like_credential; the message has `field` and the pattern, never the text. */
int hb_credential_refuse(const char *field, const char *text, struct hb_error *err);

#endif
