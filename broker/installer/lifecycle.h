/* The life cycle of releases, as the job worker does it: from one to the next, back, and away. */
#ifndef HB_INSTALLER_LIFECYCLE_H
#define HB_INSTALLER_LIFECYCLE_H

#include "broker/installer/work.h"

/* For the sealed request of `w`, which has been found to be as it was sealed. Codes: those of
 * hb_install_release and hb_activate; already_current, tree_differs, no_snapshot. */
int hb_work_upgrade(struct hb_work *w, const char *current, json_t **result, struct hb_error *err);
int hb_work_rollback(struct hb_work *w, const char *current, json_t **result, struct hb_error *err);
int hb_work_remove(struct hb_work *w, const char *current, json_t **result, struct hb_error *err);
int hb_work_prune(struct hb_work *w, const char *current, json_t **result, struct hb_error *err);
/* Fetched and unpacked, nothing else. */
int hb_work_staged(struct hb_work *w, const char *current, json_t **result, struct hb_error *err);

#endif
