/* See store.h. */
#include "onboarding/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/audit.h"
#include "common/fs.h"
#include "common/json.h"

int hb_onboarding_lock(int *fd, struct hb_error *err)
{
	int rc;

	*fd = hb_fs_open_beneath(AT_FDCWD, HB_ONBOARDING_LOCK, O_RDWR | O_CREAT, 0600, err);
	if (*fd < 0)
		return hb_fail_prefix(err, "the lock can't be opened (run `hermesctl setup`)");
	do
		rc = flock(*fd, LOCK_EX);
	while (rc < 0 && errno == EINTR);
	if (rc < 0) {
		hb_fail_errno(err, "lock_failed", "%s", HB_ONBOARDING_LOCK);
		hb_close(fd);
		return -1;
	}
	return 0;
}

static int judge(int fd, const char *path, struct hb_error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return hb_fail_errno(err, "read_failed", "reading %s", path);
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return hb_fail(err, "loose_permissions", "%s must be a regular file with one name",
			       path);
	if (st.st_uid != geteuid())
		return hb_fail(err, "loose_permissions", "%s belongs to uid %u; run: chown %u %s",
			       path, st.st_uid, geteuid(), path);
	if (st.st_mode & 077)
		return hb_fail(
			err, "loose_permissions",
			"%s can be reached by its group or others (mode %04o); run: chmod 600 %s",
			path, st.st_mode & 07777, path);
	return 0;
}

int hb_onboarding_load(const char *path, size_t max, json_t **out, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	struct hb_error why = {0};
	char piece[8192];
	ssize_t n = 0;
	int fd = hb_fs_open_beneath(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, &why),
	    rc = -1;

	*out = NULL;
	if (fd < 0 && strcmp(why.code, "not_found") == 0)
		return 0;
	if (fd < 0)
		return hb_fail(err, why.code, "%s", why.message);
	if (judge(fd, path, err) < 0)
		goto out;
	while (text.len <= max &&
	       ((n = read(fd, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)))
		if (n > 0)
			hb_buf_add(&text, piece, (size_t)n);
	if (n < 0) {
		hb_fail_errno(err, "read_failed", "reading %s", path);
		goto out;
	}
	if (text.len > max) {
		hb_fail(err, "too_large", "%s has more than %zu bytes", path, max);
		goto out;
	}
	*out = hb_json_parse(text.data ? text.data : "", text.len, &why);
	if (*out)
		rc = 0;
	else if (strcmp(why.code, "duplicate_key") == 0)
		hb_fail(err, "bad_json",
			"%s: an object has the same key twice; put a backup of the file back",
			path);
	else
		hb_fail(err, "bad_json", "%s: %s; put a backup of the file back", path,
			why.message);
out:
	hb_buf_free(&text);
	hb_close(&fd);
	return rc;
}

int hb_onboarding_save(const char *path, const json_t *value, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	int rc = hb_json_canonical(value, &text, err);

	hb_buf_addc(&text, '\n');
	if (rc == 0)
		rc = hb_fs_write_atomic(AT_FDCWD, path, text.data, text.len, 0600, geteuid(),
					getegid(), err);
	hb_buf_free(&text);
	return rc;
}

int hb_onboarding_audit(const char *action, const char *status, const char *name, json_t *detail,
			struct hb_error *err)
{
	struct hb_audit *a = NULL;
	int rc;

	if (!detail)
		detail = json_object();
	if (name)
		json_object_set_new(detail, "name", json_string(name));
	rc = hb_audit_open(HB_ONBOARDING_AUDIT, "onboarding", &a, err);
	if (rc == 0)
		rc = hb_audit_append(a, action, status, detail, err);
	hb_audit_close(a);
	json_decref(detail);
	return rc < 0 ? hb_fail_prefix(err, "nothing was changed, since it can't be recorded") : 0;
}
