/*
 * A scratch run/ directory and servers in child processes, for the tests of server.c and client.c:
 * both ends are real processes with uids of their own.
 */
#ifndef HB_TESTS_SERVING_H
#define HB_TESTS_SERVING_H

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/peers.h"

#define TEST_BASE 61000
#define STRANGER 61900

static char serving_dir[64];
static pid_t serving_pid;
static int serving_notes = -1; /* what the server's process tells us, a byte a note */

static int
serving_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

static inline void
serving_setup(void)
{
	snprintf(serving_dir, sizeof(serving_dir), "/tmp/hermes-serving-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(serving_dir));
	ck_assert_int_eq(chmod(serving_dir, 0755), 0);
	ck_assert_int_eq(chdir(serving_dir), 0);
	ck_assert_int_eq(mkdir("run", 0755), 0);
	ck_assert_int_eq(mkdir("run/fetcher", 0777), 0);
	ck_assert_int_eq(chmod("run/fetcher", 0777), 0);
	hb_peers_init(TEST_BASE);
	signal(SIGPIPE, SIG_IGN);
}

static inline void
serving_stop(void)
{
	if (serving_pid > 0) {
		kill(serving_pid, SIGKILL);
		waitpid(serving_pid, NULL, 0);
	}
	serving_pid = 0;
	if (serving_notes >= 0)
		close(serving_notes);
	serving_notes = -1;
}

static inline void
serving_teardown(void)
{
	serving_stop();
	ck_assert_int_eq(chdir("/"), 0);
	nftw(serving_dir, serving_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void
become(uid_t uid)
{
	if (uid != 0 && (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0))
		_exit(99);
}

/* Run `serve` in a child with uid; it writes 'r' to its descriptor once it listens, then serves
 * until killed. */
static inline void
serving_start(uid_t uid, void (*serve)(int notes))
{
	int ends[2];
	char byte = 0;

	ck_assert_int_eq(pipe(ends), 0);
	serving_pid = fork();
	ck_assert_int_ge(serving_pid, 0);
	if (serving_pid == 0) {
		become(uid);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		serve(ends[1]);
		_exit(98);
	}
	close(ends[1]);
	serving_notes = ends[0];
	ck_assert_int_eq(read(serving_notes, &byte, 1), 1);
	ck_assert_int_eq(byte, 'r');
}

/* The next note of the server's process; 0 when none comes. */
static inline char
serving_note(int ms)
{
	struct pollfd pfd = {.fd = serving_notes, .events = POLLIN};
	char byte = 0;

	if (poll(&pfd, 1, ms) <= 0 || read(serving_notes, &byte, 1) != 1)
		return 0;
	return byte;
}

static inline int
dial(void)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX, .sun_path = "run/fetcher/sock"};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	return fd;
}

static inline void
put(int fd, const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Read until `wanted` has appeared (NULL: until the end) or nothing comes any more. */
static inline const char *
get(int fd, const char *wanted, int ms)
{
	static char text[1 << 20];
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	size_t len = 0;
	ssize_t n;

	text[0] = '\0';
	while (poll(&pfd, 1, ms) > 0 && (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0) {
		len += (size_t)n;
		text[len] = '\0';
		if (wanted != NULL && strstr(text, wanted) != NULL)
			break;
	}
	return text;
}

/* One request on a connection of its own, as root; the whole answer. */
static inline const char *
exchange(const char *request)
{
	int fd = dial();
	const char *answer;

	put(fd, request);
	answer = get(fd, "}", 5000);
	close(fd);
	return answer;
}

#endif
