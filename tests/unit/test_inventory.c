/* The inventory: fields, file, imports, exports; nothing that was refused is repeated. */
#include "tests/unit/test_util.h"

#include <sys/stat.h>

#include "common/json.h"
#include "onboarding/inventory.h"
#include "onboarding/store.h"

#define SECRET "gh" "p_x7Kd93mQpL2vNwR8sT5uYb1cZe4fGh"

static void make_state(void)
{
	ck_assert_int_eq(mkdir("onboarding", 0700), 0);
}

static struct hb_connection sample(const char *name)
{
	struct hb_connection c = {0};

	ck_works(hb_connection_set(&c, HB_C_NAME, name, err));
	ck_works(hb_connection_set(&c, HB_C_SERVICE, "google", err));
	ck_works(hb_connection_set(&c, HB_C_IDENTITY, "ben@10xn.example", err));
	ck_works(hb_connection_set(&c, HB_C_OWNER, "owner", err));
	ck_works(hb_connection_set(&c, HB_C_QUERY, "return 1 + 1", err));
	ck_works(hb_connection_set(&c, HB_C_REVIEW_BY, "2026-12-31", err));
	ck_works(hb_connection_add_scope(&c, "calendar.readonly", err));
	return c;
}

START_TEST(test_credentials_taken_apart_into_scopes)
{
	static const char *const parts[][2] = {
		{"Bearer", "abcDEF123"}, {"basic", "dXNlcjpwYXNz"}, {"password:", "hunter2"}};

	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		struct hb_connection c = {0};
		struct hb_error err = {0};

		ck_assert_int_eq(hb_connection_add_scope(&c, "calendar.readonly", &err), 0);
		ck_assert_int_eq(hb_connection_add_scope(&c, parts[i][0], &err), 0);
		ck_assert_int_eq(hb_connection_add_scope(&c, parts[i][1], &err), -1);
		ck_assert_str_eq(err.code, "looks_like_credential");
		ck_assert_ptr_null(strstr(err.message, parts[i][1]));
		ck_assert_uint_eq(c.scope_count, 2);
		hb_connection_free(&c);
	}
}
END_TEST

START_TEST(test_save_and_load)
{
	struct hb_connection a = sample("google-ben-10xn"), b = sample("airtable-ops");
	struct hb_inventory inv = {0}, again = {0};
	struct stat st;

	make_state();
	ck_works(hb_inventory_load(&inv, err));
	ck_assert_uint_eq(inv.count, 0);
	ck_works(hb_inventory_add(&inv, &a, err));
	ck_works(hb_inventory_add(&inv, &b, err));
	ck_fails(hb_inventory_add(&inv, &a, err), "exists");
	hb_connection_record(hb_inventory_find(&inv, "airtable-ops"), HB_CHECK_OK, "", 1000);
	hb_connection_record(hb_inventory_find(&inv, "airtable-ops"), HB_CHECK_FAILED, "timeout", 2000);
	ck_works(hb_inventory_save(&inv, err));
	ck_assert_int_eq(stat(HB_INVENTORY_FILE, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0600);
	ck_works(hb_inventory_load(&again, err));
	ck_assert_int_eq(again.generation, 1);
	ck_assert_uint_eq(again.count, 2);
	ck_assert_str_eq(again.items[0].name, "airtable-ops");
	ck_assert_int_eq(again.items[0].last_validated, 1000);
	ck_assert_int_eq(again.items[0].checked_at, 2000);
	ck_assert_int_eq(again.items[0].result, HB_CHECK_FAILED);
	ck_assert_str_eq(again.items[0].reason, "timeout");
	ck_assert_str_eq(again.items[1].scopes[0], "calendar.readonly");
	hb_inventory_drop(&again, &again.items[0]);
	ck_assert_uint_eq(again.count, 1);
	ck_assert_str_eq(again.items[0].name, "google-ben-10xn");
	ck_works(hb_inventory_save(&again, err));
	ck_assert_int_eq(again.generation, 2);
	hb_inventory_free(&inv);
	hb_inventory_free(&again);
	hb_connection_free(&a);
	hb_connection_free(&b);
}
END_TEST

/* What is in the file is judged like what is typed. */
static const struct {
	const char *from, *to;
} damages[] = {
	{"\"google\"", "\"goo gle\""},
	{"ben@10xn.example", SECRET},
	{"return 1 + 1", "password=hunter2"},
	{"calendar.readonly", "https://user:pw@example.org"},
	{"\"never\"", "\"ok\""},
	{"\"never\"", "\"passed\""},
	{"\"reason\":\"\"", "\"reason\":\"" SECRET "\""},
	{"\"last_validated\":0", "\"last_validated\":77"},
	{"\"last_validated\":0", "\"last_validated\":0,\"" SECRET "\":1"},
	{"\"owner\":\"owner\",", ""},
	{"\"version\":1", "\"version\":2"},
	{"\"generation\":1", "\"generation\":0"},
	{"\"seen\":0", "\"seen\":0,\"x\":1"},
	{"2026-12-31", "2026-12-32"},
	{"{\"", "{\"" SECRET "\":1,\"" SECRET "\":1,\""},
	{"{\"", SECRET "{\""},
	{"google", "\xff\xfe"},
};

START_TEST(test_damaged_file_is_refused)
{
	struct hb_connection a = sample("google-ben-10xn");
	struct hb_inventory inv = {0};
	struct hb_error err = {0};
	struct hb_buf text = HB_BUF_INIT;
	char *old, *at;
	size_t len;

	make_state();
	ck_assert_int_eq(hb_inventory_add(&inv, &a, NULL), 0);
	ck_assert_int_eq(hb_inventory_save(&inv, NULL), 0);
	hb_inventory_free(&inv);
	old = test_read(HB_INVENTORY_FILE, &len);
	at = strstr(old, damages[_i].from);
	ck_assert_ptr_nonnull(at);
	hb_buf_add(&text, old, (size_t)(at - old));
	hb_buf_adds(&text, damages[_i].to);
	hb_buf_adds(&text, at + strlen(damages[_i].from));
	test_write(HB_INVENTORY_FILE, text.data, text.len);
	ck_assert_int_eq(hb_inventory_load(&inv, &err), -1);
	ck_assert_ptr_nonnull(strstr(err.message, HB_INVENTORY_FILE));
	ck_assert_ptr_null(strstr(err.message, SECRET));
	ck_assert_ptr_null(strstr(err.message, "hunter2"));
	ck_assert_ptr_null(strstr(err.message, "user:pw"));
	ck_assert_uint_eq(inv.count, 0);
	hb_buf_free(&text);
	free(old);
	hb_connection_free(&a);
}
END_TEST

START_TEST(test_loose_file_is_refused)
{
	struct hb_inventory inv = {0};

	make_state();
	ck_works(hb_inventory_save(&inv, err));
	chmod(HB_INVENTORY_FILE, 0640);
	ck_fails(hb_inventory_load(&inv, err), "loose_permissions");
	chmod(HB_INVENTORY_FILE, 0600);
	ck_assert_int_eq(link(HB_INVENTORY_FILE, "onboarding/other"), 0);
	ck_fails(hb_inventory_load(&inv, err), "loose_permissions");
	unlink(HB_INVENTORY_FILE);
	ck_assert_int_eq(symlink("other", HB_INVENTORY_FILE), 0);
	ck_fails(hb_inventory_load(&inv, err), "unsafe_path");
	unlink(HB_INVENTORY_FILE);
	ck_assert_int_eq(mkfifo(HB_INVENTORY_FILE, 0600), 0);
	ck_fails(hb_inventory_load(&inv, err), "loose_permissions");
}
END_TEST

START_TEST(test_fields)
{
	struct hb_connection c = sample("x");
	char longer[HB_QUERY_MAX + 2];

	memset(longer, 'a', sizeof longer);
	longer[HB_QUERY_MAX + 1] = '\0';
	ck_fails(hb_connection_set(&c, HB_C_NAME, "Google", err), "bad_name");
	ck_fails(hb_connection_set(&c, HB_C_SERVICE, "a/b", err), "bad_name");
	ck_fails(hb_connection_set(&c, HB_C_IDENTITY, "", err), "bad_text");
	ck_fails(hb_connection_set(&c, HB_C_IDENTITY, " ben", err), "bad_text");
	ck_fails(hb_connection_set(&c, HB_C_IDENTITY, "a\nb", err), "bad_text");
	ck_fails(hb_connection_set(&c, HB_C_IDENTITY, "a\xe2\x80\xae" "b", err), "bad_text"); /* right-to-left override */
	ck_fails(hb_connection_set(&c, HB_C_IDENTITY, "a\x1b[2J", err), "bad_text");
	ck_fails(hb_connection_set(&c, HB_C_IDENTITY, "a\xff", err), "bad_text");
	ck_fails(hb_connection_set(&c, HB_C_IDENTITY, "https://u:p@h", err), "looks_like_credential");
	ck_fails(hb_connection_set(&c, HB_C_QUERY, longer, err), "bad_text");
	ck_fails(hb_connection_set(&c, HB_C_REVIEW_BY, "31.12.2026", err), "bad_date");
	ck_fails(hb_connection_add_scope(&c, "a b", err), "bad_text");
	ck_fails(hb_connection_add_scope(&c, "", err), "bad_text");
	ck_fails(hb_connection_add_scope(&c, "calendar.readonly", err), "bad_text");
	ck_fails(hb_connection_add_scope(&c, SECRET, err), "looks_like_credential");
	for (int i = 1; i < HB_SCOPES_MAX; i++) {
		char scope[16];
		snprintf(scope, sizeof scope, "scope-%d", i);
		ck_works(hb_connection_add_scope(&c, scope, err));
	}
	ck_fails(hb_connection_add_scope(&c, "one-more", err), "too_many");
	/* All of that left it as it was. */
	ck_assert_str_eq(c.identity, "ben@10xn.example");
	ck_assert_str_eq(c.name, "x");
	hb_connection_free(&c);
}
END_TEST

#define ITEM(name, identity)                                                                                            \
	"{\"name\":\"" name "\",\"service\":\"google\",\"identity\":\"" identity "\",\"owner\":\"owner\",\"scopes\":[\"a\"],"     \
	"\"query\":\"return 1\",\"review_by\":\"2026-12-31\"}"

static int json(const char *text, struct hb_inventory *out, struct hb_error *err)
{
	return hb_inventory_read_json(text, strlen(text), out, err);
}

static int csv(const char *text, struct hb_inventory *out, struct hb_error *err)
{
	return hb_inventory_read_csv(text, strlen(text), out, err);
}

START_TEST(test_json_import)
{
	struct hb_inventory list = {0};

	ck_works(json("{\"connections\":[\n" ITEM("a", "x{[\\\"]}") ",\n\n" ITEM("b", "y") "\n]}", &list, err));
	ck_assert_uint_eq(list.count, 2);
	ck_assert_int_eq(list.items[0].line, 2);
	ck_assert_int_eq(list.items[1].line, 4);
	ck_assert_str_eq(list.items[0].identity, "x{[\"]}");
	ck_assert_int_eq(list.items[0].result, HB_NEVER_CHECKED);
	hb_inventory_free(&list);
	ck_works(json("{\"connections\":[]}", &list, err));
	ck_assert_uint_eq(list.count, 0);
}
END_TEST

#define HEADER "name,service,identity,owner,scopes,query,review_by\n"

START_TEST(test_csv_import)
{
	struct hb_inventory list = {0};

	ck_works(csv("\xef\xbb\xbf" HEADER "a,google,ben,owner,s1 s2,\"return \"\"x\"\", 1\",2026-12-31\r\n\r\n"
		     "b,google,ben,owner,,return 1,2026-12-31", &list, err));
	ck_assert_uint_eq(list.count, 2);
	ck_assert_str_eq(list.items[0].query, "return \"x\", 1");
	ck_assert_uint_eq(list.items[0].scope_count, 2);
	ck_assert_uint_eq(list.items[1].scope_count, 0);
	ck_assert_int_eq(list.items[0].line, 2);
	ck_assert_int_eq(list.items[1].line, 4);
	hb_inventory_free(&list);
}
END_TEST

static const struct {
	bool csv;
	const char *text, *code, *says;
} bad[] = {
	{false, "{", "bad_json", "line 1"},
	{false, "[]", "bad_json", "object"},
	{false, "{\"connections\":[\n\n" SECRET, "bad_json", "line 3"},
	{false, "{\"connections\":{}}", "bad_json", "line 1"},
	{false, "{\"connections\":[],\"" SECRET "\":1}", "bad_json", "nothing else"},
	{false, "{\"" SECRET "\":1,\"" SECRET "\":2}", "duplicate_key", "twice"},
	{false, "{\"connections\":[\n" ITEM("a", "x") ",\n" ITEM("a", "y") "]}", "duplicate_name", "line 3: the name a stands in line 2"},
	{false, "{\"connections\":[\n" ITEM("a", SECRET) "]}", "looks_like_credential", "line 2: identity"},
	{false, "{\"connections\":[\n" ITEM("a", "x") ",\n" ITEM(SECRET, "y") "]}", "bad_name", "line 3: name"},
	{false, "{\"connections\":[\n{\"" SECRET "\":1}]}", "unknown_field", "line 2"},
	{false, "{\"connections\":[\n{\"name\":1}]}", "bad_type", "line 2"},
	{false, "{\"connections\":[\n{\"name\":\"a\"}]}", "missing_field", "line 2"},
	{false, "{\"connections\":[\n3]}", "bad_type", "object"},
	{false, "{\"connections\":[\n" ITEM("a", "\xff") "]}", "bad_text", "line 2"},
	{false, "{\"connections\":[\n" ITEM("a", "\\u0000") "]}", "bad_json", "line 2"},
	{false, "{\"connections\":[\n" ITEM("a", "\\ud800") "]}", "bad_json", "line 2"},
	{true, "", "unknown_field", "line 1"},
	{true, "name\n", "missing_field", "line 1"},
	{true, "name,name\n", "unknown_field", "column 2"},
	{true, SECRET ",name\n", "unknown_field", "column 1"},
	{true, HEADER "a,google,ben,owner,s,return 1\n", "bad_csv", "line 2: it has 6 cells"},
	{true, HEADER "a,google,ben,owner,s,return 1,2026-12-31,x\n", "bad_csv", "line 2"},
	{true, HEADER "a,google,\"ben,owner,s,return 1,2026-12-31\n", "bad_csv", "line 2: a quoted cell"},
	{true, HEADER "a,google,\"ben\"x,owner,s,return 1,2026-12-31\n", "bad_csv", "line 2"},
	{true, HEADER "a,google,b\"en,owner,s,return 1,2026-12-31\n", "bad_csv", "line 2"},
	{true, HEADER "a,google,b\ren,owner,s,return 1,2026-12-31\n", "bad_csv", "line 2"},
	{true, HEADER "\na,google,ben,owner,s,return 1,2026-12-31\na,google,ben,owner,s,return 1,2026-12-31\n", "duplicate_name",
	 "line 4: the name a stands in line 3"},
	{true, HEADER "a,google,ben,owner,s " SECRET ",return 1,2026-12-31\n", "looks_like_credential", "line 2: scopes"},
	{true, HEADER "a,google,ben,owner,s,\"password: " SECRET "\",2026-12-31\n", "looks_like_credential", "line 2: query"},
	{true, HEADER "a,google,ben,owner,s,return 1," SECRET "\n", "bad_date", "line 2: review_by"},
	{true, HEADER "a,google,,owner,s,return 1,2026-12-31\n", "bad_text", "line 2: identity"},
	{true, HEADER "a,google,b\xc0\xaf,owner,s,return 1,2026-12-31\n", "bad_text", "line 2"},
};

START_TEST(test_bad_imports)
{
	struct hb_inventory list = {0};
	struct hb_error err = {0};

	ck_assert_int_eq((bad[_i].csv ? csv : json)(bad[_i].text, &list, &err), -1);
	ck_assert_msg(strcmp(err.code, bad[_i].code) == 0, "%s: %s (%s)", bad[_i].text, err.code, err.message);
	ck_assert_msg(strstr(err.message, bad[_i].says) != NULL, "%s: %s", bad[_i].text, err.message);
	ck_assert_ptr_null(strstr(err.message, "x7Kd93"));
	ck_assert_uint_eq(list.count, 0);
}
END_TEST

START_TEST(test_huge_imports)
{
	struct hb_inventory list = {0};
	struct hb_buf text = HB_BUF_INIT;
	char *much = calloc(1, HB_IMPORT_MAX + 2);

	memset(much, 'x', HB_IMPORT_MAX + 1);
	ck_fails(csv(much, &list, err), "too_large");
	ck_fails(json(much, &list, err), "too_large");
	free(much);
	/* A cell that would take long to judge isn't. */
	hb_buf_adds(&text, HEADER "a,google,ben,owner,");
	for (int i = 0; i < 500000; i++)
		hb_buf_adds(&text, "a-");
	hb_buf_adds(&text, ",return 1,2026-12-31\n");
	ck_fails(csv(text.data, &list, err), "too_many");
	hb_buf_clear(&text);
	hb_buf_adds(&text, HEADER);
	for (int i = 0; i <= HB_CONNECTIONS_MAX; i++)
		hb_buf_printf(&text, "a%d,google,ben,owner,s,return 1,2026-12-31\n", i);
	ck_fails(csv(text.data, &list, err), "too_many");
	ck_assert_uint_eq(list.count, 0);
	hb_buf_free(&text);
}
END_TEST

START_TEST(test_exports_are_defused)
{
	static const struct hb_inventory_owners owners = {"admin", "owner"};
	struct hb_connection c = sample("a");
	struct hb_inventory inv = {0};
	struct hb_buf md = HB_BUF_INIT, text = HB_BUF_INIT;

	ck_works(hb_connection_set(&c, HB_C_IDENTITY, "=cmd|' /C calc'!A0", err));
	ck_works(hb_connection_set(&c, HB_C_QUERY, "<b>|[x](javascript:1)\"`", err));
	ck_works(hb_connection_add_scope(&c, "@SUM(1)", err));
	ck_works(hb_inventory_add(&inv, &c, err));
	hb_inventory_csv(&inv, &text);
	ck_assert_ptr_nonnull(strstr(text.data, "\"'=cmd|' /C calc'!A0\""));
	ck_assert_ptr_nonnull(strstr(text.data, "\"<b>|[x](javascript:1)\"\"`\""));
	ck_assert_ptr_null(strstr(text.data, ",="));
	ck_assert_ptr_null(strstr(text.data, "\"="));
	hb_inventory_markdown(&inv, &owners, 0, &md);
	ck_assert_ptr_nonnull(strstr(md.data, "\\<b\\>\\|\\[x\\]\\(javascript\\:1\\)\"\\`"));
	ck_assert_ptr_null(strstr(md.data, "<b>"));
	ck_assert_ptr_nonnull(strstr(md.data, " never | never | 2026-12-31 |"));
	hb_buf_clear(&md);
	hb_inventory_markdown(&inv, &owners, 4102444800, &md);
	ck_assert_ptr_nonnull(strstr(md.data, "2026-12-31, overdue"));
	hb_buf_free(&md);
	hb_buf_free(&text);
	hb_inventory_free(&inv);
	hb_connection_free(&c);
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("inventory");
	TCase *t = test_case("inventory");

	tcase_add_test(t, test_credentials_taken_apart_into_scopes);
	tcase_add_test(t, test_save_and_load);
	tcase_add_loop_test(t, test_damaged_file_is_refused, 0, sizeof damages / sizeof damages[0]);
	tcase_add_test(t, test_loose_file_is_refused);
	tcase_add_test(t, test_fields);
	tcase_add_test(t, test_json_import);
	tcase_add_test(t, test_csv_import);
	tcase_add_loop_test(t, test_bad_imports, 0, sizeof bad / sizeof bad[0]);
	tcase_add_test(t, test_huge_imports);
	tcase_add_test(t, test_exports_are_defused);
	suite_add_tcase(s, t);
	return test_run(s);
}
