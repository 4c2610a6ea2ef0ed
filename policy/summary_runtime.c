/* What a person is shown of a runtime operation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ids.h"
#include "common/json.h"
#include "policy/draw.h"
#include "policy/image_ref.h"
#include "policy/operation.h"

static bool is(const char *action, const char *one)
{
	return strcmp(action, one) == 0;
}

static void draw_digest(struct hb_page *p, const char *label, const json_t *object, const char *key)
{
	const char *hex = hb_json_text(object, key, NULL);
	char text[80];

	snprintf(text, sizeof(text), "sha256:%s", hex ? hex : "");
	hb_draw_sealed(p, label, hex ? text : NULL);
}

static void draw_size(struct hb_page *p, const char *label, long long bytes)
{
	char text[80];

	snprintf(text, sizeof(text), "%lld bytes (%lld.%lld MiB)", bytes, bytes >> 20,
		 (bytes & 0xfffff) * 10 >> 20);
	hb_draw_text(p, label, text);
}

/* One line each: digest, size, kind. The digests of the unpacked layers (diff_ids) stand in the
 * configuration, whose digest is shown; here they are bound by one hash over the list, for they
 * would double the text. */
static bool has_text(const json_t *list, const char *text)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
	{
		const char *one = json_string_value(item);

		if (one && strcmp(one, text) == 0)
			return true;
	}
	return false;
}

/* `now`: the layers of the release that is replaced, or NULL; those in both are kept. */
static void draw_layers(struct hb_page *p, const json_t *layers, const json_t *now)
{
	const json_t *layer;
	json_t *unpacked;
	char hex[HB_HEX256];
	size_t i;

	if (!layers) {
		hb_draw_sealed(p, "layers", NULL);
		hb_draw_sealed(p, "unpacked layers", NULL);
		return;
	}
	hb_buf_printf(p->out, "layers: %zu\n", json_array_size(layers));
	unpacked = json_array();
	json_array_foreach(layers, i, layer)
	{
		const char *kind = hb_json_text(layer, "media_type", "");

		kind = strncmp(kind, "application/vnd.", 16) == 0 ? kind + 16 : kind;
		bool oci = strncmp(kind, "oci.image.layer.v1.", 19) == 0;
		bool docker = strncmp(kind, "docker.image.rootfs.diff.", 25) == 0;
		hb_buf_printf(p->out, "  %s %lld %s%s%s\n", hb_json_text(layer, "digest", ""),
			      hb_json_int(layer, "size", 0),
			      oci      ? "oci "
			      : docker ? "docker "
				       : "",
			      oci      ? kind + 19
			      : docker ? kind + 25
				       : kind,
			      has_text(now, hb_json_text(layer, "digest", "")) ? " kept" : "");
		json_array_append(unpacked, json_object_get(layer, "diff_id"));
	}
	if (hb_json_digest(unpacked, hex, NULL) < 0)
		abort(); /* a list of short texts always has a canonical form */
	hb_buf_printf(p->out, "unpacked layers: list sha256:%s\n", hex);
	json_decref(unpacked);
}

/* Digests alone: how many, and one hash over the list. */
static void draw_layer_list(struct hb_page *p, const char *label, const json_t *layers)
{
	char hex[HB_HEX256], text[120];

	if (!layers) {
		hb_draw_sealed(p, label, NULL);
		return;
	}
	if (hb_json_digest(layers, hex, NULL) < 0)
		abort(); /* a list of short texts always has a canonical form */
	snprintf(text, sizeof(text), "%zu, list sha256:%s", json_array_size(layers), hex);
	hb_draw_text(p, label, text);
}

/* How an image is run: label, member, and whether it is a list. */
static const struct wish {
	const char *label, *key;
	bool list;
} wishes[] = {
	{"entrypoint", "entrypoint", true},
	{"command", "command", true},
	{"working dir", "working_dir", false},
	{"environment names", "environment", true},
	{"user", "user", false},
	{"ports", "ports", true},
	{"volumes", "volumes", true},
	{"version", "version", false},
};
#define WISHES (sizeof(wishes) / sizeof(wishes[0]))

static void draw_wish(struct hb_page *p, const char *label, const struct wish *w, const json_t *from)
{
	if (w->list)
		hb_draw_list(p, label, json_object_get(from, w->key));
	else
		hb_draw_quoted(p, label, hb_json_text(from, w->key, NULL));
}

static void draw_wishes(struct hb_page *p, const json_t *from)
{
	for (size_t i = 0; i < WISHES; i++)
		draw_wish(p, wishes[i].label, &wishes[i], from);
}

static const json_t *details_of(const json_t *sealed)
{
	return json_object_get(json_object_get(sealed, "current"), "details");
}

/* What comes, to compare with what is; NULL when nothing comes. */
static const json_t *next_of(const json_t *sealed)
{
	const json_t *resolved = json_object_get(sealed, "resolved");

	return resolved ? resolved
			: json_object_get(json_object_get(sealed, "target"), "details");
}

/* What is replaced: only what differs is written out, the rest is named. */
static void draw_details(struct hb_page *p, const json_t *details, const json_t *next)
{
	struct hb_buf same = HB_BUF_INIT;
	char label[64];

	draw_digest(p, "current config", details, "config_digest");
	draw_layer_list(p, "current layers", json_object_get(details, "layers"));
	for (size_t i = 0; i < WISHES; i++) {
		const char *key = wishes[i].key;

		if (next && json_equal(json_object_get(details, key), json_object_get(next, key))) {
			hb_buf_printf(&same, "%s%s", same.len ? ", " : "", wishes[i].label);
			continue;
		}
		snprintf(label, sizeof(label), "current %s", wishes[i].label);
		draw_wish(p, label, &wishes[i], details);
	}
	hb_draw_text(p, "unchanged", same.len ? same.data : "nothing");
	hb_buf_free(&same);
}

static void draw_install(struct hb_page *p, const json_t *request, const json_t *sealed)
{
	const json_t *r = json_object_get(sealed, "resolved");
	const char *pin = hb_json_text(request, "platform_digest", NULL);

	hb_draw_field(p, request, "image");
	hb_draw_field(p, request, "platform");
	hb_draw_text(p, "platform_digest", pin);
	draw_digest(p, "index", r, "index_digest");
	draw_digest(p, "manifest", r, "manifest_digest");
	draw_digest(p, "config", r, "config_digest");
	draw_layers(p, json_object_get(r, "layers"), json_object_get(details_of(sealed), "layers"));
	if (r)
		draw_size(p, "total size", hb_json_int(r, "total_size", 0));
	else
		hb_draw_sealed(p, "total size", NULL);
	draw_wishes(p, r);
}

/* The release on disk that a rollback goes to. */
static void draw_rollback(struct hb_page *p, const json_t *request, const json_t *sealed)
{
	const json_t *target = json_object_get(sealed, "target");
	const json_t *details = json_object_get(target, "details");
	const json_t *copy = json_object_get(sealed, "snapshot");

	hb_draw_field(p, request, "release");
	draw_digest(p, "goes back to", sealed, "release");
	hb_draw_quoted(p, "image", hb_json_text(target, "image", NULL));
	draw_digest(p, "config", details, "config_digest");
	draw_layer_list(p, "layers", json_object_get(details, "layers"));
	draw_wishes(p, details);
	hb_draw_field(p, request, "data");
	if (copy) {
		char when[21];

		hb_time_rfc3339(hb_json_int(copy, "taken_at", 0), when);
		hb_buf_printf(p->out, "copy of the data: %s, taken %lld (%s), %lld files, %lld bytes\n",
			      hb_json_text(copy, "id", ""), hb_json_int(copy, "taken_at", 0), when,
			      hb_json_int(copy, "files", 0), hb_json_int(copy, "bytes", 0));
	} else if (!sealed && is(hb_json_text(request, "data", ""), "restore")) {
		hb_draw_sealed(p, "copy of the data", NULL);
	}
}

static void draw_current(struct hb_page *p, const json_t *sealed)
{
	const json_t *current = json_object_get(sealed, "current");
	const char *manifest = hb_json_text(current, "manifest_digest", NULL);

	if (manifest && manifest[0] == '\0') {
		hb_draw_text(p, "current release", "none installed");
	} else {
		draw_digest(p, "current release", current, "manifest_digest");
		hb_draw_quoted(p, "current image", hb_json_text(current, "image", NULL));
		if (details_of(sealed))
			draw_details(p, details_of(sealed), next_of(sealed));
	}
	draw_digest(p, "settings", sealed, "settings_sha256");
}

/* The bytes that are restored, and what they said of themselves when they were last verified. */
static void draw_restore(struct hb_page *p, const json_t *request, const json_t *sealed)
{
	const json_t *c = json_object_get(sealed, "contents");
	const char *release = hb_json_text(c, "release", NULL);
	char text[120], when[21];

	hb_draw_field(p, request, "backup");
	draw_digest(p, "backup bytes", sealed, "backup_sha256");
	hb_time_rfc3339(hb_json_int(c, "created_at", 0), when);
	snprintf(text, sizeof(text), "%s (%lld)", when, hb_json_int(c, "created_at", 0));
	hb_draw_sealed(p, "backup made", c ? text : NULL);
	snprintf(text, sizeof(text), "%lld files, %lld bytes", hb_json_int(c, "files", 0),
		 hb_json_int(c, "bytes", 0));
	hb_draw_sealed(p, "backup holds", c ? text : NULL);
	hb_draw_quoted(p, "backup host", hb_json_text(c, "host_id", NULL));
	if (release && release[0] == '\0')
		hb_draw_text(p, "backup release", "none was installed");
	else
		draw_digest(p, "backup release", c, "release");
	hb_draw_quoted(p, "backup image", hb_json_text(c, "image", NULL));
}

/* When, as a person reads it and exactly. */
static void at(char text[64], long long seconds)
{
	char when[21];

	hb_time_rfc3339(seconds, when);
	snprintf(text, 64, "%s (%lld)", when, seconds);
}

/* Whether there is a way back to the data beyond the copy that the upgrade itself makes. */
static void draw_protection(struct hb_page *p, const json_t *sealed)
{
	const json_t *backup = json_object_get(sealed, "last_backup");
	const json_t *drill = json_object_get(sealed, "last_drill");
	char text[512], made[64], seen[64];

	at(made, hb_json_int(backup, "created_at", 0));
	at(seen, hb_json_int(backup, "last_verified", 0));
	snprintf(text, sizeof(text), "%s, made %s, verified %s", hb_json_text(backup, "name", ""), made,
		 seen);
	hb_draw_sealed(p, "last backup", !sealed ? NULL : backup ? text : "none recorded on this host");
	at(made, hb_json_int(drill, "at", 0));
	snprintf(text, sizeof(text), "%s %s with %s on %s release",
		 hb_json_bool(drill, "ok", false) ? "passed" : "FAILED", made,
		 hb_json_text(drill, "backup", ""),
		 hb_json_bool(drill, "of_current", false) ? "the current" : "another");
	hb_draw_sealed(p, "last drill", !sealed ? NULL : drill ? text : "none");
}

static void protection_consequences(struct hb_page *p, const json_t *sealed)
{
	const json_t *drill = json_object_get(sealed, "last_drill");

	if (sealed && !json_object_get(sealed, "last_backup"))
		hb_draw_warning(p, "no_backup", "there is no backup of the data on this host");
	if (drill && !hb_json_bool(drill, "ok", false))
		hb_draw_warning(p, "drill_failed",
				"the last attempt to start a release with a backup failed");
}

static void draw_prune(struct hb_page *p, const json_t *sealed)
{
	if (!sealed) {
		hb_draw_sealed(p, "set aside by restores, removed", NULL);
		hb_draw_sealed(p, "set aside, kept for undo", NULL);
		return;
	}
	hb_draw_list(p, "set aside by restores, removed", json_object_get(sealed, "set_aside"));
	hb_draw_quoted(p, "set aside, kept for undo", hb_json_text(sealed, "undo", ""));
}

static void install_consequences(struct hb_page *p, const json_t *request, const json_t *sealed)
{
	const json_t *r = json_object_get(sealed, "resolved");
	const char *now = hb_json_text(json_object_get(sealed, "current"), "manifest_digest", "");
	const char *new = hb_json_text(r, "manifest_digest", "");
	const char *user = hb_json_text(r, "user", "");
	bool stage = is(hb_json_text(request, "action", ""), "stage");
	struct hb_image_ref ref;

	hb_draw_note(p, "every digest is checked while downloading and again while unpacking");
	hb_draw_note(p, "policies applied to the tree: ownership squashed to the release owner, "
			"setuid/setgid stripped, "
			"devices refused, extended attributes dropped");
	if (stage) {
		hb_draw_note(p, "the release is unpacked beside the current one and not started; "
				"data is not touched");
	} else {
		hb_draw_note(p, "the command runs on this host as its own unprivileged user until "
				"it is stopped");
		if (now[0] != '\0' && strcmp(now, new) != 0)
			hb_draw_note(p, "data: the data directory is kept. While nothing runs it is "
					"copied; the copy lies beside it, is no backup and belongs to "
					"the current release. If the "
					"new release does not become healthy, the old one is put "
					"back with that copy, and what the new one wrote is lost");
		else
			hb_draw_note(p, "data: the data directory is kept, and created when there "
					"is none; if the new release does not become healthy the "
					"old state is put back");
	}
	if (!stage && now[0] != '\0' && strcmp(now, new) != 0)
		hb_draw_warning(p, "replaces_release",
				"the current release is stopped and replaced; the service can't be "
				"reached meanwhile");
	if (!stage && now[0] != '\0' && strcmp(now, new) == 0)
		hb_draw_warning(p, "same_release",
				"this release is the current one; the service is restarted");
	if (user[0] != '\0')
		hb_draw_warning(p, "image_user_ignored",
				"the user that the image names is ignored");
	if (hb_image_ref_parse(hb_json_text(request, "image", ""), false, &ref, NULL) == 0 &&
	    ref.layout)
		hb_draw_warning(p, "local_layout", "the image comes from a directory on this host");
}

static void data_consequences(struct hb_page *p, const json_t *request, const char *action)
{
	const json_t *sealed = json_object_get(request, "sealed");

	if (is(action, "rollback") && is(hb_json_text(request, "data", ""), "restore"))
		hb_draw_warning(p, "data_goes_back",
				"data goes back to the copy that belongs to that release; what was "
				"written since is lost to the service, and kept only in a copy "
				"that belongs to the current release");
	else if (is(action, "rollback"))
		hb_draw_warning(p, "data_stays_newer",
				"data stays as the newer release left it; the older one may not "
				"understand it. A copy is taken first, which belongs to the "
				"current release");
	if (is(action, "rollback"))
		hb_draw_note(p, "if the older release does not become healthy, the current one is "
				"put back with its data");
	if (is(action, "rollback"))
		hb_draw_warning(p, "replaces_release",
				"the current release is stopped and replaced by the older one");
	if (is(action, "restore") && sealed &&
	    strcmp(hb_json_text(json_object_get(sealed, "contents"), "release", ""),
		   hb_json_text(json_object_get(sealed, "current"), "manifest_digest", "")) != 0)
		hb_draw_warning(p, "other_release",
				"the backup was made while another release was current; the "
				"current one may not understand its data");
	if (is(action, "restore"))
		hb_draw_warning(
			p, "data_replaced",
			"the service is stopped and its whole data directory is replaced by the "
			"backup; the present one is set aside for undo");
	if (is(action, "backup"))
		hb_draw_warning(p, "backup_holds_secrets",
				"the service is stopped for it, and the backup holds the keys "
				"and accounts that are in the data: treat it as a credential");
	if (is(action, "remove"))
		hb_draw_warning(p, "removes_runtime",
				"the service is stopped and all its releases are removed; the data "
				"directory and backups are kept");
	if (is(action, "prune"))
		hb_draw_warning(p, "removes_releases",
				"releases beyond runtime.keep_releases are removed, never the "
				"current and the previous one; so are downloads and copies of the "
				"data that belong to none of those kept, and the data directories "
				"above that restores have set aside, but never the last of these");
}

static void service_consequences(struct hb_page *p, const char *action)
{
	if (is(action, "start"))
		hb_draw_note(
			p, "the current release is started and kept running; data is not touched");
	if (is(action, "stop"))
		hb_draw_warning(
			p, "service_stops",
			"the service is stopped and stays so until it is started again; data "
			"is not touched");
	if (is(action, "restart"))
		hb_draw_warning(p, "service_restarts",
				"the service can't be reached for a moment; data is not touched");
}

void hb_summary_runtime(struct hb_page *p, const json_t *request)
{
	const char *action = hb_operation_action("runtime", request);
	const json_t *sealed = json_object_get(request, "sealed");
	bool install = is(action, "install") || is(action, "upgrade") || is(action, "stage");

	if (install)
		draw_install(p, request, sealed);
	if (is(action, "rollback"))
		draw_rollback(p, request, sealed);
	if (is(action, "restore"))
		draw_restore(p, request, sealed);
	if (is(action, "prune"))
		draw_prune(p, sealed);
	if (is(action, "upgrade"))
		draw_protection(p, sealed);
	draw_current(p, sealed);
	hb_draw_int(p, "timeout", hb_operation_timeout("runtime", request), "s");

	if (install)
		install_consequences(p, request, sealed);
	service_consequences(p, action);
	data_consequences(p, request, action);
	if (is(action, "upgrade"))
		protection_consequences(p, sealed);
}
