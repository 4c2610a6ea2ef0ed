/*
 * The run spec as JSON: how the installer tells runner and hermes-run what to start. The decoder is as strict as for
 * data from outside: hermes-run is root when it reads it and does not rely on who wrote it.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "broker/installer/supervise.h"
#include "common/buf.h"
#include "common/digest.h"
#include "common/json.h"

#define WORDS_MAX 1024 /* arguments or variables; images have a dozen */

static void free_words(char **words)
{
	for (char **w = words; w && *w; w++)
		free(*w);
	free(words);
}

void hb_run_spec_free(struct hb_run_spec *spec)
{
	if (!spec)
		return;
	free(spec->rootfs);
	free(spec->manifest_digest);
	free(spec->isolation);
	free(spec->data_dir);
	free(spec->data_mount);
	free(spec->working_dir);
	free_words(spec->argv);
	free_words(spec->env);
	memset(spec, 0, sizeof(*spec));
}

static json_t *words_to_json(char *const *words)
{
	json_t *array = json_array();

	for (; words && *words; words++)
		json_array_append_new(array, json_string(*words));
	return array;
}

json_t *hb_run_spec_to_json(const struct hb_run_spec *spec)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:I, s:I}", "rootfs", spec->rootfs,
			 "manifest_digest", spec->manifest_digest, "isolation", spec->isolation, "data_dir",
			 spec->data_dir, "data_mount", spec->data_mount, "working_dir", spec->working_dir, "argv",
			 words_to_json(spec->argv), "env", words_to_json(spec->env), "uid",
			 (json_int_t)spec->uid, "gid", (json_int_t)spec->gid);
}

static int get_text(const json_t *object, const char *name, char **out, struct hb_error *err)
{
	const json_t *value = json_object_get(object, name);

	if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
		return hb_fail(err, "bad_spec", "run spec: \"%s\" must be a string", name);
	*out = hb_strdup(json_string_value(value));
	return 0;
}

/* Absolute, normalised: no empty, "." or ".." component, no trailing slash; "/" only where allowed. */
static bool is_clean_path(const char *path, bool root_allowed)
{
	if (path[0] != '/' || strlen(path) >= PATH_MAX)
		return false;
	if (!path[1])
		return root_allowed;
	for (const char *p = path; *p == '/';) {
		size_t n = strcspn(++p, "/");

		if (!n || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p += n;
	}
	return true;
}

static int get_path(const json_t *object, const char *name, bool root_allowed, char **out, struct hb_error *err)
{
	if (get_text(object, name, out, err) < 0)
		return -1;
	if (is_clean_path(*out, root_allowed))
		return 0;
	return hb_fail(err, "bad_spec", "run spec: \"%s\" must be an absolute path without . and ..", name);
}

static int get_words(const json_t *object, const char *name, bool variables, char ***out, struct hb_error *err)
{
	const json_t *array = json_object_get(object, name), *item;
	size_t i;

	if (!json_is_array(array) || json_array_size(array) > WORDS_MAX)
		return hb_fail(err, "bad_spec", "run spec: \"%s\" must be an array of at most %d strings", name,
			       WORDS_MAX);
	*out = hb_calloc(json_array_size(array) + 1, sizeof(**out));
	json_array_foreach(array, i, item) {
		const char *text = json_string_value(item);

		if (!text || strlen(text) != json_string_length(item))
			return hb_fail(err, "bad_spec", "run spec: \"%s\" must hold strings only", name);
		if (variables && (!strchr(text, '=') || text[0] == '='))
			return hb_fail(err, "bad_spec", "run spec: \"%s\" must hold NAME=VALUE", name);
		(*out)[i] = hb_strdup(text);
	}
	return 0;
}

static int get_id(const json_t *object, const char *name, uint32_t *out, struct hb_error *err)
{
	const json_t *value = json_object_get(object, name);
	json_int_t n = json_integer_value(value);

	if (!json_is_integer(value) || n < 0 || n >= UINT32_MAX)
		return hb_fail(err, "bad_spec", "run spec: \"%s\" must be a user or group number", name);
	*out = (uint32_t)n;
	return 0;
}

int hb_run_spec_from_json(const json_t *object, struct hb_run_spec *out, struct hb_error *err)
{
	static const char *const modes[] = {"auto", "namespaces", "chroot", "direct"};
	struct hb_run_spec spec = {0};
	bool known = false;

	if (get_path(object, "rootfs", false, &spec.rootfs, err) < 0 ||
	    get_text(object, "manifest_digest", &spec.manifest_digest, err) < 0 ||
	    get_text(object, "isolation", &spec.isolation, err) < 0 ||
	    get_path(object, "data_dir", false, &spec.data_dir, err) < 0 ||
	    get_path(object, "data_mount", false, &spec.data_mount, err) < 0 ||
	    get_path(object, "working_dir", true, &spec.working_dir, err) < 0 ||
	    get_words(object, "argv", false, &spec.argv, err) < 0 ||
	    get_words(object, "env", true, &spec.env, err) < 0 || get_id(object, "uid", &spec.uid, err) < 0 ||
	    get_id(object, "gid", &spec.gid, err) < 0)
		goto fail;
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		known = known || !strcmp(spec.isolation, modes[i]);
	if (!known) {
		hb_fail(err, "bad_spec", "run spec: \"isolation\" must be auto, namespaces, chroot or direct");
		goto fail;
	}
	if (!spec.argv[0] || !spec.argv[0][0]) {
		hb_fail(err, "no_command", "the image names no command and runtime.command is empty; set "
					   "runtime.command in hermes.conf");
		goto fail;
	}
	if (!hb_is_hex64(spec.manifest_digest)) {
		hb_fail(err, "bad_spec", "run spec: \"manifest_digest\" must be 64 hexadecimal digits");
		goto fail;
	}
	*out = spec;
	return 0;
fail:
	hb_run_spec_free(&spec);
	return -1;
}
