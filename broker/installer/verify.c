/*
 * Verification: the manifest and the tree are walked side by side, in the one order both have
 * (walk.h).
 *
 * What only one of them has shows at once, and nothing of either is held in memory but the current
 * line. The walk compares what lstat tells; contents are read and hashed by two threads fed through
 * a short queue of open descriptors.
 */
#include "broker/installer/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/installer/mtree.h"
#include "broker/installer/unpack_table.h"
#include "broker/installer/verify_hash.h"
#include "broker/installer/walk.h"
#include "common/fs.h"

#define REPORT_EVERY 512

/* Which inode a group of the manifest was seen at, or which group an inode belongs to. */
struct pairing {
	uint64_t key, other;
};

struct verify {
	struct hb_mtree_reader *reader;
	struct hb_mtree_entry want;
	bool has_want;
	struct hb_table by_group, by_inode;
	struct hb_verify_hash *hash;
	uid_t owner;
	void (*progress)(uint64_t files, uint64_t bytes, void *arg);
	void *arg;
	struct hb_verify_result *out;
	uint64_t visited;
};

static void differ(struct verify *v, const char *path, const char *what, const char *expected,
		   const char *found)
{
	hb_verify_difference(v->hash, path, what, expected, found);
}

static int next_line(struct verify *v, struct hb_error *err)
{
	int rc = hb_mtree_read(v->reader, &v->want, err);

	v->has_want = rc > 0;
	return rc < 0 ? -1 : 0;
}

static const char *type_name(mode_t mode)
{
	return S_ISDIR(mode)   ? "directory"
	       : S_ISLNK(mode) ? "link"
	       : S_ISREG(mode) ? "file"
			       : "special file";
}

static void compare_text(struct verify *v, const char *what, const char *want, const char *found)
{
	if (strcmp(want, found) != 0)
		differ(v, v->want.path, what, want, found);
}

static void compare_numbers(struct verify *v, const char *what, uint64_t want, uint64_t found)
{
	char a[24], b[24];

	snprintf(a, sizeof(a), "%llu", (unsigned long long)want);
	snprintf(b, sizeof(b), "%llu", (unsigned long long)found);
	compare_text(v, what, a, b);
}

static void compare_mode(struct verify *v, mode_t found)
{
	char a[24], b[24];

	snprintf(a, sizeof(a), "%04o", (unsigned)(v->want.mode & 07777));
	snprintf(b, sizeof(b), "%04o", (unsigned)(found & 07777));
	compare_text(v, "mode", a, b);
}

static void compare_time(struct verify *v, const struct stat *st)
{
	char a[48], b[48];

	snprintf(a, sizeof(a), "%lld.%09u", (long long)v->want.mtime, (unsigned)v->want.mtime_ns);
	snprintf(b, sizeof(b), "%lld.%09u", (long long)st->st_mtim.tv_sec,
		 (unsigned)st->st_mtim.tv_nsec);
	compare_text(v, "time", a, b);
}

static int pair(struct hb_table *t, uint64_t key, uint64_t other, bool *same, struct hb_error *err)
{
	struct pairing *p = hb_table_put(t, key);

	if (p == NULL)
		return hb_fail(err, "limit_exceeded", "no memory for the tree's hard links");
	if (p->other == 0)
		p->other = other;
	*same = p->other == other;
	return 0;
}

/* Names the manifest groups must be one inode, and others must not be. */
static int compare_group(struct verify *v, const struct stat *st, struct hb_error *err)
{
	bool same_inode = true, same_group = true;

	compare_numbers(v, "names", v->want.nlink > 1 ? v->want.nlink : 1, st->st_nlink);
	if (v->want.group == 0)
		return 0;
	if (pair(&v->by_group, v->want.group, st->st_ino, &same_inode, err) < 0 ||
	    pair(&v->by_inode, st->st_ino, v->want.group, &same_group, err) < 0)
		return -1;
	if (!same_inode || !same_group)
		differ(v, v->want.path, "hard link", "the same file as before", "another file");
	return 0;
}

static int compare_link(struct verify *v, const struct hb_walk_entry *e, struct hb_error *err)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(e->dirfd, e->name, target, sizeof(target) - 1);

	if (n < 0)
		return hb_fail_errno(err, "io_failed", "a link of the tree cannot be read");
	target[n] = '\0';
	compare_text(v, "target", v->want.link, target);
	return 0;
}

static int compare_file(struct verify *v, const struct hb_walk_entry *e, struct hb_error *err)
{
	int fd;

	compare_numbers(v, "size", v->want.size, (uint64_t)e->st.st_size);
	if ((uint64_t)e->st.st_size != v->want.size)
		return 0;
	fd = openat(e->dirfd, e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return hb_fail_errno(err, "io_failed", "a file of the tree cannot be opened");
	hb_verify_hash_add(v->hash, fd, v->want.path, v->want.size, v->want.sha256);
	return 0;
}

static int compare(struct verify *v, const struct hb_walk_entry *e, struct hb_error *err)
{
	const struct stat *st = &e->st;

	if ((st->st_mode & S_IFMT) != (v->want.mode & S_IFMT)) {
		differ(v, v->want.path, "type", type_name(v->want.mode), type_name(st->st_mode));
		return 0;
	}
	compare_mode(v, st->st_mode);
	compare_numbers(v, "owner", v->owner, st->st_uid);
	compare_time(v, st);
	if (S_ISDIR(st->st_mode))
		return 0;
	if (compare_group(v, st, err) < 0)
		return -1;
	return S_ISLNK(st->st_mode) ? compare_link(v, e, err) : compare_file(v, e, err);
}

static int skip_missing(struct verify *v, struct hb_error *err)
{
	differ(v, v->want.path, "missing", type_name(v->want.mode), "nothing");
	return next_line(v, err);
}

static int visit(struct hb_walk_entry *e, void *arg, struct hb_error *err)
{
	struct verify *v = arg;
	int order = 1, rc;

	if (v->progress != NULL && ++v->visited % REPORT_EVERY == 0) {
		hb_verify_hash_progress(v->hash, &v->out->files, &v->out->bytes);
		v->progress(v->out->files, v->out->bytes, v->arg);
	}
	while (v->has_want && (order = hb_mtree_compare(v->want.path, e->path)) < 0)
		if (skip_missing(v, err) < 0)
			return -1;
	if (!v->has_want || order > 0) {
		differ(v, e->path, "extra", "nothing", type_name(e->st.st_mode));
		return 1; /* one line for a whole foreign directory */
	}
	rc = compare(v, e, err);
	return rc < 0 || next_line(v, err) < 0 ? -1 : 0;
}

static int compare_trees(struct verify *v, int root, struct hb_error *err)
{
	if (next_line(v, err) < 0 || hb_walk(root, visit, NULL, v, err) < 0)
		return -1;
	while (v->has_want)
		if (skip_missing(v, err) < 0)
			return -1;
	return 0;
}

static int open_both(int release_fd, int *root, int *manifest, struct hb_error *err)
{
	*root = hb_fs_open_beneath(release_fd, "rootfs", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0,
				   err);
	if (*root < 0)
		return -1;
	*manifest = hb_fs_open_beneath(release_fd, "manifest.mtree", O_RDONLY | O_CLOEXEC, 0, err);
	return *manifest < 0 ? -1 : 0;
}

int hb_tree_verify(int release_fd, const char *expected_tree_digest, uid_t owner,
		   void (*progress)(uint64_t files, uint64_t bytes, void *arg), void *arg,
		   struct hb_verify_result *out, struct hb_error *err)
{
	struct hb_verify_result result = {0};
	struct verify v = {.owner = owner, .progress = progress, .arg = arg, .out = &result};
	int root = -1, manifest = -1, rc = -1;

	hb_table_init(&v.by_group, sizeof(struct pairing));
	hb_table_init(&v.by_inode, sizeof(struct pairing));
	if (open_both(release_fd, &root, &manifest, err) < 0 ||
	    hb_verify_hash_start(&v.hash, err) < 0)
		goto out;
	v.reader = hb_mtree_reader_new(manifest);
	if (compare_trees(&v, root, err) < 0)
		goto out;
	hb_mtree_reader_digest(v.reader, result.tree_digest);
	if (expected_tree_digest[0] != '\0' &&
	    strcmp(expected_tree_digest, result.tree_digest) != 0)
		differ(&v, "manifest.mtree", "digest", expected_tree_digest, result.tree_digest);
	rc = hb_verify_hash_end(v.hash, err);
	hb_verify_hash_progress(v.hash, &result.files, &result.bytes);
	result.difference_count = hb_verify_differences(v.hash, &result.differences);
	result.ok = result.difference_count == 0;
	if (rc == 0)
		*out = result;
	else
		json_decref(result.differences);
out:
	hb_verify_hash_free(v.hash);
	hb_mtree_reader_free(v.reader);
	hb_table_free(&v.by_group);
	hb_table_free(&v.by_inode);
	hb_close(&manifest);
	hb_close(&root);
	return rc;
}
