/*
 * The gate before every effect. Nothing here is taken from the broker's word: the policy is read
 * now, the signature is checked with our own copy of the key, digest and summary are computed anew
 * from the request that will really be carried out, and the grant is burnt in this process's own
 * ledger before anything happens. A captured broker can withhold work from this gate; it can't get
 * anything through it that a person did not sign.
 */
#include "policy/gate.h"

#include <fcntl.h>
#include <string.h>

#include "common/fields.h"
#include "common/ids.h"
#include "common/json.h"
#include "policy/control.h"
#include "policy/floor.h"
#include "policy/operation.h"
#include "policy/summary.h"

#define OPERATION_ID_LEN 32

int hb_execute_decode(const json_t *body, struct hb_execute *out, struct hb_error *err)
{
	static const struct hb_field fields[] = {
		{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED,
		 offsetof(struct hb_execute, operation_id), OPERATION_ID_LEN, OPERATION_ID_LEN},
		{"feature", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct hb_execute, feature),
		 1, 16},
		{"request", HB_FIELD_OBJECT, HB_FIELD_REQUIRED,
		 offsetof(struct hb_execute, request), 0, 0},
		{"envelope", HB_FIELD_OBJECT, HB_FIELD_REQUIRED,
		 offsetof(struct hb_execute, envelope), 0, 0},
	};
	struct hb_execute x = {0};

	if (hb_fields_decode(body, fields, sizeof(fields) / sizeof(fields[0]), &x, err) < 0)
		return -1;
	if (strspn(x.operation_id, "0123456789abcdef") != OPERATION_ID_LEN)
		return hb_fail(err, "bad_type", "field 'operation_id' must be 32 hex digits");
	const char *canonical = hb_feature_canonical(x.feature);
	if (!canonical || strcmp(canonical, x.feature) != 0)
		return hb_fail(err, "unknown_feature",
			       "field 'feature' must be runtime, local, docker or ssh");
	*out = x;
	return 0;
}

/* Is this feature on, now, and ours? */
static int check_policy(struct hb_gate *g, const struct hb_execute *x,
			const struct hb_policy_view *view, struct hb_error *err)
{
	const char *target = hb_feature_target(x->feature);

	/* First of all, so that an old policy put back is noticed whatever else is asked. */
	if (hb_ledger_see_generation(g->ledger, view->live.generation, err) < 0)
		return -1;
	if (!target || strcmp(target, g->target) != 0)
		return hb_fail(err, "grant_wrong_target",
			       "operations of feature %s are not carried out by %s", x->feature,
			       g->target);
	if (!hb_bounds_executor(view->bounds, g->target))
		return hb_fail(err, "not_deployed",
			       "the %s executor is not deployed on this host (bounds.conf)",
			       g->target);
	return hb_policy_permits(&view->live, x->feature, NULL, err);
}

/* The request as it will be carried out, and the two hashes of it that the grant must carry. */
static int compute(const struct hb_execute *x, char digest[HB_HEX256],
		   char summary_digest[HB_HEX256], struct hb_error *err)
{
	struct hb_buf summary = HB_BUF_INIT;
	int rc = -1;

	if (hb_operation_check_sealed(x->feature, x->request, err) < 0 ||
	    hb_operation_digest(x->feature, x->request, digest, err) < 0 ||
	    hb_summary(x->feature, x->request, &summary, NULL, err) < 0)
		goto out;
	hb_summary_digest(&summary, summary_digest);
	rc = 0;
out:
	hb_buf_free(&summary);
	return rc;
}

/* Enough different people, each of them an approver still. */
static int check_quorum(const struct hb_grant *grant, const char *feature,
			const struct hb_policy_view *view, struct hb_error *err)
{
	int needed = hb_policy_quorum(&view->live, view->bounds, feature);

	for (size_t i = 0; i < grant->user_count; i++) {
		for (size_t j = 0; j < i; j++) {
			if (strcmp(grant->user_ids[i], grant->user_ids[j]) == 0)
				return hb_fail(err, "grant_malformed",
					       "the grant names user %s twice", grant->user_ids[i]);
		}
		if (!hb_policy_user(&view->live, grant->user_ids[i]) ||
		    !hb_bounds_user(view->bounds, grant->user_ids[i]))
			return hb_fail(err, "user_not_allowed",
				       "user %s, who approved this, is not an execution approver",
				       grant->user_ids[i]);
	}
	for (size_t i = 0; hb_policy_no_self(view, feature) && i < grant->user_count; i++) {
		/* Who asked is in the grant, signed; one that doesn't say could have been
		 * anybody's. */
		if (!*grant->requested_by || strcmp(grant->user_ids[i], grant->requested_by) == 0)
			return hb_fail(err, "self_approval",
				       "%s operations can't be approved by whoever asked for them "
				       "(user %s)",
				       feature, grant->user_ids[i]);
	}
	if (grant->user_count < (size_t)needed)
		return hb_fail(err, "quorum_not_met",
			       "%zu of the %d approvals that %s operations need were given",
			       grant->user_count, needed, feature);
	return 0;
}

int hb_gate_policy_fresh(const struct hb_gate *g, struct hb_error *err)
{
	struct hb_policy_view view;
	int rc;

	if (hb_policy_view_load(g->admin_uid, &view, err) < 0)
		return -1;
	rc = hb_ledger_see_generation(g->ledger, view.live.generation, err);
	hb_policy_view_free(&view);
	return rc;
}

/* The approver's own word, apart from grants: is everything paused, is this one taken back? Read
 * before the grant is looked at, so that a pause is a pause whatever is sent. */
static int check_control(struct hb_gate *g, const struct hb_keyring *keys,
			 struct hb_control *control, struct hb_error *err)
{
	if (hb_control_load(keys, g->audience, control, err) < 0 ||
	    hb_ledger_see_control(g->ledger, control->sequence, err) < 0)
		return -1;
	return hb_control_permits(control, err);
}

static int check_with(struct hb_gate *g, const struct hb_execute *x,
		      const struct hb_policy_view *view, struct hb_grant *grant,
		      struct hb_error *err)
{
	char digest[HB_HEX256], summary_digest[HB_HEX256];
	struct hb_keyring keys = g->keys;
	struct hb_control control;

	if (keys.count == 0)
		keys.keys[keys.count++] = g->key;
	if (check_policy(g, x, view, err) < 0 || check_control(g, &keys, &control, err) < 0 ||
	    hb_grant_open_ring(x->envelope, &keys, grant, err) < 0 ||
	    hb_control_grant(&control, grant, err) < 0 ||
	    compute(x, digest, summary_digest, err) < 0)
		return -1;
	const struct hb_grant_expect expect = {
		.audience = g->audience,
		.target = g->target,
		.feature = x->feature,
		.action = hb_operation_action(x->feature, x->request),
		.operation_id = x->operation_id,
		.digest = digest,
		.summary_digest = summary_digest,
		.generation = view->live.generation,
		.now = hb_now(),
	};
	if (hb_grant_check(grant, &expect, err) < 0 ||
	    check_quorum(grant, x->feature, view, err) < 0)
		return -1;
	if (hb_floor_check(x->feature, x->request, err) < 0 ||
	    (g->own && hb_floor_check_own(g->own, x->feature, x->request, err) < 0))
		return -1;
	return hb_bounds_check(view->bounds, x->feature, x->request, err);
}

int hb_gate_load_keys(struct hb_gate *g, struct hb_error *err)
{
	if (hb_keyring_load(AT_FDCWD, hb_now(), &g->keys, err) < 0)
		return -1;
	g->key = g->keys.keys[0];
	return 0;
}

int hb_gate_check(struct hb_gate *g, const struct hb_execute *x, struct hb_grant *grant,
		  struct hb_error *err)
{
	struct hb_policy_view view;
	struct hb_grant found = {0};

	if (hb_policy_view_load(g->admin_uid, &view, err) < 0)
		return -1;
	int rc = check_with(g, x, &view, &found, err);
	hb_policy_view_free(&view);
	if (rc == 0)
		*grant = found;
	return rc;
}

int hb_gate_pass(struct hb_gate *g, const struct hb_execute *x, struct hb_grant *grant,
		 struct hb_error *err)
{
	struct hb_grant found;

	if (hb_gate_check(g, x, &found, err) < 0 || hb_ledger_burn(g->ledger, &found, err) < 0)
		return -1;
	*grant = found;
	return 0;
}
