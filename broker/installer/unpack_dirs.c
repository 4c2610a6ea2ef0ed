/*
 * Parent directories of the tree being unpacked: a cache of open ones, and what is known about
 * each.
 *
 * Archives list a directory's content together, so that nearly every entry finds its parent open
 * and costs one system call to create. The cache is keyed by the path as the layer writes it; a
 * link in that path is followed once, when the directory is opened, and the cache is dropped
 * whenever a directory or link is removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broker/installer/unpack_tree_internal.h"
#include "common/buf.h"
#include "common/fs.h"

#define IMPLIED_MODE 0755

int hb_tree_out_of_memory(struct hb_error *err)
{
	return hb_fail(err, "limit_exceeded",
		       "the image has more entries than the worker's memory allows");
}

/* FNV-like, seeded: an image cannot aim at collisions, and one would only keep a file that should
 * be hidden. */
static uint64_t hash_bytes(uint64_t h, const char *bytes, size_t len)
{
	uint64_t word;

	for (; len >= sizeof(word); bytes += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		h = (h ^ word) * 0x9fb21c651e98df25u;
		h ^= h >> 32;
	}
	for (; len > 0; bytes++, len--)
		h = (h ^ (unsigned char)*bytes) * 0x100000001b3u;
	return h ^ h >> 29;
}

static uint64_t name_key(const struct hb_tree *t, uint64_t parent_ino, const char *name)
{
	uint64_t h =
		hash_bytes(t->key_seed[0] ^ parent_ino * 0x9e3779b97f4a7c15u, name, strlen(name));

	h = (h ^ t->key_seed[1]) * 0xd6e8feb86659fd93u;
	h ^= h >> 32;
	return h != 0 ? h : 1;
}

int hb_tree_mark(struct hb_tree *t, uint64_t parent_ino, const char *name, struct hb_error *err)
{
	if (hb_table_put(&t->made, name_key(t, parent_ino, name)) == NULL)
		return hb_tree_out_of_memory(err);
	return 0;
}

bool hb_tree_is_marked(const struct hb_tree *t, uint64_t parent_ino, const char *name)
{
	return hb_table_get(&t->made, name_key(t, parent_ino, name)) != NULL;
}

int hb_tree_check_depth(struct hb_tree *t, uint64_t parent_ino, const char *name,
			struct hb_error *err)
{
	const struct hb_dir_meta *parent = hb_table_get(&t->dirs, parent_ino);
	size_t len = (parent == NULL ? 0 : parent->path_len) + 1 + strlen(name);
	struct hb_shown shown;

	if (len <= t->limits.path_bytes)
		return 0;
	return hb_fail(err, "limit_exceeded",
		       "\"%s\" would lie at a path of %zu bytes, the limit is %u",
		       hb_name_show(name, &shown), len, t->limits.path_bytes);
}

int hb_tree_set_meta(struct hb_tree *t, uint64_t parent_ino, uint64_t ino, size_t name_len,
		     mode_t mode, struct timespec mtime, struct hb_error *err)
{
	const struct hb_dir_meta *parent = hb_table_get(&t->dirs, parent_ino);
	size_t len = parent == NULL ? 0 : parent->path_len + 1 + name_len;
	struct hb_dir_meta *meta = hb_table_put(&t->dirs, ino);

	if (meta == NULL)
		return hb_tree_out_of_memory(err);
	meta->mode = (uint16_t)mode;
	meta->mtime = mtime.tv_sec;
	meta->mtime_ns = (uint32_t)mtime.tv_nsec;
	meta->path_len = (uint16_t)len;
	return 0;
}

void hb_tree_forget_dirs(struct hb_tree *t)
{
	for (size_t i = 0; i < HB_DIR_CACHE; i++) {
		struct hb_dir *d = &t->cache[i];

		if (d->path == NULL)
			continue;
		if (d == t->last) { /* in use: stays open, but is not found again */
			d->len = SIZE_MAX;
			d->used = 0;
			continue;
		}
		hb_close(&d->fd);
		free(d->path);
		d->path = NULL;
	}
}

static int open_in_root(struct hb_tree *t, const char *path)
{
	int fd;

#ifdef HB_TEST_NO_PATH_CHECKS
	fd = openat(t->root_fd, path[0] == '\0' ? "." : path, O_PATH | O_DIRECTORY | O_CLOEXEC);
#else
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
			       .resolve =
				       RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};

	do { /* EAGAIN: something was renamed meanwhile; only we are here, but the kernel counts
		globally */
		fd = (int)syscall(SYS_openat2, t->root_fd, path[0] == '\0' ? "." : path, &how,
				  sizeof(how));
	} while (fd < 0 && errno == EAGAIN);
#endif
	return fd;
}

static struct hb_dir *cached(struct hb_tree *t, const char *path, size_t len, uint64_t hash)
{
	struct hb_dir *d = t->last;

	if (d != NULL && d->hash == hash && d->len == len && memcmp(d->path, path, len) == 0)
		return d;
	for (size_t i = 0; i < HB_DIR_CACHE; i++) {
		d = &t->cache[i];
		if (d->path != NULL && d->hash == hash && d->len == len &&
		    memcmp(d->path, path, len) == 0)
			return d;
	}
	return NULL;
}

/* Takes fd over. */
static struct hb_dir *remember(struct hb_tree *t, const char *path, size_t len, uint64_t hash,
			       int fd, struct hb_error *err)
{
	struct hb_dir *oldest = &t->cache[0];
	struct stat st;

	if (fstat(fd, &st) < 0) {
		hb_fail_errno(err, "io_failed", "a directory of the tree cannot be examined");
		hb_close(&fd);
		return NULL;
	}
	for (size_t i = 0; i < HB_DIR_CACHE && oldest->path != NULL; i++)
		if (t->cache[i].path == NULL || t->cache[i].used < oldest->used)
			oldest = &t->cache[i];
	if (oldest->path != NULL) {
		hb_close(&oldest->fd);
		free(oldest->path);
	}
	*oldest = (struct hb_dir){.len = len, .hash = hash, .fd = fd, .ino = st.st_ino};
	oldest->path = hb_calloc(1, len + 1);
	memcpy(oldest->path, path, len);
	return oldest;
}

static int refuse_parent(const char *path, struct hb_error *err)
{
	struct hb_shown shown;

	switch (errno) {
	case ENOTDIR:
	case EEXIST:
		return hb_fail(err, "unsafe_path",
			       "entries below \"%s\" need a directory there, but it is "
			       "a file or a link that leads to no directory of the image",
			       hb_name_show(path, &shown));
	case ELOOP:
	case EXDEV:
		return hb_fail(err, "unsafe_path",
			       "the links in \"%s\" lead in a circle or out of the image",
			       hb_name_show(path, &shown));
	case ENAMETOOLONG:
		return hb_fail(err, "limit_exceeded", "\"%s\" has a component that is too long",
			       hb_name_show(path, &shown));
	default:
		return hb_fail_errno(err, "io_failed", "directory \"%s\" cannot be opened",
				     hb_name_show(path, &shown));
	}
}

/* Make the last component of a path whose parent exists or is made first. */
static int make_implied(struct hb_tree *t, char *path, size_t len, struct hb_error *err)
{
	char *slash = strrchr(path, '/');
	const char *name = slash == NULL ? path : slash + 1;
	struct hb_dir *parent;
	struct stat st;

	parent = hb_tree_dir(t, path, slash == NULL ? 0 : (size_t)(slash - path), true, err);
	if (parent == NULL || hb_tree_check_depth(t, parent->ino, name, err) < 0)
		return -1;
	if (mkdirat(parent->fd, name, 0700) < 0 ||
	    fstatat(parent->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return refuse_parent(path, err);
	if (hb_tree_set_meta(t, parent->ino, st.st_ino, strlen(name), IMPLIED_MODE,
			     (struct timespec){0}, err) < 0)
		return -1;
	return hb_tree_mark(t, parent->ino, name, err);
}

struct hb_dir *hb_tree_dir(struct hb_tree *t, const char *path, size_t len, bool create,
			   struct hb_error *err)
{
	uint64_t hash = hash_bytes(t->key_seed[0], path, len);
	struct hb_dir *d = cached(t, path, len, hash);
	char *copy = NULL;
	int fd;

	if (d == NULL) {
		copy = hb_calloc(1, len + 1);
		memcpy(copy, path, len);
		fd = open_in_root(t, copy);
		if (fd < 0 && errno == ENOENT && create && len > 0) {
			if (make_implied(t, copy, len, err) < 0)
				goto out;
			fd = open_in_root(t, copy);
		}
		if (fd < 0 && !create && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) {
			if (err != NULL)
				err->code[0] = '\0';
			goto out;
		}
		if (fd < 0) {
			refuse_parent(copy, err);
			goto out;
		}
		d = remember(t, copy, len, hash, fd, err);
	}
	if (d != NULL) {
		d->used = ++t->clock;
		t->last = d;
	}
out:
	free(copy);
	return d;
}
