/* The end of an output: last characters, valid text, every byte counted. */
#include "tests/unit/test_util.h"

#include "common/tail.h"
#include "common/utf8.h"

static char *text_of(const char *data, size_t len, size_t step, bool *truncated)
{
	struct hb_tail t = HB_TAIL_INIT;
	char *text;

	for (size_t at = 0; at < len; at += step)
		hb_tail_add(&t, data + at, len - at < step ? len - at : step);
	ck_assert_uint_eq(t.total, len);
	text = hb_tail_text(&t, 0, truncated);
	hb_tail_free(&t);
	return text;
}

START_TEST(test_short_output_is_whole)
{
	bool truncated;
	char *text = text_of("hello\n", 6, 1, &truncated);

	ck_assert_str_eq(text, "hello\n");
	ck_assert(!truncated);
	free(text);
	text = text_of("", 0, 1, &truncated);
	ck_assert_str_eq(text, "");
	ck_assert(!truncated);
	free(text);
}
END_TEST

START_TEST(test_exactly_the_limit_is_not_truncated)
{
	char *data = malloc(HB_TAIL_CHARS + 1);
	bool truncated;

	memset(data, 'a', HB_TAIL_CHARS + 1);
	data[0] = 'b';
	char *text = text_of(data, HB_TAIL_CHARS, 777, &truncated);
	ck_assert_uint_eq(strlen(text), HB_TAIL_CHARS);
	ck_assert(!truncated);
	free(text);
	text = text_of(data, HB_TAIL_CHARS + 1, 777, &truncated);
	ck_assert_uint_eq(strlen(text), HB_TAIL_CHARS);
	ck_assert_int_eq(text[0], 'a');
	ck_assert(truncated);
	free(text);
	free(data);
}
END_TEST

/* Characters of four bytes, cut anywhere by how they arrive. */
START_TEST(test_characters_not_bytes_are_counted)
{
	static const size_t steps[] = {1, 3, 4096, 1000003};
	size_t count = HB_TAIL_CHARS * 3;
	char *data = malloc(count * 4);

	for (size_t i = 0; i < count; i++)
		memcpy(data + i * 4, "\xf0\x9f\x98\x80", 4);
	for (size_t i = 0; i < 4; i++) {
		bool truncated;
		char *text = text_of(data, count * 4, steps[i], &truncated);

		ck_assert_uint_eq(hb_utf8_count(text, strlen(text)), HB_TAIL_CHARS);
		ck_assert_uint_eq(strlen(text), HB_TAIL_CHARS * 4);
		ck_assert(truncated);
		free(text);
	}
	free(data);
}
END_TEST

START_TEST(test_what_is_no_text_becomes_text)
{
	bool truncated;
	char *text = text_of("a\0b\xff\xc3(", 6, 2, &truncated);

	ck_assert_str_eq(text, "a\xef\xbf\xbd"
			       "b\xef\xbf\xbd\xef\xbf\xbd(");
	free(text);
}
END_TEST

/* 100 MB cost what the tail costs. */
START_TEST(test_h39_memory_is_bounded)
{
	struct hb_tail t = HB_TAIL_INIT;
	char chunk[65536];
	bool truncated;

	memset(chunk, 'y', sizeof chunk);
	for (int i = 0; i < 1600; i++)
		hb_tail_add(&t, chunk, sizeof chunk);
	hb_tail_add(&t, "end", 3);
	ck_assert_uint_eq(t.total, 1600u * 65536 + 3);
	ck_assert_uint_le(t.len, (HB_TAIL_CHARS * 4 + 4) * 2);
	char *text = hb_tail_text(&t, 5, &truncated);
	ck_assert_str_eq(text, "yyend");
	ck_assert(truncated);
	free(text);
	hb_tail_free(&t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tail");
	TCase *t = test_case("tail");

	tcase_add_test(t, test_short_output_is_whole);
	tcase_add_test(t, test_exactly_the_limit_is_not_truncated);
	tcase_add_test(t, test_characters_not_bytes_are_counted);
	tcase_add_test(t, test_what_is_no_text_becomes_text);
	tcase_add_test(t, test_h39_memory_is_bounded);
	suite_add_tcase(s, t);
	return test_run(s);
}
