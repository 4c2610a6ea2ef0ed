/*
 * server.c, spoken to byte by byte over real sockets by processes with real uids. The server runs
 * as hermes-fetcher, so root (the installer and the launcher) may call it.
 */
#include "tests/unit/serving.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/wait.h>

#include "common/json.h"
#include "common/server.h"

#define ROOT (HB_PEER_BIT(HB_PEER_INSTALLER) | HB_PEER_BIT(HB_PEER_LAUNCHER))

static struct event_base *base;
static int notes_fd;
static int bound_port;
static struct hb_request *held[16];
static int held_count;

static void
note(char c)
{
	if (write(notes_fd, &c, 1) != 1)
		_exit(97);
}

static void
ok(struct hb_request *req, void *ctx)
{
	hb_reply_json(req, 200,
		      json_pack("{s:s, s:i, s:s}", "status", "ok", "uid", (int)hb_request_uid(req),
				"tail", hb_request_tail(req)));
}

static void
echo(struct hb_request *req, void *ctx)
{
	note('e');
	hb_reply_json(req, 200, json_pack("{s:O}", "got", hb_request_json(req)));
}

static void
query(struct hb_request *req, void *ctx)
{
	const char *a = hb_request_query(req, "a"), *b = hb_request_query(req, "b"),
		   *c = hb_request_query(req, "c");

	hb_reply_json(req, 200, json_pack("{s:s*, s:s*, s:s*}", "a", a, "b", b, "c", c));
}

static void
stream(struct hb_request *req, void *ctx)
{
	hb_reply_start(req, 200, "application/x-ndjson");
	hb_reply_write(req, "{\"n\":1}\n", 8);
	hb_reply_write(req, "", 0);
	hb_reply_write(req, "{\"n\":2}\n", 8);
	hb_reply_end(req);
}

static void
gone(void *arg)
{
	note('g');
}

static void
hang(struct hb_request *req, void *ctx)
{
	hb_request_on_close(req, gone, NULL);
	note('h');
}

/* Holds requests without on_close; /release answers them all. */
static void
hold(struct hb_request *req, void *ctx)
{
	held[held_count++] = req;
	note('k');
}

static void
release(struct hb_request *req, void *ctx)
{
	while (held_count > 0)
		hb_reply_json(held[--held_count], 200, json_pack("{s:s}", "status", "released"));
	hb_reply_json(req, 200, json_pack("{s:s}", "status", "ok"));
}

static void
flood(struct hb_request *req, void *ctx)
{
	static char block[65536];

	memset(block, 'x', sizeof(block));
	hb_request_on_close(req, gone, NULL);
	hb_reply_start(req, 200, "text/plain");
	for (int i = 0; i < 256; i++) /* 16 MiB: more than is kept for a reader that doesn't read */
		hb_reply_write(req, block, sizeof(block));
}

static void
large(struct hb_request *req, void *ctx)
{
	static char text[800000];

	memset(text, 'x', sizeof(text) - 1);
	hb_reply_json(req, 200, json_pack("{s:s, s:s}", "text", text, "z", "last"));
}

static void
preflight(struct hb_request *req, void *ctx)
{
	hb_reply_header(req, "Access-Control-Allow-Methods", "GET");
	hb_reply_header(req, "X-Split", "a\r\nX-Injected: yes");
	hb_reply_bytes(req, 204, NULL, NULL, 0);
}

static bool
before(struct hb_request *req, void *ctx)
{
	hb_reply_header(req, "X-Before", "seen");
	if (hb_request_header(req, "x-stop") == NULL)
		return true;
	hb_reply_json(req, 401, json_pack("{s:s, s:s}", "error", "no", "code", "unauthorized"));
	return false;
}

static void
refused(const char *why, uid_t uid, const char *path, void *ctx)
{
	note(why[0] == 's' && why[1] == 't' ? 'S' : 'R');
}

static const struct hb_route routes[] = {
	{HB_GET, "/health", ROOT, 0, HB_ROUTE_NOBODY, ok},
	{HB_POST, "/echo", ROOT, 0, 0, echo},
	{HB_POST, "/small", ROOT, 16, 0, echo},
	{HB_GET, "/items/", ROOT, 0, HB_ROUTE_NOBODY | HB_ROUTE_PREFIX, ok},
	{HB_GET, "/items/exact", ROOT, 0, HB_ROUTE_NOBODY, query},
	{HB_GET, "/query", ROOT, 0, HB_ROUTE_NOBODY, query},
	{HB_GET, "/stream", ROOT, 0, HB_ROUTE_NOBODY, stream},
	{HB_GET, "/hang", ROOT, 0, HB_ROUTE_NOBODY, hang},
	{HB_GET, "/hold", ROOT, 0, HB_ROUTE_NOBODY, hold},
	{HB_GET, "/release", ROOT, 0, HB_ROUTE_NOBODY, release},
	{HB_GET, "/flood", ROOT, 0, HB_ROUTE_NOBODY, flood},
	{HB_GET, "/large", ROOT, 0, HB_ROUTE_NOBODY, large},
	{HB_GET, "/admins", HB_PEER_BIT(HB_PEER_ADMIN), 0, HB_ROUTE_NOBODY, ok},
	{HB_GET, "/public", ROOT, 0, HB_ROUTE_NOBODY | HB_ROUTE_TCP, ok},
	{HB_OPTIONS, "/public", ROOT, 0, HB_ROUTE_NOBODY | HB_ROUTE_TCP, preflight},
};

static void
serve_with(int notes, int connections, int seconds)
{
	struct hb_server_options options = {
		.routes = routes,
		.route_count = sizeof(routes) / sizeof(routes[0]),
		.before = before,
		.on_refused = refused,
		.max_connections = connections,
		.request_seconds = seconds,
		.idle_seconds = seconds,
	};
	struct hb_server *server;
	struct hb_error err;

	notes_fd = notes;
	base = event_base_new();
	if (hb_server_new(base, &options, &server, &err) != 0 ||
	    hb_server_listen_unix(server, "run/fetcher/sock", &err) != 0 ||
	    hb_server_listen_tcp(server, "127.0.0.1", 0, &bound_port, &err) != 0) {
		fprintf(stderr, "%s\n", err.message);
		_exit(96);
	}
	note('r');
	if (write(notes, &bound_port, sizeof(bound_port)) != sizeof(bound_port))
		_exit(95);
	event_base_dispatch(base);
}

static void
serve(int notes)
{
	serve_with(notes, 0, 0);
}

static void
serve_few(int notes)
{
	serve_with(notes, 3, 0);
}

static void
serve_hasty(int notes)
{
	serve_with(notes, 0, 1);
}

static void
start(void (*how)(int))
{
	serving_start(TEST_BASE + 1, how);
	ck_assert_int_eq(read(serving_notes, &bound_port, sizeof(bound_port)), sizeof(bound_port));
}

static void
setup(void)
{
	serving_setup();
	start(serve);
}

#define ck_has(text, part) ck_assert_msg(strstr(text, part) != NULL, "no <%s> in <%s>", part, text)
#define ck_has_not(text, part) ck_assert_msg(strstr(text, part) == NULL, "<%s> in <%s>", part, text)

START_TEST(test_answers_with_the_callers_uid)
{
	const char *answer = exchange("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");

	ck_has(answer, "HTTP/1.1 200 OK\r\n");
	ck_has(answer, "Content-Type: application/json\r\n");
	ck_has(answer, "\"uid\":0");
	ck_has(answer, "X-Before: seen\r\n");
	ck_has_not(answer, "Connection: close");
}
END_TEST

START_TEST(test_socket_is_open_to_its_directory_whatever_the_umask)
{
	struct stat st;

	serving_stop();
	umask(077);
	start(serve); /* replaces the socket that the killed one left */
	umask(022);
	ck_assert_int_eq(stat("run/fetcher/sock", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0666);
	ck_has(exchange("GET /health HTTP/1.1\r\n\r\n"), " 200 ");
}
END_TEST

START_TEST(test_unknown_route_wrong_method_and_wrong_role)
{
	ck_has(exchange("GET /nothing HTTP/1.1\r\n\r\n"), " 404 ");
	ck_assert_int_eq(serving_note(2000), 'R');
	ck_has(exchange("GET /items/ HTTP/1.1\r\n\r\n"), "\"unknown_route\"");
	ck_has(exchange("GET /echo HTTP/1.1\r\n\r\n"), " 405 ");
	ck_has(exchange("DELETE /health HTTP/1.1\r\n\r\n"), "\"method_not_allowed\"");
	ck_has(exchange("GET /admins HTTP/1.1\r\n\r\n"), " 403 ");
	ck_has(exchange("GET /%68ealth HTTP/1.1\r\n\r\n"), " 404 ");
}
END_TEST

START_TEST(test_stranger_is_refused_before_anything_else)
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		become(STRANGER);
		_exit(strstr(exchange("GET /health HTTP/1.1\r\n\r\n"), "\"peer_not_allowed\"") !=
				      NULL
			      ? 0
			      : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(serving_note(2000), 'S');
}
END_TEST

START_TEST(test_prefix_route_and_exact_one_before_it)
{
	ck_has(exchange("GET /items/a/b HTTP/1.1\r\n\r\n"), "\"tail\":\"a/b\"");
	ck_has(exchange("GET /items/exact?a=1 HTTP/1.1\r\n\r\n"), "\"a\":\"1\"");
}
END_TEST

START_TEST(test_query_is_decoded)
{
	const char *answer = exchange("GET /query?a=x%20y+z&b=%00&c=%4 HTTP/1.1\r\n\r\n");

	ck_has(answer, "\"a\":\"x y z\"");
	ck_has_not(answer, "\"b\"");
	ck_has_not(answer, "\"c\"");
}
END_TEST

START_TEST(test_body_is_strict_json)
{
	ck_has(exchange("POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\n{\"a\":[1]}"),
	       "{\"got\":{\"a\":[1]}}");
	ck_assert_int_eq(serving_note(2000), 'e');
	ck_has(exchange("POST /echo HTTP/1.1\r\nContent-Length: 13\r\n\r\n{\"a\":1,\"a\":2}"),
	       "\"duplicate_key\"");
	ck_assert_int_eq(serving_note(2000), 'R');
	ck_has(exchange("POST /echo HTTP/1.1\r\nContent-Length: 4\r\n\r\n[1]\n"), " 400 ");
	ck_has(exchange("POST /echo HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), "\"bad_json\"");
	ck_has(exchange("POST /echo HTTP/1.1\r\n\r\n"), "\"bad_json\"");
	ck_has(exchange("POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\n{\"a\":"), " 400 ");
	ck_has(exchange("GET /health HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"),
	       "\"unexpected_body\"");
}
END_TEST

START_TEST(test_answers_are_ascii)
{
	ck_has(exchange("POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\n{\"a\":\"\xc3\xa4\"}"),
	       "\\u00E4");
}
END_TEST

START_TEST(test_oversized_bodies)
{
	const char *answer = exchange("POST /echo HTTP/1.1\r\nContent-Length: 262145\r\n\r\n{");

	ck_has(answer, " 413 ");
	ck_has(answer, "\"too_large\"");
	ck_has(answer, "Connection: close\r\n");
	ck_has(exchange("POST /small HTTP/1.1\r\nContent-Length: 17\r\n\r\n{\"a\":\"123456789\"}"),
	       " 413 ");
	ck_has(exchange("POST /small HTTP/1.1\r\nContent-Length: 16\r\n\r\n{\"a\":\"12345678\"}"),
	       " 200 ");
	ck_has(exchange("POST /small HTTP/1.1\r\nTransfer-Encoding: "
			"chunked\r\n\r\nc\r\n{\"a\":\"123456\r\n"
			"5\r\n789\"}\r\n0\r\n\r\n"),
	       " 413 ");
	ck_has(exchange("POST /small HTTP/1.1\r\nTransfer-Encoding: "
			"chunked\r\n\r\n5\r\n{\"a\":\r\n2\r\n1}\r\n"
			"0\r\n\r\n"),
	       "{\"got\":{\"a\":1}}");
}
END_TEST

START_TEST(test_refusal_arrives_though_the_body_was_not_read)
{
	static char body[300000];
	int fd = dial();

	put(fd, "POST /echo HTTP/1.1\r\nContent-Length: 300000\r\n\r\n");
	memset(body, 'x', sizeof(body));
	for (size_t sent = 0; sent < sizeof(body);) {
		ssize_t n = send(fd, body + sent, sizeof(body) - sent, MSG_NOSIGNAL);

		ck_assert_msg(n > 0, "the server closed before the body was sent");
		sent += (size_t)n;
	}
	ck_has(get(fd, NULL, 5000), "\"too_large\"");
	close(fd);
}
END_TEST

START_TEST(test_what_is_not_http_is_answered_in_json)
{
	static char big[40000];
	char many[4096] = "GET /health HTTP/1.1\r\n";

	ck_has(exchange("hello\r\n\r\n"), "\"bad_request\"");
	ck_has(exchange("GET http://x/health HTTP/1.1\r\n\r\n"), "\"bad_request\"");
	ck_has(exchange("GET /\xff\xfe HTTP/1.1\r\n\r\n"), "\"bad_request\"");
	ck_has(exchange("GET /health?\xc3\xa9 HTTP/1.1\r\n\r\n"), "\"bad_request\"");
	ck_has(exchange("POST /echo HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
	       " 400 ");
	ck_has(exchange("POST /echo HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: "
			"chunked\r\n\r\n{}"),
	       " 400 ");
	ck_has(exchange("POST /echo HTTP/1.1\r\nTransfer-Encoding: "
			"chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Late: 1\r\n\r\n"),
	       " 400 ");
	snprintf(big, sizeof(big), "GET /health HTTP/1.1\r\nX-Big: %032000d\r\n\r\n", 7);
	ck_has(exchange(big), " 431 ");
	for (int i = 0; i < 100; i++)
		strcat(many, "X-A: b\r\n");
	ck_has(exchange(strcat(many, "\r\n")), "\"headers_too_large\"");
}
END_TEST

START_TEST(test_before_stops_and_its_headers_stand_on_every_answer)
{
	ck_has(exchange("GET /health HTTP/1.1\r\nX-Stop: 1\r\n\r\n"), " 401 ");
	ck_has(exchange("POST /echo HTTP/1.1\r\nX-Stop: 1\r\nContent-Length: 2\r\n\r\n{}"),
	       " 401 ");
	ck_assert_int_eq(serving_note(200), 0); /* the handler has not seen it */
	ck_has(exchange("GET /nothing HTTP/1.1\r\n\r\n"), "X-Before: seen\r\n");
	ck_has(exchange("POST /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\n{"), "X-Before: seen\r\n");
}
END_TEST

START_TEST(test_keep_alive_and_pipelining)
{
	int fd = dial();
	const char *answer;

	put(fd, "GET /health HTTP/1.1\r\n\r\n");
	ck_has(get(fd, "}", 5000), " 200 ");
	put(fd, "GET /nothing HTTP/1.1\r\n\r\n");
	ck_has(get(fd, "}", 5000), " 404 ");
	put(fd, "GET /query?a=1 HTTP/1.1\r\n\r\nGET /query?a=2 HTTP/1.1\r\n\r\nGET /query?a=3 "
		"HTTP/1.1\r\n\r\n");
	answer = get(fd, "\"a\":\"3\"", 5000);
	ck_has(answer, "\"a\":\"1\"");
	ck_has(answer, "\"a\":\"2\"");
	ck_has(answer, "\"a\":\"3\"");
	put(fd, "GET /health HTTP/1.1\r\nConnection: close\r\n\r\n");
	ck_has(get(fd, NULL, 5000), "Connection: close\r\n");
	ck_assert_int_eq(recv(fd, &(char){0}, 1, 0), 0);
	close(fd);
}
END_TEST

START_TEST(test_pipelined_request_waits_for_the_reply_before_it)
{
	int fd = dial(), other = dial();
	const char *answer;

	put(fd, "GET /hold HTTP/1.1\r\n\r\nGET /query?a=2 HTTP/1.1\r\n\r\n");
	ck_assert_int_eq(serving_note(5000), 'k');
	ck_assert_str_eq(get(fd, "}", 100), "");
	put(other, "GET /release HTTP/1.1\r\n\r\n");
	answer = get(fd, "\"a\":\"2\"", 5000);
	ck_has(answer, "released");
	ck_has(answer, "\"a\":\"2\"");
	close(fd);
	close(other);
}
END_TEST

START_TEST(test_caller_that_ends_its_side_still_gets_the_answer)
{
	int fd = dial();

	put(fd, "GET /large HTTP/1.1\r\n\r\n");
	shutdown(fd, SHUT_WR);
	usleep(50000); /* more than the socket holds is still to be sent when the server sees our
			  end */
	ck_has(get(fd, NULL, 5000), "last\"}");
	close(fd);
}
END_TEST

START_TEST(test_chunked_reply)
{
	int fd = dial();

	put(fd, "GET /stream HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n");
	ck_has(get(fd, "\"status\"", 5000),
	       "8\r\n{\"n\":1}\n\r\n8\r\n{\"n\":2}\n\r\n0\r\n\r\nHTTP/1.1 200");
	close(fd);
	fd = dial(); /* HTTP/1.0 knows no chunks */
	put(fd, "GET /stream HTTP/1.0\r\n\r\n");
	ck_has(get(fd, NULL, 5000), "\r\n\r\n{\"n\":1}\n{\"n\":2}\n");
	close(fd);
}
END_TEST

START_TEST(test_vanished_caller_is_told_once)
{
	int fd = dial();

	put(fd, "GET /health HTTP/1.1\r\n\r\n");
	ck_has(get(fd, "}", 5000), " 200 ");
	put(fd, "GET /hang HTTP/1.1\r\n\r\n"); /* also on a connection used before */
	ck_assert_int_eq(serving_note(5000), 'h');
	close(fd);
	ck_assert_int_eq(serving_note(5000), 'g');
	ck_assert_int_eq(serving_note(100), 0);
	ck_has(exchange("GET /health HTTP/1.1\r\n\r\n"), " 200 ");
}
END_TEST

START_TEST(test_late_reply_to_a_vanished_caller_is_harmless)
{
	int fd = dial();

	put(fd, "GET /hold HTTP/1.1\r\n\r\n");
	ck_assert_int_eq(serving_note(5000), 'k');
	close(fd);
	ck_has(exchange("GET /health HTTP/1.1\r\n\r\n"), " 200 ");
	ck_has(exchange("GET /release HTTP/1.1\r\n\r\n"), " 200 ");
	ck_has(exchange("GET /health HTTP/1.1\r\n\r\n"), " 200 ");
}
END_TEST

START_TEST(test_reader_that_does_not_read_is_dropped)
{
	int fd = dial();

	put(fd, "GET /flood HTTP/1.1\r\n\r\n");
	ck_assert_int_eq(serving_note(5000), 'g');
	ck_has(exchange("GET /health HTTP/1.1\r\n\r\n"), " 200 ");
	close(fd);
}
END_TEST

START_TEST(test_slow_request_is_ended)
{
	int fd;

	serving_stop();
	start(serve_hasty);
	fd = dial();
	put(fd, "POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\n{");
	ck_has(get(fd, NULL, 10000), "\"request_timeout\"");
	close(fd);
	fd = dial(); /* nothing at all: closed without a word */
	ck_assert_str_eq(get(fd, NULL, 10000), "");
	ck_assert_int_eq(recv(fd, &(char){0}, 1, MSG_DONTWAIT), 0);
	close(fd);
}
END_TEST

START_TEST(test_connections_are_bounded_and_idle_ones_give_way)
{
	int idle, busy[3], late;

	serving_stop();
	start(serve_few);
	idle = dial();
	for (int i = 0; i < 3; i++) {
		busy[i] = dial();
		put(busy[i], "GET /hang HTTP/1.1\r\n\r\n");
		ck_assert_int_eq(serving_note(5000), 'h');
	}
	ck_assert_int_eq(recv(idle, &(char){0}, 1, 0), 0); /* it had to give way */
	late = dial();
	put(late, "GET /health HTTP/1.1\r\n\r\n");
	ck_assert_str_eq(get(late, "}", 200), ""); /* waits for a place */
	close(busy[1]);
	ck_has(get(late, "}", 5000), " 200 ");
	close(late);
	close(idle);
	close(busy[0]);
	close(busy[2]);
}
END_TEST

static int
dial_tcp(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t)bound_port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	return fd;
}

START_TEST(test_tcp_reaches_only_what_is_marked)
{
	int fd = dial_tcp();
	const char *answer;

	put(fd, "GET /health HTTP/1.1\r\n\r\n");
	ck_has(get(fd, "}", 5000), " 404 ");
	put(fd, "GET /public HTTP/1.1\r\n\r\n");
	ck_has(get(fd, "}", 5000), "\"uid\":-1");
	put(fd, "OPTIONS /public HTTP/1.1\r\n\r\n");
	answer = get(fd, "\r\n\r\n", 5000);
	ck_has(answer, "HTTP/1.1 204 No Content\r\n");
	ck_has(answer, "Access-Control-Allow-Methods: GET\r\n");
	ck_has_not(answer, "Content-Length");
	ck_has_not(answer, "X-Injected");
	close(fd);
}
END_TEST

START_TEST(test_refuses_to_replace_what_is_no_socket)
{
	struct hb_server_options options = {.routes = routes, .route_count = 1};
	struct event_base *b = event_base_new();
	struct hb_server *server;
	struct hb_error err;

	ck_assert_int_eq(mkdir("run/fetcher/dir", 0755), 0);
	ck_assert_int_eq(hb_server_new(b, &options, &server, &err), 0);
	ck_assert_int_eq(hb_server_listen_unix(server, "run/fetcher/dir", &err), -1);
	ck_assert_str_eq(err.code, "listen_failed");
	ck_assert_int_eq(hb_server_listen_tcp(server, "localhost", 0, NULL, &err), -1);
	ck_assert_int_eq(hb_server_listen_tcp(server, "127.0.0.1", bound_port, NULL, &err), -1);
	ck_assert_str_eq(err.code, "port_taken");
	hb_server_free(server);
	event_base_free(b);
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("server");
	TCase *tc = tcase_create("server");
	SRunner *r;
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(tc, setup, serving_teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_answers_with_the_callers_uid);
	tcase_add_test(tc, test_socket_is_open_to_its_directory_whatever_the_umask);
	tcase_add_test(tc, test_unknown_route_wrong_method_and_wrong_role);
	tcase_add_test(tc, test_stranger_is_refused_before_anything_else);
	tcase_add_test(tc, test_prefix_route_and_exact_one_before_it);
	tcase_add_test(tc, test_query_is_decoded);
	tcase_add_test(tc, test_body_is_strict_json);
	tcase_add_test(tc, test_answers_are_ascii);
	tcase_add_test(tc, test_oversized_bodies);
	tcase_add_test(tc, test_refusal_arrives_though_the_body_was_not_read);
	tcase_add_test(tc, test_what_is_not_http_is_answered_in_json);
	tcase_add_test(tc, test_before_stops_and_its_headers_stand_on_every_answer);
	tcase_add_test(tc, test_keep_alive_and_pipelining);
	tcase_add_test(tc, test_pipelined_request_waits_for_the_reply_before_it);
	tcase_add_test(tc, test_caller_that_ends_its_side_still_gets_the_answer);
	tcase_add_test(tc, test_chunked_reply);
	tcase_add_test(tc, test_vanished_caller_is_told_once);
	tcase_add_test(tc, test_late_reply_to_a_vanished_caller_is_harmless);
	tcase_add_test(tc, test_reader_that_does_not_read_is_dropped);
	tcase_add_test(tc, test_slow_request_is_ended);
	tcase_add_test(tc, test_connections_are_bounded_and_idle_ones_give_way);
	tcase_add_test(tc, test_tcp_reaches_only_what_is_marked);
	tcase_add_test(tc, test_refuses_to_replace_what_is_no_socket);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
