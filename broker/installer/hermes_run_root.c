/*
 * A new root directory for the payload without writing a byte to the release.
 *
 * A small tmpfs is the root; each top-level entry of the release's rootfs appears in it as a read-only bind (links are
 * copied). Where a mount point is missing in the release (/data is in no layer, /etc/hosts often not) the
 * directories above it are made on the tmpfs too and their entries bound one by one. Then /proc, /dev, /tmp, the
 * data directory and the host's resolver files are put in place.
 *
 * Every target is opened beneath the new root without following links and mounted on by descriptor, so that no link in
 * an image can lead a mount elsewhere.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "broker/installer/hermes_run.h"
#include "common/buf.h"
#include "common/fs.h"

#define ENTRIES_MAX 4096 /* binds; a kernel allows 100,000 mounts a namespace */
#define ETC_FILE_MAX 65536
#define EXPANDED_MAX 32

struct builder {
	const struct hb_run_spec *spec;
	int old_fd;                  /* the release's rootfs, in the present namespace */
	char *expanded[EXPANDED_MAX]; /* directories that are made on the tmpfs, relative */
	size_t expanded_count, entries;
	bool own_proc;
	struct hb_error *err;
};

static const unsigned long bind_flags = MS_BIND | MS_REMOUNT | MS_NOSUID;

static const struct {
	const char *name;
	unsigned minor_number;
	bool required;
} nodes[] = {{"null", 3, true}, {"zero", 5, false}, {"full", 7, false}, {"random", 8, false}, {"urandom", 9, true}};

/* The working directory is the new root: every relative path below means a place in it. */
static int open_target(struct builder *b, const char *rel)
{
	return hb_fs_open_beneath(AT_FDCWD, rel, O_PATH, 0, b->err);
}

static int mount_at(struct builder *b, const char *rel, const char *source, const char *type, unsigned long flags,
		    const char *data)
{
	int fd = open_target(b, rel), rc;
	char target[32];

	if (fd < 0)
		return -1;
	snprintf(target, sizeof(target), "/proc/self/fd/%d", fd);
	rc = mount(source, target, type, flags, data);
	if (rc < 0)
		hb_fail_errno(b->err, "mount_failed", "mounting %s in the runtime's root", rel);
	hb_close(&fd);
	return rc;
}

/* Bind what source_fd refers to; `flags` are set by a second call since the first one ignores them. */
static int bind_at(struct builder *b, const char *rel, int source_fd, unsigned long flags)
{
	char source[32];

	snprintf(source, sizeof(source), "/proc/self/fd/%d", source_fd);
	if (mount_at(b, rel, source, NULL, MS_BIND, NULL) < 0)
		return -1;
	return mount_at(b, rel, NULL, NULL, bind_flags | flags, NULL);
}

static int make_file(struct builder *b, const char *rel, const void *data, size_t len)
{
	int fd = hb_fs_open_beneath(AT_FDCWD, rel, O_WRONLY | O_CREAT | O_EXCL, 0644, b->err), rc = 0;

	if (fd < 0)
		return -1;
	if (fchmod(fd, 0644) < 0 || (len && write(fd, data, len) != (ssize_t)len))
		rc = hb_fail_errno(b->err, "root_failed", "writing %s in the runtime's root", rel);
	hb_close(&fd);
	return rc;
}

static int make_dir(struct builder *b, const char *rel, mode_t mode)
{
	if (mkdir(rel, mode) < 0 && errno != EEXIST)
		return hb_fail_errno(b->err, "root_failed", "making /%s in the runtime's root", rel);
	return 0;
}

static bool is_expanded(const struct builder *b, const char *rel)
{
	for (size_t i = 0; i < b->expanded_count; i++)
		if (!strcmp(b->expanded[i], rel))
			return true;
	return false;
}

static int expand(struct builder *b, const char *rel)
{
	if (is_expanded(b, rel))
		return 0;
	if (b->expanded_count == EXPANDED_MAX)
		return hb_fail(b->err, "root_failed", "mount points lie too deep in the image");
	b->expanded[b->expanded_count++] = hb_strdup(rel);
	return 0;
}

/* Is there a mount point of this type in the release? If not, every existing directory above it is expanded. */
static int plan(struct builder *b, const char *rel, mode_t type)
{
	char part[PATH_MAX];
	struct stat st;

	for (const char *slash = strchr(rel, '/');; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", slash ? (int)(slash - rel) : PATH_MAX - 1, rel);
		if (fstatat(b->old_fd, part, &st, AT_SYMLINK_NOFOLLOW) < 0)
			break;
		if (!slash && (st.st_mode & S_IFMT) == type)
			return 0;
		if (!slash)
			break;
		if (!S_ISDIR(st.st_mode))
			return hb_fail(b->err, "bad_mount_point",
				       "/%s in the image is not a directory, so nothing can be mounted at /%s; set "
				       "runtime.data_mount to a place without links",
				       part, rel);
	}
	if (type == S_IFDIR && fstatat(b->old_fd, rel, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return hb_fail(b->err, "bad_mount_point",
			       "/%s in the image is not a directory; set runtime.data_mount to another place", rel);
	for (const char *slash = strchr(rel, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - rel), rel);
		if (fstatat(b->old_fd, part, &st, AT_SYMLINK_NOFOLLOW) < 0)
			break;
		if (expand(b, part) < 0)
			return -1;
	}
	return 0;
}

static bool is_ours(const char *rel)
{
	static const char *const ours[] = {"proc", "dev", "tmp"};

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (!strcmp(rel, ours[i]))
			return true;
	return false;
}

static int populate(struct builder *b, const char *rel);

static int populate_entry(struct builder *b, const char *rel)
{
	char target[PATH_MAX];
	int fd = -1, rc = -1;
	struct stat st;
	ssize_t n;

	if (++b->entries > ENTRIES_MAX)
		return hb_fail(b->err, "root_failed", "the image has more than %d entries beside its mount points",
			       ENTRIES_MAX);
	fd = openat(b->old_fd, rel, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		hb_fail_errno(b->err, "root_failed", "/%s of the release", rel);
		goto out;
	}
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(fd, "", target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = '\0';
		rc = n > 0 && symlink(target, rel) == 0
			     ? 0
			     : hb_fail_errno(b->err, "root_failed", "copying the link /%s", rel);
	} else if (S_ISDIR(st.st_mode)) {
		if (make_dir(b, rel, (st.st_mode & 0777) | 0111) == 0)
			rc = is_expanded(b, rel) ? populate(b, rel) : bind_at(b, rel, fd, MS_RDONLY | MS_NODEV);
	} else if (S_ISREG(st.st_mode)) {
		if (make_file(b, rel, NULL, 0) == 0)
			rc = bind_at(b, rel, fd, MS_RDONLY | MS_NODEV);
	} else {
		rc = 0; /* the unpacker makes no other kind */
	}
out:
	hb_close(&fd);
	return rc;
}

/* Files that are replaced and cannot be mounted on (links, say) are left out; provide_file makes them. */
static bool is_replaced(const struct builder *b, const char *rel)
{
	struct stat st;

	if (strcmp(rel, "etc/resolv.conf") && strcmp(rel, "etc/hosts"))
		return false;
	return fstatat(b->old_fd, rel, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode);
}

static int populate(struct builder *b, const char *rel)
{
	int fd = openat(b->old_fd, rel[0] ? rel : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int rc = 0;

	if (!dir) {
		hb_close(&fd);
		return hb_fail_errno(b->err, "root_failed", "cannot list /%s of the release", rel);
	}
	for (const struct dirent *e; rc == 0 && (e = readdir(dir));) {
		char path[PATH_MAX];

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		snprintf(path, sizeof(path), "%s%s%s", rel, rel[0] ? "/" : "", e->d_name);
		if (!is_ours(path) && !is_replaced(b, path))
			rc = populate_entry(b, path);
	}
	closedir(dir);
	return rc;
}

/* The mount point and what is missing above it; on the tmpfs, or it is there already. */
static int make_point(struct builder *b, const char *rel)
{
	char part[PATH_MAX];

	for (const char *slash = strchr(rel, '/');; slash = strchr(slash + 1, '/')) {
		struct stat st;

		snprintf(part, sizeof(part), "%.*s", slash ? (int)(slash - rel) : PATH_MAX - 1, rel);
		if (lstat(part, &st) < 0 && make_dir(b, part, 0755) < 0)
			return -1;
		if (!slash)
			return 0;
	}
}

/* The payload speaks to the outside: it gets copies of the host's resolver files, read-only like everything. */
static int provide_file(struct builder *b, const char *rel)
{
	static const char scratch[] = ".resolver-file";
	struct hb_buf text = HB_BUF_INIT;
	char absolute[64], piece[4096];
	int fd = -1, rc = -1;
	struct stat st;
	ssize_t n = 0;

	snprintf(absolute, sizeof(absolute), "/%s", rel);
	fd = open(absolute, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	while (fd >= 0 && text.len < ETC_FILE_MAX && (n = read(fd, piece, sizeof(piece))) > 0)
		hb_buf_add(&text, piece, (size_t)n);
	hb_close(&fd);
	if (lstat(rel, &st) < 0) {
		rc = make_point(b, "etc") < 0 ? -1 : make_file(b, rel, text.data, text.len);
		goto out;
	}
	if (make_file(b, scratch, text.data, text.len) < 0)
		goto out;
	fd = open_target(b, scratch);
	if (fd >= 0)
		rc = bind_at(b, rel, fd, MS_RDONLY | MS_NODEV | MS_NOEXEC);
	unlink(scratch);
out:
	hb_close(&fd);
	hb_buf_free(&text);
	return rc;
}

/* Nodes are the host's, bound: no CAP_MKNOD. Only those with the numbers they must have. */
static int make_node(struct builder *b, size_t i)
{
	char host[32], rel[32];
	int fd, rc = -1;
	struct stat st;

	snprintf(host, sizeof(host), "/dev/%s", nodes[i].name);
	snprintf(rel, sizeof(rel), "dev/%s", nodes[i].name);
	fd = open(host, O_PATH | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, nodes[i].minor_number)) {
		rc = nodes[i].required ? hb_fail(b->err, "no_device", "this host has no usable %s", host) : 0;
		goto out;
	}
	if (make_file(b, rel, NULL, 0) == 0)
		rc = bind_at(b, rel, fd, MS_NOEXEC);
out:
	hb_close(&fd);
	return rc;
}

static int make_dev(struct builder *b)
{
	static const char *const links[][2] = {{"/proc/self/fd", "dev/fd"},
					       {"/proc/self/fd/0", "dev/stdin"},
					       {"/proc/self/fd/1", "dev/stdout"},
					       {"/proc/self/fd/2", "dev/stderr"}};

	if (make_dir(b, "dev", 0755) < 0 ||
	    mount_at(b, "dev", "tmpfs", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k") < 0)
		return -1;
	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
		if (make_node(b, i) < 0)
			return -1;
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (symlink(links[i][0], links[i][1]) < 0)
			return hb_fail_errno(b->err, "root_failed", "making /%s", links[i][1]);
	if (make_dir(b, "dev/shm", 0755) < 0 ||
	    mount_at(b, "dev/shm", "tmpfs", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=1777,size=64m") < 0)
		return -1;
	return mount_at(b, "dev", NULL, NULL, bind_flags | MS_NOEXEC | MS_RDONLY, NULL);
}

/* Its own view of /proc, where only its own processes appear, when the kernel lets us; else the host's. The process
 * ids are the host's in both cases: see the pid files that payloads keep in their data. */
static int make_proc(struct builder *b)
{
	const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
	int fd, rc;

	if (make_dir(b, "proc", 0555) < 0)
		return -1;
	b->own_proc = mount_at(b, "proc", "proc", "proc", flags, "hidepid=2") == 0;
	if (b->own_proc)
		return 0;
	fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return hb_fail_errno(b->err, "proc_missing", "this host has no /proc");
	rc = bind_at(b, "proc", fd, MS_NODEV | MS_NOEXEC);
	hb_close(&fd);
	return rc;
}

static int make_data(struct builder *b)
{
	const char *rel = b->spec->data_mount + 1;
	int fd = open(b->spec->data_dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = -1;

	if (fd < 0)
		return hb_fail_errno(b->err, "data_unusable", "the data directory %s", b->spec->data_dir);
	/* Executable: native modules are unpacked and loaded from there. */
	if (make_point(b, rel) == 0)
		rc = bind_at(b, rel, fd, MS_NODEV);
	hb_close(&fd);
	return rc;
}

static int fill(struct builder *b)
{
	const char *data = b->spec->data_mount + 1;

	if (!strncmp(data, "proc", 4) && (!data[4] || data[4] == '/'))
		return hb_fail(b->err, "bad_mount_point", "runtime.data_mount must not be below /proc");
	if (!strncmp(data, "dev", 3) && (!data[3] || data[3] == '/'))
		return hb_fail(b->err, "bad_mount_point", "runtime.data_mount must not be below /dev");
	if (strncmp(data, "tmp/", 4) && plan(b, data, S_IFDIR) < 0)
		return -1;
	if (plan(b, "etc/resolv.conf", S_IFREG) < 0 || plan(b, "etc/hosts", S_IFREG) < 0)
		return -1;
	if (populate(b, "") < 0 || make_proc(b) < 0 || make_dev(b) < 0 || make_dir(b, "tmp", 0755) < 0 ||
	    mount_at(b, "tmp", "tmpfs", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=512m") < 0 ||
	    provide_file(b, "etc/resolv.conf") < 0 || provide_file(b, "etc/hosts") < 0 || make_data(b) < 0)
		return -1;
	if (mount(NULL, ".", NULL, bind_flags | MS_RDONLY | MS_NODEV, NULL) < 0)
		return hb_fail_errno(b->err, "mount_failed", "making the runtime's root read-only");
	return 0;
}

void hb_run_root_remove(void)
{
	while (umount2(HB_RUN_ROOT, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		;
}

static int prepare_namespace(enum hb_run_root_kind kind, struct hb_error *err)
{
	if (kind == HB_ROOT_CHROOT)
		return 0;
	if (unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
		return hb_fail_errno(err, "unshare_failed", "new mount, IPC and UTS namespaces are not allowed here");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return hb_fail_errno(err, "mount_failed", "mounts cannot be made private here");
	return 0;
}

/* The old root is stacked under the new one and taken away; on an initramfs pivot_root is refused and the new root is
 * moved over the old one instead. */
static int move_in(enum hb_run_root_kind kind, struct hb_error *err)
{
	if (kind == HB_ROOT_CHROOT) {
		if (chroot(".") < 0 || chdir("/") < 0)
			return hb_fail_errno(err, "chroot_failed", "entering the runtime's root");
		return 0;
	}
	if (syscall(SYS_pivot_root, ".", ".") == 0) {
		if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
			return hb_fail_errno(err, "pivot_failed", "leaving the host's root");
		return 0;
	}
	if (errno != EINVAL || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
		return hb_fail_errno(err, "pivot_failed", "making the runtime's root the root directory");
	return 0;
}

int hb_run_root_enter(const struct hb_run_spec *spec, enum hb_run_root_kind kind, bool *own_proc,
		      struct hb_error *err)
{
	struct builder b = {.spec = spec, .old_fd = -1, .err = err};
	mode_t mask = umask(0);
	int rc = -1;

	if (prepare_namespace(kind, err) < 0)
		goto out;
	hb_run_root_remove(); /* what an earlier chroot left */
	if (hb_fs_mkdirs(AT_FDCWD, HB_RUN_ROOT, 0700, 0, 0, err) < 0)
		goto out;
	b.old_fd = open(spec->rootfs, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (b.old_fd < 0) {
		hb_fail_errno(err, "release_missing", "%s", spec->rootfs);
		goto out;
	}
	if (mount("tmpfs", HB_RUN_ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=4m") < 0 ||
	    mount(NULL, HB_RUN_ROOT, NULL, MS_PRIVATE, NULL) < 0 || chdir(HB_RUN_ROOT) < 0) {
		hb_fail_errno(err, "mount_failed", "mounting is not allowed here");
		goto out;
	}
	if (fill(&b) < 0 || move_in(kind, err) < 0)
		goto out;
	*own_proc = b.own_proc;
	rc = 0;
out:
	umask(mask);
	hb_close(&b.old_fd);
	for (size_t i = 0; i < b.expanded_count; i++)
		free(b.expanded[i]);
	return rc;
}
