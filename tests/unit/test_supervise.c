/* The parts of supervision that need no process: restart arithmetic, the run spec, MCP messages, challenges. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "broker/installer/probe_mcp.h"
#include "broker/installer/supervise_internal.h"
#include "common/json.h"

START_TEST(test_pauses_double_up_to_thirty_seconds)
{
	static const int64_t pauses[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000};
	struct hb_restarts *r = calloc(1, sizeof(*r));

	for (size_t i = 0; i < 7; i++)
		ck_assert_int_eq(hb_restarts_note(r, 100, 300000, (int64_t)i), pauses[i]);
	ck_assert_uint_eq(hb_restarts_count(r, 300000, 6), 7);
	free(r);
}
END_TEST

START_TEST(test_budget_is_of_the_window)
{
	struct hb_restarts *r = calloc(1, sizeof(*r));

	ck_assert_int_eq(hb_restarts_note(r, 2, 1000, 0), 1000);
	ck_assert_int_eq(hb_restarts_note(r, 2, 1000, 500), 2000);
	ck_assert_int_eq(hb_restarts_note(r, 2, 1000, 999), -1);
	ck_assert_uint_eq(hb_restarts_count(r, 1000, 999), 2);
	/* The first has left the window: one is free again, and the pause is that of a second restart. */
	ck_assert_int_eq(hb_restarts_note(r, 2, 1000, 1000), 2000);
	ck_assert_int_eq(hb_restarts_note(r, 2, 1000, 1001), -1);
	ck_assert_uint_eq(hb_restarts_count(r, 1000, 5000), 0);
	ck_assert_int_eq(hb_restarts_note(r, 2, 1000, 5000), 1000);
	ck_assert_int_eq(hb_restarts_note(r, 0, 1000, 9000), -1);
	free(r);
}
END_TEST

START_TEST(test_spec_keeps_everything)
{
	static const char text[] =
		"{\"argv\":[\"bun\",\"a b\",\"\"],\"data_dir\":\"/d\",\"data_mount\":\"/data\",\"env\":[\"A=\",\"B=x=y\"],"
		"\"gid\":8,\"isolation\":\"direct\",\"manifest_digest\":"
		"\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"rootfs\":\"/r/rootfs\",\"uid\":7,"
		"\"working_dir\":\"/\"}";
	json_t *in = hb_json_parse(text, strlen(text), NULL), *out;
	struct hb_run_spec spec;

	ck_assert_int_eq(hb_run_spec_from_json(in, &spec, NULL), 0);
	ck_assert_str_eq(spec.argv[1], "a b");
	ck_assert_ptr_null(spec.argv[3]);
	ck_assert_uint_eq(spec.uid, 7);
	out = hb_run_spec_to_json(&spec);
	ck_assert(json_equal(in, out));
	hb_run_spec_free(&spec);
	json_decref(in);
	json_decref(out);
}
END_TEST

START_TEST(test_challenges)
{
	static const struct {
		const char *value;
		bool bearer;
	} cases[] = {{"Bearer", true}, {"bearer realm=\"x\"", true}, {"Basic realm=\"x\", Bearer", true},
		     {"Basic realm=\"x\",BEARER a=b", true}, {"", false}, {"Basic", false}, {"Bearerx", false},
		     {"xBearer", false}, {"Basic realm=\", Bearer y\"", false}, {"Basic realm=\"\\\", Bearer\"", false},
		     {"Digest bearer", false}, {"Bearer,Basic", true}, {"Basic realm=\"unclosed, Bearer", false}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ck_assert_msg(hb_challenge_has_bearer(cases[i].value) == cases[i].bearer, "%s", cases[i].value);
}
END_TEST

static bool finds(const char *body, json_int_t id)
{
	json_t *message = hb_mcp_message(body, strlen(body), id);

	json_decref(message);
	return message != NULL;
}

START_TEST(test_messages)
{
	ck_assert(finds("{\"id\":1}", 1));
	ck_assert(finds(" \r\n{\"id\":1}", 1));
	ck_assert(!finds("{\"id\":1}", 2));
	ck_assert(!finds("{\"id\":\"1\"}", 1));
	ck_assert(!finds("{\"method\":\"x\"}", 0));
	ck_assert(finds("[{\"id\":3},{\"id\":1}]", 1));
	ck_assert(!finds("", 1));
	ck_assert(!finds("\n\n\r\r", 1));
	ck_assert(finds("data: {\"id\":1}\n\n", 1));
	ck_assert(finds("data:{\"id\":\ndata:1}\n\n", 1));
	ck_assert(!finds("data: {\"id\":\n\ndata: 1}\n\n", 1));
	ck_assert(!finds("datax: {\"id\":1}\n\n", 1));
	ck_assert(!finds(": {\"id\":1}\n\n", 1));
	ck_assert(finds(": c\nevent: message\nid: 7\nretry: 1\ndata: {\"id\":1}\r\n\r\n", 1));
	ck_assert(finds("data\ndata: {\"id\":1}", 1));
}
END_TEST

/* Every prefix of a stream is read without harm, and the message appears with its last brace at the latest. */
START_TEST(test_message_in_pieces)
{
	static const char stream[] = ": hello\r\ndata: {\"id\":2}\r\n\r\nevent: message\ndata: {\"id\":1}\n\n";
	size_t complete = strlen(stream) - 2;

	for (size_t len = 0; len <= strlen(stream); len++) {
		char *copy = malloc(len ? len : 1); /* exactly as long, so that a sanitizer sees a read past it */
		json_t *message;

		memcpy(copy, stream, len);
		message = hb_mcp_message(copy, len, 1);
		ck_assert_int_eq(message != NULL, len >= complete);
		json_decref(message);
		free(copy);
	}
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("supervise");
	Suite *suite = suite_create("supervise");
	SRunner *runner;
	int failed;

	tcase_add_test(cases, test_pauses_double_up_to_thirty_seconds);
	tcase_add_test(cases, test_budget_is_of_the_window);
	tcase_add_test(cases, test_spec_keeps_everything);
	tcase_add_test(cases, test_challenges);
	tcase_add_test(cases, test_messages);
	tcase_add_test(cases, test_message_in_pieces);
	suite_add_tcase(suite, cases);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
