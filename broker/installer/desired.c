/* Small decisions of the installer itself: its gate, its settings, and the operator's wish that the
 * payload runs. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "broker/installer/activate.h"
#include "broker/installer/installer.h"
#include "broker/installer/job.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"

int hb_installer_gate(struct hb_installer *in, struct hb_gate *out, struct hb_error *err)
{
	struct hb_gate gate = {
		.target = "installer",
		.audience = in->process->host_id,
		.admin_uid = hb_peer_uid(HB_PEER_ADMIN),
		.ledger = in->ledger,
	};

	if (hb_gate_load_keys(&gate, err) < 0)
		return -1;
	*out = gate;
	return 0;
}

int hb_installer_settings_fresh(const struct hb_installer *in, struct hb_error *err)
{
	struct hb_config *now;
	char digest[HB_HEX256];
	int rc;

	if (hb_config_load(AT_FDCWD, HB_PATH_CONFIG, NULL, 0, &now, err) < 0)
		return -1;
	rc = hb_config_runtime_digest(now, digest, err);
	hb_config_free(now);
	if (rc == 0 && strcmp(digest, in->settings) != 0)
		rc = hb_fail(err, "settings_stale",
			     "[runtime] of hermes.conf was changed since hermes-installer was "
			     "started; restart it");
	return rc;
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	hb_installer_reconcile(arg);
}

static void retry_later(struct hb_installer *in, const struct hb_error *why)
{
	static const int pauses[] = {5, 15, 60, 300}; /* seconds; the last one for ever */
	struct timeval pause = {pauses[in->tries < 3 ? in->tries : 3], 0};

	in->tries++;
	snprintf(in->trouble, sizeof in->trouble, "%.250s", why->message);
	hb_log(HB_LOG_ERROR, "runtime_not_started", "code", why->code, "msg", why->message, NULL);
	if (!in->retry)
		in->retry = evtimer_new(in->process->base, on_retry, in);
	evtimer_add(in->retry, &pause);
}

static void on_started(int ok, const struct hb_error *err, void *arg)
{
	struct hb_installer *in = arg;
	json_t *detail =
		json_pack("{s:s, s:s}", "phase", "outcome", "error", ok ? "" : err->message);
	struct hb_error failed;

	if (hb_audit_append(in->process->audit, "payload.start", ok ? "ok" : "failed", detail,
			    &failed) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "msg", failed.message, NULL);
	json_decref(detail);
	if (ok) {
		in->tries = 0;
		in->trouble[0] = '\0';
	} else if (!in->stopping && hb_job_idle(in)) {
		retry_later(in, err);
	}
}

static int start_current(struct hb_installer *in, const json_t *activation, struct hb_error *err)
{
	const json_t *spec = json_object_get(activation, "spec");
	json_t *detail;
	struct hb_run_spec run;
	int rc;

	if (!hb_store_has(&in->store, hb_json_text(activation, "manifest_digest", "")))
		return hb_fail(err, "release_missing",
			       "the current release is not in %s; install it again",
			       in->store.path);
	if (hb_data_check(hb_json_text(spec, "data_dir", ""), false, 0, err) < 0)
		return -1;
	detail = json_pack("{s:s, s:O}", "phase", "intent", "manifest_digest",
			   json_object_get(activation, "manifest_digest"));
	rc = hb_audit_append(in->process->audit, "payload.start", "ok", detail, err);
	json_decref(detail);
	if (rc < 0 || hb_run_spec_from_json(spec, &run, err) < 0)
		return -1;
	hb_supervisor_start(in->supervisor, &run, on_started, in);
	hb_run_spec_free(&run);
	return 0;
}

void hb_installer_reconcile(struct hb_installer *in)
{
	json_t *activation = NULL;
	bool desired = false;
	struct hb_error err;

	if (in->retry)
		evtimer_del(in->retry);
	/* A job that runs sees to it itself, and this is called again when it has ended. */
	if (in->stopping || in->quiesced || !hb_job_idle(in) ||
	    hb_supervisor_is_running(in->supervisor))
		return;
	in->trouble[0] = '\0';
	if (hb_desired_get(&desired, &err) < 0 ||
	    (desired && hb_activation_load(&activation, &err) < 0) ||
	    (activation && start_current(in, activation, &err) < 0))
		retry_later(in, &err);
	json_decref(activation);
}
