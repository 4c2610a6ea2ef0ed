/* The audit chain: a crash is healed and told, a cut or a change is never healed. */
#include "tests/unit/test_util.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/audit.h"
#include "common/digest.h"
#include "common/json.h"

#define LOG "audit.log"

static struct hb_audit *
open_log(void)
{
	struct hb_audit *a = NULL;

	ck_works(hb_audit_open(LOG, "hermes-test", &a, err));
	return a;
}

static void
append(struct hb_audit *a, int n)
{
	json_t *detail = json_pack("{s:i, s:s}", "n", n, "text", "line\n\xc3\xa9");

	ck_works(hb_audit_append(a, "test", "ok", detail, err));
	json_decref(detail);
}

static void
make_log(int records)
{
	struct hb_audit *a = open_log();

	for (int i = 1; i <= records; i++)
		append(a, i);
	hb_audit_close(a);
}

static int64_t
verified(void)
{
	struct hb_audit_head head = {-1, ""};

	ck_works(hb_audit_verify(AT_FDCWD, LOG, &head, err));
	return head.seq;
}

/* Text of the newest record's `name`. */
static char *
newest(struct hb_audit *a, const char *name)
{
	json_t *tail = hb_audit_tail(a, 1, NULL);
	char *text;

	ck_assert_uint_eq(json_array_size(tail), 1);
	text = hb_strdup(hb_json_text(json_array_get(tail, 0), name, ""));
	json_decref(tail);
	return text;
}

static void
copy_file(const char *from, const char *to)
{
	size_t len;
	char *data = test_read(from, &len);

	test_write(to, data, len);
	chmod(to, 0600);
	free(data);
}

/* Both files as they are, to come back to. */
static void
keep(void)
{
	copy_file(LOG, "kept.log");
	copy_file(LOG ".head", "kept.head");
}

static void
restore(void)
{
	copy_file("kept.log", LOG);
	copy_file("kept.head", LOG ".head");
	unlink(LOG ".torn");
}

/* Bytes up to the end of record n. */
static size_t
end_of(const char *data, int n)
{
	const char *p = data;

	while (n-- > 0)
		p = strchr(p, '\n') + 1;
	return (size_t)(p - data);
}

START_TEST(test_chain_is_what_the_header_says)
{
	char hash[65], *data, *line, *rest;
	const char *prev = "0000000000000000000000000000000000000000000000000000000000000000";
	struct hb_audit_head head;
	struct hb_audit *a;
	struct stat st;
	int seq = 0;

	umask(0);
	make_log(3);
	rest = data = test_read(LOG, NULL);
	while ((line = strsep(&rest, "\n")) != NULL && *line != '\0') {
		struct hb_buf b = HB_BUF_INIT;
		json_t *r = hb_json_parse(line, strlen(line), NULL);

		ck_works(hb_json_canonical(r, &b, err));
		ck_assert_str_eq(b.data, line);
		ck_assert_int_eq(hb_json_int(r, "seq", 0), ++seq);
		ck_assert_str_eq(hb_json_text(r, "prev", ""), prev);
		ck_assert_str_eq(hb_json_text(r, "process", ""), "hermes-test");
		ck_assert_int_eq(hb_json_int(json_object_get(r, "detail"), "n", 0), seq);
		hb_sha256_hex(line, strlen(line), hash);
		prev = hash;
		json_decref(r);
		hb_buf_free(&b);
	}
	ck_assert_int_eq(seq, 3);
	a = open_log();
	head = hb_audit_head(a);
	ck_assert_int_eq(head.seq, 3);
	ck_assert_str_eq(head.hash, hash);
	hb_audit_close(a);
	ck_assert_int_eq(verified(), 3);
	ck_assert_int_eq(stat(LOG, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(stat(LOG ".head", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	free(data);
}
END_TEST

START_TEST(test_empty_log)
{
	struct hb_audit *a = open_log();
	json_t *tail = hb_audit_tail(a, 5, NULL);

	ck_assert_uint_eq(json_array_size(tail), 0);
	json_decref(tail);
	ck_assert_int_eq(hb_audit_head(a).seq, 0);
	hb_audit_close(a);
	ck_assert_int_eq(verified(), 0);
	make_log(1);
	ck_assert_int_eq(verified(), 1);
}
END_TEST

START_TEST(test_tail)
{
	struct hb_audit *a = open_log();
	json_t *tail;

	/* More than one window of reading. */
	for (int i = 1; i <= 600; i++)
		append(a, i);
	tail = hb_audit_tail(a, 3, NULL);
	ck_assert_uint_eq(json_array_size(tail), 3);
	ck_assert_int_eq(hb_json_int(json_array_get(tail, 0), "seq", 0), 600);
	ck_assert_int_eq(hb_json_int(json_array_get(tail, 2), "seq", 0), 598);
	json_decref(tail);
	tail = hb_audit_tail(a, 10000, NULL);
	ck_assert_uint_eq(json_array_size(tail), 600);
	ck_assert_int_eq(hb_json_int(json_array_get(tail, 599), "seq", 0), 1);
	json_decref(tail);
	hb_audit_close(a);
}
END_TEST

START_TEST(test_bad_records_are_refused)
{
	struct hb_audit *a = open_log();
	json_t *real = json_pack("{s:f}", "x", 1.5);
	char *longer = malloc(200001);

	ck_fails(hb_audit_append(a, "test", "ok", real, err), "bad_json");
	ck_fails(hb_audit_append(a, "\xff", "ok", NULL, err), "audit_unwritable");
	memset(longer, 'x', 200000);
	longer[200000] = '\0';
	json_object_set_new(real, "x", json_string(longer));
	ck_fails(hb_audit_append(a, "test", "ok", real, err), "audit_unwritable");
	append(a, 1);
	hb_audit_close(a);
	ck_assert_int_eq(verified(), 1);
	json_decref(real);
	free(longer);
}
END_TEST

/* Cut to every number of whole records and to half of one: refused, and still refused after a try
 * to append. */
START_TEST(test_h64_cut_tail_is_noticed_and_stays_noticed)
{
	struct hb_audit *a = NULL;
	size_t len;
	char *data;

	make_log(5);
	keep();
	data = test_read(LOG, &len);
	for (int n = 0; n < 5; n++) {
		for (int half = 0; half < 2; half++) {
			ck_assert_int_eq(truncate(LOG, (off_t)end_of(data, n) + half * 40), 0);
			ck_fails(hb_audit_verify(AT_FDCWD, LOG, NULL, err), "audit_truncated");
			ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "audit_truncated");
			ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "audit_truncated");
			ck_fails(hb_audit_verify(AT_FDCWD, LOG, NULL, err), "audit_truncated");
			restore();
		}
	}
	unlink(LOG);
	ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "audit_truncated");
	ck_fails(hb_audit_verify(AT_FDCWD, LOG, NULL, err), "audit_truncated");
	restore();
	/* Whatever the log holds, one record included, which could pass for a crash after the first
	 * append. */
	for (int n = 1; n <= 5; n++) {
		test_write(LOG, data, end_of(data, n));
		unlink(LOG ".head");
		ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "audit_broken");
		ck_fails(hb_audit_verify(AT_FDCWD, LOG, NULL, err), "audit_broken");
		restore();
	}
	ck_assert_int_eq(verified(), 5);
	ck_assert_ptr_null(a);
	free(data);
}
END_TEST

/* An older copy of the log, or of the head, or another log of the same length. */
START_TEST(test_h64_replaced_files_are_noticed)
{
	struct hb_audit *a = NULL;
	size_t len;
	char *data;

	make_log(2);
	copy_file(LOG, "old.log");
	copy_file(LOG ".head", "old.head");
	make_log(3);
	keep();
	copy_file("old.log", LOG);
	ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "audit_truncated");
	ck_fails(hb_audit_verify(AT_FDCWD, LOG, NULL, err), "audit_truncated");
	restore();
	copy_file("old.head", LOG ".head");
	ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "audit_broken");
	restore();
	copy_file("old.head", LOG ".head");
	ck_fails(hb_audit_verify(AT_FDCWD, LOG, NULL, err), "audit_broken");
	restore();
	/* The last record changed, same length. */
	data = test_read(LOG, &len);
	*strstr(data + end_of(data, 4), "\"status\":\"ok\"") = '\'';
	test_write(LOG, data, len);
	ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "audit_broken");
	ck_fails(hb_audit_verify(AT_FDCWD, LOG, NULL, err), "audit_broken");
	free(data);
	restore();
	/* Another chain, good in itself and of the same length. */
	unlink(LOG);
	unlink(LOG ".head");
	make_log(4);
	make_log(1);
	copy_file("kept.head", LOG ".head");
	ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "audit_broken");
	ck_fails(hb_audit_verify(AT_FDCWD, LOG, NULL, err), "audit_broken");
	restore();
	test_puts(LOG ".head", "hermes-audit-head-v1 garbage\n");
	ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "audit_broken");
	ck_fails(hb_audit_verify(AT_FDCWD, LOG, NULL, err), "audit_broken");
	ck_assert_ptr_null(a);
}
END_TEST

START_TEST(test_verify_names_the_line)
{
	struct hb_error e;
	char *data, *at;
	size_t len;

	make_log(5);
	data = test_read(LOG, &len);
	at = strstr(data + end_of(data, 2), "\"n\":3");
	at[4] = '8';
	test_write(LOG, data, len);
	ck_assert_int_eq(hb_audit_verify(AT_FDCWD, LOG, NULL, &e), -1);
	ck_assert_str_eq(e.code, "audit_broken");
	/* Record 3 is changed; that record 4 doesn't continue from it is what shows. */
	ck_assert_ptr_nonnull(strstr(e.message, LOG ":4:"));
	/* Same values, other spelling. */
	at[4] = '3';
	memmove(at + 1, at, len - (size_t)(at - data) - 1);
	at[0] = ' ';
	test_write(LOG, data, len);
	ck_assert_int_eq(hb_audit_verify(AT_FDCWD, LOG, NULL, &e), -1);
	ck_assert_ptr_nonnull(strstr(e.message, LOG ":3:"));
	ck_fails(hb_audit_verify(AT_FDCWD, "none.log", NULL, err), "audit_unreadable");
	free(data);
}
END_TEST

/* A crash after any number of bytes of an append: healed at the next open, what was torn is kept
 * and told. */
START_TEST(test_h65_crash_at_every_byte_of_an_append)
{
	size_t len, from, torn_len;
	char *data, *action, *torn;
	struct hb_audit *a;

	make_log(2);
	keep();
	make_log(1);
	data = test_read(LOG, &len);
	from = end_of(data, 2);
	for (size_t cut = from; cut <= len; cut++) {
		restore();
		test_write(LOG, data, cut);
		ck_assert_int_eq(verified(), cut == len ? 3 : 2);
		a = open_log();
		if (cut == from || cut == len) {
			/* Nothing was written, or all of it and only the head is behind. */
			ck_assert_int_eq(hb_audit_head(a).seq, cut == from ? 2 : 3);
			ck_assert_int_ne(access(LOG ".torn", F_OK), 0);
		} else {
			ck_assert_int_eq(hb_audit_head(a).seq, 3);
			action = newest(a, "action");
			ck_assert_str_eq(action, "audit_torn_tail");
			free(action);
			torn = test_read(LOG ".torn", &torn_len);
			ck_assert_uint_eq(torn_len, cut - from);
			ck_assert_mem_eq(torn, data + from, torn_len);
			free(torn);
		}
		append(a, 9);
		hb_audit_close(a);
		ck_assert_int_eq(verified(), cut == from ? 3 : 4);
	}
	free(data);
}
END_TEST

/* What follows the last record need not be a piece of one. */
START_TEST(test_h65_garbage_tails)
{
	/* Longer than the record that takes its place: nothing of it may stay. */
	static char longer[3000];
	const struct {
		const char *text;
		size_t len;
	} tails[] = {
		{longer, sizeof(longer)},
		{"\0\0\0\0\0\0\0\0", 8},
		{"{}\n", 3},
		{"{\"action\":\"x\"}", 14},
		{"\n", 1},
		{"\n\n\n", 3},
		{"\xff\xfe\n{}", 5},
		{"null\ntrue\n", 10},
	};
	struct hb_audit *a;
	char *status;

	memset(longer, 'x', sizeof(longer));
	for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
		int64_t before = i == 0 ? 0 : verified();
		FILE *f;

		if (i == 0) {
			make_log(1);
			before = 1;
		}
		f = fopen(LOG, "a");
		fwrite(tails[i].text, 1, tails[i].len, f);
		fclose(f);
		a = open_log();
		ck_assert_int_eq(hb_audit_head(a).seq, before + 1);
		status = newest(a, "status");
		ck_assert_str_eq(status, "crashed");
		free(status);
		hb_audit_close(a);
		ck_assert_int_eq(verified(), before + 1);
		hb_audit_close(open_log());
		ck_assert_int_eq(verified(), before + 1);
	}
}
END_TEST

START_TEST(test_h65_one_writer)
{
	struct hb_audit *a = open_log(), *second = NULL;

	ck_fails(hb_audit_open(LOG, "hermes-test", &second, err), "audit_locked");
	ck_assert_ptr_null(second);
	ck_fails(hb_audit_acknowledge(LOG, "hermes-test", "because", err), "audit_locked");
	append(a, 1);
	hb_audit_close(a);
	ck_assert_int_eq(verified(), 1);
}
END_TEST

/* Changed behind the back of a running writer. */
START_TEST(test_changes_under_a_running_writer)
{
	struct hb_audit *a = open_log();
	FILE *f;

	append(a, 1);
	append(a, 2);
	ck_assert_int_eq(truncate(LOG, 10), 0);
	ck_fails(hb_audit_append(a, "test", "ok", NULL, err), "audit_truncated");
	ck_fails(hb_audit_append(a, "test", "ok", NULL, err), "audit_unwritable");
	hb_audit_close(a);
	ck_assert_int_eq(unlink(LOG), 0);
	ck_assert_int_eq(unlink(LOG ".head"), 0);
	a = open_log();
	append(a, 1);
	f = fopen(LOG, "a");
	fputs("x", f);
	fclose(f);
	ck_fails(hb_audit_append(a, "test", "ok", NULL, err), "audit_broken");
	hb_audit_close(a);
	hb_audit_close(open_log());
	a = open_log();
	ck_assert_int_eq(rename(LOG, "moved"), 0);
	ck_assert_int_eq(unlink("moved"), 0);
	ck_fails(hb_audit_append(a, "test", "ok", NULL, err), "audit_broken");
	hb_audit_close(a);
}
END_TEST

/* A full disk: the append fails, and once there is room the chain goes on without a gap. */
START_TEST(test_h22_full_disk)
{
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit small = none;
	struct hb_audit *a = open_log();
	struct stat st;

	append(a, 1);
	ck_assert_int_eq(stat(LOG, &st), 0);
	signal(SIGXFSZ, SIG_IGN);
	small.rlim_cur = (rlim_t)st.st_size + 20;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	ck_fails(hb_audit_append(a, "test", "ok", NULL, err), "audit_unwritable");
	ck_assert_int_eq(verified(), 1);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
	append(a, 2);
	hb_audit_close(a);
	ck_assert_int_eq(verified(), 2);
	ck_assert_int_ne(access(LOG ".torn", F_OK), 0);
}
END_TEST

START_TEST(test_verify_beside_a_running_writer)
{
	int status;
	pid_t pid;

	make_log(1);
	pid = fork();
	if (pid == 0) {
		struct hb_audit *a = NULL;

		if (hb_audit_open(LOG, "hermes-test", &a, NULL) != 0)
			_exit(1);
		for (int i = 0; i < 300; i++)
			if (hb_audit_append(a, "test", "ok", NULL, NULL) != 0)
				_exit(2);
		hb_audit_close(a);
		_exit(0);
	}
	for (int i = 0; i < 200; i++)
		ck_assert_int_ge(verified(), 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(verified(), 301);
}
END_TEST

START_TEST(test_untrusted_files)
{
	struct hb_audit *a = NULL;

	make_log(1);
	chmod(LOG, 0660);
	ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "loose_permissions");
	chmod(LOG, 0600);
	chmod(LOG ".head", 0606);
	ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "loose_permissions");
	chmod(LOG ".head", 0600);
	ck_assert_int_eq(rename(LOG, "elsewhere"), 0);
	ck_assert_int_eq(symlink("elsewhere", LOG), 0);
	ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "unsafe_path");
	ck_assert_ptr_null(a);
}
END_TEST

/* After damage the operator says so; the evidence is kept and the new chain begins with what
 * happened. */
START_TEST(test_h65_acknowledge_keeps_the_evidence)
{
	struct hb_audit *a = NULL;
	const char *kept_as;
	char hash[65], *data;
	struct hb_buf back = HB_BUF_INIT;
	json_t *tail, *detail;
	size_t len;

	make_log(3);
	ck_assert_int_eq(truncate(LOG, 10), 0);
	data = test_read(LOG, &len);
	ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "audit_truncated");
	ck_works(hb_audit_acknowledge(LOG, "hermes-test", "the disk was replaced", err));
	a = open_log();
	append(a, 1);
	ck_assert_int_eq(hb_audit_head(a).seq, 2);
	tail = hb_audit_tail(a, 2, NULL);
	ck_assert_str_eq(hb_json_text(json_array_get(tail, 1), "action", ""), "audit_acknowledged");
	detail = json_object_get(json_array_get(tail, 1), "detail");
	ck_assert_str_eq(hb_json_text(detail, "reason", ""), "the disk was replaced");
	hb_sha256_hex(data, len, hash);
	ck_assert_str_eq(hb_json_text(detail, "log_sha256", ""), hash);
	kept_as = hb_json_text(detail, "kept_as", "");
	ck_works(hb_fs_read(AT_FDCWD, kept_as, 1000, &back, err));
	ck_assert_uint_eq(back.len, len);
	ck_assert_mem_eq(back.data, data, len);
	ck_fails(hb_audit_verify(AT_FDCWD, kept_as, NULL, err), "audit_truncated");
	hb_audit_close(a);
	ck_assert_int_eq(verified(), 2);
	json_decref(tail);
	hb_buf_free(&back);
	free(data);
	/* The log gone altogether. */
	unlink(LOG);
	ck_fails(hb_audit_open(LOG, "hermes-test", &a, err), "audit_truncated");
	ck_works(hb_audit_acknowledge(LOG, "hermes-test", "lost", err));
	ck_assert_int_eq(verified(), 1);
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("audit");
	TCase *t = test_case("audit");

	tcase_add_test(t, test_chain_is_what_the_header_says);
	tcase_add_test(t, test_empty_log);
	tcase_add_test(t, test_tail);
	tcase_add_test(t, test_bad_records_are_refused);
	tcase_add_test(t, test_h64_cut_tail_is_noticed_and_stays_noticed);
	tcase_add_test(t, test_h64_replaced_files_are_noticed);
	tcase_add_test(t, test_verify_names_the_line);
	tcase_add_test(t, test_h65_crash_at_every_byte_of_an_append);
	tcase_add_test(t, test_h65_garbage_tails);
	tcase_add_test(t, test_h65_one_writer);
	tcase_add_test(t, test_changes_under_a_running_writer);
	tcase_add_test(t, test_h22_full_disk);
	tcase_add_test(t, test_verify_beside_a_running_writer);
	tcase_add_test(t, test_untrusted_files);
	tcase_add_test(t, test_h65_acknowledge_keeps_the_evidence);
	suite_add_tcase(s, t);
	return test_run(s);
}
