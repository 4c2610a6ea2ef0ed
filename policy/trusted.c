/*
 * One way to read bounds.conf and policy.json. The checks and the bytes come from one open
 * descriptor, so nobody can exchange the file between the two.
 */
#include "policy/trusted.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fs.h"

static int read_all(int fd, const char *path, size_t max, struct hb_buf *out, struct hb_error *err)
{
	char chunk[8192];

	for (;;) {
		ssize_t n = read(fd, chunk, sizeof(chunk));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return hb_fail_errno(err, "policy_unreadable", "can't read %s", path);
		if (n == 0)
			return 0;
		if (out->len + (size_t)n > max)
			return hb_fail(err, "too_large", "%s is larger than %zu bytes", path, max);
		hb_buf_add(out, chunk, (size_t)n);
	}
}

int hb_trusted_read(int dirfd, const char *path, uid_t owner, size_t max, const char *missing,
		    struct hb_buf *out, struct hb_error *err)
{
	struct hb_buf data = HB_BUF_INIT;
	struct stat st;
	int rc = -1;

	/* O_NONBLOCK: a fifo put in its place must not hang the process. */
	int fd = hb_fs_open_beneath(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0,
				    err);
	if (fd < 0) {
		if (errno == ENOENT)
			return hb_fail(err, missing,
				       "%s does not exist, so nothing is allowed; create it", path);
		return -1;
	}
	if (fstat(fd, &st) < 0) {
		hb_fail_errno(err, "policy_unreadable", "can't examine %s", path);
		goto out;
	}
	if (!S_ISREG(st.st_mode)) {
		hb_fail(err, "policy_unreadable",
			"%s is not a regular file; remove it and write it anew", path);
		goto out;
	}
	if (hb_fs_check_trusted(fd, path, owner, err) < 0)
		goto out;
	if (read_all(fd, path, max, &data, err) < 0)
		goto out;
	hb_buf_add(out, data.data ? data.data : "", data.len);
	rc = 0;
out:
	hb_buf_free(&data);
	hb_close(&fd);
	return rc;
}
