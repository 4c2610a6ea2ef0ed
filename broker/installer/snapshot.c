/* Copies of the data directory that belong to a release (snapshot.h). */
#include "broker/installer/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/data_tree.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"

#define ROOT ".hermes-snapshots"
#define ROOT_IN_STATE "snapshots"
#define INFO "snapshot.json"
#define INFO_MAX 65536
#define PARTIAL ".new-"
#define FRESH ".fresh-"
/* Besides the copy itself: its directory, its description, what the payload writes at once. */
#define SPACE_RESERVE (8ull << 20)
#define INODE_COST 4096ull

char *hb_data_reach(const char *data)
{
	char *copy = hb_strdup(data), *parent = hb_strdup(dirname(copy));
	char *real = realpath(parent, NULL), *here = getcwd(NULL, 0);
	size_t len = real ? strlen(real) : 0;
	bool holds_state = !real || !here ||
			   (strncmp(here, real, len) == 0 &&
			    (here[len] == '/' || here[len] == '\0' || len == 1));

	/* A parent that isn't there holds nothing. */
	if (!real && here)
		holds_state = false;
	free(copy);
	free(real);
	free(here);
	if (!holds_state)
		return parent;
	free(parent);
	return hb_strdup(data);
}

/* Where the directory of snapshots lies (free it) and its name there. */
static char *root_parent(const char *data, const char **name)
{
	char *reach = hb_data_reach(data);

	*name = ROOT;
	if (strcmp(reach, data) != 0)
		return reach;
	free(reach);
	*name = ROOT_IN_STATE;
	return hb_strdup("installer");
}

/* The directory of snapshots; -1 with errno ENOENT when there is none and it isn't to be made. */
static int root_open(const char *data, bool make, struct hb_error *err)
{
	const char *name;
	char *path = root_parent(data, &name);
	int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = parent < 0 ? -1 : openat(parent, name, flags), saved;

	if (fd < 0 && parent >= 0 && errno == ENOENT && make) {
		if (hb_fs_mkdirs(parent, name, 0700, 0, 0, err) == 0)
			fd = openat(parent, name, flags);
	}
	saved = errno;
	hb_close(&parent);
	errno = saved;
	if (fd < 0)
		hb_fail_errno(err, "snapshot_failed", "%s/%s can't be opened", path, name);
	free(path);
	errno = saved;
	return fd;
}

static int data_open(const char *data, struct hb_error *err)
{
	int fd = open(data, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd >= 0 ? fd : hb_fail_errno(err, "data_unreadable", "data directory %s", data);
}

static int open_in(int root, const char *id, const char *name, struct hb_error *err)
{
	char path[128];
	int fd;

	snprintf(path, sizeof path, "%.64s/%s", id, name);
	fd = hb_fs_open_beneath(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, err);
	return fd;
}

/* Adds what a copy of the directory takes; consumes the descriptor. */
static int add_size(int fd, uint64_t entries_max, uint64_t *need, struct hb_error *err)
{
	struct hb_data_size size;
	int rc = fd < 0 ? -1 : hb_data_measure(fd, entries_max, &size, err);

	if (rc == 0)
		*need += size.bytes + size.entries * INODE_COST;
	hb_close(&fd);
	return rc;
}

int hb_snapshot_space(const char *data, bool take, const char *snapshot, uint64_t entries_max,
		      struct hb_error *err)
{
	uint64_t bytes, inodes, need = SPACE_RESERVE;
	const char *name;
	char *parent = NULL;
	int root = -1, rc = -1;

	if (take && add_size(data_open(data, err), entries_max, &need, err) < 0)
		return -1;
	if (snapshot) {
		root = root_open(data, false, err);
		if (root < 0 || add_size(open_in(root, snapshot, "data", err), entries_max, &need, err) < 0)
			goto out;
	}
	parent = root_parent(data, &name);
	if (hb_fs_space(AT_FDCWD, parent, &bytes, &inodes, err) < 0)
		goto out;
	rc = bytes >= need ? 0
			   : hb_fail(err, "not_enough_space",
				     "the file system of %s has %llu MiB free and about %llu MiB "
				     "are needed for a copy of the data; free %llu MiB more. Nothing "
				     "was changed",
				     parent, (unsigned long long)(bytes >> 20),
				     (unsigned long long)(need >> 20) + 1,
				     (unsigned long long)((need - bytes) >> 20) + 1);
out:
	hb_close(&root);
	free(parent);
	return rc;
}

/* A new directory `name` in root with a copy of `from` as name/data; synced. */
static int copy_into(int root, const char *name, int from, struct hb_data_size *size,
		     struct hb_error *err)
{
	int dir = -1, to = -1, rc = -1;

	if (hb_fs_remove_tree(root, name, err) < 0)
		return -1;
	if (mkdirat(root, name, 0700) < 0 ||
	    (dir = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0 ||
	    mkdirat(dir, "data", 0700) < 0 ||
	    (to = openat(dir, "data", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0) {
		hb_fail_errno(err, "snapshot_failed", "a copy of the data can't be begun");
		goto out;
	}
	if (hb_data_copy(from, to, size, err) < 0)
		goto out;
	/* One syncfs instead of an fsync for each file. */
	rc = syncfs(to) == 0 ? 0 : hb_fail_errno(err, "sync_failed", "the copy of the data");
out:
	hb_close(&dir);
	hb_close(&to);
	if (rc < 0)
		(void)hb_fs_remove_tree(root, name, NULL);
	return rc;
}

static int write_info(int root, const char *name, const char *data, const char *id,
		      const json_t *about, const struct hb_data_size *size, struct hb_error *err)
{
	json_t *info = json_pack("{s:s, s:s, s:I, s:I, s:I}", "id", id, "data", data, "taken_at",
				 (json_int_t)hb_now(), "files", (json_int_t)size->entries, "bytes",
				 (json_int_t)size->bytes);
	struct hb_buf text = HB_BUF_INIT;
	char path[128];
	int rc;

	snprintf(path, sizeof path, "%.64s/" INFO, name);
	json_object_update(info, (json_t *)(uintptr_t)about);
	rc = hb_json_canonical(info, &text, err);
	if (rc == 0)
		rc = hb_fs_write_atomic(root, path, text.data, text.len, 0600, 0, 0, err);
	hb_buf_free(&text);
	json_decref(info);
	return rc;
}

static int describe(int root, const char *data, const char *id, json_t **taken, struct hb_error *err)
{
	struct stat st;
	int fd = open_in(root, id, "data", err);

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0) {
		close(fd);
		return hb_fail_errno(err, "snapshot_failed", "snapshot %s", id);
	}
	close(fd);
	*taken = json_pack("{s:s, s:s, s:I, s:I}", "id", id, "data", data, "dev",
			   (json_int_t)st.st_dev, "ino", (json_int_t)st.st_ino);
	return 0;
}

int hb_snapshot_take(const char *data, const char *id, const json_t *about, json_t **taken,
		     struct hb_error *err)
{
	struct hb_data_size size;
	char name[80];
	int root = root_open(data, true, err), from = root >= 0 ? data_open(data, err) : -1;
	int rc = -1;

	snprintf(name, sizeof name, PARTIAL "%.64s", id);
	if (from < 0 || copy_into(root, name, from, &size, err) < 0)
		goto out;
	if (write_info(root, name, data, id, about, &size, err) == 0) {
		if (renameat2(root, name, root, id, RENAME_NOREPLACE) < 0)
			hb_fail_errno(err, "snapshot_failed", "snapshot %s", id);
		else if (hb_fs_sync_dir(root, ".", err) == 0)
			rc = describe(root, data, id, taken, err);
	}
	if (rc < 0) {
		(void)hb_fs_remove_tree(root, name, NULL);
		(void)hb_fs_remove_tree(root, id, NULL);
	}
out:
	hb_close(&from);
	hb_close(&root);
	if (rc < 0)
		hb_fail_prefix(err, "the copy of the data (%s)", data);
	return rc;
}

/* --- putting back --- */

/* Where names can't be exchanged: everything out, everything in, and only then is it so. */
static int replace_contents(int data, int from, struct hb_error *err)
{
	struct hb_data_size size;
	struct dirent *e;
	int again = openat(data, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = again >= 0 ? fdopendir(again) : NULL;

	if (!dir) {
		hb_close(&again);
		return hb_fail_errno(err, "data_unreadable", "the data directory");
	}
	while (rc == 0 && (e = readdir(dir)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			rc = hb_fs_remove_tree(data, e->d_name, err);
	closedir(dir);
	if (rc == 0)
		rc = hb_data_copy(from, data, &size, err);
	if (rc == 0 && syncfs(data) < 0)
		rc = hb_fail_errno(err, "sync_failed", "the data directory");
	return rc;
}

/* 1: <root>/<name>/data and `data` have changed places, durably. 0: they can't. */
static int exchange(int root, const char *name, const char *data, struct hb_error *err)
{
	char path[128], *copy = hb_strdup(data);
	struct stat st;
	unsigned how = lstat(data, &st) == 0 ? RENAME_EXCHANGE : 0;
	int rc = 1;

	snprintf(path, sizeof path, "%.64s/data", name);
	if (renameat2(root, path, AT_FDCWD, data, how) < 0)
		rc = errno == EXDEV || errno == EBUSY || errno == EACCES || errno == EPERM ||
				     errno == EINVAL
			     ? 0
			     : hb_fail_errno(err, "switch_failed", "the data directory %s", data);
	path[strlen(path) - strlen("/data")] = '\0';
	if (rc == 1 && (hb_fs_sync_dir(AT_FDCWD, dirname(copy), err) < 0 ||
			hb_fs_sync_dir(root, path, err) < 0))
		rc = -1;
	free(copy);
	return rc;
}

/* Exchange, or replace the contents where that isn't possible. */
static int put(int root, const char *name, const char *data, struct hb_error *err)
{
	int rc = exchange(root, name, data, err), to, from;

	if (rc != 0)
		return rc < 0 ? -1 : 0;
	to = data_open(data, err);
	from = to >= 0 ? open_in(root, name, "data", err) : -1;
	rc = from >= 0 ? replace_contents(to, from, err) : -1;
	hb_close(&to);
	hb_close(&from);
	return rc;
}

int hb_snapshot_back(const json_t *taken, struct hb_error *err)
{
	const char *data = hb_json_text(taken, "data", ""), *id = hb_json_text(taken, "id", "");
	struct stat st;
	int root, rc;

	if (lstat(data, &st) == 0 && (json_int_t)st.st_dev == hb_json_int(taken, "dev", -1) &&
	    (json_int_t)st.st_ino == hb_json_int(taken, "ino", -1))
		return 0; /* it has changed places already */
	root = root_open(data, false, err);
	if (root < 0)
		return -1;
	rc = put(root, id, data, err);
	close(root);
	return rc < 0 ? hb_fail_prefix(err, "the data can't be put back from snapshot %s", id) : 0;
}

int hb_snapshot_put(const char *data, const char *id, struct hb_error *err)
{
	struct hb_data_size size;
	char name[80];
	int root = root_open(data, false, err);
	int from = root >= 0 ? open_in(root, id, "data", err) : -1, rc = -1;

	snprintf(name, sizeof name, FRESH "%.64s", id);
	if (from >= 0 && copy_into(root, name, from, &size, err) == 0)
		rc = put(root, name, data, err);
	if (root >= 0)
		(void)hb_fs_remove_tree(root, name, NULL);
	hb_close(&from);
	hb_close(&root);
	return rc < 0 ? hb_fail_prefix(err, "the data can't be taken from snapshot %s", id) : 0;
}

/* --- which there are --- */

static json_t *info_of(int root, const char *name)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *info = NULL;
	char path[300];

	snprintf(path, sizeof path, "%.255s/" INFO, name);
	if (hb_fs_read(root, path, INFO_MAX, &text, NULL) == 0)
		info = hb_json_parse(text.data ? text.data : "", text.len, NULL);
	hb_buf_free(&text);
	if (info && strcmp(hb_json_text(info, "id", ""), name) != 0) {
		json_decref(info);
		info = NULL;
	}
	return info;
}

static int newer_first(const void *a, const void *b)
{
	const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	long long dx = hb_json_int(x, "taken_at", 0), dy = hb_json_int(y, "taken_at", 0);

	return dx != dy ? (dx < dy ? 1 : -1)
			: strcmp(hb_json_text(x, "id", ""), hb_json_text(y, "id", ""));
}

/* Calls `each` for every name in the directory of snapshots; there may be none. */
static int walk(const char *data, int (*each)(int root, const char *name, void *arg), void *arg,
		struct hb_error *err)
{
	struct hb_error why;
	int root = root_open(data, false, &why), again, rc = 0;
	struct dirent *e;
	DIR *dir;

	if (root < 0) {
		if (errno == ENOENT)
			return 0;
		return hb_fail(err, why.code, "%s", why.message);
	}
	again = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = again >= 0 ? fdopendir(again) : NULL;
	if (!dir) {
		hb_close(&again);
		close(root);
		return hb_fail_errno(err, "snapshot_failed", "snapshots can't be listed");
	}
	while (rc == 0 && (e = readdir(dir)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			rc = each(root, e->d_name, arg);
	closedir(dir);
	close(root);
	return rc < 0 ? hb_fail_errno(err, "remove_failed", "a leftover copy of the data") : 0;
}

struct listing {
	const char *data;
	json_t **found;
	size_t count;
};

static int collect(int root, const char *name, void *arg)
{
	struct listing *l = arg;
	json_t *info = name[0] == '.' ? NULL : info_of(root, name);

	if (!info || strcmp(hb_json_text(info, "data", ""), l->data) != 0) {
		json_decref(info);
		return 0;
	}
	l->found = realloc(l->found, (l->count + 1) * sizeof(json_t *));
	if (!l->found)
		abort();
	l->found[l->count++] = info;
	return 0;
}

json_t *hb_snapshot_list(const char *data, struct hb_error *err)
{
	struct listing l = {.data = data};
	json_t *out;

	if (walk(data, collect, &l, err) < 0)
		return NULL;
	if (l.count)
		qsort(l.found, l.count, sizeof(json_t *), newer_first);
	out = json_array();
	for (size_t i = 0; i < l.count; i++)
		json_array_append_new(out, l.found[i]);
	free(l.found);
	return out;
}

json_t *hb_snapshot_of(const char *data, const char *release, struct hb_error *err)
{
	json_t *all = hb_snapshot_list(data, err), *info, *found = NULL;
	size_t i;

	if (!all)
		return NULL;
	json_array_foreach (all, i, info)
		if (!found && strcmp(hb_json_text(info, "release", ""), release) == 0)
			found = json_incref(info);
	json_decref(all);
	if (!found)
		hb_fail(err, "no_snapshot",
			"there is no copy of the data that belongs to release %.12s; roll back "
			"with data=keep, or restore a backup",
			release);
	return found;
}

int hb_snapshot_drop(const char *data, const char *id, struct hb_error *err)
{
	struct hb_error why;
	char name[80];
	int root = root_open(data, false, &why), rc;

	if (root < 0)
		return errno == ENOENT ? 0 : hb_fail(err, why.code, "%s", why.message);
	/* Out of sight first: half a snapshot must not be listed. */
	snprintf(name, sizeof name, PARTIAL "%.64s", id);
	rc = hb_fs_remove_tree(root, name, err);
	if (rc == 0 && renameat(root, id, root, name) < 0)
		rc = errno == ENOENT ? 0 : hb_fail_errno(err, "remove_failed", "snapshot %s", id);
	else if (rc == 0)
		rc = hb_fs_remove_tree(root, name, err);
	close(root);
	return rc;
}

static int clean(int root, const char *name, void *arg)
{
	bool leftover = strncmp(name, PARTIAL, strlen(PARTIAL)) == 0 ||
			strncmp(name, FRESH, strlen(FRESH)) == 0;

	return leftover ? hb_fs_remove_tree(root, name, NULL) : 0;
}

int hb_snapshot_clean(const char *data, struct hb_error *err)
{
	return walk(data, clean, NULL, err);
}
