/* What of an image will really run (spec.h). */
#include "broker/installer/spec.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/json.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* The member as an array of texts; a missing or null one is an empty array. New reference. */
static json_t *texts(const json_t *config, const char *key, struct hb_error *err)
{
	json_t *list = json_object_get(config, key), *item;
	size_t i;

	if (!list || json_is_null(list))
		return json_array();
	if (!json_is_array(list)) {
		hb_fail(err, "bad_image", "the image's %s is not a list", key);
		return NULL;
	}
	json_array_foreach (list, i, item)
		if (!json_is_string(item)) {
			hb_fail(err, "bad_image", "the image's %s holds something that is no text",
				key);
			return NULL;
		}
	return json_deep_copy(list);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted array of texts from a list of borrowed ones; empties the list's order only. */
static json_t *sorted(const char **list, size_t n)
{
	json_t *out = json_array();

	qsort(list, n, sizeof *list, by_text);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(out, json_string(list[i]));
	return out;
}

static json_t *sorted_keys(const json_t *object)
{
	size_t n = 0, max = json_is_object(object) ? json_object_size(object) : 0;
	const char **list = hb_calloc(max + 1, sizeof *list), *key;
	json_t *out, *value;

	if (max)
		json_object_foreach ((json_t *)(uintptr_t)object, key, value)
			list[n++] = key;
	out = sorted(list, n);
	free(list);
	return out;
}

/* The environment: image's, then env.NAME overrides, PORT and PATH when nobody set them. An object
 * name -> value. */
static json_t *environment(const struct hb_config *config, const json_t *image_config,
			   struct hb_error *err)
{
	json_t *list = texts(image_config, "Env", err), *item, *out;
	const char **names, **values;
	char port[16];
	size_t i, n;

	if (!list)
		return NULL;
	out = json_object();
	json_array_foreach (list, i, item) {
		const char *text = json_string_value(item), *eq = strchr(text, '=');
		char *name;

		if (!eq || eq == text) {
			hb_fail(err, "bad_image",
				"the image's Env holds an entry that is not NAME=VALUE");
			json_decref(out);
			json_decref(list);
			return NULL;
		}
		name = strndup(text, (size_t)(eq - text));
		if (!name)
			abort();
		json_object_set_new(out, name, json_string(eq + 1));
		free(name);
	}
	json_decref(list);
	/* runtime.port is the one place that says where the payload listens. */
	snprintf(port, sizeof port, "%lld", hb_config_int(config, "runtime.port"));
	json_object_set_new(out, "PORT", json_string(port));
	if (!json_object_get(out, "PATH"))
		json_object_set_new(out, "PATH", json_string(DEFAULT_PATH));
	n = hb_config_env(config, &names, &values);
	for (i = 0; i < n; i++)
		json_object_set_new(out, names[i], json_string(values[i]));
	return out;
}

/* Entrypoint and command as they will run. */
static int command_line(const struct hb_config *config, const json_t *image_config,
			json_t **entrypoint, json_t **command, struct hb_error *err)
{
	const char *override = hb_config_text(config, "runtime.command");
	json_t *list, *item;
	size_t i;

	if (override[0] == '\0') {
		*entrypoint = texts(image_config, "Entrypoint", err);
		*command = *entrypoint ? texts(image_config, "Cmd", err) : NULL;
		if (*command)
			return 0;
		json_decref(*entrypoint);
		return -1;
	}
	list = hb_json_parse_foreign(override, strlen(override), NULL);
	if (!json_is_array(list) || json_array_size(list) == 0)
		goto bad;
	json_array_foreach (list, i, item)
		if (!json_is_string(item))
			goto bad;
	*entrypoint = json_array();
	*command = list;
	return 0;
bad:
	json_decref(list);
	return hb_fail(err, "bad_command",
		       "runtime.command must be a JSON list of texts, like [\"bun\",\"run\"]");
}

static const char *working_dir(const struct hb_config *config, const json_t *image_config)
{
	const char *dir = hb_config_text(config, "runtime.working_dir");

	if (dir[0] == '\0')
		dir = hb_json_text(image_config, "WorkingDir", "");
	return dir[0] ? dir : "/";
}

json_t *hb_spec_describe(const struct hb_config *config, const json_t *image, const char *tag,
			 struct hb_error *err)
{
	const json_t *c = json_object_get(image, "config"), *labels = json_object_get(c, "Labels");
	json_t *entrypoint, *command, *env, *out;

	if (command_line(config, c, &entrypoint, &command, err) < 0)
		return NULL;
	env = environment(config, c, err);
	if (!env) {
		json_decref(entrypoint);
		json_decref(command);
		return NULL;
	}
	out = json_object();
	json_object_set_new(out, "entrypoint", entrypoint);
	json_object_set_new(out, "command", command);
	json_object_set_new(out, "working_dir", json_string(working_dir(config, c)));
	json_object_set_new(out, "environment", sorted_keys(env));
	json_object_set_new(out, "user", json_string(hb_json_text(c, "User", "")));
	json_object_set_new(out, "ports", sorted_keys(json_object_get(c, "ExposedPorts")));
	json_object_set_new(out, "volumes", sorted_keys(json_object_get(c, "Volumes")));
	json_object_set_new(
		out, "version",
		json_string(hb_json_text(labels, "org.opencontainers.image.version", tag)));
	json_decref(env);
	return out;
}

static char **argv_of(const json_t *entrypoint, const json_t *command)
{
	size_t n = json_array_size(entrypoint), m = json_array_size(command);
	char **argv = hb_calloc(n + m + 1, sizeof *argv);

	for (size_t i = 0; i < n + m; i++)
		argv[i] = hb_strdup(json_string_value(i < n ? json_array_get(entrypoint, i)
							    : json_array_get(command, i - n)));
	return argv;
}

static char **env_of(const json_t *env)
{
	char **list = hb_calloc(json_object_size(env) + 1, sizeof *list);
	const char *name;
	json_t *value;
	size_t n = 0;

	json_object_foreach ((json_t *)(uintptr_t)env, name, value)
		list[n++] = hb_asprintf("%s=%s", name, json_string_value(value));
	return list;
}

/* Paths of hermes.conf may be relative to the state directory, our working directory; the payload's
 * runner is elsewhere. */
char *hb_spec_absolute(const char *path)
{
	char *here, *out;

	if (path[0] == '/')
		return hb_strdup(path);
	here = getcwd(NULL, 0);
	if (!here)
		abort();
	out = hb_asprintf("%s/%s", here, path);
	free(here);
	return out;
}

int hb_spec_build(const struct hb_config *config, const json_t *image, const char *storage,
		  const char *manifest, uid_t uid, struct hb_run_spec *out, struct hb_error *err)
{
	const json_t *c = json_object_get(image, "config");
	json_t *entrypoint = NULL, *command = NULL, *env = NULL;
	int rc = -1;

	if (command_line(config, c, &entrypoint, &command, err) < 0)
		return -1;
	if (json_array_size(entrypoint) + json_array_size(command) == 0) {
		hb_fail(err, "no_command",
			"the image names no program to run; set runtime.command");
		goto out;
	}
	env = environment(config, c, err);
	if (!env)
		goto out;
	*out = (struct hb_run_spec){
		.rootfs = hb_asprintf("%s/releases/%s/rootfs", storage, manifest),
		.manifest_digest = hb_strdup(manifest),
		.isolation = hb_strdup(hb_config_text(config, "runtime.isolation")),
		.data_dir = hb_spec_absolute(hb_config_text(config, "runtime.data")),
		.data_mount = hb_strdup(hb_config_text(config, "runtime.data_mount")),
		.working_dir = hb_strdup(working_dir(config, c)),
		.argv = argv_of(entrypoint, command),
		.env = env_of(env),
		.uid = uid,
		.gid = (gid_t)uid,
	};
	rc = 0;
out:
	json_decref(entrypoint);
	json_decref(command);
	json_decref(env);
	return rc;
}
