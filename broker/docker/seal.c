/* Sealing (seal.h). */
#include "broker/docker/seal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "broker/docker/bubble.h"
#include "broker/docker/workspace.h"
#include "common/json.h"
#include "policy/image_ref.h"
#include "policy/live.h"
#include "policy/operation.h"
#include "policy/text.h"

static int ask_id(struct hb_engine *e, const char *kind, const char *name, const char *also,
		  const char *what, json_t **answer, struct hb_error *err)
{
	char *escaped = hb_engine_escape(name, also);
	/* "json" inspects images and containers; volumes and networks are inspected by their name
	 * alone. */
	bool json = strcmp(kind, "images") == 0 || strcmp(kind, "containers") == 0;
	char *path = hb_asprintf("/%s/%s%s", kind, escaped, json ? "/json" : "");
	int rc = hb_engine_ask(e, "GET", path, NULL, what, answer, err);

	free(escaped);
	free(path);
	return rc;
}

/* bare: it must not declare volumes, which would be writable places of their own. */
static int seal_image(struct hb_engine *e, const char *image, bool bare, json_t *out,
		      struct hb_error *err)
{
	struct hb_error why;
	json_t *answer = NULL;
	int rc = ask_id(e, "images", image, "/:@", "looking up the image", &answer, &why);
	const char *id = hb_json_text(answer, "Id", "");

	if (rc < 0 && strcmp(why.code, "not_found") == 0)
		rc = hb_fail(err, "image_absent",
			     "the Docker engine of this host does not have this image; a pull "
			     "operation brings it here");
	else if (rc < 0)
		rc = hb_fail(err, why.code, "%s", why.message);
	else if (!hb_is_digest(id))
		rc = hb_fail(err, "engine_bad_reply",
			     "the Docker engine gives this image no usable id");
	else if (bare && json_object_size(
				 json_object_get(json_object_get(answer, "Config"), "Volumes")) > 0)
		rc = hb_fail(err, "image_has_volumes",
			     "the image of local commands declares volumes; only the workspace may "
			     "be writable");
	else
		json_object_set_new(out, "resolved_image_id", json_string(id));
	json_decref(answer);
	return rc;
}

static int seal_network(struct hb_engine *e, const char *network, json_t *out, struct hb_error *err)
{
	struct hb_error why;
	json_t *answer = NULL;
	int rc = ask_id(e, "networks", network, "", "looking up the network", &answer, &why);
	const char *id = hb_json_text(answer, "Id", "");

	if (rc < 0 && strcmp(why.code, "not_found") == 0)
		rc = hb_fail(err, "network_unknown",
			     "the Docker engine has no network of this name");
	else if (rc < 0)
		rc = hb_fail(err, why.code, "%s", why.message);
	else if (!hb_is_hex64(id))
		rc = hb_fail(err, "engine_bad_reply",
			     "the Docker engine gives this network no usable id");
	else
		json_object_set_new(out, "resolved_network_id", json_string(id));
	json_decref(answer);
	return rc;
}

static int seal_container(struct hb_engine *e, json_t *out, struct hb_error *err)
{
	struct hb_error why;
	json_t *answer = NULL;
	int rc = ask_id(e, "containers", hb_json_text(out, "container", ""), "",
			"looking up the container", &answer, &why);
	const char *id = hb_json_text(answer, "Id", ""), *name = hb_json_text(answer, "Name", "");

	if (rc < 0 && strcmp(why.code, "not_found") == 0)
		rc = hb_fail(err, "container_unknown",
			     "the Docker engine has no container of this name or id");
	else if (rc < 0)
		rc = hb_fail(err, why.code, "%s", why.message);
	else if (!hb_is_hex64(id) || name[0] != '/')
		rc = hb_fail(err, "engine_bad_reply",
			     "the Docker engine gives this container no usable id and name");
	else {
		json_object_set_new(out, "container", json_string(id));
		json_object_set_new(out, "resolved_name", json_string(name + 1));
	}
	json_decref(answer);
	return rc;
}

int hb_seal_volumes(struct hb_engine *e, const json_t *request, struct hb_error *err)
{
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(request, "mounts"), i, mount) {
		struct hb_error why;
		json_t *answer = NULL;
		int rc;

		if (strcmp(hb_json_text(mount, "type", ""), "volume") != 0)
			continue;
		rc = ask_id(e, "volumes", hb_json_text(mount, "source", ""), "",
			    "looking up the volume", &answer, &why);
		if (rc < 0 && strcmp(why.code, "not_found") == 0)
			continue; /* the engine makes a plain one */
		if (rc < 0)
			return hb_fail(err, why.code, "%s", why.message);
		if (strcmp(hb_json_text(answer, "Driver", ""), "local") != 0 ||
		    json_object_size(json_object_get(answer, "Options")) > 0)
			rc = hb_fail(
				err, "volume_reaches_host",
				"mounts[%zu]: this volume was made with options or by a driver, so "
				"it may be any "
				"directory of this host or another; only plain volumes are allowed",
				i);
		json_decref(answer);
		if (rc < 0)
			return -1;
	}
	return 0;
}

static int seal_binds(const struct hb_own *own, json_t *out, struct hb_error *err)
{
	json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(out, "mounts"), i, mount) {
		char *real;

		if (strcmp(hb_json_text(mount, "type", ""), "bind") != 0)
			continue;
		if (hb_resolve_path(hb_json_text(mount, "source", ""), &real, err) < 0)
			return hb_fail_prefix(err, "mounts[%zu]", i);
		json_object_set_new(mount, "source", json_string(real));
		int rc = hb_own_check_dir(own, real, err);
		free(real);
		if (rc < 0)
			return -1;
	}
	return 0;
}

int hb_seal_binds(const json_t *request, struct hb_error *err)
{
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(request, "mounts"), i, mount) {
		const char *source = hb_json_text(mount, "source", "");
		bool same = false;
		char *real;

		if (strcmp(hb_json_text(mount, "type", ""), "bind") != 0)
			continue;
		if (hb_resolve_path(source, &real, NULL) == 0) {
			same = strcmp(real, source) == 0;
			free(real);
		}
		if (!same)
			return hb_fail(err, "bind_changed",
				       "mounts[%zu]: the source is no longer the directory that "
				       "was approved",
				       i);
	}
	return 0;
}

/* By another name a disk is still a disk. */
static int check_devices(const json_t *request, struct hb_error *err)
{
	const json_t *item;
	size_t i;

	json_array_foreach (json_object_get(request, "devices"), i, item) {
		char *path = hb_strdup(json_string_value(item)), *real = NULL;
		struct stat st;
		int rc = 0;

		path[strcspn(path, ":")] = '\0';
		if (hb_resolve_path(path, &real, err) < 0 || stat(real, &st) < 0)
			rc = hb_fail(err, "device_missing",
				     "devices[%zu] does not exist on this host", i);
		else if (strcmp(real, path) != 0)
			rc = hb_fail(err, "device_link",
				     "devices[%zu] is a link; name the device itself", i);
		else if (S_ISBLK(st.st_mode) || S_ISDIR(st.st_mode))
			rc = hb_fail(err, "floor_raw_device",
				     "the floor refuses to give a container a block device or a "
				     "directory of devices, "
				     "whoever approves it");
		free(path);
		free(real);
		if (rc < 0)
			return -1;
	}
	return 0;
}

static int check_labels(const json_t *request, struct hb_error *err)
{
	const json_t *item;
	size_t i;

	json_array_foreach (json_object_get(request, "labels"), i, item)
		if (strncmp(json_string_value(item), HB_LABEL, strlen(HB_LABEL)) == 0)
			return hb_fail(err, "label_reserved",
				       "labels[%zu]: labels that begin with " HB_LABEL " are ours",
				       i);
	return 0;
}

static int seal_run(struct hb_docker *d, struct hb_engine *e, json_t *out, struct hb_error *err)
{
	if (check_labels(out, err) < 0 || check_devices(out, err) < 0 ||
	    seal_binds(&d->own, out, err) < 0 ||
	    seal_image(e, hb_json_text(out, "image", ""), false, out, err) < 0 ||
	    seal_network(e, hb_json_text(out, "network", ""), out, err) < 0)
		return -1;
	return hb_seal_volumes(e, out, err);
}

json_t *hb_seal_docker(struct hb_worker *w, struct hb_engine *e, const json_t *request,
		       struct hb_error *err)
{
	struct hb_docker *d = w->ctx;
	json_t *out = json_deep_copy(request);
	int rc = 0;

	if (strcmp(hb_operation_action("docker", out), "run") == 0)
		rc = seal_run(d, e, out, err);
	else if (json_object_get(out, "container"))
		rc = seal_container(e, out, err);
	if (rc == 0)
		rc = hb_floor_check_own(&d->own.floor, "docker", out, err);
	if (rc == 0)
		return out;
	json_decref(out);
	return NULL;
}

json_t *hb_seal_local(struct hb_worker *w, struct hb_engine *e, const json_t *request,
		      struct hb_error *err)
{
	struct hb_docker *d = w->ctx;
	const struct hb_config *config = d->process->config;
	json_t *out = json_deep_copy(request);
	char generation[HB_WORKSPACE_GENERATION];
	int rc = hb_workspace_seal(w, request, generation, err);

	if (rc == 0)
		json_object_set_new(out, "workspace_generation", json_string(generation));
	if (rc == 0 && hb_local_bubblewrap(config)) {
		char pin[HB_HEX256];

		rc = hb_release_check(config, pin, err);
		if (rc == 0) {
			char *id = hb_asprintf("sha256:%s", pin);

			json_object_set_new(out, "resolved_image_id", json_string(id));
			free(id);
		}
	} else if (rc == 0) {
		rc = seal_image(e, hb_config_text(config, "local.image"), true, out, err);
	}
	if (rc == 0)
		return out;
	json_decref(out);
	return NULL;
}

/* Which of the sealed fields says something else now. */
static int compare(const json_t *sealed, const json_t *now, struct hb_error *err)
{
	static const struct {
		const char *field, *code, *text;
	} fields[] = {
		{"container", "container_changed", "the container is another one"},
		{"resolved_name", "container_changed", "the container was renamed"},
		{"resolved_image_id", "image_changed", "the image's name stands for another image"},
		{"resolved_network_id", "network_changed",
		 "the network's name stands for another network"},
		{"mounts", "bind_changed", "the source of a bind leads elsewhere"},
		{"workspace_generation", "workspace_changed",
		 "the workspace or its settings are other ones"},
	};

	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		const json_t *a = json_object_get(sealed, fields[i].field),
			     *b = json_object_get(now, fields[i].field);

		if ((a || b) && !json_equal(a, b))
			return hb_fail(
				err, fields[i].code,
				"since it was approved something changed: %s; nothing was done",
				fields[i].text);
	}
	if (!json_equal(sealed, now))
		return hb_fail(err, "sealed_changed",
			       "since it was approved something changed; nothing was done");
	return 0;
}

int hb_seal_again(struct hb_worker *w, struct hb_engine *e, const char *feature,
		  const json_t *sealed, struct hb_error *err)
{
	static const struct {
		const char *code, *now;
	} gone[] = {{"container_unknown", "container_changed"},
		    {"image_absent", "image_changed"},
		    {"network_unknown", "network_changed"},
		    {"bind_missing", "bind_changed"},
		    {"bind_unresolved", "bind_changed"},
		    {"workspace_missing", "workspace_changed"}};
	json_t *plain = hb_operation_unsealed(feature, sealed), *now;
	struct hb_error why;
	int rc = -1;

	now = strcmp(feature, "local") == 0 ? hb_seal_local(w, e, plain, &why)
					    : hb_seal_docker(w, e, plain, &why);
	if (now) {
		rc = compare(sealed, now, err);
	} else {
		const char *code = why.code;

		for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
			if (strcmp(code, gone[i].code) == 0)
				code = gone[i].now;
		hb_fail(err, code, "%s; nothing was done", why.message);
	}
	json_decref(plain);
	json_decref(now);
	return rc;
}

/* The broker has checked the same; this process takes nobody's word for it. */
static int permitted(const char *feature, const json_t *request, struct hb_error *err)
{
	struct hb_policy_view view;
	int rc;

	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, err) < 0)
		return -1;
	rc = hb_policy_permits(&view.live, feature, NULL, err);
	if (rc == 0)
		rc = hb_bounds_check(view.bounds, feature, request, err);
	hb_policy_view_free(&view);
	return rc == 0 ? hb_floor_check(feature, request, err) : -1;
}

int hb_seal_task(struct hb_worker *w, json_t **result, struct hb_error *err)
{
	struct hb_docker *d = w->ctx;
	const char *feature = hb_json_text(w->request, "feature", "");
	bool local = strcmp(feature, "local") == 0;
	bool engine = !local || !hb_local_bubblewrap(d->process->config), look = false;
	struct hb_engine e;
	json_t *request = hb_operation_validate(feature, json_object_get(w->request, "request"),
						err),
	       *sealed = NULL;
	int rc = -1;

	if (!request || permitted(feature, request, err) < 0)
		goto out;
	/* Only what names a container, a network or a directory needs to know which are ours. */
	look = json_object_get(request, "container") || json_object_get(request, "network");
	if (engine && (hb_docker_engine(w, &e, err) < 0 ||
		       (!local && look && hb_docker_look(w, &e, err) < 0)))
		goto out;
	sealed = local ? hb_seal_local(w, engine ? &e : NULL, request, err)
		       : hb_seal_docker(w, &e, request, err);
	/* Again: a bind may lead out of the directories that are allowed. */
	if (!sealed || permitted(feature, sealed, err) < 0 ||
	    (local && !engine && hb_bubble_check(w, err) < 0))
		goto out;
	*result = json_pack("{s:O}", "request", sealed);
	rc = 0;
out:
	json_decref(request);
	json_decref(sealed);
	return rc;
}
