/* Where a registry may send us: addresses, redirects, token realms. */
#include "tests/unit/test_util.h"

#include "fetcher/address.h"
#include "fetcher/url.h"

START_TEST(test_h01_address_classes)
{
	static const struct {
		const char *host;
		enum hb_address_class class;
	} table[] = {
		{"8.8.8.8", HB_ADDRESS_PUBLIC},
		{"128.0.0.1", HB_ADDRESS_PUBLIC},
		{"172.32.0.1", HB_ADDRESS_PUBLIC},
		{"2001:4860::1", HB_ADDRESS_PUBLIC},
		{"10.1.2.3", HB_ADDRESS_PRIVATE},
		{"172.16.0.1", HB_ADDRESS_PRIVATE},
		{"172.31.255.255", HB_ADDRESS_PRIVATE},
		{"192.168.1.1", HB_ADDRESS_PRIVATE},
		{"fd12::1", HB_ADDRESS_PRIVATE},
		{"127.0.0.1", HB_ADDRESS_LOOPBACK},
		{"127.255.255.254", HB_ADDRESS_LOOPBACK},
		{"127.1", HB_ADDRESS_LOOPBACK},
		{"0x7f000001", HB_ADDRESS_LOOPBACK},
		{"2130706433", HB_ADDRESS_LOOPBACK},
		{"::1", HB_ADDRESS_LOOPBACK},
		{"::ffff:127.0.0.1", HB_ADDRESS_LOOPBACK},
		{"::127.0.0.1", HB_ADDRESS_LOOPBACK},
		{"64:ff9b::7f00:1", HB_ADDRESS_LOOPBACK},
		{"2002:7f00:1::", HB_ADDRESS_LOOPBACK},
		{"0.0.0.0", HB_ADDRESS_FORBIDDEN},
		{"0.1.2.3", HB_ADDRESS_FORBIDDEN},
		{"::", HB_ADDRESS_FORBIDDEN},
		{"169.254.169.254", HB_ADDRESS_FORBIDDEN},
		{"::ffff:169.254.169.254", HB_ADDRESS_FORBIDDEN},
		{"64:ff9b::a9fe:a9fe", HB_ADDRESS_FORBIDDEN},
		{"fe80::1", HB_ADDRESS_FORBIDDEN},
		{"fec0::1", HB_ADDRESS_FORBIDDEN},
		{"ff02::1", HB_ADDRESS_FORBIDDEN},
		{"fd00:ec2::254", HB_ADDRESS_FORBIDDEN},
		{"100.100.100.200", HB_ADDRESS_FORBIDDEN},
		{"224.0.0.1", HB_ADDRESS_FORBIDDEN},
		{"255.255.255.255", HB_ADDRESS_FORBIDDEN},
	};
	enum hb_address_class class;

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		ck_assert_msg(hb_address_literal(table[i].host, &class), "%s", table[i].host);
		ck_assert_msg(class == table[i].class, "%s: class %d", table[i].host, (int)class);
	}
	ck_assert(!hb_address_literal("example.org", &class));
	ck_assert(hb_host_is_loopback("localhost") && hb_host_is_loopback("LOCALHOST."));
	ck_assert(hb_host_is_loopback("a.localhost") && !hb_host_is_loopback("notlocalhost"));
}
END_TEST

START_TEST(test_parsing)
{
	static const char *const bad[] = {
		"",
		"ftp://a/",
		"file:///etc/passwd",
		"//a/b",
		"a/b",
		"https://",
		"https://u@a/",
		"https://u:p@a/",
		"https://a b/",
		"https://a/\n",
		"https://a\\b/",
		"https://[fe80::1%25eth0]/",
		"https://a%0ab/",
		"https://\xc3\xa9/",
	};
	struct hb_url url;

	ck_works(hb_url_parse("HTTPS://Example.ORG/x?y=z#frag", &url, err));
	ck_assert_str_eq(url.origin, "https://example.org:443");
	ck_assert_str_eq(url.hostport, "example.org");
	ck_assert_str_eq(strchr(url.text + 8, '/'), "/x?y=z");
	ck_works(hb_url_parse("http://[::1]:5000", &url, err));
	ck_assert_str_eq(url.host, "::1");
	ck_assert_str_eq(url.hostport, "[::1]:5000");
	ck_assert(url.http);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_fails(hb_url_parse(bad[i], &url, err), "bad_url");
	ck_assert_str_eq(url.hostport, "[::1]:5000");
}
END_TEST

START_TEST(test_relative_locations)
{
	struct hb_url base, url;

	ck_works(hb_url_parse("https://r.example/v2/a/blobs/x", &base, err));
	ck_works(hb_url_resolve(&base, "/other?k=v", &url, err));
	ck_assert_str_eq(url.text, "https://r.example/other?k=v");
	ck_works(hb_url_resolve(&base, "//cdn.example/x", &url, err));
	ck_assert_str_eq(url.origin, "https://cdn.example:443");
	ck_fails(hb_url_resolve(&base, "file:///etc/passwd", &url, err), "bad_url");
	ck_fails(hb_url_resolve(&base, "", &url, err), "bad_url");
}
END_TEST

static int
realm(const char *registry, const char *where, bool credentials, const char *const *allowed,
      struct hb_error *err)
{
	struct hb_site_rules rules;
	struct hb_url base, out;

	ck_assert_int_eq(hb_url_parse(registry, &base, err), 0);
	rules.loopback = hb_host_is_loopback(base.host);
	rules.plain = base.http;
	return hb_realm_check(&rules, &base, where, credentials, allowed, &out, err);
}

START_TEST(test_h01_realms)
{
	static const char *const refused[] = {
		"http://auth.example/token",
		"https://user:pw@auth.example/",
		"https://169.254.169.254/token",
		"https://[::ffff:169.254.169.254]/token",
		"https://127.0.0.1/token",
		"https://localhost/token",
		"https://0/token",
		"https://2852039166/",
		"ftp://auth.example/",
		"",
		"https://0x7f.1/",
		"https://[fe80::1]/",
		"http://reg.example/token",
		"javascript:alert(1)",
		"https://[::ffff:7f00:1]/token",
		"https://metadata.example:443@169.254.169.254/",
	};
	static const char *const allowed[] = {"auth.example", "other.example:8443", NULL};
	static const char reg[] = "https://reg.example", local[] = "http://127.0.0.1:5000";

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		ck_fails(realm(reg, refused[i], false, NULL, err), "realm_refused");
		ck_fails(realm(reg, refused[i], true, allowed, err), "realm_refused");
	}
	/* anonymous from another public host */
	ck_works(realm(reg, "https://auth.example/token", false, NULL, err));
	/* with credentials: the registry itself and what is listed for it */
	ck_works(realm(reg, "https://reg.example/token", true, NULL, err));
	ck_works(realm(reg, "https://AUTH.example/token", true, allowed, err));
	ck_works(realm(reg, "https://other.example:8443/", true, allowed, err));
	ck_fails(realm(reg, "https://other.example/", true, allowed, err), "realm_refused");
	ck_fails(realm(reg, "https://auth.example.evil.example/", true, allowed, err), "realm_"
										       "refused");
	ck_fails(realm(reg, "https://auth.example/token", true, NULL, err), "realm_refused");
	/* an allowed plain-http registry on loopback may name plain http on loopback, and nothing
	 * further away */
	ck_works(realm(local, "http://127.0.0.1:5001/token", false, NULL, err));
	ck_works(realm(local, "https://auth.example/token", false, NULL, err));
	ck_fails(realm(local, "http://auth.example/token", false, NULL, err), "realm_refused");
	ck_fails(realm(local, "http://127.0.0.1:5001/token", true, NULL, err), "realm_refused");
	ck_fails(realm(local, "https://169.254.1.1/", false, NULL, err), "realm_refused");
	/* TLS on loopback does not make plain http allowed */
	ck_fails(realm("https://127.0.0.1:5000", "http://127.0.0.1:5001/", false, NULL, err),
		 "realm_refused");
}
END_TEST

START_TEST(test_h01_refusal_names_the_host)
{
	struct hb_error err = {"", ""};

	ck_assert_int_lt(
		realm("https://reg.example", "https://evil.example:99/t", true, NULL, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.message, "evil.example:99"));
	ck_assert_ptr_nonnull(strstr(err.message, "reg.example"));
	ck_assert_ptr_nonnull(strstr(err.message, "realm_hosts"));
}
END_TEST

START_TEST(test_h07_query_values_cannot_add_parameters)
{
	struct hb_url url;

	ck_works(hb_url_parse("https://a.example/t?x=1", &url, err));
	ck_works(hb_url_add_query(&url, "service", "s&scope=evil#?/=+ %", err));
	ck_assert_ptr_nonnull(strstr(url.text, "?x=1&service=s%26scope%3"));
	ck_assert_uint_eq(strcspn(strstr(url.text, "service="), "#&"),
			  strlen(strstr(url.text, "service=")));
	ck_assert_ptr_null(strchr(strchr(url.text, '?') + 1, '?'));
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("fetcher_url");
	TCase *t = test_case("url");

	tcase_add_test(t, test_h01_address_classes);
	tcase_add_test(t, test_parsing);
	tcase_add_test(t, test_relative_locations);
	tcase_add_test(t, test_h01_realms);
	tcase_add_test(t, test_h01_refusal_names_the_host);
	tcase_add_test(t, test_h07_query_values_cannot_add_parameters);
	suite_add_tcase(s, t);
	return test_run(s);
}
