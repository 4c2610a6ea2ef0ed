/*
 * direct: the payload runs from the unpacked tree on the host, for guests where no namespace can be made.
 *
 * What the image names by its own paths is mapped: the program (looked up with the tree as root), a script's interpreter,
 * the working directory, arguments and variables that are the data mount or below it, PATH and its relatives.
 * A binary whose ELF interpreter (elf(5), PT_INTERP) the host doesn't have is started through the tree's own.
 * Not mapped: paths inside other text (--config=/etc/x), and absolute links that the payload itself follows later.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/hermes_run.h"
#include "common/buf.h"
#include "common/fs.h"

#define SEGMENTS_MAX 128
#define WORDS_MAX 1100 /* the spec's 1024 and what stands before them */

struct words {
	char *list[WORDS_MAX];
	size_t count;
};

static void add(struct words *w, char *text)
{
	if (w->count < WORDS_MAX - 1)
		w->list[w->count++] = text;
	else
		free(text);
}

static char **take(struct words *w)
{
	char **list = hb_calloc(w->count + 1, sizeof(*list));

	memcpy(list, w->list, w->count * sizeof(*list));
	return list;
}

/* The data mount or something below it, on the host; NULL when it is something else. */
static char *map_data(const struct hb_run_spec *spec, const char *path)
{
	size_t len = strlen(spec->data_mount);

	if (strncmp(path, spec->data_mount, len) || (path[len] && path[len] != '/'))
		return NULL;
	return hb_asprintf("%s%s", spec->data_dir, path + len);
}

static bool exists_in_root(int root_fd, const char *path)
{
	int fd = hb_run_open_in_root(root_fd, path, O_PATH);
	bool exists = fd >= 0;

	hb_close(&fd);
	return exists;
}

/* "/usr/bin:/bin" with the tree before each absolute part; what is below the data mount goes to the data. */
static char *map_list(const struct hb_run_spec *spec, const char *list)
{
	struct hb_buf out = HB_BUF_INIT;

	for (const char *p = list; p; p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL) {
		char part[PATH_MAX], *data;

		snprintf(part, sizeof(part), "%.*s", (int)strcspn(p, ":"), p);
		if (out.len)
			hb_buf_addc(&out, ':');
		data = map_data(spec, part);
		if (data)
			hb_buf_adds(&out, data);
		else
			hb_buf_printf(&out, "%s%s", part[0] == '/' ? spec->rootfs : "", part);
		free(data);
	}
	return hb_buf_take(&out);
}

static bool is_path_list(const char *name, size_t len)
{
	static const char *const lists[] = {"PATH", "LD_LIBRARY_PATH", "NODE_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR",
					    "NODE_EXTRA_CA_CERTS"};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		if (strlen(lists[i]) == len && !strncmp(lists[i], name, len))
			return true;
	return false;
}

static char **map_env(const struct hb_run_spec *spec)
{
	struct words w = {0};

	for (char *const *e = spec->env; *e; e++) {
		size_t name = strcspn(*e, "=");
		char *value = map_data(spec, *e + name + 1);

		if (!value && is_path_list(*e, name))
			value = map_list(spec, *e + name + 1);
		if (!value && !strncmp(*e, "HOME=", 5)) /* a home in the image can't be written */
			value = hb_strdup(spec->data_dir);
		add(&w, value ? hb_asprintf("%.*s=%s", (int)name, *e, value) : hb_strdup(*e));
		free(value);
	}
	if (!hb_run_env(spec->env, "HOME"))
		add(&w, hb_asprintf("HOME=%s", spec->data_dir));
	return take(&w);
}

/* Where a program found in the tree really lies on the host. */
static int host_path(int fd, char out[PATH_MAX], struct hb_error *err)
{
	char link[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, out, PATH_MAX - 1);
	if (n < 0)
		return hb_fail_errno(err, "proc_missing", "cannot read %s; is /proc mounted?", link);
	out[n] = '\0';
	return 0;
}

/* "#!interpreter argument": both are copied out; 0 when it is no script, 1 when it is. */
static int shebang(int file, char interpreter[PATH_MAX], char argument[PATH_MAX])
{
	char head[512];
	ssize_t n = pread(file, head, sizeof(head) - 1, 0);
	char *p = head + 2, *end;

	interpreter[0] = argument[0] = '\0';
	if (n < 3 || head[0] != '#' || head[1] != '!')
		return 0;
	head[n] = '\0';
	end = strpbrk(head, "\r\n");
	if (end)
		*end = '\0';
	p += strspn(p, " \t");
	n = (ssize_t)strcspn(p, " \t");
	snprintf(interpreter, PATH_MAX, "%.*s", (int)n, p);
	p += n;
	p += strspn(p, " \t");
	end = p + strlen(p);
	while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	snprintf(argument, PATH_MAX, "%s", p);
	return 1;
}

/* The ELF interpreter's path; empty for a static binary. */
static int elf_interpreter(int file, char out[PATH_MAX], struct hb_error *err)
{
	Elf64_Ehdr head;
	Elf64_Phdr segment;

	out[0] = '\0';
	if (pread(file, &head, sizeof(head), 0) != sizeof(head) || memcmp(head.e_ident, ELFMAG, SELFMAG) ||
	    head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof(segment) || head.e_phnum > SEGMENTS_MAX)
		return hb_fail(err, "bad_executable", "the command is neither a 64-bit ELF program nor a script");
	for (unsigned i = 0; i < head.e_phnum; i++) {
		if (pread(file, &segment, sizeof(segment), (off_t)(head.e_phoff + i * sizeof(segment))) !=
		    sizeof(segment))
			return hb_fail(err, "bad_executable", "the command's ELF header is cut short");
		if (segment.p_type != PT_INTERP)
			continue;
		if (segment.p_filesz == 0 || segment.p_filesz >= PATH_MAX ||
		    pread(file, out, segment.p_filesz, (off_t)segment.p_offset) != (ssize_t)segment.p_filesz)
			return hb_fail(err, "bad_executable", "the command's ELF interpreter cannot be read");
		out[segment.p_filesz] = '\0';
		return 0;
	}
	return 0;
}

static char *library_path(const struct hb_run_spec *spec)
{
	static const char *const dirs[] = {"/lib", "/usr/lib", "/usr/local/lib", "/lib64", "/usr/lib64",
#if defined(__x86_64__)
					   "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"
#elif defined(__aarch64__)
					   "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"
#endif
	};
	struct hb_buf out = HB_BUF_INIT;

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		hb_buf_printf(&out, "%s%s%s", out.len ? ":" : "", spec->rootfs, dirs[i]);
	return hb_buf_take(&out);
}

/* Put `fd`, found in the tree, and what it needs to be started before the other arguments. */
static int add_program(const struct hb_run_spec *spec, int root_fd, int fd, const char *argv0, int depth,
		       struct words *w, char path[PATH_MAX], struct hb_error *err)
{
	char real[PATH_MAX], interpreter[PATH_MAX], argument[PATH_MAX];
	int file = -1, inner = -1, rc = -1;

	if (host_path(fd, real, err) < 0)
		goto out;
	file = open(real, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (file < 0) {
		hb_fail_errno(err, "bad_executable", "%s", real);
		goto out;
	}
	if (depth < 3 && shebang(file, interpreter, argument)) {
		inner = hb_run_find(root_fd, "/", NULL, interpreter, path, err);
		if (inner < 0 || add_program(spec, root_fd, inner, interpreter, depth + 1, w, path, err) < 0)
			goto out;
		if (argument[0])
			add(w, hb_strdup(argument));
		add(w, hb_strdup(real));
		rc = 0;
		goto out;
	}
	if (elf_interpreter(file, interpreter, err) < 0)
		goto out;
	if (!interpreter[0] || access(interpreter, X_OK) == 0) {
		snprintf(path, PATH_MAX, "%s", real);
		add(w, hb_strdup(argv0));
		rc = 0;
		goto out;
	}
	inner = hb_run_find(root_fd, "/", NULL, interpreter, argument, err);
	if (inner < 0 || host_path(inner, path, err) < 0)
		goto out;
	add(w, hb_strdup(interpreter));
	add(w, hb_strdup("--library-path"));
	add(w, library_path(spec));
	add(w, hb_strdup(real));
	rc = 0;
out:
	hb_close(&file);
	hb_close(&inner);
	return rc;
}

static char *map_argument(const struct hb_run_spec *spec, int root_fd, const char *text)
{
	char *data = text[0] == '/' ? map_data(spec, text) : NULL;

	if (data)
		return data;
	if (text[0] == '/' && text[1] && exists_in_root(root_fd, text))
		return hb_asprintf("%s%s", spec->rootfs, text);
	return hb_strdup(text);
}

int hb_run_program_direct(const struct hb_run_spec *spec, struct hb_run_program *out, struct hb_error *err)
{
	int root = open(spec->rootfs, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), dir = -1, fd = -1, rc = -1;
	struct words w = {0};

	if (root >= 0)
		dir = hb_run_open_in_root(root, spec->working_dir, O_PATH | O_DIRECTORY);
	if (dir < 0 || fchdir(dir) < 0) {
		hb_fail_errno(err, "bad_working_dir", "the image's working directory %s cannot be entered",
			      spec->working_dir);
		goto out;
	}
	fd = hb_run_find(root, spec->working_dir, hb_run_env(spec->env, "PATH"), spec->argv[0], out->path, err);
	if (fd < 0 || add_program(spec, root, fd, spec->argv[0], 0, &w, out->path, err) < 0)
		goto out;
	for (char *const *a = spec->argv + 1; *a; a++)
		add(&w, map_argument(spec, root, *a));
	out->argv = take(&w);
	out->env = map_env(spec);
	w.count = 0;
	rc = 0;
out:
	for (size_t i = 0; i < w.count; i++)
		free(w.list[i]);
	hb_close(&root);
	hb_close(&dir);
	hb_close(&fd);
	return rc;
}
