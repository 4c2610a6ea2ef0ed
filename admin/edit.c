/*
 * Changes of live policy within the bounds. Each is recorded before it is made, raises the generation, and is visible to
 * the very next request.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/admin.h"
#include "common/fields.h"
#include "common/json.h"

/* Pages send the whole list of these three; runtime has a switch of its own. */
#define PAGE_FEATURES (HB_FEATURE_LOCAL | HB_FEATURE_DOCKER | HB_FEATURE_SSH)

static int read_list(struct hb_request *req, const char *name, long long max, json_t **out, struct hb_error *err)
{
	const struct hb_field fields[] = {{name, HB_FIELD_ARRAY, HB_FIELD_REQUIRED, 0, 0, max}};
	json_t *item;
	size_t i;

	if (hb_fields_decode(hb_request_json(req), fields, 1, out, err) < 0)
		return -1;
	json_array_foreach(*out, i, item)
		if (!json_is_string(item))
			return hb_fail(err, "bad_type", "%s must be a list of strings", name);
	return 0;
}

static int change_features(struct hb_policy *p, const struct hb_bounds *b, void *arg, struct hb_error *err)
{
	unsigned features = p->features & ~PAGE_FEATURES;
	json_t *item;
	size_t i;

	(void)b;
	json_array_foreach((json_t *)arg, i, item) {
		unsigned bit = hb_feature_bit(json_string_value(item));
		if (!(bit & PAGE_FEATURES))
			return hb_fail(err, "unknown_feature", "features here are sandbox (or local), docker and ssh");
		features |= bit;
	}
	p->features = features;
	return 0;
}

static bool user_well_formed(const char *user)
{
	size_t n = strlen(user);

	return n >= 1 && n <= 20 && strspn(user, "0123456789") == n && (user[0] != '0' || n == 1);
}

static int change_users(struct hb_policy *p, const struct hb_bounds *b, void *arg, struct hb_error *err)
{
	json_t *item;
	size_t i;

	p->user_count = 0;
	json_array_foreach((json_t *)arg, i, item) {
		const char *user = json_string_value(item);
		if (!user_well_formed(user))
			return hb_fail(err, "bad_user", "a user id is 1 to 20 decimal digits");
		if (!hb_bounds_user(b, user))
			return hb_fail(err, "out_of_bounds", "user %s is not in [users] allowed of bounds.conf: add it there as "
				       "root first", user);
		if (hb_policy_user(p, user))
			return hb_fail(err, "duplicate_user", "user %s is listed twice", user);
		if (p->user_count == HB_POLICY_USERS_MAX)
			return hb_fail(err, "out_of_range", "at most %d users", HB_POLICY_USERS_MAX);
		snprintf(p->users[p->user_count++], sizeof p->users[0], "%s", user);
	}
	return 0;
}

static int change_runtime(struct hb_policy *p, const struct hb_bounds *b, void *arg, struct hb_error *err)
{
	(void)b;
	(void)err;
	if (json_is_true((json_t *)arg))
		p->features |= HB_FEATURE_RUNTIME;
	else
		p->features &= ~HB_FEATURE_RUNTIME;
	return 0;
}

static json_t *live_now(void)
{
	struct hb_policy_view view = {0};
	json_t *live;

	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, NULL) < 0)
		return NULL;
	live = hb_policy_to_json(&view.live);
	hb_policy_view_free(&view);
	return live;
}

json_t *admin_changed(struct admin *a, const struct hb_policy *after)
{
	admin_history_policy(a->history, after, "admin");
	admin_events_send(a->events, "policy",
			  json_pack("{s:I}", "policy_generation", (json_int_t)after->generation));
	hb_policy_changed(&a->stamp); /* told already */
	return json_pack("{s:s,s:I}", "status", "ok", "policy_generation", (json_int_t)after->generation);
}

/* True when the change widens the policy and such changes want a grant: it has been asked for. */
static bool waits(struct admin *a, struct hb_request *req, hb_policy_change change, void *asked)
{
	struct hb_policy_view view = {0};
	struct hb_policy wanted;
	bool asks;

	if (!hb_config_bool(a->process->config, "admin.widening_needs_grant") ||
	    hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, NULL) < 0)
		return false; /* what can't be loaded is refused by the change itself */
	wanted = view.live;
	asks = change(&wanted, view.bounds, asked, NULL) == 0 && admin_widens(&view.live, &wanted);
	if (asks)
		admin_widen_ask(a, req, &view.live, &wanted);
	hb_policy_view_free(&view);
	return asks;
}

/* Intent first (no record, no change), then the change, then what came of it. `asked` is what the record shows as new. */
static void edit(struct admin *a, struct hb_request *req, const char *action, const char *member,
		 hb_policy_change change, json_t *asked)
{
	struct hb_policy after;
	struct hb_error err = {0};
	json_t *before = live_now();
	json_t *detail = json_pack("{s:O?,s:O}", "old", json_object_get(before, member), "new", asked);
	json_t *live, *answer;
	int rc;

	json_decref(before);
	if (hb_audit_append(a->process->audit, action, "intent", detail, &err) < 0) {
		json_decref(detail);
		hb_reply_error(req, 503, &err);
		return;
	}
	if (waits(a, req, change, asked)) {
		json_decref(detail);
		return;
	}
	rc = hb_policy_update(hb_peer_uid(HB_PEER_ADMIN), false, change, asked, &after, &err);
	if (rc < 0) {
		json_object_set_new(detail, "error", json_string(err.message));
		hb_audit_append(a->process->audit, action, "refused", detail, NULL);
		json_decref(detail);
		hb_reply_error(req, 422, &err);
		return;
	}
	json_object_set_new(detail, "generation", json_integer(after.generation));
	hb_audit_append(a->process->audit, action, "ok", detail, NULL);
	json_decref(detail);
	live = hb_policy_to_json(&after);
	answer = admin_changed(a, &after);
	json_object_set(answer, member, json_object_get(live, member));
	json_decref(live);
	hb_reply_json(req, 200, answer);
}

void admin_put_features(struct hb_request *req, void *ctx)
{
	struct hb_error err = {0};
	json_t *list;

	if (read_list(req, "features", 8, &list, &err) < 0)
		hb_reply_error(req, 422, &err);
	else
		edit(ctx, req, "features", "features", change_features, list);
}

void admin_put_users(struct hb_request *req, void *ctx)
{
	struct hb_error err = {0};
	json_t *list;

	if (read_list(req, "users", HB_POLICY_USERS_MAX, &list, &err) < 0)
		hb_reply_error(req, 422, &err);
	else
		edit(ctx, req, "users", "users", change_users, list);
}

void admin_put_runtime(struct hb_request *req, void *ctx)
{
	struct {
		bool enabled;
	} in = {0};
	static const struct hb_field fields[] = {{"enabled", HB_FIELD_BOOL, HB_FIELD_REQUIRED, 0, 0, 0}};
	struct hb_error err = {0};

	if (hb_fields_decode(hb_request_json(req), fields, 1, &in, &err) < 0)
		hb_reply_error(req, 422, &err);
	else
		edit(ctx, req, "runtime", "features", change_runtime, in.enabled ? json_true() : json_false());
}
