/* Shared by the files of hermesctl guardrails and acceptance. */
#ifndef HB_ADMIN_CTL_GUARDRAILS_H
#define HB_ADMIN_CTL_GUARDRAILS_H

#include <jansson.h>

#include "admin/ctl/ctl.h"
#include "common/error.h"
#include "onboarding/keys.h"

/* What the last check left; new reference. Code not_found: there was none. */
json_t *ctl_guardrails_record(struct hb_error *err);
/* The title and an entry a line (paths, rules, or rules with a problem), when there are any. */
void ctl_guardrails_print(const char *title, const json_t *list);

/* The name of the key to ask the runtime with: the one given, else runtime.mcp_key, else the only one
 * there is. Code key_unknown. */
int ctl_onboarding_key(struct ctl *c, const char *given, char out[HB_ONBOARDING_NAME_MAX],
		       struct hb_error *err);

#endif
