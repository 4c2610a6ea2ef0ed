/*
 * The tree that layers are applied to: every change to disk that a layer can cause is one of these
 * calls.
 *
 * Parents are resolved by openat2 with RESOLVE_IN_ROOT: a link in the way is followed as a process
 * inside the image would follow it, and can lead nowhere else. Last components are never followed.
 * Directories stay writable for the worker until hb_tree_finish, which gives them their modes and
 * times while it writes manifest.mtree.
 *
 * Errors: unsafe_path, bad_archive, limit_exceeded, disk_full, io_failed.
 */
#ifndef HB_INSTALLER_UNPACK_TREE_H
#define HB_INSTALLER_UNPACK_TREE_H

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "broker/installer/unpack.h"
#include "broker/installer/unpack_name.h"

struct hb_tree;

/* Creates rootfs/ in the staging directory; staging_fd is borrowed. */
int hb_tree_new(int staging_fd, const struct hb_unpack_limits *limits, struct hb_tree **out,
		struct hb_error *err);
void hb_tree_free(struct hb_tree *t);

/* Whiteouts and opaque markers hide only what is older than this. */
void hb_tree_begin_layer(struct hb_tree *t);

/* mode: 07777 without the bits the policy strips. A directory that exists keeps its content. */
int hb_tree_directory(struct hb_tree *t, const struct hb_name *name, mode_t mode,
		      struct timespec mtime, struct hb_error *err);
int hb_tree_symlink(struct hb_tree *t, const struct hb_name *name, const char *target,
		    struct timespec mtime, struct hb_error *err);
int hb_tree_hardlink(struct hb_tree *t, const struct hb_name *name, const struct hb_name *target,
		     struct hb_error *err);

/* A regular file: begin, any number of writes at growing offsets (gaps are holes), end. */
int hb_tree_file_begin(struct hb_tree *t, const struct hb_name *name, mode_t mode,
		       struct hb_error *err);
int hb_tree_file_write(struct hb_tree *t, const void *data, size_t len, uint64_t offset,
		       struct hb_error *err);
int hb_tree_file_end(struct hb_tree *t, uint64_t size, struct timespec mtime, struct hb_error *err);

/* Remove what stands under this name (a device takes its place, and devices are left out). */
int hb_tree_vacate(struct hb_tree *t, const struct hb_name *name, struct hb_error *err);
int hb_tree_whiteout(struct hb_tree *t, const struct hb_name *name, struct hb_error *err);
int hb_tree_opaque(struct hb_tree *t, const struct hb_name *name, struct hb_error *err);

/* Final modes and times, manifest.mtree, one sync of the file system. Fills digest and the counts
 * of the tree. */
int hb_tree_finish(struct hb_tree *t, struct hb_tree_info *info, struct hb_error *err);

#endif
