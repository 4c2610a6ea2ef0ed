/* See inventory_check.h. */
#include "onboarding/inventory_check.h"

#include <stdio.h>
#include <string.h>

#include "common/fs.h"
#include "common/json.h"
#include "onboarding/store.h"

/* Nothing was asked of the connection then. */
static bool is_about_us(const char *code)
{
	static const char *const codes[] = {"bad_key_name",	  "key_unknown",  "secret_missing",
					    "secret_permissions", "secret_empty", "key_refused",
					    "not_running",	  "port_in_use",  "unreachable",
					    "wrong_peer",	  "busy",	  "not_found",
					    "bad_request",	  "unauthorized", "forbidden"};

	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
		if (strcmp(codes[i], code) == 0)
			return true;
	return false;
}

/*
 * A query that ran to its end may still have brought an error with it: the runtime hands back what
 * a tool said as a value. No value at all is no proof either; a query has to return something.
 */
static const char *judge_value(const json_t *value)
{
	json_t *ok = json_object_get(value, "ok"), *success = json_object_get(value, "success");
	json_t *error = json_object_get(value, "error"), *flag = json_object_get(value, "isError");

	if (!value || json_is_null(value) || json_is_false(value))
		return "no_result";
	if (json_is_false(ok) || json_is_false(success) || json_is_true(flag) ||
	    (error && !json_is_null(error) && !json_is_false(error)))
		return "query_failed";
	return "";
}

static void decline(const struct hb_check_calls *calls, const struct hb_mcp_options *o,
		    const char *execution, char reason[HB_ERROR_CODE_MAX])
{
	struct hb_mcp_result after = {0};
	struct hb_error err = {0};
	bool gone = calls->resume(o, execution, "decline", NULL, &after, &err) == 0 &&
		    after.state != HB_MCP_PAUSED;

	snprintf(reason, HB_ERROR_CODE_MAX, "%s",
		 gone ? "waits_for_approval" : "waits_and_cannot_be_declined");
	hb_mcp_result_free(&after);
}

int hb_connection_try(const struct hb_check_calls *calls, const struct hb_mcp_options *o,
		      const struct hb_connection *c, enum hb_validation *result,
		      char reason[HB_ERROR_CODE_MAX], struct hb_error *err)
{
	struct hb_mcp_result answer = {0};
	struct hb_error why = {0};

	if (calls->execute(o, c->query, &answer, &why) < 0) {
		if (is_about_us(why.code))
			return hb_fail(err, why.code, "%s", why.message);
		*result = HB_CHECK_FAILED;
		snprintf(reason, HB_ERROR_CODE_MAX, "%s", why.code[0] ? why.code : "failed");
		return 0;
	}
	*result = HB_CHECK_FAILED;
	snprintf(reason, HB_ERROR_CODE_MAX, "query_failed");
	if (answer.state == HB_MCP_PAUSED) {
		*result = HB_CHECK_PAUSED;
		decline(calls, o, answer.execution, reason);
	} else if (answer.state == HB_MCP_OK) {
		snprintf(reason, HB_ERROR_CODE_MAX, "%s", judge_value(answer.value));
		*result = reason[0] ? HB_CHECK_FAILED : HB_CHECK_OK;
	}
	hb_mcp_result_free(&answer);
	return 0;
}

static bool same_connection(const struct hb_connection *a, const struct hb_connection *b)
{
	if (strcmp(a->query, b->query) != 0 || strcmp(a->service, b->service) != 0 ||
	    strcmp(a->identity, b->identity) != 0 || a->scope_count != b->scope_count)
		return false;
	return a->scope_count == 0 ||
	       memcmp(a->scopes, b->scopes, a->scope_count * sizeof *a->scopes) == 0;
}

int hb_connection_record_result(const struct hb_connection *tried, enum hb_validation result,
				const char *reason, int64_t now, bool *recorded,
				struct hb_error *err)
{
	struct hb_inventory inv = {0};
	struct hb_connection *c;
	int lock = -1, rc = -1;

	*recorded = false;
	if (hb_onboarding_lock(&lock, err) < 0)
		return -1;
	if (hb_inventory_load(&inv, err) < 0)
		goto out;
	c = hb_inventory_find(&inv, tried->name);
	if (!c || !same_connection(c, tried)) {
		rc = 0;
		goto out;
	}
	hb_connection_record(c, result, reason, now);
	rc = hb_onboarding_audit("inventory_check", result == HB_CHECK_OK ? "ok" : "failed",
				 c->name, NULL, err) < 0
		     ? -1
		     : hb_inventory_save(&inv, err);
	*recorded = rc == 0;
out:
	hb_inventory_free(&inv);
	hb_close(&lock);
	return rc;
}
