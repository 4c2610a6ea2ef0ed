/* Decisions: one word a person, one denial vetoes, and an update never counts twice. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "approver/decisions.h"
#include "common/ids.h"
#include "tests/unit/test_util.h"

#define ID "00112233445566778899aabbccddeeff"

static struct hb_decisions *d;
static struct hb_error err;

static void
reopen(void)
{
	hb_decisions_close(d);
	d = NULL;
	ck_assert_msg(hb_decisions_open("approver.db", &d, &err) == 0, "%s", err.message);
}

static void
set_up(void)
{
	reopen();
}

static void
tear_down(void)
{
	hb_decisions_close(d);
	d = NULL;
}

static void
ask(int quorum, int64_t life)
{
	struct hb_ask a = {.id = ID,
			   .target = "docker",
			   .feature = "local",
			   .action = "command",
			   .user_id = "111",
			   .session = "s",
			   .quorum = quorum,
			   .generation = 3,
			   .created_at = hb_now()};

	memset(a.capability, 'c', 64);
	memset(a.digest, 'd', 64);
	memset(a.summary_digest, 'e', 64);
	a.expires_at = a.created_at + life;
	ck_assert_msg(hb_ask_insert(d, &a, "what it is", &err) == 0, "%s", err.message);
}

static struct hb_ask
now_is(enum hb_ask_state state)
{
	struct hb_ask a;

	ck_assert_int_eq(hb_ask_find(d, ID, &a, &err), 0);
	ck_assert_int_eq(a.state, state);
	return a;
}

static const char *
decide(const char *user, bool approve, const struct hb_update_mark *mark)
{
	struct hb_ask a;

	return hb_decide(d, ID, user, approve, "telegram", hb_now(), mark, &a, &err) == 0
		       ? "ok"
		       : err.code;
}

static size_t
count_ids(enum hb_ask_query q, int64_t arg)
{
	char(*ids)[HB_OP_ID];
	size_t n;

	ck_assert_int_eq(hb_ask_ids(d, q, arg, 10, &ids, &n, &err), 0);
	free(ids);
	return n;
}

START_TEST(test_one_word_a_person)
{
	char users[4][24];

	ask(2, 100);
	ck_assert_str_eq(decide("111", true, NULL), "ok");
	ck_assert_str_eq(decide("111", true, NULL), "already_decided");
	ck_assert_str_eq(decide("111", false, NULL), "already_decided");
	now_is(HB_ASK_PENDING);
	ck_assert_uint_eq(count_ids(HB_A_UNSIGNED, 0), 0);
	ck_assert_str_eq(decide("222", true, NULL), "ok");
	now_is(HB_ASK_APPROVED);
	ck_assert_uint_eq(hb_decided_by(d, ID, true, users, 4), 2);
	ck_assert_str_eq(users[1], "222");
	ck_assert_uint_eq(count_ids(HB_A_UNSIGNED, 0), 1);
	ck_assert_int_eq(hb_ask_pending(d), 0);
}
END_TEST

START_TEST(test_one_denial_vetoes)
{
	ask(2, 100);
	ck_assert_str_eq(decide("111", true, NULL), "ok");
	ck_assert_str_eq(decide("222", false, NULL), "ok");
	now_is(HB_ASK_DENIED);
	ck_assert_str_eq(decide("333", true, NULL), "request_closed");
	now_is(HB_ASK_DENIED);
}
END_TEST

START_TEST(test_h49_expired_cannot_be_decided)
{
	ask(1, 0);
	ck_assert_str_eq(decide("111", true, NULL), "request_closed");
	ck_assert_uint_eq(count_ids(HB_A_DUE, hb_now()), 1);
	ck_assert_uint_eq(count_ids(HB_A_UNSIGNED, 0), 0);
}
END_TEST

START_TEST(test_closed_stays_closed)
{
	ask(1, 100);
	ck_assert_int_eq(hb_ask_close(d, ID, HB_ASK_WITHDRAWN, "because", &err), 0);
	ck_assert_int_eq(hb_ask_close(d, ID, HB_ASK_EXPIRED, "late", &err), -1);
	ck_assert_str_eq(err.code, "request_closed");
	ck_assert_str_eq(decide("111", true, NULL), "request_closed");
	ck_assert_str_eq(now_is(HB_ASK_WITHDRAWN).note, "because");
	ck_assert_int_eq(
		hb_ask_close(d, "ffffffffffffffffffffffffffffffff", HB_ASK_EXPIRED, "", &err), -1);
}
END_TEST

START_TEST(test_h53_decision_and_offset_are_one)
{
	struct hb_update_mark mark = {"4711", 50};
	int64_t next, seen;

	ask(1, 100);
	ck_assert_str_eq(decide("111", true, &mark), "ok");
	ck_assert_int_eq(hb_offset_get(d, "4711", &next, &seen, &err), 0);
	ck_assert_int_eq(next, 51);
	/* Refused decisions leave the offset alone: their caller stores it. */
	mark.update_id = 60;
	ck_assert_str_eq(decide("222", true, &mark), "request_closed");
	ck_assert_int_eq(hb_offset_get(d, "4711", &next, &seen, &err), 0);
	ck_assert_int_eq(next, 51);
	ck_assert_int_eq(hb_offset_get(d, "other", &next, &seen, &err), 0);
	ck_assert_int_eq(next, 0);
	reopen();
	now_is(HB_ASK_APPROVED);
	ck_assert_int_eq(hb_offset_get(d, "4711", &next, &seen, &err), 0);
	ck_assert_int_eq(next, 51);
}
END_TEST

START_TEST(test_h50_everything_survives)
{
	const struct hb_audit_head head = {7, "ab"};
	char *text;

	ask(2, 100);
	ck_assert_str_eq(decide("111", true, NULL), "ok");
	reopen();
	ck_assert_int_eq(hb_ask_pending(d), 1);
	ck_assert_str_eq(decide("111", true, NULL), "already_decided");
	ck_assert_str_eq(decide("222", true, NULL), "ok");
	reopen();
	ck_assert_uint_eq(count_ids(HB_A_UNSIGNED, 0), 1);
	ck_assert_int_eq(hb_ask_signed(d, ID, "{\"first\":1}", "g1", &head, &err), 0);
	ck_assert_int_eq(hb_ask_signed(d, ID, "{\"second\":1}", "g2", &head, &err),
			 0); /* one grant a decision */
	reopen();
	text = hb_ask_envelope(d, ID, &err);
	ck_assert_str_eq(text, "{\"first\":1}");
	free(text);
	ck_assert_uint_eq(count_ids(HB_A_UNSIGNED, 0), 0);
	ck_assert_uint_eq(count_ids(HB_A_UNDELIVERED, 0), 1);
	ck_assert_int_eq(hb_ask_delivery(d, ID, HB_DELIVERY_DONE, &err), 0);
	ck_assert_uint_eq(count_ids(HB_A_UNDELIVERED, 0), 0);
}
END_TEST

static struct hb_message
message(const char *token, const char *bot, enum hb_message_state state, int64_t message_id)
{
	struct hb_message m = {
		.id = ID, .user_id = "111", .state = state, .message_id = message_id};

	strcpy(m.token, token);
	strcpy(m.bot, bot);
	ck_assert_int_eq(hb_message_insert(d, &m, &err), 0);
	return m;
}

static enum hb_message_state
state_of(const char *token)
{
	struct hb_message m;

	ck_assert_int_eq(hb_message_by_token(d, token, &m, &err), 1);
	return m.state;
}

START_TEST(test_h54_tokens_of_another_bot_die)
{
	struct hb_message m;

	ask(1, 100);
	message("t1", "bot-a", HB_MSG_SHOWN, 1);
	message("t2", "bot-b", HB_MSG_SHOWN, 2);
	message("t3", "bot-b", HB_MSG_SENDING, 0); /* half sent when we died */
	message("t4", "bot-b", HB_MSG_SENT, 4);
	ck_assert_int_eq(hb_messages_void(d, "bot-b", &err), 0);
	ck_assert_int_eq(state_of("t1"), HB_MSG_VOID);
	ck_assert_int_eq(state_of("t2"), HB_MSG_SHOWN);
	ck_assert_int_eq(state_of("t3"), HB_MSG_VOID);
	ck_assert_int_eq(state_of("t4"), HB_MSG_VOID);
	ck_assert_int_eq(hb_message_shown(d, ID, "111", "bot-b", &m, &err), 1);
	ck_assert_int_eq(hb_message_shown(d, ID, "111", "bot-a", &m, &err), 0);
	ck_assert_int_eq(hb_message_by_token(d, "t9", &m, &err), 0);
	/* Only what is there can be edited. */
	ck_assert_int_eq(hb_message_due(d, "bot-b", 0, &m, &err), 1);
	ck_assert_str_eq(m.token, "t4");
}
END_TEST

START_TEST(test_generation_never_goes_back)
{
	ck_assert_int_eq(hb_decisions_see_generation(d, 5, &err), 0);
	ck_assert_int_eq(hb_decisions_see_generation(d, 5, &err), 0);
	reopen();
	ck_assert_int_eq(hb_decisions_see_generation(d, 4, &err), -1);
	ck_assert_str_eq(err.code, "generation_went_back");
	ask(1, 100);
	ck_assert_uint_eq(count_ids(HB_A_OLD_POLICY, 3), 0);
	ck_assert_uint_eq(count_ids(HB_A_OLD_POLICY, 5), 1);
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("decisions");
	TCase *tc = test_case("all");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_one_word_a_person);
	tcase_add_test(tc, test_one_denial_vetoes);
	tcase_add_test(tc, test_h49_expired_cannot_be_decided);
	tcase_add_test(tc, test_closed_stays_closed);
	tcase_add_test(tc, test_h53_decision_and_offset_are_one);
	tcase_add_test(tc, test_h50_everything_survives);
	tcase_add_test(tc, test_h54_tokens_of_another_bot_die);
	tcase_add_test(tc, test_generation_never_goes_back);
	suite_add_tcase(s, tc);
	return test_run(s);
}
