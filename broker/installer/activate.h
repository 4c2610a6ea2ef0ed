/*
 * Switching what serves, so that at any instant a crash leaves exactly the old or exactly the new
 * state:
 *
 *   installer/activation.json   what is current and the whole run spec it was activated with
 *   installer/desired.json      {"running":true|false}: the operator's wish, kept over restarts
 *   installer/data.json         {"seen":["/path", ..]}: data directories that have held something
 *   <storage>/current, previous
 *
 * The journal's activate step carries the old values of the first two and of the links, its
 * snapshot step the copy of the data; undoing writes them back, and may be done any number of times.
 */
#ifndef HB_INSTALLER_ACTIVATE_H
#define HB_INSTALLER_ACTIVATE_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "broker/installer/store.h"
#include "broker/installer/work.h"
#include "common/error.h"

/* Absent files: NULL in *out, or not running. Code state_broken. */
int hb_activation_load(json_t **out, struct hb_error *err);
int hb_desired_get(bool *running, struct hb_error *err);
int hb_desired_set(bool running, struct hb_error *err);

/* What activating the release of `marker` with the present settings would be:
 * {manifest_digest, tree_digest, index_digest, image, platform, settings_sha256, operation_id,
 * activated_at, details, spec}; details: what a person was shown of it (hb_spec_describe). */
json_t *hb_activation_make(const struct hb_work *w, const json_t *marker, struct hb_error *err);
/* True when exactly that is active now. */
bool hb_activation_is(const json_t *next);

/* The whole switch, up to healthy or back again. When the release changes, the data is copied while
 * nothing runs; the copy belongs to the release that wrote it. After a failure the old state serves
 * again, with the data as it left it, and the error says so, or says why it doesn't. Codes:
 * data_missing, not_enough_space, those of the supervisor, and those of writing files. */
int hb_activate(struct hb_work *w, const json_t *next, struct hb_error *err);
/* The same, with the data taken from this snapshot (NULL: as it is). `kept` (may be NULL) becomes a
 * new reference to the description of the copy that was made, or JSON null. */
int hb_activate_with(struct hb_work *w, const json_t *next, const char *snapshot, json_t **kept,
		     struct hb_error *err);
/* Remove what is current: stopped, no release active, journaled like a switch. */
int hb_deactivate(struct hb_work *w, struct hb_error *err);

/* Write the old state back (hb_journal_undo): data, links, files. Idempotent, needs no worker, but
 * nothing may run. */
int hb_undo_files(const struct hb_store *s, const json_t *old, struct hb_error *err);
/* Then the copy of the data that the operation made, which nobody needs any more. What can't be
 * removed is only space. */
void hb_undo_clean(const json_t *old, const char *operation_id);
/* Stop, write back, journal, start the old one if it was to run. An old release that doesn't start
 * is no failure of undoing: *trouble (code not empty) tells. */
int hb_undo(struct hb_work *w, const json_t *old, struct hb_error *trouble, struct hb_error *err);

/* A data directory that has held something and now is missing or empty: data_missing, since a
 * payload would set up a fresh, empty installation over a known one. create: make it when it is new
 * (0700, uid). */
int hb_data_check(const char *path, bool create, uid_t uid, struct hb_error *err);
/* 1: holds something, 0: missing or empty, -1: can't tell. */
int hb_data_holds(const char *path, struct hb_error *err);
/* Remember that it holds something, if it does. */
int hb_data_note(const char *path, struct hb_error *err);

#endif
