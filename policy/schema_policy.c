/*
 * Feature "policy": live policy widened, asked by admin when widening_needs_grant is on. Not a feature that can be turned
 * on or off, and no client's: the broker takes it from admin alone, and admin carries it out. What is in force is
 * sealed, so that a person sees what would be added and a policy that changed meanwhile ends the consent.
 */
#include <string.h>

#include "policy/live.h"
#include "policy/schema.h"
#include "policy/text.h"

static bool is_feature(const char *text)
{
	unsigned bit = strcmp(text, "sandbox") != 0 ? hb_feature_bit(text) : 0;

	return bit != 0 && bit != HB_FEATURE_POLICY;
}

#define FEATURE_LIST(field) \
	{ \
		field, HB_RULE_LIST, HB_RULE_REQUIRED, .min = 0, .max = 4, .item_max = 16, .check = is_feature, \
			.must = "runtime, local, docker or ssh" \
	}
#define USER_LIST(field) \
	{ \
		field, HB_RULE_LIST, HB_RULE_REQUIRED, .min = 0, .max = HB_POLICY_USERS_MAX, .item_max = 20, \
			.check = hb_is_user_id, .must = "1 to 20 decimal digits" \
	}

static const struct hb_rule widen_rules[] = {
	{"action", HB_RULE_WORD, HB_RULE_REQUIRED, .words = "widen"},
	FEATURE_LIST("features"),
	USER_LIST("users"),
};

static const struct hb_rule widen_sealed[] = {
	{"present_generation", HB_RULE_INT, HB_RULE_REQUIRED, .min = 1, .max = 9007199254740991LL},
	FEATURE_LIST("present_features"),
	USER_LIST("present_users"),
};

static const struct hb_schema_action actions[] = {
	{"widen", widen_rules, HB_COUNT(widen_rules), widen_sealed, HB_COUNT(widen_sealed)},
};

static int check_twice(const json_t *request, const char *field, struct hb_error *err)
{
	const json_t *list = json_object_get(request, field);

	for (size_t i = 0; i < json_array_size(list); i++)
		for (size_t j = 0; j < i; j++)
			if (json_equal(json_array_get(list, i), json_array_get(list, j)))
				return hb_fail(err, "bad_list", "field '%s' names one twice", field);
	return 0;
}

static int check(const json_t *request, struct hb_error *err)
{
	return check_twice(request, "features", err) < 0 ? -1 : check_twice(request, "users", err);
}

const struct hb_schema hb_schema_policy = {
	.feature = "policy",
	.actions = actions,
	.action_count = HB_COUNT(actions),
	.check = check,
};
