/* One run of ssh: quoting, command line, packet, log, and what a session may do. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/ssh/log.h"
#include "broker/ssh/quote.h"
#include "broker/ssh/run.h"
#include "common/sandbox.h"

static struct hb_error err;

/* --- quoting --- */

static void check_quoted(json_t *argv, const char *want)
{
	struct hb_buf out = HB_BUF_INIT;

	ck_assert_int_eq(hb_quote_argv(argv, &out, &err), 0);
	ck_assert_str_eq(out.data, want);
	hb_buf_free(&out);
	json_decref(argv);
}

START_TEST(test_h42_quoting)
{
	check_quoted(json_pack("[s]", "id"), "exec 'id'");
	check_quoted(json_pack("[s,s,s]", "p", "a b", ""), "exec 'p' 'a b' ''");
	check_quoted(json_pack("[s,s]", "p", "it's"), "exec 'p' 'it'\\''s'");
	check_quoted(json_pack("[s,s]", "p", "'"), "exec 'p' ''\\'''");
	check_quoted(json_pack("[s,s]", "p", "$(id)`id`\\\n*"), "exec 'p' '$(id)`id`\\\n*'");
	check_quoted(json_pack("[s,s]", "p", "-x"), "exec 'p' '-x'");
}
END_TEST

static void check_unsafe(json_t *argv)
{
	struct hb_buf out = HB_BUF_INIT;

	ck_assert_int_eq(hb_quote_argv(argv, &out, &err), -1);
	ck_assert_str_eq(err.code, "argv_unsafe");
	ck_assert_uint_eq(out.len, 0);
	json_decref(argv);
}

START_TEST(test_h42_what_cannot_be_quoted)
{
	check_unsafe(json_array());
	check_unsafe(json_pack("[s]", ""));
	check_unsafe(json_pack("[s]", "-x"));
	check_unsafe(json_pack("[s,i]", "p", 1));
	check_unsafe(json_pack("[s,o]", "p", json_stringn("a\0b", 3)));
}
END_TEST

/* The same through a real shell: every byte that JSON text can hold, but NUL. */
START_TEST(test_h42_a_shell_gives_the_same_back)
{
	char text[512] = "", got[512];
	struct hb_buf out = HB_BUF_INIT;
	json_t *argv;
	size_t len = 0;
	FILE *shell;

	for (int c = 1; c < 128; c++)
		text[len++] = (char)c;
	snprintf(text + len, sizeof(text) - len, "\xc3\xa9\xe4\xb8\xad''\"\"");
	argv = json_pack("[s,s,s]", "printf", "%s", text);
	ck_assert_int_eq(hb_quote_argv(argv, &out, &err), 0);
	shell = popen(out.data, "r");
	ck_assert_ptr_nonnull(shell);
	len = fread(got, 1, sizeof(got) - 1, shell);
	got[len] = '\0';
	ck_assert_int_eq(pclose(shell), 0);
	ck_assert_str_eq(got, text);
	hb_buf_free(&out);
	json_decref(argv);
}
END_TEST

/* --- the command line --- */

static const int fds[HB_RUN_FDS] = {10, 11, 12, 13, 14, 15};

static struct hb_run_order order(void)
{
	return (struct hb_run_order){.host = "web.example", .port = 2222, .user = "deploy",
				     .auth = "publickey", .key_type = "ssh-rsa",
				     .command = "-oProxyCommand=id", .connect_timeout = 30};
}

static bool has(char **argv, const char *option)
{
	for (; *argv; argv++)
		if (strcmp(*argv, option) == 0)
			return true;
	return false;
}

START_TEST(test_arguments)
{
	static const char *const wanted[] = {
		"StrictHostKeyChecking=yes", "UserKnownHostsFile=/proc/77/fd/13",
		"GlobalKnownHostsFile=/dev/null", "UpdateHostKeys=no",
		"HostKeyAlgorithms=rsa-sha2-512,rsa-sha2-256", "IdentityFile=/proc/77/fd/14",
		"IdentityAgent=none", "ForwardAgent=no", "ClearAllForwardings=yes", "RequestTTY=no",
		"ControlPath=none", "ProxyCommand=none", "BatchMode=yes", "-n", "-T"};
	struct hb_run_order o = order();
	char **argv = hb_run_arguments(&o, 77, fds, &err);
	size_t n = 0;

	ck_assert_ptr_nonnull(argv);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		ck_assert_msg(has(argv, wanted[i]), "%s", wanted[i]);
	ck_assert(!has(argv, "CertificateFile=/proc/77/fd/15"));
	while (argv[n])
		n++;
	ck_assert_str_eq(argv[n - 3], "--");
	ck_assert_str_eq(argv[n - 2], "web.example");
	ck_assert_str_eq(argv[n - 1], "-oProxyCommand=id");
	ck_assert_str_eq(argv[1], "-F");
	ck_assert_str_eq(argv[2], "none");
	hb_run_arguments_free(argv);

	o.certificate = true;
	argv = hb_run_arguments(&o, 77, fds, &err);
	ck_assert(has(argv, "CertificateFile=/proc/77/fd/15"));
	hb_run_arguments_free(argv);
	o = order();
	o.auth = "password";
	argv = hb_run_arguments(&o, 77, fds, &err);
	ck_assert(has(argv, "PubkeyAuthentication=no"));
	ck_assert(has(argv, "IdentityFile=none"));
	ck_assert(!has(argv, "IdentityFile=/proc/77/fd/14"));
	hb_run_arguments_free(argv);
}
END_TEST

static void check_refused(struct hb_run_order o)
{
	ck_assert_ptr_null(hb_run_arguments(&o, 77, fds, &err));
	ck_assert_str_eq(err.code, "order_invalid");
}

START_TEST(test_h41_arguments_are_checked_again)
{
	static const char *const hostile[] = {"-oProxyCommand=id", "a b", "a\nb", "", "%h", "a@b"};
	struct hb_run_order o;

	for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
		o = order();
		o.host = hostile[i];
		check_refused(o);
		o = order();
		o.user = hostile[i];
		check_refused(o);
		o = order();
		o.key_type = hostile[i];
		check_refused(o);
		o = order();
		o.auth = hostile[i];
		check_refused(o);
	}
	o = order();
	o.port = 0;
	check_refused(o);
}
END_TEST

/* --- the packet --- */

START_TEST(test_packet)
{
	int pair[2], files[HB_RUN_FDS], got[HB_RUN_FDS];
	struct hb_run_order o = order(), back;
	json_t *body;
	char text[8];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	for (int i = 0; i < HB_RUN_FDS; i++) {
		snprintf(text, sizeof(text), "%d", i);
		files[i] = hb_memory_file("test", text, 1, 0600, &err);
		ck_assert_int_ge(files[i], 0);
	}
	/* Sealed: neither written nor cut. */
	ck_assert_int_eq(ftruncate(files[0], 0), -1);
	ck_assert_int_eq((int)pwrite(files[0], "x", 1, 0), -1);
	ck_assert_int_eq(hb_run_send(pair[0], &o, files, &err), 0);
	ck_assert_int_eq(hb_run_receive(pair[1], &body, &back, got, &err), 1);
	ck_assert_str_eq(back.command, o.command);
	ck_assert_str_eq(back.host, o.host);
	ck_assert_int_eq(got[HB_RUN_CERTIFICATE], -1);
	ck_assert_int_eq((int)pread(got[HB_RUN_CREDENTIAL], text, 1, 0), 1);
	ck_assert_int_eq(text[0], '0' + HB_RUN_CREDENTIAL);
	json_decref(body);
	ck_assert_int_eq((int)send(pair[0], "{\"host\":\"x\"}", 12, 0), 12);
	ck_assert_int_eq(hb_run_receive(pair[1], &body, &back, got, &err), -1);
	ck_assert_str_eq(err.code, "order_invalid");
	close(pair[0]);
	ck_assert_int_eq(hb_run_receive(pair[1], &body, &back, got, &err), 0);
}
END_TEST

/* --- the log --- */

static int judge(const char *text, int status, int *returncode)
{
	struct hb_ssh_log log = {0};

	/* In two pieces at every place at once would be slow: byte by byte is all of them. */
	for (const char *p = text; *p; p++)
		hb_ssh_log_feed(&log, p, 1);
	return hb_ssh_log_end(&log, status, "ssh-ed25519", returncode, &err);
}

#define LOGIN \
	"debug1: Connection established.\r\n" \
	"Authenticated to h ([::1]:22) using \"publickey\".\r\n"
#define SENT LOGIN "debug1: Sending command: id\r\n"

START_TEST(test_log_of_a_command_that_ran)
{
	int rc = -2;

	ck_assert_int_eq(judge(SENT "debug1: client_input_channel_req: channel 0 rtype "
				    "exit-status reply 0\r\ndebug1: Exit status 3\r\n",
			       3, &rc),
			 0);
	ck_assert_int_eq(rc, 3);
	ck_assert_int_eq(judge(SENT "debug1: client_input_channel_req: channel 0 rtype "
				    "exit-status reply 0\r\n",
			       255, &rc),
			 0);
	ck_assert_int_eq(rc, 255);
	ck_assert_int_eq(judge(SENT "debug1: client_input_channel_req: channel 0 rtype "
				    "exit-signal reply 0\r\n",
			       255, &rc),
			 -1);
	ck_assert_str_eq(err.code, "remote_signal");
	ck_assert_int_eq(judge(SENT "client_loop: send disconnect: Broken pipe\r\n", 255, &rc), -1);
	ck_assert_str_eq(err.code, "connection_lost");
	ck_assert_ptr_nonnull(strstr(err.message, "Broken pipe"));
	/* What is sent can't pretend to be the answer. */
	ck_assert_int_eq(judge(LOGIN "debug1: Sending command: x rtype exit-status reply\r\n", 255,
			       &rc),
			 -1);
	ck_assert_str_eq(err.code, "connection_lost");
}
END_TEST

START_TEST(test_log_of_refusals)
{
	static const struct {
		const char *text, *code;
	} cases[] = {
		{"@@@@@@@@@@@@@@@\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
		 "Host key verification failed.\r\n",
		 "host_key_changed"},
		{"Unable to negotiate with ::1 port 22: no matching host key type found. Their "
		 "offer: rsa-sha2-512\r\n",
		 "pin_missing"},
		{"No ED25519 host key is known for pinned and you have requested strict checking.\r\n"
		 "Host key verification failed.\r\n",
		 "pin_missing"},
		{"debug1: Connection established.\r\nu@h: Permission denied (publickey).\r\n",
		 "auth_failed"},
		{"ssh: Could not resolve hostname h: Name or service not known\r\n", "unreachable"},
		{"ssh: connect to host h port 22: Connection refused\r\n", "unreachable"},
		{"debug1: Connection established.\r\nConnection closed by ::1 port 22\r\n",
		 "unreachable"},
		{"kex_exchange_identification: read: Connection reset by peer\r\n", "unreachable"},
		{"hermes: /usr/bin/ssh can't be started: No such file\r\n", "ssh_failed"},
		{"command-line: line 0: Bad configuration option\r\n", "ssh_failed"},
		{"", "ssh_failed"},
	};
	int rc;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_int_eq(judge(cases[i].text, 255, &rc), -1);
		ck_assert_str_eq(err.code, cases[i].code);
		ck_assert_ptr_nonnull(strstr(err.message, "othing was"));
	}
}
END_TEST

START_TEST(test_log_is_bounded)
{
	struct hb_ssh_log log = {0};
	char junk[5000];

	memset(junk, 'x', sizeof(junk));
	for (int i = 0; i < 100; i++)
		hb_ssh_log_feed(&log, junk, sizeof(junk));
	hb_ssh_log_feed(&log, "\nbad\x1b[2J\n", 9);
	ck_assert_str_eq(log.last, "bad?[2J");
	ck_assert_str_eq(hb_ssh_log_far_side(&log), "not_started");
}
END_TEST

/* --- what a session may do --- */

/* Runs `attempt` as a session would be confined; its return value. */
static int confined(int (*attempt)(void))
{
	struct hb_sandbox box;
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		hb_session_sandbox(&box, false);
		if (hb_sandbox_apply(&box, false, NULL, &err) < 0)
			_exit(99);
		_exit(attempt());
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int exec_program(const char *path, const char *argument)
{
	execl(path, path, argument, (char *)NULL);
	return errno;
}

static int try_shell(void)
{
	return exec_program("/bin/sh", "-c:");
}

static int try_loader(void)
{
#if defined(__x86_64__)
	const char *loader = "/lib64/ld-linux-x86-64.so.2";
#else
	const char *loader = "/lib/ld-linux-aarch64.so.1";
#endif
	/* It may be started, being what starts ssh; what it then may not do is read the program. */
	return exec_program(loader, "/bin/true");
}

static int try_ssh(void)
{
	return exec_program(HB_SSH_PROGRAM, "-V");
}

static int try_write(void)
{
	return open("/tmp/hermes-session-test", O_WRONLY | O_CREAT, 0600) < 0 ? errno : 0;
}

static int try_read(void)
{
	return open("/proc/self/status", O_RDONLY) < 0 ? errno : 0;
}

START_TEST(test_session_is_confined)
{
	ck_assert_int_eq(confined(try_shell), EACCES);
	ck_assert_int_ne(confined(try_loader), 0);
	ck_assert_int_eq(confined(try_ssh), 0);
	ck_assert_int_eq(confined(try_write), EACCES);
	ck_assert_int_eq(confined(try_read), EACCES);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ssh_run");
	TCase *tests = tcase_create("ssh_run");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tests);
	tcase_add_test(tests, test_h42_quoting);
	tcase_add_test(tests, test_h42_what_cannot_be_quoted);
	tcase_add_test(tests, test_h42_a_shell_gives_the_same_back);
	tcase_add_test(tests, test_arguments);
	tcase_add_test(tests, test_h41_arguments_are_checked_again);
	tcase_add_test(tests, test_packet);
	tcase_add_test(tests, test_log_of_a_command_that_ran);
	tcase_add_test(tests, test_log_of_refusals);
	tcase_add_test(tests, test_log_is_bounded);
	tcase_add_test(tests, test_session_is_confined);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
