/* The escape rule: what is seen is what it is, and two values never look the same. */
#include "tests/unit/test_util.h"

#include <stdint.h>

#include "policy/summary.h"
#include "policy/unicode.h"

static const char *shown(const char *text)
{
	static struct hb_buf out;

	hb_buf_clear(&out);
	hb_buf_adds(&out, "");
	hb_escape_value(text, &out);
	return out.data;
}

static const char *block(const char *text)
{
	static struct hb_buf out;

	hb_buf_clear(&out);
	hb_escape_block(text, &out);
	return out.data;
}

static size_t encode(uint32_t c, char out[5])
{
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	if (n == 1) {
		out[0] = (char)c;
	} else {
		for (size_t i = n; i-- > 1; c >>= 6)
			out[i] = (char)(0x80 | (c & 0x3f));
		out[0] = (char)((0xf0 << (4 - n) & 0xff) | c);
	}
	out[n] = '\0';
	return n;
}

START_TEST(test_as_they_are)
{
	ck_assert_str_eq(shown("plain ASCII ~!@#$%^&*()_+{}|:\"<>?`-=[];',./"),
			 "plain ASCII ~!@#$%^&*()_+{}|:\"<>?`-=[];',./");
	ck_assert_str_eq(shown("Straße Ωμέγα Привет 日本語 한국어 ١٢٣ हिन्दी"),
			 "Straße Ωμέγα Привет 日本語 한국어 ١٢٣ हिन्दी");
	ck_assert_str_eq(shown("e\xcc\x81"), "e\xcc\x81");
	ck_assert_str_eq(shown(""), "");
}
END_TEST

START_TEST(test_escapes)
{
	ck_assert_str_eq(shown("a\\b\tc\nd\re"), "a\\\\b\\tc\\nd\\re");
	ck_assert_str_eq(shown("\\u{41}"), "\\\\u{41}");
	ck_assert_str_eq(shown("\\x20"), "\\\\x20");
	ck_assert_str_eq(shown("\x1b[31m\x7f"), "\\u{1B}[31m\\u{7F}");
	ck_assert_str_eq(shown("\xc2\x85"), "\\u{85}");
	/* signs of other scripts are not letters */
	ck_assert_str_eq(shown("\xe2\x80\x93\xe2\x82\xac\xef\xbc\x8f\xf0\x9f\x98\x80"),
			 "\\u{2013}\\u{20AC}\\u{FF0F}\\u{1F600}");
}
END_TEST

START_TEST(test_blanks)
{
	ck_assert_str_eq(shown(" a"), "\\x20a");
	ck_assert_str_eq(shown("a "), "a\\x20");
	ck_assert_str_eq(shown("a b"), "a b");
	ck_assert_str_eq(shown("a  b"), "a \\x20b");
	ck_assert_str_eq(shown("a   b"), "a \\x20\\x20b");
	ck_assert_str_eq(shown(" "), "\\x20");
	ck_assert_str_eq(shown("a \t b"), "a \\t b");
}
END_TEST

START_TEST(test_marks)
{
	/* no base: at the beginning, behind a blank, behind a sign */
	ck_assert_str_eq(shown("\xcc\x81"), "\\u{301}");
	ck_assert_str_eq(shown("a \xcc\x81"), "a \\u{301}");
	ck_assert_str_eq(shown("/\xcc\xb8"), "/\\u{338}");
	/* three in a row reach far enough */
	ck_assert_str_eq(shown("e\xcc\x81\xcc\x81\xcc\x81\xcc\x81"),
			 "e\xcc\x81\xcc\x81\xcc\x81\\u{301}");
	/* a mark behind an escaped one has no base either */
	ck_assert_str_eq(shown("/\xcc\xb8\xcc\x81"), "/\\u{338}\\u{301}");
}
END_TEST

START_TEST(test_h46_nothing_invisible_is_shown)
{
	static const uint32_t points[] = {
		0x202E,  0x2066,  0x200B,  0x00AD,  0xFEFF, 0x2028, 0x2029, 0x3164, 0x00A0, 0x2003,
		0xE0100, 0xE0041, 0x1D173, 0x1BCA0, 0x115F, 0x1160, 0xFFA0, 0x034F, 0x180E, 0xFE0F,
		0x200D,  0x2060,  0xE000,  0xF0000, 0x0378, 0xFFFE, 0x2800, 0x3000, 0x61C};

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		char raw[5], text[16], want[32];

		encode(points[i], raw);
		snprintf(text, sizeof(text), "a%sb", raw);
		snprintf(want, sizeof(want), "a\\u{%X}b", points[i]);
		ck_assert_str_eq(shown(text), want);
	}
}
END_TEST

START_TEST(test_h46_spaces_tabs_and_returns_are_visible)
{
	char spaces[302];

	memset(spaces, ' ', 301);
	spaces[300] = 'x';
	spaces[301] = '\0';
	ck_assert_uint_eq(strlen(shown(spaces)), 300 * 4 + 1);
	ck_assert_str_eq(shown("safe\rrm -rf /"), "safe\\rrm -rf /");
	ck_assert_str_eq(shown("\x1b[2K"), "\\u{1B}[2K");
}
END_TEST

START_TEST(test_blocks)
{
	ck_assert_str_eq(block("one"), "| one\n");
	ck_assert_str_eq(block("one\ntwo\n"), "| one\n| two\n| \n");
	ck_assert_str_eq(block(""), "| \n");
	ck_assert_str_eq(block("\n\n"), "| \n| \n| \n");
	ck_assert_str_eq(block("a\n  b \nimage: evil"), "| a\n| \\x20\\x20b\\x20\n| image: evil\n");
	ck_assert_str_eq(block("a\\nb"), "| a\\\\nb\n");
}
END_TEST

/* The reverse of the rule: if every value can be got back, no two look the same. */
static char *undo(const char *text)
{
	struct hb_buf out = HB_BUF_INIT;

	hb_buf_adds(&out, "");
	while (*text) {
		char raw[5];

		if (*text != '\\') {
			hb_buf_addc(&out, *text++);
		} else if (text[1] == 'u') {
			char *end;

			encode((uint32_t)strtoul(text + 3, &end, 16), raw);
			hb_buf_adds(&out, raw);
			text = end + 1;
		} else if (text[1] == 'x') {
			hb_buf_addc(&out, ' ');
			text += 4;
		} else {
			hb_buf_addc(&out, text[1] == 't'   ? '\t'
					  : text[1] == 'n' ? '\n'
					  : text[1] == 'r' ? '\r'
							   : '\\');
			text += 2;
		}
	}
	return hb_buf_take(&out);
}

START_TEST(test_every_value_can_be_got_back)
{
	static const uint32_t nasty[] = {' ',     ' ',    '\\', '\t', '\n',  '\r',   'u',  '{',
					 '2',     '}',    'x',  'n',  0x301, 0x202E, 0xE9, 0x3042,
					 0x1F600, 0xFE0F, 0x1B, '"',  'e',   'a',    '/'};
	char text[4 * 12 + 1];

	srandom(20261201);
	for (int round = 0; round < 50000; round++) {
		size_t len = 0;

		for (long n = random() % 12; n >= 0; n--) {
			uint32_t c = random() % 4 ? nasty[(size_t)random() %
							  (sizeof(nasty) / sizeof(nasty[0]))]
						  : (uint32_t)(random() % 0x10FFFF) + 1;

			if (c >= 0xD800 && c <= 0xDFFF)
				c = 'z';
			if (len + 5 < sizeof(text))
				len += encode(c, text + len);
		}
		text[len] = '\0';
		char *back = undo(shown(text));
		ck_assert_msg(strcmp(back, text) == 0, "round %d: '%s' became '%s'", round,
			      shown(text), back);
		free(back);
	}
}
END_TEST

START_TEST(test_scripts)
{
	ck_assert_str_eq(hb_unicode_script_name(hb_unicode_script('a')), "Latin");
	ck_assert_str_eq(hb_unicode_script_name(hb_unicode_script(0xE9)), "Latin");
	ck_assert_str_eq(hb_unicode_script_name(hb_unicode_script(0x430)), "Cyrillic");
	ck_assert_str_eq(hb_unicode_script_name(hb_unicode_script(0x3B1)), "Greek");
	ck_assert_str_eq(hb_unicode_script_name(hb_unicode_script(0x561)), "Armenian");
	ck_assert_str_eq(hb_unicode_script_name(hb_unicode_script(0x5D0)), "Hebrew");
	ck_assert_str_eq(hb_unicode_script_name(hb_unicode_script(0x627)), "Arabic");
	ck_assert_str_eq(hb_unicode_script_name(hb_unicode_script(0x905)), "Devanagari");
	ck_assert_str_eq(hb_unicode_script_name(hb_unicode_script(0x4E00)), "East Asian");
	ck_assert_str_eq(hb_unicode_script_name(hb_unicode_script(0xAC00)), "East Asian");
	ck_assert_int_eq(hb_unicode_script('1'), -1);
	ck_assert_int_eq(hb_unicode_script('-'), -1);
	ck_assert(hb_unicode_is_lookalike(0x430));
	ck_assert(hb_unicode_is_lookalike(0xFF41));
	ck_assert(hb_unicode_is_lookalike(0x1D41A));
	ck_assert(!hb_unicode_is_lookalike(0x436));
	ck_assert(!hb_unicode_is_lookalike('a'));
	ck_assert(hb_unicode_is_rtl(0x5D0));
	ck_assert(!hb_unicode_is_rtl('a'));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("escape");
	TCase *t = test_case("escape");

	tcase_add_test(t, test_as_they_are);
	tcase_add_test(t, test_escapes);
	tcase_add_test(t, test_blanks);
	tcase_add_test(t, test_marks);
	tcase_add_test(t, test_h46_nothing_invisible_is_shown);
	tcase_add_test(t, test_h46_spaces_tabs_and_returns_are_visible);
	tcase_add_test(t, test_blocks);
	tcase_add_test(t, test_every_value_can_be_got_back);
	tcase_add_test(t, test_scripts);
	suite_add_tcase(s, t);
	return test_run(s);
}
