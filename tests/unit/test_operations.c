/* The broker's table, and where it may listen. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/broker.h"
#include "common/ids.h"
#include "common/json.h"
#include "tests/unit/test_util.h"

static struct hb_store *s;
static struct hb_error err;

static void
reopen(void)
{
	hb_store_close(s);
	s = NULL;
	ck_assert_msg(hb_store_open("operations.db", &s, &err) == 0, "%s", err.message);
}

static void
set_up(void)
{
	reopen();
}

static void
tear_down(void)
{
	hb_store_close(s);
	s = NULL;
}

static struct hb_op
make(int64_t expires, int64_t generation)
{
	struct hb_op op = {.feature = "local",
			   .action = "command",
			   .target = "docker",
			   .user_id = "0",
			   .session = "s",
			   .created_at = 100,
			   .expires_at = expires,
			   .generation = generation};

	hb_random_hex(16, op.id);
	hb_random_hex(32, op.capability);
	memset(op.digest, 'd', 64);
	memset(op.summary_digest, 'e', 64);
	ck_assert_int_eq(hb_store_insert(s, &op, "{\"command\":\"x\"}", "summary", &err), 0);
	return op;
}

static size_t
count(enum hb_op_query q, int64_t arg)
{
	char(*ids)[HB_OP_ID];
	size_t n;

	ck_assert_int_eq(hb_store_ids(s, q, arg, 100, &ids, &n, &err), 0);
	free(ids);
	return n;
}

START_TEST(test_row_survives_whole)
{
	struct hb_op op = make(500, 7), back;
	struct hb_op_extra extra = {.envelope = "{\"grant\":1}",
				    .decided_by = "[\"0\"]",
				    .result = "{\"output\":\"o\"}"};
	char *text;

	op.state = HB_OP_APPROVED;
	op.execute_requested = true;
	op.grant_expires = 600;
	strcpy(op.channel, "console");
	ck_assert_int_eq(hb_store_update(s, &op, HB_OP_PREPARED, &extra, true, &err), 0);
	reopen();
	ck_assert_int_eq(hb_store_find(s, op.id, &back, &err), 0);
	ck_assert_int_eq(memcmp(&op, &back, sizeof(op)), 0);
	ck_assert_int_eq(hb_store_find_capability(s, op.capability, &back, &err), 0);
	ck_assert_str_eq(back.id, op.id);
	text = hb_store_text(s, op.id, HB_COL_ENVELOPE, &err);
	ck_assert_str_eq(text, "{\"grant\":1}");
	free(text);
	ck_assert_uint_eq(hb_store_live(s), 1);
}
END_TEST

START_TEST(test_a_change_from_another_state_is_refused)
{
	struct hb_op op = make(500, 7), late = op;

	op.state = HB_OP_CANCELLED;
	ck_assert_int_eq(hb_store_update(s, &op, HB_OP_PREPARED, NULL, false, &err), 0);
	ck_assert_uint_eq(hb_store_live(s), 0);
	late.state = HB_OP_APPROVED;
	ck_assert_int_eq(hb_store_update(s, &late, HB_OP_PREPARED, NULL, true, &err), -1);
	ck_assert_str_eq(err.code, "operation_changed");
	ck_assert_int_eq(hb_store_find(s, op.id, &late, &err), 0);
	ck_assert_int_eq(late.state, HB_OP_CANCELLED);
}
END_TEST

START_TEST(test_queries)
{
	struct hb_op due = make(100, 1), later = make(900, 2), approved = make(100, 1);

	approved.state = HB_OP_APPROVED;
	approved.grant_expires = 300;
	approved.tell = HB_TELL_OUTCOME;
	ck_assert_int_eq(hb_store_update(s, &approved, HB_OP_PREPARED, NULL, true, &err), 0);
	later.state = HB_OP_AWAITING;
	ck_assert_int_eq(hb_store_update(s, &later, HB_OP_PREPARED, NULL, false, &err), 0);
	ck_assert_uint_eq(count(HB_Q_PENDING_DUE, 99), 0);
	ck_assert_uint_eq(count(HB_Q_PENDING_DUE, 100), 1);
	ck_assert_uint_eq(count(HB_Q_PENDING_DUE, 900), 2);
	ck_assert_uint_eq(count(HB_Q_GRANT_DUE, 299), 0);
	ck_assert_uint_eq(count(HB_Q_GRANT_DUE, 300), 1);
	ck_assert_uint_eq(count(HB_Q_OLD_POLICY, 2), 2);
	ck_assert_uint_eq(count(HB_Q_TELL, 0), 1);
	ck_assert_uint_eq(count(HB_Q_RESTORE, 0), 2);
	ck_assert_int_eq(hb_store_resubmit(s, &err), 0);
	ck_assert_uint_eq(count(HB_Q_TELL, 0), 2);
	due.state = HB_OP_EXPIRED;
	ck_assert_int_eq(hb_store_update(s, &due, HB_OP_PREPARED, NULL, false, &err), 0);
	ck_assert_int_eq(hb_store_prune(s, 101, &err), 0);
	ck_assert_int_eq(hb_store_find(s, due.id, &due, &err), -1);
	ck_assert_str_eq(err.code, "unknown_operation");
	ck_assert_int_eq(hb_store_find(s, approved.id, &approved, &err), 0); /* not final: kept */
}
END_TEST

START_TEST(test_clients_never_see_the_capability)
{
	struct hb_op op = make(500, 7);
	json_t *one = hb_store_json(s, op.id, &err), *list = hb_store_list(s, 10, &err);
	char *text = json_dumps(list, 0);

	ck_assert_str_eq(hb_json_text(one, "state", ""), "prepared");
	ck_assert_uint_eq(json_array_size(list), 1);
	ck_assert_ptr_null(strstr(text, op.capability));
	ck_assert_ptr_null(json_object_get(one, "error"));
	free(text);
	json_decref(one);
	json_decref(list);
}
END_TEST

START_TEST(test_generation_never_goes_back)
{
	ck_assert_int_eq(hb_store_see_generation(s, 9, &err), 0);
	reopen();
	ck_assert_int_eq(hb_store_see_generation(s, 8, &err), -1);
	ck_assert_str_eq(err.code, "generation_went_back");
	ck_assert_int_eq(hb_store_see_generation(s, 10, &err), 0);
}
END_TEST

START_TEST(test_listen_addresses)
{
	static const char *const loopback[] = {"127.0.0.1:8750", "127.9.9.9:1", "[::1]:8750"};
	static const char *const private_net[] = {"10.1.2.3:8750", "172.16.0.1:80",
						  "172.31.255.1:80", "192.168.1.1:80",
						  "[fd00::1]:8750"};
	static const char *const never[] = {
		"0.0.0.0:8750",	       "[::]:8750",	   "8.8.8.8:1",	   "172.32.0.1:80",
		"169.254.1.1:80",      "[2001:db8::1]:80", "[fe80::1]:80", "localhost:80",
		"127.0.0.1",	       "127.0.0.1:",	   "127.0.0.1:0",  "127.0.0.1:65536",
		"127.0.0.1:8x",	       "127.0.0.1:-1",	   ":80",	   "",
		"[::ffff:8.8.8.8]:80", "127.1:80",	   "0177.0.0.1:80"};
	struct hb_listen where;

	for (size_t i = 0; i < sizeof(loopback) / sizeof(loopback[0]); i++)
		ck_assert_msg(hb_listen_parse(loopback[i], false, &where, &err) == 0, "%s",
			      loopback[i]);
	ck_assert_str_eq(where.host, "::1");
	ck_assert_int_eq(where.port, 8750);
	for (size_t i = 0; i < sizeof(private_net) / sizeof(private_net[0]); i++) {
		ck_assert_msg(hb_listen_parse(private_net[i], false, &where, &err) < 0, "%s",
			      private_net[i]);
		ck_assert_msg(hb_listen_parse(private_net[i], true, &where, &err) == 0, "%s",
			      private_net[i]);
	}
	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		ck_assert_msg(hb_listen_parse(never[i], true, &where, &err) < 0, "%s", never[i]);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("operations");
	TCase *tc = test_case("all");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_row_survives_whole);
	tcase_add_test(tc, test_a_change_from_another_state_is_refused);
	tcase_add_test(tc, test_queries);
	tcase_add_test(tc, test_clients_never_see_the_capability);
	tcase_add_test(tc, test_generation_never_goes_back);
	tcase_add_test(tc, test_listen_addresses);
	suite_add_tcase(suite, tc);
	return test_run(suite);
}
