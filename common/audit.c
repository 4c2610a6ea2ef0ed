/*
 * Writing the audit chain.
 *
 * The log is the chain itself; beside it `<path>.head` holds, in a fixed number of bytes
 * overwritten in place, the sequence number and hash of the last record and the length of the log
 * up to it. The order is: record written and synced, then head written and synced. So after a crash
 * the log is either exactly what the head says, or that and one whole record (the head is moved
 * on), or that and part of one (set aside in `<path>.torn` and recorded). A log that is shorter
 * than its head, or that differs from it, was cut or replaced: nothing is appended any more, so
 * that it stays reported, until the operator has acknowledged it.
 */
#include "common/audit.h"

#include <errno.h>
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
#include "common/json.h"

struct hb_audit {
	char *path, *process;
	int fd, head_fd;
	struct audit_mark mark; /* what the head file says */
	bool failed;            /* a sync failed: what is on disk is not known any more */
};

static int
write_at(int fd, const void *data, size_t len, off_t at)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = pwrite(fd, p, len, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

static int
write_head(struct hb_audit *a, const struct audit_mark *mark, struct hb_error *err)
{
	char text[AUDIT_HEAD_SIZE + 1];

	hb_audit_head_format(mark, text);
	if (write_at(a->head_fd, text, AUDIT_HEAD_SIZE, 0) != 0 || fdatasync(a->head_fd) != 0) {
		a->failed = true;
		return hb_fail_errno(err, "audit_unwritable", "writing %s.head", a->path);
	}
	a->mark = *mark;
	return 0;
}

/* The canonical line of the next record, with its newline. */
static int
make_record(const struct hb_audit *a, const char *action, const char *status, const json_t *detail,
	    struct hb_buf *out, struct hb_error *err)
{
	json_t *record;
	int rc;

	record = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I}", "action", action, "prev",
			   a->mark.head.hash, "process", a->process, "status", status, "seq",
			   (json_int_t)a->mark.head.seq + 1, "ts", (json_int_t)hb_now());
	if (record == NULL)
		return hb_fail(err, "audit_unwritable",
			       "an audit record holds text that is not UTF-8");
	json_object_set_new(record, "detail",
			    detail != NULL ? json_deep_copy(detail) : json_object());
	rc = hb_json_canonical(record, out, err);
	json_decref(record);
	if (rc != 0)
		return hb_fail_prefix(err, "an audit record can't be written");
	hb_buf_addc(out, '\n');
	if (out->len > AUDIT_RECORD_MAX)
		return hb_fail(err, "audit_unwritable", "an audit record of %zu bytes is too long",
			       out->len);
	return 0;
}

/* Put the record where the head says the log ends, over whatever torn bytes lie there, and sync it.
 */
static int
write_record(struct hb_audit *a, const struct hb_buf *line, struct hb_error *err)
{
	off_t end = a->mark.size + (off_t)line->len;
	int saved;

	if (write_at(a->fd, line->data, line->len, a->mark.size) != 0) {
		/* Disk full: take back the part that was written; the log is as before. */
		saved = errno;
		if (ftruncate(a->fd, a->mark.size) != 0)
			a->failed = true;
		errno = saved;
		return hb_fail_errno(err, "audit_unwritable", "writing %s", a->path);
	}
	if (ftruncate(a->fd, end) != 0 || fdatasync(a->fd) != 0) {
		a->failed = true;
		return hb_fail_errno(err, "audit_unwritable", "syncing %s", a->path);
	}
	return 0;
}

static int
append(struct hb_audit *a, const char *action, const char *status, const json_t *detail,
       struct hb_error *err)
{
	struct hb_buf line = HB_BUF_INIT;
	struct audit_mark mark;
	int rc = -1;

	if (make_record(a, action, status, detail, &line, err) != 0 ||
	    write_record(a, &line, err) != 0)
		goto out;
	mark.head.seq = a->mark.head.seq + 1;
	mark.size = a->mark.size + (off_t)line.len;
	hb_sha256_hex(line.data, line.len - 1, mark.head.hash);
	rc = write_head(a, &mark, err);
out:
	hb_buf_free(&line);
	return rc;
}

int
hb_audit_append(struct hb_audit *a, const char *action, const char *status, const json_t *detail,
		struct hb_error *err)
{
	struct stat st;

	if (a->failed)
		return hb_fail(err, "audit_unwritable", "%s failed before: restart the process",
			       a->path);
	if (fstat(a->fd, &st) != 0)
		return hb_fail_errno(err, "audit_unwritable", "checking %s", a->path);
	/* Cut, extended or replaced while we held it. */
	if (st.st_size != a->mark.size || st.st_nlink != 1) {
		a->failed = true;
		return hb_fail(err, st.st_size < a->mark.size ? "audit_truncated" : "audit_broken",
			       "%s was changed by somebody else", a->path);
	}
	return append(a, action, status, detail, err);
}

/* Keep a copy of the torn bytes before they are written over. */
static int
keep_torn(struct hb_audit *a, const struct hb_buf *torn, struct hb_error *err)
{
	char *name = hb_asprintf("%s.torn", a->path);
	int fd, rc = -1;
	off_t end;

	fd = hb_fs_open_beneath(AT_FDCWD, name, O_RDWR | O_CREAT, 0600, err);
	if (fd < 0)
		goto out;
	end = lseek(fd, 0, SEEK_END);
	if (end < 0 || write_at(fd, torn->data, torn->len, end) != 0 || fsync(fd) != 0) {
		hb_fail_errno(err, "audit_unwritable", "writing %s", name);
		goto out;
	}
	rc = 0;
out:
	hb_close(&fd);
	free(name);
	return rc;
}

static int
heal_torn(struct hb_audit *a, const struct hb_buf *torn, struct hb_error *err)
{
	char hex[HB_HEX256];
	json_t *detail;
	int rc;

	if (keep_torn(a, torn, err) != 0)
		return -1;
	hb_sha256_hex(torn->data, torn->len, hex);
	detail = json_pack("{s:I, s:s}", "bytes", (json_int_t)torn->len, "sha256", hex);
	/* The record takes the place of the torn bytes: a crash meanwhile leaves a torn tail again,
	 * never a loss. */
	rc = append(a, "audit_torn_tail", "crashed", detail, err);
	json_decref(detail);
	return rc;
}

/* The first whole line of `tail`, if it is the record that follows our mark. */
static bool
next_record(const struct hb_audit *a, const struct hb_buf *tail, struct audit_mark *next)
{
	const char *newline = tail->len > 0 ? memchr(tail->data, '\n', tail->len) : NULL;

	return newline != NULL &&
	       hb_audit_follows(tail->data, (size_t)(newline - tail->data), &a->mark, next, NULL);
}

/* What lies behind the head's place in the log. */
static int
read_tail(const struct hb_audit *a, struct hb_buf *tail, struct hb_error *err)
{
	hb_buf_clear(tail);
	return hb_audit_read(a->fd, a->path, a->mark.size, -1, tail, err);
}

/* Compare log and head, and bring both to the same place (see the top of this file). */
static int
settle(struct hb_audit *a, struct hb_error *err)
{
	struct hb_buf tail = HB_BUF_INIT;
	struct audit_mark next;
	int rc = -1;

	if (hb_audit_check_mark(a->fd, a->path, &a->mark, err) != 0 ||
	    read_tail(a, &tail, err) != 0)
		goto out;
	if (next_record(a, &tail, &next)) {
		if (write_head(a, &next, err) != 0 || read_tail(a, &tail, err) != 0)
			goto out;
		/* One append at a time: a second whole record means that the head is an old copy.
		 */
		if (next_record(a, &tail, &next)) {
			hb_fail(err, "audit_broken", "%s has records that its head doesn't know",
				a->path);
			goto out;
		}
	}
	rc = tail.len > 0 ? heal_torn(a, &tail, err) : 0;
out:
	hb_buf_free(&tail);
	return rc;
}

static int
sync_parent(const char *path, struct hb_error *err)
{
	char *dir = hb_strdup(path), *slash = strrchr(dir, '/');
	int rc;

	if (slash != NULL)
		*slash = '\0';
	rc = hb_fs_sync_dir(AT_FDCWD, slash != NULL ? dir : ".", err);
	free(dir);
	return rc;
}

static int
open_log(struct hb_audit *a, struct hb_error *err)
{
	a->fd = hb_fs_open_beneath(AT_FDCWD, a->path, O_RDWR | O_CREAT | O_NONBLOCK | O_NOCTTY,
				   0600, err);
	if (a->fd < 0)
		return hb_fail_prefix(err, "the audit log");
	if (hb_fs_check_trusted(a->fd, a->path, geteuid(), err) != 0)
		return -1;
	if (flock(a->fd, LOCK_EX | LOCK_NB) != 0)
		return hb_fail(err, "audit_locked", "%s is held: another process writes to it",
			       a->path);
	return 0;
}

static int
open_head(struct hb_audit *a, struct hb_error *err)
{
	const struct audit_mark empty = AUDIT_MARK_EMPTY;
	char *name = hb_asprintf("%s.head", a->path), text[AUDIT_HEAD_SIZE + 1] = "";
	struct hb_error e;
	struct stat st;
	ssize_t n;
	int rc = -1;

	if (fstat(a->fd, &st) != 0) {
		hb_fail_errno(err, "audit_unreadable", "checking %s", a->path);
		goto out;
	}
	a->head_fd = hb_fs_open_beneath(AT_FDCWD, name, O_RDWR | O_NONBLOCK | O_NOCTTY, 0, &e);
	if (a->head_fd < 0 && strcmp(e.code, "not_found") == 0 && st.st_size == 0) {
		/* The first start. Written whole or not at all; syncs the directory, which holds
		 * the log too. */
		hb_audit_head_format(&empty, text);
		if (hb_fs_write_new(AT_FDCWD, name, text, AUDIT_HEAD_SIZE, 0600, (uid_t)-1,
				    (gid_t)-1, err) != 0)
			goto out;
		a->head_fd = hb_fs_open_beneath(AT_FDCWD, name, O_RDWR, 0, &e);
	}
	if (a->head_fd < 0) {
		hb_fail(err, "audit_broken", "the head of %s can't be opened: %s", a->path,
			e.message);
		goto out;
	}
	if (hb_fs_check_trusted(a->head_fd, name, geteuid(), err) != 0)
		goto out;
	n = pread(a->head_fd, text, sizeof(text), 0);
	if (n < 0 || hb_audit_head_parse(text, (size_t)n, &a->mark) != 0) {
		hb_fail(err, "audit_broken", "%s is malformed", name);
		goto out;
	}
	rc = st.st_size == 0 ? sync_parent(a->path, err) : 0;
out:
	free(name);
	return rc;
}

int
hb_audit_open(const char *path, const char *process, struct hb_audit **out, struct hb_error *err)
{
	struct hb_audit *a = hb_calloc(1, sizeof(*a));

	a->path = hb_strdup(path);
	a->process = hb_strdup(process);
	a->fd = a->head_fd = -1;
	if (open_log(a, err) != 0 || open_head(a, err) != 0 || settle(a, err) != 0) {
		hb_audit_close(a);
		return -1;
	}
	*out = a;
	return 0;
}

void
hb_audit_close(struct hb_audit *a)
{
	if (a == NULL)
		return;
	hb_close(&a->head_fd);
	hb_close(&a->fd);
	free(a->path);
	free(a->process);
	free(a);
}

struct hb_audit_head
hb_audit_head(const struct hb_audit *a)
{
	return a->mark.head;
}

json_t *
hb_audit_tail(const struct hb_audit *a, int limit, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *records = json_array(), *record;
	off_t from, window = 65536;
	const char *end, *line;

	/* Read ever more of the end until it holds enough whole lines. */
	for (;;) {
		from = a->mark.size > window ? a->mark.size - window : 0;
		json_array_clear(records);
		hb_buf_clear(&text);
		if (hb_audit_read(a->fd, a->path, from, a->mark.size, &text, err) != 0)
			goto fail;
		end = text.data + text.len;
		while (text.len > 0 && end > text.data && (int)json_array_size(records) < limit) {
			line = memrchr(text.data, '\n', (size_t)(end - 1 - text.data));
			if (line == NULL && from > 0)
				break; /* begins before the window */
			line = line != NULL ? line + 1 : text.data;
			record = hb_json_parse(line, (size_t)(end - 1 - line), err);
			if (record == NULL) {
				hb_fail_prefix(err, "a record of %s", a->path);
				goto fail;
			}
			json_array_append_new(records, record);
			end = line;
		}
		if (from == 0 || (int)json_array_size(records) >= limit)
			break;
		window *= 4;
	}
	hb_buf_free(&text);
	return records;
fail:
	hb_buf_free(&text);
	json_decref(records);
	return NULL;
}
