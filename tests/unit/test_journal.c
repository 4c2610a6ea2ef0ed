/* The releases journal: after being cut at any byte, it says where the operation stood. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/journal.h"
#include "common/json.h"

#define OP "00112233445566778899aabbccddeeff"

static char dir[] = "/tmp/hb-journal-XXXXXX";
static int dirfd_ = -1;

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(dir));
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof command, "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
	close(dirfd_);
	memcpy(dir, "/tmp/hb-journal-XXXXXX", sizeof dir);
}

static struct hb_journal *reopen(struct hb_journal *j)
{
	struct hb_error err = {"", ""};

	hb_journal_close(j);
	ck_assert_msg(hb_journal_open(dirfd_, "j", &j, &err) == 0, "%s", err.message);
	return j;
}

static void append(struct hb_journal *j, enum hb_step step, json_t *more)
{
	struct hb_error err = {"", ""};

	ck_assert_msg(hb_journal_append(j, step, OP, "install", more, &err) == 0, "%s",
		      err.message);
	json_decref(more);
}

START_TEST(test_steps_survive)
{
	struct hb_journal *j = reopen(NULL);
	struct hb_journal_state s = hb_journal_state(j);
	json_t *old;

	ck_assert_int_eq(s.step, HB_STEP_NONE);
	ck_assert(!hb_journal_open_operation(j));
	append(j, HB_STEP_BEGIN, NULL);
	j = reopen(j);
	s = hb_journal_state(j);
	ck_assert_int_eq(s.step, HB_STEP_BEGIN);
	ck_assert_str_eq(s.operation_id, OP);
	ck_assert_str_eq(s.action, "install");
	ck_assert_ptr_null(s.old);
	append(j, HB_STEP_ACTIVATE, json_pack("{s:{s:s}}", "old", "current", "x"));
	j = reopen(j);
	s = hb_journal_state(j);
	ck_assert_int_eq(s.step, HB_STEP_ACTIVATE);
	ck_assert_str_eq(hb_json_text(s.old, "current", ""), "x");
	old = hb_journal_undo(j);
	ck_assert_str_eq(hb_json_text(old, "current", ""), "x");
	ck_assert_ptr_null(json_object_get(old, "snapshot"));
	json_decref(old);
	append(j, HB_STEP_SNAPSHOT, json_pack("{s:{s:s}}", "snapshot", "id", "y"));
	j = reopen(j);
	ck_assert_int_eq(hb_journal_state(j).step, HB_STEP_SNAPSHOT);
	old = hb_journal_undo(j);
	ck_assert_str_eq(hb_json_text(old, "current", ""), "x");
	ck_assert_str_eq(hb_json_text(json_object_get(old, "snapshot"), "id", ""), "y");
	json_decref(old);
	append(j, HB_STEP_COMMITTED, json_pack("{s:{s:s}}", "result", "output", "done"));
	j = reopen(j);
	s = hb_journal_state(j);
	ck_assert_int_eq(s.step, HB_STEP_COMMITTED);
	ck_assert_str_eq(hb_json_text(s.result, "output", ""), "done");
	ck_assert_ptr_null(hb_journal_undo(j));
	append(j, HB_STEP_END, NULL);
	j = reopen(j);
	ck_assert(!hb_journal_open_operation(j));
	/* The next operation knows nothing of the last one. */
	append(j, HB_STEP_BEGIN, NULL);
	j = reopen(j);
	s = hb_journal_state(j);
	ck_assert_ptr_null(s.old);
	ck_assert_ptr_null(s.snapshot);
	ck_assert_ptr_null(s.result);
	hb_journal_close(j);
}
END_TEST

START_TEST(test_order_is_kept)
{
	static const enum hb_step bad_first[] = {HB_STEP_ACTIVATE, HB_STEP_COMMITTED,
						 HB_STEP_UNDONE, HB_STEP_END};
	static const enum hb_step bad_after_begin[] = {HB_STEP_BEGIN, HB_STEP_SNAPSHOT,
						       HB_STEP_COMMITTED, HB_STEP_UNDONE};
	struct hb_journal *j = reopen(NULL);
	struct hb_error err;

	for (size_t i = 0; i < 4; i++) {
		ck_assert_int_eq(hb_journal_append(j, bad_first[i], OP, "install", NULL, &err), -1);
		ck_assert_str_eq(err.code, "journal_order");
	}
	append(j, HB_STEP_BEGIN, NULL);
	for (size_t i = 0; i < 4; i++)
		ck_assert_int_eq(
			hb_journal_append(j, bad_after_begin[i], OP, "install", NULL, &err), -1);
	j = reopen(j);
	ck_assert_int_eq(hb_journal_state(j).step, HB_STEP_BEGIN);
	hb_journal_close(j);
}
END_TEST

/* Cut at each byte: the state is that of the last whole line, and appending goes on from there. */
START_TEST(test_cut_at_every_byte)
{
	struct hb_journal *j = reopen(NULL);
	off_t ends[4] = {0};
	char bytes[4096];
	struct stat st;
	ssize_t len;
	int fd;

	append(j, HB_STEP_BEGIN, NULL);
	fstatat(dirfd_, "j", &st, 0);
	ends[1] = st.st_size;
	append(j, HB_STEP_ACTIVATE, json_pack("{s:{s:s}}", "old", "current", "x"));
	fstatat(dirfd_, "j", &st, 0);
	ends[2] = st.st_size;
	append(j, HB_STEP_UNDONE, NULL);
	fstatat(dirfd_, "j", &st, 0);
	ends[3] = st.st_size;
	hb_journal_close(j);
	fd = openat(dirfd_, "j", O_RDONLY);
	len = read(fd, bytes, sizeof bytes);
	close(fd);
	ck_assert_int_eq(len, ends[3]);
	for (off_t cut = 0; cut <= ends[3]; cut++) {
		enum hb_step expected = cut < ends[1]   ? HB_STEP_NONE
					: cut < ends[2] ? HB_STEP_BEGIN
					: cut < ends[3] ? HB_STEP_ACTIVATE
							: HB_STEP_UNDONE;

		fd = openat(dirfd_, "j", O_WRONLY | O_TRUNC);
		ck_assert_int_eq(write(fd, bytes, (size_t)cut), cut);
		close(fd);
		j = reopen(NULL);
		ck_assert_int_eq(hb_journal_state(j).step, expected);
		append(j, expected == HB_STEP_NONE ? HB_STEP_BEGIN : HB_STEP_END, NULL);
		j = reopen(j);
		ck_assert_int_eq(hb_journal_state(j).step,
				 expected == HB_STEP_NONE ? HB_STEP_BEGIN : HB_STEP_END);
		hb_journal_close(j);
	}
}
END_TEST

START_TEST(test_damage_is_no_torn_line)
{
	static const char *const damaged[] = {"rubbish\n", "{\"step\":\"committed\"}\n",
					      "{\"step\":\"nonsense\"}\n", "{}\n", "\n"};
	struct hb_journal *j;
	struct hb_error err;

	for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
		int fd = openat(dirfd_, "j", O_WRONLY | O_CREAT | O_TRUNC, 0600);

		ck_assert_int_eq(write(fd, damaged[i], strlen(damaged[i])),
				 (ssize_t)strlen(damaged[i]));
		close(fd);
		ck_assert_int_eq(hb_journal_open(dirfd_, "j", &j, &err), -1);
		ck_assert_str_eq(err.code, "journal_broken");
	}
}
END_TEST

START_TEST(test_finished_past_is_dropped)
{
	struct hb_journal *j = reopen(NULL);
	struct stat st;

	for (int i = 0; i < 600; i++) {
		append(j, HB_STEP_BEGIN, NULL);
		append(j, HB_STEP_END, NULL);
	}
	append(j, HB_STEP_BEGIN, NULL);
	fstatat(dirfd_, "j", &st, 0);
	ck_assert_int_lt(st.st_size, 70 << 10);
	j = reopen(j);
	ck_assert_int_eq(hb_journal_state(j).step, HB_STEP_BEGIN);
	hb_journal_close(j);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("journal");
	TCase *t = tcase_create("journal");

	SRunner *r;
	int failed;

	tcase_set_timeout(t, 120); /* hundreds of syncs: a busy disk may take its time */
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, test_steps_survive);
	tcase_add_test(t, test_order_is_kept);
	tcase_add_test(t, test_cut_at_every_byte);
	tcase_add_test(t, test_damage_is_no_torn_line);
	tcase_add_test(t, test_finished_past_is_dropped);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
