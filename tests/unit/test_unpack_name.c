/* What a name in a layer means, which are refused, and the table that remembers entries. */
#include "tests/unit/test_util.h"

#include "broker/installer/unpack_inflate.h"
#include "broker/installer/unpack_name.h"
#include "broker/installer/unpack_table.h"

static struct hb_name name;

static const struct {
	const char *raw;
	enum hb_name_kind kind;
	const char *parent, *leaf;
} fine[] = {
	{"a", HB_NAME_ENTRY, "", "a"},
	{"./a", HB_NAME_ENTRY, "", "a"},
	{"a/b/c", HB_NAME_ENTRY, "a/b", "c"},
	{".//a/./b//", HB_NAME_ENTRY, "a", "b"},
	{"..a/b..", HB_NAME_ENTRY, "..a", "b.."},
	{"...", HB_NAME_ENTRY, "", "..."},
	{".", HB_NAME_ROOT, "", ""},
	{"./", HB_NAME_ROOT, "", ""},
	{"etc/.wh.passwd", HB_NAME_WHITEOUT, "etc", "passwd"},
	{".wh.a", HB_NAME_WHITEOUT, "", "a"},
	{".wh..a", HB_NAME_WHITEOUT, "", ".a"},
	{"etc/.wh..wh..opq", HB_NAME_OPAQUE, "etc", ".wh..wh..opq"},
	{".wh..wh..opq", HB_NAME_OPAQUE, "", ".wh..wh..opq"},
	{".wh..wh.plnk/1.2", HB_NAME_IGNORED, ".wh..wh.plnk", "1.2"},
	{"a/.wh..wh.aufs", HB_NAME_IGNORED, "a", ".wh..wh.aufs"},
	{".wh", HB_NAME_ENTRY, "", ".wh"},
	{"a.wh.b", HB_NAME_ENTRY, "", "a.wh.b"},
};

START_TEST(test_names)
{
	ck_works(hb_name_parse(fine[_i].raw, 100, &name, err));
	ck_assert_int_eq(name.kind, fine[_i].kind);
	ck_assert_str_eq(name.parent, fine[_i].parent);
	ck_assert_uint_eq(name.parent_len, strlen(fine[_i].parent));
	ck_assert_str_eq(name.leaf, fine[_i].leaf);
}
END_TEST

static const char *const unsafe[] = {"",       "..",    "../a",   "a/..",     "a/../b",
				     "./../a", "/",     "/a",     "//a",      ".wh.",
				     "a/.wh.", ".wh..", ".wh...", "a/.wh../", "a/.wh.b/c"};

START_TEST(test_unsafe_names)
{
	ck_fails(hb_name_parse(unsafe[_i], 100, &name, err), "unsafe_path");
}
END_TEST

START_TEST(test_targets)
{
	ck_works(hb_name_parse_target("/etc/passwd", 100, &name, err));
	ck_assert_str_eq(name.parent, "etc");
	ck_assert_str_eq(name.leaf, "passwd");
	ck_works(hb_name_parse_target("a/.wh.b", 100, &name, err));
	ck_assert_int_eq(name.kind, HB_NAME_ENTRY);
	ck_fails(hb_name_parse_target("a/../../b", 100, &name, err), "unsafe_path");
	ck_fails(hb_name_parse_target("/", 100, &name, err), "unsafe_path");
}
END_TEST

START_TEST(test_lengths)
{
	char *text = hb_calloc(1, 6000);

	memset(text, 'x', 101);
	ck_fails(hb_name_parse(text, 100, &name, err), "limit_exceeded");
	ck_works(hb_name_parse(text, 101, &name, err));
	memset(text, 'x', 4094);
	ck_works(hb_name_parse(text, 5000, &name, err));
	memset(text, 'x', 5000);
	ck_fails(hb_name_parse(text, 6000, &name, err), "limit_exceeded");
	free(text);
}
END_TEST

START_TEST(test_shown_names_are_cut_and_printable)
{
	struct hb_shown shown;
	char raw[400];

	ck_assert_str_eq(hb_name_show("plain", &shown), "plain");
	ck_assert_str_eq(hb_name_show("\033[1m\n", &shown), "\\033\\1331m\\012");
	for (size_t len = 0; len < sizeof(raw) - 1; len++) {
		memset(raw, '\n', len);
		raw[len] = '\0';
		hb_name_show(raw, &shown);
		ck_assert_uint_lt(strlen(shown.text), sizeof(shown.text));
	}
	ck_assert_str_eq(shown.text + strlen(shown.text) - 3, "...");
}
END_TEST

struct number {
	uint64_t key, square;
};

START_TEST(test_table)
{
	struct hb_table t;
	struct number *n;

	hb_table_init(&t, sizeof(struct number));
	ck_assert_ptr_null(hb_table_get(&t, 1));
	ck_assert_ptr_null(hb_table_put(&t, 0));
	for (uint64_t i = 1; i <= 50000; i++) {
		n = hb_table_put(&t, i << 20);
		ck_assert_uint_eq(n->square, 0);
		n->square = i * i;
	}
	for (uint64_t i = 1; i <= 50000; i++) {
		n = hb_table_get(&t, i << 20);
		ck_assert_ptr_nonnull(n);
		ck_assert_uint_eq(n->square, i * i);
	}
	ck_assert_ptr_null(hb_table_get(&t, 3));
	ck_assert_ptr_eq(hb_table_put(&t, 1 << 20), hb_table_get(&t, 1 << 20));
	ck_assert_uint_eq(t.count, 50000);
	hb_table_clear(&t);
	ck_assert_ptr_null(hb_table_get(&t, 1 << 20));
	hb_table_free(&t);
}
END_TEST

/* "hello\n" as two gzip members; fed a byte at a time into an output of a byte at a time. */
START_TEST(test_inflate_in_single_bytes)
{
	static const unsigned char member[] = {0x1f, 0x8b, 8,    0,    0,    0,    0,    0, 0,
					       3,    0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0xe7, 2, 0,
					       0x20, 0x30, 0x3a, 0x36, 6,    0,    0,    0};
	struct hb_inflate *z = hb_inflate_new("x.tar+gzip", NULL);
	unsigned char input[2 * sizeof(member)], out[64];
	size_t produced = 0, fed = 0;

	ck_assert_ptr_nonnull(z);
	memcpy(input, member, sizeof(member));
	memcpy(input + sizeof(member), member, sizeof(member));
	while (fed < sizeof(input) || produced < 12) {
		struct hb_inflate_io io = {input + fed, fed < sizeof(input) ? 1 : 0, out + produced,
					   1};

		ck_assert_uint_lt(produced, sizeof(out) - 1);
		ck_works(hb_inflate_step(z, &io, err));
		fed += fed < sizeof(input) && io.in_len == 0;
		produced += io.out_len == 0;
		if (fed == sizeof(member) / 2)
			ck_assert(!hb_inflate_at_end(z));
	}
	ck_assert_uint_eq(produced, 12);
	ck_assert_int_eq(memcmp(out, "hello\nhello\n", 12), 0);
	ck_assert(hb_inflate_at_end(z));
	hb_inflate_free(z);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("unpack_name");
	TCase *c = tcase_create("unpack_name");

	tcase_add_loop_test(c, test_names, 0, sizeof(fine) / sizeof(fine[0]));
	tcase_add_loop_test(c, test_unsafe_names, 0, sizeof(unsafe) / sizeof(unsafe[0]));
	tcase_add_test(c, test_targets);
	tcase_add_test(c, test_lengths);
	tcase_add_test(c, test_shown_names_are_cut_and_printable);
	tcase_add_test(c, test_table);
	tcase_add_test(c, test_inflate_in_single_bytes);
	suite_add_tcase(s, c);
	return test_run(s);
}
