/*
 * A drill: the backup is restored beside the data, the current release is started with that copy on
 * a spare port while the live one goes on, probed, and stopped again. What came of it is noted in
 * the backup's record.
 *
 * It proves that these bytes give a data directory with which the release becomes healthy:
 * databases whole, HTTP health, MCP challenge, nothing outside loopback. It does not ask with the
 * configured MCP key, which may be younger than the backup.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/activate.h"
#include "broker/installer/backup.h"
#include "broker/installer/data_swap.h"
#include "broker/installer/spec.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"

/* Where a word is the configured port, alone or as a variable's value. */
static void replace_port(json_t *words, const char *port, const char *spare)
{
	json_t *word;
	size_t i;

	json_array_foreach(words, i, word) {
		const char *text = json_string_value(word),
			   *value = text ? strchr(text, '=') : NULL;

		if (text && strcmp(text, port) == 0)
			json_array_set_new(words, i, json_string(spare));
		else if (value && strcmp(value + 1, port) == 0)
			json_array_set_new(
				words, i,
				json_sprintf("%.*s=%s", (int)(value - text), text, spare));
	}
}

/* The release as it is active now, but for its data and its port. */
static json_t *drill_spec(const struct hb_work *w, const char *tree, long long spare_port,
			  struct hb_error *err)
{
	json_t *activation = NULL, *spec = NULL;
	char port[16], spare[16];

	if (hb_activation_load(&activation, err) < 0)
		return NULL;
	if (!json_is_object(json_object_get(activation, "spec"))) {
		hb_fail(err, "not_installed",
			"no release is installed to try the backup with; install one first");
	} else {
		snprintf(port, sizeof port, "%lld", hb_config_int(w->config, "runtime.port"));
		snprintf(spare, sizeof spare, "%lld", spare_port);
		spec = json_deep_copy(json_object_get(activation, "spec"));
		json_object_set_new(spec, "data_dir", json_string(tree));
		replace_port(json_object_get(spec, "env"), port, spare);
		replace_port(json_object_get(spec, "argv"), port, spare);
	}
	json_decref(activation);
	return spec;
}

static int try_it(struct hb_work *w, const char *tree, long long *port, struct hb_error *err)
{
	struct hb_progress p = {.phase = "drill"};
	json_t *answer = NULL, *spec;
	int rc;

	hb_work_progress(w, &p);
	if (hb_work_ask(w, json_pack("{s:s}", "ask", "drill_port"), &answer, err) < 0)
		return -1;
	*port = hb_json_int(answer, "port", 0);
	json_decref(answer);
	spec = drill_spec(w, tree, *port, err);
	if (!spec)
		return -1;
	rc = hb_work_ask(w, json_pack("{s:s, s:o}", "ask", "drill_start", "spec", spec), NULL, err);
	/* Also after a failure: then there is nothing to stop, which is fine. */
	if (hb_work_ask(w, json_pack("{s:s}", "ask", "drill_stop"), NULL, rc == 0 ? err : NULL) < 0)
		rc = -1;
	return rc;
}

static int lay_out_and_try(struct hb_work *w, const char *data, const char *id,
			   const json_t *record, long long *port, struct hb_error *err)
{
	int parent = -1, fresh = -1, rc = -1;
	char *tree = hb_asprintf("%s.restore-%s/tree", data, id);
	json_t *head = NULL;

	if (hb_data_swap_check(data, id, &parent, err) == 0)
		fresh = hb_data_fresh_create(data, id, w->store->unpack_uid, err);
	if (fresh >= 0 &&
	    hb_backup_restore_into(w, hb_json_text(record, "name", ""),
				   hb_json_text(record, "sha256", ""), fresh, &head, err) == 0) {
		/* Entered by the payload, listed by nobody; what is in it is the payload's alone.
		 */
		rc = fchmod(fresh, 0711) < 0 ? hb_fail_errno(err, "io_failed",
							     "the copy can't be opened to the "
							     "payload")
					     : try_it(w, tree, port, err);
	}
	json_decref(head);
	hb_close(&fresh);
	hb_close(&parent);
	hb_data_fresh_remove(data, id);
	free(tree);
	return rc;
}

static json_t *outcome_of(const struct hb_work *w, const struct hb_error *why, long long port)
{
	char current[HB_HEX256] = "";
	json_t *out;

	(void)hb_store_link(w->store, "current", current, NULL);
	out = json_pack("{s:I, s:b, s:s}", "at", (json_int_t)hb_now(), "ok", why == NULL, "release",
			current);
	if (why) {
		json_object_set_new(out, "error", json_string(why->message));
		json_object_set_new(out, "code", json_string(why->code));
	} else {
		json_object_set_new(out, "proves",
				    json_sprintf("release %.12s became healthy with a copy of this "
						 "data on 127.0.0.1:%lld: "
						 "databases, HTTP health, MCP challenge, listeners",
						 current, port));
	}
	return out;
}

int hb_work_drill(struct hb_work *w, const char *name, json_t **result, struct hb_error *err)
{
	char *data = hb_spec_absolute(hb_config_text(w->config, "runtime.data"));
	json_t *record = NULL, *drill;
	long long port = 0;
	struct hb_error why;
	char id[33];
	int rc = -1;
	bool ok;

	if (hb_backup_is_encrypted(name)) {
		hb_fail(err, "backup_encrypted",
			"%s is encrypted; run: hermesctl backup decrypt %s --identity FILE", name,
			name);
		goto out;
	}
	if (hb_backup_verify(w, name, &record, err) < 0)
		goto out;
	hb_random_hex(16, id);
	ok = lay_out_and_try(w, data, id, record, &port, &why) == 0;
	drill = outcome_of(w, ok ? NULL : &why, port);
	json_object_set_new(record, "drill", drill);
	rc = hb_backup_record_save(w->backups, record, err);
	if (rc == 0)
		*result = json_pack("{s:b, s:O, s:O}", "ok", ok, "record", record, "drill", drill);
out:
	json_decref(record);
	free(data);
	return rc;
}
