/* The directory of backups: where it may lie, records, list, retention. */
#include "tests/unit/test_util.h"

#include <stdint.h>
#include <sys/stat.h>

#include "broker/installer/backup_store.h"
#include "common/json.h"

#define D "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct hb_error failure;
static char *here;

static char *at(const char *name)
{
	return hb_asprintf("%s/%s", here, name);
}

static struct hb_backup_store opened(const char *path, const char *code)
{
	char *data = at("payload/data"), *storage = at("storage");
	struct hb_backup_store s;

	hb_backup_store_open(path, data, storage, &s);
	free(data);
	free(storage);
	ck_assert_msg(strcmp(s.trouble.code, code) == 0, "%s: %s", path, s.trouble.message);
	ck_assert_int_eq(s.fd >= 0, code[0] == '\0');
	if (code[0])
		ck_fails(hb_backup_store_check(&s, err), code);
	return s;
}

static void enter(void)
{
	test_enter();
	here = getcwd(NULL, 0);
	ck_assert_int_eq(mkdir("payload", 0755) | mkdir("payload/data", 0700) |
				 mkdir("storage", 0755) | mkdir("installer", 0700),
			 0);
}

static void leave(void)
{
	free(here);
	test_leave();
}

START_TEST(test_made_private_and_judged_when_it_exists)
{
	struct hb_backup_store s;
	struct stat st;
	mode_t old = umask(0);

	s = opened("", "");
	ck_assert_int_eq(stat("installer/backups", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0700);
	hb_backup_store_close(&s);
	umask(old);
	ck_assert_int_eq(chmod("installer/backups", 0750), 0);
	s = opened("", "backup_dir_unusable");
	ck_assert_ptr_nonnull(strstr(s.trouble.message, "chmod 700"));
	hb_backup_store_close(&s);
}
END_TEST

START_TEST(test_never_inside_the_data)
{
	struct hb_backup_store s;
	char *inside = at("payload/data/backups"), *link = at("link"),
	     *store = at("storage/backups");
	struct stat st;

	s = opened(inside, "backup_dir_inside_data");
	hb_backup_store_close(&s);
	ck_assert_int_lt(stat(inside, &st), 0); /* nothing is made there */
	s = opened("payload/data", "backup_dir_inside_data");
	hb_backup_store_close(&s);
	/* By another name. */
	ck_assert_int_eq(mkdir("payload/data/x", 0700), 0);
	ck_assert_int_eq(symlink("payload/data/x", link), 0);
	s = opened(link, "backup_dir_inside_data");
	hb_backup_store_close(&s);
	ck_assert_int_eq(mkdir(store, 0700), 0);
	s = opened("storage/backups", "backup_dir_unusable");
	hb_backup_store_close(&s);
	/* Beside it with a name that begins alike is another place. */
	ck_assert_int_eq(mkdir("payload/data-backups", 0700), 0);
	s = opened("payload/data-backups", "");
	hb_backup_store_close(&s);
	free(inside);
	free(link);
	free(store);
}
END_TEST

START_TEST(test_names)
{
	char name[HB_BACKUP_NAME_MAX];

	hb_backup_name(1796090400, false, name);
	ck_assert_int_eq(strncmp(name, "runtime-20261201T020000Z-", 25), 0);
	ck_assert(hb_backup_is_name(name) && !hb_backup_is_encrypted(name));
	hb_backup_name(1796090400, true, name);
	ck_assert(hb_backup_is_name(name) && hb_backup_is_encrypted(name));
	ck_assert(hb_backup_is_name("mine.tar.zst"));
	ck_assert(!hb_backup_is_name("mine.tar.zst.json") && !hb_backup_is_name("mine.tar") &&
		  !hb_backup_is_name("../a.tar.zst") && !hb_backup_is_name(".new-a.tar.zst") &&
		  !hb_backup_is_name("-a.tar.zst") && !hb_backup_is_name(".tar.zst"));
}
END_TEST

static json_t *record(const char *name, long long created, long long verified)
{
	return json_pack("{s:i, s:s, s:s, s:i, s:I, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, "
			 "s:b, s:I, s:[]}",
			 "version", 1, "name", name, "sha256", D, "size", 4, "created_at",
			 (json_int_t)created, "host_id", "h", "operation_id", "o", "release", D,
			 "image", "i", "files", 1, "directories", 1, "links", 0, "bytes", 1,
			 "left_out", 0, "encrypted", 0, "last_verified", (json_int_t)verified,
			 "databases");
}

START_TEST(test_records)
{
	static const char *const members[] = {
		"version",	"name",	    "sha256",	 "size",	  "created_at",	 "host_id",
		"operation_id", "release",  "image",	 "files",	  "directories", "links",
		"bytes",	"left_out", "encrypted", "last_verified", "databases"};
	struct hb_backup_store s = opened("", "");
	json_t *r = record("a.tar.zst", 5, 6), *back;
	struct stat st;

	ck_works(hb_backup_record_save(&s, r, err));
	ck_assert_int_eq(stat("installer/backups/a.tar.zst.json", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	back = hb_backup_record_load(&s, "a.tar.zst", &failure);
	ck_assert(json_equal(back, r));
	json_decref(back);
	ck_assert_ptr_null(hb_backup_record_load(&s, "b.tar.zst", &failure));
	ck_assert_str_eq(failure.code, "backup_unverified");
	ck_assert_ptr_nonnull(strstr(failure.message, "hermesctl backup verify b.tar.zst"));
	test_puts("installer/backups/b.tar.zst.json", "{");
	ck_assert_ptr_null(hb_backup_record_load(&s, "b.tar.zst", &failure));
	ck_assert_str_eq(failure.code, "record_broken");
	/* The record of one isn't that of another. */
	ck_assert_int_eq(
		rename("installer/backups/a.tar.zst.json", "installer/backups/b.tar.zst.json"), 0);
	ck_assert_ptr_null(hb_backup_record_load(&s, "b.tar.zst", &failure));
	ck_assert_str_eq(failure.code, "record_broken");
	for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
		json_t *less = json_deep_copy(r);

		json_object_del(less, members[i]);
		ck_fails(hb_backup_record_check(less, "a.tar.zst", err), "record_broken");
		json_object_set_new(less, members[i], json_null());
		ck_fails(hb_backup_record_check(less, "a.tar.zst", err), "record_broken");
		json_decref(less);
	}
	json_object_set_new(r, "more", json_true());
	ck_fails(hb_backup_record_check(r, "a.tar.zst", err), "record_broken");
	json_decref(r);
	hb_backup_store_close(&s);
}
END_TEST

static void make(const struct hb_backup_store *s, const char *name, long long created,
		 long long verified)
{
	char *path = hb_asprintf("%s/%s", s->path, name);
	json_t *r = record(name, created, verified);

	test_puts(path, "four");
	ck_assert_int_eq(chmod(path, 0600), 0);
	if (created > 0)
		ck_works(hb_backup_record_save(s, r, err));
	json_decref(r);
	free(path);
}

static bool there(const char *name)
{
	char *path = hb_asprintf("installer/backups/%s", name);
	bool yes = access(path, F_OK) == 0;

	free(path);
	return yes;
}

START_TEST(test_list_and_open)
{
	struct hb_backup_store s = opened("", "");
	json_t *list;

	make(&s, "runtime-1.tar.zst", 100, 100);
	make(&s, "runtime-3.tar.zst", 300, 0);
	make(&s, "runtime-2.tar.zst.age", 200, 200);
	make(&s, "foreign.tar.zst", 0, 0); /* no record; as old as its file: newest */
	test_puts("installer/backups/notes.txt", "x");
	list = hb_backup_list(&s, &failure);
	ck_assert_uint_eq(json_array_size(list), 4);
	ck_assert_str_eq(hb_json_text(json_array_get(list, 0), "name", ""), "foreign.tar.zst");
	ck_assert(!hb_json_bool(json_array_get(list, 0), "recorded", true));
	ck_assert_str_eq(hb_json_text(json_array_get(list, 1), "name", ""), "runtime-3.tar.zst");
	ck_assert(hb_json_bool(json_array_get(list, 1), "recorded", false));
	json_decref(list);
	/* Other bytes than those of the record. */
	test_puts("installer/backups/runtime-1.tar.zst", "fives");
	list = hb_backup_list(&s, &failure);
	ck_assert(!hb_json_bool(json_array_get(list, 3), "recorded", true) ||
		  !hb_json_bool(json_array_get(list, 0), "recorded", true));
	json_decref(list);
	ck_works(hb_backup_open(&s, "runtime-3.tar.zst", err));
	ck_fails(hb_backup_open(&s, "runtime-9.tar.zst", err), "backup_missing");
	ck_fails(hb_backup_open(&s, "../../conf/hermes.conf", err), "backup_missing");
	ck_assert_int_eq(chmod("installer/backups/runtime-3.tar.zst", 0640), 0);
	ck_fails(hb_backup_open(&s, "runtime-3.tar.zst", err), "loose_permissions");
	ck_assert_int_eq(symlink("foreign.tar.zst", "installer/backups/link.tar.zst"), 0);
	ck_fails(hb_backup_open(&s, "link.tar.zst", err), "backup_missing");
	ck_assert_int_eq(link("installer/backups/foreign.tar.zst", "installer/backups/two.tar.zst"),
			 0);
	ck_fails(hb_backup_open(&s, "two.tar.zst", err), "loose_permissions");
	hb_backup_store_close(&s);
}
END_TEST

START_TEST(test_retention)
{
	static const char *const except[] = {"runtime-1.tar.zst", NULL};
	struct hb_backup_store s = opened("", "");
	json_t *removed = json_array();

	make(&s, "runtime-1.tar.zst", 100, 100);
	make(&s, "runtime-2.tar.zst", 200, 200);
	make(&s, "runtime-3.tar.zst", 300, 300);
	make(&s, "runtime-4.tar.zst", 400, 0);
	make(&s, "runtime-5.tar.zst", 500, 0);
	make(&s, "foreign.tar.zst", 0, 0);
	ck_works(hb_backup_retain(&s, 600, 5, 0, NULL, removed, err));
	ck_assert_uint_eq(json_array_size(removed), 0);
	/* Two are kept, and besides them the newest verified one and the excepted one. */
	ck_works(hb_backup_retain(&s, 600, 2, 0, except, removed, err));
	ck_assert_uint_eq(json_array_size(removed), 1);
	ck_assert(!there("runtime-2.tar.zst") && !there("runtime-2.tar.zst.json"));
	ck_assert(there("runtime-1.tar.zst") && there("runtime-3.tar.zst") &&
		  there("runtime-4.tar.zst"));
	ck_assert(there("foreign.tar.zst")); /* not made here, not ours to remove */
	/* By age: all are too old but the newest verified one. */
	ck_works(hb_backup_retain(&s, 10000, 5, 60, NULL, removed, err));
	ck_assert(there("runtime-3.tar.zst") && there("foreign.tar.zst"));
	ck_assert(!there("runtime-1.tar.zst") && !there("runtime-4.tar.zst") &&
		  !there("runtime-5.tar.zst"));
	json_decref(removed);
	hb_backup_store_close(&s);
}
END_TEST

START_TEST(test_leftovers_are_removed)
{
	struct hb_backup_store s = opened("", "");

	make(&s, "runtime-1.tar.zst", 100, 100);
	test_puts("installer/backups/.new-runtime-2.tar.zst", "x");
	test_puts("installer/backups/.runtime-1.tar.zst.json.0011", "x");
	ck_assert_int_eq(mkdir("installer/backups/.scratch-0", 0700), 0);
	test_puts("installer/backups/.scratch-0/x", "x");
	test_puts("installer/backups/.keep", "x");
	ck_works(hb_backup_store_clean(&s, err));
	ck_assert(!there(".new-runtime-2.tar.zst") && !there(".scratch-0") &&
		  !there(".runtime-1.tar.zst.json.0011"));
	ck_assert(there("runtime-1.tar.zst") && there("runtime-1.tar.zst.json") && there(".keep"));
	hb_backup_store_close(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("backup_store");
	TCase *t = tcase_create("core");

	tcase_add_checked_fixture(t, enter, leave);
	tcase_add_test(t, test_made_private_and_judged_when_it_exists);
	tcase_add_test(t, test_never_inside_the_data);
	tcase_add_test(t, test_names);
	tcase_add_test(t, test_records);
	tcase_add_test(t, test_list_and_open);
	tcase_add_test(t, test_retention);
	tcase_add_test(t, test_leftovers_are_removed);
	suite_add_tcase(s, t);
	return test_run(s);
}
