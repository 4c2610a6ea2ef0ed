/*
 * Removal inside the tree: replaced entries, whiteouts and opaque directories.
 *
 * A whiteout or marker hides lower layers only, and may come after entries of its own layer; so
 * with `older_only` names this layer made are kept, and so are the directories on the way to them.
 * Such a directory that only lower layers had described becomes an implied one again, whatever the
 * order of the entries was.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/unpack_tree_internal.h"
#include "broker/installer/walk.h"
#include "common/fs.h"

struct removal {
	struct hb_tree *t;
	bool older_only;
};

static int failed(const char *name, struct hb_error *err)
{
	struct hb_shown shown;

	return hb_fail_errno(err, "io_failed", "\"%s\" cannot be removed",
			     hb_name_show(name, &shown));
}

static int visit(struct hb_walk_entry *e, void *arg, struct hb_error *err)
{
	struct removal *r = arg;
	struct stat parent;

	if (e->dirfd < 0 || S_ISDIR(e->st.st_mode))
		return 0;
	if (r->older_only) {
		if (fstat(e->dirfd, &parent) < 0)
			return failed(e->path, err);
		if (hb_tree_is_marked(r->t, parent.st_ino, e->name))
			return 0;
	}
	return unlinkat(e->dirfd, e->name, 0) < 0 ? failed(e->path, err) : 0;
}

/* A directory whose remaining content is this layer's, but which this layer does not list. */
static int make_implied(struct hb_tree *t, uint64_t ino)
{
	struct hb_dir_meta *meta = hb_table_get(&t->dirs, ino);

	if (meta != NULL) {
		meta->mode = 0755;
		meta->mtime = 0;
		meta->mtime_ns = 0;
	}
	return 0;
}

static int leave(struct hb_walk_entry *e, void *arg, struct hb_error *err)
{
	struct removal *r = arg;
	struct stat parent;

	if (e->dirfd < 0)
		return 0;
	if (r->older_only) {
		if (fstat(e->dirfd, &parent) < 0)
			return failed(e->path, err);
		if (hb_tree_is_marked(r->t, parent.st_ino, e->name))
			return 0;
	}
	if (unlinkat(e->dirfd, e->name, AT_REMOVEDIR) == 0)
		return 0;
	if (r->older_only && (errno == ENOTEMPTY || errno == EEXIST))
		return make_implied(r->t, e->st.st_ino);
	return failed(e->path, err);
}

static int remove_below(struct hb_tree *t, int dirfd, bool older_only, struct hb_error *err)
{
	struct removal r = {.t = t, .older_only = older_only};

	hb_tree_forget_dirs(t);
	return hb_walk(dirfd, visit, leave, &r, err);
}

int hb_tree_remove_name(struct hb_tree *t, int dirfd, uint64_t dir_ino, const char *name,
			bool older_only, struct hb_error *err)
{
	bool marked = older_only && hb_tree_is_marked(t, dir_ino, name);
	struct stat st;
	int fd, rc;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : failed(name, err);
	if (!S_ISDIR(st.st_mode)) {
		if (marked)
			return 0;
		if (S_ISLNK(st.st_mode))
			hb_tree_forget_dirs(t);
		return unlinkat(dirfd, name, 0) < 0 ? failed(name, err) : 0;
	}
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return failed(name, err);
	rc = remove_below(t, fd, older_only, err);
	hb_close(&fd);
	if (rc < 0 || marked || unlinkat(dirfd, name, AT_REMOVEDIR) == 0)
		return rc;
	if (older_only && (errno == ENOTEMPTY || errno == EEXIST))
		return make_implied(t, st.st_ino);
	return failed(name, err);
}

int hb_tree_remove_content(struct hb_tree *t, int dirfd, struct hb_error *err)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

	if (fd < 0)
		return failed(".", err);
	rc = remove_below(t, fd, true, err);
	hb_close(&fd);
	return rc;
}
