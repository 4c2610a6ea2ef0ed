/*
 * The whole of what bubblewrap is asked for. The root is an empty one into which each part of the
 * release is bound read-only, and not the release itself, since places for /proc, /tmp and the
 * workspace may be missing there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broker/docker/bubble.h"
#include "broker/docker/workspace.h"
#include "common/buf.h"
#include "common/fs.h"

#define ARGS_MAX 512 /* a root directory has some 20 entries */
#define TMP_BYTES "67108864"

struct args {
	char **list;
	size_t count;
};

static void put(struct args *a, const char *text)
{
	if (a->count < ARGS_MAX)
		a->list[a->count++] = hb_strdup(text);
}

static void put_all(struct args *a, const char *const *texts)
{
	for (; *texts; texts++)
		put(a, *texts);
}

/* Places that the sandbox makes itself. */
static bool is_made(const char *name)
{
	static const char *const names[] = {".",   "..",  "proc", "dev",
					    "sys", "tmp", "run",  "workspace"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

static int put_entry(struct args *a, int dir, const char *root, const char *name,
		     struct hb_error *err)
{
	char *source = hb_asprintf("%s/%s", root, name), *place = hb_asprintf("/%s", name),
	     target[4096];
	struct stat st;
	int rc = 0;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		rc = hb_fail_errno(err, "release_missing", "the release can't be looked at");
	} else if (S_ISLNK(st.st_mode)) {
		ssize_t n = readlinkat(dir, name, target, sizeof target - 1);

		target[n > 0 ? n : 0] = '\0';
		put_all(a, (const char *const[]){"--symlink", target, place, NULL});
	} else if (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) {
		put_all(a, (const char *const[]){"--ro-bind", source, place, NULL});
	}
	free(source);
	free(place);
	return rc;
}

static int put_release(struct args *a, const char *release, struct hb_error *err)
{
	char *root = hb_asprintf("%s/rootfs", release);
	DIR *dir = opendir(root);
	struct dirent *de;
	int rc = 0;

	if (!dir) {
		hb_fail_errno(err, "release_missing", "the release's rootfs can't be opened");
		free(root);
		return -1;
	}
	while (rc == 0 && (de = readdir(dir)))
		if (!is_made(de->d_name))
			rc = put_entry(a, dirfd(dir), root, de->d_name, err);
	closedir(dir);
	free(root);
	return rc;
}

/* Handed over in a file without a name and not as arguments, which everybody on the host and in the
 * sandbox can read. */
static int into_file(const struct args *a, struct hb_error *err)
{
	int fd = (int)syscall(SYS_memfd_create, "bwrap-args", 0);
	bool ok = fd >= 0;

	for (size_t i = 0; ok && i < a->count; i++) {
		size_t len = strlen(a->list[i]) + 1;

		ok = write(fd, a->list[i], len) == (ssize_t)len;
	}
	if (ok && lseek(fd, 0, SEEK_SET) == 0)
		return fd;
	hb_close(&fd);
	return hb_fail_errno(err, "no_worker", "the settings of the sandbox can't be written down");
}

int hb_bubble_args(const struct hb_bubble_job *job, const struct hb_bubble_fds *fds,
		   struct hb_error *err)
{
	static const char *const apart[] = {
		"--unshare-user",
		"--unshare-ipc",
		"--unshare-pid",
		"--unshare-net",
		"--unshare-uts",
		"--unshare-cgroup-try",
		"--uid",
		"10002",
		"--gid",
		"10002",
		"--hostname",
		"sandbox",
		"--new-session",
		"--die-with-parent",
		"--cap-drop",
		"ALL",
		"--clearenv",
		"--setenv",
		"PATH",
		"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"--setenv",
		"HOME",
		"/tmp",
		"--setenv",
		"TMPDIR",
		"/tmp",
		NULL};
	/* Not --dev: for its terminals bubblewrap makes a second user namespace, in which rights
	 * over the network are gone. */
	static const char *const own_places[] = {"--proc",
						 "/proc",
						 "--tmpfs",
						 "/dev",
						 "--dev-bind",
						 "/dev/null",
						 "/dev/null",
						 "--dev-bind",
						 "/dev/zero",
						 "/dev/zero",
						 "--dev-bind",
						 "/dev/full",
						 "/dev/full",
						 "--dev-bind",
						 "/dev/random",
						 "/dev/random",
						 "--dev-bind",
						 "/dev/urandom",
						 "/dev/urandom",
						 "--symlink",
						 "/proc/self/fd",
						 "/dev/fd",
						 "--symlink",
						 "/proc/self/fd/0",
						 "/dev/stdin",
						 "--symlink",
						 "/proc/self/fd/1",
						 "/dev/stdout",
						 "--symlink",
						 "/proc/self/fd/2",
						 "/dev/stderr",
						 "--perms",
						 "1777",
						 "--size",
						 TMP_BYTES,
						 "--tmpfs",
						 "/dev/shm",
						 "--remount-ro",
						 "/dev",
						 "--perms",
						 "1777",
						 "--size",
						 TMP_BYTES,
						 "--tmpfs",
						 "/tmp",
						 "--dir",
						 "/run",
						 "--bind",
						 NULL};
	struct args a = {.list = hb_calloc(ARGS_MAX + 1, sizeof *a.list)};
	char status[16], block[16], filter[16];
	int rc;

	snprintf(status, sizeof status, "%d", fds->status);
	snprintf(block, sizeof block, "%d", fds->block);
	snprintf(filter, sizeof filter, "%d", fds->filter);
	put_all(&a, apart);
	/* The right to raw packets counts in the namespace that owns the network; --disable-userns
	 * puts the command one further down, so then the filter alone forbids further namespaces.
	 */
	if (job->net_raw)
		put_all(&a, (const char *const[]){"--cap-add", "CAP_NET_RAW", NULL});
	else
		put(&a, "--disable-userns");
	rc = put_release(&a, hb_config_text(job->config, "local.release"), err);
	put_all(&a, own_places);
	put_all(&a, (const char *const[]){hb_config_text(job->config, "local.workspace"),
					  HB_WORKSPACE, "--remount-ro", "/", "--chdir",
					  job->workdir, "--json-status-fd", status, "--block-fd",
					  block, "--seccomp", filter, NULL});
	if (rc == 0 && a.count == ARGS_MAX)
		rc = hb_fail(err, "release_missing",
			     "the release has too many entries in its root directory");
	if (rc == 0)
		rc = into_file(&a, err);
	for (size_t i = 0; i < a.count; i++)
		free(a.list[i]);
	free(a.list);
	return rc;
}
