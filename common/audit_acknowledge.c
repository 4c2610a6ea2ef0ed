/*
 * Going on after a log was found cut or changed. The operator says so; the old files are kept under
 * another name and a new chain begins whose first record says what was set aside. New files are
 * made first and put in place by rename, log before head, so that a crash in between leaves a pair
 * that doesn't fit and is reported again.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/audit_internal.h"
#include "common/digest.h"
#include "common/fs.h"
#include "common/ids.h"

struct names {
	char *log, *head, *fresh, *fresh_head, *aside, *aside_head;
};

static void
make_names(const char *path, struct names *n)
{
	char random[9];

	hb_random_hex(4, random);
	n->log = hb_strdup(path);
	n->head = hb_asprintf("%s.head", path);
	n->fresh = hb_asprintf("%s.new", path);
	n->fresh_head = hb_asprintf("%s.new.head", path);
	n->aside = hb_asprintf("%s.aside-%lld-%s", path, (long long)hb_now(), random);
	n->aside_head = hb_asprintf("%s.head", n->aside);
}

static void
free_names(struct names *n)
{
	free(n->log);
	free(n->head);
	free(n->fresh);
	free(n->fresh_head);
	free(n->aside);
	free(n->aside_head);
}

/* What is set aside, told by its hashes; a missing file is told as such. */
static json_t *
describe(const struct names *n, const char *reason)
{
	const char *files[] = {n->log, n->head}, *keys[] = {"log_sha256", "head_sha256"};
	json_t *detail = json_pack("{s:s, s:s}", "reason", reason, "kept_as", n->aside);
	struct hb_buf text = HB_BUF_INIT;
	char hex[HB_HEX256];
	int fd, i;

	for (i = 0; i < 2; i++) {
		hb_buf_clear(&text);
		strcpy(hex, "missing");
		fd = hb_fs_open_beneath(AT_FDCWD, files[i], O_RDONLY | O_NONBLOCK, 0, NULL);
		if (fd >= 0 && hb_audit_read(fd, files[i], 0, -1, &text, NULL) == 0)
			hb_sha256_hex(text.data != NULL ? text.data : "", text.len, hex);
		json_object_set_new(detail, keys[i], json_string(hex));
		hb_close(&fd);
	}
	hb_buf_free(&text);
	return detail;
}

static int
begin_chain(const struct names *n, const char *process, const char *reason,
	    const struct stat *owner, struct hb_error *err)
{
	json_t *detail = describe(n, reason);
	struct hb_audit *a = NULL;
	int rc = -1;

	/* Left by a try that a crash ended. */
	unlink(n->fresh);
	unlink(n->fresh_head);
	if (detail == NULL) {
		hb_fail(err, "audit_unwritable", "the reason is not valid UTF-8");
		goto out;
	}
	if (hb_audit_open(n->fresh, process, &a, err) != 0 ||
	    hb_audit_append(a, "audit_acknowledged", "ok", detail, err) != 0)
		goto out;
	if (lchown(n->fresh, owner->st_uid, owner->st_gid) != 0 ||
	    lchown(n->fresh_head, owner->st_uid, owner->st_gid) != 0) {
		hb_fail_errno(err, "audit_unwritable", "giving %s to its process", n->fresh);
		goto out;
	}
	rc = 0;
out:
	hb_audit_close(a);
	json_decref(detail);
	return rc;
}

static int
swap(const struct names *n, struct hb_error *err)
{
	char *dir, *slash;
	int rc;

	if (link(n->log, n->aside) != 0)
		return hb_fail_errno(err, "audit_unwritable", "keeping %s", n->log);
	/* The head may be what is missing. */
	if (access(n->head, F_OK) == 0 && link(n->head, n->aside_head) != 0)
		return hb_fail_errno(err, "audit_unwritable", "keeping %s", n->head);
	if (rename(n->fresh, n->log) != 0 || rename(n->fresh_head, n->head) != 0)
		return hb_fail_errno(err, "audit_unwritable", "putting the new %s in place",
				     n->log);
	dir = hb_strdup(n->log);
	slash = strrchr(dir, '/');
	if (slash != NULL)
		*slash = '\0';
	rc = hb_fs_sync_dir(AT_FDCWD, slash != NULL ? dir : ".", err);
	free(dir);
	return rc;
}

int
hb_audit_acknowledge(const char *path, const char *process, const char *reason,
		     struct hb_error *err)
{
	struct names n;
	struct stat st;
	int fd, rc = -1;

	make_names(path, &n);
	fd = hb_fs_open_beneath(AT_FDCWD, path, O_RDWR | O_CREAT | O_NONBLOCK, 0600, err);
	if (fd < 0)
		goto out;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		hb_fail(err, "audit_locked", "%s is held: stop %s first", path, process);
		goto out;
	}
	if (fstat(fd, &st) != 0) {
		hb_fail_errno(err, "audit_unreadable", "checking %s", path);
		goto out;
	}
	if (begin_chain(&n, process, reason, &st, err) == 0)
		rc = swap(&n, err);
out:
	hb_close(&fd);
	free_names(&n);
	return rc;
}
