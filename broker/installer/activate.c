/* Switching what serves (activate.h). */
#include "broker/installer/activate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/installer/seal.h"
#include "broker/installer/data_swap.h"
#include "broker/installer/snapshot.h"
#include "broker/installer/spec.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"

#define ACTIVATION_PATH "installer/activation.json"
#define DESIRED_PATH "installer/desired.json"
#define STATE_MAX (1u << 20)

static int state_load(const char *path, json_t **out, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *found = NULL;

	if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
		*out = NULL;
		return 0;
	}
	if (hb_fs_read(AT_FDCWD, path, STATE_MAX, &text, err) < 0) {
		hb_buf_free(&text);
		return -1;
	}
	found = hb_json_parse(text.data ? text.data : "", text.len, NULL);
	hb_buf_free(&text);
	if (!found)
		return hb_fail(err, "state_broken", "%s is damaged; remove it and install again",
			       path);
	*out = found;
	return 0;
}

static int state_save(const char *path, const json_t *value, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	int rc;

	if (!value || json_is_null(value)) {
		if (unlink(path) < 0 && errno != ENOENT)
			return hb_fail_errno(err, "state_failed", "%s can't be removed", path);
		return hb_fs_sync_dir(AT_FDCWD, "installer", err);
	}
	rc = hb_json_canonical(value, &text, err);
	if (rc == 0)
		rc = hb_fs_write_atomic(AT_FDCWD, path, text.data, text.len, 0600, 0, 0, err);
	hb_buf_free(&text);
	return rc;
}

int hb_activation_load(json_t **out, struct hb_error *err)
{
	return state_load(ACTIVATION_PATH, out, err);
}

int hb_desired_get(bool *running, struct hb_error *err)
{
	json_t *found = NULL;

	if (state_load(DESIRED_PATH, &found, err) < 0)
		return -1;
	*running = hb_json_bool(found, "running", false);
	json_decref(found);
	return 0;
}

int hb_desired_set(bool running, struct hb_error *err)
{
	json_t *value = json_pack("{s:b}", "running", running);
	int rc = state_save(DESIRED_PATH, value, err);

	json_decref(value);
	return rc;
}

json_t *hb_activation_make(const struct hb_work *w, const json_t *marker, struct hb_error *err)
{
	const char *manifest = hb_json_text(marker, "manifest_digest", "");
	const json_t *resolved = json_object_get(json_object_get(w->request, "sealed"), "resolved");
	json_t *image = hb_store_image(w->store, manifest, err), *now = NULL, *out = NULL, *details;
	struct hb_run_spec spec;
	const char *name;

	if (!image || hb_activation_load(&now, err) < 0)
		goto out;
	if (hb_spec_build(w->config, image, w->store->path, manifest, w->runtime_uid, &spec, err) <
	    0)
		goto out;
	/* An install says which image this is; start and restart leave that as it was. */
	if (!resolved && strcmp(hb_json_text(now, "manifest_digest", ""), manifest) != 0) {
		json_decref(now);
		now = NULL;
	}
	name = hb_json_text(resolved ? w->request : now ? now : marker, "image", "");
	details = hb_seal_details(w->store, w->config, manifest, name, err);
	if (!details) {
		hb_run_spec_free(&spec);
		goto out;
	}
	out = json_pack("{s:s, s:O, s:s, s:s, s:O, s:s, s:s, s:I, s:o, s:o}", "manifest_digest",
			manifest, "tree_digest", json_object_get(marker, "tree_digest"),
			"index_digest",
			hb_json_text(resolved ? resolved
				     : now    ? now
					      : marker,
				     "index_digest", ""),
			"image", name, "platform", json_object_get(marker, "platform"), "settings_sha256",
			w->settings, "operation_id", w->operation_id, "activated_at",
			(json_int_t)hb_now(), "details", details, "spec",
			hb_run_spec_to_json(&spec));
	hb_run_spec_free(&spec);
	if (!out)
		hb_fail(err, "release_broken",
			"the marker of release %s lacks fields; install it again", manifest);
out:
	json_decref(now);
	json_decref(image);
	return out;
}

bool hb_activation_is(const json_t *next)
{
	static const char *const same[] = {"manifest_digest", "index_digest", "spec", NULL};
	json_t *now = NULL;
	bool is;

	if (hb_activation_load(&now, NULL) < 0 || !now)
		return false;
	is = true;
	for (const char *const *key = same; *key; key++)
		is = is && json_equal(json_object_get(now, *key), json_object_get(next, *key));
	json_decref(now);
	return is;
}

/* The state that undoing must write back; `data`: the directory that the new state uses. */
static json_t *remember(const struct hb_store *s, const char *data, struct hb_error *err)
{
	char current[HB_HEX256], previous[HB_HEX256];
	json_t *activation = NULL;
	int holds = data[0] ? hb_data_holds(data, err) : 1;
	bool desired;

	if (holds < 0 || hb_store_link(s, "current", current, err) < 0 ||
	    hb_store_link(s, "previous", previous, err) < 0 || hb_desired_get(&desired, err) < 0 ||
	    hb_activation_load(&activation, err) < 0)
		return NULL;
	return json_pack("{s:s, s:s, s:b, s:o, s:s, s:b}", "current", current, "previous", previous,
			 "desired", desired, "activation", activation ? activation : json_null(),
			 "data_path", data, "data_fresh", holds == 0);
}

static int write_new(struct hb_work *w, const json_t *old, const json_t *next, struct hb_error *err)
{
	const char *manifest = hb_json_text(next, "manifest_digest", "");
	const char *was = hb_json_text(old, "current", "");

	if (state_save(ACTIVATION_PATH, next, err) < 0)
		return -1;
	if (was[0] && strcmp(was, manifest) != 0 &&
	    hb_store_link_set(w->store, "previous", was, err) < 0)
		return -1;
	if (hb_store_link_set(w->store, "current", manifest, err) < 0)
		return -1;
	return hb_desired_set(true, err);
}

/* What a release that never became healthy left in a data directory that was empty before it: the next attempt must
 * begin as this one did, and nothing is thrown away. Where the parent directory may not be written (it holds the state
 * directory), it stays. */
static void set_aside(const json_t *old)
{
	const char *data = hb_json_text(old, "data_path", "");
	char *aside;

	if (!hb_json_bool(old, "data_fresh", false) || !data[0] || hb_data_holds(data, NULL) != 1)
		return;
	aside = hb_asprintf("%s.failed-%lld", data, (long long)hb_now());
	(void)renameat2(AT_FDCWD, data, AT_FDCWD, aside, RENAME_NOREPLACE);
	free(aside);
}

int hb_undo_files(const struct hb_store *s, const json_t *old, struct hb_error *err)
{
	const json_t *snapshot = json_object_get(old, "snapshot");

	if (hb_data_unswap(json_object_get(old, "swap"), err) < 0 ||
	    (snapshot && hb_snapshot_back(snapshot, err) < 0) ||
	    hb_store_link_set(s, "current", hb_json_text(old, "current", ""), err) < 0 ||
	    hb_store_link_set(s, "previous", hb_json_text(old, "previous", ""), err) < 0 ||
	    state_save(ACTIVATION_PATH, json_object_get(old, "activation"), err) < 0)
		return -1;
	set_aside(old);
	return hb_desired_set(hb_json_bool(old, "desired", false), err);
}

static const char *data_of(const json_t *activation)
{
	return hb_json_text(json_object_get(activation, "spec"), "data_dir", "");
}

void hb_undo_clean(const json_t *old, const char *operation_id)
{
	const char *data = hb_json_text(old, "data_path", "");

	if (data[0])
		(void)hb_snapshot_drop(data, operation_id, NULL);
}

int hb_undo(struct hb_work *w, const json_t *old, struct hb_error *trouble, struct hb_error *err)
{
	const json_t *activation = json_object_get(old, "activation");

	memset(trouble, 0, sizeof *trouble);
	if (hb_work_stop_runtime(w, err) < 0 ||
	    hb_undo_files(w->store, old, err) < 0 || hb_work_step(w, "undone", NULL, err) < 0)
		return -1;
	hb_undo_clean(old, w->operation_id);
	if (!json_is_object(activation) || !hb_json_bool(old, "desired", false))
		return 0;
	if (hb_data_check(data_of(activation), false, w->runtime_uid, trouble) == 0)
		(void)hb_work_start_runtime(w, activation, trouble);
	return 0;
}

/* Put everything back after `why`, and say in one message what failed and how things stand. */
static int put_back(struct hb_work *w, const json_t *old, struct hb_error *why)
{
	const char *was = hb_json_text(old, "current", "");
	const char *data = json_object_get(old, "snapshot") ? ", with its data as it left it" : "";
	struct hb_error trouble, undo, first = *why;

	if (hb_undo(w, old, &trouble, &undo) < 0)
		return hb_fail(why, "undo_failed",
			       "%.200s; and the old state couldn't be written back: %.160s. That "
			       "is tried again when "
			       "the installer starts",
			       first.message, undo.message);
	if (trouble.code[0])
		return hb_fail_prefix(
			why, "release %.12s is current again but doesn't start either (%.120s)",
			was, trouble.message);
	if (was[0] == '\0')
		return hb_fail_prefix(why, "not activated, nothing is current");
	return hb_fail_prefix(why, "not activated, release %.12s %s%s", was,
			      hb_json_bool(old, "desired", false) ? "serves as before"
								  : "is current and stopped as before",
			      data);
}

/* --- the data of a switch --- */

/* Whether this switch has to copy the data: not when the release stays and its data too, nor when
 * there is nothing to copy. -1 with err. */
static int copy_needed(const json_t *old, const json_t *next, const char *snapshot,
		       struct hb_error *err)
{
	bool changes = strcmp(hb_json_text(old, "current", ""),
			      hb_json_text(next, "manifest_digest", "")) != 0;
	int holds = hb_data_holds(data_of(next), err);

	return holds < 0 ? -1 : holds && (snapshot || changes);
}

/* Nothing runs now. The copy is journaled before anything may change the data. */
static int copy_data(struct hb_work *w, json_t *old, const char *data, struct hb_error *err)
{
	const json_t *activation = json_object_get(old, "activation");
	const json_t *details = json_object_get(activation, "details");
	json_t *about = json_pack("{s:s, s:s, s:s}", "release", hb_json_text(old, "current", ""),
				  "image", hb_json_text(activation, "image", ""), "version",
				  hb_json_text(details, "version", ""));
	struct hb_progress progress = {.phase = "copy data", .unit = "bytes"};
	json_t *taken = NULL;
	int rc;

	hb_work_progress(w, &progress);
	rc = hb_snapshot_take(data, w->operation_id, about, &taken, err);
	json_decref(about);
	if (rc == 0)
		rc = hb_work_step(w, "snapshot", json_pack("{s:O}", "snapshot", taken), err);
	if (rc == 0)
		json_object_set(old, "snapshot", taken);
	json_decref(taken);
	return rc;
}

/* After the commit: one copy a release is kept, none of a release that ran with other data, none
 * that was put into place. Whatever fails here is only space. */
static json_t *settle_copies(struct hb_work *w, const json_t *old, const char *data,
			     const char *restored)
{
	const char *was = hb_json_text(old, "current", "");
	bool keep = was[0] && strcmp(data_of(json_object_get(old, "activation")), data) == 0;
	json_t *all = hb_snapshot_list(data, NULL), *info, *mine = NULL;
	size_t i;

	json_array_foreach (all, i, info) {
		const char *id = hb_json_text(info, "id", "");
		bool is_mine = strcmp(id, w->operation_id) == 0;
		bool same = strcmp(hb_json_text(info, "release", ""), was) == 0;

		if (is_mine && keep)
			mine = json_incref(info);
		else if (is_mine || (restored && strcmp(id, restored) == 0) ||
			 (same && json_object_get(old, "snapshot")))
			(void)hb_snapshot_drop(data, id, NULL);
	}
	json_decref(all);
	return mine ? mine : json_null();
}

/* --- the switch --- */

/* Everything that is in doubt until it is healthy. */
static int switch_over(struct hb_work *w, json_t *old, const json_t *next, bool copy,
		       const char *snapshot, struct hb_error *err)
{
	const char *data = data_of(next);
	json_t *more;

	if (hb_work_stop_runtime(w, err) < 0 ||
	    (copy && copy_data(w, old, data, err) < 0) ||
	    (snapshot && hb_snapshot_put(data, snapshot, err) < 0) ||
	    write_new(w, old, next, err) < 0 || hb_work_start_runtime(w, next, err) < 0 ||
	    hb_data_note(data, err) < 0)
		return -1;
	more = json_pack("{s:{s:s, s:O}}", "result", "output", "The release is active and healthy.",
			 "manifest_digest", json_object_get(next, "manifest_digest"));
	return hb_work_step(w, "committed", more, err);
}

int hb_activate_with(struct hb_work *w, const json_t *next, const char *snapshot, json_t **kept,
		     struct hb_error *err)
{
	const char *data = data_of(next);
	json_t *old = remember(w->store, data, err), *more, *made = NULL;
	int copy, rc = -1;

	/* Data that is to be replaced by a snapshot may be missing. */
	if (!old || (!snapshot && hb_data_check(data, true, w->runtime_uid, err) < 0))
		goto out;
	copy = copy_needed(old, next, snapshot, err);
	if (copy < 0 ||
	    ((copy || snapshot) && hb_snapshot_space(data, copy, snapshot, 0, err) < 0))
		goto out;
	more = json_pack("{s:O, s:O}", "old", old, "new", json_object_get(next, "manifest_digest"));
	if (hb_work_step(w, "activate", more, err) < 0)
		goto out;
	rc = switch_over(w, old, next, copy, snapshot, err);
	if (rc < 0) {
		put_back(w, old, err);
		goto out;
	}
	made = settle_copies(w, old, data, snapshot);
	if (kept)
		*kept = json_incref(made);
out:
	json_decref(made);
	json_decref(old);
	return rc;
}

int hb_activate(struct hb_work *w, const json_t *next, struct hb_error *err)
{
	return hb_activate_with(w, next, NULL, NULL, err);
}

int hb_deactivate(struct hb_work *w, struct hb_error *err)
{
	json_t *old = remember(w->store, "", err), *more;
	int rc = -1;

	if (!old)
		return -1;
	more = json_pack("{s:O, s:s}", "old", old, "new", "");
	if (hb_work_step(w, "activate", more, err) < 0)
		goto out;
	more = json_pack("{s:{s:s, s:s}}", "result", "output",
			 "The runtime is removed; data and backups are kept.", "manifest_digest",
			 "");
	/* Not wanted any more before it is gone. */
	if (hb_work_stop_runtime(w, err) == 0 &&
	    hb_desired_set(false, err) == 0 && state_save(ACTIVATION_PATH, NULL, err) == 0 &&
	    hb_store_link_set(w->store, "current", "", err) == 0 &&
	    hb_store_link_set(w->store, "previous", "", err) == 0)
		rc = hb_work_step(w, "committed", json_incref(more), err);
	json_decref(more);
	if (rc < 0)
		put_back(w, old, err);
out:
	json_decref(old);
	return rc;
}
