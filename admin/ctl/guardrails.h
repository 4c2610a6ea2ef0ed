/* Shared by the files of hermesctl guardrails. */
#ifndef HB_ADMIN_CTL_GUARDRAILS_H
#define HB_ADMIN_CTL_GUARDRAILS_H

#include <jansson.h>

#include "common/error.h"

/* What the last check left; new reference. Code not_found: there was none. */
json_t *ctl_guardrails_record(struct hb_error *err);
/* The title and an entry a line (paths, rules, or rules with a problem), when there are any. */
void ctl_guardrails_print(const char *title, const json_t *list);

#endif
