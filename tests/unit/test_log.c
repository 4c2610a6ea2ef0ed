/* One record is one line, whatever its values hold. */
#include "tests/unit/test_util.h"

#include "common/log.h"

/* What `body` writes to standard error. */
#define CAPTURE(out, body)                                                                         \
	do {                                                                                       \
		int saved = dup(STDERR_FILENO), file;                                              \
		file = open("err", O_RDWR | O_CREAT | O_TRUNC, 0600);                              \
		dup2(file, STDERR_FILENO);                                                         \
		body;                                                                              \
		dup2(saved, STDERR_FILENO);                                                        \
		close(saved);                                                                      \
		close(file);                                                                       \
		out = test_read("err", NULL);                                                      \
	} while (0)

START_TEST(test_record)
{
	char *out;

	hb_log_open("hermes-test", HB_LOG_INFO);
	CAPTURE(out, hb_log(HB_LOG_WARN, "prepared", "operation", "a1", "msg", "two words", NULL));
	ck_assert_int_eq(strncmp(out, "ts=2", 4), 0);
	ck_assert_str_eq(out + 23, " level=warn process=hermes-test event=prepared operation=a1"
				   " msg=\"two words\"\n");
	free(out);
}
END_TEST

START_TEST(test_values_can_not_forge_records)
{
	char *out;

	hb_log_open("hermes-test", HB_LOG_INFO);
	CAPTURE(out, hb_log(HB_LOG_ERROR, "e", "a", "x\nts=1 level=info", "b", "q\"\\\t\x1b[2J",
			    "c", "\xff\xe2\x80\xae\xc3\xa9", "d", "", "e", (const char *)NULL, "f",
			    "x=y", NULL));
	ck_assert_str_eq(strstr(out, " a="),
			 " a=\"x\\nts=1 level=info\" b=\"q\\\"\\\\\\t\\u{1b}[2J\""
			 " c=\"\\xff\\u{202e}\\u{e9}\" d=\"\" e=\"\" f=\"x=y\"\n");
	free(out);
}
END_TEST

START_TEST(test_level)
{
	char *out;

	hb_log_open("hermes-test", HB_LOG_WARN);
	CAPTURE(out, hb_log(HB_LOG_INFO, "quiet", NULL); hb_log(HB_LOG_DEBUG, "quiet", NULL);
		hb_log(HB_LOG_WARN, "loud", NULL));
	ck_assert_ptr_null(strstr(out, "quiet"));
	ck_assert_ptr_nonnull(strstr(out, "event=loud\n"));
	free(out);
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("log");
	TCase *t = test_case("log");

	tcase_add_test(t, test_record);
	tcase_add_test(t, test_values_can_not_forge_records);
	tcase_add_test(t, test_level);
	suite_add_tcase(s, t);
	return test_run(s);
}
