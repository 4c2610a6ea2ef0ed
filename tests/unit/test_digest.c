/* SHA-256 against FIPS 180-4 examples, and the one parser for digests. */
#include "tests/unit/test_util.h"

#include "common/digest.h"
#include "common/ids.h"

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

START_TEST(test_known_answers)
{
	char hex[HB_HEX256];

	hb_sha256_hex("abc", 3, hex);
	ck_assert_str_eq(hex, ABC);
	hb_sha256_hex("", 0, hex);
	ck_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	hb_sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, hex);
	ck_assert_str_eq(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}
END_TEST

START_TEST(test_streaming_and_reset)
{
	struct hb_sha256 *h = hb_sha256_new();
	unsigned char out[32];
	char hex[HB_HEX256], chunk[1000];

	memset(chunk, 'a', sizeof(chunk));
	for (int i = 0; i < 1000; i++)
		hb_sha256_update(h, chunk, sizeof(chunk));
	hb_sha256_final(h, out);
	hb_hex(out, 32, hex);
	ck_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	hb_sha256_reset(h);
	hb_sha256_update(h, "a", 1);
	hb_sha256_update(h, "bc", 2);
	hb_sha256_final(h, out);
	hb_hex(out, 32, hex);
	ck_assert_str_eq(hex, ABC);
	hb_sha256_free(h);
	hb_sha256_free(NULL);
}
END_TEST

START_TEST(test_h04_digest_strings)
{
	char hex[HB_HEX256] = "untouched", *longer;
	static const char *const bad[] = {
		"",
		"sha256:",
		ABC,
		"sha256:../../x",
		"sha256:" ABC "/..",
		"sha256:" ABC "\n",
		"sha256:" ABC "0",
		" sha256:" ABC,
		"SHA256:" ABC,
		"sha512:" ABC,
		"md5:900150983cd24fb0d6963f7d28e17f72",
		"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015a",
		"sha256:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
		"sha256:ga7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		"sha256::" ABC,
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_fails(hb_digest_parse(bad[i], hex, err), "bad_digest");
	ck_fails(hb_digest_parse(NULL, hex, err), "bad_digest");
	longer = malloc(2000001);
	memset(longer, 'a', 2000000);
	longer[2000000] = '\0';
	memcpy(longer, "sha256:", 7);
	ck_fails(hb_digest_parse(longer, hex, err), "bad_digest");
	free(longer);
	ck_assert_str_eq(hex, "untouched");
	ck_works(hb_digest_parse("sha256:" ABC, hex, err));
	ck_assert_str_eq(hex, ABC);
	ck_assert(hb_is_hex64(ABC));
	ck_assert(!hb_is_hex64(NULL));
}
END_TEST

START_TEST(test_ids)
{
	char a[65], b[65], odd[7], when[21];

	hb_random_hex(32, a);
	hb_random_hex(32, b);
	ck_assert(hb_is_hex64(a) && hb_is_hex64(b));
	ck_assert_str_ne(a, b);
	hb_random_hex(3, odd);
	ck_assert_uint_eq(strlen(odd), 6);
	hb_time_rfc3339(0, when);
	ck_assert_str_eq(when, "1970-01-01T00:00:00Z");
	hb_time_rfc3339(1796092891, when);
	ck_assert_str_eq(when, "2026-12-01T02:41:31Z");
	hb_time_rfc3339(INT64_MAX, when);
	ck_assert_str_eq(when, "0000-00-00T00:00:00Z");
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("digest");
	TCase *t = test_case("digest");

	tcase_add_test(t, test_known_answers);
	tcase_add_test(t, test_streaming_and_reset);
	tcase_add_test(t, test_h04_digest_strings);
	tcase_add_test(t, test_ids);
	suite_add_tcase(s, t);
	return test_run(s);
}
