/*
 * The operations on data: runtime backup and runtime restore (backup.h).
 *
 * A backup stops the service, copies, and starts it again; the operator's wish that it runs is not
 * touched meanwhile, so whatever ends the operation early, the service comes back. A restore goes
 * through the journal like a switch of releases, and "what it was before" then includes the data
 * directory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/installer/activate.h"
#include "broker/installer/backup.h"
#include "broker/installer/data_swap.h"
#include "broker/installer/install.h"
#include "broker/installer/spec.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"

static int ask_running(struct hb_work *w, bool *running, struct hb_error *err)
{
	json_t *answer;

	if (hb_work_ask(w, json_pack("{s:s}", "ask", "running"), &answer, err) < 0)
		return -1;
	*running = hb_json_bool(answer, "running", false);
	json_decref(answer);
	return 0;
}

/* --- backup --- */

static json_t *backup_result(const json_t *record, const char *current)
{
	json_t *out = json_object(), *db, *name;
	struct hb_buf text = HB_BUF_INIT;
	size_t i;

	hb_buf_printf(&text,
		      "Backup %s: %lld files, %lld bytes in %lld, read back and "
		      "verified.\nSHA-256: %s\n",
		      hb_json_text(record, "name", ""), hb_json_int(record, "files", 0),
		      hb_json_int(record, "bytes", 0), hb_json_int(record, "size", 0),
		      hb_json_text(record, "sha256", ""));
	json_array_foreach(json_object_get(record, "databases"), i, db)
		hb_buf_printf(&text, "Database %s: %s, %lld pages, %lld rows\n",
			      hb_json_text(db, "path", ""), hb_json_text(db, "state", ""),
			      hb_json_int(db, "pages", 0), hb_json_int(db, "rows", 0));
	if (hb_json_int(record, "left_out", 0) > 0)
		hb_buf_printf(&text, "%lld sockets and fifos were left out.\n",
			      hb_json_int(record, "left_out", 0));
	json_array_foreach(json_object_get(record, "removed"), i, name)
		hb_buf_printf(&text, "Older backup removed: %s\n", json_string_value(name));
	json_object_set_new(out, "output", json_string(text.data));
	json_object_set_new(out, "manifest_digest", json_string(current));
	json_object_set(out, "backup", json_object_get(record, "name"));
	json_object_set(out, "backup_sha256", json_object_get(record, "sha256"));
	json_object_set(out, "removed", json_object_get(record, "removed"));
	hb_buf_free(&text);
	return out;
}

int hb_work_backup(struct hb_work *w, const char *current, json_t **result, struct hb_error *err)
{
	char *data = hb_spec_absolute(hb_config_text(w->config, "runtime.data"));
	struct hb_backup_draft *draft = NULL;
	struct hb_error start = {"", ""};
	json_t *activation = NULL, *record = NULL;
	bool desired = false, healthy = false;
	int rc = -1;

	if (hb_data_check(data, false, 0, err) < 0 || 
	    hb_backup_room(w->backups, w->age_fd >= 0, data, 0, err) < 0 ||
	    hb_desired_get(&desired, err) < 0 || hb_activation_load(&activation, err) < 0 ||
	    ask_running(w, &healthy, err) < 0 || hb_work_stop_runtime(w, err) < 0)
		goto out;
	rc = hb_backup_begin(w, data, &draft, err);
	/* It runs again while the backup is read back. One that wasn't healthy before is left to
	 * the installer. */
	if (desired && activation)
		(void)hb_work_start_runtime(w, activation, &start);
	if (rc == 0)
		rc = hb_backup_finish(w, draft, NULL, &record, err);
	if (rc == 0 && healthy && start.code[0])
		rc = hb_fail(err, start.code,
			     "backup %s is complete and verified, but the runtime didn't come "
			     "back: %.250s",
			     hb_json_text(record, "name", ""), start.message);
	if (rc == 0)
		*result = backup_result(record, current);
out:
	hb_backup_draft_free(w, draft);
	json_decref(record);
	json_decref(activation);
	free(data);
	return rc;
}

/* --- restore --- */

static json_t *remember(struct hb_work *w, const char *data, struct hb_error *err)
{
	char current[HB_HEX256], previous[HB_HEX256];
	json_t *activation = NULL, *swap;
	bool desired;

	if (hb_store_link(w->store, "current", current, err) < 0 ||
	    hb_store_link(w->store, "previous", previous, err) < 0 ||
	    hb_desired_get(&desired, err) < 0 || hb_activation_load(&activation, err) < 0)
		return NULL;
	swap = hb_data_swap_describe(data, w->operation_id, err);
	if (!swap) {
		json_decref(activation);
		return NULL;
	}
	return json_pack("{s:s, s:s, s:b, s:o, s:s, s:o}", "current", current, "previous", previous,
			 "desired", desired, "activation", activation ? activation : json_null(),
			 "data", data, "swap", swap);
}

/* Everything as it was before, after `why`; one message says what failed and how things stand. */
static int put_back(struct hb_work *w, const json_t *old, struct hb_error *why)
{
	struct hb_error trouble, undo, first = *why;

	if (hb_undo(w, old, &trouble, &undo) < 0)
		return hb_fail(why, "undo_failed",
			       "%.200s; and the old data couldn't be put back: %.160s. That is "
			       "tried again when the "
			       "installer starts",
			       first.message, undo.message);
	if (trouble.code[0])
		return hb_fail_prefix(why,
				      "not restored, the data is as before but the runtime doesn't "
				      "start with it "
				      "either (%.120s)",
				      trouble.message);
	return hb_fail_prefix(why, "not restored, the data is as before");
}

static json_t *restore_result(const json_t *old, const json_t *head, const char *current,
			      bool started)
{
	const json_t *swap = json_object_get(old, "swap");
	const char *path = hb_json_text(swap, "path", ""), *id = hb_json_text(swap, "id", "");
	struct hb_buf text = HB_BUF_INIT;
	char made[21];
	json_t *out;

	hb_time_rfc3339(hb_json_int(head, "created_at", 0), made);
	hb_buf_printf(&text, "The data is that of the backup made %s (%lld files, %lld bytes).\n",
		      made, hb_json_int(head, "files", 0), hb_json_int(head, "bytes", 0));
	if (hb_json_bool(swap, "had", false))
		hb_buf_printf(&text,
			      "What was there before is kept in %s.before-%s.\nTo go back to it: "
			      "stop the runtime, then mv %s "
			      "%s.restored && mv %s.before-%s %s, and start it.\n",
			      path, id, path, path, path, id, path);
	hb_buf_adds(&text, started	? "The runtime is healthy with it."
			   : current[0] ? "The runtime is stopped, as before; start it when you "
					  "like."
					: "No release is installed; install one now.");
	out = json_pack("{s:s, s:s}", "output", text.data, "manifest_digest", current);
	if (hb_json_bool(swap, "had", false))
		json_object_set_new(out, "set_aside", json_sprintf("%s.before-%s", path, id));
	hb_buf_free(&text);
	return out;
}

/* From here on the data in use is in doubt, until "committed". */
static int switch_data(struct hb_work *w, const json_t *old, const json_t *head,
		       const char *current, json_t **result, struct hb_error *err)
{
	const json_t *activation = json_object_get(old, "activation"),
		     *swap = json_object_get(old, "swap");
	bool start =
		hb_json_bool(old, "desired", false) && json_is_object(activation) && current[0];
	json_t *more = json_pack("{s:O, s:s}", "old", old, "new", current), *done;
	int rc = -1;

	if (hb_work_step(w, "activate", more, err) < 0)
		return -1;
	done = restore_result(old, head, current, start);
	if (hb_work_stop_runtime(w, err) == 0 && hb_data_swap(swap, err) == 0 &&
	    (!start || hb_work_start_runtime(w, activation, err) == 0) &&
	    hb_data_note(hb_json_text(swap, "path", ""), err) == 0)
		rc = hb_work_step(w, "committed", json_pack("{s:O}", "result", done), err);
	if (rc < 0)
		put_back(w, old, err);
	else
		*result = json_incref(done);
	json_decref(done);
	return rc;
}

int hb_work_restore(struct hb_work *w, const char *current, json_t **result, struct hb_error *err)
{
	const json_t *sealed = json_object_get(w->request, "sealed");
	char *data = hb_spec_absolute(hb_config_text(w->config, "runtime.data"));
	json_t *old = NULL, *head = NULL;
	int parent = -1, fresh = -1, rc = -1;

	if (hb_data_swap_check(data, w->operation_id, &parent, err) < 0)
		goto out;
	fresh = hb_data_fresh_create(data, w->operation_id, w->store->unpack_uid, err);
	if (fresh < 0 || hb_backup_restore_into(w, hb_json_text(w->request, "backup", ""),
						hb_json_text(sealed, "backup_sha256", ""), fresh,
						&head, err) < 0)
		goto out;
	/* The release first: without it there is nothing that could be healthy with the data. */
	if (current[0] && hb_install_again(w, current, err) < 0)
		goto out;
	old = remember(w, data, err);
	if (old)
		rc = switch_data(w, old, head, current, result, err);
out:
	hb_close(&parent);
	hb_close(&fresh);
	hb_data_fresh_remove(data, w->operation_id);
	json_decref(old);
	json_decref(head);
	free(data);
	return rc;
}

/* --- checks --- */

int hb_work_backup_check(struct hb_work *w, json_t **result, struct hb_error *err)
{
	const char *name = hb_json_text(w->request, "backup", "");

	if (strcmp(hb_json_text(w->request, "kind", ""), "drill") == 0)
		return hb_work_drill(w, name, result, err);
	*result = json_object();
	json_t *record;
	if (hb_backup_verify(w, name, &record, err) < 0)
		return -1;
	json_object_set_new(*result, "record", record);
	return 0;
}
