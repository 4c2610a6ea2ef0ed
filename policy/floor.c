/*
 * The floor, feature by feature: commands go through the command rules, Docker fields through the
 * rules about what is ours and what opens the host. Rules here need no configuration;
 * hb_floor_check_own adds identities.
 */
#include "policy/floor.h"

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/json.h"
#include "policy/floor_command.h"
#include "policy/operation.h"
#include "policy/text.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Names under which our own processes, networks and volumes run in containers. */
static const char *const own_names[] = {"hermes-launcher",  "hermes-broker", "hermes-fetcher",
					"hermes-installer", "hermes-run",    "hermes-runtime",
					"hermes-docker",    "hermes-ssh",    "hermes-approver",
					"hermes-admin",     "hermes-control"};

/* What a bind would open: the engine and the secrets of containers. */
static const char *const guarded_paths[] = {
	"/run/docker.sock", "/var/run/docker.sock", "/run/containerd", "/var/run/containerd",
	"/run/podman",      "/var/run/podman",      "/run/secrets",    "/var/run/secrets",
	"/var/lib/docker",  "/var/lib/containerd"};

/* "hermes-broker", also as "project-hermes-broker-1" or "project_hermes-broker_1". */
bool hb_floor_own_name(const char *name)
{
	for (size_t i = 0; i < COUNT(own_names); i++) {
		const char *at = strstr(name, own_names[i]);
		const char *rest = at ? at + strlen(own_names[i]) : NULL;

		if (!at || (at > name && !strchr("-_", at[-1])))
			continue;
		if (*rest == '\0' ||
		    (strchr("-_", *rest) && strspn(rest + 1, HB_SET_DIGIT) == strlen(rest + 1)))
			return true;
	}
	return false;
}

static int refuse_bind(struct hb_error *err, const char *source, const char *why)
{
	char shown[121];

	hb_show(source, shown, sizeof(shown));
	return hb_fail(err, "floor_bind",
		       "the floor refuses the bind of '%s' whoever approves it: %s", shown, why);
}

static bool overlaps(const char *source, const char *path)
{
	return hb_path_within(path, source) || hb_path_within(source, path);
}

static int check_mounts(const json_t *request, struct hb_error *err)
{
	const json_t *mount;
	size_t i;

	json_array_foreach(json_object_get(request, "mounts"), i, mount)
	{
		const char *type = hb_json_text(mount, "type", "");
		const char *source = hb_json_text(mount, "source", "");

		if (strcmp(type, "volume") == 0 && hb_floor_own_name(source))
			return refuse_bind(err, source, "it is a volume of ours");
		if (strcmp(type, "bind") != 0)
			continue;
		if (strcmp(source, "/") == 0)
			return refuse_bind(err, source, "it opens the whole host");
		for (size_t j = 0; j < COUNT(guarded_paths); j++) {
			if (overlaps(source, guarded_paths[j]))
				return refuse_bind(err, source,
						   "it opens the container engine or secrets");
		}
		/* a socket elsewhere, under its usual name */
		if (strstr(source, "docker.sock") || strstr(source, "containerd.sock"))
			return refuse_bind(err, source, "it opens the container engine");
	}
	return 0;
}

static int check_devices(const json_t *request, struct hb_error *err)
{
	const json_t *item;
	size_t i;

	json_array_foreach(json_object_get(request, "devices"), i, item)
	{
		char *path = hb_strdup(json_string_value(item));

		path[strcspn(path, ":")] = '\0';
		bool raw = hb_floor_is_raw_device(path);
		free(path);
		if (raw)
			return hb_fail(
				err, "floor_raw_device",
				"the floor refuses to give a container a block device or the "
				"machine's memory, whoever approves it");
	}
	return 0;
}

/* Entrypoint and command are one vector; without an entrypoint the command may stand behind the
 * image's own. */
static int check_vectors(const json_t *request, struct hb_error *err)
{
	const json_t *lists[] = {json_object_get(request, "entrypoint"),
				 json_object_get(request, "command")};
	const char *words[64];
	size_t n = 0, first = 0;

	for (size_t l = 0; l < COUNT(lists); l++) {
		const json_t *item;
		size_t i;

		json_array_foreach(lists[l], i, item)
		{
			if (n < COUNT(words))
				words[n++] = json_string_value(item);
		}
		if (l == 0)
			first = n;
	}
	if (hb_floor_argv(words, n, NULL, err) < 0)
		return -1;
	return hb_floor_argv(words + first, n - first, NULL, err);
}

static int check_docker(const json_t *request, struct hb_error *err)
{
	static const char *const names[] = {"container", "resolved_name", "name"};

	for (size_t i = 0; i < COUNT(names); i++) {
		if (hb_floor_own_name(hb_json_text(request, names[i], "")))
			return hb_fail(err, "floor_own_container",
				       "the floor refuses Docker actions on our own containers, "
				       "whoever approves them");
	}
	if (hb_floor_own_name(hb_json_text(request, "network", "")))
		return hb_fail(err, "floor_own_network",
			       "the floor refuses to join the control network, whoever "
			       "approves it");
	if (check_mounts(request, err) < 0 || check_devices(request, err) < 0)
		return -1;
	return check_vectors(request, err);
}

static int check_ssh(const json_t *request, struct hb_error *err)
{
	const json_t *argv = json_object_get(request, "argv"), *item;
	const char **words;
	size_t i;

	if (!argv)
		return hb_floor_command(hb_json_text(request, "command", ""), NULL, err);
	words = hb_calloc(json_array_size(argv) + 1, sizeof(*words));
	json_array_foreach(argv, i, item) words[i] = json_string_value(item);
	int rc = hb_floor_argv(words, json_array_size(argv), NULL, err);
	free(words);
	return rc;
}

int hb_floor_check(const char *feature, const json_t *request, struct hb_error *err)
{
	const char *name = hb_feature_canonical(feature);

	if (!name)
		return hb_fail(err, "unknown_feature",
			       "an operation of an unknown feature can't be judged");
	if (strcmp(name, "local") == 0)
		return hb_floor_command(hb_json_text(request, "command", ""),
					hb_json_text(request, "workdir", "/workspace"), err);
	if (strcmp(name, "ssh") == 0)
		return check_ssh(request, err);
	if (strcmp(name, "docker") == 0)
		return check_docker(request, err);
	return 0; /* runtime: its actions are enumerated and carry no command of the client's */
}

static bool listed(const char *const *items, size_t count, const char *item)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(items[i], item) == 0)
			return true;
	}
	return false;
}

int hb_floor_check_own(const struct hb_floor_own *own, const char *feature, const json_t *request,
		       struct hb_error *err)
{
	const json_t *mount;
	size_t i;

	if (strcmp(feature, "docker") != 0)
		return 0;
	if (listed(own->container_ids, own->container_count,
		   hb_json_text(request, "container", "")))
		return hb_fail(err, "floor_own_container",
			       "the floor refuses Docker actions on our own containers, "
			       "whoever approves them");
	if (listed(own->network_ids, own->network_count,
		   hb_json_text(request, "resolved_network_id", "")))
		return hb_fail(err, "floor_own_network",
			       "the floor refuses to join the control network, whoever "
			       "approves it");
	json_array_foreach(json_object_get(request, "mounts"), i, mount)
	{
		const char *source = hb_json_text(mount, "source", "");

		for (size_t j = 0;
		     j < own->path_count && strcmp(hb_json_text(mount, "type", ""), "bind") == 0;
		     j++) {
			if (overlaps(source, own->paths[j]))
				return refuse_bind(
					err, source,
					"it opens our own state, keys, profiles or data");
		}
	}
	return 0;
}
