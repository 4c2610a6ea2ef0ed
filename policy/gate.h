/*
 * The gate that each executor passes before any effect, all three with the same code and each in
 * its own process: policy now, signature, audience, target, expiry, generation, digest recomputed
 * from the request, summary recomputed from the request, floor and bounds again, then the grant is
 * burnt in the executor's own ledger, and only then true.
 */
#ifndef HB_POLICY_GATE_H
#define HB_POLICY_GATE_H

#include <jansson.h>

#include "common/grant.h"
#include "common/ledger.h"
#include "policy/floor.h"
#include "policy/live.h"

struct hb_gate {
	const char *target;   /* "installer" */
	const char *audience; /* host id */
	uid_t admin_uid;
	struct hb_public_key key;
	struct hb_keyring keys; /* during a rotation more than one; empty: only `key` */
	struct hb_ledger *ledger;
	const struct hb_floor_own
		*own; /* what of this host is ours; NULL: only what the names tell */
};

/* Fill in key and keys from public/, as they are now. */
int hb_gate_load_keys(struct hb_gate *g, struct hb_error *err);

/* For health: would the policy that lies there be taken? An older one that was put back refuses every
 * grant, and that is to be known before one is asked for. Codes: those of policy/live.h,
 * generation_went_back. */
int hb_gate_policy_fresh(const struct hb_gate *g, struct hb_error *err);

/* What /execute carried, decoded: exact fields operation_id, feature, request, envelope. Borrowed
 * from the body. */
struct hb_execute {
	const char *operation_id, *feature;
	json_t *request, *envelope;
};
int hb_execute_decode(const json_t *body, struct hb_execute *out, struct hb_error *err);

/* Everything but the burn: used when an operation is taken into the queue. `grant` is filled on
 * success only. Codes: those of policy/live.h, common/grant.h, policy/floor.h, and not_deployed,
 * not_sealed, quorum_not_met, self_approval, user_not_allowed, generation_went_back; of
 * policy/control.h: paused, grant_revoked, control_unusable, control_went_back. */
int hb_gate_check(struct hb_gate *g, const struct hb_execute *x, struct hb_grant *grant,
		  struct hb_error *err);
/* Check again and burn: the last step before the effect. Also grant_replayed. */
int hb_gate_pass(struct hb_gate *g, const struct hb_execute *x, struct hb_grant *grant,
		 struct hb_error *err);

#endif
