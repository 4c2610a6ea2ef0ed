/* The life cycle of releases (lifecycle.h). */
#include "broker/installer/lifecycle.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/installer/activate.h"
#include "broker/installer/data_swap.h"
#include "broker/installer/install.h"
#include "broker/installer/seal.h"
#include "broker/installer/snapshot.h"
#include "broker/installer/spec.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"

static double mib(long long bytes)
{
	return (double)bytes / (1 << 20);
}

static json_t *report(struct hb_buf *text, const char *manifest)
{
	json_t *out = json_pack("{s:s, s:s}", "output", text->data ? text->data : "",
				"manifest_digest", manifest);

	hb_buf_free(text);
	return out;
}

/* What became of the data, for the person who reads the outcome. */
static void say_kept(struct hb_buf *text, const json_t *kept)
{
	if (!json_is_object(kept))
		return;
	hb_buf_printf(text,
		      "Data as release %.12s left it: kept as copy %s (%lld files, %.1f MiB); "
		      "`hermesctl runtime rollback --release %s --data restore` goes back to it.\n",
		      hb_json_text(kept, "release", ""), hb_json_text(kept, "id", ""),
		      hb_json_int(kept, "files", 0), mib(hb_json_int(kept, "bytes", 0)),
		      hb_json_text(kept, "release", ""));
}

int hb_work_upgrade(struct hb_work *w, const char *current, json_t **result, struct hb_error *err)
{
	struct hb_installed made = {0};
	struct hb_buf text = HB_BUF_INIT;
	json_t *next = NULL, *kept = NULL;
	int rc = -1;

	/* The old release goes on serving while the new one is fetched and unpacked. */
	if (hb_install_release(w, &made, err) < 0)
		return -1;
	if (strcmp(made.manifest, current) == 0) {
		hb_fail(err, "already_current", "release %s is the current one already", current);
		goto out;
	}
	next = hb_activation_make(w, made.marker, err);
	if (!next || hb_activate_with(w, next, NULL, &kept, err) < 0)
		goto out;
	hb_buf_printf(&text, "Upgraded from release %.12s to %s, which is healthy.\n", current,
		      made.manifest);
	hb_buf_printf(&text, "Tree digest: %s\n", hb_json_text(made.marker, "tree_digest", ""));
	say_kept(&text, kept);
	*result = report(&text, made.manifest);
	json_object_set(*result, "tree_digest", json_object_get(made.marker, "tree_digest"));
	json_object_set_new(*result, "reused", json_boolean(made.reused));
	json_object_set_new(*result, "replaced", json_string(current));
	json_object_set(*result, "snapshot", kept);
	rc = 0;
out:
	hb_installed_free(&made);
	hb_buf_free(&text);
	json_decref(next);
	json_decref(kept);
	return rc;
}

/* --- back --- */

/* A release that has lain on disk counts when its tree is still as recorded. */
static json_t *verified(struct hb_work *w, const char *release, struct hb_error *err)
{
	json_t *marker = hb_store_marker(w->store, release, err);
	struct hb_verify_result v = {0};
	int fd = marker ? hb_store_release_open(w->store, release, err) : -1, rc = -1;

	if (fd >= 0)
		rc = hb_verify_release(w, fd, marker, &v, err);
	hb_close(&fd);
	if (rc == 0 && !v.ok)
		rc = hb_fail(err, "tree_differs",
			     "release %.12s on disk differs from its manifest in %llu places; "
			     "install it again instead",
			     release, (unsigned long long)v.difference_count);
	json_decref(v.differences);
	if (rc == 0)
		return marker;
	json_decref(marker);
	return NULL;
}

/* Release, description and copy of the data are still what was shown. */
static int check_target(struct hb_work *w, const char *current, struct hb_error *err)
{
	static const char *const members[] = {"release", "target", "snapshot"};
	const json_t *sealed = json_object_get(w->request, "sealed");
	json_t *now = hb_seal_rollback(w->store, w->config, w->request, current, err);
	bool same = true;

	if (!now)
		return -1;
	for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
		const json_t *a = json_object_get(now, members[i]);
		const json_t *b = json_object_get(sealed, members[i]);

		same = same && (a == b || json_equal(a, b));
	}
	json_decref(now);
	return same ? 0
		    : hb_fail(err, "sealed_changed",
			      "what this rollback goes back to isn't what was shown; prepare it "
			      "again");
}

static void say_rolled_back(struct hb_buf *text, const char *current, const char *release,
			    const json_t *snapshot)
{
	char when[21];

	hb_buf_printf(text, "Rolled back from release %.12s to %s, which is healthy.\n", current,
		      release);
	if (!snapshot) {
		hb_buf_adds(text, "Data: as the newer release left it.\n");
		return;
	}
	hb_time_rfc3339(hb_json_int(snapshot, "taken_at", 0), when);
	hb_buf_printf(text, "Data: back to the copy of %s; what was written since is not in it.\n",
		      when);
}

int hb_work_rollback(struct hb_work *w, const char *current, json_t **result, struct hb_error *err)
{
	const json_t *sealed = json_object_get(w->request, "sealed");
	const json_t *snapshot = json_object_get(sealed, "snapshot");
	const char *release = hb_json_text(sealed, "release", "");
	struct hb_buf text = HB_BUF_INIT;
	json_t *marker = NULL, *next = NULL, *kept = NULL;
	int rc = -1;

	if (check_target(w, current, err) < 0)
		return -1;
	marker = verified(w, release, err);
	if (marker)
		next = hb_activation_make(w, marker, err);
	if (!next ||
	    hb_activate_with(w, next, snapshot ? hb_json_text(snapshot, "id", "") : NULL, &kept,
			     err) < 0)
		goto out;
	say_rolled_back(&text, current, release, snapshot);
	say_kept(&text, kept);
	*result = report(&text, release);
	json_object_set(*result, "tree_digest", json_object_get(marker, "tree_digest"));
	json_object_set_new(*result, "replaced", json_string(current));
	json_object_set(*result, "snapshot", kept);
	rc = 0;
out:
	json_decref(marker);
	json_decref(next);
	json_decref(kept);
	hb_buf_free(&text);
	return rc;
}

/* --- away --- */

int hb_work_remove(struct hb_work *w, const char *current, json_t **result, struct hb_error *err)
{
	json_t *none = json_array(), *all = hb_store_list(w->store, err);
	size_t releases = json_array_size(all);
	struct hb_buf text = HB_BUF_INIT;
	uint64_t blobs, bytes;
	int rc = -1;

	if (!all || hb_deactivate(w, err) < 0)
		goto out;
	/* It is committed: what can't be removed now is removed when the installer starts. */
	if (hb_store_discard_all(w->store, err) < 0 || hb_store_clean(w->store, err) < 0 ||
	    hb_store_prune_blobs(w->store, none, &blobs, &bytes, err) < 0) {
		hb_fail_prefix(err, "the runtime is stopped and no release is current, but not "
				    "everything could be removed");
		goto out;
	}
	hb_buf_printf(&text,
		      "The runtime is removed: %zu releases and %llu blobs (%.1f MiB). Data and "
		      "backups are kept.\n",
		      releases, (unsigned long long)blobs, mib((long long)bytes));
	*result = report(&text, "");
	json_object_set_new(*result, "replaced", json_string(current));
	rc = 0;
out:
	json_decref(none);
	json_decref(all);
	return rc;
}

/* The list is newest first: the current, the previous, and the newest others up to the number. */
static json_t *choose_kept(const json_t *all, long long number, json_t *others)
{
	json_t *keep = json_array(), *marker;
	size_t i;

	json_array_foreach (all, i, marker)
		if (hb_json_bool(marker, "current", false) ||
		    hb_json_bool(marker, "previous", false))
			json_array_append(keep, marker);
	json_array_foreach (all, i, marker) {
		if (hb_json_bool(marker, "current", false) ||
		    hb_json_bool(marker, "previous", false))
			continue;
		json_array_append((long long)json_array_size(keep) < number ? keep : others,
				  marker);
	}
	return keep;
}

static bool is_kept(const json_t *keep, const char *release)
{
	json_t *marker;
	size_t i;

	json_array_foreach (keep, i, marker)
		if (strcmp(hb_json_text(marker, "manifest_digest", ""), release) == 0)
			return true;
	return false;
}

/* Copies of the data that belong to releases which are gone. */
static int prune_snapshots(const char *data, const json_t *keep, size_t *count, long long *bytes,
			   struct hb_error *err)
{
	json_t *all = hb_snapshot_list(data, err), *info;
	int rc = all ? 0 : -1;
	size_t i;

	json_array_foreach (all, i, info) {
		if (rc < 0 || is_kept(keep, hb_json_text(info, "release", "")))
			continue;
		rc = hb_snapshot_drop(data, hb_json_text(info, "id", ""), err);
		*count += 1;
		*bytes += hb_json_int(info, "bytes", 0);
	}
	json_decref(all);
	return rc;
}

/* Of what restores have set aside, exactly what was shown; the last one stays, for undo. */
static int prune_aside(const struct hb_work *w, const char *data, struct hb_error *err)
{
	const json_t *sealed = json_object_get(w->request, "sealed");
	json_t *now = hb_seal_prune(w->config), *list = json_object_get(now, "set_aside"), *path;
	int rc = 0;
	size_t i;

	if (!json_equal(list, json_object_get(sealed, "set_aside")) ||
	    !json_equal(json_object_get(now, "undo"), json_object_get(sealed, "undo")))
		rc = hb_fail(err, "sealed_changed",
			     "the directories that restores have set aside aren't those that were "
			     "shown; prepare it again");
	json_array_foreach (list, i, path)
		if (rc == 0)
			rc = hb_data_aside_drop(data, json_string_value(path), err);
	json_decref(now);
	return rc;
}

int hb_work_prune(struct hb_work *w, const char *current, json_t **result, struct hb_error *err)
{
	char *data = hb_spec_absolute(hb_config_text(w->config, "runtime.data"));
	json_t *all = hb_store_list(w->store, err), *others = json_array(), *keep = NULL, *marker;
	struct hb_buf text = HB_BUF_INIT;
	uint64_t blobs = 0, blob_bytes = 0;
	long long release_bytes = 0, copy_bytes = 0;
	size_t i, copies = 0, aside;
	int rc = all ? 0 : -1;

	if (rc < 0 || (rc = prune_aside(w, data, err)) < 0)
		goto out;
	keep = choose_kept(all, hb_config_int(w->config, "runtime.keep_releases"), others);
	json_array_foreach (others, i, marker) {
		if (rc == 0)
			rc = hb_store_discard(w->store, hb_json_text(marker, "manifest_digest", ""),
					      err);
		release_bytes += hb_json_int(marker, "bytes", 0);
	}
	if (rc < 0 || hb_store_clean(w->store, err) < 0 ||
	    hb_store_prune_blobs(w->store, keep, &blobs, &blob_bytes, err) < 0 ||
	    prune_snapshots(data, keep, &copies, &copy_bytes, err) < 0) {
		rc = -1;
		goto out;
	}
	aside = json_array_size(
		json_object_get(json_object_get(w->request, "sealed"), "set_aside"));
	hb_buf_printf(&text,
		      "Removed: %zu releases (%.1f MiB), %llu blobs (%.1f MiB), %zu copies of the "
		      "data (%.1f MiB), %zu data directories set aside by restores. Kept: %zu "
		      "releases.\n",
		      json_array_size(others), mib(release_bytes), (unsigned long long)blobs,
		      mib((long long)blob_bytes), copies, mib(copy_bytes), aside,
		      json_array_size(keep));
	*result = report(&text, current);
	json_object_set_new(*result, "releases_removed",
			    json_integer((json_int_t)json_array_size(others)));
	json_object_set_new(*result, "blobs_removed", json_integer((json_int_t)blobs));
	json_object_set_new(*result, "set_aside_removed", json_integer((json_int_t)aside));
out:
	json_decref(all);
	json_decref(others);
	json_decref(keep);
	free(data);
	return rc;
}

/* --- ahead of time --- */

int hb_work_staged(struct hb_work *w, const char *current, json_t **result, struct hb_error *err)
{
	struct hb_installed made = {0};
	struct hb_buf text = HB_BUF_INIT;

	(void)current;
	if (hb_install_release(w, &made, err) < 0)
		return -1;
	hb_buf_printf(&text, "Release %s is %s. Nothing that runs was changed.\n", made.manifest,
		      made.reused ? "on disk already and as recorded" : "staged");
	*result = report(&text, made.manifest);
	json_object_set(*result, "tree_digest", json_object_get(made.marker, "tree_digest"));
	json_object_set_new(*result, "reused", json_boolean(made.reused));
	hb_installed_free(&made);
	return 0;
}
