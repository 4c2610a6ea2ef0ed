/* WWW-Authenticate as registries send it, and token replies. */
#include "tests/unit/test_util.h"

#include <sodium.h>

#include "fetcher/challenge.h"
#include "fetcher/token.h"

#define REALM "https://auth.example/token"

START_TEST(test_h07_shapes)
{
	struct hb_challenge c[HB_CHALLENGE_MAX];
	size_t n;

	ck_works(hb_challenge_parse("Bearer realm=\"" REALM "\",service=\"s\",scope=\"a b\"", c, &n,
				    err));
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(c[0].scheme, HB_AUTH_BEARER);
	ck_assert_str_eq(c[0].realm, REALM);
	ck_assert_str_eq(c[0].service, "s");
	ck_assert_str_eq(c[0].scope, "a b");

	ck_works(hb_challenge_parse("bEaReR Realm = x , SERVICE=\"\"", c, &n, err));
	ck_assert_uint_eq(n, 1);
	ck_assert_str_eq(c[0].realm, "x");
	ck_assert_str_eq(c[0].scope, "");
	ck_works(hb_challenge_parse("", c, &n, err));
	ck_assert_uint_eq(n, 0);
	ck_works(hb_challenge_parse("Basic", c, &n, err));
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(c[0].scheme, HB_AUTH_BASIC);
}
END_TEST

START_TEST(test_h07_two_challenges_in_one_header)
{
	static const char *const both[] = {
		"Basic realm=\"a, b\", Bearer realm=\"" REALM "\",service=s",
		"Bearer realm=\"" REALM "\",service=s, Basic realm=\"a, b\"",
		"Negotiate YII+/=, Bearer realm=\"" REALM "\",service=s,Basic,",
	};
	struct hb_challenge c[HB_CHALLENGE_MAX];
	size_t n, bearer;

	for (size_t i = 0; i < 3; i++) {
		ck_works(hb_challenge_parse(both[i], c, &n, err));
		ck_assert_uint_eq(n, i == 2 ? 3 : 2);
		for (bearer = 0; c[bearer].scheme != HB_AUTH_BEARER; bearer++)
			ck_assert_uint_lt(bearer, n);
		ck_assert_str_eq(c[bearer].realm, REALM);
		ck_assert_str_eq(c[bearer].service, "s");
	}
}
END_TEST

START_TEST(test_h07_commas_and_escaped_quotes)
{
	struct hb_challenge c[HB_CHALLENGE_MAX];
	size_t n;

	ck_works(hb_challenge_parse(
		"Bearer error=\"x, Basic realm=\\\"no\\\"\",realm=\"q\\\"\\\\,\"", c, &n, err));
	ck_assert_uint_eq(n, 1);
	ck_assert_str_eq(c[0].realm, "q\"\\,");
}
END_TEST

START_TEST(test_h07_refused)
{
	static const char *const bad[] = {
		"Bearer realm=\"x",
		"Bearer realm=\"x\\",
		"Bearer realm=\"a\",realm=\"b\"",
		"Bearer realm=\"a\nb\"",
		"Bearer @",
		"=",
		"\"Bearer\"",
		"Bearer realm=\"a\" /",
		"a, b, c, d, e, f, g, h, i",
	};
	struct hb_challenge c[HB_CHALLENGE_MAX];
	char *huge = hb_calloc(1, HB_CHALLENGE_TEXT_MAX + 2);
	size_t n = 77;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_fails(hb_challenge_parse(bad[i], c, &n, err), "bad_challenge");
	memset(huge, 'a', HB_CHALLENGE_TEXT_MAX + 1);
	ck_fails(hb_challenge_parse(huge, c, &n, err), "bad_challenge");
	huge[2000] = '\0';
	memcpy(huge, "Bearer realm=", 13);
	ck_fails(hb_challenge_parse(huge, c, &n, err), "bad_challenge");
	ck_assert_uint_eq(n, 77);
	free(huge);
}
END_TEST

static const char *
scope_for(const char *offered, bool credentials)
{
	static char out[600];

	hb_token_scope(offered, "team/app", credentials, out, sizeof(out));
	return out;
}

START_TEST(test_h07_scope)
{
	static const char own[] = "repository:team/app:pull";

	ck_assert_str_eq(scope_for("", false), own);
	ck_assert_str_eq(scope_for("pull", false), own);
	ck_assert_str_eq(scope_for(own, true), own);
	ck_assert_str_eq(scope_for("repository:team/app:pull,push", false), own);
	ck_assert_str_eq(scope_for("repository:a:pull repository:b:pull", false), own);
	ck_assert_str_eq(scope_for("registry:catalog:*", false), own);
	ck_assert_str_eq(scope_for("repository::pull", false), own);
	ck_assert_str_eq(scope_for("repository:mirror/app:pull", false), "repository:mirror/"
									 "app:pull");
	/* With a person's credentials nothing but this repository is asked for. */
	ck_assert_str_eq(scope_for("repository:private/other:pull", true), own);
}
END_TEST

START_TEST(test_h07_token_replies)
{
	static const char *const good[] = {
		"{\"token\":\"t0k\"}",
		"{\"access_token\":\"t0k\",\"expires_in\":3}",
		"{\"token\":\"t0k\",\"access_token\":\"other\"}",
		"{\"token\":\"\",\"access_token\":\"t0k\"}",
	};
	static const char *const bad[] = {
		"",
		"{}",
		"[]",
		"null",
		"{\"token\":1}",
		"{\"token\":\"a b\"}",
		"{\"token\":\"a\\n\"}",
		"{\"token\":\"a\",\"token\":\"a\"}",
		"{\"token\":\"\xc3\xa9\"}",
	};

	ck_assert_int_ge(sodium_init(), 0);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		char *header = hb_token_decode(good[i], strlen(good[i]), "auth", NULL);

		ck_assert_str_eq(header, "Bearer t0k");
		sodium_free(header);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_fails(hb_token_decode(bad[i], strlen(bad[i]), "auth", err) ? 0 : -1, "bad_token_"
											"reply");
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("fetcher_challenge");
	TCase *t = test_case("challenge");

	tcase_add_test(t, test_h07_shapes);
	tcase_add_test(t, test_h07_two_challenges_in_one_header);
	tcase_add_test(t, test_h07_commas_and_escaped_quotes);
	tcase_add_test(t, test_h07_refused);
	tcase_add_test(t, test_h07_scope);
	tcase_add_test(t, test_h07_token_replies);
	suite_add_tcase(s, t);
	return test_run(s);
}
