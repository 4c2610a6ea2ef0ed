/*
 * What ssh says of a connection (its -E log at DEBUG1), as far as it decides what is told: how far
 * the run got, and why it ended. ssh escapes what comes from the other side before it logs it, so
 * no server can write a line of these.
 */
#ifndef HB_SSH_LOG_H
#define HB_SSH_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

struct hb_ssh_log {
	char line[1024];
	size_t len;
	bool cut; /* the present line is longer than that: its rest is dropped */

	bool connected, authenticated, sent; /* the command was sent: from here on it may run */
	bool exit_seen, signal_seen;         /* the other side said that it ended */
	char verdict[32];                    /* code, "" for none yet; the first one stands */
	char detail[200];                    /* of the verdict, printable */
	char last[200];                      /* the last line that is no debugging */
};

void hb_ssh_log_feed(struct hb_ssh_log *log, const char *data, size_t len);

/* Where the command stands as seen from here, in one word: not_started, may_run, finished. */
const char *hb_ssh_log_far_side(const struct hb_ssh_log *log);

/* ssh has ended by itself with `status` (exit code, -1 for a signal). 0: the command ended there,
 * *returncode is its own. -1: codes host_key_changed, pin_missing, auth_failed, unreachable,
 * connection_lost (it was sent, what became of it is not known), remote_signal, ssh_failed. */
int hb_ssh_log_end(const struct hb_ssh_log *log, int status, const char *key_type, int *returncode,
		   struct hb_error *err);

#endif
