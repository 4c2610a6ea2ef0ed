/*
 * Copies of the data directory taken just before another release is activated: they belong to the
 * release that wrote the data, and are what rolling back "with data" goes back to.
 *
 *   <parent of the data directory>/.hermes-snapshots/<operation id>/data/
 *                                                                  /snapshot.json
 *   {id, release, image, version, data, taken_at, files, bytes}
 *
 * Beside the data, so that putting one back is an exchange of two names, which needs no space and
 * can't be half done. Where that can't be (the data directory is a mount point of its own, or lies
 * directly beside the state directory), the contents are replaced instead, from a copy that stays
 * until the journal says that it was done: that can be interrupted and done again.
 */
#ifndef HB_INSTALLER_SNAPSHOT_H
#define HB_INSTALLER_SNAPSHOT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

/* The directory around `data` that may be changed, or `data` itself when that would be everybody's
 * keys: the state directory (our working directory) or one above it. Absolute; free() it. */
char *hb_data_reach(const char *data);

/* Refuses (not_enough_space, with numbers) when a copy of the data (take) and one of this snapshot
 * (or NULL) don't fit. Nothing is changed. entries_max: as of hb_data_measure, for callers that can't
 * wait. */
int hb_snapshot_space(const char *data, bool take, const char *snapshot, uint64_t entries_max,
		      struct hb_error *err);

/* The payload must be stopped. `about` holds {release, image, version}. *taken gets what the
 * journal needs for hb_snapshot_back: {id, data, dev, ino}. Durable when it returns 0; after a
 * failure nothing of it is left. */
int hb_snapshot_take(const char *data, const char *id, const json_t *about, json_t **taken,
		     struct hb_error *err);
/* Make the data what it was when `taken` was: any number of times, without needing space. The
 * snapshot may be gone afterwards. */
int hb_snapshot_back(const json_t *taken, struct hb_error *err);
/* Replace the data by a copy of this snapshot, which stays as it is. */
int hb_snapshot_put(const char *data, const char *id, struct hb_error *err);

/* What snapshot.json says of all of them, newest first. */
json_t *hb_snapshot_list(const char *data, struct hb_error *err);
/* The newest that belongs to this release; NULL with code no_snapshot. */
json_t *hb_snapshot_of(const char *data, const char *release, struct hb_error *err);
int hb_snapshot_drop(const char *data, const char *id, struct hb_error *err);
/* Remove what interrupted work left: nothing that is listed. */
int hb_snapshot_clean(const char *data, struct hb_error *err);

#endif
