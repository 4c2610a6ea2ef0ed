/* What the commands about keys, inventory, guardrails and reviews share. */
#ifndef HB_ADMIN_CTL_ONBOARDING_H
#define HB_ADMIN_CTL_ONBOARDING_H

#include "admin/ctl/ctl.h"
#include "admin/ctl/doctor.h"

/* Enter the state as root, make the directories that are missing, and take the lock unless lock is NULL. */
int ctl_onboarding_open(struct ctl *c, int *lock, struct hb_error *err);

/* Is it one of the two owners of the configuration? Code unknown_owner. */
int ctl_onboarding_owner(struct ctl *c, const char *owner, struct hb_error *err);

void ctl_doctor_keys(struct ctl_findings *f);

#endif
