/* Retry-After, backoff, the memory of rate limits, and what an error body says. */
#include "tests/unit/test_util.h"

#include <sys/stat.h>

#include "common/json.h"
#include "fetcher/http.h"
#include "fetcher/retry.h"

#define NOW 1796092891LL /* 2026-12-01T02:41:31Z, a Tuesday */

START_TEST(test_h08_retry_after)
{
	static const struct {
		const char *value;
		int want;
	} table[] = {
		{"1", 1},
		{"120", 120},
		{" 7", 7},
		{"3600", 3600},
		{"3601", HB_RETRY_CEILING},
		{"999999", HB_RETRY_CEILING},
		{"99999999999999999999999999", HB_RETRY_CEILING},
		{"0", 0},
		{"-5", 0},
		{"", 0},
		{"1.5", 0},
		{"10 seconds", 0},
		{"soon", 0},
		{"Tue, 01 Dec 2026 02:42:31 GMT", 60},
		{"Tue, 01 Dec 2026 02:41:31 GMT", 0},
		{"Thu, 01 Jan 1970 00:00:00 GMT", 0},
		{"Fri, 31 Dec 2027 00:00:00 GMT", HB_RETRY_CEILING},
		{"Tuesday, 01-Dec-26 02:42:31 GMT", 60},
		{"Not a date", 0},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		ck_assert_msg(hb_retry_after(table[i].value, NOW) == table[i].want, "%s gave %d",
			      table[i].value, hb_retry_after(table[i].value, NOW));
}
END_TEST

START_TEST(test_h08_backoff_grows_with_jitter)
{
	int least = 1 << 30, most = 0;

	for (int n = 0; n < 100; n++) {
		int whole = n >= 6 ? 20000 : 500 << n, got = hb_backoff_ms(n);

		ck_assert_int_ge(got, (whole > 20000 ? 20000 : whole) / 2);
		ck_assert_int_le(got, whole > 20000 ? 20000 : whole);
		if (n >= 6) {
			least = got < least ? got : least;
			most = got > most ? got : most;
		}
	}
	ck_assert_int_lt(least, most);
}
END_TEST

START_TEST(test_h08_memory)
{
	json_t *list;
	struct stat st;

	ck_assert_int_eq(mkdir("fetcher", 0700), 0);
	ck_assert_int_eq(hb_ratelimit_until(AT_FDCWD, "a.example", NOW), 0);
	ck_works(hb_ratelimit_set(AT_FDCWD, "a.example", NOW + 100, NOW, err));
	ck_works(hb_ratelimit_set(AT_FDCWD, "b.example", NOW + 10, NOW, err));
	ck_assert_int_eq(hb_ratelimit_until(AT_FDCWD, "a.example", NOW), NOW + 100);
	ck_assert_int_eq(hb_ratelimit_until(AT_FDCWD, "a.example:443", NOW), 0);
	/* never sooner than what was said before; over when it is over */
	ck_works(hb_ratelimit_set(AT_FDCWD, "a.example", NOW + 5, NOW, err));
	ck_assert_int_eq(hb_ratelimit_until(AT_FDCWD, "a.example", NOW), NOW + 100);
	ck_assert_int_eq(hb_ratelimit_until(AT_FDCWD, "a.example", NOW + 100), 0);
	list = hb_ratelimit_list(AT_FDCWD, NOW + 20);
	ck_assert_uint_eq(json_array_size(list), 1);
	ck_assert_str_eq(hb_json_text(json_array_get(list, 0), "text", ""), "rate limited, next "
									    "try at "
									    "2026-12-01T02:43:11Z");
	json_decref(list);
	ck_assert_int_eq(stat(HB_RATELIMIT_PATH, &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
}
END_TEST

START_TEST(test_h08_memory_survives_damage_and_clocks)
{
	ck_assert_int_eq(mkdir("fetcher", 0700), 0);
	ck_works(hb_ratelimit_set(AT_FDCWD, "a", NOW + 3000, NOW, err));
	/* a clock that was set back by years does not lock us out for years */
	ck_assert_int_eq(hb_ratelimit_until(AT_FDCWD, "a", 1000), 1000 + HB_RETRY_CEILING);
	for (int i = 0; i < 4; i++) {
		static const char *const damaged[] = {"", "{", "{\"hosts\":[]}",
						      "{\"hosts\":{\"a\":\"x\"}}"};

		test_puts(HB_RATELIMIT_PATH, damaged[i]);
		ck_assert_int_eq(hb_ratelimit_until(AT_FDCWD, "a", NOW), 0);
		ck_works(hb_ratelimit_set(AT_FDCWD, "a", NOW + 9, NOW, err));
		ck_assert_int_eq(hb_ratelimit_until(AT_FDCWD, "a", NOW), NOW + 9);
	}
}
END_TEST

START_TEST(test_error_bodies_are_made_printable)
{
	static const char evil[] = "{\"errors\":[{\"code\":\"DENIED\",\"message\":\"a\\u001b["
				   "31m\\nb\\u00e9\"}]}";
	char out[64];

	hb_response_reason(evil, strlen(evil), out, sizeof(out));
	ck_assert_str_eq(out, "DENIED: a?[31m?b??");
	hb_response_reason("<html>", 6, out, sizeof(out));
	ck_assert_str_eq(out, "");
	hb_response_reason("{\"errors\":[]}", 13, out, sizeof(out));
	ck_assert_str_eq(out, "");
	hb_response_reason("", 0, out, sizeof(out));
	ck_assert_str_eq(out, "");
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("fetcher_retry");
	TCase *t = test_case("retry");

	tcase_add_test(t, test_h08_retry_after);
	tcase_add_test(t, test_h08_backoff_grows_with_jitter);
	tcase_add_test(t, test_h08_memory);
	tcase_add_test(t, test_h08_memory_survives_damage_and_clocks);
	tcase_add_test(t, test_error_bodies_are_made_printable);
	suite_add_tcase(s, t);
	return test_run(s);
}
