/* Checks that must not pass what did not pass, and what is due to be looked at. */
#include "tests/unit/test_util.h"

#include <sys/stat.h>

#include "common/json.h"
#include "onboarding/inventory_check.h"
#include "onboarding/review.h"
#include "onboarding/store.h"

#define NOW 1800000000LL /* 2027-01-15 */

static const struct hb_inventory_owners owners = {"admin", "owner"};

static struct hb_connection sample(const char *name, const char *service, const char *scope, const char *review_by)
{
	struct hb_connection c = {0};

	ck_works(hb_connection_set(&c, HB_C_NAME, name, err));
	ck_works(hb_connection_set(&c, HB_C_SERVICE, service, err));
	ck_works(hb_connection_set(&c, HB_C_IDENTITY, "ben", err));
	ck_works(hb_connection_set(&c, HB_C_OWNER, "owner", err));
	ck_works(hb_connection_set(&c, HB_C_QUERY, "return 1", err));
	ck_works(hb_connection_set(&c, HB_C_REVIEW_BY, review_by, err));
	ck_works(hb_connection_add_scope(&c, scope, err));
	return c;
}

/* --- checks --- */

static struct {
	int rc;
	const char *code;
	enum hb_mcp_state state;
	const char *value; /* JSON of the result, NULL: none */
	int resume_rc;
	enum hb_mcp_state after;
	int resumed;
} fake;

static int fake_execute(const struct hb_mcp_options *o, const char *code, struct hb_mcp_result *out, struct hb_error *err)
{
	ck_assert_str_eq(code, "return 1");
	if (fake.rc < 0)
		return hb_fail(err, fake.code, "what the runtime says is not to be believed");
	*out = (struct hb_mcp_result){.state = fake.state, .text = hb_strdup("ok"), .execution = hb_strdup("exec-1"),
				      .address = hb_strdup(""),
				      .value = fake.value ? json_loads(fake.value, JSON_DECODE_ANY, NULL) : NULL};
	return 0;
}

static int fake_resume(const struct hb_mcp_options *o, const char *execution, const char *action, const char *content,
		       struct hb_mcp_result *out, struct hb_error *err)
{
	ck_assert_str_eq(execution, "exec-1");
	ck_assert_str_eq(action, "decline");
	ck_assert_ptr_null(content);
	fake.resumed++;
	if (fake.resume_rc < 0)
		return hb_fail(err, "timeout", "no answer");
	*out = (struct hb_mcp_result){.state = fake.after, .text = hb_strdup(""), .execution = hb_strdup(""),
				      .address = hb_strdup("")};
	return 0;
}

static const struct {
	int rc;
	const char *code;
	enum hb_mcp_state state;
	const char *value;
	int want_rc;
	enum hb_validation want;
	const char *reason;
} checks[] = {
	{0, "", HB_MCP_OK, "{\"data\":[]}", 0, HB_CHECK_OK, ""},
	{0, "", HB_MCP_OK, "[]", 0, HB_CHECK_OK, ""},
	{0, "", HB_MCP_OK, "0", 0, HB_CHECK_OK, ""},
	{0, "", HB_MCP_OK, "{\"ok\":true,\"error\":null}", 0, HB_CHECK_OK, ""},
	{0, "", HB_MCP_OK, NULL, 0, HB_CHECK_FAILED, "no_result"},
	{0, "", HB_MCP_OK, "null", 0, HB_CHECK_FAILED, "no_result"},
	{0, "", HB_MCP_OK, "false", 0, HB_CHECK_FAILED, "no_result"},
	{0, "", HB_MCP_OK, "{\"ok\":false}", 0, HB_CHECK_FAILED, "query_failed"},
	{0, "", HB_MCP_OK, "{\"success\":false}", 0, HB_CHECK_FAILED, "query_failed"},
	{0, "", HB_MCP_OK, "{\"isError\":true}", 0, HB_CHECK_FAILED, "query_failed"},
	{0, "", HB_MCP_OK, "{\"error\":{\"code\":401}}", 0, HB_CHECK_FAILED, "query_failed"},
	{0, "", HB_MCP_FAILED, "{\"data\":1}", 0, HB_CHECK_FAILED, "query_failed"},
	{-1, "timeout", HB_MCP_OK, NULL, 0, HB_CHECK_FAILED, "timeout"},
	{-1, "too_large", HB_MCP_OK, NULL, 0, HB_CHECK_FAILED, "too_large"},
	{-1, "bad_reply", HB_MCP_OK, NULL, 0, HB_CHECK_FAILED, "bad_reply"},
	{-1, "mcp_failed", HB_MCP_OK, NULL, 0, HB_CHECK_FAILED, "mcp_failed"},
	{-1, "key_refused", HB_MCP_OK, NULL, -1, 0, ""},
	{-1, "secret_missing", HB_MCP_OK, NULL, -1, 0, ""},
	{-1, "not_running", HB_MCP_OK, NULL, -1, 0, ""},
	{-1, "unreachable", HB_MCP_OK, NULL, -1, 0, ""},
};

static const struct hb_check_calls calls = {fake_execute, fake_resume};

START_TEST(test_only_what_passed_passes)
{
	struct hb_connection c = sample("a", "google", "s", "2030-01-01");
	struct hb_mcp_options o = {.key = "k"};
	enum hb_validation result = HB_NEVER_CHECKED;
	char reason[HB_ERROR_CODE_MAX] = "";
	struct hb_error err = {0};

	memset(&fake, 0, sizeof fake);
	fake.rc = checks[_i].rc;
	fake.code = checks[_i].code;
	fake.state = checks[_i].state;
	fake.value = checks[_i].value;
	ck_assert_int_eq(hb_connection_try(&calls, &o, &c, &result, reason, &err), checks[_i].want_rc);
	ck_assert_int_eq(result, checks[_i].want);
	ck_assert_str_eq(reason, checks[_i].reason);
	ck_assert_int_eq(fake.resumed, 0);
	hb_connection_free(&c);
}
END_TEST

START_TEST(test_paused_is_declined)
{
	struct hb_connection c = sample("a", "google", "s", "2030-01-01");
	struct hb_mcp_options o = {.key = "k"};
	enum hb_validation result;
	char reason[HB_ERROR_CODE_MAX];

	memset(&fake, 0, sizeof fake);
	fake.state = HB_MCP_PAUSED;
	fake.after = HB_MCP_FAILED;
	ck_works(hb_connection_try(&calls, &o, &c, &result, reason, err));
	ck_assert_int_eq(result, HB_CHECK_PAUSED);
	ck_assert_str_eq(reason, "waits_for_approval");
	ck_assert_int_eq(fake.resumed, 1);
	fake.resume_rc = -1;
	ck_works(hb_connection_try(&calls, &o, &c, &result, reason, err));
	ck_assert_str_eq(reason, "waits_and_cannot_be_declined");
	fake.resume_rc = 0;
	fake.after = HB_MCP_PAUSED;
	ck_works(hb_connection_try(&calls, &o, &c, &result, reason, err));
	ck_assert_str_eq(reason, "waits_and_cannot_be_declined");
	hb_connection_free(&c);
}
END_TEST

START_TEST(test_changed_meanwhile_is_not_recorded)
{
	struct hb_connection c = sample("a", "google", "s", "2030-01-01"), other = sample("a", "google", "t", "2030-01-01");
	struct hb_inventory inv = {0};
	bool recorded = true;

	ck_assert_int_eq(mkdir("onboarding", 0700), 0);
	ck_works(hb_connection_record_result(&c, HB_CHECK_OK, "", NOW, &recorded, err));
	ck_assert(!recorded);
	ck_works(hb_inventory_add(&inv, &other, err));
	ck_works(hb_inventory_save(&inv, err));
	ck_works(hb_connection_record_result(&c, HB_CHECK_OK, "", NOW, &recorded, err));
	ck_assert(!recorded);
	ck_works(hb_connection_record_result(&other, HB_CHECK_OK, "", NOW, &recorded, err));
	ck_assert(recorded);
	ck_works(hb_connection_record_result(&other, HB_CHECK_FAILED, "timeout", NOW + 5, &recorded, err));
	hb_inventory_free(&inv);
	ck_works(hb_inventory_load(&inv, err));
	ck_assert_int_eq(inv.items[0].last_validated, NOW);
	ck_assert_int_eq(inv.items[0].checked_at, NOW + 5);
	ck_assert_str_eq(inv.items[0].reason, "timeout");
	hb_inventory_free(&inv);
	hb_connection_free(&c);
	hb_connection_free(&other);
}
END_TEST

/* --- reviews --- */

static bool has(const json_t *items, const char *kind, const char *name, bool due)
{
	const json_t *item;
	size_t i;

	json_array_foreach(items, i, item)
		if (strcmp(hb_json_text(item, "kind", ""), kind) == 0 && strcmp(hb_json_text(item, "name", ""), name) == 0)
			return hb_json_bool(item, "due", !due) == due;
	return false;
}

static json_t *items_of(struct hb_connection *c, const struct hb_guardrails *g)
{
	struct hb_inventory inv = {.items = c, .count = 1};

	return hb_review_items(&inv, NULL, 0, g, &owners, NOW);
}

START_TEST(test_connections)
{
	struct hb_connection c = sample("a", "discord", "read", "2027-01-14");
	json_t *items = items_of(&c, NULL);

	ck_assert(has(items, "overdue", "a", true));
	ck_assert(has(items, "unvalidated", "a", false));
	ck_assert(has(items, "bot", "a", false));
	ck_assert(!has(items, "owner", "a", true));
	ck_assert_uint_eq(hb_review_count_due(items), 1);
	json_decref(items);
	ck_works(hb_connection_set(&c, HB_C_REVIEW_BY, "2027-01-15", err));
	ck_works(hb_connection_set(&c, HB_C_OWNER, "somebody", err));
	hb_connection_record(&c, HB_CHECK_PAUSED, "waits_for_approval", NOW);
	items = items_of(&c, NULL);
	ck_assert(!has(items, "overdue", "a", true));
	ck_assert(has(items, "check", "a", true));
	ck_assert(has(items, "owner", "a", true));
	json_decref(items);
	hb_connection_free(&c);
}
END_TEST

static const struct {
	const char *scope;
	enum hb_scope_power power;
} scopes[] = {
	{"https://www.googleapis.com/auth/calendar.readonly", HB_SCOPE_READ},
	{"https://www.googleapis.com/auth/calendar", HB_SCOPE_WRITE},
	{"https://www.googleapis.com/auth/gmail.send", HB_SCOPE_WRITE},
	{"https://mail.google.com/", HB_SCOPE_ADMIN},
	{"https://www.googleapis.com/auth/admin.directory.user.readonly", HB_SCOPE_ADMIN},
	{"channels:history", HB_SCOPE_READ},
	{"chat:write", HB_SCOPE_WRITE},
	{"incoming-webhook", HB_SCOPE_ADMIN},
	{"MANAGE_GUILD", HB_SCOPE_ADMIN},
	{"data.records:read", HB_SCOPE_READ},
	{"data.records:write", HB_SCOPE_WRITE},
	{"something", HB_SCOPE_UNKNOWN},
};

START_TEST(test_scope_power)
{
	ck_assert_msg(hb_scope_power(scopes[_i].scope) == scopes[_i].power, "%s", scopes[_i].scope);
}
END_TEST

START_TEST(test_scopes_against_guardrails)
{
	struct hb_guardrail_rule reads = {.verdict = HB_VERDICT_ALLOW, .pattern = (char[]){"events.list"}};
	struct hb_guardrail_rule asks = {.verdict = HB_VERDICT_APPROVAL, .pattern = (char[]){"events.create"}};
	struct hb_guardrail file = {.name = (char[]){"calendar"}, .connection = (char[]){"google.*.*"}, .rules = &reads,
				    .rule_count = 1};
	struct hb_guardrails all = {&file, 1};
	struct hb_connection c = sample("a", "google", "https://www.googleapis.com/auth/calendar", "2030-01-01");
	struct hb_connection other = sample("b", "goog", "read", "2030-01-01"), admin = sample("c", "google", "manage_all", "2030-01-01");
	json_t *items = items_of(&c, &all);

	ck_assert(has(items, "scopes", "a", true));
	json_decref(items);
	file.rules = &asks;
	items = items_of(&c, &all);
	ck_assert(!has(items, "scopes", "a", true));
	json_decref(items);
	items = items_of(&admin, &all);
	ck_assert(has(items, "scopes", "c", true));
	json_decref(items);
	items = items_of(&other, &all);
	ck_assert(has(items, "guardrails", "b", true));
	json_decref(items);
	hb_connection_free(&c);
	hb_connection_free(&other);
	hb_connection_free(&admin);
}
END_TEST

START_TEST(test_keys)
{
	struct hb_named_key keys[4] = {
		{.name = "old", .created = NOW - 40 * 86400LL, .present = true, .described = true},
		{.name = "used", .created = NOW - 40 * 86400LL, .last_used = NOW - 86400, .present = true, .described = true},
		{.name = "over", .created = NOW, .expires = "2027-01-01", .present = true, .described = true},
		{.name = "broken", .created = NOW, .trouble = "mode"},
	};
	struct hb_inventory none = {0};
	json_t *items = hb_review_items(&none, keys, 4, NULL, &owners, NOW);

	ck_assert(has(items, "key_unused", "old", true));
	ck_assert(has(items, "key_expired", "over", true));
	ck_assert(has(items, "key", "broken", true));
	ck_assert_uint_eq(json_array_size(items), 3);
	json_decref(items);
}
END_TEST

START_TEST(test_published)
{
	struct hb_connection c = sample("a", "google", "s", "2027-01-20");
	struct hb_inventory inv = {.items = &c, .count = 1};
	struct hb_named_key key = {.name = "k", .created = NOW, .expires = "2027-02-01", .present = true, .described = true};
	struct hb_error err = {0};
	json_t *items, *due;
	struct stat st;
	size_t len;
	char *text;

	ck_assert_int_eq(mkdir("admin", 0700), 0);
	due = hb_reviews_read(HB_REVIEWS_ADMIN, NOW, &err);
	ck_assert_int_eq(hb_json_int(due, "due", -1), 0);
	json_decref(due);
	hb_connection_record(&c, HB_CHECK_FAILED, "timeout", NOW);
	items = hb_review_items(&inv, &key, 1, NULL, &owners, NOW);
	ck_assert_int_eq(hb_reviews_publish(HB_REVIEWS_ADMIN, getuid(), getgid(), items, &inv, &key, 1, &err), 0);
	json_decref(items);
	ck_assert_int_eq(stat(HB_REVIEWS_ADMIN, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0600);
	text = test_read(HB_REVIEWS_ADMIN, &len);
	ck_assert_ptr_null(strstr(text, "ben"));
	ck_assert_ptr_null(strstr(text, "google"));
	ck_assert_ptr_null(strstr(text, "return 1"));
	free(text);
	due = hb_reviews_read(HB_REVIEWS_ADMIN, NOW, &err);
	ck_assert_int_eq(hb_json_int(due, "due", -1), 1); /* the failed check */
	json_decref(due);
	due = hb_reviews_read(HB_REVIEWS_ADMIN, NOW + 7 * 86400, &err);
	ck_assert_int_eq(hb_json_int(due, "due", -1), 2);
	json_decref(due);
	due = hb_reviews_read(HB_REVIEWS_ADMIN, NOW + 30 * 86400LL, &err);
	ck_assert_int_eq(hb_json_int(due, "due", -1), 3);
	json_decref(due);
	test_puts(HB_REVIEWS_ADMIN, "{\"items\":[{\"from\":\"\",\"kind\":\"x\",\"name\":\"<b>SECRET\"}],\"version\":1}");
	ck_assert_ptr_null(hb_reviews_read(HB_REVIEWS_ADMIN, NOW, &err));
	ck_assert_ptr_null(strstr(err.message, "SECRET"));
	chmod(HB_REVIEWS_ADMIN, 0644);
	ck_assert_ptr_null(hb_reviews_read(HB_REVIEWS_ADMIN, NOW, &err));
	ck_assert_str_eq(err.code, "loose_permissions");
	hb_connection_free(&c);
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("review");
	TCase *t = test_case("review");

	tcase_add_loop_test(t, test_only_what_passed_passes, 0, sizeof checks / sizeof checks[0]);
	tcase_add_test(t, test_paused_is_declined);
	tcase_add_test(t, test_changed_meanwhile_is_not_recorded);
	tcase_add_test(t, test_connections);
	tcase_add_loop_test(t, test_scope_power, 0, sizeof scopes / sizeof scopes[0]);
	tcase_add_test(t, test_scopes_against_guardrails);
	tcase_add_test(t, test_keys);
	tcase_add_test(t, test_published);
	suite_add_tcase(s, t);
	return test_run(s);
}
