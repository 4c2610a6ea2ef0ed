/* hermesctl acceptance: the runtime as it is. Its answers come from the probe; the key is only
 * named. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/acceptance.h"
#include "common/buf.h"
#include "common/ids.h"
#include "common/json.h"
#include "onboarding/catalogue.h"
#include "onboarding/mcp_call.h"
#include "policy/image_ref.h"

#define POLL_US 150000

static json_t *
post(struct ctl_acceptance *a, const char *path, struct hb_error *err)
{
	json_t *body = json_object(), *answer = ctl_call(a->c, HB_PEER_BROKER, "POST", path, body, err);

	json_decref(body);
	return answer;
}

/* Why nothing can be said about the runtime, as a line; true when there is something to look at. */
static bool
has_runtime(struct ctl_acceptance *a, const char *name)
{
	if (hb_json_bool(a->runtime, "installed", false))
		return true;
	ctl_accept(a, name, CTL_NOT_RUN, "no runtime to look at");
	return false;
}

static const char *
check_of(const struct ctl_acceptance *a, const char *name)
{
	const json_t *health = json_object_get(a->runtime, "health");

	return hb_json_text(json_object_get(health, "checks"), name, "not checked");
}

void
ctl_accept_health(struct ctl_acceptance *a)
{
	struct hb_error err = {0}, why = {0};
	json_t *answer = post(a, "/runtime/probe", &err);
	const json_t *health;
	const char *path = hb_config_text(a->c->config, "runtime.health_path");

	json_decref(a->runtime);
	a->runtime = ctl_call(a->c, HB_PEER_BROKER, "GET", "/runtime", NULL, &why);
	health = json_object_get(a->runtime, "health");
	if (!answer)
		ctl_accept(a, "health", CTL_FAIL, "%s", err.message);
	else if (!a->runtime)
		ctl_accept(a, "health", CTL_FAIL, "%s", why.message);
	else if (!hb_json_bool(health, "ok", false))
		ctl_accept(a, "health", CTL_FAIL, "%s",
			   hb_json_text(health, "last_failure", "it is not healthy"));
	else
		ctl_accept(a, "health", CTL_PASS, "%s answers on %s, and every check passed just now",
			   path, hb_json_text(a->runtime, "address", "?"));
	json_decref(answer);
}

void
ctl_accept_challenge(struct ctl_acceptance *a)
{
	const char *path = hb_config_text(a->c->config, "runtime.mcp_path"),
		   *found = check_of(a, "mcp_challenge");

	if (!has_runtime(a, "bearer challenge"))
		return;
	/* What was found before it stopped says nothing. */
	if (hb_json_int(json_object_get(a->runtime, "process"), "pid", 0) <= 0)
		ctl_accept(a, "bearer challenge", CTL_NOT_RUN, "the runtime is not running");
	else if (!*path)
		ctl_accept(a, "bearer challenge", CTL_NOT_RUN, "runtime.mcp_path is empty");
	else if (strcmp(found, "ok") == 0)
		ctl_accept(a, "bearer challenge", CTL_PASS,
			   "%s without a key: 401 with a Bearer challenge", path);
	else
		ctl_accept(a, "bearer challenge",
			   strcmp(found, "not checked") == 0 ? CTL_NOT_RUN : CTL_FAIL, "%s", found);
}

static void
join(const json_t *list, struct hb_buf *out)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
		hb_buf_printf(out, "%s%s", i ? ", " : "", json_string_value(item));
	if (!out->len)
		hb_buf_adds(out, "none");
}

void
ctl_accept_tools(struct ctl_acceptance *a)
{
	const struct hb_mcp_options o = {.key = a->key};
	json_t *given = json_array(), *want, *have = NULL;
	struct hb_buf wanted = HB_BUF_INIT, found = HB_BUF_INIT;
	struct hb_error err = a->no_key;
	const char **names;
	size_t n = hb_config_list(a->c->config, "runtime.mcp_tools", &names);

	for (size_t i = 0; i < n; i++)
		json_array_append_new(given, json_string(names[i]));
	want = hb_sorted_texts(given);
	if (a->key[0])
		have = hb_mcp_list_tools(&o, &err);
	join(want, &wanted);
	if (!have) {
		ctl_accept(a, "tools", a->key[0] ? CTL_FAIL : CTL_NOT_RUN, "%s", err.message);
	} else {
		bool same = json_equal(want, have);

		join(have, &found);
		ctl_accept(a, "tools", same ? CTL_PASS : CTL_FAIL, "expected %s; key %s finds %s",
			   wanted.data, a->key, found.data);
	}
	json_decref(given);
	json_decref(want);
	json_decref(have);
	hb_buf_free(&wanted);
	hb_buf_free(&found);
}

/* The pin of this platform in runtime.platform_digest, as bare hex, or NULL. */
static const char *
pin_of(struct ctl_acceptance *a, const char *platform)
{
	const char **pins;
	size_t n = hb_config_list(a->c->config, "runtime.platform_digest", &pins),
	       len = strlen(platform);

	for (size_t i = 0; i < n; i++)
		if (strncmp(pins[i], platform, len) == 0 && strncmp(pins[i] + len, "=sha256:", 8) == 0)
			return pins[i] + len + 8;
	return NULL;
}

void
ctl_accept_pin(struct ctl_acceptance *a)
{
	const char *image = hb_config_text(a->c->config, "runtime.image"),
		   *installed = hb_json_text(a->runtime, "installed_image", ""),
		   *manifest = hb_json_text(a->runtime, "manifest_digest", ""),
		   *platform = hb_json_text(a->runtime, "platform", hb_host_platform()), *pin;

	if (!has_runtime(a, "pinned manifest"))
		return;
	pin = pin_of(a, platform);
	if (strcmp(image, installed) != 0)
		ctl_accept(a, "pinned manifest", CTL_FAIL, "configured is %s, installed %s", image,
			   installed);
	else if (pin && strcmp(pin, manifest) != 0)
		ctl_accept(a, "pinned manifest", CTL_FAIL,
			   "the pin for %s is sha256:%s, installed is sha256:%s", platform, pin,
			   manifest);
	else
		ctl_accept(a, "pinned manifest", CTL_PASS, "%s, manifest sha256:%s%s", image, manifest,
			   pin ? " as pinned" : ", which its pinned index names for this platform");
}

void
ctl_accept_tree(struct ctl_acceptance *a)
{
	struct hb_error err = {0};
	json_t *answer, *verify;

	if (!has_runtime(a, "installed tree"))
		return;
	answer = post(a, "/runtime/verify", &err);
	while (answer) {
		json_decref(answer);
		answer = ctl_call(a->c, HB_PEER_BROKER, "GET", "/runtime", NULL, &err);
		verify = json_object_get(answer, "verify");
		if (!answer || strcmp(hb_json_text(verify, "state", ""), "running") != 0)
			break;
		usleep(POLL_US);
	}
	verify = json_object_get(answer, "verify");
	if (!answer)
		ctl_accept(a, "installed tree", CTL_FAIL, "%s", err.message);
	else if (hb_json_bool(verify, "ok", false))
		ctl_accept(a, "installed tree", CTL_PASS,
			   "%lld files hashed again; each as its manifest says, and nothing besides",
			   hb_json_int(verify, "files", 0));
	else
		ctl_accept(a, "installed tree", CTL_FAIL, "%zu differences: hermesctl runtime verify%s%s",
			   json_array_size(json_object_get(verify, "differences")),
			   *hb_json_text(verify, "error", "") ? "; " : "",
			   hb_json_text(verify, "error", ""));
	json_decref(answer);
}
