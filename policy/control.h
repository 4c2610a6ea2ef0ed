/*
 * The approver's control record, public/approver/control.json: what stops or takes back what was
 * approved, without touching the live policy (which the approver can't write).
 *
 *   {"record":{"v":1, "audience":.., "key_id":.., "sequence":N, "paused":bool, "revoked_before":T,
 *    "revoked":[operation ids], "by":user id, "channel":.., "at":T}, "signature":..}
 *
 * Signed by the approver (common/signed.h), replaced as a whole, its sequence only rises: each
 * verifier remembers the highest it has seen. The directory is the approver's alone.
 *
 *   no such file, and none was ever seen    not paused, nothing revoked
 *   unreadable, malformed, badly signed     paused: everything is refused, the error says why
 *   older than one seen before, or gone     refused (control_went_back, by the verifier's own
 * memory)
 */
#ifndef HB_POLICY_CONTROL_H
#define HB_POLICY_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/grant.h"
#include "common/keyring.h"

#define HB_REVOKED_MAX 256 /* single revocations that can still matter: grants live minutes */

struct hb_control {
	int64_t sequence; /* 0: there is no record */
	bool paused;
	int64_t revoked_before; /* grants issued up to this second count for nothing */
	char revoked[HB_REVOKED_MAX][33];
	size_t revoked_count;
	char by[24], channel[24];
	int64_t at;
};

/* From the state directory (working directory). Code control_unusable. */
int hb_control_load(const struct hb_keyring *keys, const char *audience, struct hb_control *out,
		    struct hb_error *err);
/* The envelope as it is stored; NULL with err. */
json_t *hb_control_seal(const struct hb_control *c, const char *audience,
			const struct hb_signing_key *key, struct hb_error *err);
/* Put it in place, durably. */
int hb_control_write(const json_t *envelope, struct hb_error *err);

/* Code paused. */
int hb_control_permits(const struct hb_control *c, struct hb_error *err);
/* Code grant_revoked. */
int hb_control_grant(const struct hb_control *c, const struct hb_grant *g, struct hb_error *err);
bool hb_control_revokes(const struct hb_control *c, const char *operation_id, int64_t issued_at);

#endif
