/* Putting one data directory in the place of another (data_swap.h). */
#include "broker/installer/data_swap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/walk.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/json.h"

#define FRESH ".restore-"
#define ASIDE ".before-"
#define ID_LEN 32

/* "/a/b/data" is "/a/b" and "data". */
static int open_parent(const char *path, const char **base, struct hb_error *err)
{
	const char *slash = strrchr(path, '/');
	char *parent;
	int fd;

	if (!slash || slash[1] == '\0')
		return hb_fail(err, "data_unusable",
			       "%s is not the absolute path of a data directory", path);
	*base = slash + 1;
	parent = slash == path ? hb_strdup("/") : strndup(path, (size_t)(slash - path));
	if (!parent)
		abort();
	fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		hb_fail_errno(err, "data_unusable",
			      "%s, which holds the data directory, can't be opened", parent);
	free(parent);
	return fd;
}

static void name_of(const char *base, const char *kind, const char *id, char out[NAME_MAX + 1])
{
	snprintf(out, NAME_MAX + 1, "%.180s%s%.*s", base, kind, ID_LEN, id);
}

/* 1: a directory, 0: nothing there, -1: something else. */
static int look(int parent, const char *name, const char *path, struct stat *st,
		struct hb_error *err)
{
	if (fstatat(parent, name, st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT
			       ? 0
			       : hb_fail_errno(err, "data_unusable", "%s beside %s", name, path);
	return S_ISDIR(st->st_mode) ? 1
				    : hb_fail(err, "data_unusable",
					      "%s beside %s is not a directory", name, path);
}

int hb_data_swap_check(const char *path, const char *id, int *parent_fd, struct hb_error *err)
{
	const char *base;
	int fd = open_parent(path, &base, err), there;
	struct stat st, parent;
	char probe[NAME_MAX + 1];

	if (fd < 0)
		return -1;
	there = look(fd, base, path, &st, err);
	if (there < 0)
		goto fail;
	if (there && (fstat(fd, &parent) < 0 || parent.st_dev != st.st_dev)) {
		hb_fail(err, "data_not_swappable",
			"the data directory %s is a file system of its own, which can't be "
			"replaced in one step; set "
			"runtime.data to a directory inside it",
			path);
		goto fail;
	}
	/* The installer may write beside the data directory, unless that is where everybody's keys
	 * are. */
	name_of(base, FRESH, id, probe);
	if (mkdirat(fd, probe, 0700) < 0 || unlinkat(fd, probe, AT_REMOVEDIR) < 0) {
		hb_fail_errno(err, "data_not_swappable",
			      "nothing can be written beside the data directory %s; put it into a "
			      "directory of its own, "
			      "not into the state directory (runtime.data)",
			      path);
		goto fail;
	}
	*parent_fd = fd;
	return 0;
fail:
	close(fd);
	return -1;
}

int hb_data_fresh_create(const char *path, const char *id, uid_t uid, struct hb_error *err)
{
	char name[NAME_MAX + 1];
	const char *base;
	int parent = open_parent(path, &base, err), fd = -1;

	if (parent < 0)
		return -1;
	name_of(base, FRESH, id, name);
	if (hb_fs_remove_tree(parent, name, err) < 0)
		goto out;
	if (mkdirat(parent, name, 0700) < 0) {
		hb_fail_errno(err, "data_unusable", "%s can't be made beside %s", name, path);
		goto out;
	}
	fd = hb_fs_open_beneath(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, err);
	if (fd >= 0 && fchown(fd, uid, (gid_t)uid) < 0) {
		hb_fail_errno(err, "data_unusable", "%s can't be given to the backup reader", name);
		hb_close(&fd);
	}
out:
	close(parent);
	return fd;
}

void hb_data_fresh_remove(const char *path, const char *id)
{
	char name[NAME_MAX + 1];
	const char *base;
	int parent = open_parent(path, &base, NULL);

	if (parent < 0)
		return;
	name_of(base, FRESH, id, name);
	(void)hb_fs_remove_tree(parent, name, NULL); /* what stays is removed at the next start */
	close(parent);
}

/* --- taking over --- */

struct adopting {
	uid_t from, to;
};

static int adopt(struct hb_walk_entry *e, void *arg, struct hb_error *err)
{
	const struct adopting *a = arg;
	mode_t type = e->st.st_mode & S_IFMT;

	if (e->st.st_uid != a->from || (type != S_IFDIR && type != S_IFREG && type != S_IFLNK) ||
	    (type == S_IFREG && e->st.st_nlink != 1) ||
	    (type != S_IFLNK && (e->st.st_mode & 07000) != 0))
		return hb_fail(err, "unsafe_file", "%s in the restored data is not plain content",
			       e->path);
	if (e->fd >= 0 ? fchown(e->fd, a->to, (gid_t)a->to) < 0
		       : fchownat(e->dirfd, e->name, a->to, (gid_t)a->to, AT_SYMLINK_NOFOLLOW) < 0)
		return hb_fail_errno(err, "data_unusable", "%s can't be given to the runtime",
				     e->path);
	return 0;
}

int hb_data_fresh_adopt(int fresh_fd, uid_t from, uid_t to, struct hb_error *err)
{
	struct adopting a = {from, to};
	int fd, rc;

	/* Root's from now on, so that nobody of that uid reaches the data any more. */
	if (fchown(fresh_fd, 0, 0) < 0)
		return hb_fail_errno(err, "data_unusable", "the restored data can't be taken over");
	fd = hb_fs_open_beneath(fresh_fd, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, err);
	if (fd < 0)
		return -1;
	rc = hb_walk(fd, adopt, NULL, &a, err);
	if (rc == 0 && (fchmod(fd, 0700) < 0 || syncfs(fd) < 0))
		rc = hb_fail_errno(err, "data_unusable", "the restored data can't be synced");
	close(fd);
	return rc;
}

/* --- swapping --- */

json_t *hb_data_swap_describe(const char *path, const char *id, struct hb_error *err)
{
	const char *base;
	int parent = open_parent(path, &base, err), there;
	struct stat st;

	if (parent < 0)
		return NULL;
	there = look(parent, base, path, &st, err);
	close(parent);
	return there < 0 ? NULL
			 : json_pack("{s:s, s:s, s:b}", "path", path, "id", id, "had", there);
}

struct place {
	int parent;
	const char *path, *base;
	char fresh[NAME_MAX + 1], aside[NAME_MAX + 1];
};

static int find_place(const json_t *swap, struct place *p, struct hb_error *err)
{
	const char *id = hb_json_text(swap, "id", "");

	p->path = hb_json_text(swap, "path", "");
	if (strlen(id) != ID_LEN || strspn(id, "0123456789abcdef") != ID_LEN)
		return hb_fail(err, "journal_broken",
			       "the journal's note about the data directory is damaged");
	p->parent = open_parent(p->path, &p->base, err);
	name_of(p->base ? p->base : "", FRESH, id, p->fresh);
	name_of(p->base ? p->base : "", ASIDE, id, p->aside);
	return p->parent < 0 ? -1 : 0;
}

static int move(const struct place *p, int from_dir, const char *from, int to_dir, const char *to,
		struct hb_error *err)
{
	if (renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE) < 0)
		return hb_fail_errno(err, "data_swap_failed", "%s beside %s can't be renamed to %s",
				     from, p->path, to);
	if (fsync(p->parent) < 0 || (from_dir != p->parent && fsync(from_dir) < 0))
		return hb_fail_errno(err, "data_swap_failed", "the directory of %s can't be synced",
				     p->path);
	return 0;
}

int hb_data_swap(const json_t *swap, struct hb_error *err)
{
	struct place p = {.parent = -1};
	int fresh = -1, rc = -1;

	if (find_place(swap, &p, err) < 0)
		return -1;
	fresh = hb_fs_open_beneath(p.parent, p.fresh, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, err);
	if (fresh < 0)
		goto out;
	if (hb_json_bool(swap, "had", false) &&
	    move(&p, p.parent, p.base, p.parent, p.aside, err) < 0)
		goto out;
	rc = move(&p, fresh, "tree", p.parent, p.base, err);
out:
	hb_close(&fresh);
	hb_close(&p.parent);
	return rc;
}

/*
 * Which names exist says how far it came. Set aside: then what stands in its place, if anything
 * does, is the new one. Not set aside, and there was one: it is still there. There was none: what
 * is there now is the new one, if the tree that was made has left its place.
 */
int hb_data_unswap(const json_t *swap, struct hb_error *err)
{
	struct place p = {.parent = -1};
	int aside, there, rc = -1;
	bool had;
	struct stat st;

	if (!json_is_object(swap))
		return 0;
	if (find_place(swap, &p, err) < 0)
		return -1;
	had = hb_json_bool(swap, "had", false);
	aside = look(p.parent, p.aside, p.path, &st, err);
	there = look(p.parent, p.base, p.path, &st, err);
	if (aside < 0 || there < 0)
		goto out;
	if (there && (aside || !had)) {
		/* Below the name of what may be removed at any time. */
		if (mkdirat(p.parent, p.fresh, 0700) < 0 && errno != EEXIST) {
			hb_fail_errno(err, "data_swap_failed", "%s can't be made", p.fresh);
			goto out;
		}
		int fresh = hb_fs_open_beneath(p.parent, p.fresh,
					       O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, err);

		if (fresh < 0)
			goto out;
		rc = hb_fs_remove_tree(fresh, "tree", err);
		rc = rc < 0 ? rc : move(&p, p.parent, p.base, fresh, "tree", err);
		close(fresh);
		if (rc < 0)
			goto out;
	}
	rc = aside ? move(&p, p.parent, p.aside, p.parent, p.base, err) : 0;
	if (rc == 0)
		rc = hb_fs_remove_tree(p.parent, p.fresh, err);
out:
	hb_close(&p.parent);
	return rc;
}

/* --- leftovers --- */

/* base, kind and 32 hex digits, exactly. */
static bool is_named(const char *name, const char *base, const char *kind)
{
	char want[NAME_MAX + 1];
	size_t len;

	snprintf(want, sizeof want, "%.180s%s", base, kind);
	len = strlen(want);
	return strncmp(name, want, len) == 0 && strlen(name) == len + ID_LEN &&
	       strspn(name + len, "0123456789abcdef") == ID_LEN;
}

static json_t *names_beside(int parent, const char *base, const char *kind)
{
	int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	json_t *list = json_array();
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (is_named(e->d_name, base, kind))
			json_array_append_new(list, json_string(e->d_name));
	if (dir)
		closedir(dir);
	else
		hb_close(&fd);
	return list;
}

int hb_data_clean(const char *path, struct hb_error *err)
{
	const char *base;
	int parent = open_parent(path, &base, NULL), rc = 0;
	json_t *list, *name;
	size_t i;

	if (parent < 0)
		return 0; /* no parent, no leftovers */
	list = names_beside(parent, base, FRESH);
	json_array_foreach(list, i, name)
		rc = rc < 0 ? rc : hb_fs_remove_tree(parent, json_string_value(name), err);
	json_decref(list);
	close(parent);
	return rc;
}

struct aside {
	char *name;
	struct timespec moved;
};

static int by_time(const void *a, const void *b)
{
	const struct aside *x = a, *y = b;

	if (x->moved.tv_sec != y->moved.tv_sec)
		return x->moved.tv_sec < y->moved.tv_sec ? -1 : 1;
	if (x->moved.tv_nsec != y->moved.tv_nsec)
		return x->moved.tv_nsec < y->moved.tv_nsec ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Being renamed is the last thing that happened to one: its change time is that of the restore. */
json_t *hb_data_aside(const char *path)
{
	const char *base;
	int parent = open_parent(path, &base, NULL);
	json_t *names, *name, *out = json_array();
	struct aside *list;
	struct stat st;
	size_t i, count = 0;

	if (parent < 0)
		return out;
	names = names_beside(parent, base, ASIDE);
	list = hb_calloc(json_array_size(names) + 1, sizeof *list);
	json_array_foreach(names, i, name)
	{
		const char *text = json_string_value(name);

		if (fstatat(parent, text, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
			list[count++] = (struct aside){hb_strdup(text), st.st_ctim};
	}
	qsort(list, count, sizeof *list, by_time);
	for (i = 0; i < count; i++) {
		json_array_append_new(
			out, json_sprintf("%.*s%s", (int)(base - path), path, list[i].name));
		free(list[i].name);
	}
	free(list);
	json_decref(names);
	close(parent);
	return out;
}

json_t *hb_data_aside_old(const char *path)
{
	json_t *all = hb_data_aside(path), *old = json_array(), *out;
	size_t count = json_array_size(all);

	for (size_t i = 0; i + 1 < count && i < HB_DATA_ASIDE_MAX; i++)
		json_array_append(old, json_array_get(all, i));
	out = json_pack("{s:o, s:s}", "set_aside", old, "undo",
			count ? json_string_value(json_array_get(all, count - 1)) : "");
	json_decref(all);
	return out;
}

/* First it gets the name of what may be removed at any time: half removed, it must not look like the
 * way back of a restore. */
int hb_data_aside_drop(const char *path, const char *aside, struct hb_error *err)
{
	const char *base, *name = strrchr(aside, '/');
	int parent = open_parent(path, &base, err), rc;
	char fresh[NAME_MAX + 1];

	if (parent < 0)
		return -1;
	name = name ? name + 1 : aside;
	if (!is_named(name, base, ASIDE)) {
		close(parent);
		return hb_fail(err, "data_unusable", "%s is not a directory set aside from %s",
			       aside, path);
	}
	name_of(base, FRESH, name + strlen(name) - ID_LEN, fresh);
	rc = renameat2(parent, name, parent, fresh, RENAME_NOREPLACE) < 0 || fsync(parent) < 0
		     ? hb_fail_errno(err, "remove_failed", "%s can't be taken away", aside)
		     : hb_fs_remove_tree(parent, fresh, err);
	close(parent);
	return rc;
}
