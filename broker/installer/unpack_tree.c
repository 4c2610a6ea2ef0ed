/* Creating entries: directories, links, hard links, files. */
#include "broker/installer/unpack_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/unpack_tree_internal.h"
#include "common/buf.h"
#include "common/fs.h"

#define ROOTFS "rootfs"
#define LINK_TEMP "link.tmp" /* in the staging directory, where no layer can name it */

int hb_tree_new(int staging_fd, const struct hb_unpack_limits *limits, struct hb_tree **out,
		struct hb_error *err)
{
	struct hb_tree *t = hb_calloc(1, sizeof(*t));
	struct stat st;

	t->staging_fd = staging_fd;
	t->limits = *limits;
	t->file_fd = t->root_fd = -1;
	hb_table_init(&t->dirs, sizeof(struct hb_dir_meta));
	hb_table_init(&t->sums, sizeof(struct hb_file_sum));
	hb_table_init(&t->made, sizeof(uint64_t));
	t->file_hash = hb_sha256_new();
	if (getrandom(t->key_seed, sizeof(t->key_seed), 0) != sizeof(t->key_seed) ||
	    mkdirat(staging_fd, ROOTFS, 0700) < 0) {
		hb_fail_errno(err, "io_failed",
			      "the directory " ROOTFS " cannot be made in the staging directory");
		goto out;
	}
	t->root_fd = openat(staging_fd, ROOTFS, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (t->root_fd < 0 || fstat(t->root_fd, &st) < 0) {
		hb_fail_errno(err, "io_failed", "the directory " ROOTFS " cannot be opened");
		goto out;
	}
	if (hb_tree_set_meta(t, 0, st.st_ino, 0, 0755, (struct timespec){0}, err) < 0)
		goto out;
	*out = t;
	return 0;
out:
	hb_tree_free(t);
	return -1;
}

void hb_tree_free(struct hb_tree *t)
{
	if (t == NULL)
		return;
	t->last = NULL;
	hb_tree_forget_dirs(t);
	hb_close(&t->root_fd);
	hb_close(&t->file_fd);
	hb_table_free(&t->dirs);
	hb_table_free(&t->sums);
	hb_table_free(&t->made);
	hb_sha256_free(t->file_hash);
	free(t);
}

void hb_tree_begin_layer(struct hb_tree *t)
{
	hb_table_clear(&t->made);
}

static int failed(const char *what, const struct hb_name *name, struct hb_error *err)
{
	struct hb_shown shown;

	if (errno == ENAMETOOLONG)
		return hb_fail(err, "limit_exceeded",
			       "the name \"%s\" is too long for the file system",
			       hb_name_show(name->leaf, &shown));
	return hb_fail_errno(err, "io_failed", "%s \"%s\" cannot be made", what,
			     hb_name_show(name->leaf, &shown));
}

/* The parent, made if missing, with the entry's final path checked for length. */
static struct hb_dir *parent_of(struct hb_tree *t, const struct hb_name *name, struct hb_error *err)
{
	struct hb_dir *d = hb_tree_dir(t, name->parent, name->parent_len, true, err);

	return d != NULL && hb_tree_check_depth(t, d->ino, name->leaf, err) == 0 ? d : NULL;
}

static int remove_old(struct hb_tree *t, struct hb_dir *d, const struct hb_name *name,
		      struct hb_error *err)
{
	return hb_tree_remove_name(t, d->fd, d->ino, name->leaf, false, err);
}

static int directory_meta(struct hb_tree *t, struct hb_dir *d, const struct hb_name *name,
			  mode_t mode, struct timespec mtime, struct hb_error *err)
{
	struct stat st;

	if (fstatat(d->fd, name->leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return failed("directory", name, err);
	if (hb_tree_set_meta(t, d->ino, st.st_ino, strlen(name->leaf), mode, mtime, err) < 0)
		return -1;
	return hb_tree_mark(t, d->ino, name->leaf, err);
}

static int root_meta(struct hb_tree *t, mode_t mode, struct timespec mtime, struct hb_error *err)
{
	struct stat st;

	if (fstat(t->root_fd, &st) < 0)
		return hb_fail_errno(err, "io_failed", "the root of the tree cannot be examined");
	return hb_tree_set_meta(t, 0, st.st_ino, 0, mode, mtime, err);
}

int hb_tree_directory(struct hb_tree *t, const struct hb_name *name, mode_t mode,
		      struct timespec mtime, struct hb_error *err)
{
	struct hb_dir *d;
	struct stat st;

	if (name->kind == HB_NAME_ROOT)
		return root_meta(t, mode, mtime, err);
	d = parent_of(t, name, err);
	if (d == NULL)
		return -1;
	if (mkdirat(d->fd, name->leaf, 0700) == 0)
		return directory_meta(t, d, name, mode, mtime, err);
	if (errno != EEXIST || fstatat(d->fd, name->leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return failed("directory", name, err);
	if (!S_ISDIR(st.st_mode)) {
		if (remove_old(t, d, name, err) < 0)
			return -1;
		if (mkdirat(d->fd, name->leaf, 0700) < 0)
			return failed("directory", name, err);
	}
	return directory_meta(t, d, name, mode, mtime, err);
}

int hb_tree_symlink(struct hb_tree *t, const struct hb_name *name, const char *target,
		    struct timespec mtime, struct hb_error *err)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, mtime};
	struct hb_dir *d = parent_of(t, name, err);
	struct hb_shown shown;
	int rc;

	if (d == NULL)
		return -1;
	if (target[0] == '\0' || strlen(target) > t->limits.path_bytes)
		return hb_fail(err, target[0] == '\0' ? "bad_archive" : "limit_exceeded",
			       "the link \"%s\" has a target of %zu bytes, allowed are 1 to %u",
			       hb_name_show(name->leaf, &shown), strlen(target),
			       t->limits.path_bytes);
	rc = symlinkat(target, d->fd, name->leaf);
	if (rc < 0 && errno == EEXIST) {
		if (remove_old(t, d, name, err) < 0)
			return -1;
		rc = symlinkat(target, d->fd, name->leaf);
	}
	if (rc < 0 || utimensat(d->fd, name->leaf, times, AT_SYMLINK_NOFOLLOW) < 0)
		return failed("link", name, err);
	return hb_tree_mark(t, d->ino, name->leaf, err);
}

/* The old entry may be the target itself or a directory that holds it: link first, then remove,
 * then move into place. */
static int replace_by_link(struct hb_tree *t, int target_dir, const char *target, struct hb_dir *d,
			   const struct hb_name *name, struct hb_error *err)
{
	if (linkat(target_dir, target, t->staging_fd, LINK_TEMP, 0) < 0)
		return failed("hard link", name, err);
	if (remove_old(t, d, name, err) < 0)
		return -1;
	if (renameat(t->staging_fd, LINK_TEMP, d->fd, name->leaf) < 0)
		return failed("hard link", name, err);
	return 0;
}

static int link_to(struct hb_tree *t, int target_dir, const struct hb_name *name,
		   const struct hb_name *target, struct hb_error *err)
{
	struct hb_dir *d = parent_of(t, name, err);
	struct hb_shown shown;

	if (d == NULL)
		return -1;
	/* Without AT_SYMLINK_FOLLOW: a link as target is linked itself. Nothing is changed on the
	 * inode. */
	if (linkat(target_dir, target->leaf, d->fd, name->leaf, 0) == 0)
		return hb_tree_mark(t, d->ino, name->leaf, err);
	switch (errno) {
	case EEXIST:
		if (replace_by_link(t, target_dir, target->leaf, d, name, err) < 0)
			return -1;
		return hb_tree_mark(t, d->ino, name->leaf, err);
	case EPERM:
	case ENOENT:
		return hb_fail(err, "bad_archive",
			       "the hard link \"%s\" has a target that is %s the image",
			       hb_name_show(name->leaf, &shown),
			       errno == EPERM ? "a directory of" : "not in");
	default:
		return failed("hard link", name, err);
	}
}

int hb_tree_hardlink(struct hb_tree *t, const struct hb_name *name, const struct hb_name *target,
		     struct hb_error *err)
{
	struct hb_error why = {0};
	struct hb_dir *d = hb_tree_dir(t, target->parent, target->parent_len, false, &why);
	struct hb_shown shown;
	struct stat st;
	int target_dir, rc;

	if (d == NULL && why.code[0] != '\0') {
		if (err != NULL)
			*err = why;
		return -1;
	}
	/* Checked before anything is replaced. */
	if (d == NULL || fstatat(d->fd, target->leaf, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    S_ISDIR(st.st_mode))
		return hb_fail(err, "bad_archive",
			       "the hard link \"%s\" has a target that is no file of the image",
			       hb_name_show(name->leaf, &shown));
	target_dir = fcntl(d->fd, F_DUPFD_CLOEXEC, 3);
	if (target_dir < 0)
		return failed("hard link", name, err);
	rc = link_to(t, target_dir, name, target, err);
	hb_close(&target_dir);
	return rc;
}

int hb_tree_file_begin(struct hb_tree *t, const struct hb_name *name, mode_t mode,
		       struct hb_error *err)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	struct hb_dir *d = parent_of(t, name, err);
	int fd;

	if (d == NULL)
		return -1;
	fd = openat(d->fd, name->leaf, flags, mode);
	if (fd < 0 && errno == EEXIST) {
		if (remove_old(t, d, name, err) < 0)
			return -1;
		fd = openat(d->fd, name->leaf, flags, mode);
	}
	if (fd < 0)
		return failed("file", name, err);
	t->file_fd = fd;
	t->file_at = 0;
	hb_sha256_reset(t->file_hash);
	hb_name_show(name->leaf, &t->file_name);
	return hb_tree_mark(t, d->ino, name->leaf, err);
}

static void hash_zeros(struct hb_tree *t, uint64_t upto)
{
	static const unsigned char zeros[65536];
	size_t n;

	for (; t->file_at < upto; t->file_at += n) {
		n = upto - t->file_at < sizeof(zeros) ? (size_t)(upto - t->file_at) : sizeof(zeros);
		hb_sha256_update(t->file_hash, zeros, n);
	}
}

int hb_tree_file_write(struct hb_tree *t, const void *data, size_t len, uint64_t offset,
		       struct hb_error *err)
{
	const unsigned char *bytes = data;
	size_t done = 0;
	ssize_t n;

	if (offset < t->file_at || offset + len < offset || offset + len > t->limits.file_bytes)
		return hb_fail(err, "bad_archive",
			       "the content of \"%s\" overlaps itself or is too large",
			       t->file_name.text);
	hash_zeros(t, offset);
	while (done < len) {
		n = pwrite(t->file_fd, bytes + done, len - done, (off_t)(offset + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return hb_fail_errno(err, "io_failed", "\"%s\" cannot be written",
					     t->file_name.text);
		done += (size_t)n;
	}
	hb_sha256_update(t->file_hash, bytes, len);
	t->file_at = offset + len;
	return 0;
}

int hb_tree_file_end(struct hb_tree *t, uint64_t size, struct timespec mtime, struct hb_error *err)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, mtime};
	struct hb_file_sum *sum;
	struct stat st;

	if (size < t->file_at)
		return hb_fail(err, "bad_archive", "\"%s\" has more content than its header says",
			       t->file_name.text);
	if (size > t->file_at) {
		hash_zeros(t, size);
		if (ftruncate(t->file_fd, (off_t)size) < 0)
			return hb_fail_errno(err, "io_failed", "\"%s\" cannot be extended",
					     t->file_name.text);
	}
	if (futimens(t->file_fd, times) < 0 || fstat(t->file_fd, &st) < 0)
		return hb_fail_errno(err, "io_failed", "\"%s\" cannot be finished",
				     t->file_name.text);
	hb_close(&t->file_fd);
	if (size == 0)
		return 0;
	sum = hb_table_put(&t->sums, st.st_ino);
	if (sum == NULL)
		return hb_tree_out_of_memory(err);
	hb_sha256_final(t->file_hash, sum->sha256);
	return 0;
}

/* With no parent there is nothing to remove: not an error. */
static int existing(struct hb_tree *t, const struct hb_name *name, struct hb_dir **d,
		    struct hb_error *err)
{
	struct hb_error why = {0};

	*d = hb_tree_dir(t, name->parent, name->parent_len, false, &why);
	if (*d != NULL)
		return 1;
	if (why.code[0] == '\0')
		return 0;
	if (err != NULL)
		*err = why;
	return -1;
}

/* Only the device is left out: the directory it would lie in is made all the same. */
int hb_tree_vacate(struct hb_tree *t, const struct hb_name *name, struct hb_error *err)
{
	struct hb_dir *d = parent_of(t, name, err);

	return d == NULL ? -1 : remove_old(t, d, name, err);
}

int hb_tree_whiteout(struct hb_tree *t, const struct hb_name *name, struct hb_error *err)
{
	struct hb_dir *d;
	int rc = existing(t, name, &d, err);

	return rc > 0 ? hb_tree_remove_name(t, d->fd, d->ino, name->leaf, true, err) : rc;
}

int hb_tree_opaque(struct hb_tree *t, const struct hb_name *name, struct hb_error *err)
{
	struct hb_dir *d;
	int rc = existing(t, name, &d, err);

	return rc > 0 ? hb_tree_remove_content(t, d->fd, err) : rc;
}
