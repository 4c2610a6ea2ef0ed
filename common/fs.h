/*
 * File system helpers: everything is resolved below a directory descriptor, judged by descriptor
 * and made durable before it is believed.
 *
 * "Beneath" means openat2(2) with RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS|RESOLVE_NO_MAGICLINKS. dirfd
 * may be AT_FDCWD: every program runs with the state directory as its working directory (see
 * paths.h).
 */
#ifndef HB_COMMON_FS_H
#define HB_COMMON_FS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/buf.h"
#include "common/error.h"

int hb_fs_open_beneath(int dirfd, const char *path, int flags, mode_t mode, struct hb_error *err);

/* Whole file, at most `max` bytes (code too_large). */
int hb_fs_read(int dirfd, const char *path, size_t max, struct hb_buf *out, struct hb_error *err);

/* The same for a file that decides about something: hb_fs_check_trusted and the bytes come from one
 * descriptor. */
int hb_fs_read_trusted(int dirfd, const char *path, uid_t owner, size_t max, struct hb_buf *out,
		       struct hb_error *err);

/* A secret: regular file, one link, owned by `owner` or root, no group or other bits, 1..max bytes;
 * one trailing newline is dropped. Memory is sodium_malloc'ed and NUL-terminated; free with
 * hb_secret_free. Codes: secret_missing, secret_permissions (says the chmod/chown that mends it),
 * secret_empty, too_large. */
struct hb_secret {
	char *text;
	size_t len;
};
int hb_secret_read(int dirfd, const char *path, uid_t owner, size_t max, struct hb_secret *out,
		   struct hb_error *err);
/* The same for one that is delivered: the group `writer` may write it, and still not read it. */
int hb_secret_read_delivered(int dirfd, const char *path, uid_t owner, gid_t writer, size_t max,
			     struct hb_secret *out, struct hb_error *err);
void hb_secret_free(struct hb_secret *s);
/* Constant time in the length of the expected value. */
int hb_secret_equal(const struct hb_secret *s, const char *given);

/* Temporary file beside it, write, fsync, rename, fsync of the directory. uid/gid -1: leave. */
int hb_fs_write_atomic(int dirfd, const char *path, const void *data, size_t len, mode_t mode,
		       uid_t uid, gid_t gid, struct hb_error *err);

/* The same, but never replaces: code exists. */
int hb_fs_write_new(int dirfd, const char *path, const void *data, size_t len, mode_t mode,
		    uid_t uid, gid_t gid, struct hb_error *err);

/* Create every missing component 0755, the last one with mode/owner (and set them when it exists).
 */
int
hb_fs_mkdirs(int dirfd, const char *path, mode_t mode, uid_t uid, gid_t gid, struct hb_error *err);

/* Point the symbolic link `name` in dirfd at `target` by rename of a new link; directory synced. */
int hb_fs_link_switch(int dirfd, const char *name, const char *target, struct hb_error *err);
int hb_fs_sync_dir(int dirfd, const char *path, struct hb_error *err);

/* Remove a tree below dirfd without following any link. Absent is success. */
int hb_fs_remove_tree(int dirfd, const char *name, struct hb_error *err);

/* Bytes an unprivileged writer can still use on the file system that holds path, and its free
 * inodes. */
int
hb_fs_space(int dirfd, const char *path, uint64_t *bytes, uint64_t *inodes, struct hb_error *err);

/* Refuse a file that its group or others may write, or that neither root nor `owner` owns
 * (policy and bounds). Code: loose_permissions. */
int hb_fs_check_trusted(int fd, const char *name, uid_t owner, struct hb_error *err);

void hb_close(int *fd); /* closes when >= 0 and sets -1 */

#endif
