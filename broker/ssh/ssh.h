/* The state of the ssh executor. Only its own loop touches it; workers get copies by fork. */
#ifndef HB_BROKER_SSH_SSH_H
#define HB_BROKER_SSH_SSH_H

#include <event2/event.h>

#include "common/process.h"
#include "policy/executor.h"

struct hb_ssh {
	struct hb_process *process;
	struct hb_executor *executor;
	int starter_fd;
	pid_t starter_pid;
	struct event *starter_end;
};

extern const struct hb_program hb_ssh_program;
extern const struct hb_route hb_ssh_routes[];
extern const size_t hb_ssh_route_count;

/* work.c: an approved operation, in a worker. */
int hb_ssh_work(struct hb_worker *w, json_t **result, struct hb_error *err);

#endif
