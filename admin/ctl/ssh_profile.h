/* Pieces of `hermesctl ssh profile ...`: programs, terminal, files. */
#ifndef HB_ADMIN_CTL_SSH_PROFILE_H
#define HB_ADMIN_CTL_SSH_PROFILE_H

#include "admin/ctl/ctl.h"
#include "common/fs.h"
#include "policy/ssh_profile.h"

#define CTL_SSH_KEYS_MAX 8

/* ssh_tools.c */

/* The keys that a host shows, asked by ssh-keyscan as the executor's uid. Code unreachable when
 * there are none. */
int ctl_ssh_scan(const char *host, int port, struct hb_ssh_host_key *keys, size_t *count,
		 struct hb_error *err);
/* Start a program with these arguments and no environment, as uid (its gid too); standard output
 * into `out`. */
int ctl_ssh_program(char *const argv[], uid_t uid, struct hb_buf *out, struct hb_error *err);
/* One line from the terminal, NUL-terminated; hidden: without echo. The text is a hb_secret. Code
 * no_terminal. */
int ctl_ssh_ask(struct ctl *c, const char *question, bool hidden, struct hb_secret *out,
		struct hb_error *err);

/* ssh_files.c: a profile's directory `dir`; files are made 0600 for the executor, synced. */
int ctl_ssh_write(int dir, const char *name, const void *data, size_t len, struct hb_error *err);
int ctl_ssh_write_json(int dir, const struct hb_ssh_profile *p, struct hb_error *err);
int ctl_ssh_write_key(int dir, const struct hb_ssh_profile *p, const struct hb_ssh_host_key *key,
		      struct hb_error *err);
/* -1: unknown or unreadable. */
int ctl_ssh_open(const char *name, struct hb_ssh_profile *p, struct hb_error *err);

#endif
