/*
 * Programs are looked up the way the image means it: in the image's PATH, with the image as root directory. openat2 with
 * RESOLVE_IN_ROOT makes absolute links and ".." stay inside, also when the tree lies somewhere on the host.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broker/installer/hermes_run.h"
#include "common/buf.h"
#include "common/fs.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

void hb_run_program_free(struct hb_run_program *p)
{
	for (char **w = p->argv; w && *w; w++)
		free(*w);
	for (char **w = p->env; w && *w; w++)
		free(*w);
	free(p->argv);
	free(p->env);
	memset(p, 0, sizeof(*p));
}

int hb_run_open_in_root(int root_fd, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)flags | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd;

	do
		fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd;
}

const char *hb_run_env(char *const *env, const char *name)
{
	size_t len = strlen(name);

	for (; env && *env; env++)
		if (!strncmp(*env, name, len) && (*env)[len] == '=')
			return *env + len + 1;
	return NULL;
}

static int open_program(int root_fd, const char *path)
{
	int fd = hb_run_open_in_root(root_fd, path, O_PATH);
	struct stat st;

	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & 0111)))
		hb_close(&fd);
	return fd;
}

int hb_run_find(int root_fd, const char *working_dir, const char *path_list, const char *name, char found[PATH_MAX],
		struct hb_error *err)
{
	int fd;

	if (strchr(name, '/')) {
		if (name[0] == '/')
			snprintf(found, PATH_MAX, "%s", name);
		else
			snprintf(found, PATH_MAX, "%s/%s", working_dir, name);
		fd = open_program(root_fd, found);
		if (fd >= 0)
			return fd;
		return hb_fail(err, "command_not_found",
			       "the image has no executable file %s; correct runtime.command in hermes.conf", found);
	}
	if (!path_list || !path_list[0])
		path_list = DEFAULT_PATH;
	for (const char *p = path_list; p; p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL) {
		int len = (int)strcspn(p, ":");

		snprintf(found, PATH_MAX, "%.*s/%s", len ? len : 1, len ? p : ".", name);
		fd = open_program(root_fd, found);
		if (fd >= 0)
			return fd;
	}
	return hb_fail(err, "command_not_found",
		       "\"%s\" is in no directory of the image's PATH (%s); correct runtime.command in hermes.conf",
		       name, path_list);
}

static char **copy_words(char *const *words)
{
	size_t n = 0;
	char **copy;

	while (words[n])
		n++;
	copy = hb_calloc(n + 1, sizeof(*copy));
	for (size_t i = 0; i < n; i++)
		copy[i] = hb_strdup(words[i]);
	return copy;
}

int hb_run_program_in_root(const struct hb_run_spec *spec, struct hb_run_program *out, struct hb_error *err)
{
	int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), fd;

	if (root < 0 || chdir(spec->working_dir) < 0) {
		hb_fail_errno(err, "bad_working_dir", "the image's working directory %s cannot be entered",
			      spec->working_dir);
		hb_close(&root);
		return -1;
	}
	fd = hb_run_find(root, spec->working_dir, hb_run_env(spec->env, "PATH"), spec->argv[0], out->path, err);
	hb_close(&root);
	if (fd < 0)
		return -1;
	hb_close(&fd);
	out->argv = copy_words(spec->argv);
	out->env = copy_words(spec->env);
	return 0;
}
