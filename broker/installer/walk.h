/*
 * Walk a tree that nobody else changes, by descriptors, in the one order every part agrees on.
 *
 * Names of one directory are visited in byte order, a directory before what is in it and its
 * content before its next sibling. (That is the byte order of paths if "/" sorted below every other
 * byte.) Links are never followed. Trees of any depth are walked with a bounded number of
 * descriptors; memory is the names of the directories on the way down.
 */
#ifndef HB_INSTALLER_WALK_H
#define HB_INSTALLER_WALK_H

#include <sys/stat.h>

#include "common/error.h"

struct hb_walk_entry {
	int dirfd;        /* where it lies; -1 for the top */
	const char *name; /* "." for the top */
	const char *path; /* "./usr/bin/env"; "." for the top */
	struct stat st;   /* by lstat */
	int fd;           /* directories: open for reading; else -1 */
};

/* Called for every entry; for directories before they are read. 0 goes on, 1 leaves a directory's
 * content out, -1 fails. */
typedef int (*hb_walk_visit)(struct hb_walk_entry *e, void *arg, struct hb_error *err);
/* Called for a directory after its content; may be NULL. st is as it was on the way down. */
typedef int (*hb_walk_leave)(struct hb_walk_entry *e, void *arg, struct hb_error *err);

/* top: a directory open for reading, borrowed. */
int hb_walk(int top, hb_walk_visit visit, hb_walk_leave leave, void *arg, struct hb_error *err);

#endif
