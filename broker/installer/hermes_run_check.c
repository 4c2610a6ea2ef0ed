/* What hermes-run refuses, judged on opened descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "broker/installer/hermes_run.h"
#include "common/fs.h"

int hb_run_check_ids(const struct hb_run_spec *spec, struct hb_error *err)
{
	if (spec->uid == 0 || spec->gid == 0)
		return hb_fail(err, "root_refused",
			       "the runtime never runs as root; set identities.base_uid in hermes.conf");
	if (geteuid() != 0)
		return hb_fail(err, "not_root", "hermes-run must be started by root so that it can become uid %u",
			       (unsigned)spec->uid);
	return 0;
}

/* A directory that neither the payload owns nor others may write. */
static int check_owner(int fd, const char *what, const struct hb_run_spec *spec, struct hb_error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return hb_fail_errno(err, "release_unreadable", "cannot look at %s of release %.12s", what,
				     spec->manifest_digest);
	if (st.st_uid == spec->uid || (st.st_gid == spec->gid && st.st_mode & S_IWGRP) ||
	    (st.st_mode & S_IWOTH && !(st.st_mode & S_ISVTX)))
		return hb_fail(err, "release_permissions",
			       "release %.12s: the runtime itself could write %s; install it again",
			       spec->manifest_digest, what);
	return 0;
}

int hb_run_check_release(const struct hb_run_spec *spec, struct hb_error *err)
{
	const char *slash = strrchr(spec->rootfs, '/');
	char parent[PATH_MAX];
	int dir = -1, root = -1, rc = -1;
	struct stat st;

	memcpy(parent, spec->rootfs, (size_t)(slash - spec->rootfs));
	parent[slash - spec->rootfs] = '\0';
	dir = open(parent[0] ? parent : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0) {
		hb_fail_errno(err, "release_missing", "release %.12s: %s; install it again",
			      spec->manifest_digest, parent);
		goto out;
	}
	if (fstatat(dir, "COMPLETE", &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode)) {
		hb_fail(err, "release_incomplete",
			"release %.12s has no COMPLETE mark: it was never unpacked to its end; install it again",
			spec->manifest_digest);
		goto out;
	}
	root = openat(dir, slash + 1, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (root < 0) {
		hb_fail_errno(err, "release_missing", "release %.12s: %s; install it again",
			      spec->manifest_digest, spec->rootfs);
		goto out;
	}
	rc = check_owner(dir, "its directory", spec, err) < 0 ? -1 : check_owner(root, "rootfs", spec, err);
out:
	hb_close(&dir);
	hb_close(&root);
	return rc;
}

int hb_run_check_data(const struct hb_run_spec *spec, struct hb_error *err)
{
	int fd = open(spec->data_dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = -1;
	struct statvfs vfs;
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return hb_fail(err, "data_missing",
			       "the data directory %s is missing; restore a backup, or install again to make an "
			       "empty one",
			       spec->data_dir);
	if (fd < 0 || fstat(fd, &st) < 0 || fstatvfs(fd, &vfs) < 0) {
		hb_fail_errno(err, "data_unusable", "the data directory %s must be a directory that root can enter",
			      spec->data_dir);
		goto out;
	}
	if (st.st_uid != spec->uid)
		hb_fail(err, "data_owner", "the data directory %s belongs to uid %u; run: chown -R %u:%u %s",
			spec->data_dir, (unsigned)st.st_uid, (unsigned)spec->uid, (unsigned)spec->gid,
			spec->data_dir);
	else if (st.st_mode & 077)
		hb_fail(err, "data_permissions",
			"others can reach the data directory %s (mode %04o); run: chmod 0700 %s", spec->data_dir,
			st.st_mode & 07777, spec->data_dir);
	else if ((st.st_mode & 0700) != 0700)
		hb_fail(err, "data_unwritable",
			"the runtime cannot write its data directory %s (mode %04o); run: chmod 0700 %s",
			spec->data_dir, st.st_mode & 07777, spec->data_dir);
	else if (vfs.f_flag & ST_RDONLY)
		hb_fail(err, "data_unwritable",
			"the data directory %s is on a file system that is mounted read-only", spec->data_dir);
	else
		rc = 0;
out:
	hb_close(&fd);
	return rc;
}
