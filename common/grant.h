/*
 * A grant: one person's signed consent to one exact operation, usable once.
 *
 * Bytes signed: "hermes-grant-v1" NUL canonical JSON of the grant (docs/PROTOCOL.md, Grant). On the wire and in
 * files it travels as the envelope {"grant": {...}, "signature": "<base64, 64 bytes>"}.
 */
#ifndef HB_COMMON_GRANT_H
#define HB_COMMON_GRANT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/error.h"
#include "common/keyring.h"
#include "common/keys.h"

#define HB_GRANT_USERS_MAX 16
#define HB_ID_MAX 65

struct hb_grant {
	char grant_id[HB_ID_MAX];     /* 64 hex: 256 random bits */
	char audience[HB_ID_MAX];     /* this host's id, 32 hex */
	char capability[HB_ID_MAX];   /* 64 hex, the client's handle on the operation */
	char operation_id[HB_ID_MAX]; /* 32 hex */
	char target[24];              /* "installer", "docker", "ssh" */
	char feature[16];             /* "runtime", "local", "docker", "ssh" */
	char action[24];
	char digest[HB_HEX256];         /* of the sealed operation */
	char summary_digest[HB_HEX256]; /* of the exact text shown */
	char tree_digest[HB_HEX256];    /* "" when absent */
	char requested_by[24]; /* the user who asked, "" when absent (grants of older releases) */
	char user_ids[HB_GRANT_USERS_MAX][24];
	size_t user_count;
	char session[128];
	int64_t generation;
	bool approved; /* decision */
	int64_t issued_at, not_before, expires_at;
	char key_id[17];
};

/* New references; NULL on failure. */
json_t *hb_grant_to_json(const struct hb_grant *g);
int hb_grant_from_json(const json_t *object, struct hb_grant *out, struct hb_error *err);

/* Sign and wrap into the envelope; key_id is filled in. */
json_t *hb_grant_seal(struct hb_grant *g, const struct hb_signing_key *key, struct hb_error *err);

/* Open an envelope: exact shape, signature by `key`. Codes: grant_malformed, grant_unknown_key,
 * grant_bad_signature. Says nothing yet about whom or what it is for. */
int hb_grant_open(const json_t *envelope, const struct hb_public_key *key, struct hb_grant *out,
		  struct hb_error *err);

/* The same with any key of the ring, chosen by the grant's key_id. */
int hb_grant_open_ring(const json_t *envelope, const struct hb_keyring *keys, struct hb_grant *out,
		       struct hb_error *err);

/* What an executor expects a grant to say; each field is compared. */
struct hb_grant_expect {
	const char *audience, *target, *feature, *action, *operation_id, *digest, *summary_digest;
	int64_t generation, now;
};

/* Codes: grant_denied, grant_wrong_audience, grant_wrong_target, grant_wrong_operation, grant_digest_mismatch,
 * grant_old_generation, grant_not_yet_valid, grant_expired. */
int hb_grant_check(const struct hb_grant *g, const struct hb_grant_expect *expect, struct hb_error *err);

#endif
