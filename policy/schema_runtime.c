/*
 * Feature "runtime": the service that we install and keep. The client names a release by digest;
 * the installer seals what that digest really is (manifest, configuration, every layer), the
 * settings it will be run with and what it replaces. docs/PROTOCOL.md, "Runtime operation, sealed",
 * has the shape in words.
 */
#include <string.h>

#include "common/digest.h"
#include "common/json.h"
#include "policy/image_ref.h"
#include "policy/schema.h"
#include "policy/text.h"

#define TIMEOUT_MAX 3600
#define LAYERS_MAX 128
#define LIST_MAX 64
#define ITEM_MAX 512

static bool is_backup(const char *text)
{
	return hb_word(text, HB_SET_ALNUM, HB_SET_ALNUM "._-", 255);
}

static bool is_snapshot(const char *text)
{
	return hb_word(text, HB_SET_ALNUM, HB_SET_ALNUM "-", 64);
}

static bool is_env_name(const char *text)
{
	return !strchr(text, '=');
}

#define ACTION(words_) \
	{ \
		"action", HB_RULE_WORD, HB_RULE_REQUIRED, .words = (words_) \
	}
#define HEX64(field, extra) \
	{ \
		field, HB_RULE_TEXT, (extra), .min = 1, .max = 64, .check = hb_is_hex64, \
					      .must = "64 lower-case hex digits", \
					      .code = "bad_digest" \
	}

static const struct hb_rule install_rules[] = {
	ACTION("install upgrade stage"),
	{"image", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 512},
	{"platform", HB_RULE_WORD, .words = "linux/amd64 linux/arm64", .text_fn = hb_host_platform},
	{"platform_digest", HB_RULE_TEXT, HB_RULE_OPTIONAL, .min = 1, .max = 71,
	 .check = hb_is_digest, .must = "sha256: and 64 lower-case hex digits",
	 .code = "bad_digest"},
	HB_RULE_TIMEOUT(TIMEOUT_MAX, TIMEOUT_MAX),
};

static const struct hb_rule rollback_rules[] = {
	ACTION("rollback"),
	HEX64("release", HB_RULE_OPTIONAL),
	{"data", HB_RULE_WORD, .words = "keep restore", .text = "keep"},
	HB_RULE_TIMEOUT(TIMEOUT_MAX, TIMEOUT_MAX),
};

static const struct hb_rule service_rules[] = {
	ACTION("start stop restart prune"),
	HB_RULE_TIMEOUT(TIMEOUT_MAX, HB_TIMEOUT),
};

static const struct hb_rule data_rules[] = {
	ACTION("backup remove"),
	HB_RULE_TIMEOUT(TIMEOUT_MAX, TIMEOUT_MAX),
};

static const struct hb_rule restore_rules[] = {
	ACTION("restore"),
	{"backup", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 255, .check = is_backup,
	 .must = "a file name inside the backup directory: letters, digits and ._-"},
	HB_RULE_TIMEOUT(TIMEOUT_MAX, TIMEOUT_MAX),
};

/* --- what sealing fills in --- */


static const struct hb_rule layer_rules[] = {
	HEX64("digest", HB_RULE_REQUIRED),
	{"size", HB_RULE_INT, HB_RULE_REQUIRED, .min = 0, .max = HB_JSON_INT_MAX},
	{"media_type", HB_RULE_WORD, HB_RULE_REQUIRED,
	 .words = "application/vnd.oci.image.layer.v1.tar "
		  "application/vnd.oci.image.layer.v1.tar+gzip "
		  "application/vnd.oci.image.layer.v1.tar+zstd "
		  "application/vnd.docker.image.rootfs.diff.tar "
		  "application/vnd.docker.image.rootfs.diff.tar.gzip "
		  "application/vnd.docker.image.rootfs.diff.tar.zstd"},
	HEX64("diff_id", HB_RULE_REQUIRED),
};

#define TEXTS(name_, flags_) \
	{ \
		name_, HB_RULE_LIST, HB_RULE_REQUIRED | (flags_), .max = LIST_MAX, \
								  .item_max = ITEM_MAX \
	}

/* How an image will be run, as it is shown of a new release and of one on disk. */
#define WISHES \
	TEXTS("entrypoint", HB_RULE_EMPTY_ITEM), TEXTS("command", HB_RULE_EMPTY_ITEM), \
		{"working_dir", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 0, .max = ITEM_MAX}, \
		{"environment", HB_RULE_LIST, HB_RULE_REQUIRED, .max = 2 * LIST_MAX, \
		 .item_max = ITEM_MAX, .check = is_env_name, .must = "the name of a variable"}, \
		{"user", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 0, .max = 128}, \
		TEXTS("ports", 0), TEXTS("volumes", 0), \
	{ \
		"version", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 0, .max = 128 \
	}

static const struct hb_rule details_rules[] = {
	HEX64("config_digest", HB_RULE_REQUIRED),
	{"layers", HB_RULE_LIST, HB_RULE_REQUIRED, .max = LAYERS_MAX, .item_max = 64,
	 .check = hb_is_hex64, .must = "64 lower-case hex digits", .code = "bad_digest"},
	WISHES,
};

/* What is replaced: with its details where a new release is compared with it. */
static const struct hb_rule current_rules[] = {
	{"manifest_digest", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 0, .max = 64},
	{"image", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 0, .max = 512},
	{"details", HB_RULE_OBJECT, HB_RULE_OPTIONAL, .fields = details_rules,
	 .field_count = HB_COUNT(details_rules)},
};

static const struct hb_rule target_rules[] = {
	{"image", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 0, .max = 512},
	{"details", HB_RULE_OBJECT, HB_RULE_REQUIRED, .fields = details_rules,
	 .field_count = HB_COUNT(details_rules)},
};

/* A copy of the data that belongs to a release. */
static const struct hb_rule snapshot_rules[] = {
	{"id", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 64, .check = is_snapshot,
	 .must = "letters, digits and -"},
	{"taken_at", HB_RULE_INT, HB_RULE_REQUIRED, .min = 0, .max = HB_JSON_INT_MAX},
	{"files", HB_RULE_INT, HB_RULE_REQUIRED, .min = 0, .max = HB_JSON_INT_MAX},
	{"bytes", HB_RULE_INT, HB_RULE_REQUIRED, .min = 0, .max = HB_JSON_INT_MAX},
};

static const struct hb_rule resolved_rules[] = {
	HEX64("index_digest", HB_RULE_REQUIRED),
	HEX64("manifest_digest", HB_RULE_REQUIRED),
	HEX64("config_digest", HB_RULE_REQUIRED),
	{"layers", HB_RULE_OBJECTS, HB_RULE_REQUIRED, .min = 1, .max = LAYERS_MAX,
	 .fields = layer_rules, .field_count = HB_COUNT(layer_rules)},
	{"total_size", HB_RULE_INT, HB_RULE_REQUIRED, .min = 0, .max = HB_JSON_INT_MAX},
	WISHES,
};

#define SEALED_COMMON \
	HEX64("settings_sha256", HB_RULE_REQUIRED), \
	{ \
		"current", HB_RULE_OBJECT, HB_RULE_REQUIRED, \
			.fields = current_rules, .field_count = HB_COUNT(current_rules) \
	}

static const struct hb_rule sealed_plain[] = {SEALED_COMMON};
static const struct hb_rule sealed_install[] = {
	SEALED_COMMON,
	{"resolved", HB_RULE_OBJECT, HB_RULE_REQUIRED, .fields = resolved_rules,
	 .field_count = HB_COUNT(resolved_rules)},
};
/* The release gone back to, and the bytes restored: identities, not names. */
static const struct hb_rule sealed_rollback[] = {
	SEALED_COMMON,
	HEX64("release", HB_RULE_REQUIRED),
	{"target", HB_RULE_OBJECT, HB_RULE_REQUIRED, .fields = target_rules,
	 .field_count = HB_COUNT(target_rules)},
	{"snapshot", HB_RULE_OBJECT, HB_RULE_OPTIONAL, .fields = snapshot_rules,
	 .field_count = HB_COUNT(snapshot_rules)},
};
/* How the data is protected, as recorded on this host. */
static const struct hb_rule last_backup_rules[] = {
	{"name", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 255, .check = is_backup,
	 .must = "a file name inside the backup directory: letters, digits and ._-"},
	{"created_at", HB_RULE_INT, HB_RULE_REQUIRED, .min = 0, .max = HB_JSON_INT_MAX},
	{"last_verified", HB_RULE_INT, HB_RULE_REQUIRED, .min = 0, .max = HB_JSON_INT_MAX},
};
static const struct hb_rule last_drill_rules[] = {
	{"backup", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 255, .check = is_backup,
	 .must = "a file name inside the backup directory: letters, digits and ._-"},
	{"at", HB_RULE_INT, HB_RULE_REQUIRED, .min = 0, .max = HB_JSON_INT_MAX},
	{"ok", HB_RULE_BOOL, HB_RULE_REQUIRED, .min = 0},
	{"of_current", HB_RULE_BOOL, HB_RULE_REQUIRED, .min = 0},
};
static const struct hb_rule sealed_upgrade[] = {
	SEALED_COMMON,
	{"resolved", HB_RULE_OBJECT, HB_RULE_REQUIRED, .fields = resolved_rules,
	 .field_count = HB_COUNT(resolved_rules)},
	{"last_backup", HB_RULE_OBJECT, HB_RULE_OPTIONAL, .fields = last_backup_rules,
	 .field_count = HB_COUNT(last_backup_rules)},
	{"last_drill", HB_RULE_OBJECT, HB_RULE_OPTIONAL, .fields = last_drill_rules,
	 .field_count = HB_COUNT(last_drill_rules)},
};
/* Directories that restores have set aside: those removed, and the one kept for undo. */
static const struct hb_rule sealed_prune[] = {
	SEALED_COMMON,
	{"set_aside", HB_RULE_LIST, HB_RULE_REQUIRED, .max = LIST_MAX, .item_max = 4096},
	{"undo", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 0, .max = 4096},
};
/* What the backup said of itself when it was last verified here. */
static const struct hb_rule contents_rules[] = {
	{"created_at", HB_RULE_INT, HB_RULE_REQUIRED, .min = 0, .max = HB_JSON_INT_MAX},
	{"files", HB_RULE_INT, HB_RULE_REQUIRED, .min = 0, .max = HB_JSON_INT_MAX},
	{"bytes", HB_RULE_INT, HB_RULE_REQUIRED, .min = 0, .max = HB_JSON_INT_MAX},
	{"host_id", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 0, .max = 64},
	{"release", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 0, .max = 64},
	{"image", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 0, .max = 512},
};
static const struct hb_rule sealed_restore[] = {
	SEALED_COMMON,
	HEX64("backup_sha256", HB_RULE_REQUIRED),
	{"contents", HB_RULE_OBJECT, HB_RULE_REQUIRED, .fields = contents_rules,
	 .field_count = HB_COUNT(contents_rules)},
};

#define SEALED(rules_) \
	{ \
		{ \
			"sealed", HB_RULE_OBJECT, HB_RULE_REQUIRED, \
				.fields = (rules_), .field_count = HB_COUNT(rules_) \
		} \
	}

static const struct hb_rule plain_seal[] = SEALED(sealed_plain);
static const struct hb_rule install_seal[] = SEALED(sealed_install);
static const struct hb_rule upgrade_seal[] = SEALED(sealed_upgrade);
static const struct hb_rule prune_seal[] = SEALED(sealed_prune);
static const struct hb_rule rollback_seal[] = SEALED(sealed_rollback);
static const struct hb_rule restore_seal[] = SEALED(sealed_restore);

#define ROW(name_, rules_, seal_) \
	{ \
		name_, rules_, HB_COUNT(rules_), seal_, 1 \
	}

static const struct hb_schema_action actions[] = {
	ROW("install", install_rules, install_seal), ROW("upgrade", install_rules, upgrade_seal),
	ROW("stage", install_rules, install_seal),   ROW("rollback", rollback_rules, rollback_seal),
	ROW("start", service_rules, plain_seal),     ROW("stop", service_rules, plain_seal),
	ROW("restart", service_rules, plain_seal),   ROW("backup", data_rules, plain_seal),
	ROW("restore", restore_rules, restore_seal), ROW("remove", data_rules, plain_seal),
	ROW("prune", service_rules, prune_seal),
};

static int check(const json_t *request, struct hb_error *err)
{
	const char *image = hb_json_text(request, "image", NULL);
	struct hb_image_ref ref;

	return image ? hb_image_ref_parse(image, false, &ref, err) : 0;
}

static int mismatch(struct hb_error *err, const char *what)
{
	return hb_fail(err, "sealed_mismatch",
		       "%s; the installer's answer does not fit the request", what);
}

/* What was resolved must be what was asked for, as far as that can be told without the bytes. */
static int check_resolved(const json_t *request, const json_t *resolved, struct hb_error *err)
{
	const char *platform_digest = hb_json_text(request, "platform_digest", NULL);
	const char *manifest = hb_json_text(resolved, "manifest_digest", "");
	const json_t *layer;
	struct hb_image_ref ref;
	long long sum = 0;
	size_t i;

	if (hb_image_ref_parse(hb_json_text(request, "image", ""), false, &ref, err) < 0)
		return -1;
	if (strcmp(ref.digest, hb_json_text(resolved, "index_digest", "")) != 0)
		return mismatch(err, "index_digest is not the digest that the image is pinned to");
	if (platform_digest && strcmp(platform_digest + strlen("sha256:"), manifest) != 0)
		return mismatch(err, "manifest_digest is not the pinned platform_digest");
	json_array_foreach(json_object_get(resolved, "layers"), i, layer)
	{
		long long size = hb_json_int(layer, "size", 0);

		if (size > HB_JSON_INT_MAX - sum)
			return mismatch(err, "the layers' sizes are impossible");
		sum += size;
	}
	if (hb_json_int(resolved, "total_size", -1) < sum)
		return mismatch(err, "total_size is less than the layers together");
	return 0;
}

static int check_sealed(const json_t *request, struct hb_error *err)
{
	const json_t *sealed = json_object_get(request, "sealed");
	const json_t *current = json_object_get(sealed, "current");
	const json_t *resolved = json_object_get(sealed, "resolved");
	const char *manifest = hb_json_text(current, "manifest_digest", "");
	const char *release = hb_json_text(request, "release", NULL), *made_by;
	bool restore = strcmp(hb_json_text(request, "data", ""), "restore") == 0;

	if (manifest[0] != '\0' && !hb_is_hex64(manifest))
		return hb_fail(err, "bad_digest",
			       "sealed.current.manifest_digest must be 64 hex digits or empty");
	if (manifest[0] == '\0' && hb_json_text(current, "image", "")[0] != '\0')
		return mismatch(err, "sealed.current names an image without a release");
	if (manifest[0] == '\0' && json_object_get(current, "details"))
		return mismatch(err, "sealed.current has details without a release");
	if (restore != (json_object_get(sealed, "snapshot") != NULL))
		return mismatch(err, "sealed.snapshot is there exactly when data is restored");
	if (release && strcmp(release, hb_json_text(sealed, "release", "")) != 0)
		return mismatch(err, "sealed.release is not the release that was asked for");
	made_by = hb_json_text(json_object_get(sealed, "contents"), "release", "");
	if (made_by[0] != '\0' && !hb_is_hex64(made_by))
		return hb_fail(err, "bad_digest",
			       "sealed.contents.release must be 64 hex digits or empty");
	return resolved ? check_resolved(request, resolved, err) : 0;
}

const struct hb_schema hb_schema_runtime = {
	.feature = "runtime",
	.actions = actions,
	.action_count = HB_COUNT(actions),
	.check = check,
	.check_sealed = check_sealed,
};
