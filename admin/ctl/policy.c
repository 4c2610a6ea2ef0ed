/* hermesctl policy ...: live policy within the bounds. Every change raises the generation, which kills older grants. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/buf.h"
#include "common/json.h"
#include "policy/live.h"

static json_t *bounds_json(const struct hb_bounds *b)
{
	const char *const *users;
	size_t n = hb_bounds_users(b, &users);
	json_t *allowed = json_array(), *quorum = json_object();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(allowed, json_string(users[i]));
	for (unsigned bit = 1; bit <= HB_FEATURE_SSH; bit <<= 1)
		json_object_set_new(quorum, hb_feature_name(bit), json_integer(hb_bounds_quorum(b, hb_feature_name(bit))));
	return json_pack("{s:o,s:o}", "allowed_users", allowed, "quorum_minimum", quorum);
}

int ctl_cmd_policy_show(struct ctl *c, int argc, char **argv)
{
	struct hb_policy_view view = {0};
	struct hb_error err = {0};
	json_t *out;
	char *text;

	if (ctl_parse(c, "policy show", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, &err) < 0)
		return ctl_error(c, &err);
	out = json_pack("{s:o,s:o}", "live", hb_policy_to_json(&view.live), "bounds", bounds_json(view.bounds));
	hb_policy_view_free(&view);
	if (!c->json) {
		text = json_dumps(out, JSON_INDENT(2));
		puts(text);
		free(text);
	}
	return ctl_result(c, out, CTL_OK);
}

struct change {
	const char *features, *pause, *resume, *no_self;
	const char **add, **remove, **quorum;
};

static int take_features(const char *list, unsigned *out, struct hb_error *err)
{
	char *copy = hb_strdup(list), *save = NULL;
	unsigned features = 0;
	int rc = 0;

	for (char *f = strtok_r(copy, ", ", &save); f; f = strtok_r(NULL, ", ", &save)) {
		unsigned bit = hb_feature_bit(f) & ~HB_FEATURE_POLICY;
		if (!bit && strcmp(f, "none") != 0)
			rc = hb_fail(err, "usage", "no feature \"%s\": runtime, local, docker, ssh or none", f);
		features |= bit;
	}
	free(copy);
	if (rc == 0)
		*out = features;
	return rc;
}

static int add_user(struct hb_policy *p, const char *user, struct hb_error *err)
{
	if (hb_policy_user(p, user))
		return 0;
	if (!*user || strlen(user) > 20 || user[strspn(user, "0123456789")])
		return hb_fail(err, "usage", "a user id is 1 to 20 digits, not \"%.32s\"", user);
	if (p->user_count == HB_POLICY_USERS_MAX)
		return hb_fail(err, "out_of_range", "at most %d users", HB_POLICY_USERS_MAX);
	snprintf(p->users[p->user_count++], sizeof p->users[0], "%s", user);
	return 0;
}

static void remove_user(struct hb_policy *p, const char *user)
{
	for (size_t i = 0; i < p->user_count; i++)
		if (strcmp(p->users[i], user) == 0) {
			memmove(p->users[i], p->users[i + 1], (p->user_count - i - 1) * sizeof p->users[0]);
			p->user_count--;
			return;
		}
}

static int set_quorum(struct hb_policy *p, const char *text, struct hb_error *err)
{
	char name[16] = "";
	int n = 0, used = 0;
	unsigned bit;

	if (sscanf(text, "%15[a-z]=%d%n", name, &n, &used) != 2 || text[used] || !(bit = hb_feature_bit(name) & ~HB_FEATURE_POLICY) || n < 1)
		return hb_fail(err, "usage", "--quorum wants FEATURE=N, not \"%.32s\"", text);
	p->quorum[__builtin_ctz(bit)] = n;
	return 0;
}

static int apply(struct hb_policy *p, const struct hb_bounds *b, void *arg, struct hb_error *err)
{
	const struct change *ch = arg;

	(void)b; /* hb_policy_update refuses what lies outside them */
	if ((ch->features && take_features(ch->features, &p->features, err) < 0) ||
	    (ch->no_self && take_features(ch->no_self, &p->no_self, err) < 0))
		return -1;
	for (size_t i = 0; ch->add && ch->add[i]; i++)
		if (add_user(p, ch->add[i], err) < 0)
			return -1;
	for (size_t i = 0; ch->remove && ch->remove[i]; i++)
		remove_user(p, ch->remove[i]);
	for (size_t i = 0; ch->quorum && ch->quorum[i]; i++)
		if (set_quorum(p, ch->quorum[i], err) < 0)
			return -1;
	if (ch->pause || ch->resume)
		p->paused = ch->pause != NULL;
	return 0;
}

int ctl_cmd_policy_set(struct ctl *c, int argc, char **argv)
{
	struct change ch = {0};
	const struct ctl_option options[] = {
		{"features", "LIST", "exactly these: runtime,local,docker,ssh or none", &ch.features, NULL},
		{"add-user", "ID", "a further approver (within the bounds; repeatable)", NULL, &ch.add},
		{"remove-user", "ID", "no longer an approver (repeatable)", NULL, &ch.remove},
		{"quorum", "FEATURE=N", "approvers needed (repeatable)", NULL, &ch.quorum},
		{"no-self-approval", "LIST", "features where whoever asked can't approve, or none", &ch.no_self, NULL},
		{"pause", NULL, "refuse everything until resumed", &ch.pause, NULL},
		{"resume", NULL, "end a pause", &ch.resume, NULL},
	};
	struct hb_policy after;
	struct hb_error err = {0};
	int rc;

	if (ctl_parse(c, "policy set", options, sizeof options / sizeof options[0], argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	if (geteuid() != 0 && geteuid() != hb_peer_uid(HB_PEER_ADMIN)) {
		hb_fail(&err, "not_root", "live policy is changed by root or through admin: run it with sudo");
		return ctl_error(c, &err);
	}
	rc = hb_policy_update(hb_peer_uid(HB_PEER_ADMIN), false, apply, &ch, &after, &err);
	if (rc < 0)
		return ctl_error(c, &err);
	if (!c->json)
		printf(rc ? "Policy changed: generation %lld. Older grants and pending approvals are void.\n"
			  : "Nothing changed: generation %lld.\n", (long long)after.generation);
	return ctl_result(c, json_pack("{s:s,s:b,s:o}", "status", "ok", "changed", rc, "live", hb_policy_to_json(&after)),
			  CTL_OK);
}
