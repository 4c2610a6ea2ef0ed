/*
 * Putting a data directory in the place of another, so that a crash at any instant ends with
 * exactly the old one or, once the journal says so, exactly the new one:
 *
 *   <data>.restore-<operation>/tree   the new one being made, beside the old: the same file system
 *   <data>.before-<operation>         the old one, set aside; kept for undo
 *
 * Both names hold the operation's id, so which of them exist tells how far it came. The object that
 * describes it (in the `old` of the journal's activate step, as "swap") is {path, id, had}.
 */
#ifndef HB_INSTALLER_DATA_SWAP_H
#define HB_INSTALLER_DATA_SWAP_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

/* Can the directory be swapped: refuses mount points and parents
 * that can't be written. *parent_fd: where it lies. Codes: data_not_swappable, data_unusable. */
int hb_data_swap_check(const char *path, const char *id, int *parent_fd, struct hb_error *err);
/* Makes <data>.restore-<id> for the reader with this uid; its descriptor. */
int hb_data_fresh_create(const char *path, const char *id, uid_t uid, struct hb_error *err);
/* What the reader made becomes the payload's: looked through as a whole (only directories, plain
 * files with one name and links, no special bits, all of `from`) and given to `to`; synced. Code
 * unsafe_file. */
int hb_data_fresh_adopt(int fresh_fd, uid_t from, uid_t to, struct hb_error *err);
void hb_data_fresh_remove(const char *path, const char *id);

json_t *hb_data_swap_describe(const char *path, const char *id, struct hb_error *err);
/* The two renames, each synced. */
int hb_data_swap(const json_t *swap, struct hb_error *err);
/* Back to before, from whatever was reached. May be done any number of times. NULL: nothing to do.
 */
int hb_data_unswap(const json_t *swap, struct hb_error *err);

/* Trees being made that a crash left; only those. */
int hb_data_clean(const char *path, struct hb_error *err);
/* Directories set aside: an array of absolute paths, the one of the last restore at the end. */
json_t *hb_data_aside(const char *path);
/* What pruning may take, and what it leaves: {"set_aside":[all but the last], "undo": the last or ""}.
 * At most HB_DATA_ASIDE_MAX at once, the oldest. */
#define HB_DATA_ASIDE_MAX 16 /* all are shown before they are removed */
json_t *hb_data_aside_old(const char *path);
/* Remove one of them. Interrupted, it is finished by hb_data_clean. */
int hb_data_aside_drop(const char *path, const char *aside, struct hb_error *err);

#endif
