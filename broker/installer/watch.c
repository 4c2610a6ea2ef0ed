/* What is looked at by itself (watch.h). */
#include "broker/installer/watch.h"

#include <stdio.h>
#include <string.h>

#include "broker/installer/activate.h"
#include "broker/installer/job.h"
#include "common/json.h"
#include "common/log.h"
#include "policy/image_ref.h"

bool hb_watch_is_configured(const struct hb_installer *in, const json_t *activation)
{
	struct hb_image_ref ref = {0};

	(void)hb_image_ref_parse(hb_config_text(in->process->config, "runtime.image"), false, &ref, NULL);
	return ref.digest[0] && strcmp(hb_json_text(activation, "index_digest", ""), ref.digest) == 0;
}

void hb_watch_release(const struct hb_installer *in, const json_t *activation, char out[256])
{
	const char *manifest = hb_json_text(activation, "manifest_digest", "");
	char current[HB_HEX256] = "";
	struct hb_error err;
	json_t *marker;

	out[0] = '\0';
	if (hb_store_link(&in->store, "current", current, &err) < 0) {
		snprintf(out, 256, "%.255s", err.message);
		return;
	}
	if (strcmp(current, manifest) != 0) {
		snprintf(out, 256, "current is release %.12s, but %.12s was activated", current[0] ? current : "none",
			 manifest[0] ? manifest : "none");
		return;
	}
	if (current[0] == '\0')
		return;
	marker = hb_store_marker(&in->store, current, &err);
	if (!marker)
		snprintf(out, 256, "%.255s", err.message);
	else if (!json_equal(json_object_get(marker, "tree_digest"), json_object_get(activation, "tree_digest")))
		snprintf(out, 256, "release %.12s has another tree digest than when it was activated", current);
	json_decref(marker);
}

static void record(struct hb_installer *in, const char *what, bool ok, const char *why)
{
	json_t *detail = json_pack("{s:s, s:s}", "check", what, "error", why);
	struct hb_error err;

	hb_log(ok ? HB_LOG_INFO : HB_LOG_WARN, "runtime_check", "check", what, "state", ok ? "ok" : "failed", "msg", why,
	       NULL);
	if (hb_audit_append(in->process->audit, "runtime.check", ok ? "ok" : "failed", detail, &err) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "msg", err.message, NULL);
	json_decref(detail);
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
	struct hb_installer *in = arg;
	json_t *activation = NULL;
	bool differs;
	char why[256];

	/* While something is being switched, or nothing may be written, there is nothing to find. */
	if (!hb_job_idle(in) || in->quiesced || in->stopping || hb_activation_load(&activation, NULL) < 0)
		return;
	hb_watch_release(in, activation, why);
	if (strcmp(why, in->release_trouble) != 0) {
		snprintf(in->release_trouble, sizeof(in->release_trouble), "%s", why);
		record(in, "release", why[0] == '\0', why);
	}
	differs = activation && !hb_watch_is_configured(in, activation);
	if (differs != in->digest_differs) {
		in->digest_differs = differs;
		record(in, "digest", !differs, differs ? "the release that is active is not the one that runtime.image names"
						       : "");
	}
	json_decref(activation);
}

int hb_watch_start(struct hb_installer *in, struct hb_error *err)
{
	const struct timeval interval = {hb_config_int(in->process->config, "runtime.health_interval"), 0};

	in->watch = event_new(in->process->base, -1, EV_PERSIST, on_time, in);
	if (!in->watch || event_add(in->watch, &interval) < 0)
		return hb_fail(err, "event_failed", "the timer of the checks can't be set");
	return 0;
}
