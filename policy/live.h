/*
 * Live policy (policy/policy.json), changed by admin or hermesctl within the bounds:
 *   {"version":1,"generation":N,"features":["runtime",..],"users":["123",..],"quorum":{"runtime":1,..},"paused":false,
 *    "no_self_approval":["docker",..]}        (the last one may be absent: none)
 * Every change raises the generation; grants and pending approvals of an older one die at once.
 * Written to a temporary file, synced, renamed, directory synced, under a lock file; text
 * projections for other readers are written beside it (policy/features, policy/users:
 * comma-separated; policy/policy-generation), one line each. They are copies: our own processes
 * decide by policy.json alone.
 */
#ifndef HB_POLICY_LIVE_H
#define HB_POLICY_LIVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "policy/bounds.h"

#define HB_FEATURE_RUNTIME 1u
#define HB_FEATURE_LOCAL 2u
#define HB_FEATURE_DOCKER 4u
#define HB_FEATURE_SSH 8u
/* Live policy itself, widened with an approver's grant: always there, never among the features of a policy. */
#define HB_FEATURE_POLICY 16u

#define HB_POLICY_USERS_MAX 64

struct hb_policy {
	int64_t generation;
	unsigned features; /* HB_FEATURE_* */
	char users[HB_POLICY_USERS_MAX][24];
	size_t user_count;
	int quorum[4]; /* by bit number of the feature */
	unsigned no_self; /* HB_FEATURE_*: whoever asked can't approve */
	bool paused;
};

unsigned hb_feature_bit(const char *name); /* "sandbox" is an alias of "local"; 0: unknown */
const char *hb_feature_name(unsigned bit);
const char *hb_feature_target(const char *feature); /* "installer", "docker" (local too), "ssh" */

/* Load from the state directory (working directory). Owner must be root or `admin_uid`, no
 * group/other write. Codes: policy_missing, policy_malformed, loose_permissions. Users and quorum
 * outside the bounds are an error: policy_out_of_bounds. */
int hb_policy_load(uid_t admin_uid, const struct hb_bounds *bounds, struct hb_policy *out,
		   struct hb_error *err);

/* Both layers together, as every process needs them before each decision. */
struct hb_policy_view {
	struct hb_bounds *bounds;
	struct hb_policy live;
};
int hb_policy_view_load(uid_t admin_uid, struct hb_policy_view *out, struct hb_error *err);
void hb_policy_view_free(struct hb_policy_view *v);

/* Approvers that an operation of this feature needs now: the stricter of both layers; for the policy itself as many as
 * the strictest feature. */
int hb_policy_quorum(const struct hb_policy *p, const struct hb_bounds *b, const char *feature);

bool hb_policy_user(const struct hb_policy *p, const char *user_id);
/* Codes: paused, feature_disabled, user_not_allowed. user_id NULL: not checked. */
int hb_policy_permits(const struct hb_policy *p, const char *feature, const char *user_id,
		      struct hb_error *err);

/* Read, change and write under the lock; generation = old + 1 when `change` altered anything
 * (returns 1), else nothing is written (returns 0). `change` may refuse with -1 and err. First
 * write when the file is missing: create must be true; generation starts at 1, or after the last
 * one when policy/policy-generation is still there. owner: who shall own the file (admin's uid).
 * The policy before the change may be outside the bounds, the one after may not. */
typedef int (*hb_policy_change)(struct hb_policy *p, const struct hb_bounds *b, void *arg,
				struct hb_error *err);
int hb_policy_update(uid_t owner, bool create, hb_policy_change change, void *arg,
		     struct hb_policy *after, struct hb_error *err);

/* Whoever asked for it may not be one of those who approve it: the live policy says so, or the
 * bounds. */
bool hb_policy_no_self(const struct hb_policy_view *v, const char *feature);

/* The same generation step without a change: what a new bot token or control secret ends. */
int hb_policy_raise(uid_t owner, struct hb_policy *after, struct hb_error *err);

json_t *hb_policy_to_json(const struct hb_policy *p);

/* Watch for changes cheaply: true when mtime/inode/size of policy or bounds differ from last time.
 */
struct hb_policy_stamp {
	unsigned long long policy_ino, bounds_ino;
	long long policy_ns, bounds_ns, policy_size, bounds_size;
};
bool hb_policy_changed(struct hb_policy_stamp *stamp);

#endif
