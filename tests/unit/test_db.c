/* Opening, migrations, values, and the path that is never made absolute. */
#include "tests/unit/test_util.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "common/db.h"

static const char *const steps[] = {
	"CREATE TABLE t (a TEXT, b INTEGER) STRICT; INSERT INTO t VALUES ('one', 1);",
	"ALTER TABLE t ADD COLUMN c BLOB;",
	"INSERT INTO t VALUES ('three', 3, NULL); CREATE TABLE u (x) ;",
};

static sqlite3 *
open_steps(int count)
{
	const struct hb_db_options o = {.full_sync = true, .steps = steps, .step_count = count};
	sqlite3 *db = NULL;

	ck_works(hb_db_open("test.db", &o, &db, err));
	return db;
}

static int64_t
ask(sqlite3 *db, const char *sql)
{
	int64_t n = -1;

	ck_assert_int_eq(hb_db_int(db, &n, NULL, sql, ""), 1);
	return n;
}

START_TEST(test_settings)
{
	const struct hb_db_options normal = {.busy_ms = 7};
	sqlite3 *db = open_steps(1);
	sqlite3_stmt *st;

	ck_assert_int_eq(ask(db, "PRAGMA synchronous"), 2);
	ck_assert_int_eq(ask(db, "PRAGMA foreign_keys"), 1);
	ck_assert_int_eq(ask(db, "PRAGMA busy_timeout"), 5000);
	st = hb_db_prepare(db, NULL, "PRAGMA journal_mode", "");
	ck_assert_int_eq(hb_db_step(st, NULL), 1);
	ck_assert_str_eq(hb_db_text(st, 0), "wal");
	sqlite3_finalize(st);
	hb_db_close(db);
	ck_works(hb_db_open("test.db", &normal, &db, err));
	ck_assert_int_eq(ask(db, "PRAGMA synchronous"), 1);
	ck_assert_int_eq(ask(db, "PRAGMA busy_timeout"), 7);
	hb_db_close(db);
	hb_db_close(NULL);
}
END_TEST

START_TEST(test_migrations)
{
	const struct hb_db_options old = {.steps = steps, .step_count = 2};
	sqlite3 *db = open_steps(1);

	ck_assert_int_eq(ask(db, "PRAGMA user_version"), 1);
	hb_db_close(db);
	db = open_steps(3);
	ck_assert_int_eq(ask(db, "PRAGMA user_version"), 3);
	ck_assert_int_eq(ask(db, "SELECT count(*) FROM t"), 2);
	hb_db_close(db);
	db = open_steps(3);
	ck_assert_int_eq(ask(db, "SELECT count(*) FROM t"), 2);
	hb_db_close(db);
	db = NULL;
	ck_fails(hb_db_open("test.db", &old, &db, err), "db_newer");
	ck_assert_ptr_null(db);
}
END_TEST

/* A step that fails takes back the ones before it. */
START_TEST(test_failed_migration_changes_nothing)
{
	static const char *const bad[] = {"CREATE TABLE a (x);", "CREATE TABLE b (x); NOT SQL;"};
	const struct hb_db_options o = {.steps = bad, .step_count = 2}, plain = {0};
	sqlite3 *db = NULL;

	ck_fails(hb_db_open("test.db", &o, &db, err), "db_failed");
	ck_works(hb_db_open("test.db", &plain, &db, err));
	ck_assert_int_eq(ask(db, "PRAGMA user_version"), 0);
	ck_assert_int_eq(ask(db, "SELECT count(*) FROM sqlite_schema"), 0);
	hb_db_close(db);
}
END_TEST

START_TEST(test_values)
{
	sqlite3 *db = open_steps(2);
	sqlite3_stmt *st;
	int64_t n;

	ck_assert_int_eq(hb_db_run(db, NULL, "INSERT INTO t VALUES (?, ?, ?)", "tib", "it's",
				   (int64_t)1 << 40, (const void *)"a\0b", (size_t)3),
			 1);
	ck_assert_int_eq(hb_db_run(db, NULL, "INSERT INTO t VALUES (?, ?, ?)", "tnn", NULL), 1);
	ck_assert_int_eq(hb_db_run(db, NULL, "UPDATE t SET b = 5 WHERE a = ?", "t", "none"), 0);
	ck_assert_int_eq(hb_db_int(db, &n, NULL, "SELECT b FROM t WHERE a = ?", "t", "it's"), 1);
	ck_assert_int_eq(n, (int64_t)1 << 40);
	ck_assert_int_eq(hb_db_int(db, &n, NULL, "SELECT b FROM t WHERE a = ?", "t", "none"), 0);
	st = hb_db_prepare(db, NULL, "SELECT a, length(c) FROM t WHERE a IS ?", "t", NULL);
	ck_assert_int_eq(hb_db_step(st, NULL), 1);
	ck_assert_str_eq(hb_db_text(st, 0), "");
	ck_works(hb_db_rebind(st, err, "t", "it's"));
	ck_assert_int_eq(hb_db_step(st, NULL), 1);
	ck_assert_str_eq(hb_db_text(st, 0), "it's");
	ck_assert_int_eq(sqlite3_column_int64(st, 1), 3);
	ck_assert_int_eq(hb_db_step(st, NULL), 0);
	sqlite3_finalize(st);
	hb_db_close(db);
}
END_TEST

START_TEST(test_errors)
{
	sqlite3 *db = open_steps(1);
	struct hb_error e;

	ck_fails(hb_db_exec(db, "NOT SQL", err), "db_failed");
	ck_assert_ptr_null(hb_db_prepare(db, &e, "SELECT none FROM t", ""));
	ck_assert_str_eq(e.code, "db_failed");
	ck_fails(hb_db_run(db, err, "INSERT INTO none VALUES (?)", "t", "hunter2"), "db_failed");
	/* A constraint's message names the column and not the value. */
	ck_assert_int_eq(hb_db_run(db, &e, "INSERT INTO t VALUES ('x', ?)", "t", "hunter2"), -1);
	ck_assert_ptr_null(strstr(e.message, "hunter2"));
	ck_assert_ptr_nonnull(strstr(e.message, "test.db"));
	hb_db_close(db);
}
END_TEST

START_TEST(test_transactions)
{
	sqlite3 *db = open_steps(1);

	ck_works(hb_db_begin(db, err));
	ck_works(hb_db_exec(db, "DELETE FROM t", err));
	ck_fails(hb_db_begin(db, err), "db_failed");
	hb_db_rollback(db);
	hb_db_rollback(db);
	ck_assert_int_eq(ask(db, "SELECT count(*) FROM t"), 1);
	ck_works(hb_db_begin(db, err));
	ck_works(hb_db_exec(db, "DELETE FROM t", err));
	ck_works(hb_db_commit(db, err));
	ck_assert_int_eq(ask(db, "SELECT count(*) FROM t"), 0);
	hb_db_close(db);
}
END_TEST

START_TEST(test_files)
{
	const struct hb_db_options o = {0}, reading = {.read_only = true};
	sqlite3 *db = NULL;
	struct stat st;

	ck_fails(hb_db_open("none.db", &reading, &db, err), "db_failed");
	ck_fails(hb_db_open("none/x.db", &o, &db, err), "db_failed");
	ck_assert_int_eq(symlink("target.db", "link.db"), 0);
	ck_fails(hb_db_open("link.db", &o, &db, err), "db_failed");
	ck_assert_int_ne(access("target.db", F_OK), 0);
	umask(0);
	db = open_steps(1);
	ck_assert_int_eq(stat("test.db", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	hb_db_close(db);
	ck_works(hb_db_open("test.db", &reading, &db, err));
	ck_assert_int_eq(ask(db, "SELECT count(*) FROM t"), 1);
	ck_fails(hb_db_exec(db, "DELETE FROM t", err), "db_failed");
	hb_db_close(db);
	chmod("test.db", 0666);
	ck_fails(hb_db_open("test.db", &o, &db, err), "loose_permissions");
	test_puts("garbage.db", "this is not a database, and it is long enough to be looked at as "
				"one by its header");
	chmod("garbage.db", 0600);
	ck_fails(hb_db_open("garbage.db", &o, &db, err), "db_failed");
}
END_TEST

/*
 * The state lies below a directory that the process may not enter: it got there before it dropped
 * its rights. SQLite's own VFS would open by absolute path and fail.
 */
START_TEST(test_relative_path_below_a_closed_directory)
{
	const struct hb_db_options o = {.full_sync = true, .steps = steps, .step_count = 2};
	int status;
	pid_t pid;

	ck_assert_int_eq(mkdir("closed", 0700), 0);
	ck_assert_int_eq(mkdir("closed/state", 0700), 0);
	ck_assert_int_eq(mkdir("closed/state/own", 0700), 0);
	if (geteuid() == 0) {
		ck_assert_int_eq(chown("closed/state", 4242, 4242), 0);
		ck_assert_int_eq(chown("closed/state/own", 4242, 4242), 0);
	}
	pid = fork();
	if (pid == 0) {
		sqlite3 *db = NULL;
		struct hb_error e;

		if (chdir("closed/state") != 0)
			_exit(1);
		if (geteuid() == 0 ? setgid(4242) != 0 || setuid(4242) != 0 : chmod("..", 0) != 0)
			_exit(2);
		if (hb_db_open("own/t.db", &o, &db, &e) != 0) {
			fprintf(stderr, "%s\n", e.message);
			_exit(3);
		}
		if (hb_db_run(db, NULL, "INSERT INTO t VALUES ('x', 1, NULL)", "") != 1)
			_exit(4);
		hb_db_close(db);
		_exit(access("own/t.db", F_OK) == 0 ? 0 : 5);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	chmod("closed", 0700);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("db");
	TCase *t = test_case("db");

	tcase_add_test(t, test_settings);
	tcase_add_test(t, test_migrations);
	tcase_add_test(t, test_failed_migration_changes_nothing);
	tcase_add_test(t, test_values);
	tcase_add_test(t, test_errors);
	tcase_add_test(t, test_transactions);
	tcase_add_test(t, test_files);
	tcase_add_test(t, test_relative_path_below_a_closed_directory);
	suite_add_tcase(s, t);
	return test_run(s);
}
