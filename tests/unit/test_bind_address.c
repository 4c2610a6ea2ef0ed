/* Where a listener may be: every kind of address, and spellings that are none. */
#include "tests/unit/test_util.h"

#include <stdbool.h>
#include <string.h>

#include "common/bind_address.h"

static bool
taken(const char *text, bool private_ok)
{
	struct hb_bind_address a;
	struct hb_error err = {.code = ""};

	if (hb_bind_address_parse("test.listen", text, private_ok, &a, &err) == 0)
		return true;
	ck_assert_str_eq(err.code, "config_listen");
	ck_assert_ptr_nonnull(strstr(err.message, "test.listen"));
	return false;
}

START_TEST(test_loopback_always_private_when_asked)
{
	static const char *const loopback[] = {"127.0.0.1:8752", "127.255.255.254:1", "[::1]:65535"};
	static const char *const private[] = {"10.0.0.1:8752", "172.16.0.1:1", "172.31.255.255:2",
					      "192.168.255.1:3", "[fc00::1]:4", "[fdff::9]:5"};

	for (size_t i = 0; i < sizeof(loopback) / sizeof(loopback[0]); i++)
		ck_assert_msg(taken(loopback[i], false) && taken(loopback[i], true), "%s", loopback[i]);
	for (size_t i = 0; i < sizeof(private) / sizeof(private[0]); i++)
		ck_assert_msg(!taken(private[i], false) && taken(private[i], true), "%s", private[i]);
}
END_TEST

START_TEST(test_the_rest_never)
{
	static const char *const never[] = {
		"0.0.0.0:1",	 "[::]:1",	   "8.8.8.8:1",	   "172.15.0.1:1", "172.32.0.1:1",
		"192.169.0.1:1", "169.254.1.1:1",  "224.0.0.1:1",  "255.255.255.255:1", "[fe80::1]:1",
		"[ff02::1]:1",	 "[2001:db8::1]:1", "[fe00::1]:1", "localhost:1",  "127.1:1",
		"0x7f.0.0.1:1",	 "127.0.0.1",	   "127.0.0.1:",   "127.0.0.1:0",  "127.0.0.1:65536",
		"127.0.0.1:1x",	 "127.0.0.1: 1",   ":1",	   "",		   "::1:1",
		"[127.0.0.1]:1", "127.0.0.1:+1",   "[::1:1",	   "127.0.0.1:01",
	};

	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		ck_assert_msg(!taken(never[i], true), "%s", never[i]);
}
END_TEST

START_TEST(test_parts)
{
	struct hb_bind_address a;

	ck_assert_int_eq(hb_bind_address_parse("k", "[fd00::1]:8752", true, &a, NULL), 0);
	ck_assert_str_eq(a.host, "fd00::1");
	ck_assert_int_eq(a.port, 8752);
	ck_assert(!a.loopback);
	ck_assert_int_eq(hb_bind_address_parse("k", "127.0.0.2:9", false, &a, NULL), 0);
	ck_assert(a.loopback);
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("bind_address");
	TCase *c = tcase_create("bind_address");

	tcase_add_test(c, test_loopback_always_private_when_asked);
	tcase_add_test(c, test_the_rest_never);
	tcase_add_test(c, test_parts);
	suite_add_tcase(s, c);
	return test_run(s);
}
