/*
 * hermesctl users ..., features ...: who may approve and what may be asked. Asked of admin over its socket, which records
 * and tells it; while admin is not running, root changes the policy file itself, under the same rules.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/buf.h"
#include "common/json.h"
#include "policy/live.h"

#define USER_DIGITS_MAX 20

struct wanted {
	json_t *features; /* list, or NULL */
	json_t *users;
	int runtime; /* -1: as it is */
};

static int need_root(struct hb_error *err)
{
	return geteuid() == 0 ? 0 : hb_fail(err, "not_root", "this is for root: run it with sudo");
}

/* The rules of admin, for when it isn't there. */
static int change(struct hb_policy *p, const struct hb_bounds *b, void *arg, struct hb_error *err)
{
	const struct wanted *w = arg;
	unsigned features = w->features ? p->features & HB_FEATURE_RUNTIME : p->features;
	json_t *item;
	size_t i;

	(void)b; /* hb_policy_update refuses what lies outside them */
	json_array_foreach(w->features, i, item)
		features |= hb_feature_bit(json_string_value(item));
	if (w->runtime >= 0)
		features = w->runtime ? features | HB_FEATURE_RUNTIME : features & ~HB_FEATURE_RUNTIME;
	p->features = features;
	if (!w->users)
		return 0;
	if (json_array_size(w->users) > HB_POLICY_USERS_MAX)
		return hb_fail(err, "out_of_range", "at most %d users", HB_POLICY_USERS_MAX);
	p->user_count = 0;
	json_array_foreach(w->users, i, item)
		snprintf(p->users[p->user_count++], sizeof p->users[0], "%.23s", json_string_value(item));
	return 0;
}

static json_t *put(struct ctl *c, const char *path, const char *member, json_t *value, struct hb_error *err)
{
	json_t *body = json_pack("{s:O}", member, value), *answer;

	answer = ctl_call(c, HB_PEER_ADMIN, "PUT", path, body, err);
	json_decref(body);
	return answer;
}

/* NULL with err; the code is "unreachable" when admin isn't running. */
static json_t *ask_admin(struct ctl *c, const struct wanted *w, struct hb_error *err)
{
	json_t *answer = NULL, *on;

	if (w->runtime >= 0) {
		on = json_boolean(w->runtime);
		answer = put(c, "/admin/runtime", "enabled", on, err);
		json_decref(on);
		if (!answer)
			return NULL;
	}
	if (w->features) {
		json_decref(answer);
		answer = put(c, "/admin/features", "features", w->features, err);
	}
	if (w->users) {
		json_decref(answer);
		answer = put(c, "/admin/users", "users", w->users, err);
	}
	return answer;
}

static json_t *apply(struct ctl *c, struct wanted *w, struct hb_error *err)
{
	json_t *answer = ask_admin(c, w, err);
	struct hb_policy after;

	if (answer || strcmp(err->code, "unreachable") != 0)
		return answer;
	if (need_root(err) < 0 || hb_policy_update(hb_peer_uid(HB_PEER_ADMIN), false, change, w, &after, err) < 0)
		return NULL;
	ctl_note(c, "admin is not running: the policy was changed directly.");
	answer = hb_policy_to_json(&after);
	json_object_set_new(answer, "policy_generation", json_integer(after.generation));
	json_object_set_new(answer, "status", json_string("ok"));
	return answer;
}

static int finish(struct ctl *c, json_t *answer, const struct hb_error *err)
{
	const char *state;

	if (!answer)
		return ctl_error(c, err);
	state = hb_json_text(answer, "status", "ok");
	if (!c->json && strcmp(state, "pending_approval") == 0)
		printf("This widens the policy: it waits for an approver's decision (operation %s).\n",
		       hb_json_text(answer, "operation_id", "?"));
	else if (!c->json)
		printf("Policy generation %lld. Older grants and pending approvals are void.\n",
		       hb_json_int(answer, "policy_generation", 0));
	return ctl_result(c, answer, CTL_OK);
}

static int load(struct hb_policy_view *view, struct ctl *c, struct hb_error *err)
{
	return ctl_open(c, err) < 0 ? -1 : hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), view, err);
}

/* ---- features ---- */

static const struct {
	const char *name;
	unsigned bits;
} feature_words[] = {{"sandbox", HB_FEATURE_LOCAL},   {"local", HB_FEATURE_LOCAL}, {"docker", HB_FEATURE_DOCKER},
		     {"ssh", HB_FEATURE_SSH},         {"runtime", HB_FEATURE_RUNTIME},
		     {"all", HB_FEATURE_LOCAL | HB_FEATURE_DOCKER | HB_FEATURE_SSH}};

static unsigned feature_bits(const char *word)
{
	for (size_t i = 0; i < sizeof feature_words / sizeof feature_words[0]; i++)
		if (strcmp(feature_words[i].name, word) == 0)
			return feature_words[i].bits;
	return 0;
}

static int features_command(struct ctl *c, const char *name, bool on, int argc, char **argv)
{
	struct hb_policy_view view = {0};
	struct wanted w = {.runtime = -1};
	struct hb_error err = {0};
	unsigned bits = 0, features;
	json_t *answer;

	if (ctl_parse(c, name, NULL, 0, argc, argv, 1, 4) < 0)
		return CTL_USAGE;
	for (int i = 0; argv[i]; i++) {
		unsigned more = feature_bits(argv[i]);
		if (!more) {
			hb_fail(&err, "usage", "features are sandbox, docker, ssh, runtime or all");
			return ctl_error(c, &err);
		}
		bits |= more;
	}
	if (load(&view, c, &err) < 0)
		return ctl_error(c, &err);
	features = on ? view.live.features | bits : view.live.features & ~bits;
	hb_policy_view_free(&view);
	if (bits & HB_FEATURE_RUNTIME)
		w.runtime = on;
	if (bits & ~HB_FEATURE_RUNTIME) {
		w.features = json_array();
		for (unsigned bit = HB_FEATURE_LOCAL; bit <= HB_FEATURE_SSH; bit <<= 1)
			if (features & bit)
				json_array_append_new(w.features, json_string(hb_feature_name(bit)));
	}
	answer = apply(c, &w, &err);
	json_decref(w.features);
	return finish(c, answer, &err);
}

int ctl_cmd_features_enable(struct ctl *c, int argc, char **argv)
{
	return features_command(c, "features enable", true, argc, argv);
}

int ctl_cmd_features_disable(struct ctl *c, int argc, char **argv)
{
	return features_command(c, "features disable", false, argc, argv);
}

/* ---- users ---- */

static bool well_formed(const char *user)
{
	size_t n = strlen(user);

	return n >= 1 && n <= USER_DIGITS_MAX && strspn(user, "0123456789") == n && (user[0] != '0' || n == 1);
}

static bool listed(const json_t *users, const char *user)
{
	json_t *item;
	size_t i;

	json_array_foreach(users, i, item)
		if (strcmp(json_string_value(item), user) == 0)
			return true;
	return false;
}

/* Root at the host may widen the bounds; a page can't. */
static int into_bounds(struct ctl *c, const struct hb_bounds *b, const char *user, struct hb_error *err)
{
	int changed = 0;

	if (hb_bounds_user(b, user))
		return 0;
	if (need_root(err) < 0 || ctl_bounds_add_user(user, &changed, err) < 0)
		return -1;
	ctl_note(c, "User %s was added to [users] allowed of bounds.conf.", user);
	return 0;
}

enum users_how { USERS_SET, USERS_ADD, USERS_REMOVE };

static int users_after(struct ctl *c, const struct hb_policy_view *view, enum users_how how, char **ids, json_t *users,
		       struct hb_error *err)
{
	json_t *named = json_array();
	int rc = 0;

	for (int i = 0; ids[i] && rc == 0; i++) {
		if (!well_formed(ids[i]))
			rc = hb_fail(err, "usage", "a user id is 1 to 20 digits: the number Telegram has for a person");
		else if (how == USERS_REMOVE && !hb_policy_user(&view->live, ids[i]))
			rc = hb_fail(err, "not_found", "user %s is not an approver", ids[i]);
		else if (how != USERS_REMOVE)
			rc = into_bounds(c, view->bounds, ids[i], err);
		if (rc == 0 && !listed(named, ids[i]))
			json_array_append_new(named, json_string(ids[i]));
	}
	for (size_t i = 0; how != USERS_SET && i < view->live.user_count; i++)
		if (!listed(named, view->live.users[i]))
			json_array_append_new(users, json_string(view->live.users[i]));
	if (how != USERS_REMOVE)
		json_array_extend(users, named);
	json_decref(named);
	return rc;
}

static int users_command(struct ctl *c, const char *name, enum users_how how, int argc, char **argv)
{
	struct hb_policy_view view = {0};
	struct wanted w = {.runtime = -1};
	struct hb_error err = {0};
	json_t *answer = NULL;

	if (ctl_parse(c, name, NULL, 0, argc, argv, how == USERS_SET ? 0 : 1, HB_POLICY_USERS_MAX) < 0)
		return CTL_USAGE;
	if (load(&view, c, &err) < 0)
		return ctl_error(c, &err);
	w.users = json_array();
	if (users_after(c, &view, how, argv, w.users, &err) == 0)
		answer = apply(c, &w, &err);
	json_decref(w.users);
	hb_policy_view_free(&view);
	return finish(c, answer, &err);
}

int ctl_cmd_users_set(struct ctl *c, int argc, char **argv)
{
	return users_command(c, "users set", USERS_SET, argc, argv);
}

int ctl_cmd_users_add(struct ctl *c, int argc, char **argv)
{
	return users_command(c, "users add", USERS_ADD, argc, argv);
}

int ctl_cmd_users_remove(struct ctl *c, int argc, char **argv)
{
	return users_command(c, "users remove", USERS_REMOVE, argc, argv);
}

int ctl_cmd_users_list(struct ctl *c, int argc, char **argv)
{
	struct hb_policy_view view = {0};
	struct hb_error err = {0};
	json_t *live;
	size_t n;
	const char *const *allowed;

	if (ctl_parse(c, "users list", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (load(&view, c, &err) < 0)
		return ctl_error(c, &err);
	n = hb_bounds_users(view.bounds, &allowed);
	for (size_t i = 0; !c->json && i < n; i++)
		printf("%-20s %s\n", allowed[i], hb_policy_user(&view.live, allowed[i]) ? "approver" : "allowed, not an approver");
	live = hb_policy_to_json(&view.live);
	hb_policy_view_free(&view);
	return ctl_result(c, live, CTL_OK);
}
