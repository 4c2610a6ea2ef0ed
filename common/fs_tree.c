/*
 * Directories: made, synced, switched and removed. Nothing here follows a link that somebody could
 * have put below the starting directory, and removal never crosses into another mount.
 */
#include "common/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/ids.h"

/* Directories open at once while a tree is removed; deeper ones are moved up first. */
#define REMOVE_DEPTH 24

/* Open the directory `name` in `dir`, making it when missing. */
static int
enter(int dir, const char *name, bool follow)
{
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW), fd;

	fd = openat(dir, name, flags);
	if (fd >= 0 || errno != ENOENT)
		return fd;
	if (mkdirat(dir, name, 0700) != 0 && errno != EEXIST)
		return -1;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	/* By descriptor, so that the umask has no say. */
	if (fd >= 0 && (fchmod(fd, 0755) != 0 || fsync(dir) != 0))
		hb_close(&fd);
	return fd;
}

int
hb_fs_mkdirs(int dirfd, const char *path, mode_t mode, uid_t uid, gid_t gid, struct hb_error *err)
{
	bool absolute = path[0] == '/';
	char *copy = hb_strdup(path), *save = NULL, *name, *next;
	int dir, child, rc = -1;

	dir = openat(dirfd, absolute ? "/" : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	name = strtok_r(copy, "/", &save);
	if (dir < 0 || name == NULL) {
		hb_fail_errno(err, "mkdir_failed", "making the directory %s", path);
		goto out;
	}
	for (; name != NULL; name = next) {
		next = strtok_r(NULL, "/", &save);
		if (strcmp(name, "..") == 0) {
			hb_fail(err, "unsafe_path", "%s has a .. in it", path);
			goto out;
		}
		/* The way to an absolute path may lead over the host's own links; its end may not.
		 */
		child = enter(dir, name, absolute && next != NULL);
		if (child < 0) {
			hb_fail_errno(err, "mkdir_failed", "making %s in %s", name, path);
			goto out;
		}
		hb_close(&dir);
		dir = child;
	}
	if (((uid != (uid_t)-1 || gid != (gid_t)-1) && fchown(dir, uid, gid) != 0) ||
	    fchmod(dir, mode) != 0 || fsync(dir) != 0) {
		hb_fail_errno(err, "mkdir_failed", "setting owner and mode of %s", path);
		goto out;
	}
	rc = 0;
out:
	hb_close(&dir);
	free(copy);
	return rc;
}

int
hb_fs_sync_dir(int dirfd, const char *path, struct hb_error *err)
{
	int fd, rc = 0;

	fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) != 0)
		rc = hb_fail_errno(err, "write_failed", "syncing the directory %s", path);
	hb_close(&fd);
	return rc;
}

int
hb_fs_link_switch(int dirfd, const char *name, const char *target, struct hb_error *err)
{
	char random[17], temporary[300];

	if (strchr(name, '/') != NULL)
		return hb_fail(err, "unsafe_path", "%s is not a plain name", name);
	hb_random_hex(8, random);
	snprintf(temporary, sizeof(temporary), ".%.200s.%s", name, random);
	if (symlinkat(target, dirfd, temporary) != 0)
		return hb_fail_errno(err, "write_failed", "making a link to %s", target);
	if (renameat(dirfd, temporary, dirfd, name) != 0) {
		hb_fail_errno(err, "write_failed", "switching %s to %s", name, target);
		unlinkat(dirfd, temporary, 0);
		return -1;
	}
	return hb_fs_sync_dir(dirfd, ".", err);
}

static int
open_for_removal(int dir, const char *name)
{
	struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
			   RESOLVE_NO_XDEV,
	};
	int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));

	/* A directory of ours that we made unreadable for ourselves. */
	if (fd < 0 && errno == EACCES && fchmodat(dir, name, 0700, AT_SYMLINK_NOFOLLOW) == 0)
		fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
	return fd;
}

static int remove_entry(int top, int dir, const char *name, int depth);

/* Empty the directory `fd` (consumed). Subtrees deeper than REMOVE_DEPTH are moved to `top`. */
static int
remove_contents(int top, int fd, int depth)
{
	struct dirent *entry;
	struct stat st;
	DIR *stream;
	int rc = 0, saved;

	if (geteuid() != 0 && fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
		(void)fchmod(fd, 0700);
	stream = fdopendir(fd);
	if (stream == NULL) {
		hb_close(&fd);
		return -1;
	}
	while (rc == 0 && (errno = 0, entry = readdir(stream)) != NULL) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			rc = remove_entry(top < 0 ? fd : top, fd, entry->d_name, depth);
	}
	if (entry == NULL && errno != 0)
		rc = -1;
	saved = errno;
	closedir(stream);
	errno = saved;
	return rc;
}

static int
remove_entry(int top, int dir, const char *name, int depth)
{
	char random[33];
	int fd, tries;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	if (depth >= REMOVE_DEPTH) {
		hb_random_hex(16, random);
		return renameat(dir, name, top, random);
	}
	/* Again when something was moved up or appeared meanwhile: readdir need not have shown it.
	 */
	for (tries = 0; tries < 100000; tries++) {
		if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		if (errno != ENOTEMPTY && errno != EEXIST)
			return -1;
		fd = open_for_removal(dir, name);
		if (fd < 0)
			return -1;
		if (remove_contents(top, fd, depth + 1) != 0)
			return -1;
	}
	errno = ENOTEMPTY;
	return -1;
}

int
hb_fs_remove_tree(int dirfd, const char *name, struct hb_error *err)
{
	/* top -1: the named directory itself is where deep subtrees are moved to. */
	if (remove_entry(-1, dirfd, name, 0) != 0)
		return hb_fail_errno(err, "remove_failed", "removing %s", name);
	return 0;
}
