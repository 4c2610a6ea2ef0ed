/*
 * Does each connection still answer? Its validation query runs on the live runtime through the MCP
 * tool `execute`, and what became of it is what is recorded: nothing counts as passed but an answer
 * that says so and holds a result.
 */
#ifndef HB_ONBOARDING_INVENTORY_CHECK_H
#define HB_ONBOARDING_INVENTORY_CHECK_H

#include "onboarding/inventory.h"
#include "onboarding/mcp_call.h"

/* hb_mcp_execute and hb_mcp_resume; others in tests. */
struct hb_check_calls {
	int (*execute)(const struct hb_mcp_options *o, const char *code, struct hb_mcp_result *out,
		       struct hb_error *err);
	int (*resume)(const struct hb_mcp_options *o, const char *execution, const char *action,
		      const char *content, struct hb_mcp_result *out, struct hb_error *err);
};

/*
 * Run one query. 0: *result and reason (a code of ours, "" when ok) are what to record. -1: nothing
 * is known of the connection (the key can't be used, the runtime is not there), and nothing may be
 * recorded. A call that pauses is declined, so that it doesn't wait for ever. Reasons: those of
 * hb_mcp_execute, query_failed, no_result, waits_for_approval, waits_and_cannot_be_declined.
 */
int hb_connection_try(const struct hb_check_calls *calls, const struct hb_mcp_options *o,
		      const struct hb_connection *c, enum hb_validation *result,
		      char reason[HB_ERROR_CODE_MAX], struct hb_error *err);

/* Record it, unless the connection was changed or removed meanwhile (*recorded false). Takes the
 * lock for it. */
int hb_connection_record_result(const struct hb_connection *tried, enum hb_validation result,
				const char *reason, int64_t now, bool *recorded,
				struct hb_error *err);

#endif
