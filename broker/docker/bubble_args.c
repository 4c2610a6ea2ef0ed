/*
 * The whole of what bubblewrap is asked for. The root is an empty one into which each part of the release is bound
 * read-only, and not the release itself, since places for /proc, /tmp and the workspace may be missing there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/docker/bubble.h"
#include "broker/docker/workspace.h"
#include "common/buf.h"

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
	static const char *const names[] = {".", "..", "proc", "dev", "sys", "tmp", "run", "workspace"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

static int put_entry(struct args *a, int dir, const char *root, const char *name, struct hb_error *err)
{
	char *source = hb_asprintf("%s/%s", root, name), *place = hb_asprintf("/%s", name), target[4096];
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

char **hb_bubble_args(const struct hb_bubble_job *job, int status_fd, int block_fd, struct hb_error *err)
{
	static const char *const apart[] = {
		"--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
		"--unshare-cgroup-try", "--disable-userns", "--uid", "10002", "--gid", "10002", "--hostname", "sandbox",
		"--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv", "--setenv", "PATH",
		"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "--setenv", "HOME", "/tmp", "--setenv",
		"TMPDIR", "/tmp", NULL};
	static const char *const own_places[] = {"--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", TMP_BYTES,
						 "--tmpfs", "/tmp", "--dir", "/run", "--bind", NULL};
	struct args a = {.list = hb_calloc(ARGS_MAX + 1, sizeof *a.list)};
	char *status = hb_asprintf("%d", status_fd), *block = hb_asprintf("%d", block_fd);
	int rc;

	put(&a, "bwrap");
	put_all(&a, apart);
	if (job->net_raw)
		put_all(&a, (const char *const[]){"--cap-add", "CAP_NET_RAW", NULL});
	rc = put_release(&a, hb_config_text(job->config, "local.release"), err);
	put_all(&a, own_places);
	put_all(&a, (const char *const[]){hb_config_text(job->config, "local.workspace"), HB_WORKSPACE, "--remount-ro", "/",
					  "--chdir", job->workdir, "--json-status-fd", status, "--block-fd", block, "--",
					  "/bin/sh", "-c", job->command, NULL});
	free(status);
	free(block);
	if (rc == 0 && a.count == ARGS_MAX)
		rc = hb_fail(err, "release_missing", "the release has too many entries in its root directory");
	if (rc == 0)
		return a.list;
	hb_bubble_args_free(a.list);
	return NULL;
}

void hb_bubble_args_free(char **args)
{
	for (char **p = args; p && *p; p++)
		free(*p);
	free(args);
}
