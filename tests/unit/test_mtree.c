/* The tree manifest: escaping, the order of paths, strict reading, and that writer and reader
 * agree. */
#include "tests/unit/test_util.h"

#include <sys/stat.h>

#include "broker/installer/mtree.h"
#include "broker/installer/walk.h"

#define SUM "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static char *escape(const char *text)
{
	struct hb_buf b = HB_BUF_INIT;

	hb_mtree_escape(&b, text, strlen(text));
	return hb_buf_take(&b);
}

START_TEST(test_escaping_is_reversible)
{
	char all[256], *text;

	for (int i = 0; i < 255; i++)
		all[i] = (char)(i + 1);
	all[255] = '\0';
	text = escape(all);
	for (const char *p = text; *p != '\0'; p++)
		ck_assert(*p > 0x20 && *p < 0x7f && strchr("#=*?[", *p) == NULL);
	ck_assert_int_eq(hb_mtree_unescape(text), 0);
	ck_assert_str_eq(text, all);
	free(text);
	text = escape("a b\\c\n\xff=d");
	ck_assert_str_eq(text, "a\\040b\\134c\\012\\377\\075d");
	free(text);
}
END_TEST

START_TEST(test_bad_escapes)
{
	const char *bad[] = {"\\", "\\0", "\\01", "\\089", "\\000", "\\400", "a\\x41", "\\777"};
	char text[16];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		strcpy(text, bad[i]);
		ck_assert_msg(hb_mtree_unescape(text) < 0, "%s", bad[i]);
	}
}
END_TEST

START_TEST(test_lines)
{
	struct hb_mtree_entry file = {.path = "./a b",
				      .mode = S_IFREG | 0640,
				      .size = 3,
				      .mtime = -5,
				      .mtime_ns = 7,
				      .sha256 = SUM,
				      .nlink = 2,
				      .group = 1},
			      link = {.path = "./l",
				      .mode = S_IFLNK | 0777,
				      .mtime = 1,
				      .link = "x=y"},
			      dir = {.path = ".", .mode = S_IFDIR | 01755};
	struct hb_buf b = HB_BUF_INIT;

	hb_mtree_format(&dir, &b);
	hb_mtree_format(&file, &b);
	hb_mtree_format(&link, &b);
	ck_assert_str_eq(b.data, ". type=dir mode=1755 time=0.000000000\n"
				 "./a\\040b type=file mode=0640 size=3 time=-5.000000007 nlink=2 "
				 "inode=1 sha256digest=" SUM "\n"
				 "./l type=link mode=0777 time=1.000000000 link=x\\075y\n");
	hb_buf_free(&b);
}
END_TEST

START_TEST(test_bad_lines)
{
	const char *bad[] = {
		"",
		"a type=dir mode=0755 time=0.000000000",
		"./a",
		"./a mode=0644",
		"./a type=file mode=0644 size=1",
		"./a type=link mode=0777",
		"./a type=block mode=0644",
		"./a type=dir mode=0855",
		"./a type=dir mode=77777",
		"./a type=dir uid=0",
		"./a type=dir time=1",
		"./a type=dir time=1.5",
		"./a type=dir junk",
		"./a type=dir size=-1",
		"./\\ type=dir",
		"../a type=dir mode=0755",
		"./a type=file size=1x sha256digest=" SUM,
		"./a type=file "
		"sha256digest=BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	};
	struct hb_mtree_entry e;
	char line[256];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		strcpy(line, bad[i]);
		ck_fails(hb_mtree_parse(line, &e, err), "bad_manifest");
	}
}
END_TEST

START_TEST(test_order)
{
	const char *sorted[] = {".",       "./-",   "./a",   "./a/b", "./a/b/c", "./a/bb",
				"./a\001", "./a-b", "./a.b", "./ab",  "./b"};
	const size_t n = sizeof(sorted) / sizeof(sorted[0]);

	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < n; j++)
			ck_assert_msg(hb_mtree_compare(sorted[i], sorted[j]) ==
					      (i < j ? -1 : i > j),
				      "%s %s", sorted[i], sorted[j]);
}
END_TEST

struct seen {
	struct hb_buf paths;
	char last[256];
	int left;
};

static int note(struct hb_walk_entry *e, void *arg, struct hb_error *err)
{
	struct seen *s = arg;

	ck_assert_int_eq(e->fd >= 0, S_ISDIR(e->st.st_mode));
	if (s->last[0] != '\0')
		ck_assert_int_eq(hb_mtree_compare(s->last, e->path), -1);
	snprintf(s->last, sizeof(s->last), "%s", e->path);
	hb_buf_printf(&s->paths, "%s ", e->path);
	return strcmp(e->path, "./skip") == 0 ? 1 : 0;
}

static int leaving(struct hb_walk_entry *e, void *arg, struct hb_error *err)
{
	struct seen *s = arg;

	s->left++;
	return 0;
}

START_TEST(test_walk_goes_in_manifest_order)
{
	struct seen s = {.left = 0};
	int fd;

	ck_assert_int_eq(mkdir("a", 0755) | mkdir("a/z", 0755) | mkdir("skip", 0755) |
				 mkdir("skip/in", 0755),
			 0);
	test_puts("a-b", "");
	test_puts("a.b", "");
	test_puts("a/x", "");
	test_puts("a/z/y", "");
	ck_assert_int_eq(symlink("a", "to-a"), 0);
	fd = open(".", O_RDONLY | O_DIRECTORY);
	ck_works(hb_walk(fd, note, leaving, &s, err));
	close(fd);
	ck_assert_str_eq(s.paths.data, ". ./a ./a/x ./a/z ./a/z/y ./a-b ./a.b ./skip ./to-a ");
	ck_assert_int_eq(s.left, 3);
	hb_buf_free(&s.paths);
}
END_TEST

static void write_manifest(const char *name, int entries, char digest[HB_HEX256])
{
	struct hb_mtree_writer *w;
	char path[64];
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	w = hb_mtree_writer_new(fd);
	for (int i = 0; i < entries; i++) {
		struct hb_mtree_entry e = {.path = path,
					   .mode = S_IFREG | 0644,
					   .size = (uint64_t)i,
					   .sha256 = SUM};

		snprintf(path, sizeof(path), "./%08d", i);
		ck_works(hb_mtree_write(w, &e, err));
	}
	ck_works(hb_mtree_writer_finish(w, digest, err));
	hb_mtree_writer_free(w);
	close(fd);
}

START_TEST(test_writer_and_reader_agree)
{
	char written[HB_HEX256], seen[HB_HEX256], whole[HB_HEX256], *text;
	struct hb_mtree_reader *r;
	struct hb_mtree_entry e;
	size_t len;
	int fd, count = 0, rc = 1;

	write_manifest("m", 10000, written); /* several buffers long */
	text = test_read("m", &len);
	hb_sha256_hex(text, len, whole);
	ck_assert_str_eq(written, whole);
	fd = open("m", O_RDONLY);
	r = hb_mtree_reader_new(fd);
	while (rc > 0) {
		ck_works(rc = hb_mtree_read(r, &e, err));
		if (rc > 0)
			ck_assert_uint_eq(e.size, (uint64_t)count++);
	}
	ck_assert_int_eq(count, 10000);
	hb_mtree_reader_digest(r, seen);
	ck_assert_str_eq(seen, whole);
	hb_mtree_reader_free(r);
	close(fd);
	free(text);
}
END_TEST

static void read_fails(const char *text, size_t len)
{
	struct hb_mtree_reader *r;
	struct hb_mtree_entry e;
	struct hb_error err = {"", ""};
	int fd, rc = 1;

	test_write("bad", text, len);
	fd = open("bad", O_RDONLY);
	r = hb_mtree_reader_new(fd);
	while (rc > 0)
		rc = hb_mtree_read(r, &e, &err);
	ck_assert_int_eq(rc, -1);
	ck_assert_str_eq(err.code, "bad_manifest");
	hb_mtree_reader_free(r);
	close(fd);
}

START_TEST(test_bad_files)
{
	static char longer[HB_MTREE_LINE_MAX + 200];

	read_fails("", 0);
	read_fails("#mtree", 6);
	read_fails(". type=dir mode=0755\n", 21);
	read_fails("#mtree\n. type=dir mode=0755", 27);
	read_fails("#mtree\n. type=dir\0mode=0755\n", 28);
	memset(longer, 'a', sizeof(longer));
	memcpy(longer, "#mtree\n./", 9);
	read_fails(longer, sizeof(longer));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mtree");
	TCase *c = tcase_create("mtree");

	tcase_add_test(c, test_escaping_is_reversible);
	tcase_add_test(c, test_bad_escapes);
	tcase_add_test(c, test_lines);
	tcase_add_test(c, test_bad_lines);
	tcase_add_test(c, test_order);
	tcase_add_test(c, test_walk_goes_in_manifest_order);
	tcase_add_test(c, test_writer_and_reader_agree);
	tcase_add_test(c, test_bad_files);
	suite_add_tcase(s, c);
	return test_run(s);
}
