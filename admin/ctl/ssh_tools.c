/* Programs and the terminal for `hermesctl ssh profile` (ssh_profile.h). */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "admin/ctl/ssh_profile.h"
#include "policy/text.h"

#define LINE_MAX_BYTES 1024
#define OUTPUT_MAX (1u << 20)

static _Noreturn void exec_as(char *const argv[], uid_t uid, int out)
{
	char *const env[] = {(char *)"PATH=/usr/bin:/bin", (char *)"LC_ALL=C", NULL};
	int null = open("/dev/null", O_RDWR);

	if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(null, 2) < 0)
		_exit(127);
	close_range(3, ~0u, 0);
	/* What other hosts say is not read with root's power. */
	if (uid != geteuid() &&
	    (setgroups(0, NULL) < 0 || setresgid((gid_t)uid, (gid_t)uid, (gid_t)uid) < 0 ||
	     setresuid(uid, uid, uid) < 0))
		_exit(127);
	execve(argv[0], argv, env);
	_exit(127);
}

int ctl_ssh_program(char *const argv[], uid_t uid, struct hb_buf *out, struct hb_error *err)
{
	char piece[4096];
	int pipe_fd[2], status = 0;
	ssize_t n;
	pid_t pid;

	if (pipe2(pipe_fd, O_CLOEXEC) < 0)
		return hb_fail_errno(err, "no_worker", "a pipe can't be made");
	pid = fork();
	if (pid == 0)
		exec_as(argv, uid, pipe_fd[1]);
	close(pipe_fd[1]);
	while (pid > 0 &&
	       ((n = read(pipe_fd[0], piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)))
		if (n > 0 && out->len < OUTPUT_MAX)
			hb_buf_add(out, piece, (size_t)n);
	close(pipe_fd[0]);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return hb_fail_errno(err, "no_worker", "%s can't be started", argv[0]);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return hb_fail(err, "program_missing",
			       "%s can't be started: install the package openssh-client", argv[0]);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return hb_fail(err, "program_failed", "%s failed (status %d)", argv[0], status);
	return 0;
}

int ctl_ssh_scan(const char *host, int port, struct hb_ssh_host_key *keys, size_t *count,
		 struct hb_error *err)
{
	char number[16];
	char *const argv[] = {(char *)"/usr/bin/ssh-keyscan",
			      (char *)"-T",
			      (char *)"10",
			      (char *)"-p",
			      number,
			      (char *)"-t",
			      (char *)"ed25519,ecdsa,rsa",
			      (char *)"--",
			      (char *)(uintptr_t)host,
			      NULL};
	struct hb_buf out = HB_BUF_INIT;
	struct hb_error why = {0};
	char *save = NULL;
	int rc;

	if (!hb_host_name(host))
		return hb_fail(err, "bad_host",
			       "that is not the name or numeric address of a host");
	snprintf(number, sizeof number, "%d", port);
	rc = ctl_ssh_program(argv, hb_peer_uid(HB_PEER_SSH), &out, &why);
	*count = 0;
	for (char *line = out.data ? strtok_r(out.data, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save))
		if (*count < CTL_SSH_KEYS_MAX && hb_ssh_scanned_key(line, &keys[*count]))
			++*count;
	hb_buf_free(&out);
	if (rc < 0 && strcmp(why.code, "program_failed") != 0) {
		*err = why;
		return -1;
	}
	return *count ? 0
		      : hb_fail(err, "unreachable",
				"no host key came from %s, port %d: is an SSH server there?", host,
				port);
}

int ctl_ssh_ask(struct ctl *c, const char *question, bool hidden, struct hb_secret *out,
		struct hb_error *err)
{
	struct termios before, quiet;
	int tty = c->no_input || !isatty(STDIN_FILENO)
			  ? -1
			  : open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	size_t len = 0;
	bool ended = false;
	char *text;

	if (tty < 0)
		return hb_fail(err, "no_terminal",
			       "this is asked in a terminal only, and there is none");
	if (sodium_init() < 0 || !(text = sodium_malloc(LINE_MAX_BYTES + 1)) ||
	    tcgetattr(tty, &before) < 0) {
		hb_close(&tty);
		return hb_fail(err, "no_terminal", "the terminal can't be used");
	}
	quiet = before;
	quiet.c_lflag &= ~(tcflag_t)ECHO;
	if (hidden)
		tcsetattr(tty, TCSAFLUSH, &quiet);
	dprintf(tty, "%s ", question);
	while (!ended && len < LINE_MAX_BYTES && read(tty, text + len, 1) == 1) {
		ended = text[len] == '\n';
		len += !ended;
	}
	if (hidden) {
		tcsetattr(tty, TCSAFLUSH, &before);
		dprintf(tty, "\n");
	}
	hb_close(&tty);
	text[len] = '\0';
	if (ended && len > 0 && strlen(text) == len) {
		*out = (struct hb_secret){text, len};
		return 0;
	}
	sodium_free(text);
	return hb_fail(err, "no_answer", "nothing that can be used was typed");
}
