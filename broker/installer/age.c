/* The worker that starts `age` (age.h). One packet with two descriptors for each file, one packet
 * back. */
#include "broker/installer/age.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/installer/runner.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/sandbox.h"

#define RECIPIENTS_MAX 32
#define SAID_MAX 300

static const char *const places[] = {"/usr/bin/age", "/usr/local/bin/age"};

struct question {
	int64_t id; /* an answer that a job before this one didn't wait for is told apart */
};

struct answer {
	int64_t id;
	int ok;
	char said[SAID_MAX];
};

bool hb_age_is_recipient(const char *text)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789",
			  more[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ+/=@._- ";
	char all[sizeof letters + sizeof more];

	snprintf(all, sizeof all, "%s%s", letters, more);
	if (strncmp(text, "age1", 4) == 0)
		return strlen(text) > 20 && strspn(text, letters) == strlen(text);
	return (strncmp(text, "ssh-ed25519 ", 12) == 0 || strncmp(text, "ssh-rsa ", 8) == 0) &&
	       strspn(text, all) == strlen(text);
}

/* --- the worker --- */

static int become(uid_t uid, gid_t gid)
{
	if (geteuid() == uid)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return -1;
	return uid != 0 && (setuid(0) == 0 || geteuid() != uid) ? -1 : 0;
}

/* Two descriptors; anything else is no question. */
static int take_question(int sock, struct question *q, int fds[2])
{
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {q, sizeof *q};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	struct cmsghdr *c;
	ssize_t n;

	do
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	c = CMSG_FIRSTHDR(&m);
	if (n != (ssize_t)sizeof *q || !c || c->cmsg_type != SCM_RIGHTS ||
	    c->cmsg_len != CMSG_LEN(2 * sizeof(int)))
		return -1;
	memcpy(fds, CMSG_DATA(c), 2 * sizeof(int));
	return 0;
}

static void exec_age(const char *program, char *const *argv, const int fds[2], int said)
{
	char *const env[] = {NULL};

	if (dup2(fds[0], 0) < 0 || dup2(fds[1], 1) < 0 || dup2(said, 2) < 0)
		_exit(126);
	signal(SIGPIPE, SIG_DFL);
	execve(program, argv, env);
	_exit(127);
}

static void run_age(const char *program, char *const *argv, const int fds[2], struct answer *a)
{
	int said[2], status = 0;
	size_t have = 0;
	ssize_t n;
	pid_t pid;

	if (pipe2(said, O_CLOEXEC) < 0)
		return;
	pid = fork();
	if (pid == 0)
		exec_age(program, argv, fds, said[1]);
	close(said[1]);
	while (pid > 0 && (n = read(said[0], a->said + have, SAID_MAX - 1 - have)) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		have += n > 0 ? (size_t)n : 0;
		if (have == SAID_MAX - 1)
			break; /* it may fail on a closed pipe; it has failed already */
	}
	close(said[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	a->ok = pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	for (size_t i = 0; i < have; i++)
		if (a->said[i] < 0x20 || a->said[i] > 0x7e)
			a->said[i] = ' ';
}

struct setup {
	uid_t uid;
	gid_t gid;
	bool degraded_ok;
	const char *program;
	char *const *argv;
};

static _Noreturn void worker(int sock, const struct setup *s)
{
	static const struct hb_sandbox_path paths[] = {
		{"/usr", HB_FS_EXEC},
		{"/lib", HB_FS_EXEC | HB_FS_OPTIONAL},
		{"/lib64", HB_FS_EXEC | HB_FS_OPTIONAL},
		{"/etc/ld.so.cache", HB_FS_READ | HB_FS_OPTIONAL},
		{"/sys/kernel/mm",
		 HB_FS_READ | HB_FS_OPTIONAL}, /* the Go runtime asks for the size of huge pages */
		{"/dev/null", HB_FS_READ | HB_FS_WRITE},
	};
	/* A deny-list, since the program's own calls are not ours to know; Landlock and the uid do
	 * the rest. */
	const struct hb_sandbox box = {.name = "age",
				       .deny_list = true,
				       .paths = paths,
				       .path_count = sizeof paths / sizeof *paths};
	struct question q;
	struct answer a;
	int fds[2];

	hb_worker_isolate(sock, sock);
	prctl(PR_SET_NAME, "hermes-age");
	if (become(s->uid, s->gid) < 0 || hb_sandbox_apply(&box, s->degraded_ok, NULL, NULL) < 0)
		_exit(71);
	while (take_question(sock, &q, fds) == 0) {
		a = (struct answer){.id = q.id};
		run_age(s->program, s->argv, fds, &a);
		close(fds[0]);
		close(fds[1]);
		if (send(sock, &a, sizeof a, MSG_NOSIGNAL) != (ssize_t)sizeof a)
			break;
	}
	_exit(0);
}

/* age -r RECIPIENT ... */
static char **arguments(const char **recipients, size_t count)
{
	char **argv = hb_calloc(2 * count + 2, sizeof *argv);
	size_t n = 0;

	argv[n++] = (char *)(uintptr_t) "age";
	for (size_t i = 0; i < count; i++) {
		argv[n++] = (char *)(uintptr_t) "-r";
		argv[n++] = (char *)(uintptr_t)recipients[i];
	}
	return argv;
}

int hb_age_fork(const struct hb_config *config, uid_t uid, gid_t gid, int *fd, pid_t *pid,
		struct hb_error *err)
{
	const char **recipients, *program = NULL;
	size_t count = hb_config_list(config, "runtime.age_recipients", &recipients);
	bool degraded = strcmp(hb_config_text(config, "sandbox.mode"), "degraded") == 0;
	struct setup setup;
	int pair[2];
	char **argv;

	*fd = -1;
	*pid = 0;
	if (count == 0)
		return 0;
	if (count > RECIPIENTS_MAX)
		return hb_fail(err, "bad_recipient", "runtime.age_recipients: at most %d are taken",
			       RECIPIENTS_MAX);
	for (size_t i = 0; i < count; i++)
		if (!hb_age_is_recipient(recipients[i]))
			return hb_fail(err, "bad_recipient",
				       "runtime.age_recipients: \"%.80s\" is neither age1... nor "
				       "an SSH public key",
				       recipients[i]);
	for (size_t i = 0; i < sizeof places / sizeof *places && !program; i++)
		program = access(places[i], X_OK) == 0 ? places[i] : NULL;
	if (!program)
		return hb_fail(err, "age_missing",
			       "backups are to be encrypted (runtime.age_recipients) but there is "
			       "no /usr/bin/age; run: "
			       "apt-get install age");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return hb_fail_errno(err, "age_failed",
				     "the worker that encrypts can't be connected");
	argv = arguments(recipients, count);
	setup = (struct setup){uid, gid, degraded, program, argv};
	*pid = fork();
	if (*pid == 0)
		worker(pair[1], &setup);
	free(argv);
	close(pair[1]);
	if (*pid < 0) {
		close(pair[0]);
		return hb_fail_errno(err, "age_failed", "the worker that encrypts can't be forked");
	}
	*fd = pair[0];
	return 0;
}

/* --- the job worker's side --- */

static int ask(int fd, const struct question *q, int in_fd, int out_fd, struct hb_error *err)
{
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control = {{0}};
	struct iovec iov = {(void *)(uintptr_t)q, sizeof *q};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int fds[2] = {in_fd, out_fd};
	ssize_t n;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fds);
	memcpy(CMSG_DATA(c), fds, sizeof fds);
	do
		n = sendmsg(fd, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof *q ? 0
				       : hb_fail(err, "worker_died",
						 "the worker that encrypts is gone; restart "
						 "hermes-installer");
}

int hb_age_encrypt(int fd, int in_fd, int out_fd, struct hb_error *err)
{
	struct question q = {.id = hb_monotonic_ms() << 20 | (getpid() & 0xfffff)};
	struct answer a;
	ssize_t n;

	if (ask(fd, &q, in_fd, out_fd, err) < 0)
		return -1;
	do
		n = recv(fd, &a, sizeof a, 0);
	while ((n < 0 && errno == EINTR) || (n == (ssize_t)sizeof a && a.id != q.id));
	if (n != (ssize_t)sizeof a)
		return hb_fail(err, "worker_died",
			       "the worker that encrypts is gone; restart hermes-installer");
	a.said[SAID_MAX - 1] = '\0';
	return a.ok ? 0 : hb_fail(err, "age_failed", "age failed: %.250s", a.said);
}
