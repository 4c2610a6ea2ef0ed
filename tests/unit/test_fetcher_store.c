/* The blob store: what counts as there, resuming, and what is left after each way to fail. */
#include "tests/unit/test_util.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/digest.h"
#include "fetcher/store.h"

#define SIZE 600000

static char data[SIZE], hex[HB_HEX256];
static struct hb_store store;

static void
enter(void)
{
	test_enter();
	ck_works(hb_fs_mkdirs(AT_FDCWD, "s/blobs/sha256", 0755, (uid_t)-1, (gid_t)-1, err));
	ck_works(hb_store_open("s", &store, err));
	for (size_t i = 0; i < SIZE; i++)
		data[i] = (char)(i * 2654435761u >> 13);
	hb_sha256_hex(data, SIZE, hex);
}

static void
leave(void)
{
	hb_store_close(&store);
	test_leave();
}

static char *
path(const char *suffix)
{
	static char out[128];

	snprintf(out, sizeof(out), "s/blobs/sha256/%s%s", hex, suffix);
	return out;
}

START_TEST(test_write_in_pieces)
{
	struct hb_partial *p;
	struct stat st;
	size_t len;
	char *back;

	ck_assert_int_eq(hb_store_verified(&store, hex, SIZE, NULL, NULL), 0);
	ck_works(hb_partial_open(&store, hex, SIZE, NULL, &p, err));
	for (size_t at = 0; at < SIZE; at += 1000)
		ck_works(hb_partial_write(p, data + at, 1000, err));
	ck_fails(hb_partial_write(p, "x", 1, err), "size_mismatch");
	ck_works(hb_partial_finish(p, err));
	hb_partial_close(p);
	ck_assert_int_eq(hb_store_verified(&store, hex, SIZE, NULL, NULL), 1);
	back = test_read(path(""), &len);
	ck_assert(len == SIZE && memcmp(back, data, SIZE) == 0);
	free(back);
	ck_assert_int_eq(stat(path(""), &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0644);
	ck_assert_int_ne(access(path(".partial"), F_OK), 0);
}
END_TEST

START_TEST(test_h02_resume_of_what_is_there)
{
	struct hb_partial *p;

	ck_works(hb_partial_open(&store, hex, SIZE, NULL, &p, err));
	ck_works(hb_partial_write(p, data, 300001, err));
	ck_fails(hb_partial_finish(p, err), "connection_ended_early");
	hb_partial_close(p);
	ck_assert_uint_eq(hb_store_partial_size(&store, hex), 300001);
	ck_works(hb_partial_open(&store, hex, SIZE, NULL, &p, err));
	ck_assert_uint_eq(hb_partial_done(p), 300001);
	ck_works(hb_partial_write(p, data + 300001, SIZE - 300001, err));
	ck_works(hb_partial_finish(p, err));
	hb_partial_close(p);
}
END_TEST

START_TEST(test_h06_poisoned_partial_leaves_nothing)
{
	struct hb_partial *p;

	data[5] ^= 1;
	test_write(path(".partial"), data, 100);
	data[5] ^= 1;
	ck_works(hb_partial_open(&store, hex, SIZE, NULL, &p, err));
	ck_works(hb_partial_write(p, data + 100, SIZE - 100, err));
	ck_fails(hb_partial_finish(p, err), "digest_mismatch");
	ck_assert_uint_eq(hb_partial_done(p), 0);
	ck_works(hb_partial_write(p, data, SIZE, err));
	ck_works(hb_partial_finish(p, err));
	hb_partial_close(p);
	ck_assert_int_eq(hb_store_verified(&store, hex, SIZE, NULL, NULL), 1);
}
END_TEST

START_TEST(test_h06_wrong_files_are_not_trusted_for_their_name)
{
	struct hb_buf b = HB_BUF_INIT;

	data[SIZE - 1] ^= 1;
	test_write(path(""), data, SIZE);
	data[SIZE - 1] ^= 1;
	ck_assert_int_eq(hb_store_verified(&store, hex, SIZE, NULL, NULL), 0);
	ck_assert_int_ne(access(path(""), F_OK), 0);
	test_write(path(""), data, SIZE - 1);
	ck_assert_int_eq(hb_store_get(&store, hex, SIZE, &b, NULL), 0);
	ck_assert_int_ne(access(path(""), F_OK), 0);
	test_write(path(""), data, SIZE);
	ck_assert_int_eq(hb_store_get(&store, hex, SIZE, &b, NULL), 1);
	ck_assert_uint_eq(b.len, SIZE);
	hb_buf_clear(&b);
	ck_fails(hb_store_get(&store, hex, SIZE - 1, &b, err), "too_large");
	hb_buf_free(&b);
}
END_TEST

START_TEST(test_too_long_a_partial_is_begun_again)
{
	struct hb_partial *p;

	test_write(path(".partial"), data, SIZE);
	ck_works(hb_partial_open(&store, hex, SIZE - 1, NULL, &p, err));
	ck_assert_uint_eq(hb_partial_done(p), 0);
	hb_partial_close(p);
	ck_assert_int_ne(access(path(".partial"), F_OK), 0); /* an empty one is no use */
}
END_TEST

START_TEST(test_links_are_not_followed)
{
	struct hb_partial *p;

	test_puts("victim", "untouched");
	ck_assert_int_eq(symlink("../../../victim", path(".partial")), 0);
	ck_fails(hb_partial_open(&store, hex, SIZE, NULL, &p, err), "storage_unusable");
	ck_assert_int_eq(unlink(path(".partial")), 0);
	ck_assert_int_eq(mkfifo(path(".partial"), 0600), 0);
	ck_fails(hb_partial_open(&store, hex, SIZE, NULL, &p, err), "storage_unusable");
	ck_assert_int_eq(symlink("../../../victim", path("")), 0);
	ck_assert_int_eq(hb_store_verified(&store, hex, 9, NULL, NULL), 0);
}
END_TEST

static bool
give_up(void *arg)
{
	return ++*(int *)arg > 2;
}

START_TEST(test_one_writer)
{
	int asked = 0, status = -1;
	pid_t child;
	const struct hb_stop stop = {give_up, &asked};
	struct hb_partial *first, *second = (struct hb_partial *)data; /* anything but NULL */

	ck_works(hb_partial_open(&store, hex, SIZE, NULL, &first, err));
	ck_works(hb_partial_write(first, data, SIZE, err));
	ck_fails(hb_partial_open(&store, hex, SIZE, &stop, &second, err), "cancelled");
	ck_assert_int_eq(asked, 3);
	/* The one who waited learns that the other finished. */
	child = fork();
	if (child == 0)
		_exit(hb_partial_open(&store, hex, SIZE, NULL, &second, NULL) == 0 && !second ? 0
											      : 1);
	usleep(50000);
	ck_works(hb_partial_finish(first, err));
	hb_partial_close(first);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(test_error_body_can_be_dropped)
{
	struct hb_partial *p;
	const char *body;
	size_t len;

	ck_works(hb_partial_open(&store, hex, SIZE, NULL, &p, err));
	ck_works(hb_partial_write(p, data, 1000, err));
	ck_works(hb_partial_mark(p, err));
	ck_works(hb_partial_write(p, "{\"errors\"}", 10, err));
	body = hb_partial_since_mark(p, &len);
	ck_assert_ptr_nonnull(body);
	ck_assert(len == 10 && memcmp(body, "{\"errors\"}", 10) == 0);
	hb_partial_drop(p);
	ck_assert_uint_eq(hb_partial_done(p), 1000);
	ck_works(hb_partial_write(p, data + 1000, SIZE - 1000, err));
	ck_assert_ptr_null(hb_partial_since_mark(p, &len));
	ck_works(hb_partial_finish(p, err));
	hb_partial_close(p);
}
END_TEST

START_TEST(test_empty_blob_and_documents)
{
	char empty[HB_HEX256];
	struct hb_buf b = HB_BUF_INIT;

	hb_sha256_hex("", 0, empty);
	ck_works(hb_store_put(&store, empty, "", 0, NULL, err));
	ck_assert_int_eq(hb_store_verified(&store, empty, 0, NULL, NULL), 1);
	ck_assert_int_eq(hb_store_get(&store, empty, 10, &b, NULL), 1);
	ck_fails(hb_store_put(&store, hex, "x", 1, NULL, err), "digest_mismatch");
	ck_assert_int_ne(access(path(".partial"), F_OK), 0);
	hb_buf_free(&b);
}
END_TEST

START_TEST(test_space_and_missing_store)
{
	struct hb_store other;

	ck_works(hb_store_space(&store, 1, 1, err));
	ck_fails(hb_store_space(&store, 1ULL << 60, 1, err), "not_enough_space");
	ck_fails(hb_store_open("nowhere", &other, err), "storage_missing");
	ck_works(hb_store_usable(&store, err));
	ck_works(hb_fs_remove_tree(AT_FDCWD, "s", err));
	ck_fails(hb_store_usable(&store, err), "storage_missing");
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("fetcher_store");
	TCase *t = tcase_create("store");

	tcase_add_checked_fixture(t, enter, leave);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_write_in_pieces);
	tcase_add_test(t, test_h02_resume_of_what_is_there);
	tcase_add_test(t, test_h06_poisoned_partial_leaves_nothing);
	tcase_add_test(t, test_h06_wrong_files_are_not_trusted_for_their_name);
	tcase_add_test(t, test_too_long_a_partial_is_begun_again);
	tcase_add_test(t, test_links_are_not_followed);
	tcase_add_test(t, test_one_writer);
	tcase_add_test(t, test_error_body_can_be_dropped);
	tcase_add_test(t, test_empty_blob_and_documents);
	tcase_add_test(t, test_space_and_missing_store);
	suite_add_tcase(s, t);
	return test_run(s);
}
