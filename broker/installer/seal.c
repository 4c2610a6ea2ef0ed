/* Sealing a runtime operation (seal.h). */
#include "broker/installer/seal.h"

#include <stdlib.h>
#include <string.h>

#include "broker/installer/activate.h"
#include "broker/installer/backup_routes.h"
#include "broker/installer/installer.h"
#include "broker/installer/snapshot.h"
#include "broker/installer/spec.h"
#include "common/fields.h"
#include "common/json.h"
#include "common/log.h"
#include "policy/floor.h"
#include "policy/image_ref.h"
#include "policy/live.h"
#include "policy/operation.h"

/* Below the 30 s after which a client gives up on /prepare. */
#define RESOLVE_MS 25000

static bool is_one_of(const char *action, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(action, *list) == 0)
			return true;
	return false;
}

static int pin_of_config(const struct hb_config *config, const char *platform, char hex[HB_HEX256],
			 struct hb_error *err)
{
	const char **pins;
	size_t n = hb_config_list(config, "runtime.platform_digest", &pins), len = strlen(platform);

	hex[0] = '\0';
	for (size_t i = 0; i < n; i++)
		if (strncmp(pins[i], platform, len) == 0 && pins[i][len] == '=' &&
		    hb_digest_parse(pins[i] + len + 1, hex, err) < 0)
			return hb_fail_prefix(err, "runtime.platform_digest");
	return 0;
}

int hb_seal_pin(const struct hb_config *config, const json_t *request, char hex[HB_HEX256],
		struct hb_error *err)
{
	const char *platform = hb_json_text(request, "platform", ""), *given;
	struct hb_image_ref wanted, configured;
	char asked[HB_HEX256], pin[HB_HEX256] = "";

	if (strcmp(platform, hb_host_platform()) != 0)
		return hb_fail(err, "platform_not_host",
			       "this host is %s; an image for %s can't run here",
			       hb_host_platform(), platform);
	/* The pins of hermes.conf belong to the image that hermes.conf names, and to no other. */
	if (hb_image_ref_parse(hb_json_text(request, "image", ""), false, &wanted, err) < 0)
		return -1;
	if (hb_image_ref_parse(hb_config_text(config, "runtime.image"), false, &configured, NULL) ==
		    0 &&
	    strcmp(wanted.digest, configured.digest) == 0 &&
	    pin_of_config(config, platform, pin, err) < 0)
		return -1;
	given = hb_json_text(request, "platform_digest", NULL);
	if (given) {
		if (hb_digest_parse(given, asked, err) < 0)
			return -1;
		if (pin[0] && strcmp(pin, asked) != 0)
			return hb_fail(
				err, "platform_mismatch",
				"the request pins sha256:%s for %s, hermes.conf pins sha256:%s",
				asked, platform, pin);
		memcpy(pin, asked, sizeof pin);
	}
	memcpy(hex, pin, sizeof pin);
	return 0;
}

int hb_seal_chain(const struct hb_store *s, const struct hb_config *config, const json_t *request,
		  struct hb_chain *out, struct hb_error *err)
{
	struct hb_image_ref ref;
	char pin[HB_HEX256];
	struct hb_chain_want want = {
		.platform = hb_json_text(request, "platform", ""),
		.pin = pin,
		.max_blob = (uint64_t)hb_config_int(config, "fetcher.max_blob_size"),
		.max_image = (uint64_t)hb_config_int(config, "fetcher.max_image_size"),
	};

	if (hb_image_ref_parse(hb_json_text(request, "image", ""), false, &ref, err) < 0 ||
	    hb_seal_pin(config, request, pin, err) < 0)
		return -1;
	want.index = ref.digest;
	return hb_chain_derive(s->blobs_fd, &want, out, err);
}

json_t *hb_seal_resolved(const struct hb_config *config, const json_t *request,
			 const struct hb_chain *c, struct hb_error *err)
{
	struct hb_image_ref ref;
	json_t *out, *layers, *wishes;

	if (hb_image_ref_parse(hb_json_text(request, "image", ""), false, &ref, err) < 0)
		return NULL;
	wishes = hb_spec_describe(config, c->image, ref.tag, err);
	if (!wishes)
		return NULL;
	layers = json_array();
	for (size_t i = 0; i < c->layer_count; i++)
		json_array_append_new(layers, json_pack("{s:s, s:I, s:s, s:s}", "digest",
							c->layers[i].digest, "size",
							(json_int_t)c->layers[i].size, "media_type",
							c->layers[i].media_type, "diff_id",
							c->layers[i].diff_id));
	out = json_pack("{s:s, s:s, s:s, s:o, s:I}", "index_digest", c->index, "manifest_digest",
			c->manifest, "config_digest", c->config, "layers", layers, "total_size",
			(json_int_t)c->total_size);
	json_object_update(out, wishes);
	json_decref(wishes);
	return out;
}

json_t *hb_seal_details(const struct hb_store *s, const struct hb_config *config,
			const char *manifest, const char *image, struct hb_error *err)
{
	json_t *marker = hb_store_marker(s, manifest, err), *document = NULL, *out = NULL, *layers;
	struct hb_image_ref ref = {0};

	if (marker)
		document = hb_store_image(s, manifest, err);
	(void)hb_image_ref_parse(image, false, &ref, NULL);
	if (document)
		out = hb_spec_describe(config, document, ref.tag, err);
	if (out) {
		layers = json_object_get(marker, "layer_digests");
		json_object_set(out, "config_digest", json_object_get(marker, "config_digest"));
		json_object_set_new(out, "layers", layers ? json_incref(layers) : json_array());
	}
	json_decref(document);
	json_decref(marker);
	return out;
}

json_t *hb_seal_current(const struct hb_store *s, const struct hb_config *config,
			struct hb_error *err)
{
	char current[HB_HEX256];
	json_t *activation = NULL, *details, *out;

	if (hb_store_link(s, "current", current, err) < 0 ||
	    hb_activation_load(&activation, err) < 0)
		return NULL;
	out = json_pack("{s:s, s:s}", "manifest_digest", current, "image",
			current[0] ? hb_json_text(activation, "image", "") : "");
	/* As it was activated; a release that is damaged can still be replaced. */
	details = json_incref(json_object_get(activation, "details"));
	if (!details && current[0])
		details = hb_seal_details(s, config, current, hb_json_text(out, "image", ""), NULL);
	if (current[0] && details)
		json_object_set(out, "details", details);
	json_decref(details);
	json_decref(activation);
	return out;
}

/* {settings_sha256, current}; with details only where something is compared with them. */
static json_t *seal_common(struct hb_installer *in, const json_t *request, struct hb_error *err)
{
	static const char *const comparing[] = {"install", "upgrade", "rollback", NULL};
	json_t *now = hb_seal_current(&in->store, in->process->config, err);

	if (!now)
		return NULL;
	if (!is_one_of(hb_json_text(request, "action", ""), comparing))
		json_object_del(now, "details");
	return json_pack("{s:s, s:o}", "settings_sha256", in->settings, "current", now);
}

int hb_seal_check(struct hb_installer *in, const json_t *request, struct hb_error *err)
{
	struct hb_policy_view view;
	int rc = -1;

	/* In the order in which a person would want to hear it. */
	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, err) < 0)
		return -1;
	if (!hb_bounds_executor(view.bounds, "installer"))
		hb_fail(err, "out_of_bounds",
			"bounds.conf doesn't list the installer in [executors] deployed");
	else if (hb_policy_permits(&view.live, "runtime", NULL, err) == 0 &&
		 hb_floor_check("runtime", request, err) == 0)
		rc = hb_bounds_check(view.bounds, "runtime", request, err);
	hb_policy_view_free(&view);
	if (rc < 0)
		return -1;
	if (!hb_config_bool(in->process->config, "runtime.enabled"))
		return hb_fail(err, "runtime_disabled", "runtime.enabled is \"no\" in hermes.conf");
	return hb_installer_settings_fresh(in, err);
}

struct seal_call {
	struct hb_installer *in;
	struct hb_request *req; /* NULL: the asker has gone */
	json_t *request;
	struct hb_client_call *call;
};

static void refuse(struct hb_request *req, const struct hb_error *err)
{
	hb_log(HB_LOG_WARN, "seal_refused", "code", err->code, "msg", err->message, NULL);
	hb_reply_error(req, 200, err);
}

/* Complete, checked against the schema, and sent. `more` (may be NULL), the fields of this action, is
 * stolen. */
static void reply_sealed(struct hb_installer *in, struct hb_request *req, const json_t *request,
			 json_t *more)
{
	json_t *sealed, *common;
	struct hb_error err;

	common = seal_common(in, request, &err);
	if (!common) {
		json_decref(more);
		refuse(req, &err);
		return;
	}
	if (more)
		json_object_update(common, more);
	json_decref(more);
	sealed = json_deep_copy(request);
	json_object_set_new(sealed, "sealed", common);
	if (hb_operation_check_sealed("runtime", sealed, &err) < 0)
		refuse(req, &err);
	else
		hb_reply_json(req, 200, json_pack("{s:s, s:O}", "status", "ok", "request", sealed));
	json_decref(sealed);
}

static void seal_call_free(struct seal_call *s)
{
	json_decref(s->request);
	free(s);
}

static void on_gone(void *arg)
{
	struct seal_call *s = arg;

	hb_client_cancel(s->call);
	seal_call_free(s);
}

/* An upgrade to what runs already is a mistake, or somebody else was faster. */
static int check_new(struct hb_installer *in, const json_t *request, const char *manifest,
		     struct hb_error *err)
{
	char current[HB_HEX256];

	if (strcmp(hb_json_text(request, "action", ""), "upgrade") != 0)
		return 0;
	if (hb_store_link(&in->store, "current", current, err) < 0)
		return -1;
	return strcmp(current, manifest) != 0
		       ? 0
		       : hb_fail(err, "already_current",
				 "release %s is the current one already; there is nothing to "
				 "upgrade to",
				 manifest);
}

static json_t *with_protection(const struct seal_call *s, json_t *resolved)
{
	json_t *out = json_pack("{s:o}", "resolved", resolved), *more;
	char current[HB_HEX256];

	if (strcmp(hb_json_text(s->request, "action", ""), "upgrade") != 0 ||
	    hb_store_link(&s->in->store, "current", current, NULL) < 0)
		return out;
	more = hb_seal_protection(&s->in->backups, current);
	json_object_update(out, more);
	json_decref(more);
	return out;
}

static void on_resolved(int status, const json_t *body, const struct hb_error *err, void *arg)
{
	struct seal_call *s = arg;
	struct hb_chain c = {0};
	json_t *resolved = NULL;
	struct hb_error why;

	hb_request_on_close(s->req, NULL, NULL);
	if (status == 0) {
		why = *err;
		hb_fail_prefix(&why, "the fetcher");
	} else if (hb_reply_failed(status, body, &why) == 0 &&
		   hb_seal_chain(&s->in->store, s->in->process->config, s->request, &c, &why) ==
			   0) {
		if (check_new(s->in, s->request, c.manifest, &why) == 0 &&
		    hb_seal_room(s->in, s->request, &c, NULL, &why) == 0)
			resolved = hb_seal_resolved(s->in->process->config, s->request, &c, &why);
		hb_chain_free(&c);
	}
	if (resolved)
		reply_sealed(s->in, s->req, s->request, with_protection(s, resolved));
	else
		refuse(s->req, &why);
	seal_call_free(s);
}

static void resolve(struct hb_installer *in, struct hb_request *req, json_t *request)
{
	struct seal_call *s = hb_calloc(1, sizeof *s);
	json_t *body = json_pack("{s:O, s:O}", "image", json_object_get(request, "image"),
				 "platform", json_object_get(request, "platform"));
	struct hb_call call = {.server = HB_PEER_FETCHER,
			       .method = "POST",
			       .path = "/resolve",
			       .body = body,
			       .timeout_ms = RESOLVE_MS,
			       .on_done = on_resolved,
			       .arg = s};

	s->in = in;
	s->req = req;
	s->request = json_incref(request);
	hb_request_on_close(req, on_gone, s);
	s->call = hb_client_start(in->process->client, &call);
	json_decref(body);
}

/* --- going back --- */

/* The release that a rollback goes to: the one named, or the previous one. */
static int rollback_target(const struct hb_store *s, const json_t *request, const char *current,
			   char target[HB_HEX256], struct hb_error *err)
{
	const char *named = hb_json_text(request, "release", NULL);
	bool restore = strcmp(hb_json_text(request, "data", ""), "restore") == 0;

	if (named)
		memcpy(target, named, HB_HEX256);
	else if (hb_store_link(s, "previous", target, err) < 0)
		return -1;
	if (target[0] == '\0')
		return hb_fail(err, "no_previous",
			       "there is no previous release; name one of `hermesctl runtime "
			       "releases`");
	/* The current one, with the data it had: that is a way back too. */
	if (strcmp(target, current) == 0 && !restore)
		return hb_fail(err, "already_current", "release %s is the current one", target);
	return 0;
}

json_t *hb_seal_rollback(const struct hb_store *s, const struct hb_config *config,
			 const json_t *request, const char *current, struct hb_error *err)
{
	char *data = hb_spec_absolute(hb_config_text(config, "runtime.data"));
	json_t *marker = NULL, *details = NULL, *snapshot = NULL, *out = NULL;
	char target[HB_HEX256];
	const char *image;

	if (rollback_target(s, request, current, target, err) < 0)
		goto out;
	marker = hb_store_marker(s, target, err);
	image = hb_json_text(marker, "image", "");
	if (marker)
		details = hb_seal_details(s, config, target, image, err);
	if (!details)
		goto out;
	if (strcmp(hb_json_text(request, "data", ""), "restore") == 0 &&
	    !(snapshot = hb_snapshot_of(data, target, err)))
		goto out;
	out = json_pack("{s:s, s:{s:s, s:O}}", "release", target, "target", "image", image,
			"details", details);
	if (snapshot)
		json_object_set_new(
			out, "snapshot",
			json_pack("{s:O, s:O, s:O, s:O}", "id", json_object_get(snapshot, "id"),
				  "taken_at", json_object_get(snapshot, "taken_at"), "files",
				  json_object_get(snapshot, "files"), "bytes",
				  json_object_get(snapshot, "bytes")));
out:
	json_decref(marker);
	json_decref(details);
	json_decref(snapshot);
	free(data);
	return out;
}

/* Everything but what wants an image from the fetcher: answered at once. */
static int seal_now(struct hb_installer *in, struct hb_request *req, const json_t *request,
		    const char *current, struct hb_error *err)
{
	static const char *const bare[] = {"remove", "prune", "backup", "restore", NULL};
	const char *action = hb_json_text(request, "action", "");
	json_t *more = NULL;

	if (current[0] == '\0' && !is_one_of(action, bare))
		return hb_fail(err, "not_installed", "no release is installed; install one first");
	if (strcmp(action, "rollback") == 0) {
		more = hb_seal_rollback(&in->store, in->process->config, request, current, err);
		if (!more)
			return -1;
	}
	if (strcmp(action, "backup") == 0 && hb_backup_seal_backup(in, err) < 0)
		return -1;
	if (strcmp(action, "restore") == 0) {
		more = hb_backup_seal_restore(in, request, err);
		if (!more)
			return -1;
	}
	if (strcmp(action, "prune") == 0)
		more = hb_seal_prune(in->process->config);
	if (hb_seal_room(in, request, NULL, more, err) < 0) {
		json_decref(more);
		return -1;
	}
	reply_sealed(in, req, request, more);
	return 0;
}

struct seal_body {
	const char *feature;
	json_t *request;
};

void hb_seal_handle(struct hb_request *req, void *ctx)
{
	static const struct hb_field fields[] = {
		{"feature", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct seal_body, feature),
		 1, 32},
		{"request", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, offsetof(struct seal_body, request),
		 0, 0},
	};
	static const char *const fetched[] = {"install", "upgrade", "stage", NULL};
	struct hb_installer *in = ctx;
	struct seal_body body = {0};
	json_t *request = NULL;
	const char *action;
	char current[HB_HEX256], pin[HB_HEX256];
	struct hb_error err;

	if (hb_fields_decode(hb_request_json(req), fields, 2, &body, &err) < 0)
		goto refused;
	if (strcmp(body.feature, "runtime") != 0) {
		hb_fail(&err, "wrong_executor", "the installer seals runtime operations only");
		goto refused;
	}
	request = hb_operation_validate("runtime", body.request, &err);
	if (!request || hb_seal_check(in, request, &err) < 0 ||
	    hb_store_link(&in->store, "current", current, &err) < 0)
		goto refused;
	action = hb_json_text(request, "action", "");
	if (!is_one_of(action, fetched)) {
		if (seal_now(in, req, request, current, &err) < 0)
			goto refused;
	} else if (strcmp(action, "upgrade") == 0 && current[0] == '\0') {
		hb_fail(&err, "not_installed", "no release is installed: install one instead");
		goto refused;
	} else if (hb_seal_pin(in->process->config, request, pin, &err) < 0) {
		goto refused;
	} else {
		resolve(in, req, request);
	}
	json_decref(request);
	return;
refused:
	json_decref(request);
	refuse(req, &err);
}
