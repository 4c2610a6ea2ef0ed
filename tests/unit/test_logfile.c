/* launcher/logfile.c: what comes through the pipe is kept, and never more than two files of limited
 * size. */
#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/launcher.h"

static char dir[64];
static struct event_base *base;
static struct hb_logfile *l;

static int
remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

static void
setup(void)
{
	snprintf(dir, sizeof(dir), "/tmp/hermes-log-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chdir(dir), 0);
	ck_assert_int_eq(mkdir("log", 0755), 0);
	base = event_base_new();
	ck_assert_int_eq(hb_logfile_open(base, "one", &l, NULL), 0);
}

static void
teardown(void)
{
	hb_logfile_free(l);
	event_base_free(base);
	ck_assert_int_eq(chdir("/"), 0);
	nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static off_t
size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_size : -1;
}

START_TEST(test_lines_of_two_processes_one_after_the_other)
{
	char text[64] = "";
	int fd, first = hb_logfile_pipe(l, NULL), second;

	ck_assert_int_ge(first, 0);
	ck_assert_int_eq(write(first, "last words\n", 11), 11);
	second = hb_logfile_pipe(l, NULL); /* nothing was read yet */
	ck_assert_int_eq(write(second, "first words\n", 12), 12);
	event_base_loop(base, EVLOOP_NONBLOCK);
	fd = open("log/one.log", O_RDONLY);
	ck_assert_int_eq(read(fd, text, sizeof(text) - 1), 23);
	ck_assert_str_eq(text, "last words\nfirst words\n");
	close(fd);
	close(first);
	close(second);
}
END_TEST

START_TEST(test_files_are_bounded_and_cut_at_lines)
{
	char line[1024], last = 0;
	int fd, pipe = hb_logfile_pipe(l, NULL);

	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\n';
	for (int i = 0; i < 4000; i++) {
		ck_assert_int_eq(write(pipe, line, sizeof(line)), sizeof(line));
		event_base_loop(base, EVLOOP_NONBLOCK);
	}
	ck_assert_int_le(size_of("log/one.log"), (1 << 20) + 16384);
	ck_assert_int_le(size_of("log/one.log.1"), (1 << 20) + 16384);
	ck_assert_int_ge(size_of("log/one.log.1"), 1 << 20);
	fd = open("log/one.log.1", O_RDONLY);
	ck_assert_int_eq(pread(fd, &last, 1, size_of("log/one.log.1") - 1), 1);
	ck_assert_int_eq(last, '\n');
	close(fd);
	close(pipe);
}
END_TEST

START_TEST(test_does_not_follow_a_link)
{
	struct hb_logfile *other;
	struct hb_error err;

	ck_assert_int_eq(symlink("/etc/hostname", "log/two.log"), 0);
	ck_assert_int_eq(hb_logfile_open(base, "two", &other, &err), -1);
	ck_assert_str_eq(err.code, "log_unwritable");
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("logfile");
	TCase *tc = tcase_create("logfile");
	SRunner *r;
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_lines_of_two_processes_one_after_the_other);
	tcase_add_test(tc, test_files_are_bounded_and_cut_at_lines);
	tcase_add_test(tc, test_does_not_follow_a_link);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
