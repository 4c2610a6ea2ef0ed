/* Ed25519 against RFC 8032, and key files that must be exactly right. */
#include "tests/unit/test_util.h"

#include <sys/stat.h>

#include "common/digest.h"
#include "common/keys.h"

/* RFC 8032 section 7.1, TEST 1 (seed 9d61b19d...) and TEST 2's key for comparison. */
#define SEED_1 "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="
#define PUBLIC_1 "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="

static struct hb_signing_key *
vector_key(void)
{
	struct hb_signing_key *key = NULL;

	test_puts("signing", "hermes-signing-key-v1 " SEED_1 "\n");
	chmod("signing", 0600);
	ck_works(hb_signing_key_load(AT_FDCWD, "signing", geteuid(), &key, err));
	return key;
}

START_TEST(test_rfc8032_vector)
{
	struct hb_signing_key *key = vector_key();
	struct hb_public_key public;
	unsigned char sig[64];
	char hex[129];

	hb_hex(hb_signing_key_public(key)->bytes, 32, hex);
	ck_assert_str_eq(hex, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
	hb_sign(key, "", 0, sig);
	hb_hex(sig, 64, hex);
	ck_assert_str_eq(
		hex,
		"e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bac"
		"c61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b");
	test_puts("public", "hermes-public-key-v1 " PUBLIC_1 "\n");
	chmod("public", 0644);
	ck_works(hb_public_key_load(AT_FDCWD, "public", &public, err));
	ck_assert_str_eq(public.id, hb_signing_key_public(key)->id);
	/* printf d75a98...511a | xxd -r -p | sha256sum | cut -c1-16 */
	ck_assert_str_eq(public.id, "21fe31dfa154a261");
	ck_assert_int_eq(hb_verify(&public, "", 0, sig), 0);
	ck_assert_int_eq(hb_verify(&public, "x", 1, sig), -1);
	for (int i = 0; i < 64; i++) {
		sig[i] ^= 1;
		ck_assert_int_eq(hb_verify(&public, "", 0, sig), -1);
		sig[i] ^= 1;
	}
	hb_signing_key_free(key);
}
END_TEST

START_TEST(test_create_and_load)
{
	struct hb_signing_key *key = NULL;
	struct hb_public_key public;
	unsigned char sig[64];
	struct stat st;

	ck_works(hb_keys_create(AT_FDCWD, "s", geteuid(), getegid(), "p", err));
	ck_assert_int_eq(stat("s", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(stat("p", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0644);
	ck_works(hb_signing_key_load(AT_FDCWD, "s", geteuid(), &key, err));
	ck_works(hb_public_key_load(AT_FDCWD, "p", &public, err));
	hb_sign(key, "message", 7, sig);
	ck_assert_int_eq(hb_verify(&public, "message", 7, sig), 0);
	hb_signing_key_free(key);
}
END_TEST

START_TEST(test_create_never_replaces)
{
	size_t len;
	char *before, *after;

	ck_works(hb_keys_create(AT_FDCWD, "s", geteuid(), getegid(), "p", err));
	before = test_read("s", &len);
	ck_fails(hb_keys_create(AT_FDCWD, "s", geteuid(), getegid(), "p", err), "key_exists");
	unlink("p");
	ck_fails(hb_keys_create(AT_FDCWD, "s", geteuid(), getegid(), "p", err), "key_exists");
	after = test_read("s", &len);
	ck_assert_str_eq(before, after);
	ck_assert_int_ne(access("p", F_OK), 0);
	/* A public key alone stands in the way too, and no half pair is left. */
	unlink("s");
	test_puts("p", "x");
	ck_fails(hb_keys_create(AT_FDCWD, "s", geteuid(), getegid(), "p", err), "key_exists");
	ck_assert_int_ne(access("s", F_OK), 0);
	unlink("p");
	ck_fails(hb_keys_create(AT_FDCWD, "s", geteuid(), getegid(), "none/p", err), "not_found");
	ck_assert_int_ne(access("s", F_OK), 0);
	free(before);
	free(after);
}
END_TEST

START_TEST(test_malformed_files)
{
	static const char *const bad[] = {
		"",
		"\n",
		PUBLIC_1,
		"hermes-public-key-v1",
		"hermes-public-key-v1 ",
		"hermes-public-key-v2 " PUBLIC_1,
		"hermes-signing-key-v1 " PUBLIC_1,
		"hermes-public-key-v1  " PUBLIC_1,
		"hermes-public-key-v1 " PUBLIC_1 "\n\n",
		"hermes-public-key-v1 " PUBLIC_1 " ",
		" hermes-public-key-v1 " PUBLIC_1,
		"hermes-public-key-v1 11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHUR==",
		"hermes-public-key-v1 11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURp=",
		"hermes-public-key-v1 11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo",
		"hermes-public-key-v1 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
		"hermes-public-key-v1 11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=AAAA",
	};
	struct hb_public_key public;
	struct hb_signing_key *key = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		test_puts("public", bad[i]);
		chmod("public", 0644);
		ck_fails(hb_public_key_load(AT_FDCWD, "public", &public, err), "key_malformed");
	}
	test_write("public", "hermes-public-key-v1 " PUBLIC_1 "\0", 66);
	ck_fails(hb_public_key_load(AT_FDCWD, "public", &public, err), "key_malformed");
	test_puts("signing", "hermes-public-key-v1 " SEED_1 "\n");
	chmod("signing", 0600);
	ck_fails(hb_signing_key_load(AT_FDCWD, "signing", geteuid(), &key, err), "key_malformed");
	ck_assert_ptr_null(key);
}
END_TEST

START_TEST(test_untrusted_files)
{
	struct hb_signing_key *key = NULL;
	struct hb_public_key public;

	ck_works(hb_keys_create(AT_FDCWD, "s", geteuid(), getegid(), "p", err));
	chmod("s", 0640);
	ck_fails(hb_signing_key_load(AT_FDCWD, "s", geteuid(), &key, err), "secret_permissions");
	chmod("p", 0666);
	ck_fails(hb_public_key_load(AT_FDCWD, "p", &public, err), "loose_permissions");
	unlink("s");
	unlink("p");
	ck_fails(hb_signing_key_load(AT_FDCWD, "s", geteuid(), &key, err), "secret_missing");
	ck_fails(hb_public_key_load(AT_FDCWD, "p", &public, err), "not_found");
}
END_TEST

/* An error about a key file never shows what is in it. */
START_TEST(test_errors_do_not_show_the_key)
{
	struct hb_signing_key *key = NULL;
	struct hb_error e;

	test_puts("signing", "hermes-signing-key-v1 x" SEED_1 "\n");
	chmod("signing", 0600);
	ck_assert_int_eq(hb_signing_key_load(AT_FDCWD, "signing", geteuid(), &key, &e), -1);
	ck_assert_ptr_null(strstr(e.message, "nWGx"));
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("keys");
	TCase *t = test_case("keys");

	tcase_add_test(t, test_rfc8032_vector);
	tcase_add_test(t, test_create_and_load);
	tcase_add_test(t, test_create_never_replaces);
	tcase_add_test(t, test_malformed_files);
	tcase_add_test(t, test_untrusted_files);
	tcase_add_test(t, test_errors_do_not_show_the_key);
	suite_add_tcase(s, t);
	return test_run(s);
}
