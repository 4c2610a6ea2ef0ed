/* Lines of /proc/net as kernels print them, loopback, and the judgement on this process's own sockets. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/installer/listeners.h"

#define TCP_LINE "   0: 0100007F:12B4 00000000:0000 0A 00000000:00000000 00:00000000 00000000 10118        0 4711 1 0 100 0 0 10 0"

START_TEST(test_lines)
{
	static const unsigned char local[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
	struct hb_socket_line s;

	ck_assert_int_eq(hb_socket_line_parse(TCP_LINE, &s), 0);
	ck_assert_mem_eq(s.address, local, 16);
	ck_assert_uint_eq(s.port, 4788);
	ck_assert_uint_eq(s.state, 10);
	ck_assert_uint_eq(s.uid, 10118);
	ck_assert_uint_eq(s.inode, 4711);
	ck_assert(s.remote_is_zero);
	ck_assert_int_eq(hb_socket_line_parse("12345: 00000000000000000000000001000000:0035 "
					      "00000000000000000000000000000000:1F90 07 00000000:00000000 "
					      "00:00000000 00000000     0        0 99 2 0000 0", &s), 0);
	ck_assert(hb_address_is_loopback(s.address));
	ck_assert(!s.remote_is_zero);
	ck_assert_uint_eq(s.port, 53);
}
END_TEST

START_TEST(test_lines_that_are_none)
{
	static const char *const bad[] = {
		"", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
		"0: 0100007F:12B4", "0: 0100007F 00000000:0000 0A", "0: 0100007:12B4 00000000:0000 0A",
		"0: 0100007F:12B4 00000000:0000 0A 0:0 0:0 0", ":", "0: ZZZZZZZZ:12B4 00000000:0000 0A",
	};
	struct hb_socket_line s;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(hb_socket_line_parse(bad[i], &s) < 0, "%s", bad[i]);
}
END_TEST

START_TEST(test_loopback)
{
	static const struct {
		const char *text;
		bool loopback;
	} cases[] = {{"::ffff:127.0.0.1", true}, {"::ffff:127.255.0.9", true}, {"::1", true}, {"::", false},
		     {"::ffff:0.0.0.0", false}, {"::ffff:128.0.0.1", false}, {"::2", false}, {"fe80::1", false},
		     {"::ffff:10.127.0.1", false}, {"1::1", false}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned char a[16];

		ck_assert_int_eq(inet_pton(AF_INET6, cases[i].text, a), 1);
		ck_assert_msg(hb_address_is_loopback(a) == cases[i].loopback, "%s", cases[i].text);
	}
}
END_TEST

static int open_socket(int type, const char *host, uint16_t *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, type, 0);

	inet_pton(AF_INET, host, &a.sin_addr);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	if (type == SOCK_STREAM)
		ck_assert_int_eq(listen(fd, 1), 0);
	getsockname(fd, (struct sockaddr *)&a, &len);
	*port = ntohs(a.sin_port);
	return fd;
}

/* A uid that owns no other socket here: the tests of one machine run side by side as root. */
static uid_t nobody_else(void)
{
	uid_t uid = 900000 + (uid_t)getpid() % 90000;

	ck_assert_int_eq(seteuid(uid), 0);
	return uid;
}

/* A leak checker looks at the test when it ends, and may do so only for root. */
static void root_again(void)
{
	ck_assert_int_eq(seteuid(0), 0);
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

START_TEST(test_own_sockets)
{
	struct hb_listener_report r;
	struct hb_listeners *l;
	uint16_t port, other;
	uid_t uid;
	int fd, second;

	ck_assert_int_eq(hb_listeners_open(&l, NULL), 0);
	uid = nobody_else();
	fd = open_socket(SOCK_STREAM, "127.0.0.1", &port);
	ck_assert_int_eq(hb_listeners_check(l, uid, port, 0, &r, NULL), 0);
	ck_assert(r.ours && !r.foreign && !r.public_found);
	ck_assert_int_eq(hb_listeners_check(l, uid + 1, port, 0, &r, NULL), 0);
	ck_assert(!r.ours && r.foreign && r.foreign_uid == uid && !r.public_found);
	second = open_socket(SOCK_STREAM, "0.0.0.0", &other);
	ck_assert_int_eq(hb_listeners_check(l, uid, port, 0, &r, NULL), 0);
	ck_assert(r.ours && r.public_found);
	ck_assert_ptr_nonnull(strstr(r.where, "tcp 0.0.0.0:"));
	close(second);
	close(fd);
	ck_assert_int_eq(hb_listeners_check(l, uid, port, 0, &r, NULL), 0);
	ck_assert(!r.ours && !r.public_found);
	root_again();
	hb_listeners_free(l);
}
END_TEST

/* A stranger's port on another address doesn't keep the payload from its own. */
START_TEST(test_foreign_on_another_address)
{
	struct hb_listener_report r;
	struct hb_listeners *l;
	uint16_t port;
	uid_t uid;
	int fd;

	ck_assert_int_eq(hb_listeners_open(&l, NULL), 0);
	uid = nobody_else();
	fd = open_socket(SOCK_STREAM, "0.0.0.0", &port);
	ck_assert_int_eq(hb_listeners_check(l, uid + 1, port, 0, &r, NULL), 0);
	ck_assert(r.foreign);
	close(fd);
	fd = open_socket(SOCK_STREAM, "127.0.0.2", &port);
	ck_assert_int_eq(hb_listeners_check(l, uid + 1, port, 0, &r, NULL), 0);
	ck_assert(r.foreign);
	close(fd);
	root_again();
	hb_listeners_free(l);
}
END_TEST

START_TEST(test_udp_settles)
{
	struct hb_listener_report r;
	struct hb_listeners *l;
	uint16_t port;
	uid_t uid;
	int fd;

	ck_assert_int_eq(hb_listeners_open(&l, NULL), 0);
	uid = nobody_else();
	fd = open_socket(SOCK_DGRAM, "0.0.0.0", &port);
	ck_assert_int_eq(hb_listeners_check(l, uid, 1, 1000, &r, NULL), 0);
	ck_assert(!r.public_found && r.public_suspected);
	ck_assert_int_eq(hb_listeners_check(l, uid, 1, 1000 + HB_UDP_SETTLE_MS - 1, &r, NULL), 0);
	ck_assert(!r.public_found && r.public_suspected);
	ck_assert_int_eq(hb_listeners_check(l, uid, 1, 1000 + HB_UDP_SETTLE_MS, &r, NULL), 0);
	ck_assert(r.public_found);
	close(fd);
	/* Another one begins anew: it is the socket that counts, not the port. */
	fd = open_socket(SOCK_DGRAM, "0.0.0.0", &port);
	ck_assert_int_eq(hb_listeners_check(l, uid, 1, 1000 + HB_UDP_SETTLE_MS, &r, NULL), 0);
	ck_assert(!r.public_found && r.public_suspected);
	close(fd);
	fd = open_socket(SOCK_DGRAM, "127.0.0.1", &port);
	ck_assert_int_eq(hb_listeners_check(l, uid, 1, 100000, &r, NULL), 0);
	ck_assert(!r.public_found && !r.public_suspected);
	close(fd);
	root_again();
	hb_listeners_free(l);
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("listeners");
	Suite *suite = suite_create("listeners");
	SRunner *runner;
	int failed;

	tcase_add_test(cases, test_lines);
	tcase_add_test(cases, test_lines_that_are_none);
	tcase_add_test(cases, test_loopback);
	tcase_add_test(cases, test_own_sockets);
	tcase_add_test(cases, test_foreign_on_another_address);
	tcase_add_test(cases, test_udp_settles);
	suite_add_tcase(suite, cases);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
