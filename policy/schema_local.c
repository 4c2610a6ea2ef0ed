/*
 * Feature "local": one shell command in the sandbox container, with the workspace as its only
 * writable place. The image and the state of the workspace are sealed, so that neither can change
 * between consent and use.
 */
#include <string.h>

#include "policy/schema.h"
#include "policy/text.h"

#define COMMAND_MAX 4000
#define WORKDIR_MAX 256

static bool is_workdir(const char *text)
{
	return hb_path_normal(text) && hb_path_within(text, "/workspace") &&
	       strspn(text, HB_SET_ALNUM "._/-") == strlen(text);
}

static bool is_generation(const char *text)
{
	return hb_word(text, HB_SET_ALNUM, HB_SET_ALNUM "._:-", 128);
}

static const struct hb_rule command_rules[] = {
	{"command", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = COMMAND_MAX},
	{"workdir", HB_RULE_TEXT, .min = 1, .max = WORKDIR_MAX, .text = "/workspace",
	 .check = is_workdir,
	 .must = "/workspace or a directory below it, without '.', '..' or '//', of letters, "
		 "digits and ._-"},
	HB_RULE_TIMEOUT(HB_TIMEOUT_MAX, HB_TIMEOUT),
	{"network", HB_RULE_WORD, .words = "none egress", .text = "none"},
	{"net_raw", HB_RULE_BOOL, .number = 0},
};

static const struct hb_rule command_sealed[] = {
	{"resolved_image_id", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 128,
	 .check = hb_is_digest, .must = "sha256: and 64 hex digits"},
	{"workspace_generation", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 128,
	 .check = is_generation, .must = "the identity that the executor gave to the workspace"},
};

static const struct hb_schema_action actions[] = {
	{"command", command_rules, HB_COUNT(command_rules), command_sealed,
	 HB_COUNT(command_sealed)},
};

const struct hb_schema hb_schema_local = {
	.feature = "local",
	.verb = "command",
	.actions = actions,
	.action_count = HB_COUNT(actions),
};
