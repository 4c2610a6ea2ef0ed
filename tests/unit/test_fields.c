/* Exact fields, types and ranges; the output is untouched when anything is wrong. */
#include "tests/unit/test_util.h"

#include "common/fields.h"
#include "common/json.h"

struct sample {
	const char *name, *digest, *user;
	long long count;
	bool flag;
	json_t *object, *list;
};

#define F(field, type, flags, min, max)                                                            \
	{                                                                                          \
#field, type, flags, offsetof(struct sample, field), min, max                      \
	}

static const struct hb_field fields[] = {
	F(name, HB_FIELD_TEXT, HB_FIELD_REQUIRED, 1, 5),
	F(digest, HB_FIELD_TEXT, HB_FIELD_HEX64, 0, 0),
	F(user, HB_FIELD_TEXT, HB_FIELD_DECIMAL, 0, 0),
	F(count, HB_FIELD_INT, 0, -2, 10),
	F(flag, HB_FIELD_BOOL, 0, 0, 0),
	F(object, HB_FIELD_OBJECT, 0, 0, 0),
	F(list, HB_FIELD_ARRAY, 0, 1, 2),
};

static const struct sample defaults = {"default", "none", "nobody", 99, true, NULL, NULL};

/* Decodes over defaults; the object is kept in *keep when not NULL. */
static int
decode(const char *text, struct sample *out, json_t **keep, struct hb_error *err)
{
	json_t *o = hb_json_parse(text, strlen(text), err);
	int rc;

	ck_assert_msg(o != NULL, "%s", text);
	*out = defaults;
	rc = hb_fields_decode(o, fields, sizeof(fields) / sizeof(fields[0]), out, err);
	if (keep != NULL)
		*keep = o;
	else
		json_decref(o);
	return rc;
}

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

START_TEST(test_all_fields)
{
	struct sample s;
	json_t *o;

	ck_works(decode(
		"{\"name\":\"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80\",\"digest\":\"" HEX64
		"\",\"user\":\"0\",\"count\":-2,\"flag\":false,\"object\":{},\"list\":[1,2]}",
		&s, &o, err));
	ck_assert_str_eq(s.name, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80");
	ck_assert_str_eq(s.digest, HEX64);
	ck_assert_str_eq(s.user, "0");
	ck_assert_int_eq(s.count, -2);
	ck_assert(!s.flag);
	ck_assert(json_is_object(s.object) && json_is_array(s.list));
	json_decref(o);
}
END_TEST

START_TEST(test_absent_fields_keep_defaults)
{
	struct sample s;
	json_t *o;

	ck_works(decode("{\"name\":\"a\"}", &s, &o, err));
	ck_assert_str_eq(s.digest, "none");
	ck_assert_int_eq(s.count, 99);
	ck_assert(s.flag);
	json_decref(o);
}
END_TEST

START_TEST(test_refusals)
{
	static const struct {
		const char *text, *code;
	} bad[] = {
		{"{}", "missing_field"},
		{"{\"name\":\"a\",\"Name\":\"b\"}", "unknown_field"},
		{"{\"name\":\"a\",\"\":1}", "unknown_field"},
		{"{\"name\":1}", "bad_type"},
		{"{\"name\":null}", "bad_type"},
		{"{\"name\":\"\"}", "out_of_range"},
		{"{\"name\":\"abcdef\"}", "out_of_range"},
		{"{\"name\":\"a\\u0001\"}", "out_of_range"},
		{"{\"name\":\"a\\u007f\"}", "out_of_range"},
		{"{\"name\":\"a\",\"count\":\"1\"}", "bad_type"},
		{"{\"name\":\"a\",\"count\":true}", "bad_type"},
		{"{\"name\":\"a\",\"count\":11}", "out_of_range"},
		{"{\"name\":\"a\",\"count\":-3}", "out_of_range"},
		{"{\"name\":\"a\",\"flag\":0}", "bad_type"},
		{"{\"name\":\"a\",\"flag\":\"true\"}", "bad_type"},
		{"{\"name\":\"a\",\"object\":[]}", "bad_type"},
		{"{\"name\":\"a\",\"list\":{}}", "bad_type"},
		{"{\"name\":\"a\",\"list\":[]}", "out_of_range"},
		{"{\"name\":\"a\",\"list\":[1,2,3]}", "out_of_range"},
		{"{\"name\":\"a\",\"digest\":\"" HEX64 "0\"}", "out_of_range"},
		{"{\"name\":\"a\",\"digest\":\"A"
		 "123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}",
		 "out_of_range"},
		{"{\"name\":\"a\",\"user\":\"\"}", "out_of_range"},
		{"{\"name\":\"a\",\"user\":\"01\"}", "out_of_range"},
		{"{\"name\":\"a\",\"user\":\"-1\"}", "out_of_range"},
		{"{\"name\":\"a\",\"user\":\"1 \"}", "out_of_range"},
		{"{\"name\":\"a\",\"user\":\"123456789012345678901\"}", "out_of_range"},
		{"{\"name\":\"a\",\"user\":\"\\u0661\"}", "out_of_range"},
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct sample s;

		ck_fails(decode(bad[i].text, &s, NULL, err), bad[i].code);
		ck_assert_msg(memcmp(&s, &defaults, sizeof(s)) == 0, "%s changed the output",
			      bad[i].text);
	}
}
END_TEST

/* The first fields are good and a later one is not: nothing may have been stored. */
START_TEST(test_output_untouched_when_a_later_field_is_bad)
{
	struct sample s;

	ck_fails(decode("{\"name\":\"good\",\"user\":\"7\",\"list\":[1,2,3]}", &s, NULL, err),
		 "out_of_range");
	ck_assert_str_eq(s.name, "default");
	ck_assert_str_eq(s.user, "nobody");
}
END_TEST

START_TEST(test_not_an_object)
{
	json_t *a = json_array();
	struct sample s;

	ck_fails(hb_fields_decode(a, fields, 1, &s, err), "bad_type");
	ck_fails(hb_fields_decode(NULL, fields, 1, &s, err), "bad_type");
	json_decref(a);
}
END_TEST

START_TEST(test_text_rule)
{
	char one[2] = {0, 0};

	for (int c = 1; c < 0x80; c++) {
		one[0] = (char)c;
		if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f)
			ck_fails(hb_text_check("x", one, 0, 9, err), "out_of_range");
		else
			ck_works(hb_text_check("x", one, 0, 9, err));
	}
	ck_works(hb_text_check("x", "", 0, 0, err));
	ck_works(hb_text_check("x", "\xe2\x82\xac\xe2\x82\xac", 2, 2, err));
	ck_fails(hb_text_check("x", "\xe2\x82\xac\xe2\x82\xac", 3, 9, err), "out_of_range");
	ck_fails(hb_text_check("x", "\xe2\x82", 0, 9, err), "bad_type");
	ck_fails(hb_text_check("x", "\xed\xa0\x80", 0, 9, err), "bad_type");
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("fields");
	TCase *t = test_case("fields");

	tcase_add_test(t, test_all_fields);
	tcase_add_test(t, test_absent_fields_keep_defaults);
	tcase_add_test(t, test_refusals);
	tcase_add_test(t, test_output_untouched_when_a_later_field_is_bad);
	tcase_add_test(t, test_not_an_object);
	tcase_add_test(t, test_text_rule);
	suite_add_tcase(s, t);
	return test_run(s);
}
