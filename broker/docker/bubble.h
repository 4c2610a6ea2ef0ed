/*
 * Local commands without Docker: bubblewrap, in user namespaces, for the uid of the executor alone.
 *
 * A process confined by Landlock may not mount, and its filter allows no exec, so a runner is
 * forked before the executor confines itself. It can do one thing: start bubblewrap with the
 * settings of hermes.conf, as they were when it was forked, around a command that a worker hands
 * it; and end it when the worker closes its control socket or dies.
 *
 *   worker --(SEQPACKET: one JSON object; descriptors: output, errors, control)--> runner
 *   runner forks a keeper, which starts bubblewrap and watches it
 *   keeper --(control: one JSON line)--> worker
 *          {"exit":N}, or {"error":..,"code":..} when nothing was run
 *
 * Inside: the release's root read-only, own /proc, /dev and /tmp, the workspace writable, uid and
 * gid 10002, no capabilities, no network, no further user namespaces. Where the kernel denies any
 * of it nothing is run at all.
 */
#ifndef HB_DOCKER_BUBBLE_H
#define HB_DOCKER_BUBBLE_H

#include <jansson.h>

#include "broker/docker/docker.h"

/* Before confinement. Sets d->runner_fd and d->runner_pid. */
int hb_bubble_start_runner(struct hb_docker *d, struct hb_error *err);
/* The runner's main loop; never returns. */
void hb_bubble_runner(int fd, const struct hb_config *config) __attribute__((noreturn));

/* In a worker: can commands be kept apart here? Codes: sandbox_unavailable, sandbox_helper_missing.
 */
int hb_bubble_check(struct hb_worker *w, struct hb_error *err);
/* In a worker: a sealed local operation. */
int hb_bubble_work(struct hb_worker *w, json_t **result, struct hb_error *err);

/* --- between the runner's files --- */

struct hb_bubble_job {
	const struct hb_config *config;
	const char *command, *workdir;
	bool net_raw;
	long long seconds;
	int out, error, control; /* descriptors */
	char cgroup[512];        /* of this run; "" without */
};

/* bubble_keeper.c: start, watch, end one; reports on job->control. */
void hb_bubble_keep(struct hb_bubble_job *job);
/* bubble_why.c: the program, or NULL; and which permission is missing when it could not build the
 * sandbox. Only the runner and what it forks may ask: the executor's own filter would end it. */
const char *hb_bubble_program(void);
void hb_bubble_why(struct hb_error *err);
/* Descriptors that bubblewrap is given, as numbers. */
struct hb_bubble_fds {
	int status, block, filter;
};
/* bubble_args.c: bubblewrap's options in a file for --args; its descriptor, or -1. */
int hb_bubble_args(const struct hb_bubble_job *job, const struct hb_bubble_fds *fds,
		   struct hb_error *err);
/* bubble_filter.c: what a command may not call, as a BPF program in a file for --seccomp; its
 * descriptor, or -1. */
int hb_bubble_filter(struct hb_error *err);
/* bubble_cgroup.c: a cgroup of its own when local.cgroup is set. Code sandbox_no_cgroup. */
int hb_bubble_cgroup_make(struct hb_bubble_job *job, struct hb_error *err);
void hb_bubble_cgroup_end(struct hb_bubble_job *job);

#endif
