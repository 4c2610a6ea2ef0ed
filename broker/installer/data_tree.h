/*
 * Copies of the payload's data directory. What is in there was written by the payload: nothing is
 * followed, nothing is executed, and it must be stopped. Sockets and fifos hold nothing and are
 * left out; a device is refused.
 */
#ifndef HB_INSTALLER_DATA_TREE_H
#define HB_INSTALLER_DATA_TREE_H

#include <stdint.h>

#include "common/error.h"

struct hb_data_size {
	uint64_t bytes; /* as they lie on disk */
	uint64_t entries;
};

/* Of everything below the directory; a tree that changes meanwhile is measured as it is met. It ends after
 * this many entries (0: never), so that what comes out is the least that it can be. */
int hb_data_measure(int fd, uint64_t entries_max, struct hb_data_size *out, struct hb_error *err);

/* Everything below `from` into the empty directory `to`, then owner, mode and times of `from`
 * itself. Blocks are shared where the file system can, holes stay holes, hard links between files
 * become files of their own. Nothing is synced. Codes: disk_full, copy_failed, data_too_deep,
 * data_unreadable. */
int hb_data_copy(int from, int to, struct hb_data_size *copied, struct hb_error *err);

#endif
