/* The last pass over the tree: final modes and times of directories, and the manifest, in one walk.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "broker/installer/mtree.h"
#include "broker/installer/unpack_tree_internal.h"
#include "broker/installer/walk.h"
#include "common/fs.h"

#define MANIFEST "manifest.mtree"
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* Group number of an inode with several names. */
struct group {
	uint64_t ino, number;
};

struct finish {
	struct hb_tree *t;
	struct hb_mtree_writer *writer;
	struct hb_table groups;
	struct hb_tree_info *info;
};

static int failed(const char *path, struct hb_error *err)
{
	struct hb_shown shown;

	return hb_fail_errno(err, "io_failed", "\"%s\" cannot be finished",
			     hb_name_show(path, &shown));
}

/* Times first: giving the mode changes none of them, and nothing below is changed after this. */
static int finish_directory(struct finish *f, struct hb_walk_entry *e, struct hb_mtree_entry *m,
			    struct hb_error *err)
{
	const struct hb_dir_meta *meta = hb_table_get(&f->t->dirs, e->st.st_ino);
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};

	if (meta == NULL)
		return hb_fail(err, "io_failed", "a directory appeared that no layer made");
	times[1].tv_sec = (time_t)meta->mtime;
	times[1].tv_nsec = meta->mtime_ns;
	if (futimens(e->fd, times) < 0 || fstat(e->fd, &e->st) < 0)
		return failed(e->path, err);
	m->mode = S_IFDIR | meta->mode;
	f->info->directories++;
	return 0;
}

static int group_of(struct finish *f, const struct stat *st, struct hb_mtree_entry *m, bool *first,
		    struct hb_error *err)
{
	struct group *g;

	*first = true;
	if (st->st_nlink < 2)
		return 0;
	g = hb_table_put(&f->groups, st->st_ino);
	if (g == NULL)
		return hb_tree_out_of_memory(err);
	*first = g->number == 0;
	if (*first)
		g->number = f->groups.count;
	m->nlink = st->st_nlink;
	m->group = g->number;
	return 0;
}

static int file_entry(struct finish *f, const struct stat *st, struct hb_mtree_entry *m, bool first,
		      struct hb_error *err)
{
	const struct hb_file_sum *sum = hb_table_get(&f->t->sums, st->st_ino);

	m->size = (uint64_t)st->st_size;
	if (m->size > 0 && sum == NULL)
		return hb_fail(err, "io_failed", "a file appeared that no layer made");
	if (m->size == 0)
		memcpy(m->sha256, EMPTY_SHA256, sizeof(m->sha256));
	else
		hb_hex(sum->sha256, sizeof(sum->sha256), m->sha256);
	f->info->files++;
	if (first)
		f->info->bytes += m->size;
	return 0;
}

/* A file or link; target: room for what a link says. */
static int finish_name(struct finish *f, struct hb_walk_entry *e, struct hb_mtree_entry *m,
		       char target[PATH_MAX], struct hb_error *err)
{
	bool first;
	ssize_t n;

	if (group_of(f, &e->st, m, &first, err) < 0)
		return -1;
	if (!S_ISLNK(e->st.st_mode))
		return file_entry(f, &e->st, m, first, err);
	n = readlinkat(e->dirfd, e->name, target, PATH_MAX - 1);
	if (n < 0)
		return failed(e->path, err);
	target[n] = '\0';
	m->link = target;
	f->info->links++;
	return 0;
}

static int visit(struct hb_walk_entry *e, void *arg, struct hb_error *err)
{
	struct finish *f = arg;
	struct hb_mtree_entry m = {.path = e->path, .mode = e->st.st_mode};
	char target[PATH_MAX];
	int rc;

	if (S_ISDIR(e->st.st_mode))
		rc = finish_directory(f, e, &m, err);
	else
		rc = finish_name(f, e, &m, target, err);
	if (rc < 0)
		return -1;
	m.mtime = e->st.st_mtim.tv_sec;
	m.mtime_ns = (uint32_t)e->st.st_mtim.tv_nsec;
	return hb_mtree_write(f->writer, &m, err);
}

static int leave(struct hb_walk_entry *e, void *arg, struct hb_error *err)
{
	struct finish *f = arg;
	const struct hb_dir_meta *meta = hb_table_get(&f->t->dirs, e->st.st_ino);

	return meta == NULL || fchmod(e->fd, meta->mode) < 0 ? failed(e->path, err) : 0;
}

int hb_tree_finish(struct hb_tree *t, struct hb_tree_info *info, struct hb_error *err)
{
	struct finish f = {.t = t, .info = info};
	int root = -1, fd = -1, rc = -1;

	hb_table_free(&t->made);
	hb_table_init(&f.groups, sizeof(struct group));
	root = openat(t->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = openat(t->staging_fd, MANIFEST, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    0644);
	if (root < 0 || fd < 0) {
		hb_fail_errno(err, "io_failed", MANIFEST " cannot be made");
		goto out;
	}
	f.writer = hb_mtree_writer_new(fd);
	if (hb_walk(root, visit, leave, &f, err) < 0 ||
	    hb_mtree_writer_finish(f.writer, info->tree_digest, err) < 0)
		goto out;
	/* One sync for the whole tree; its errors are the only word on writes that failed late. */
	if (syncfs(t->staging_fd) < 0) {
		hb_fail_errno(err, "io_failed", "the unpacked tree cannot be made durable");
		goto out;
	}
	rc = 0;
out:
	hb_mtree_writer_free(f.writer);
	hb_table_free(&f.groups);
	hb_close(&fd);
	hb_close(&root);
	return rc;
}
