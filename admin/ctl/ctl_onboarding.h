/* What the commands about keys, inventory, guardrails and reviews share. */
#ifndef HB_ADMIN_CTL_ONBOARDING_H
#define HB_ADMIN_CTL_ONBOARDING_H

#include "admin/ctl/ctl.h"
#include "admin/ctl/doctor.h"
#include "onboarding/inventory.h"

/* Enter the state as root, make the directories that are missing, and take the lock unless lock is
 * NULL. */
int ctl_onboarding_open(struct ctl *c, int *lock, struct hb_error *err);

/* Is it one of the two owners of the configuration? Code unknown_owner. */
int ctl_onboarding_owner(struct ctl *c, const char *owner, struct hb_error *err);

/* Write what admin and approver may know of reviews (names and dates) into their directories; under
 * the lock. */
int ctl_reviews_publish(struct ctl *c, struct hb_error *err);

/* {"due":N}, or {"error","code"}, for `status`; NULL where there is no onboarding or it isn't ours
 * to read. */
json_t *ctl_reviews_due(struct ctl *c);

/* The two of the configuration; borrowed. */
struct hb_inventory_owners ctl_onboarding_owners(struct ctl *c);

void ctl_doctor_keys(struct ctl_findings *f);

#endif
