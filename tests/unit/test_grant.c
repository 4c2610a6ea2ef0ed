/* Grants: every field is bound by the signature, every field is compared, nothing extra is let in.
 */
#include "tests/unit/test_util.h"

#include <sodium.h>

#include "common/grant.h"
#include "common/json.h"

#define HEX32 "0123456789abcdef0123456789abcdef"
#define HEX64 HEX32 HEX32

static struct hb_signing_key *key, *other_key;

static const struct hb_grant sample = {
	.grant_id = HEX64,
	.audience = HEX32,
	.capability = "f"
		      "123456789abcdef0123456789abcdef" HEX32,
	.operation_id = "a"
			"123456789abcdef0123456789abcdef",
	.target = "installer",
	.feature = "runtime",
	.action = "install",
	.digest = "d"
		  "123456789abcdef0123456789abcdef" HEX32,
	.summary_digest = "5"
			  "123456789abcdef0123456789abcdef" HEX32,
	.user_ids = {"123456789", "0"},
	.user_count = 2,
	.session = "s\xc3\xa9ssion \xf0\x9f\x98\x80",
	.generation = 7,
	.approved = true,
	.issued_at = 1000,
	.not_before = 1000,
	.expires_at = 1120,
};

static const struct hb_grant_expect expected = {
	.audience = HEX32,
	.target = "installer",
	.feature = "runtime",
	.action = "install",
	.operation_id = "a"
			"123456789abcdef0123456789abcdef",
	.digest = "d"
		  "123456789abcdef0123456789abcdef" HEX32,
	.summary_digest = "5"
			  "123456789abcdef0123456789abcdef" HEX32,
	.generation = 7,
	.now = 1000,
};

static void
make_keys(void)
{
	ck_works(hb_keys_create(AT_FDCWD, "s1", geteuid(), getegid(), "p1", err));
	ck_works(hb_keys_create(AT_FDCWD, "s2", geteuid(), getegid(), "p2", err));
	ck_works(hb_signing_key_load(AT_FDCWD, "s1", geteuid(), &key, err));
	ck_works(hb_signing_key_load(AT_FDCWD, "s2", geteuid(), &other_key, err));
}

static void
free_keys(void)
{
	hb_signing_key_free(key);
	hb_signing_key_free(other_key);
}

static json_t *
seal(void)
{
	struct hb_grant g = sample;
	struct hb_error e;
	json_t *envelope = hb_grant_seal(&g, key, &e);

	ck_assert_msg(envelope != NULL, "%s", e.message);
	ck_assert_str_eq(g.key_id, hb_signing_key_public(key)->id);
	return envelope;
}

START_TEST(test_seal_and_open)
{
	json_t *envelope = seal();
	struct hb_grant g, want = sample;

	strcpy(want.key_id, hb_signing_key_public(key)->id);
	memset(&g, 0xff, sizeof(g));
	ck_works(hb_grant_open(envelope, hb_signing_key_public(key), &g, err));
	ck_assert_mem_eq(&g, &want, sizeof(g));
	ck_works(hb_grant_check(&g, &expected, err));
	json_decref(envelope);
}
END_TEST

START_TEST(test_tree_digest_is_optional)
{
	struct hb_grant g = sample, back;
	json_t *o;

	o = hb_grant_to_json(&g);
	ck_assert_ptr_null(json_object_get(o, "tree_digest"));
	json_decref(o);
	strcpy(g.tree_digest, HEX64);
	o = hb_grant_seal(&g, key, NULL);
	ck_works(hb_grant_open(o, hb_signing_key_public(key), &back, err));
	ck_assert_str_eq(back.tree_digest, HEX64);
	json_decref(o);
}
END_TEST

START_TEST(test_every_field_is_signed)
{
	json_t *envelope = seal(), *grant = json_object_get(envelope, "grant"), *v;
	const char *name;
	struct hb_grant g;
	int seen = 0;

	json_t *names = json_deep_copy(grant);
	json_object_foreach (names, name, v) {
		json_t *forged = json_deep_copy(envelope), *fg = json_object_get(forged, "grant");

		if (strcmp(name, "key_id") == 0 || strcmp(name, "v") == 0) {
			json_decref(forged);
			continue;
		}
		if (json_is_integer(v))
			json_object_set_new(fg, name, json_integer(json_integer_value(v) + 1));
		else if (json_is_array(v))
			json_array_remove(json_object_get(fg, name), 1);
		else if (strcmp(name, "decision") == 0)
			json_object_set_new(fg, name, json_string("denied"));
		else {
			char *text = hb_strdup(json_string_value(v));

			text[0] = text[0] == 'b' ? 'c' : 'b';
			json_object_set_new(fg, name, json_string(text));
			free(text);
		}
		ck_fails(hb_grant_open(forged, hb_signing_key_public(key), &g, err),
			 "grant_bad_signature");
		json_decref(forged);
		seen++;
	}
	ck_assert_int_eq(seen, 16);
	json_decref(names);
	json_decref(envelope);
}
END_TEST

START_TEST(test_keys_are_told_apart)
{
	json_t *envelope = seal();
	struct hb_public_key lying = *hb_signing_key_public(other_key);
	struct hb_grant g;

	ck_fails(hb_grant_open(envelope, hb_signing_key_public(other_key), &g, err),
		 "grant_unknown_key");
	strcpy(lying.id, hb_signing_key_public(key)->id);
	ck_fails(hb_grant_open(envelope, &lying, &g, err), "grant_bad_signature");
	json_decref(envelope);
}
END_TEST

START_TEST(test_envelope_shape)
{
	json_t *envelope = seal(), *e;
	struct hb_grant g;
	static const char *const signatures[] = {
		"",
		"x",
		"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
		"AAAAAA",
		"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
		"AAAA=*",
	};

	for (size_t i = 0; i < 4; i++) {
		e = json_deep_copy(envelope);
		json_object_set_new(e, "signature", json_string(signatures[i]));
		ck_fails(hb_grant_open(e, hb_signing_key_public(key), &g, err), "grant_malformed");
		json_decref(e);
	}
	e = json_deep_copy(envelope);
	json_object_set_new(e, "extra", json_true());
	ck_fails(hb_grant_open(e, hb_signing_key_public(key), &g, err), "grant_malformed");
	json_object_del(e, "extra");
	json_object_del(e, "grant");
	ck_fails(hb_grant_open(e, hb_signing_key_public(key), &g, err), "grant_malformed");
	json_decref(e);
	e = json_array();
	ck_fails(hb_grant_open(e, hb_signing_key_public(key), &g, err), "grant_malformed");
	json_decref(e);
	json_decref(envelope);
}
END_TEST

/* A signature on other bytes of the same key, made without the domain prefix, is none. */
START_TEST(test_domain_prefix)
{
	json_t *envelope = seal();
	struct hb_buf b = HB_BUF_INIT;
	unsigned char sig[64];
	char base64[89];
	struct hb_grant g;

	ck_works(hb_json_canonical(json_object_get(envelope, "grant"), &b, err));
	hb_sign(key, b.data, b.len, sig);
	sodium_bin2base64(base64, sizeof(base64), sig, 64, sodium_base64_VARIANT_ORIGINAL);
	json_object_set_new(envelope, "signature", json_string(base64));
	ck_fails(hb_grant_open(envelope, hb_signing_key_public(key), &g, err),
		 "grant_bad_signature");
	hb_buf_free(&b);
	json_decref(envelope);
}
END_TEST

static void
malformed(const char *field, json_t *value)
{
	struct hb_grant g = sample, out;
	json_t *o;

	strcpy(g.key_id, "0123456789abcdef");
	o = hb_grant_to_json(&g);
	if (value != NULL)
		json_object_set_new(o, field, value);
	else
		json_object_del(o, field);
	ck_fails(hb_grant_from_json(o, &out, err), "grant_malformed");
	json_decref(o);
}

START_TEST(test_malformed_grants)
{
	static const char *const required[] = {
		"v",          "grant_id", "audience",  "capability",     "operation_id", "target",
		"feature",    "action",   "digest",    "summary_digest", "user_ids",     "session",
		"generation", "decision", "issued_at", "not_before",     "expires_at",   "key_id",
	};
	char longer[200];
	int i;

	for (i = 0; i < 18; i++) {
		malformed(required[i], NULL);
		malformed(required[i], json_null());
	}
	malformed("v", json_integer(2));
	malformed("extra", json_integer(1));
	malformed("grant_id", json_string(HEX32));
	malformed("audience", json_string("0123456789abcdef0123456789abcdeX"));
	malformed("operation_id", json_string("0123456789ABCDEF0123456789abcdef"));
	malformed("decision", json_string("approve"));
	malformed("decision", json_true());
	malformed("user_ids", json_array());
	malformed("user_ids", json_pack("[i]", 1));
	malformed("user_ids", json_pack("[s]", "@name"));
	malformed("user_ids", json_pack("[s]", "-5"));
	malformed("user_ids", json_pack("[ss]", "5", "5"));
	malformed("user_ids", json_pack("[sssssssssssssssss]", "1", "2", "3", "4", "5", "6", "7",
					"8", "9", "10", "11", "12", "13", "14", "15", "16", "17"));
	malformed("session", json_string(""));
	malformed("expires_at", json_integer(999));
	malformed("issued_at", json_integer(-1));
	malformed("generation", json_integer(-1));
	malformed("tree_digest", json_string(""));
	/* 127 characters are allowed and this is more than 127 bytes. */
	for (i = 0; i < 100; i++)
		memcpy(longer + 2 * i, "\xc3\xa9", 2);
	longer[199] = '\0';
	longer[198] = '\0';
	malformed("session", json_string(longer));
}
END_TEST

START_TEST(test_seal_refuses_what_could_not_be_opened)
{
	struct hb_grant g = sample;
	struct hb_error e;

	g.user_count = 0;
	ck_assert_ptr_null(hb_grant_seal(&g, key, &e));
	ck_assert_str_eq(e.code, "grant_malformed");
	g = sample;
	strcpy(g.session, "\xff");
	ck_assert_ptr_null(hb_grant_seal(&g, key, &e));
	ck_assert_str_eq(e.code, "grant_malformed");
	ck_assert_str_eq(g.key_id, "");
}
END_TEST

#define CHECK_FAILS(code, change)                                                                  \
	do {                                                                                       \
		struct hb_grant_expect x = expected;                                               \
		change;                                                                            \
		ck_fails(hb_grant_check(&g, &x, err), code);                                       \
	} while (0)

START_TEST(test_h45_check_compares_everything)
{
	struct hb_grant g = sample;

	CHECK_FAILS("grant_wrong_audience", x.audience = "0123456789abcdef0123456789abcdee");
	CHECK_FAILS("grant_wrong_target", x.target = "docker");
	CHECK_FAILS("grant_wrong_operation", x.feature = "docker");
	CHECK_FAILS("grant_wrong_operation", x.action = "remove");
	CHECK_FAILS("grant_wrong_operation", x.operation_id = HEX32);
	CHECK_FAILS("grant_digest_mismatch", x.digest = HEX64);
	CHECK_FAILS("grant_digest_mismatch", x.summary_digest = HEX64);
	CHECK_FAILS("grant_old_generation", x.generation = 8);
	CHECK_FAILS("grant_old_generation", x.generation = 6);
	CHECK_FAILS("grant_not_yet_valid", x.now = 999);
	CHECK_FAILS("grant_expired", x.now = 1120);
	g.approved = false;
	CHECK_FAILS("grant_denied", (void)x);
	g.approved = true;
	struct hb_grant_expect last = expected;
	last.now = 1119;
	ck_works(hb_grant_check(&g, &last, err));
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("grant");
	TCase *t = test_case("grant");

	tcase_add_checked_fixture(t, make_keys, free_keys);
	tcase_add_test(t, test_seal_and_open);
	tcase_add_test(t, test_tree_digest_is_optional);
	tcase_add_test(t, test_every_field_is_signed);
	tcase_add_test(t, test_keys_are_told_apart);
	tcase_add_test(t, test_envelope_shape);
	tcase_add_test(t, test_domain_prefix);
	tcase_add_test(t, test_malformed_grants);
	tcase_add_test(t, test_seal_refuses_what_could_not_be_opened);
	tcase_add_test(t, test_h45_check_compares_everything);
	suite_add_tcase(s, t);
	return test_run(s);
}
