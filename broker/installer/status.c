/* GET /runtime and GET /health: how things stand, from what is on disk and what the supervisor sees
 * now. */
#include <stdlib.h>
#include <string.h>

#include "broker/installer/activate.h"
#include "broker/installer/installer.h"
#include "broker/installer/job.h"
#include "broker/installer/quiesce.h"
#include "broker/installer/snapshot.h"
#include "broker/installer/spec.h"
#include "broker/installer/stage.h"
#include "broker/installer/watch.h"
#include "common/fs.h"
#include "common/json.h"
#include "policy/image_ref.h"
#include "policy/live.h"

static json_t *snapshots(const struct hb_installer *in)
{
	char *data = hb_spec_absolute(hb_config_text(in->process->config, "runtime.data"));
	json_t *list = hb_snapshot_list(data, NULL);

	free(data);
	return list ? list : json_array();
}

static void add_installed(struct hb_installer *in, json_t *out)
{
	char current[HB_HEX256] = "", previous[HB_HEX256] = "";
	json_t *activation = NULL, *health, *checks;
	char wrong[256];

	(void)hb_store_link(&in->store, "current", current, NULL);
	(void)hb_store_link(&in->store, "previous", previous, NULL);
	(void)hb_activation_load(&activation, NULL);
	json_object_set_new(out, "installed", json_boolean(current[0] != '\0'));
	json_object_set_new(out, "release", json_string(current));
	json_object_set_new(out, "manifest_digest", json_string(current));
	json_object_set_new(out, "previous", json_string(previous));
	json_object_set_new(out, "installed_image",
			    json_string(hb_json_text(activation, "image", "")));
	json_object_set_new(out, "platform",
			    json_string(hb_json_text(activation, "platform", hb_host_platform())));
	json_object_set_new(out, "tree_digest",
			    json_string(hb_json_text(activation, "tree_digest", "")));
	health = json_object_get(out, "health");
	checks = json_object_get(health, "checks");
	if (current[0] && json_is_object(checks)) {
		hb_watch_release(in, activation, wrong);
		json_object_set_new(checks, "release", json_string(wrong[0] ? wrong : "ok"));
		json_object_set_new(checks, "digest",
				    json_boolean(hb_watch_is_configured(in, activation)));
	}
	json_decref(activation);
}

json_t *hb_installer_runtime(struct hb_installer *in)
{
	const struct hb_config *config = in->process->config;
	const char *image = hb_config_text(config, "runtime.image");
	struct hb_image_ref ref = {0};
	json_t *out, *supervised, *list;
	bool desired = false;

	(void)hb_image_ref_parse(image, false, &ref, NULL);
	out = json_pack("{s:s, s:b, s:s, s:s}", "status", "ok", "enabled",
			hb_config_bool(config, "runtime.enabled"), "image", image,
			"configured_digest", ref.digest);
	supervised = hb_supervisor_status(in->supervisor);
	json_object_update(out, supervised);
	json_decref(supervised);
	add_installed(in, out);
	(void)hb_desired_get(&desired, NULL);
	json_object_set_new(out, "desired", json_string(desired ? "running" : "stopped"));
	json_object_set_new(out, "trouble", json_string(in->trouble));
	json_object_set_new(out, "staged", hb_stage_status(in));
	json_object_set(out, "quiesced", in->quiesced ? in->quiesced : json_null());
	json_object_set(out, "verify", in->verify ? in->verify : json_null());
	json_object_set_new(out, "operation", hb_job_present(in));
	list = hb_store_list(&in->store, NULL);
	json_object_set_new(out, "releases", list ? list : json_array());
	json_object_set_new(out, "snapshots", snapshots(in));
	return out;
}

/* The first thing that would stop an operation now; "" when none would. */
static void find_fault(struct hb_installer *in, json_t *checks, struct hb_error *first)
{
	struct hb_gate gate;
	struct hb_error err;
	uint64_t bytes = 0, inodes = 0;
	int ok;

	memset(first, 0, sizeof *first);
	ok = hb_installer_gate(in, &gate, &err) == 0;
	json_object_set_new(checks, "key", json_boolean(ok));
	if (!ok)
		*first = err;
	gate.admin_uid = hb_peer_uid(HB_PEER_ADMIN);
	gate.ledger = in->ledger;
	ok = hb_gate_policy_fresh(&gate, &err) == 0;
	json_object_set_new(checks, "policy", json_boolean(ok));
	if (!ok && !first->code[0])
		*first = err;
	ok = hb_fs_space(in->store.fd, ".", &bytes, &inodes, &err) == 0;
	json_object_set_new(checks, "store",
			    json_pack("{s:b, s:s, s:I}", "reachable", ok, "path", in->store.path,
				      "free_bytes", (json_int_t)bytes));
	if (!ok && !first->code[0])
		*first = err;
	ok = hb_installer_settings_fresh(in, &err) == 0;
	json_object_set_new(checks, "settings", json_boolean(ok));
	if (!ok && !first->code[0])
		*first = err;
}

json_t *hb_installer_health(struct hb_installer *in)
{
	json_t *mine = json_object(), *out;
	struct hb_error first;

	find_fault(in, mine, &first);
	json_object_set_new(mine, "waiting", json_boolean(!hb_job_idle(in)));
	out = hb_process_health(in->process, first.code[0] ? first.message : NULL);
	json_object_set_new(json_object_get(out, "checks"), "installer", mine);
	return out;
}
