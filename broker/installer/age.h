/*
 * Encrypting a backup by the `age` program to runtime.age_recipients.
 *
 * The confined installer starts no programs, so a worker that can start exactly this one is forked
 * before it confines itself, and only when recipients are configured. It has the unpack worker's
 * uid, no network, and of the file system the program and its libraries; what it encrypts are two
 * descriptors that it is handed. It holds no key: recipients are public, and what decrypts is
 * nowhere on this host unless a person brings it.
 */
#ifndef HB_INSTALLER_AGE_H
#define HB_INSTALLER_AGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/config.h"
#include "common/error.h"

/* "age1..." or an SSH public key; nothing that age could take for an option. */
bool hb_age_is_recipient(const char *text);

/* No recipients: *fd is -1 and nothing is forked. Codes: bad_recipient, age_missing. */
int hb_age_fork(const struct hb_config *config, uid_t uid, gid_t gid, int *fd, pid_t *pid,
		struct hb_error *err);
/* Blocks until in_fd, from its present offset, is encrypted into out_fd. Codes: age_failed,
 * worker_died. */
int hb_age_encrypt(int fd, int in_fd, int out_fd, struct hb_error *err);

#endif
