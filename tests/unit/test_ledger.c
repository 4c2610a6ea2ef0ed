/* A grant is used at most once, whatever happens in between. */
#include "tests/unit/test_util.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/db.h"
#include "common/json.h"
#include "common/ledger.h"

static struct hb_grant
grant(int n)
{
	struct hb_grant g = {.feature = "runtime", .action = "install", .digest = "d"};

	snprintf(g.grant_id, sizeof(g.grant_id), "%064d", n);
	snprintf(g.operation_id, sizeof(g.operation_id), "%032d", n);
	return g;
}

static struct hb_ledger *
open_ledger(int *recovered)
{
	struct hb_ledger *l = NULL;

	ck_works(hb_ledger_open("ledger.db", &l, recovered, err));
	return l;
}

static void
state_is(struct hb_ledger *l, const char *operation_id, const char *want)
{
	struct hb_error e;
	json_t *row = hb_ledger_find(l, operation_id, &e);

	ck_assert_msg(row != NULL, "%s", e.message);
	ck_assert_str_eq(hb_json_text(row, "state", ""), want);
	ck_assert_str_eq(hb_json_text(row, "operation_id", ""), operation_id);
	json_decref(row);
}

START_TEST(test_burn_once)
{
	struct hb_ledger *l = open_ledger(NULL);
	struct hb_grant g = grant(1), same_grant = grant(2), same_operation = grant(3);

	strcpy(same_grant.grant_id, g.grant_id);
	strcpy(same_operation.operation_id, g.operation_id);
	ck_works(hb_ledger_burn(l, &g, err));
	ck_fails(hb_ledger_burn(l, &g, err), "grant_replayed");
	ck_fails(hb_ledger_burn(l, &same_grant, err), "grant_replayed");
	ck_fails(hb_ledger_burn(l, &same_operation, err), "grant_replayed");
	state_is(l, g.operation_id, "executing");
	ck_assert_ptr_null(hb_ledger_find(l, same_grant.operation_id, NULL));
	hb_ledger_close(l);
}
END_TEST

START_TEST(test_finish_and_find)
{
	struct hb_ledger *l = open_ledger(NULL);
	struct hb_grant a = grant(1), b = grant(2);
	json_t *result = json_pack("{s:i, s:f}", "returncode", 0, "duration", 1.5), *row;
	struct hb_error e;

	ck_works(hb_ledger_burn(l, &a, err));
	ck_works(hb_ledger_burn(l, &b, err));
	ck_fails(hb_ledger_finish(l, a.operation_id, "executing", result, err), "ledger_failed");
	ck_works(hb_ledger_finish(l, a.operation_id, "succeeded", result, err));
	row = hb_ledger_find(l, a.operation_id, &e);
	ck_assert_str_eq(hb_json_text(row, "state", ""), "succeeded");
	ck_assert_str_eq(hb_json_text(row, "grant_id", ""), a.grant_id);
	ck_assert(json_equal(json_object_get(row, "result"), result));
	ck_assert_int_ge(hb_json_int(row, "finished_at", 0), hb_json_int(row, "started_at", 0));
	ck_assert_int_gt(hb_json_int(row, "started_at", 0), 0);
	json_decref(row);
	/* Final is final. */
	ck_fails(hb_ledger_finish(l, a.operation_id, "failed", NULL, err), "ledger_final");
	ck_fails(hb_ledger_finish(l, a.operation_id, "succeeded", NULL, err), "ledger_final");
	state_is(l, a.operation_id, "succeeded");
	ck_works(hb_ledger_finish(l, b.operation_id, "failed", NULL, err));
	state_is(l, b.operation_id, "failed");
	ck_fails(hb_ledger_finish(l, "none", "failed", NULL, err), "unknown_operation");
	ck_assert_ptr_null(hb_ledger_find(l, "none", &e));
	ck_assert_str_eq(e.code, "unknown_operation");
	json_decref(result);
	hb_ledger_close(l);
}
END_TEST

/* Killed just after the burn: the row is there, its outcome unknown, and the grant is used. */
START_TEST(test_h48_crash_after_burn_is_never_repeated)
{
	struct hb_grant g = grant(1), done = grant(2);
	struct hb_ledger *l;
	int recovered = -1, status;
	pid_t pid = fork();

	if (pid == 0) {
		l = NULL;
		if (hb_ledger_open("ledger.db", &l, NULL, NULL) != 0 ||
		    hb_ledger_burn(l, &done, NULL) != 0 ||
		    hb_ledger_finish(l, done.operation_id, "succeeded", NULL, NULL) != 0 ||
		    hb_ledger_burn(l, &g, NULL) != 0)
			_exit(1);
		raise(SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
	l = open_ledger(&recovered);
	ck_assert_int_eq(recovered, 1);
	state_is(l, g.operation_id, "outcome_unknown");
	state_is(l, done.operation_id, "succeeded");
	ck_fails(hb_ledger_burn(l, &g, err), "grant_replayed");
	ck_fails(hb_ledger_finish(l, g.operation_id, "succeeded", NULL, err), "ledger_final");
	hb_ledger_close(l);
	l = open_ledger(&recovered);
	ck_assert_int_eq(recovered, 0);
	hb_ledger_close(l);
}
END_TEST

START_TEST(test_one_writer)
{
	struct hb_ledger *l = open_ledger(NULL), *second = NULL;

	ck_fails(hb_ledger_open("ledger.db", &second, NULL, err), "ledger_locked");
	ck_assert_ptr_null(second);
	hb_ledger_close(l);
	hb_ledger_close(open_ledger(NULL));
}
END_TEST

START_TEST(test_generation_never_goes_back)
{
	struct hb_ledger *l = open_ledger(NULL);

	ck_works(hb_ledger_see_generation(l, 3, err));
	ck_works(hb_ledger_see_generation(l, 3, err));
	ck_works(hb_ledger_see_generation(l, 9, err));
	ck_fails(hb_ledger_see_generation(l, 8, err), "generation_went_back");
	hb_ledger_close(l);
	l = open_ledger(NULL);
	ck_fails(hb_ledger_see_generation(l, 8, err), "generation_went_back");
	ck_works(hb_ledger_see_generation(l, 9, err));
	hb_ledger_close(l);
}
END_TEST

/* The database itself refuses what the code above never asks for. */
START_TEST(test_rows_are_kept_by_the_database_too)
{
	struct hb_ledger *l = open_ledger(NULL);
	const struct hb_db_options plain = {.full_sync = true};
	struct hb_grant g = grant(1);
	sqlite3 *db = NULL;

	ck_works(hb_ledger_burn(l, &g, err));
	ck_works(hb_ledger_finish(l, g.operation_id, "failed", NULL, err));
	hb_ledger_close(l);
	ck_works(hb_db_open("ledger.db", &plain, &db, err));
	ck_fails(hb_db_exec(db, "UPDATE grants SET state = 'executing'", err), "db_failed");
	ck_fails(hb_db_exec(db, "DELETE FROM grants", err), "db_failed");
	ck_fails(hb_db_exec(db,
			    "INSERT OR REPLACE INTO grants SELECT grant_id, operation_id, feature, "
			    "action,"
			    " digest, 'maybe', 1, 1, '' FROM grants",
			    err),
		 "db_failed");
	hb_db_close(db);
}
END_TEST

START_TEST(test_files_are_private_and_durable)
{
	struct hb_ledger *l;
	struct stat st;

	umask(0);
	l = open_ledger(NULL);
	ck_assert_int_eq(stat("ledger.db", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(stat("ledger.db-wal", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(stat("ledger.db.lock", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	hb_ledger_close(l);
}
END_TEST

/* No room: the burn fails, so the effect does not happen, and later it works. */
START_TEST(test_h22_full_disk_burns_nothing)
{
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit small = none;
	struct hb_ledger *l = open_ledger(NULL);
	struct hb_grant g = grant(1);
	struct stat st;

	ck_assert_int_eq(stat("ledger.db-wal", &st), 0);
	signal(SIGXFSZ, SIG_IGN);
	small.rlim_cur = (rlim_t)st.st_size;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	ck_assert_int_eq(hb_ledger_burn(l, &g, NULL), -1);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
	ck_assert_ptr_null(hb_ledger_find(l, g.operation_id, NULL));
	ck_works(hb_ledger_burn(l, &g, err));
	hb_ledger_close(l);
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("ledger");
	TCase *t = test_case("ledger");

	tcase_add_test(t, test_burn_once);
	tcase_add_test(t, test_finish_and_find);
	tcase_add_test(t, test_h48_crash_after_burn_is_never_repeated);
	tcase_add_test(t, test_one_writer);
	tcase_add_test(t, test_generation_never_goes_back);
	tcase_add_test(t, test_rows_are_kept_by_the_database_too);
	tcase_add_test(t, test_files_are_private_and_durable);
	tcase_add_test(t, test_h22_full_disk_burns_nothing);
	suite_add_tcase(s, t);
	return test_run(s);
}
