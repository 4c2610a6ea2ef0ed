/*
 * Switching what serves, so that at any instant a crash leaves exactly the old or exactly the new
 * state:
 *
 *   installer/activation.json   what is current and the whole run spec it was activated with
 *   installer/desired.json      {"running":true|false}: the operator's wish, kept over restarts
 *   installer/data.json         {"seen":["/path", ..]}: data directories that have held something
 *   <storage>/current, previous
 *
 * The journal's activate step carries the old values of the first two and of the links; undoing
 * writes them back, and may be done any number of times.
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
 * activated_at, spec}. */
json_t *hb_activation_make(const struct hb_work *w, const json_t *marker, struct hb_error *err);
/* True when exactly that is active now. */
bool hb_activation_is(const json_t *next);

/* The whole switch, up to healthy or back again. After a failure the old state serves again, and
 * the error says so, or says why it doesn't. Codes: data_missing, those of the supervisor, and
 * those of writing files. */
int hb_activate(struct hb_work *w, const json_t *next, struct hb_error *err);

/* Write the old state back (`old` of the journal's activate step). Idempotent, needs no worker. */
int hb_undo_files(const struct hb_store *s, const json_t *old, struct hb_error *err);
/* Stop, write back, journal, start the old one if it was to run. An old release that doesn't start
 * is no failure of undoing: *trouble (code not empty) tells. */
int hb_undo(struct hb_work *w, const json_t *old, struct hb_error *trouble, struct hb_error *err);

/* A data directory that has held something and now is missing or empty: data_missing, since a
 * payload would set up a fresh, empty installation over a known one. create: make it when it is new
 * (0700, uid). */
int hb_data_check(const char *path, bool create, uid_t uid, struct hb_error *err);
/* Remember that it holds something, if it does. */
int hb_data_note(const char *path, struct hb_error *err);

#endif
