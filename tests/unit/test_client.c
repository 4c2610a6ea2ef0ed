/*
 * client.c against server.c and against servers that misbehave: what was sent, when nothing was,
 * and when it is sent again. The server takes the place of hermes-fetcher; we are root and so the
 * installer.
 */
#include "tests/unit/serving.h"

#include "common/client.h"
#include "common/json.h"
#include "common/server.h"

#define FETCHER (TEST_BASE + 1)

static int notes_fd;

static void
note(char c)
{
	if (write(notes_fd, &c, 1) != 1)
		_exit(97);
}

/* ---- a real server ---- */

static void
echo(struct hb_request *req, void *ctx)
{
	const char *secret = hb_request_header(req, "X-Secret");

	note('e');
	hb_reply_json(req, 200,
		      json_pack("{s:O, s:s*}", "got", hb_request_json(req), "secret", secret));
}

static void
refuse(struct hb_request *req, void *ctx)
{
	struct hb_error err;

	hb_fail(&err, "not_today", "come back tomorrow");
	hb_reply_error(req, 200, &err);
}

static void
stream(struct hb_request *req, void *ctx)
{
	hb_reply_start(req, 200, "application/x-ndjson");
	hb_reply_write(req, "{\"n\":1}\n{\"n\"", 12);
	hb_reply_write(req, ":2}\n", 4);
	hb_reply_write(req, "{\"n\":3}", 7);
	hb_reply_end(req);
}

static void
events(struct hb_request *req, void *ctx)
{
	static const char text[] = ": hello\n\nevent: state\ndata: "
				   "{\"state\":\"approved\"}\n\nevent: x\ndata: {\"n\":2}\n\n";

	hb_reply_start(req, 200, "text/event-stream");
	hb_reply_write(req, text, sizeof(text) - 1);
	hb_reply_end(req);
}

static void
spaces(struct hb_request *req, void *ctx)
{
	hb_reply_start(req, 200, "application/json");
	for (int i = 0; i < 5; i++)
		hb_reply_write(req, " ", 1);
	hb_reply_write(req, "{\"status\":\"executed\"}", 21);
	hb_reply_end(req);
}

static void
silent(struct hb_request *req, void *ctx)
{
	note('s');
}

static void
serve(int notes)
{
	static const unsigned root = HB_PEER_BIT(HB_PEER_INSTALLER);
	static const struct hb_route routes[] = {
		{HB_POST, "/echo", root, 0, 0, echo},
		{HB_GET, "/refuse", root, 0, HB_ROUTE_NOBODY, refuse},
		{HB_GET, "/stream", root, 0, HB_ROUTE_NOBODY, stream},
		{HB_GET, "/events", root, 0, HB_ROUTE_NOBODY, events},
		{HB_GET, "/spaces", root, 0, HB_ROUTE_NOBODY, spaces},
		{HB_GET, "/silent", root, 0, HB_ROUTE_NOBODY, silent},
	};
	struct hb_server_options options = {.routes = routes,
					    .route_count = sizeof(routes) / sizeof(routes[0])};
	struct event_base *base = event_base_new();
	struct hb_server *server;

	notes_fd = notes;
	if (hb_server_new(base, &options, &server, NULL) != 0 ||
	    hb_server_listen_unix(server, "run/fetcher/sock", NULL) != 0)
		_exit(96);
	note('r');
	event_base_dispatch(base);
}

/* ---- a raw one: each connection gets the next script ---- */

struct script {
	bool read;            /* wait for the request */
	const char *answer;   /* then say this */
	bool read_again;      /* wait for another request and say nothing */
};
static const struct script *scripts;

static int
raw_listen(void)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX, .sun_path = "run/fetcher/sock"};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	umask(0);
	if (bind(fd, (struct sockaddr *)&sun, sizeof(sun)) != 0 || listen(fd, 8) != 0)
		_exit(96);
	return fd;
}

static void
serve_raw(int notes)
{
	int fd = raw_listen();
	char text[4096];

	notes_fd = notes;
	note('r');
	for (const struct script *s = scripts;; s++) {
		int conn = accept(fd, NULL, NULL);

		note('c');
		if (s->read && read(conn, text, sizeof(text)) > 0)
			note('q');
		if (s->answer != NULL && write(conn, s->answer, strlen(s->answer)) < 0)
			note('x');
		if (s->read_again && read(conn, text, sizeof(text)) > 0)
			note('Q');
		close(conn);
	}
}

/* Tells every byte it gets. */
static void
serve_spy(int notes)
{
	int fd = raw_listen();
	char byte;

	notes_fd = notes;
	note('r');
	for (;;) {
		int conn = accept(fd, NULL, NULL);

		while (read(conn, &byte, 1) == 1)
			note('b');
		note('z');
		close(conn);
	}
}

/* ---- helpers ---- */

#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"status\":\"ok\"}"

static struct hb_error err;
static int status;

static json_t *
call(const char *method, const char *path, const char *body)
{
	json_t *json = body != NULL ? json_loads(body, 0, NULL) : NULL, *answer;
	struct hb_call c = {.server = HB_PEER_FETCHER,
			    .method = method,
			    .path = path,
			    .body = json,
			    .timeout_ms = 3000};

	memset(&err, 0, sizeof(err));
	status = 0;
	answer = hb_client_call_sync(&c, &status, &err);
	json_decref(json);
	return answer;
}

static void
fails_with(const char *code)
{
	json_t *answer = call("GET", "/", NULL);

	ck_assert_ptr_null(answer);
	ck_assert_str_eq(err.code, code);
}

static void
raw(const struct script *list)
{
	scripts = list;
	serving_start(FETCHER, serve_raw);
}

/* ---- tests ---- */

START_TEST(test_call_and_answer)
{
	json_t *answer;

	serving_start(FETCHER, serve);
	answer = call("POST", "/echo", "{\"a\":\"\xc3\xa4\"}");
	ck_assert_ptr_nonnull(answer);
	ck_assert_int_eq(status, 200);
	ck_assert_str_eq(json_string_value(json_object_get(json_object_get(answer, "got"), "a")),
			 "\xc3\xa4");
	json_decref(answer);
	answer = call("GET", "/nothing", NULL);
	ck_assert_int_eq(status, 404);
	ck_assert_int_eq(hb_reply_failed(status, answer, &err), -1);
	ck_assert_str_eq(err.code, "unknown_route");
	json_decref(answer);
}
END_TEST

START_TEST(test_refusal_with_status_200)
{
	json_t *answer;

	serving_start(FETCHER, serve);
	answer = call("GET", "/refuse", NULL);
	ck_assert_int_eq(status, 200);
	ck_assert_int_eq(hb_reply_failed(status, answer, &err), -1);
	ck_assert_str_eq(err.code, "not_today");
	ck_assert_str_eq(err.message, "come back tomorrow");
	json_decref(answer);
	ck_assert_int_eq(hb_reply_failed(500, NULL, &err), -1);
	ck_assert_int_eq(hb_reply_failed(204, NULL, &err), 0);
}
END_TEST

START_TEST(test_extra_header_and_no_line_break_in_it)
{
	json_t *body = json_object(), *answer;
	struct hb_call c = {.server = HB_PEER_FETCHER,
			    .method = "POST",
			    .path = "/echo",
			    .body = body,
			    .header_name = "X-Secret",
			    .header_value = "hush"};

	serving_start(FETCHER, serve);
	answer = hb_client_call_sync(&c, &status, &err);
	ck_assert_str_eq(json_string_value(json_object_get(answer, "secret")), "hush");
	json_decref(answer);
	c.header_value = "a\r\nX-Other: b";
	ck_assert_ptr_null(hb_client_call_sync(&c, &status, &err));
	ck_assert_str_eq(err.code, "bad_request");
	json_decref(body);
}
END_TEST

START_TEST(test_white_space_before_the_answer)
{
	json_t *answer;

	serving_start(FETCHER, serve);
	answer = call("GET", "/spaces", NULL);
	ck_assert_str_eq(json_string_value(json_object_get(answer, "status")), "executed");
	json_decref(answer);
}
END_TEST

START_TEST(test_wrong_uid_gets_no_byte)
{
	serving_start(TEST_BASE + 2, serve_spy);
	fails_with("wrong_peer");
	ck_assert_int_eq(serving_note(3000), 'z'); /* the connection ended without a single 'b' */
	serving_stop();
	unlink("run/fetcher/sock");
	serving_start(0, serve_spy); /* nor does root when root is not expected */
	fails_with("wrong_peer");
	ck_assert_int_eq(serving_note(3000), 'z');
}
END_TEST

START_TEST(test_caller_without_a_role_is_refused_by_the_server)
{
	int result;
	pid_t pid;

	serving_start(FETCHER, serve);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		json_t *answer;

		become(TEST_BASE + 4);
		answer = call("GET", "/refuse", NULL);
		_exit(answer != NULL && status == 403 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &result, 0), pid);
	ck_assert_int_eq(result, 0);
}
END_TEST

START_TEST(test_nobody_there)
{
	fails_with("unreachable");
	ck_assert_ptr_nonnull(strstr(err.message, "hermes-fetcher is not running"));
	serving_start(FETCHER, serve);
	serving_stop(); /* the socket file stays */
	fails_with("unreachable");
}
END_TEST

START_TEST(test_silence_ends_the_call)
{
	json_t *answer;
	struct hb_call c = {.server = HB_PEER_FETCHER,
			    .method = "GET",
			    .path = "/silent",
			    .timeout_ms = 200};

	serving_start(FETCHER, serve);
	answer = hb_client_call_sync(&c, &status, &err);
	ck_assert_ptr_null(answer);
	ck_assert_str_eq(err.code, "timeout");
}
END_TEST

START_TEST(test_answers_that_are_none)
{
	static const struct script list[] = {
		{true, "SSH-2.0-OpenSSH\r\n", false},
		{true, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false},
		{true, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"a\":", false},
		{true, NULL, false},
		{true, "HTTP/1.1 200 OK\r\n\r\n{\"status\":\"ok\"}", false},
		{0},
	};
	json_t *answer;

	raw(list);
	fails_with("bad_reply");
	fails_with("bad_reply");
	fails_with("unreachable");
	fails_with("unreachable");
	answer = call("GET", "/", NULL); /* without a length it ends with the connection */
	ck_assert_str_eq(json_string_value(json_object_get(answer, "status")), "ok");
	json_decref(answer);
}
END_TEST

/* ---- several calls on one client ---- */

static struct event_base *base;
static struct hb_client *client;
static struct hb_client_call *under_way;
static int done_count, line_count, last_status;
static char last_code[HB_ERROR_CODE_MAX];
static bool cancel_at_line, free_at_done;
static long long line_sum;

static void
on_done(int s, const json_t *body, const struct hb_error *e, void *arg)
{
	done_count++;
	last_status = s;
	snprintf(last_code, sizeof(last_code), "%s", e != NULL ? e->code : "");
	if (free_at_done) {
		hb_client_free(client);
		client = NULL;
	}
	event_base_loopbreak(base);
}

static void
on_line(json_t *line, void *arg)
{
	line_count++;
	line_sum += hb_json_int(line, "n", 0);
	if (cancel_at_line) {
		hb_client_cancel(under_way);
		event_base_loopbreak(base);
	}
}

static void
async(const char *method, const char *path, bool lines)
{
	json_t *body = strcmp(method, "POST") == 0 ? json_object() : NULL;
	struct hb_call c = {.server = HB_PEER_FETCHER,
			    .method = method,
			    .path = path,
			    .body = body,
			    .on_line = lines ? on_line : NULL,
			    .on_done = on_done,
			    .timeout_ms = 3000};

	if (base == NULL) {
		base = event_base_new();
		client = hb_client_new(base);
	}
	under_way = hb_client_start(client, &c);
	json_decref(body);
	event_base_dispatch(base);
}

static void
finish(void)
{
	hb_client_free(client);
	event_base_free(base);
}

START_TEST(test_lines_of_a_stream)
{
	serving_start(FETCHER, serve);
	async("GET", "/stream", true);
	ck_assert_int_eq(done_count, 1);
	ck_assert_int_eq(last_status, 200);
	ck_assert_int_eq(line_count, 3);
	ck_assert_int_eq(line_sum, 6);
	async("GET", "/events", true);
	ck_assert_int_eq(line_count, 5);
	ck_assert_int_eq(line_sum, 8);
	async("GET", "/refuse", true); /* one object where a stream was asked for */
	ck_assert_int_eq(line_count, 5);
	ck_assert_int_eq(done_count, 3);
	finish();
}
END_TEST

START_TEST(test_cancel_inside_a_line)
{
	serving_start(FETCHER, serve);
	cancel_at_line = true;
	async("GET", "/stream", true);
	ck_assert_int_eq(line_count, 1);
	ck_assert_int_eq(done_count, 0);
	finish();
}
END_TEST

START_TEST(test_client_freed_inside_done)
{
	serving_start(FETCHER, serve);
	free_at_done = true;
	async("POST", "/echo", false);
	ck_assert_int_eq(done_count, 1);
	ck_assert_ptr_null(client);
	event_base_free(base);
}
END_TEST

START_TEST(test_connection_is_used_again)
{
	static const struct script list[] = {{true, OK_ANSWER, true},
					     {true, OK_ANSWER, false},
					     {0}};

	raw(list);
	async("GET", "/", false);
	ck_assert_int_eq(last_status, 200);
	ck_assert_int_eq(serving_note(3000), 'c');
	ck_assert_int_eq(serving_note(3000), 'q');
	/* The second request comes on the same connection; the server reads it and closes without a
	 * word. It may have acted on it, so it is not sent again. */
	async("POST", "/", false);
	ck_assert_int_eq(serving_note(3000), 'Q');
	ck_assert_int_eq(last_status, 0);
	ck_assert_str_eq(last_code, "unreachable");
	ck_assert_int_eq(serving_note(200), 0);
	finish();
}
END_TEST

START_TEST(test_connection_closed_while_idle_is_replaced)
{
	static const struct script list[] = {{true, OK_ANSWER, false},
					     {true, OK_ANSWER, false},
					     {0}};

	raw(list);
	async("POST", "/", false);
	ck_assert_int_eq(last_status, 200);
	ck_assert_int_eq(serving_note(3000), 'c');
	ck_assert_int_eq(serving_note(3000), 'q');
	async("POST", "/", false);
	ck_assert_int_eq(last_status, 200);
	ck_assert_int_eq(serving_note(3000), 'c');
	ck_assert_int_eq(serving_note(3000), 'q');
	finish();
}
END_TEST

/* Accepts and reads one request, answers, then closes as soon as the next has arrived, without
 * reading it. */
static void
serve_unread(int notes)
{
	int fd = raw_listen(), conn;
	char text[4096];
	struct pollfd pfd = {.events = POLLIN};

	notes_fd = notes;
	note('r');
	for (int i = 0;; i++) {
		conn = accept(fd, NULL, NULL);
		note('c');
		if (read(conn, text, sizeof(text)) > 0 &&
		    write(conn, OK_ANSWER, strlen(OK_ANSWER)) > 0 && i == 0) {
			pfd.fd = conn;
			poll(&pfd, 1, -1);
		}
		close(conn);
	}
}

/* Says something nobody asked for once it has answered. */
static void
serve_talkative(int notes)
{
	static const char poison[] =
		"HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{\"status\":\"poison\"}";
	int fd = raw_listen(), conn;
	char text[4096];

	notes_fd = notes;
	note('r');
	for (;;) {
		conn = accept(fd, NULL, NULL);
		if (read(conn, text, sizeof(text)) <= 0 ||
		    write(conn, OK_ANSWER, strlen(OK_ANSWER)) < 0)
			_exit(96);
		usleep(50000);
		if (write(conn, poison, sizeof(poison) - 1) > 0)
			note('p');
	}
}

static char last_text[16];

static void
keep_text(int s, const json_t *body, const struct hb_error *e, void *arg)
{
	snprintf(last_text, sizeof(last_text), "%s", hb_json_text(body, "status", "none"));
	event_base_loopbreak(base);
}

START_TEST(test_unasked_answer_is_not_taken_for_the_next_one)
{
	struct hb_call c = {.server = HB_PEER_FETCHER,
			    .method = "GET",
			    .path = "/",
			    .on_done = keep_text};

	serving_start(FETCHER, serve_talkative);
	base = event_base_new();
	client = hb_client_new(base);
	hb_client_start(client, &c);
	event_base_dispatch(base);
	ck_assert_int_eq(serving_note(3000), 'p');
	hb_client_start(client, &c);
	event_base_dispatch(base);
	ck_assert_str_eq(last_text, "ok");
	finish();
}
END_TEST

START_TEST(test_request_that_was_not_read_is_sent_once_more)
{
	serving_start(FETCHER, serve_unread);
	async("POST", "/", false);
	ck_assert_int_eq(last_status, 200);
	ck_assert_int_eq(serving_note(3000), 'c');
	async("POST", "/", false);
	ck_assert_int_eq(last_status, 200);
	ck_assert_int_eq(serving_note(3000), 'c');
	finish();
}
END_TEST

START_TEST(test_free_drops_calls_under_way)
{
	struct hb_call c = {.server = HB_PEER_FETCHER,
			    .method = "GET",
			    .path = "/silent",
			    .on_done = on_done};

	serving_start(FETCHER, serve);
	base = event_base_new();
	client = hb_client_new(base);
	hb_client_start(client, &c);
	hb_client_start(client, &c);
	event_base_loop(base, EVLOOP_NONBLOCK);
	finish();
	ck_assert_int_eq(done_count, 0);
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("client");
	TCase *tc = tcase_create("client");
	SRunner *r;
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(tc, serving_setup, serving_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_call_and_answer);
	tcase_add_test(tc, test_refusal_with_status_200);
	tcase_add_test(tc, test_extra_header_and_no_line_break_in_it);
	tcase_add_test(tc, test_white_space_before_the_answer);
	tcase_add_test(tc, test_wrong_uid_gets_no_byte);
	tcase_add_test(tc, test_caller_without_a_role_is_refused_by_the_server);
	tcase_add_test(tc, test_nobody_there);
	tcase_add_test(tc, test_silence_ends_the_call);
	tcase_add_test(tc, test_answers_that_are_none);
	tcase_add_test(tc, test_lines_of_a_stream);
	tcase_add_test(tc, test_cancel_inside_a_line);
	tcase_add_test(tc, test_client_freed_inside_done);
	tcase_add_test(tc, test_connection_is_used_again);
	tcase_add_test(tc, test_connection_closed_while_idle_is_replaced);
	tcase_add_test(tc, test_unasked_answer_is_not_taken_for_the_next_one);
	tcase_add_test(tc, test_request_that_was_not_read_is_sent_once_more);
	tcase_add_test(tc, test_free_drops_calls_under_way);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
