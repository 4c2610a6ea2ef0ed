/*
 * The payload's process tree: everything that descends from the runner, found and ended without touching anything else.
 *
 * The runner is a child subreaper, so whoever loses its parent (daemons, setsid) becomes its child: when it has no child
 * left, the tree is gone. Processes are signalled by pidfd, after their start time was seen unchanged. Where a
 * cgroup2 hierarchy is writable the tree also lives in a group of its own, which ends a fork bomb in one write
 * and lets a new runner find what an old one left.
 */
#ifndef HB_INSTALLER_RUNNER_TREE_H
#define HB_INSTALLER_RUNNER_TREE_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

struct hb_tree {
	int group_fd; /* directory of the control group, -1 when there is none */
	char group_path[512];
};

/* Finds the hierarchy and makes the group hermes-<host id>-runtime below the caller's own; without one: group_fd -1. */
void hb_tree_open(struct hb_tree *tree, const char *host_id);
void hb_tree_close(struct hb_tree *tree); /* removes the group when it is empty */
/* For the child, before it executes: moves the calling process into the group. */
void hb_tree_enter(const struct hb_tree *tree);

/* Signal every descendant of the calling process; returns how many there were. */
int hb_tree_signal(const struct hb_tree *tree, int sig);

/* What an earlier runner of this host id left behind (by the group, or by uid and HERMES_INSTANCE in the environment) is
 * ended: SIGTERM, up to grace_ms, SIGKILL. Needs CAP_SYS_PTRACE to read environments. Returns how many there were. */
int hb_tree_end_leftovers(const struct hb_tree *tree, const char *host_id, uid_t uid, int grace_ms);

#endif
