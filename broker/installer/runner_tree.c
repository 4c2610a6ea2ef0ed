/* Walking /proc and control groups; see runner_tree.h for the idea. */
#include "broker/installer/runner_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"

struct proc {
	pid_t pid, parent;
	unsigned long long started; /* clock ticks since boot: with the pid, an identity */
	bool ours, zombie;
};

struct proc_list {
	struct proc *list;
	size_t count, room;
};

static void add_proc(struct proc_list *l, const struct proc *p)
{
	if (l->count == l->room) {
		struct proc *bigger;

		l->room = l->room ? l->room * 2 : 256;
		bigger = hb_calloc(l->room, sizeof(*bigger));
		if (l->count)
			memcpy(bigger, l->list, l->count * sizeof(*bigger));
		free(l->list);
		l->list = bigger;
	}
	l->list[l->count++] = *p;
}

/* proc_pid_stat(5): the name in parentheses may hold anything, so the fields are counted from the last ')'. */
static int read_stat(pid_t pid, struct proc *out)
{
	char path[32], text[1024], state, *p;
	int fd, parent;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	p = strrchr(text, ')');
	*out = (struct proc){.pid = pid};
	if (!p || sscanf(p + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
			 &state, &parent, &out->started) != 3)
		return -1;
	out->parent = parent;
	out->zombie = state == 'Z';
	return 0;
}

static void list_processes(struct proc_list *out)
{
	DIR *dir = opendir("/proc");

	for (const struct dirent *e; dir && (e = readdir(dir));) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		struct proc p;

		if (pid > 0 && read_stat(pid, &p) == 0)
			add_proc(out, &p);
	}
	if (dir)
		closedir(dir);
}

/* Direct children by the kernel's own list: seen even where /proc hides other users' processes. */
static void add_children(struct proc_list *l)
{
	FILE *f = fopen("/proc/thread-self/children", "re");
	int pid;

	while (f && fscanf(f, "%d", &pid) == 1) {
		struct proc p = {.pid = pid, .parent = getpid()};
		bool known = false;

		for (size_t i = 0; i < l->count; i++)
			known = known || l->list[i].pid == pid;
		if (!known)
			add_proc(l, &p);
	}
	if (f)
		fclose(f);
}

static void mark_descendants(struct proc_list *l, pid_t root)
{
	bool more = true;

	while (more) {
		more = false;
		for (size_t i = 0; i < l->count; i++) {
			struct proc *p = &l->list[i];
			bool under = p->parent == root;

			for (size_t j = 0; !p->ours && !under && j < l->count; j++)
				under = l->list[j].ours && l->list[j].pid == p->parent;
			if (under && !p->ours)
				p->ours = more = true;
		}
	}
}

/* By pidfd, and only if the pid still means the process that was looked at. started 0: an unreaped child of ours, whose
 * pid cannot be taken by another. */
static bool signal_exactly(const struct proc *p, int sig)
{
	int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	struct proc now;
	bool same;

	if (fd < 0)
		return false;
	same = p->started == 0 || (read_stat(p->pid, &now) == 0 && now.started == p->started);
	if (same)
		same = syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) == 0;
	close(fd);
	return same;
}

static void write_group(const struct hb_tree *tree, const char *file, const char *text)
{
	int fd = tree->group_fd < 0 ? -1 : openat(tree->group_fd, file, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : write(fd, text, strlen(text));

	(void)n; /* older kernels have no cgroup.kill: the walk does it then */
	hb_close(&fd);
}

int hb_tree_signal(const struct hb_tree *tree, int sig)
{
	struct proc_list all = {0};
	int count = 0;

	list_processes(&all);
	add_children(&all);
	mark_descendants(&all, getpid());
	for (size_t i = 0; i < all.count; i++)
		if (all.list[i].ours && signal_exactly(&all.list[i], sig))
			count++;
	if (sig == SIGKILL)
		write_group(tree, "cgroup.kill", "1");
	free(all.list);
	return count;
}

/* "0::/path" of /proc/self/cgroup and the mount point of the hierarchy from /proc/self/mountinfo. */
static int own_group(char *out, size_t size)
{
	char line[4096], path[1024] = "", mount[1024] = "";
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "0::", 3))
			snprintf(path, sizeof(path), "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
	if (f)
		fclose(f);
	f = fopen("/proc/self/mountinfo", "re");
	while (f && fgets(line, sizeof(line), f)) {
		char root[1024], point[1024];
		const char *rest = strstr(line, " - ");

		if (rest && !strncmp(rest, " - cgroup2 ", 11) &&
		    sscanf(line, "%*d %*d %*s %1023s %1023s", root, point) == 2)
			snprintf(mount, sizeof(mount), "%s", point);
	}
	if (f)
		fclose(f);
	if (!path[0] || !mount[0] || strchr(path, '\\') || strstr(path, "/.."))
		return -1;
	return snprintf(out, size, "%s%s", mount, path[1] ? path : "") < (int)size ? 0 : -1;
}

void hb_tree_open(struct hb_tree *tree, const char *host_id)
{
	char base[400];

	tree->group_fd = -1;
	if (own_group(base, sizeof(base)) < 0)
		return;
	snprintf(tree->group_path, sizeof(tree->group_path), "%s/hermes-%s-runtime", base, host_id);
	if (mkdir(tree->group_path, 0755) < 0 && errno != EEXIST)
		return;
	tree->group_fd = open(tree->group_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (tree->group_fd >= 0 && faccessat(tree->group_fd, "cgroup.procs", W_OK, 0) < 0)
		hb_close(&tree->group_fd);
}

void hb_tree_close(struct hb_tree *tree)
{
	if (tree->group_fd < 0)
		return;
	hb_close(&tree->group_fd);
	rmdir(tree->group_path);
}

void hb_tree_enter(const struct hb_tree *tree)
{
	write_group(tree, "cgroup.procs", "0");
}

/* --- leftovers --- */

static bool has_marker(pid_t pid, const char *host_id)
{
	struct hb_buf text = HB_BUF_INIT;
	char path[40], piece[8192];
	bool found = false;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && text.len < (1u << 20) && (n = read(fd, piece, sizeof(piece))) > 0)
		hb_buf_add(&text, piece, (size_t)n);
	hb_close(&fd);
	for (size_t at = 0; at < text.len; at += strlen(text.data + at) + 1)
		if (!strncmp(text.data + at, "HERMES_INSTANCE=", 16) && !strcmp(text.data + at + 16, host_id))
			found = true;
	hb_buf_free(&text);
	return found;
}

static uid_t uid_of(pid_t pid)
{
	char path[32], line[256];
	unsigned uid = (unsigned)-1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Uid: %u", &uid) == 1)
			break;
	if (f)
		fclose(f);
	return uid;
}

static bool in_group(const struct hb_tree *tree, pid_t pid)
{
	int fd = tree->group_fd < 0 ? -1 : openat(tree->group_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC), member;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	bool found = false;

	while (f && !found && fscanf(f, "%d", &member) == 1)
		found = member == pid;
	if (f)
		fclose(f);
	return found;
}

static int signal_leftovers(const struct hb_tree *tree, const char *host_id, uid_t uid, int sig)
{
	struct proc_list all = {0};
	int count = 0;

	list_processes(&all);
	for (size_t i = 0; i < all.count; i++) {
		struct proc *p = &all.list[i];

		if (p->pid == getpid() || p->pid == 1 || p->zombie)
			continue;
		if (in_group(tree, p->pid) || (uid_of(p->pid) == uid && has_marker(p->pid, host_id)))
			count += signal_exactly(p, sig);
	}
	free(all.list);
	return count;
}

int hb_tree_end_leftovers(const struct hb_tree *tree, const char *host_id, uid_t uid, int grace_ms)
{
	int64_t deadline = hb_monotonic_ms() + grace_ms;
	int found = signal_leftovers(tree, host_id, uid, SIGTERM);

	if (!found)
		return 0;
	while (hb_monotonic_ms() < deadline && signal_leftovers(tree, host_id, uid, 0) > 0)
		poll(NULL, 0, 50);
	for (int round = 0; round < 100 && signal_leftovers(tree, host_id, uid, SIGKILL) > 0; round++) {
		write_group(tree, "cgroup.kill", "1");
		poll(NULL, 0, 50);
	}
	return found;
}
