/* Sealing a runtime operation (seal.h). */
#include "broker/installer/seal.h"

#include <stdlib.h>
#include <string.h>

#include "broker/installer/activate.h"
#include "broker/installer/installer.h"
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

/* {settings_sha256, current} */
static json_t *seal_common(struct hb_installer *in, struct hb_error *err)
{
	char current[HB_HEX256];
	json_t *activation = NULL, *out;

	if (hb_store_link(&in->store, "current", current, err) < 0 ||
	    hb_activation_load(&activation, err) < 0)
		return NULL;
	out = json_pack("{s:s, s:{s:s, s:s}}", "settings_sha256", in->settings, "current",
			"manifest_digest", current, "image",
			current[0] ? hb_json_text(activation, "image", "") : "");
	json_decref(activation);
	return out;
}

/* What no seal is given for, in the order in which a person would want to hear it. */
static int check(struct hb_installer *in, const json_t *request, struct hb_error *err)
{
	static const char *const here[] = {"install", "start", "stop", "restart"};
	const char *action = hb_json_text(request, "action", "");
	struct hb_policy_view view;
	bool served = false;
	int rc = -1;

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
	for (size_t i = 0; i < sizeof here / sizeof *here; i++)
		served = served || strcmp(action, here[i]) == 0;
	if (!served)
		return hb_fail(err, "not_available",
			       "this version of the installer has install, start, stop and "
			       "restart; %s is not in it",
			       action);
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

/* Complete, checked against the schema, and sent. `resolved` (may be NULL) is stolen. */
static void reply_sealed(struct hb_installer *in, struct hb_request *req, const json_t *request,
			 json_t *resolved)
{
	json_t *sealed, *common;
	struct hb_error err;

	common = seal_common(in, &err);
	if (!common) {
		json_decref(resolved);
		refuse(req, &err);
		return;
	}
	if (resolved)
		json_object_set_new(common, "resolved", resolved);
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
		resolved = hb_seal_resolved(s->in->process->config, s->request, &c, &why);
		hb_chain_free(&c);
	}
	if (resolved)
		reply_sealed(s->in, s->req, s->request, resolved);
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
	struct hb_installer *in = ctx;
	struct seal_body body = {0};
	json_t *request = NULL;
	char current[HB_HEX256], pin[HB_HEX256];
	struct hb_error err;

	if (hb_fields_decode(hb_request_json(req), fields, 2, &body, &err) < 0)
		goto refused;
	if (strcmp(body.feature, "runtime") != 0) {
		hb_fail(&err, "wrong_executor", "the installer seals runtime operations only");
		goto refused;
	}
	request = hb_operation_validate("runtime", body.request, &err);
	if (!request || check(in, request, &err) < 0)
		goto refused;
	if (strcmp(hb_json_text(request, "action", ""), "install") == 0) {
		if (hb_seal_pin(in->process->config, request, pin, &err) < 0)
			goto refused;
		resolve(in, req, request);
	} else {
		if (hb_store_link(&in->store, "current", current, &err) < 0)
			goto refused;
		if (current[0] == '\0') {
			hb_fail(&err, "not_installed",
				"no release is installed; install one first");
			goto refused;
		}
		reply_sealed(in, req, request, NULL);
	}
	json_decref(request);
	return;
refused:
	json_decref(request);
	refuse(req, &err);
}
