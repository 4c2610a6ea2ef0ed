/*
 * Backups as the job worker makes, checks and restores them.
 *
 * Making one is in two parts, so that the service is down only for the first: the draft is written
 * while the service is stopped; it is read back, encrypted, put in its place and recorded while it
 * runs again. Restoring is in two parts as well: everything is read, checked and laid out beside
 * the data before anything live is touched; then the two directories change places under the
 * journal (data_swap.h).
 */
#ifndef HB_INSTALLER_BACKUP_H
#define HB_INSTALLER_BACKUP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "broker/installer/backup_store.h"
#include "broker/installer/work.h"

struct hb_backup_draft;

/* Is there room for a backup of the data as it is now (an estimate, the service may run)? Code
 * not_enough_space, with numbers. entries_max: look at no more (0: at all), which can only find the
 * room sufficient when it isn't; for callers that can't wait. */
int hb_backup_room(const struct hb_backup_store *store, bool encrypts, const char *data,
		   uint64_t entries_max, struct hb_error *err);
/* The service is stopped. Codes: data_missing, data_changed, unsafe_link, unsafe_file,
 * not_enough_space, disk_full. */
int hb_backup_begin(struct hb_work *w, const char *data, struct hb_backup_draft **out,
		    struct hb_error *err);
/* Read back, checked, encrypted if so configured, in its place, recorded; old ones beyond
 * runtime.backup_keep and runtime.backup_max_age are removed, but none that `except`
 * (NULL-terminated, may be NULL) names. *record is a new object (backup_store.h) with "removed":
 * [names]. Codes: those of the reader, age_failed, disk_full. */
int hb_backup_finish(struct hb_work *w, struct hb_backup_draft *d, const char *const *except,
		     json_t **record, struct hb_error *err);
/* Also removes what is left of it. */
void hb_backup_draft_free(struct hb_work *w, struct hb_backup_draft *d);
/* Both, for callers to whom the difference doesn't matter. */
int hb_backup_create(struct hb_work *w, const char *data, const char *const *except,
		     json_t **record, struct hb_error *err);

/* Read an archive whole and check it; its record is made or renewed. An encrypted one can only be
 * hashed against its record. */
int hb_backup_verify(struct hb_work *w, const char *name, json_t **record, struct hb_error *err);

/* Everything of it as dest_fd/tree, which afterwards belongs to the runtime: dest_fd is an empty
 * directory of the unpack worker (hb_data_fresh_create). The bytes must have the hash `sha256`.
 * *head is what the archive says of itself. Codes: sealed_changed, backup_encrypted,
 * not_enough_space, those of the reader. */
int hb_backup_restore_into(struct hb_work *w, const char *name, const char *sha256, int dest_fd,
			   json_t **head, struct hb_error *err);

/* The operations: runtime backup, runtime restore; and the job that checks one, request {kind,
 * backup}. */
int hb_work_backup(struct hb_work *w, const char *current, json_t **result, struct hb_error *err);
int hb_work_restore(struct hb_work *w, const char *current, json_t **result, struct hb_error *err);
int hb_work_drill(struct hb_work *w, const char *name, json_t **result, struct hb_error *err);
int hb_work_backup_check(struct hb_work *w, json_t **result, struct hb_error *err);

#endif
