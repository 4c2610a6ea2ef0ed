/* What a backup may hold: every kind of entry that is refused, and that writing and reading agree.
 */
#include "tests/unit/test_util.h"

#include <stdint.h>

#include "broker/installer/age.h"
#include "broker/installer/backup_manifest.h"
#include "common/json.h"

#define D "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct hb_error err;

static int add(struct hb_backup_manifest *m, enum hb_backup_type type, const char *path,
	       const char *target)
{
	struct hb_backup_entry e = {.path = (char *)(uintptr_t)path,
				    .type = type,
				    .mode = type == HB_BACKUP_DIRECTORY ? 0700 : 0600,
				    .mtime = 1700000000,
				    .size = type == HB_BACKUP_FILE ? 7 : 0,
				    .sha256 = D,
				    .target = (char *)(uintptr_t)target};

	return hb_backup_manifest_add(m, &e, "/data", &err);
}

static void begin(struct hb_backup_manifest *m)
{
	memset(m, 0, sizeof *m);
	ck_assert_int_eq(add(m, HB_BACKUP_DIRECTORY, ".", NULL), 0);
}

static void refused(struct hb_backup_manifest *m, enum hb_backup_type type, const char *path,
		    const char *target, const char *code)
{
	size_t before = m->count;

	ck_assert_msg(add(m, type, path, target) < 0, "%s -> %s was taken", path,
		      target ? target : "");
	ck_assert_msg(strcmp(err.code, code) == 0, "%s -> %s: %s", path, target ? target : "",
		      err.message);
	ck_assert_uint_eq(m->count, before);
}

START_TEST(test_h31_names_that_lead_out_are_refused)
{
	static const char *const paths[] = {"/etc/passwd", "../x", "a/../../x", "a//b", "a/./b",
					    "a/",	   "",	   "..",	"./a"};
	struct hb_backup_manifest m;
	char name[300];

	begin(&m);
	ck_assert_int_eq(add(&m, HB_BACKUP_DIRECTORY, "a", NULL), 0);
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
		refused(&m, HB_BACKUP_FILE, paths[i], NULL, "unsafe_path");
	memset(name, 'n', 256);
	name[256] = '\0';
	refused(&m, HB_BACKUP_FILE, name, NULL, "unsafe_path");
	name[255] = '\0';
	ck_assert_int_eq(add(&m, HB_BACKUP_FILE, name, NULL), 0);
	hb_backup_manifest_free(&m);
}
END_TEST

START_TEST(test_h31_order_and_parents)
{
	struct hb_backup_manifest m = {0};

	refused(&m, HB_BACKUP_FILE, "a", NULL, "bad_backup");
	refused(&m, HB_BACKUP_FILE, ".", NULL, "bad_backup");
	begin(&m);
	refused(&m, HB_BACKUP_DIRECTORY, ".", NULL, "bad_backup");
	ck_assert_int_eq(add(&m, HB_BACKUP_DIRECTORY, "d", NULL), 0);
	ck_assert_int_eq(add(&m, HB_BACKUP_FILE, "d/x", NULL), 0);
	refused(&m, HB_BACKUP_FILE, "d/x", NULL, "bad_backup");	   /* twice */
	refused(&m, HB_BACKUP_FILE, "d/a", NULL, "bad_backup");	   /* out of order */
	refused(&m, HB_BACKUP_FILE, "d/x/y", NULL, "unsafe_path"); /* below a file */
	refused(&m, HB_BACKUP_FILE, "e/y", NULL, "unsafe_path");   /* below nothing */
	ck_assert_int_eq(add(&m, HB_BACKUP_LINK, "l", "d"), 0);
	refused(&m, HB_BACKUP_FILE, "l/y", NULL, "unsafe_path"); /* below a link */
	ck_assert_int_eq(add(&m, HB_BACKUP_DIRECTORY, "m", NULL), 0);
	ck_assert_int_eq(add(&m, HB_BACKUP_DIRECTORY, "m/n", NULL), 0);
	ck_assert_int_eq(add(&m, HB_BACKUP_FILE, "m/n/o", NULL), 0);
	ck_assert_int_eq(add(&m, HB_BACKUP_FILE, "m/z", NULL), 0);
	ck_assert_uint_eq(m.entries[m.count - 1].parent, 4);
	ck_assert_int_eq(add(&m, HB_BACKUP_FILE, "z", NULL), 0);
	ck_assert_uint_eq(m.entries[m.count - 1].parent, 0);
	refused(&m, HB_BACKUP_FILE, "m/zz", NULL,
		"bad_backup"); /* back into a directory that is over */
	hb_backup_manifest_free(&m);
}
END_TEST

START_TEST(test_h31_links)
{
	static const char *const inside[] = {"x",	  "./x", "../x",  "../../x",
					     "../../d/e", "x/y", "/data", "/data/x"};
	static const char *const outside[] = {
		"/etc/passwd", "/", "../../../x", "x/../y", "/data/../etc", "/database", ""};
	struct hb_backup_manifest m;
	char name[16];

	begin(&m);
	ck_assert_int_eq(add(&m, HB_BACKUP_DIRECTORY, "d", NULL), 0);
	ck_assert_int_eq(add(&m, HB_BACKUP_DIRECTORY, "d/e", NULL), 0);
	for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
		snprintf(name, sizeof name, "d/e/l%zu", i);
		ck_assert_msg(add(&m, HB_BACKUP_LINK, name, inside[i]) == 0, "%s: %s", inside[i],
			      err.message);
	}
	for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
		refused(&m, HB_BACKUP_LINK, "d/e/z", outside[i], "unsafe_link");
	hb_backup_manifest_free(&m);
}
END_TEST

START_TEST(test_special_bits_are_refused)
{
	static const mode_t bad[] = {04700, 02700, 01700};
	struct hb_backup_entry e = {
		.path = (char *)(uintptr_t) "a", .type = HB_BACKUP_FILE, .sha256 = D};
	struct hb_backup_manifest m;

	begin(&m);
	for (size_t i = 0; i < 3; i++) {
		e.mode = bad[i];
		ck_assert_int_lt(hb_backup_manifest_add(&m, &e, "/data", &err), 0);
		ck_assert_str_eq(err.code, "unsafe_mode");
	}
	hb_backup_manifest_free(&m);
}
END_TEST

static void fill(struct hb_backup_manifest *m)
{
	begin(m);
	snprintf(m->host_id, sizeof m->host_id, "h");
	snprintf(m->operation_id, sizeof m->operation_id, "o");
	snprintf(m->release, sizeof m->release, "%s", D);
	snprintf(m->image, sizeof m->image, "r/i:v1@sha256:%s", D);
	m->created_at = 1800000000;
	m->left_out = 2;
	ck_assert_int_eq(add(m, HB_BACKUP_FILE, "data.db", NULL), 0);
	m->entries[1].sqlite = true;
	ck_assert_int_eq(add(m, HB_BACKUP_FILE, "data.db-wal", NULL), 0);
	ck_assert_int_eq(add(m, HB_BACKUP_FILE, "n\xff\\ =\n", NULL), 0);
	ck_assert_int_eq(add(m, HB_BACKUP_LINK, "o", "data.db"), 0);
	ck_assert_int_eq(add(m, HB_BACKUP_FILE, "other-wal", NULL), 0);
}

START_TEST(test_written_and_read)
{
	struct hb_backup_manifest m, n;
	struct hb_buf text = HB_BUF_INIT, again = HB_BUF_INIT;

	fill(&m);
	ck_assert_int_eq(hb_backup_manifest_print(&m, &text, &err), 0);
	ck_assert_msg(hb_backup_manifest_parse(text.data, text.len, "/data", &n, &err) == 0, "%s",
		      err.message);
	ck_assert_uint_eq(n.count, 6);
	ck_assert_uint_eq(n.files, 4);
	ck_assert_uint_eq(n.bytes, 28);
	ck_assert_uint_eq(n.left_out, 2);
	ck_assert_str_eq(n.entries[3].path, "n\xff\\ =\n");
	ck_assert_str_eq(n.entries[4].target, "data.db");
	ck_assert(hb_backup_is_database(&n, 1) && hb_backup_is_database(&n, 2));
	ck_assert(!hb_backup_is_database(&n, 3) && !hb_backup_is_database(&n, 5));
	ck_assert_uint_eq(hb_backup_manifest_sqlite_bytes(&n), 14);
	ck_assert_int_eq(hb_backup_manifest_print(&n, &again, &err), 0);
	ck_assert_uint_eq(text.len, again.len);
	ck_assert_int_eq(memcmp(text.data, again.data, text.len), 0);
	hb_buf_free(&text);
	hb_buf_free(&again);
	hb_backup_manifest_free(&m);
	hb_backup_manifest_free(&n);
}
END_TEST

/* One member of the object (entry < 0) or of an entry is replaced or, with NULL, removed. */
static void altered(int entry, const char *member, json_t *value)
{
	struct hb_backup_manifest m, n;
	struct hb_buf text = HB_BUF_INIT, changed = HB_BUF_INIT;
	json_t *o, *at;

	fill(&m);
	ck_assert_int_eq(hb_backup_manifest_print(&m, &text, &err), 0);
	o = hb_json_parse(text.data, text.len, &err);
	at = entry < 0 ? o : json_array_get(json_object_get(o, "entries"), (size_t)entry);
	if (value)
		json_object_set_new(at, member, value);
	else
		json_object_del(at, member);
	ck_assert_int_eq(hb_json_canonical(o, &changed, &err), 0);
	ck_assert_msg(hb_backup_manifest_parse(changed.data, changed.len, "/data", &n, &err) < 0,
		      "%s of %d was taken", member, entry);
	ck_assert_msg(strcmp(err.code, "bad_backup") == 0 || strncmp(err.code, "unsafe_", 7) == 0,
		      "%s: %s", err.code, err.message);
	json_decref(o);
	hb_buf_free(&text);
	hb_buf_free(&changed);
	hb_backup_manifest_free(&m);
}

START_TEST(test_every_other_manifest_is_refused)
{
	static const char *const head[] = {"format",	  "version", "host_id",	   "operation_id",
					   "release",	  "image",   "created_at", "files",
					   "directories", "links",   "bytes",	   "left_out",
					   "entries"};
	static const char *const file[] = {"path", "type", "mode", "mtime", "size", "sha256"};
	struct hb_backup_manifest m;

	for (size_t i = 0; i < sizeof head / sizeof *head; i++) {
		altered(-1, head[i], NULL);
		altered(-1, head[i], json_null());
	}
	for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
		altered(1, file[i], NULL);
		altered(1, file[i], json_null());
	}
	altered(-1, "format", json_string("other"));
	altered(-1, "version", json_integer(2));
	altered(-1, "more", json_integer(1));
	altered(-1, "files", json_integer(5));
	altered(-1, "bytes", json_integer(27));
	altered(-1, "release", json_string("x"));
	altered(-1, "entries", json_array());
	altered(1, "type", json_string("device"));
	altered(1, "type", json_string("link"));
	altered(1, "type", json_string("directory"));
	altered(1, "mode", json_string("04600"));
	altered(1, "mode", json_string("06x0"));
	altered(1, "mode", json_string("-600"));
	altered(1, "sha256", json_string("00"));
	altered(1, "size", json_integer(-1));
	altered(1, "target", json_string("x"));
	altered(1, "path", json_string("\\000"));
	altered(1, "path", json_string("\\07"));
	altered(4, "target", NULL);
	altered(4, "target", json_string("\\057etc"));
	altered(4, "mode", json_string("0777"));
	altered(4, "sqlite", json_true());
	ck_assert_int_lt(hb_backup_manifest_parse("{", 1, "/data", &m, &err), 0);
	ck_assert_int_lt(hb_backup_manifest_parse("[]", 2, "/data", &m, &err), 0);
}
END_TEST

static mode_t restored(const char *path, mode_t mode)
{
	struct hb_backup_entry e = {
		.path = (char *)(uintptr_t)path, .type = HB_BACKUP_FILE, .mode = mode};

	return hb_backup_restored_mode(&e);
}

START_TEST(test_h32_secrets_are_never_for_others)
{
	ck_assert_uint_eq(restored("secret.key", 0666), 0600);
	ck_assert_uint_eq(restored("a/auth-secret.key", 0644), 0600);
	ck_assert_uint_eq(restored("auth-token", 0640), 0600);
	ck_assert_uint_eq(restored("x/TLS.PEM", 0755), 0700);
	ck_assert_uint_eq(restored("secret/readme", 0644), 0644); /* its directory decides that */
	ck_assert_uint_eq(restored("data.db", 0644), 0644);
	ck_assert_uint_eq(restored("keyboard.txt", 0444), 0444);
	ck_assert_uint_eq(restored("secret.key", 0400), 0400);
}
END_TEST

START_TEST(test_recipients)
{
	ck_assert(hb_age_is_recipient("age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac"
				      "8p"));
	ck_assert(hb_age_is_recipient("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA me@host"));
	ck_assert(!hb_age_is_recipient("-o/etc/passwd"));
	ck_assert(!hb_age_is_recipient("age1"));
	ck_assert(!hb_age_is_recipient("age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmca"
				       "c8p -o x"));
	ck_assert(!hb_age_is_recipient("/etc/recipients"));
	ck_assert(!hb_age_is_recipient("AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQ"));
	ck_assert(!hb_age_is_recipient(""));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("backup_manifest");
	TCase *t = tcase_create("core");

	tcase_add_test(t, test_h31_names_that_lead_out_are_refused);
	tcase_add_test(t, test_h31_order_and_parents);
	tcase_add_test(t, test_h31_links);
	tcase_add_test(t, test_special_bits_are_refused);
	tcase_add_test(t, test_written_and_read);
	tcase_add_test(t, test_every_other_manifest_is_refused);
	tcase_add_test(t, test_h32_secrets_are_never_for_others);
	tcase_add_test(t, test_recipients);
	suite_add_tcase(s, t);
	return test_run(s);
}
