/* Named keys: stored 0600 for their reader, described without them, refused when anything is loose. */
#include "tests/unit/test_util.h"

#include <sys/stat.h>

#include "common/ids.h"
#include "onboarding/keys.h"
#include "onboarding/store.h"

#define KEY "abcd-0123-wxyz"

static void make_state(void)
{
	ck_assert_int_eq(mkdir("onboarding", 0700), 0);
	ck_assert_int_eq(mkdir("installer", 0700), 0);
	ck_assert_int_eq(mkdir("probe", 0700), 0);
	ck_assert_int_eq(mkdir("probe/keys", 0700), 0);
}

static int set(const char *name, const char *purpose, const char *owner, const char *expires, const char *key,
	       struct hb_error *err)
{
	struct hb_named_key_set s = {name, purpose, owner, expires};
	char text[HB_KEY_TEXT_MAX + 10];
	struct hb_secret secret = {text, strlen(key)};
	bool replaced;

	snprintf(text, sizeof text, "%s", key);
	return hb_named_key_set(&s, &secret, "admin", getuid(), getgid(), &replaced, err);
}

static int list(struct hb_named_key *keys)
{
	struct hb_error err = {0};
	int n = hb_named_keys_list(getuid(), keys, 8, &err);

	ck_assert_msg(n >= 0, "%s", err.message);
	return n;
}

START_TEST(test_set_list_remove)
{
	struct hb_named_key keys[8];
	struct hb_secret got = {0};
	struct stat st;
	size_t len;
	char *text;

	make_state();
	ck_assert_int_eq(list(keys), 0);
	ck_works(set("hermes-miles", "daily work", "owner", "2026-12-31", KEY, err));
	ck_works(set("codex-onboarding", NULL, NULL, NULL, "another-key-1", err));
	ck_assert_int_eq(stat("probe/keys/hermes-miles", &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(list(keys), 2);
	ck_assert_str_eq(keys[0].name, "codex-onboarding");
	ck_assert_str_eq(keys[0].owner, "admin");
	ck_assert_str_eq(keys[1].purpose, "daily work");
	ck_assert_str_eq(keys[1].owner, "owner");
	ck_assert_str_eq(keys[1].expires, "2026-12-31");
	ck_assert(keys[1].present && keys[1].described && keys[1].last_used == 0);
	ck_works(hb_named_key_read("hermes-miles", getuid(), &got, err));
	ck_assert_str_eq(got.text, KEY);
	hb_secret_free(&got);
	/* Neither the key nor its beginning is in what describes it or records it. */
	text = test_read(HB_KEYS_FILE, &len);
	ck_assert_ptr_null(strstr(text, "abcd"));
	free(text);
	text = test_read(HB_ONBOARDING_AUDIT, &len);
	ck_assert_ptr_null(strstr(text, "abcd"));
	ck_assert_ptr_nonnull(strstr(text, "key_set"));
	ck_assert_ptr_nonnull(strstr(text, "hermes-miles"));
	free(text);
	ck_works(hb_named_key_remove("hermes-miles", err));
	ck_assert_int_eq(list(keys), 1);
	ck_assert_int_eq(access("probe/keys/hermes-miles", F_OK), -1);
	ck_fails(hb_named_key_remove("hermes-miles", err), "not_found");
	ck_fails(hb_named_key_read("hermes-miles", getuid(), &got, err), "key_unknown");
}
END_TEST

START_TEST(test_replacing_keeps_the_description)
{
	struct hb_named_key keys[8];
	struct hb_secret got = {0};

	make_state();
	ck_works(set("k", "daily work", "owner", "2026-12-31", KEY, err));
	ck_works(set("k", NULL, NULL, "", "new-key-12345", err));
	ck_assert_int_eq(list(keys), 1);
	ck_assert_str_eq(keys[0].purpose, "daily work");
	ck_assert_str_eq(keys[0].owner, "owner");
	ck_assert_str_eq(keys[0].expires, "");
	ck_works(hb_named_key_read("k", getuid(), &got, err));
	ck_assert_str_eq(got.text, "new-key-12345");
	hb_secret_free(&got);
}
END_TEST

START_TEST(test_refusals)
{
	static const char *const names[] = {"", "A", "a b", "../x", "a--b", "a-", "-a", "1a", "a/b", "a.b", "\xc3\xa9"};
	char longer[HB_KEY_TEXT_MAX + 2];
	struct hb_named_key keys[8];

	make_state();
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		ck_fails(set(names[i], NULL, NULL, NULL, KEY, err), "bad_name");
	ck_fails(set("k", NULL, NULL, NULL, "short", err), "bad_key");
	ck_fails(set("k", NULL, NULL, NULL, "with a blank in it", err), "bad_key");
	ck_fails(set("k", NULL, NULL, NULL, "two\nlines-of-it", err), "bad_key");
	memset(longer, 'x', sizeof longer);
	longer[HB_KEY_TEXT_MAX + 1] = '\0';
	ck_fails(set("k", NULL, NULL, NULL, longer, err), "bad_key");
	ck_fails(set("k", "password=hunter2", NULL, NULL, KEY, err), "looks_like_credential");
	ck_fails(set("k", NULL, "Owner", NULL, KEY, err), "bad_name");
	ck_fails(set("k", NULL, NULL, "2026-02-29", KEY, err), "bad_date");
	ck_fails(set("k", NULL, NULL, "soon", KEY, err), "bad_date");
	ck_assert_int_eq(list(keys), 0);
}
END_TEST

START_TEST(test_loose_files_are_refused)
{
	struct hb_named_key keys[8];
	struct hb_secret got = {0};
	struct hb_error why = {0};

	make_state();
	ck_works(set("k", NULL, NULL, NULL, KEY, err));
	chmod("probe/keys/k", 0640);
	ck_fails(hb_named_key_read("k", getuid(), &got, err), "secret_permissions");
	ck_assert_int_eq(list(keys), 1);
	ck_assert(!keys[0].present && keys[0].trouble[0]);
	unlink("probe/keys/k");
	ck_assert_int_eq(symlink("../../onboarding/keys.json", "probe/keys/k"), 0);
	ck_fails(hb_named_key_read("k", getuid(), &got, err), "secret_permissions");
	chmod(HB_KEYS_FILE, 0644);
	ck_fails(hb_named_keys_list(getuid(), keys, 8, err), "loose_permissions");
	ck_fails(set("other", NULL, NULL, NULL, KEY, err), "loose_permissions");
	chmod(HB_KEYS_FILE, 0600);
	test_puts(HB_KEYS_FILE, "{\"SECRET-IN-FILE\":1,\"SECRET-IN-FILE\":2}");
	chmod(HB_KEYS_FILE, 0600);
	ck_assert_int_eq(hb_named_keys_list(getuid(), keys, 8, &why), -1);
	ck_assert_ptr_null(strstr(why.message, "SECRET"));
	test_puts(HB_KEYS_FILE, "{\"generation\":1,\"keys\":[{\"SECRET\":1}],\"version\":1}");
	ck_assert_int_eq(hb_named_keys_list(getuid(), keys, 8, &why), -1);
	ck_assert_ptr_null(strstr(why.message, "SECRET"));
}
END_TEST

START_TEST(test_use_is_noted)
{
	struct hb_named_key keys[8];
	int64_t before = hb_now();

	make_state();
	ck_works(set("k", NULL, NULL, NULL, KEY, err));
	hb_named_key_used("k");
	ck_assert_int_eq(list(keys), 1);
	ck_assert(keys[0].last_used >= before);
	/* What is on disk is damaged: noted afresh. */
	test_puts(HB_KEYS_USE_FILE, "{");
	chmod(HB_KEYS_USE_FILE, 0600);
	ck_assert_int_eq(list(keys), 1);
	ck_assert_int_eq(keys[0].last_used, 0);
	hb_named_key_used("k");
	list(keys);
	ck_assert(keys[0].last_used >= before);
	/* Of an earlier key with that name. */
	test_puts(HB_KEYS_USE_FILE, "{\"k\":1000}");
	chmod(HB_KEYS_USE_FILE, 0600);
	list(keys);
	ck_assert_int_eq(keys[0].last_used, 0);
}
END_TEST

START_TEST(test_files_without_description_are_seen)
{
	struct hb_named_key keys[8];

	make_state();
	test_puts("probe/keys/stray", KEY);
	chmod("probe/keys/stray", 0600);
	test_puts("probe/keys/.hidden", KEY);
	ck_assert_int_eq(list(keys), 1);
	ck_assert_str_eq(keys[0].name, "stray");
	ck_assert(keys[0].present && !keys[0].described && keys[0].trouble[0]);
	ck_works(hb_named_key_remove("stray", err));
	ck_assert_int_eq(list(keys), 0);
}
END_TEST

START_TEST(test_dates)
{
	ck_works(hb_onboarding_date("x", "2028-02-29", err));
	ck_fails(hb_onboarding_date("x", "2100-02-29", err), "bad_date");
	ck_fails(hb_onboarding_date("x", "2026-13-01", err), "bad_date");
	ck_fails(hb_onboarding_date("x", "2026-04-31", err), "bad_date");
	ck_fails(hb_onboarding_date("x", "2026-4-3", err), "bad_date");
	ck_fails(hb_onboarding_date("x", "1999-12-31", err), "bad_date");
	ck_assert_int_eq(hb_onboarding_date_end("2000-01-01"), 946684800 + 86400);
	ck_assert(!hb_onboarding_past("2000-01-01", 946684800 + 86399));
	ck_assert(hb_onboarding_past("2000-01-01", 946684800 + 86400));
	ck_assert(!hb_onboarding_past("", 946684800));
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("named keys");
	TCase *t = test_case("named keys");

	tcase_add_test(t, test_set_list_remove);
	tcase_add_test(t, test_replacing_keeps_the_description);
	tcase_add_test(t, test_refusals);
	tcase_add_test(t, test_loose_files_are_refused);
	tcase_add_test(t, test_use_is_noted);
	tcase_add_test(t, test_files_without_description_are_seen);
	tcase_add_test(t, test_dates);
	suite_add_tcase(s, t);
	return test_run(s);
}
