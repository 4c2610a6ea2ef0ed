/*
 * What every unit test program does: run in a temporary directory of its own that is gone
 * afterwards, and check errors by their code.
 */
#ifndef HB_TESTS_TEST_UTIL_H
#define HB_TESTS_TEST_UTIL_H

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/error.h"
#include "common/fs.h"

#define UNUSED __attribute__((unused))

/* A call failed with this code, and said something. */
#define ck_fails(call, want)                                                                       \
	do {                                                                                       \
		struct hb_error ck_err = {"", ""};                                                 \
		struct hb_error *err = &ck_err;                                                    \
		ck_assert_msg((call) < 0, "%s did not fail", #call);                               \
		ck_assert_msg(strcmp(ck_err.code, want) == 0, "%s: code %s (%s), wanted %s",       \
			      #call, ck_err.code, ck_err.message, want);                           \
		ck_assert_str_ne(ck_err.message, "");                                              \
	} while (0)

#define ck_works(call)                                                                             \
	do {                                                                                       \
		struct hb_error ck_err = {"", ""};                                                 \
		struct hb_error *err = &ck_err;                                                    \
		ck_assert_msg((call) >= 0, "%s: %s: %s", #call, ck_err.code, ck_err.message);      \
	} while (0)

static inline void UNUSED
test_write(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(data, 1, len, f), len);
	ck_assert_int_eq(fclose(f), 0);
}

static inline void UNUSED
test_puts(const char *path, const char *text)
{
	test_write(path, text, strlen(text));
}

/* The whole file; free() it. */
static inline char *UNUSED
test_read(const char *path, size_t *len)
{
	struct hb_buf b = HB_BUF_INIT;

	ck_works(hb_fs_read(AT_FDCWD, path, 1 << 26, &b, err));
	if (len != NULL)
		*len = b.len;
	return hb_buf_take(&b);
}

static inline void
test_enter(void)
{
	char dir[] = "case-XXXXXX";

	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chdir(dir), 0);
}

static inline void
test_leave(void)
{
	ck_assert_int_eq(chdir(".."), 0);
}

/* A test case whose tests each run in an empty directory of their own. */
static inline TCase *UNUSED
test_case(const char *name)
{
	TCase *t = tcase_create(name);

	tcase_add_checked_fixture(t, test_enter, test_leave);
	tcase_set_timeout(t, 60);
	return t;
}

/* Run the suite in a fresh directory; the program's exit status. */
static inline int
test_run(Suite *suite)
{
	char dir[] = "/tmp/hermes-unit-XXXXXX";
	SRunner *runner;
	int failed;

	if (mkdtemp(dir) == NULL || chdir(dir) != 0) {
		perror(dir);
		return 2;
	}
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	if (chdir("/") != 0 || hb_fs_remove_tree(AT_FDCWD, dir + 1, NULL) != 0)
		failed++;
	return failed == 0 ? 0 : 1;
}

#endif
