/*
 * Feature "docker": an enumerated set of actions, each with its own fixed fields. Nothing of the
 * engine's API is passed through: a field that isn't in these tables can't be asked for, in any
 * spelling.
 *
 * Defaults lie on the safe side: no network, read-only root, every capability dropped, no new
 * privileges, ports on loopback. A field that reaches the host is further limited by bounds.conf
 * (see bounds_check.c).
 */
#include <string.h>

#include "common/digest.h"
#include "common/json.h"
#include "policy/image_ref.h"
#include "policy/schema.h"
#include "policy/text.h"

#define LIST_MAX 32
#define ITEM_MAX 512

static bool is_container(const char *text)
{
	/* An id (12 to 64 hex digits) has the form of a name too. */
	return hb_word(text, HB_SET_ALNUM, HB_SET_ALNUM "._-", 128);
}

static bool is_path(const char *text)
{
	return hb_path_normal(text);
}

static bool is_env_name(const char *text)
{
	return hb_word(text, HB_SET_LOWER HB_SET_UPPER "_", HB_SET_ALNUM "_", 128);
}

static bool is_user(const char *text)
{
	const char *colon = strchr(text, ':');
	char user[65];

	if (!colon)
		return hb_word(text, HB_SET_ALNUM "_", HB_SET_ALNUM "._-", 64);
	if ((size_t)(colon - text) >= sizeof(user))
		return false;
	memcpy(user, text, (size_t)(colon - text));
	user[colon - text] = '\0';
	return hb_word(user, HB_SET_ALNUM "_", HB_SET_ALNUM "._-", 64) &&
	       hb_word(colon + 1, HB_SET_ALNUM "_", HB_SET_ALNUM "._-", 64);
}

static bool is_capability(const char *text)
{
	return hb_word(text, HB_SET_UPPER, HB_SET_UPPER "_", 64);
}

/* name=value with a plain name */
static bool is_pair(const char *text)
{
	size_t name = strcspn(text, "=");

	return name > 0 && text[name] == '=' && strspn(text, HB_SET_ALNUM "._/-") == name;
}

/* /dev/x, /dev/x:/dev/y or /dev/x:/dev/y:rwm */
static bool is_device(const char *text)
{
	char copy[ITEM_MAX * 4 + 1], *inside, *rights;

	if (strlen(text) >= sizeof(copy))
		return false;
	strcpy(copy, text);
	inside = strchr(copy, ':');
	if (inside)
		*inside++ = '\0';
	rights = inside ? strchr(inside, ':') : NULL;
	if (rights)
		*rights++ = '\0';
	if (!hb_path_normal(copy) || !hb_path_within(copy, "/dev") ||
	    (inside && !hb_path_normal(inside)))
		return false;
	return !rights || (strlen(rights) <= 3 && strspn(rights, "rwm") == strlen(rights) &&
			   rights[0] != '\0');
}

#define CONTAINER \
	{ \
		"container", HB_RULE_TEXT, HB_RULE_REQUIRED, \
			.min = 1, .max = 128, .check = is_container, \
			.must = "a container id (12 to 64 hex digits) or name " \
				"([A-Za-z0-9][A-Za-z0-9._-]*, at most 128)" \
	}
#define ACTION(words_) \
	{ \
		"action", HB_RULE_WORD, HB_RULE_REQUIRED, .words = (words_) \
	}
#define TEXTS(name_, check_, must_) \
	{ \
		name_, HB_RULE_LIST, .max = LIST_MAX, .item_max = ITEM_MAX, .check = (check_), \
				     .must = (must_) \
	}

static const struct hb_rule list_rules[] = {
	ACTION("list"),
	{"all", HB_RULE_BOOL, .number = 0},
	HB_RULE_TIMEOUT(HB_TIMEOUT_MAX, HB_TIMEOUT),
};

static const struct hb_rule pull_rules[] = {
	ACTION("pull"),
	{"image", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 512},
	HB_RULE_TIMEOUT(HB_TIMEOUT_MAX, HB_TIMEOUT),
};

static const struct hb_rule container_rules[] = {
	ACTION("start stop restart inspect"),
	CONTAINER,
	HB_RULE_TIMEOUT(HB_TIMEOUT_MAX, HB_TIMEOUT),
};

static const struct hb_rule remove_rules[] = {
	ACTION("remove"),
	CONTAINER,
	{"force", HB_RULE_BOOL, .number = 0},
	{"remove_volumes", HB_RULE_BOOL, .number = 0},
	HB_RULE_TIMEOUT(HB_TIMEOUT_MAX, HB_TIMEOUT),
};

static const struct hb_rule logs_rules[] = {
	ACTION("logs"),
	CONTAINER,
	{"tail", HB_RULE_INT, .min = 1, .max = 2000, .number = 200},
	HB_RULE_TIMEOUT(HB_TIMEOUT_MAX, HB_TIMEOUT),
};

static const struct hb_rule environment_rules[] = {
	{"name", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 128, .check = is_env_name,
	 .must = "a variable name: letters, digits and '_'"},
	{"value", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = ITEM_MAX},
};

static const struct hb_rule mount_rules[] = {
	{"type", HB_RULE_WORD, HB_RULE_REQUIRED, .words = "bind volume tmpfs"},
	{"source", HB_RULE_TEXT, HB_RULE_OPTIONAL, .min = 1, .max = ITEM_MAX},
	{"target", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = ITEM_MAX, .check = is_path,
	 .must = "an absolute path without '.', '..' or '//'"},
	/* filled in below: the default depends on the type */
	{"read_only", HB_RULE_BOOL, HB_RULE_OPTIONAL, .number = 1},
};

static const struct hb_rule port_rules[] = {
	{"host_ip", HB_RULE_TEXT, .min = 1, .max = 45, .text = "127.0.0.1", .check = hb_is_address,
	 .must = "a numeric address"},
	{"host_port", HB_RULE_INT, HB_RULE_REQUIRED, .min = 1, .max = 65535},
	{"container_port", HB_RULE_INT, HB_RULE_REQUIRED, .min = 1, .max = 65535},
	{"protocol", HB_RULE_WORD, .words = "tcp udp", .text = "tcp"},
};

#define HOST_MODE(name_) \
	{ \
		name_, HB_RULE_WORD, .words = "default host", .text = "default" \
	}

static const struct hb_rule run_rules[] = {
	ACTION("run"),
	{"image", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 512},
	{"name", HB_RULE_TEXT, HB_RULE_OPTIONAL, .min = 1, .max = 128, .check = is_container,
	 .must = "[A-Za-z0-9][A-Za-z0-9._-]*, at most 128"},
	TEXTS("entrypoint", NULL, NULL),
	TEXTS("command", NULL, NULL),
	{"user", HB_RULE_TEXT, HB_RULE_OPTIONAL, .min = 1, .max = 129, .check = is_user,
	 .must = "user or user:group, names or numbers"},
	{"workdir", HB_RULE_TEXT, HB_RULE_OPTIONAL, .min = 1, .max = ITEM_MAX, .check = is_path,
	 .must = "an absolute path without '.', '..' or '//'"},
	{"environment", HB_RULE_OBJECTS, .max = LIST_MAX, .fields = environment_rules,
	 .field_count = HB_COUNT(environment_rules)},
	{"mounts", HB_RULE_OBJECTS, .max = LIST_MAX, .fields = mount_rules,
	 .field_count = HB_COUNT(mount_rules)},
	{"ports", HB_RULE_OBJECTS, .max = LIST_MAX, .fields = port_rules,
	 .field_count = HB_COUNT(port_rules)},
	{"network", HB_RULE_TEXT, .min = 1, .max = 128, .text = "none", .check = is_container,
	 .must = "none or the name of a network"},
	TEXTS("dns", hb_is_address, "a numeric address"),
	TEXTS("labels", is_pair, "name=value"),
	TEXTS("capabilities_add", is_capability, "a capability such as NET_BIND_SERVICE"),
	{"capabilities_drop", HB_RULE_LIST, .max = LIST_MAX, .item_max = ITEM_MAX, .text = "ALL",
	 .check = is_capability, .must = "a capability such as NET_RAW, or ALL"},
	TEXTS("devices", is_device, "/dev/NAME, /dev/NAME:/dev/NAME or with :rwm behind it"),
	{"security_opt", HB_RULE_LIST, .max = LIST_MAX, .item_max = ITEM_MAX,
	 .text = "no-new-privileges"},
	TEXTS("sysctls", is_pair, "name=value"),
	{"privileged", HB_RULE_BOOL, .number = 0},
	HOST_MODE("pid_mode"),
	HOST_MODE("ipc_mode"),
	HOST_MODE("uts_mode"),
	HOST_MODE("userns_mode"),
	{"read_only_rootfs", HB_RULE_BOOL, .number = 1},
	{"detach", HB_RULE_BOOL, .number = 0},
	{"auto_remove", HB_RULE_BOOL, .number = 0},
	{"memory_mb", HB_RULE_INT, .min = 16, .max = 32768, .number = 512},
	{"cpus", HB_RULE_INT, .min = 1, .max = 32, .number = 1},
	{"pids_limit", HB_RULE_INT, .min = 16, .max = 8192, .number = 256},
	HB_RULE_TIMEOUT(HB_TIMEOUT_MAX, HB_TIMEOUT),
	{"restart_policy", HB_RULE_WORD, .words = "no on-failure unless-stopped always",
	 .text = "no"},
};

static const struct hb_rule container_sealed[] = {
	{"resolved_name", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 128,
	 .check = is_container, .must = "the container's name"},
};

static const struct hb_rule run_sealed[] = {
	{"resolved_image_id", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 71,
	 .check = hb_is_digest, .must = "sha256: and 64 hex digits"},
	{"resolved_network_id", HB_RULE_TEXT, HB_RULE_REQUIRED, .min = 1, .max = 64,
	 .check = hb_is_hex64, .must = "64 hex digits"},
};

#define ROW(name_, rules_, sealed_) \
	{ \
		name_, rules_, HB_COUNT(rules_), sealed_, HB_COUNT(sealed_) \
	}

static const struct hb_schema_action actions[] = {
	{"list", list_rules, HB_COUNT(list_rules), NULL, 0},
	{"pull", pull_rules, HB_COUNT(pull_rules), NULL, 0},
	ROW("run", run_rules, run_sealed),
	ROW("start", container_rules, container_sealed),
	ROW("stop", container_rules, container_sealed),
	ROW("restart", container_rules, container_sealed),
	ROW("inspect", container_rules, container_sealed),
	ROW("remove", remove_rules, container_sealed),
	ROW("logs", logs_rules, container_sealed),
};

static int check_image(const json_t *request, bool local_id, struct hb_error *err)
{
	const char *image = hb_json_text(request, "image", "");
	struct hb_image_ref ref;

	if (local_id && hb_is_digest(image))
		return 0;
	if (hb_image_ref_parse(image, false, &ref, err) < 0)
		return -1;
	if (ref.layout || ref.tag[0] != '\0')
		return hb_fail(err, "image_malformed",
			       "field 'image' must be repository@sha256:<64 hex digits>%s",
			       local_id ? " or the sha256:<64 hex digits> of an image that is here"
					: "");
	return 0;
}

/* What `read_only` means when it isn't given: a tmpfs is for writing, all else is safe only when
 * read. */
static void fill(json_t *request)
{
	json_t *mount;
	size_t i;

	json_array_foreach(json_object_get(request, "mounts"), i, mount)
	{
		if (!json_object_get(mount, "read_only"))
			json_object_set_new(mount, "read_only",
					    json_boolean(strcmp(hb_json_text(mount, "type", ""),
								"tmpfs") != 0));
	}
}

static int check_mount(const json_t *mount, size_t i, struct hb_error *err)
{
	const char *type = hb_json_text(mount, "type", "");
	const char *source = hb_json_text(mount, "source", NULL);

	if (strcmp(type, "tmpfs") == 0) {
		if (source || hb_json_bool(mount, "read_only", false))
			return hb_fail(err, "bad_mount",
				       "mounts[%zu]: a tmpfs has no source and is not read_only",
				       i);
	} else if (!source) {
		return hb_fail(err, "missing_field", "field 'mounts[%zu].source' is missing", i);
	} else if (strcmp(type, "bind") == 0 && !hb_path_normal(source)) {
		return hb_fail(err, "bad_mount",
			       "mounts[%zu]: the source of a bind must be an absolute path without "
			       "'.', '..' or '//'",
			       i);
	} else if (strcmp(type, "volume") == 0 && !is_container(source)) {
		return hb_fail(err, "bad_mount",
			       "mounts[%zu]: the source of a volume must be its name", i);
	}
	if (strcmp(hb_json_text(mount, "target", ""), "/") == 0)
		return hb_fail(err, "bad_mount", "mounts[%zu]: the target must not be /", i);
	return 0;
}

static int check_unique(const json_t *list, const char *key, const char *field,
			struct hb_error *err)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		for (size_t j = 0; j < i; j++) {
			if (json_equal(json_object_get(json_array_get(list, i), key),
				       json_object_get(json_array_get(list, j), key)))
				return hb_fail(err, "repeated_value",
					       "two items of '%s' have the same %s", field, key);
		}
	}
	return 0;
}

static int check_run(const json_t *request, struct hb_error *err)
{
	const json_t *mounts = json_object_get(request, "mounts"), *mount;
	size_t i;

	if (check_image(request, true, err) < 0)
		return -1;
	json_array_foreach(mounts, i, mount)
	{
		if (check_mount(mount, i, err) < 0)
			return -1;
	}
	if (check_unique(mounts, "target", "mounts", err) < 0 ||
	    check_unique(json_object_get(request, "environment"), "name", "environment", err) < 0)
		return -1;
	if (hb_json_bool(request, "auto_remove", false) &&
	    strcmp(hb_json_text(request, "restart_policy", ""), "no") != 0)
		return hb_fail(err, "conflicting_fields",
			       "auto_remove and restart_policy exclude each other");
	return 0;
}

static int check(const json_t *request, struct hb_error *err)
{
	const char *action = hb_json_text(request, "action", "");

	if (strcmp(action, "pull") == 0)
		return check_image(request, false, err);
	return strcmp(action, "run") == 0 ? check_run(request, err) : 0;
}

static int check_sealed(const json_t *request, struct hb_error *err)
{
	const char *container = hb_json_text(request, "container", NULL);
	const char *image = hb_json_text(request, "image", "");

	if (container && !hb_is_hex64(container))
		return hb_fail(err, "not_sealed",
			       "a sealed operation names its container by the full id");
	if (hb_is_digest(image) &&
	    strcmp(image, hb_json_text(request, "resolved_image_id", image)) != 0)
		return hb_fail(err, "sealed_mismatch",
			       "resolved_image_id is not the image that was asked for");
	return 0;
}

const struct hb_schema hb_schema_docker = {
	.feature = "docker",
	.actions = actions,
	.action_count = HB_COUNT(actions),
	.fill = fill,
	.check = check,
	.check_sealed = check_sealed,
};
