/*
 * Feature "ssh": one command on a host that has a profile. The profile is named by the client and
 * sealed by the executor: address, user, pinned host key and the identity of the credential, so
 * that a changed profile is a different operation. The credential itself never appears.
 *
 * `command` is text for the remote shell; `argv` is an exact argument vector. Exactly one of them.
 */
#include <string.h>

#include "common/digest.h"
#include "common/json.h"
#include "common/utf8.h"
#include "policy/schema.h"
#include "policy/ssh_profile.h"
#include "policy/text.h"

#define COMMAND_MAX 4000
#define ARGV_MAX 64

static const struct hb_rule command_rules[] = {
	{"profile", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 64, .check = hb_ssh_profile_name,
	 .must = "the name of a profile: lower-case letters, digits, '_' and '-', at most 64"},
	{"command", HB_RULE_TEXT, HB_RULE_OPTIONAL, .min = 1, .max = COMMAND_MAX},
	{"argv", HB_RULE_LIST, HB_RULE_OPTIONAL | HB_RULE_EMPTY_ITEM, .min = 1, .max = ARGV_MAX,
	 .item_max = COMMAND_MAX},
	HB_RULE_TIMEOUT(HB_TIMEOUT_MAX, HB_TIMEOUT),
};

#define HEX64(field, extra) \
	{ \
		field, HB_RULE_TEXT, (extra), .min = 1, .max = 64, .check = hb_is_hex64, \
					      .must = "64 hex digits" \
	}
#define FINGERPRINT(field, extra) \
	{ \
		field, HB_RULE_TEXT, (extra), .min = 1, .max = 64, .check = hb_is_fingerprint, \
					      .must = "SHA256: and 43 base64 characters" \
	}

static const struct hb_rule profile_rules[] = {
	{"host", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 253, .check = hb_host_name,
	 .must = "a host name or numeric address"},
	{"port", HB_RULE_INT, HB_RULE_REQUIRED, .min = 1, .max = 65535},
	{"user", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 64, .check = hb_ssh_user_name,
	 .must = "a login name: letters, digits and _.-, not beginning with '-'"},
	{"authority", HB_RULE_WORD, HB_RULE_REQUIRED, .words = "user root sudo-nopasswd"},
	FINGERPRINT("fingerprint", HB_RULE_REQUIRED),
	{"auth", HB_RULE_WORD, HB_RULE_REQUIRED, .words = "publickey password"},
	HEX64("credential_revision", HB_RULE_REQUIRED),
	HEX64("known_hosts_sha256", HB_RULE_REQUIRED),
	FINGERPRINT("identity_fingerprint", HB_RULE_OPTIONAL),
	HEX64("identity_sha256", HB_RULE_OPTIONAL),
	HEX64("credential_tag", HB_RULE_OPTIONAL),
	FINGERPRINT("ca_fingerprint", HB_RULE_OPTIONAL),
};

static const struct hb_rule command_sealed[] = {
	{"sealed_profile", HB_RULE_OBJECT, HB_RULE_REQUIRED, .fields = profile_rules,
	 .field_count = HB_COUNT(profile_rules)},
};

static const struct hb_schema_action actions[] = {
	{"command", command_rules, HB_COUNT(command_rules), command_sealed,
	 HB_COUNT(command_sealed)},
};

static int check(const json_t *request, struct hb_error *err)
{
	const json_t *argv = json_object_get(request, "argv"), *item;
	size_t i, total = 0;

	if ((argv != NULL) == (json_object_get(request, "command") != NULL))
		return hb_fail(err, "command_or_argv", "give exactly one of 'command' and 'argv'");
	if (!argv)
		return 0;
	if (json_string_length(json_array_get(argv, 0)) == 0)
		return hb_fail(err, "bad_argv", "argv[0] is empty; it must name a program");
	json_array_foreach(argv, i, item)
		total += hb_utf8_count(json_string_value(item), json_string_length(item));
	if (total > COMMAND_MAX)
		return hb_fail(err, "out_of_range",
			       "the words of 'argv' are longer than %d together", COMMAND_MAX);
	return 0;
}

static int check_sealed(const json_t *request, struct hb_error *err)
{
	const json_t *profile = json_object_get(request, "sealed_profile");
	bool key = strcmp(hb_json_text(profile, "auth", ""), "publickey") == 0;
	bool fingerprint = json_object_get(profile, "identity_fingerprint") != NULL;
	bool sha256 = json_object_get(profile, "identity_sha256") != NULL;
	bool tag = json_object_get(profile, "credential_tag") != NULL;
	bool ca = json_object_get(profile, "ca_fingerprint") != NULL;

	if (fingerprint != key || sha256 != key || tag == key || (ca && !key))
		return hb_fail(
			err, "not_sealed",
			"sealed_profile must identify its credential: identity_fingerprint and "
			"identity_sha256 for a key, credential_tag for a password");
	return 0;
}

const struct hb_schema hb_schema_ssh = {
	.feature = "ssh",
	.verb = "command",
	.actions = actions,
	.action_count = HB_COUNT(actions),
	.check = check,
	.check_sealed = check_sealed,
};
