/* What comes back from the Bot API: read without believing it, and never with the token in it. */
#include <stdlib.h>
#include <string.h>

#include "approver/botapi.h"
#include "common/json.h"
#include "tests/unit/test_util.h"

#define TOKEN "4711:AAbb-cc_dd0123456789xyz"

static struct hb_bot_reply reply;
static json_t *parsed;

static void
read_reply(int http, const char *text)
{
	json_decref(parsed);
	hb_bot_read_reply(http, text, strlen(text), TOKEN, &reply, &parsed);
}

START_TEST(test_reply_kinds)
{
	read_reply(200, "{\"ok\":true,\"result\":[1,2]}");
	ck_assert(reply.ok);
	ck_assert_uint_eq(json_array_size(reply.result), 2);
	read_reply(200, "{\"ok\":false,\"error_code\":400,\"description\":\"no\"}");
	ck_assert(!reply.ok);
	ck_assert_int_eq(reply.error_code, 400);
	/* "ok" alone, without a 2xx, is not believed. */
	read_reply(500, "{\"ok\":true,\"result\":true}");
	ck_assert(!reply.ok);
	ck_assert_int_eq(reply.error_code, 500);
	read_reply(200, "{\"ok\":1,\"result\":true}");
	ck_assert(!reply.ok);
}
END_TEST

START_TEST(test_unreadable_200_says_nothing)
{
	static const char *const texts[] = {
		"", "<html>", "[]", "{\"ok\":true", "{\"ok\":true,\"ok\":false}", "true"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		read_reply(200, texts[i]);
		ck_assert(!reply.ok);
		ck_assert_int_eq(reply.http, 0);
	}
	read_reply(502, "<html>");
	ck_assert_int_eq(reply.error_code, 502);
	read_reply(302, "{\"ok\":true}");
	ck_assert(!reply.ok);
}
END_TEST

START_TEST(test_h55_retry_after)
{
	static const struct {
		const char *given;
		int want;
	} cases[] = {{"56", 56},    {"0", 0},	 {"-1", 0}, {"99999999", 86400},
		     {"\"56\"", 0}, {"null", 0}, {"5.5", 0}};
	char text[200];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text),
			 "{\"ok\":false,\"error_code\":429,\"parameters\":{\"retry_after\":%s}}",
			 cases[i].given);
		read_reply(429, text);
		ck_assert_int_eq(reply.retry_after, cases[i].want);
	}
	read_reply(429, "{\"ok\":false,\"parameters\":[]}");
	ck_assert_int_eq(reply.retry_after, 0);
}
END_TEST

START_TEST(test_h58_token_is_scrubbed)
{
	static const char *const texts[] = {
		"url /bot" TOKEN "/getMe",
		"AAbb-cc_dd0123456789xyz",
		"AAbb%2Dcc%5fdd0123456789xyz and again AAbb-cc_dd0123456789xyz",
		"%41%41%62%62%2D%63%63%5F%64%64%30%31%32%33%34%35%36%37%38%39%78%79%7A",
	};
	char out[256], small[20];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		hb_bot_scrub(texts[i], TOKEN, out, sizeof(out));
		ck_assert_ptr_null(strstr(out, "dd0123"));
		ck_assert_ptr_null(strstr(out, "%41%41"));
		ck_assert_ptr_nonnull(strstr(out, "***"));
	}
	hb_bot_scrub("plain\ntext \x7f", TOKEN, out, sizeof(out));
	ck_assert_str_eq(out, "plain text  ");
	hb_bot_scrub("no token known", NULL, out, sizeof(out));
	ck_assert_str_eq(out, "no token known");
	/* Cut, but never inside a character. */
	hb_bot_scrub("\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac", TOKEN, small,
		     sizeof(small));
	ck_assert_uint_eq(strlen(small) % 3, 0);
}
END_TEST

START_TEST(test_token_grammar)
{
	static const char *const bad[] = {"",
					  ":",
					  "4711",
					  "4711:",
					  "4711:short",
					  ":AAbb-cc_dd0123456789xyz",
					  "********",
					  "x4711:AAbb-cc_dd0123456789xyz",
					  "4711:AAbb-cc_dd0123456789xy/../x",
					  "4711:AAbb-cc_dd0123456789xyz ",
					  "4711:AAbb-cc_dd0123456789xyz\n"};

	ck_assert(hb_bot_token_ok(TOKEN));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert(!hb_bot_token_ok(bad[i]));
}
END_TEST

START_TEST(test_api_base)
{
	static const char *const good[] = {
		"https://api.telegram.org", "https://bot.example:8443/prefix",
		"http://127.0.0.1:9000", "http://localhost:1", "http://[::1]:80"};
	static const char *const bad[] = {"",
					  "api",
					  "http://api.telegram.org",
					  "http://127.0.0.1.evil.test",
					  "ftp://127.0.0.1",
					  "https://u@h",
					  "https://u:p@h",
					  "https://h/?q",
					  "https://h/#f",
					  "http://localhost.evil",
					  "file:///etc/passwd"};
	struct hb_error err;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		ck_assert_msg(hb_bot_check_base(good[i], &err) == 0, "%s: %s", good[i],
			      err.message);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(hb_bot_check_base(bad[i], &err) < 0, "%s", bad[i]);
	ck_assert_str_eq(err.code, "config_api_base");
}
END_TEST

START_TEST(test_api_port)
{
	uint16_t port = 0;

	ck_assert_int_eq(hb_bot_port("https://api.telegram.org", &port, NULL), 0);
	ck_assert_uint_eq(port, 443);
	ck_assert_int_eq(hb_bot_port("http://127.0.0.1:8081/bots/", &port, NULL), 0);
	ck_assert_uint_eq(port, 8081);
	ck_assert_int_eq(hb_bot_port("http://example.org:80", &port, NULL), -1);
	ck_assert_uint_eq(port, 8081);
}
END_TEST

static bool
tap_of(const char *text, struct hb_tap *tap)
{
	json_t *update = json_loads(text, 0, NULL);
	bool is = hb_update_tap(update, tap);

	ck_assert_ptr_nonnull(update);
	json_decref(update);
	return is;
}

START_TEST(test_h44_taps_of_every_shape)
{
	struct hb_tap tap;
	char longer[200];

	ck_assert(tap_of("{\"callback_query\":{\"id\":\"9\",\"from\":{\"id\":111},\"data\":\"a:1\","
			 "\"message\":"
			 "{\"message_id\":5,\"chat\":{\"id\":111,\"type\":\"private\"}}}}",
			 &tap));
	ck_assert_int_eq(tap.from_id, 111);
	ck_assert_int_eq(tap.message_id, 5);
	ck_assert(tap.private_chat);
	/* Wrong types are the same as nothing: nobody. */
	ck_assert(tap_of("{\"callback_query\":{\"id\":9,\"from\":{\"id\":\"111\"},\"data\":7,"
			 "\"message\":[]}}",
			 &tap));
	ck_assert_int_eq(tap.from_id, 0);
	ck_assert_str_eq(tap.data, "");
	ck_assert(!tap.private_chat);
	ck_assert(tap_of("{\"callback_query\":{\"from\":{\"id\":111.0}}}", &tap));
	ck_assert_int_eq(tap.from_id, 0);
	ck_assert(!tap_of("{\"message\":{\"text\":\"a:1\",\"from\":{\"id\":111}}}", &tap));
	ck_assert(!tap_of("{\"callback_query\":\"x\"}", &tap));
	/* Longer than a button can carry: not cut to something that might fit, but dropped. */
	snprintf(longer, sizeof(longer), "{\"callback_query\":{\"data\":\"%0100d\"}}", 1);
	ck_assert(tap_of(longer, &tap));
	ck_assert_str_eq(tap.data, "");
}
END_TEST

START_TEST(test_h46_faithful_means_equal)
{
	static const struct {
		const char *message;
		bool want;
	} cases[] = {
		{"{\"message_id\":5,\"text\":\"abc\",\"chat\":{\"id\":111,\"type\":\"private\"}}",
		 true},
		{"{\"message_id\":5,\"text\":\"abc \",\"chat\":{\"id\":111,\"type\":\"private\"}}",
		 false},
		{"{\"message_id\":5,\"text\":\"ab\",\"chat\":{\"id\":111,\"type\":\"private\"}}",
		 false},
		{"{\"message_id\":5,\"chat\":{\"id\":111,\"type\":\"private\"}}", false},
		{"{\"message_id\":5,\"text\":\"abc\",\"chat\":{\"id\":112,\"type\":\"private\"}}",
		 false},
		{"{\"message_id\":5,\"text\":\"abc\",\"chat\":{\"id\":111,\"type\":\"group\"}}",
		 false},
		{"{\"message_id\":0,\"text\":\"abc\",\"chat\":{\"id\":111,\"type\":\"private\"}}",
		 false},
		{"{\"text\":\"abc\",\"chat\":{\"id\":111,\"type\":\"private\"}}", false},
		{"true", false},
	};
	int64_t id;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *message = json_loads(cases[i].message, JSON_DECODE_ANY, NULL);

		ck_assert_msg(hb_message_faithful(message, "abc", "111", &id) == cases[i].want,
			      "%s", cases[i].message);
		json_decref(message);
	}
}
END_TEST

START_TEST(test_update_numbers)
{
	static const struct {
		const char *text;
		int64_t want;
	} cases[] = {{"{\"update_id\":7}", 7},
		     {"{\"update_id\":-7}", -1},
		     {"{\"update_id\":\"7\"}", -1},
		     {"{}", -1},
		     {"[]", -1}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *update = json_loads(cases[i].text, 0, NULL);

		ck_assert_int_eq(hb_update_id(update), cases[i].want);
		json_decref(update);
	}
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("botapi");
	TCase *tc = test_case("all");

	tcase_add_test(tc, test_reply_kinds);
	tcase_add_test(tc, test_unreadable_200_says_nothing);
	tcase_add_test(tc, test_h55_retry_after);
	tcase_add_test(tc, test_h58_token_is_scrubbed);
	tcase_add_test(tc, test_token_grammar);
	tcase_add_test(tc, test_api_base);
	tcase_add_test(tc, test_api_port);
	tcase_add_test(tc, test_h44_taps_of_every_shape);
	tcase_add_test(tc, test_h46_faithful_means_equal);
	tcase_add_test(tc, test_update_numbers);
	suite_add_tcase(s, tc);
	return test_run(s);
}
