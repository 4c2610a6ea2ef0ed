/* What is ours (own.h). */
#include "broker/docker/own.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/digest.h"
#include "common/fs.h"
#include "common/json.h"
#include "policy/text.h"

#define REMEMBERED "docker/protected.json"
#define REMEMBERED_MAX (1u << 20)

static bool has(const json_t *list, const char *text)
{
	const json_t *item;
	size_t i;

	json_array_foreach (list, i, item)
		if (strcmp(json_string_value(item), text) == 0)
			return true;
	return false;
}

static void add(json_t *list, const char *text)
{
	if (*text && !has(list, text))
		json_array_append_new(list, json_string(text));
}

/* Both as it is written and as it resolves now. */
static void add_path(json_t *list, const char *path)
{
	char *real;

	if (!*path)
		return;
	if (hb_path_normal(path) && strcmp(path, "/") != 0)
		add(list, path);
	real = realpath(path, NULL);
	if (real && strcmp(real, "/") != 0)
		add(list, real);
	free(real);
}

static const char **pointers(const char **old, const json_t *list, size_t *count)
{
	const json_t *item;
	size_t i;

	free(old);
	old = hb_calloc(json_array_size(list) + 1, sizeof *old);
	json_array_foreach (list, i, item)
		old[i] = json_string_value(item);
	*count = json_array_size(list);
	return old;
}

static void refresh(struct hb_own *own)
{
	own->ids = pointers(own->ids, own->containers, &own->floor.container_count);
	own->nets = pointers(own->nets, own->networks, &own->floor.network_count);
	own->dirs = pointers(own->dirs, own->paths, &own->floor.path_count);
	own->floor.container_ids = own->ids;
	own->floor.network_ids = own->nets;
	own->floor.paths = own->dirs;
}

/* Inside a container the engine mounts a file of its own on /etc/hostname; where it comes from
 * names the container. */
static void add_own_container(json_t *list)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, root[512], point[512];
	size_t size = 0;

	while (f && getline(&line, &size, f) > 0) {
		char id[HB_HEX256] = "", *at;

		if (sscanf(line, "%*s %*s %*s %511s %511s", root, point) != 2 ||
		    strcmp(point, "/etc/hostname") != 0)
			continue;
		at = strstr(root, "/containers/");
		if (!at || strlen(at) < 12 + 64)
			continue;
		memcpy(id, at + 12, 64);
		if (hb_is_hex64(id))
			add(list, id);
	}
	free(line);
	if (f)
		fclose(f);
}

static int load_remembered(struct hb_own *own, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	const json_t *item;
	json_t *all;
	size_t i;

	if (access(REMEMBERED, F_OK) < 0 && errno == ENOENT)
		return 0;
	if (hb_fs_read(AT_FDCWD, REMEMBERED, REMEMBERED_MAX, &text, err) < 0)
		return -1;
	all = hb_json_parse(text.data ? text.data : "", text.len, err);
	hb_buf_free(&text);
	if (!all)
		return hb_fail_prefix(
			err, "%s (which containers are protected) can't be read; mend or remove it",
			REMEMBERED);
	json_array_foreach (json_object_get(all, "containers"), i, item)
		add(own->containers, json_is_string(item) ? json_string_value(item) : "");
	json_array_foreach (json_object_get(all, "networks"), i, item)
		add(own->networks, json_is_string(item) ? json_string_value(item) : "");
	json_decref(all);
	return 0;
}

int hb_own_load(const struct hb_config *config, struct hb_own *out, struct hb_error *err)
{
	static const char *const keys[] = {"runtime.storage", "runtime.data", "runtime.backup_dir",
					   "docker.socket"};
	char *here = getcwd(NULL, 0);

	memset(out, 0, sizeof *out);
	out->containers = json_array();
	out->networks = json_array();
	out->paths = json_array();
	add_path(out->paths, here ? here : "");
	free(here);
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		add_path(out->paths, hb_config_text(config, keys[i]));
	add_own_container(out->containers);
	if (load_remembered(out, err) < 0) {
		hb_own_free(out);
		return -1;
	}
	refresh(out);
	return 0;
}

void hb_own_free(struct hb_own *own)
{
	json_decref(own->containers);
	json_decref(own->networks);
	json_decref(own->paths);
	free(own->ids);
	free(own->nets);
	free(own->dirs);
	memset(own, 0, sizeof *own);
}

int hb_own_learn(struct hb_own *own, const json_t *found, struct hb_error *err)
{
	json_t *containers = json_object_get(found, "containers"),
	       *networks = json_object_get(found, "networks");
	struct hb_buf text = HB_BUF_INIT;
	json_t *all;
	int rc = 0;

	add_path(own->paths, hb_json_text(found, "engine_root", ""));
	if (json_is_array(containers) && json_is_array(networks) &&
	    !(json_equal(containers, own->containers) && json_equal(networks, own->networks))) {
		json_decref(own->containers);
		json_decref(own->networks);
		own->containers = json_deep_copy(containers);
		own->networks = json_deep_copy(networks);
		all = json_pack("{s:O, s:O}", "containers", own->containers, "networks",
				own->networks);
		rc = hb_json_canonical(all, &text, err);
		if (rc == 0)
			rc = hb_fs_write_atomic(AT_FDCWD, REMEMBERED, text.data, text.len, 0600,
						(uid_t)-1, (gid_t)-1, err);
		json_decref(all);
		hb_buf_free(&text);
	}
	refresh(own);
	return rc;
}

/* --- the engine's view, in a worker --- */

static bool listed(const struct hb_config *config, const char *key, const char *id,
		   const char *name)
{
	const char **items;
	size_t count = hb_config_list(config, key, &items);

	for (size_t i = 0; i < count; i++)
		if (strcmp(items[i], name) == 0 ||
		    (strlen(items[i]) >= 12 && strncmp(items[i], id, strlen(items[i])) == 0))
			return true;
	return false;
}

static bool is_own_container(const struct hb_config *config, const struct hb_own *own,
			     const json_t *c)
{
	const char *id = hb_json_text(c, "Id", "");
	const json_t *item;
	size_t i;

	if (has(own->containers, id) || listed(config, "docker.protected_containers", id, ""))
		return true;
	json_array_foreach (json_object_get(c, "Names"), i, item) {
		const char *name = json_is_string(item) ? json_string_value(item) : "";

		name += *name == '/';
		if (hb_floor_own_name(name) ||
		    listed(config, "docker.protected_containers", id, name))
			return true;
	}
	return false;
}

/* Every container on it shares it with others anyway. */
static bool is_common_network(const char *name)
{
	return strcmp(name, "bridge") == 0 || strcmp(name, "host") == 0 ||
	       strcmp(name, "none") == 0;
}

static void add_networks_of(const json_t *container, json_t *networks)
{
	json_t *all = json_object_get(json_object_get(container, "NetworkSettings"), "Networks"),
	       *net;
	const char *name;

	json_object_foreach (all, name, net)
		if (!is_common_network(name))
			add(networks, hb_json_text(net, "NetworkID", ""));
}

static int scan_networks(struct hb_engine *e, const struct hb_config *config,
			 const struct hb_own *own, json_t *networks, struct hb_error *err)
{
	json_t *all, *net;
	size_t i;

	if (hb_engine_ask(e, "GET", "/networks", NULL, "listing networks", &all, err) < 0)
		return -1;
	json_array_foreach (all, i, net) {
		const char *name = hb_json_text(net, "Name", ""), *id = hb_json_text(net, "Id", "");

		/* What was one of ours stays it while it exists, also when its containers left. */
		if (!is_common_network(name) &&
		    (has(own->networks, id) || hb_floor_own_name(name) ||
		     listed(config, "docker.protected_networks", id, name)))
			add(networks, id);
	}
	json_decref(all);
	return 0;
}

int hb_own_scan(struct hb_engine *e, const struct hb_config *config, struct hb_own *own,
		json_t **found, struct hb_error *err)
{
	json_t *all = NULL, *info = NULL, *c, *containers = json_array(), *networks = json_array();
	size_t i;
	int rc = -1;

	if (hb_engine_ask(e, "GET", "/containers/json?all=1", NULL, "listing containers", &all,
			  err) < 0 ||
	    hb_engine_ask(e, "GET", "/info", NULL, "asking for its data directory", &info, err) < 0)
		goto out;
	json_array_foreach (all, i, c) {
		if (!is_own_container(config, own, c))
			continue;
		add(containers, hb_json_text(c, "Id", ""));
		add_networks_of(c, networks);
	}
	if (scan_networks(e, config, own, networks, err) < 0)
		goto out;
	json_decref(own->containers);
	json_decref(own->networks);
	own->containers = json_incref(containers);
	own->networks = json_incref(networks);
	add_path(own->paths, hb_json_text(info, "DockerRootDir", ""));
	refresh(own);
	*found = json_pack("{s:O, s:O, s:s}", "containers", containers, "networks", networks,
			   "engine_root", hb_json_text(info, "DockerRootDir", ""));
	rc = 0;
out:
	json_decref(all);
	json_decref(info);
	json_decref(containers);
	json_decref(networks);
	return rc;
}

/* --- directories --- */

static bool same_file(const struct stat *a, const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && st.st_dev == a->st_dev && st.st_ino == a->st_ino;
}

/* Whether `path` or a directory it lies in (but not the root of the host) is the file `st`. */
static bool on_the_way(const struct stat *st, const char *path)
{
	char *copy = hb_strdup(path), *slash;
	bool found = same_file(st, copy);

	while (!found && (slash = strrchr(copy, '/')) && slash != copy) {
		*slash = '\0';
		found = same_file(st, copy);
	}
	free(copy);
	return found;
}

int hb_own_check_dir(const struct hb_own *own, const char *path, struct hb_error *err)
{
	char shown[121];
	struct stat st, mine;

	hb_show(path, shown, sizeof shown);
	if (stat(path, &st) < 0)
		return hb_fail_errno(err, "bind_missing", "'%s' can't be looked at", shown);
	if (same_file(&st, "/"))
		return hb_fail(err, "floor_bind",
			       "the floor refuses '%s' whoever approves it: it is the whole host",
			       shown);
	for (size_t i = 0; i < own->floor.path_count; i++) {
		const char *ours = own->floor.paths[i];
		bool overlaps = hb_path_within(path, ours) || hb_path_within(ours, path) ||
				on_the_way(&st, ours) ||
				(stat(ours, &mine) == 0 && on_the_way(&mine, path));

		if (overlaps)
			return hb_fail(err, "floor_bind",
				       "the floor refuses '%s' whoever approves it: it opens our "
				       "own state, keys, "
				       "profiles or data, or the container engine",
				       shown);
	}
	return 0;
}

int hb_resolve_path(const char *path, char **out, struct hb_error *err)
{
	char *real = realpath(path, NULL);
	char shown[121];

	hb_show(path, shown, sizeof shown);
	if (!real && errno == ENOENT)
		return hb_fail(err, "bind_missing", "'%s' does not exist on this host", shown);
	if (!real)
		return hb_fail_errno(err, "bind_unresolved",
				     "'%s' can't be resolved; the directories above it must be "
				     "searchable for hermes-docker",
				     shown);
	*out = real;
	return 0;
}
