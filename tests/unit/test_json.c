/* Strict parsing and the canonical form, with the vectors published with RFC 8785 that have no
 * fractions. */
#include "tests/unit/test_util.h"

#include "common/json.h"

static int
parse(const char *text, size_t len, struct hb_error *err)
{
	json_t *v = hb_json_parse(text, len, err);

	json_decref(v);
	return v != NULL ? 0 : -1;
}

static void
canonical_is(const char *in, const char *want)
{
	struct hb_buf out = HB_BUF_INIT;
	struct hb_error e;
	json_t *v = hb_json_parse_foreign(in, strlen(in), &e);

	ck_assert_msg(v != NULL, "%s: %s", in, e.message);
	ck_works(hb_json_canonical(v, &out, err));
	ck_assert_str_eq(out.data, want);
	hb_buf_free(&out);
	json_decref(v);
}

/* RFC 8785 section 3.2.3: the sorting example. */
START_TEST(test_rfc8785_sorting)
{
	canonical_is("{\"\\u20ac\":\"Euro Sign\",\"\\r\":\"Carriage Return\","
		     "\"\\ufb33\":\"Hebrew Letter Dalet With Dagesh\",\"1\":\"One\","
		     "\"\\ud83d\\ude00\":\"Emoji: Grinning Face\",\"\\u0080\":\"Control\","
		     "\"\\u00f6\":\"Latin Small Letter O With Diaeresis\"}",
		     "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\xc2\x80\":\"Control\","
		     "\"\xc3\xb6\":\"Latin Small Letter O With Diaeresis\",\"\xe2\x82\xac\":\"Euro "
		     "Sign\","
		     "\"\xf0\x9f\x98\x80\":\"Emoji: Grinning Face\","
		     "\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}");
}
END_TEST

/* RFC 8785 section 3.2.2, without its numbers. */
START_TEST(test_rfc8785_strings_and_literals)
{
	canonical_is("{\"string\": \"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\",\n"
		     " \"literals\": [null, true, false]}",
		     "{\"literals\":[null,true,false],"
		     "\"string\":\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
}
END_TEST

/* The test data published with the RFC: weird, french, unicode, arrays, structures (56.0 written
 * 56). */
START_TEST(test_rfc8785_published_data)
{
	canonical_is(
		"{\"\\u20ac\":\"Euro Sign\",\"\\r\":\"Carriage Return\",\"\\u000a\":\"Newline\","
		"\"1\":\"One\",\"\\u0080\":\"Control\\u007f\",\"\\ud83d\\ude02\":\"Smiley\","
		"\"\\u00f6\":\"Latin Small Letter O With Diaeresis\","
		"\"\\ufb33\":\"Hebrew Letter Dalet With Dagesh\",\"</script>\":\"Browser "
		"Challenge\"}",
		"{\"\\n\":\"Newline\",\"\\r\":\"Carriage Return\",\"1\":\"One\","
		"\"</script>\":\"Browser Challenge\",\"\xc2\x80\":\"Control\x7f\","
		"\"\xc3\xb6\":\"Latin Small Letter O With Diaeresis\",\"\xe2\x82\xac\":\"Euro "
		"Sign\","
		"\"\xf0\x9f\x98\x82\":\"Smiley\","
		"\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}");
	canonical_is("{\"peach\":\"This sorting order\",\"p\xc3\xa9"
		     "ch\xc3\xa9\":"
		     "\"is wrong according to French\",\"p\xc3\xaa"
		     "che\":\"but canonicalization MUST\","
		     "\"sin\":\"ignore locale\"}",
		     "{\"peach\":\"This sorting order\",\"p\xc3\xa9"
		     "ch\xc3\xa9\":"
		     "\"is wrong according to French\",\"p\xc3\xaa"
		     "che\":\"but canonicalization MUST\","
		     "\"sin\":\"ignore locale\"}");
	canonical_is("{\"Unnormalized Unicode\":\"A\\u030a\"}",
		     "{\"Unnormalized Unicode\":\"A\xcc\x8a\"}");
	canonical_is("[56, {\"d\": true, \"10\": null, \"1\": [ ]}]",
		     "[56,{\"1\":[],\"10\":null,\"d\":true}]");
	canonical_is("{\"1\": {\"f\": {\"f\": \"hi\",\"F\": 5} ,\"\\n\": 56}, \"10\": { }, \"\": "
		     "\"empty\","
		     "\"a\": { }, \"111\": [ {\"e\": \"yes\",\"E\": \"no\" } ], \"A\": { }}",
		     "{\"\":\"empty\",\"1\":{\"\\n\":56,\"f\":{\"F\":5,\"f\":\"hi\"}},\"10\":{},"
		     "\"111\":[{\"E\":\"no\",\"e\":\"yes\"}],\"A\":{},\"a\":{}}");
}
END_TEST

START_TEST(test_every_control_character)
{
	canonical_is("{\"a\":\"\\u0001\\u0007\\u0008\\u0009\\u000a\\u000b\\u000c\\u000d\\u001f \"}",
		     "{\"a\":\"\\u0001\\u0007\\b\\t\\n\\u000b\\f\\r\\u001f \"}");
}
END_TEST

/* Pairs sort below U+E000-FFFF by UTF-16 and above them by bytes; prefixes come first. */
START_TEST(test_sorting_beyond_the_examples)
{
	canonical_is(
		"{\"\\uffff\":1,\"\\ud800\\udc01\":2,\"\\ud800\\udc00\":3,\"\\ud7ff\":4,"
		"\"\\ue000\":5,"
		"\"ab\":6,\"a\":7,\"a\\ud800\\udc00\":8,\"a\\uf000\":9}",
		"{\"a\":7,\"ab\":6,\"a\xf0\x90\x80\x80\":8,\"a\xef\x80\x80\":9,\"\xed\x9f\xbf\":4,"
		"\"\xf0\x90\x80\x80\":3,\"\xf0\x90\x80\x81\":2,\"\xee\x80\x80\":5,\"\xef\xbf\xbf\":"
		"1}");
}
END_TEST

START_TEST(test_integers)
{
	canonical_is("{\"a\":-0,\"b\":9007199254740991,\"c\":-9007199254740991,\"d\":0}",
		     "{\"a\":0,\"b\":9007199254740991,\"c\":-9007199254740991,\"d\":0}");
	static const char *const bad[] = {
		"{\"a\":1.0}",
		"{\"a\":1e2}",
		"{\"a\":1E2}",
		"{\"a\":0.5}",
		"{\"a\":-0.0}",
		"{\"a\":9007199254740992}",
		"{\"a\":-9007199254740992}",
		"{\"a\":99999999999999999999}",
		"{\"a\":01}",
		"{\"a\":+1}",
		"{\"a\":0x1}",
		"{\"a\":NaN}",
		"{\"a\":[[1.5]]}",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_fails(parse(bad[i], strlen(bad[i]), err), "bad_json");
}
END_TEST

START_TEST(test_refused_texts)
{
	static const char *const bad[] = {
		"",
		" ",
		"[]",
		"1",
		"\"a\"",
		"null",
		"{",
		"{}x",
		"{} {}",
		"{\"a\":1,}",
		"{'a':1}",
		"{a:1}",
		"{\"a\":\"\\ud800\"}",
		"{\"a\":\"\\udc00\"}",
		"{\"a\":\"\\ud800\\ud800\"}",
		"{\"\\ud800\":1}",
		"{\"a\":\"\xed\xa0\x80\"}",
		"{\"a\":\"\xc0\x80\"}",
		"{\"a\":\"\xff\"}",
		"{\"a\":\"\xf4\x90\x80\x80\"}",
		"{\"a\":\"\\u0000\"}",
		"{\"\\u0000\":1}",
		"{\"a\":\"\x01\"}",
		"\xef\xbb\xbf{}",
		"{\"a\":TRUE}",
		"// c\n{}",
		"{\"a\":1}\xff",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_fails(parse(bad[i], strlen(bad[i]), err), "bad_json");
	ck_fails(parse("{}\0", 3, err), "bad_json");
	ck_fails(parse("{\"a\":\"x\0y\"}", 11, err), "bad_json");
	ck_works(parse(" { } \n", 6, err));
	ck_works(parse("{\"a\":1}garbage", 7, err));
}
END_TEST

START_TEST(test_duplicate_keys)
{
	static const char *const bad[] = {
		"{\"a\":1,\"a\":1}",
		"{\"a\":1,\"\\u0061\":2}",
		"{\"x\":[{\"b\":{\"c\":1,\"c\":2}}]}",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_fails(parse(bad[i], strlen(bad[i]), err), "duplicate_key");
		struct hb_error e;
		ck_assert_ptr_null(hb_json_parse_foreign(bad[i], strlen(bad[i]), &e));
		ck_assert_str_eq(e.code, "duplicate_key");
	}
}
END_TEST

START_TEST(test_depth)
{
	struct hb_buf b = HB_BUF_INIT;

	for (int depth = HB_JSON_DEPTH_MAX; depth <= HB_JSON_DEPTH_MAX + 1; depth++) {
		hb_buf_clear(&b);
		hb_buf_adds(&b, "{\"a\":");
		for (int i = 1; i < depth; i++)
			hb_buf_addc(&b, '[');
		for (int i = 1; i < depth; i++)
			hb_buf_addc(&b, ']');
		hb_buf_addc(&b, '}');
		if (depth == HB_JSON_DEPTH_MAX)
			ck_works(parse(b.data, b.len, err));
		else
			ck_fails(parse(b.data, b.len, err), "bad_json");
	}
	hb_buf_clear(&b);
	for (int i = 0; i < 1000000; i++)
		hb_buf_addc(&b, '[');
	ck_fails(parse(b.data, b.len, err), "bad_json");
	hb_buf_free(&b);
}
END_TEST

/* Error text goes to callers and logs; the input may hold a token. */
START_TEST(test_errors_do_not_quote_the_input)
{
	static const char *const bad[] = {"{\"token\":\"hunter2\" hunter2}",
					  "{\"hunter2\":1,\"hunter2\":2}"};
	struct hb_error e;

	for (size_t i = 0; i < 2; i++) {
		ck_assert_ptr_null(hb_json_parse(bad[i], strlen(bad[i]), &e));
		ck_assert_ptr_null(strstr(e.message, "hunter2"));
	}
}
END_TEST

START_TEST(test_foreign)
{
	struct hb_error e;
	json_t *v = hb_json_parse_foreign("1.5e3", 5, &e);

	ck_assert(json_is_real(v));
	json_decref(v);
	v = hb_json_parse_foreign("[1.5]", 5, &e);
	ck_assert_ptr_nonnull(v);
	/* Read, but never signed. */
	struct hb_buf out = HB_BUF_INIT;
	hb_buf_adds(&out, "kept");
	ck_fails(hb_json_canonical(v, &out, err), "bad_json");
	ck_assert_str_eq(out.data, "kept");
	hb_buf_free(&out);
	json_decref(v);
}
END_TEST

/* Values made in memory can hold what a parser never lets in. */
START_TEST(test_canonical_refuses_bad_values)
{
	struct hb_buf out = HB_BUF_INIT;
	json_t *v = json_object();

	json_object_set_new_nocheck(v, "a", json_string_nocheck("\xff"));
	ck_fails(hb_json_canonical(v, &out, err), "bad_json");
	json_object_clear(v);
	json_object_set_new_nocheck(v, "\xc0\x80", json_true());
	ck_fails(hb_json_canonical(v, &out, err), "bad_json");
	json_object_clear(v);
	json_object_set_new(v, "a", json_stringn("x\0y", 3));
	ck_fails(hb_json_canonical(v, &out, err), "bad_json");
	json_object_clear(v);
	json_object_set_new(v, "a", json_integer(HB_JSON_INT_MAX + 1));
	ck_fails(hb_json_canonical(v, &out, err), "bad_json");
	ck_fails(hb_json_canonical(NULL, &out, err), "bad_json");
	ck_assert_uint_eq(out.len, 0);
	hb_buf_free(&out);
	json_decref(v);
}
END_TEST

START_TEST(test_digest)
{
	json_t *v = json_pack("{s:i, s:[]}", "b", 1, "a");
	char hex[65];

	/* printf '{"a":[],"b":1}' | sha256sum */
	ck_works(hb_json_digest(v, hex, err));
	ck_assert_str_eq(hex, "1c8f8816506a8ccbc55140d8a7bb70214a8942c7030fc0fc2914cec675cd1c15");
	json_decref(v);
}
END_TEST

START_TEST(test_getters)
{
	json_t *v = json_pack("{s:s, s:i, s:b}", "t", "x", "i", 7, "b", 1);

	ck_assert_str_eq(hb_json_text(v, "t", "f"), "x");
	ck_assert_str_eq(hb_json_text(v, "i", "f"), "f");
	ck_assert_int_eq(hb_json_int(v, "i", 1), 7);
	ck_assert_int_eq(hb_json_int(v, "none", 1), 1);
	ck_assert(hb_json_bool(v, "b", false));
	ck_assert(!hb_json_bool(v, "t", false));
	ck_assert_str_eq(hb_json_text(NULL, "t", "f"), "f");
	json_decref(v);
}
END_TEST

/* An error is always one line of UTF-8, or it could not be sent. */
START_TEST(test_error_text_is_plain)
{
	struct hb_error e;
	char longer[600], *text;
	json_t *v;

	hb_fail(&e, "x", "a\nb\x1b[31m\xff\xe2\x80\xa8z");
	ck_assert_str_eq(e.message, "a b?[31m??z");
	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	memcpy(longer + 509, "\xf0\x9f\x98\x80", 4);
	hb_fail(&e, "x", "%s", longer);
	ck_assert_uint_eq(strlen(e.message), 509);
	v = hb_json_error(&e);
	text = json_dumps(v, 0);
	ck_assert_ptr_nonnull(text);
	free(text);
	json_decref(v);
	hb_fail_prefix(&e, "before");
	ck_assert_int_eq(strncmp(e.message, "before: aaa", 11), 0);
	ck_assert_str_eq(e.code, "x");
	ck_assert_int_eq(hb_fail(NULL, "x", "y"), -1);
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("json");
	TCase *t = test_case("json");

	tcase_add_test(t, test_rfc8785_sorting);
	tcase_add_test(t, test_rfc8785_strings_and_literals);
	tcase_add_test(t, test_rfc8785_published_data);
	tcase_add_test(t, test_every_control_character);
	tcase_add_test(t, test_sorting_beyond_the_examples);
	tcase_add_test(t, test_integers);
	tcase_add_test(t, test_refused_texts);
	tcase_add_test(t, test_duplicate_keys);
	tcase_add_test(t, test_depth);
	tcase_add_test(t, test_errors_do_not_quote_the_input);
	tcase_add_test(t, test_foreign);
	tcase_add_test(t, test_canonical_refuses_bad_values);
	tcase_add_test(t, test_digest);
	tcase_add_test(t, test_getters);
	tcase_add_test(t, test_error_text_is_plain);
	suite_add_tcase(s, t);
	return test_run(s);
}
