/* What unpack_tree.c, unpack_dirs.c, unpack_remove.c and unpack_finish.c share. */
#ifndef HB_INSTALLER_UNPACK_TREE_INTERNAL_H
#define HB_INSTALLER_UNPACK_TREE_INTERNAL_H

#include <stdbool.h>

#include "broker/installer/unpack_table.h"
#include "broker/installer/unpack_tree.h"

#define HB_DIR_CACHE 64

/* An open parent directory (O_PATH). */
struct hb_dir {
	char *path; /* as written in the layer, "" for the root */
	size_t len;
	uint64_t hash, used;
	int fd;
	uint64_t ino;
};

/* Record of a directory, by inode. */
struct hb_dir_meta {
	uint64_t ino;
	int64_t mtime;
	uint32_t mtime_ns;
	uint16_t mode;
	uint16_t path_len; /* of its real path, so that links cannot make paths that nobody can open
			    */
};

/* Record of a file's content, by inode. */
struct hb_file_sum {
	uint64_t ino;
	unsigned char sha256[32];
};

struct hb_tree {
	int staging_fd, root_fd; /* root_fd: O_PATH */
	struct hb_unpack_limits limits;
	struct hb_dir cache[HB_DIR_CACHE];
	struct hb_dir *last;
	uint64_t clock;
	struct hb_table dirs, sums;
	struct hb_table made; /* keys of the names this layer made, see hb_tree_key */
	uint64_t key_seed[2];

	/* the file being written */
	int file_fd;
	uint64_t file_at; /* hashed so far */
	struct hb_sha256 *file_hash;
	struct hb_shown file_name;
};

/* unpack_dirs.c */
/* The directory, valid until the next call; with `create` missing ones are made (0755). NULL and
 * code "" in err when it does not exist and is not to be made. */
struct hb_dir *hb_tree_dir(struct hb_tree *t, const char *path, size_t len, bool create,
			   struct hb_error *err);
/* A directory or link went away, so cached paths may lead elsewhere. The one looked up last stays
 * open. */
void hb_tree_forget_dirs(struct hb_tree *t);
int hb_tree_set_meta(struct hb_tree *t, uint64_t parent_ino, uint64_t ino, size_t name_len,
		     mode_t mode, struct timespec mtime, struct hb_error *err);
int hb_tree_check_depth(struct hb_tree *t, uint64_t parent_ino, const char *name,
			struct hb_error *err);

/* Names made by this layer are remembered by parent inode and name, not by inode: a hard link's
 * inode is older. */
int hb_tree_mark(struct hb_tree *t, uint64_t parent_ino, const char *name, struct hb_error *err);
bool hb_tree_is_marked(const struct hb_tree *t, uint64_t parent_ino, const char *name);
int hb_tree_out_of_memory(struct hb_error *err);

/* unpack_remove.c */
/* Remove one name; absent is success. older_only: what this layer made stays. */
int hb_tree_remove_name(struct hb_tree *t, int dirfd, uint64_t dir_ino, const char *name,
			bool older_only, struct hb_error *err);
int hb_tree_remove_content(struct hb_tree *t, int dirfd, struct hb_error *err);

#endif
