/*
 * One run of ssh: what a worker of the executor asks of the starter, and what it gets back.
 *
 *   executor --fork--> worker: checks the profile, makes sealed memory files of key and credential
 *   starter  --fork--> session: its own Landlock domain, starts ssh, ends its whole tree, says how
 * it ended
 *
 * The starter and its sessions take no command line from anybody: a session makes it itself from
 * the fields below, each checked again. One packet a run, JSON, with these descriptors:
 */
#ifndef HB_SSH_RUN_H
#define HB_SSH_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

enum hb_run_fd {
	HB_RUN_SESSION, /* to the worker: "stop" from it, the end to it; its closing is a stop too
			 */
	HB_RUN_OUTPUT,  /* what the command prints, both streams in their order */
	HB_RUN_LOG,     /* what ssh says of the connection */
	HB_RUN_KNOWN_HOSTS, /* sealed memory: the pinned key under the name HB_HOST_ALIAS */
	HB_RUN_CREDENTIAL,  /* sealed memory: identity or password */
	HB_RUN_CERTIFICATE, /* sealed memory, only with `certificate` */
	HB_RUN_FDS
};

#define HB_RUN_PACKET_MAX \
	163840 /* a command of 4,000 quotes of four bytes, quoted and escaped, is 100 KB */
#define HB_HOST_ALIAS \
	"pinned" /* the name keys are looked up by: names and addresses of hosts play no part */
#define HB_SSH_PROGRAM "/usr/bin/ssh"

struct hb_run_order {
	const char *host, *user, *auth, *key_type, *command;
	long long port, connect_timeout; /* seconds */
	bool certificate;
};

/* In a worker. fds as above; they stay the caller's. Code starter_gone. */
int hb_run_send(int starter, const struct hb_run_order *order, const int fds[HB_RUN_FDS],
		struct hb_error *err);
/* In the starter: 1, 0 when every sender is gone, -1 for a packet that is none (its descriptors are
 * closed). Strings borrow from *body, a new reference. */
int hb_run_receive(int fd, json_t **body, struct hb_run_order *order, int fds[HB_RUN_FDS],
		   struct hb_error *err);

/* Arguments of ssh, NULL-terminated; free with hb_run_arguments_free. `pid` is the session, below
 * whose /proc/PID/fd the memory files are found. Code order_invalid: a field isn't what its grammar
 * says. */
char **hb_run_arguments(const struct hb_run_order *order, pid_t pid, const int fds[HB_RUN_FDS],
			struct hb_error *err);
void hb_run_arguments_free(char **argv);

/* Programs that are carried inside this one, as sealed memory files: the directory it was installed
 * in may be closed to the executor's uid. */
struct hb_run_helpers {
	int askpass, account;
};
int hb_run_helpers_open(struct hb_run_helpers *out, struct hb_error *err);

/* A read-only memory file with these bytes. */
int hb_memory_file(const char *name, const void *data, size_t len, mode_t mode,
		   struct hb_error *err);

/* Fork the starter, before the executor confines itself. *fd is what workers send to; its end of
 * file means that the starter is gone. Code worker_failed. */
int hb_starter_fork(bool degraded_ok, int *fd, pid_t *pid, struct hb_error *err);

/* The session; never returns. */
void hb_session_main(const struct hb_run_order *order, int fds[HB_RUN_FDS],
		     const struct hb_run_helpers *helpers, pid_t starter, bool degraded_ok)
	__attribute__((noreturn));

/* What a session may reach, and with `with_proc` its starter. */
struct hb_sandbox;
void hb_session_sandbox(struct hb_sandbox *box, bool with_proc);

#endif
