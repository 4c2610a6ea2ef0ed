/*
 * Reading the audit chain: the head file, the last records, and the whole check that needs nothing
 * but the files. The check also works beside a running writer, which may append while it reads.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/audit_internal.h"
#include "common/digest.h"
#include "common/fields.h"
#include "common/fs.h"
#include "common/json.h"

#define HEAD_PREFIX "hermes-audit-head-v1 "

void
hb_audit_head_format(const struct audit_mark *mark, char text[AUDIT_HEAD_SIZE + 1])
{
	snprintf(text, AUDIT_HEAD_SIZE + 1, HEAD_PREFIX "%020" PRId64 " %s %020" PRId64 "\n",
		 mark->head.seq, mark->head.hash, (int64_t)mark->size);
}

int
hb_audit_head_parse(const char *text, size_t len, struct audit_mark *mark)
{
	struct audit_mark m = AUDIT_MARK_EMPTY;
	char again[AUDIT_HEAD_SIZE + 1];
	const char *seq = text + sizeof(HEAD_PREFIX) - 1, *hash = seq + 21, *size = hash + 65;

	if (len != AUDIT_HEAD_SIZE || memchr(text, '\0', len) != NULL)
		return -1;
	m.head.seq = strtoll(seq, NULL, 10);
	memcpy(m.head.hash, hash, 64);
	m.size = strtoll(size, NULL, 10);
	if (m.head.seq < 0 || m.size < 0 || !hb_is_hex64(m.head.hash))
		return -1;
	/* One spelling only. */
	hb_audit_head_format(&m, again);
	if (memcmp(again, text, len) != 0)
		return -1;
	*mark = m;
	return 0;
}

struct record {
	const char *action, *prev, *process, *status;
	long long seq, ts;
	json_t *detail;
};

#define RECORD(field, type, flags, min, max)                                                       \
	{                                                                                          \
#field, type, HB_FIELD_REQUIRED | (flags), offsetof(struct record, field), min,    \
			max                                                                        \
	}

static const struct hb_field record_fields[] = {
	RECORD(action, HB_FIELD_TEXT, 0, 1, 128),
	RECORD(detail, HB_FIELD_OBJECT, 0, 0, 0),
	RECORD(prev, HB_FIELD_TEXT, HB_FIELD_HEX64, 0, 0),
	RECORD(process, HB_FIELD_TEXT, 0, 1, 64),
	RECORD(seq, HB_FIELD_INT, 0, 1, HB_JSON_INT_MAX),
	RECORD(status, HB_FIELD_TEXT, 0, 1, 64),
	RECORD(ts, HB_FIELD_INT, 0, -HB_JSON_INT_MAX, HB_JSON_INT_MAX),
};

bool
hb_audit_follows(const char *line, size_t len, const struct audit_mark *at, struct audit_mark *next,
		 struct hb_error *err)
{
	struct hb_buf canonical = HB_BUF_INIT;
	struct audit_mark m;
	struct record r;
	json_t *record;
	bool ok = false;

	record = hb_json_parse(line, len, err);
	if (record == NULL ||
	    hb_fields_decode(record, record_fields,
			     sizeof(record_fields) / sizeof(record_fields[0]), &r, err) != 0 ||
	    hb_json_canonical(record, &canonical, err) != 0)
		goto out;
	if (canonical.len != len || memcmp(canonical.data, line, len) != 0)
		hb_fail(err, "audit_broken", "the record is not in canonical form");
	else if (r.seq != at->head.seq + 1)
		hb_fail(err, "audit_broken", "record %" PRId64 " is followed by record %lld",
			at->head.seq, r.seq);
	else if (strcmp(r.prev, at->head.hash) != 0)
		hb_fail(err, "audit_broken", "record %lld doesn't continue from the one before it",
			r.seq);
	else
		ok = true;
	if (ok) {
		m.head.seq = r.seq;
		hb_sha256_hex(line, len, m.head.hash);
		m.size = at->size + (off_t)len + 1;
		*next = m;
	}
out:
	json_decref(record);
	hb_buf_free(&canonical);
	return ok;
}

int
hb_audit_read(int fd, const char *path, off_t from, off_t to, struct hb_buf *out,
	      struct hb_error *err)
{
	char chunk[65536];
	size_t want;
	ssize_t n;

	while (to < 0 || from < to) {
		want = to < 0 || to - from > (off_t)sizeof(chunk) ? sizeof(chunk)
								  : (size_t)(to - from);
		n = pread(fd, chunk, want, from);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return hb_fail_errno(err, "audit_unreadable", "reading %s", path);
		if (n == 0)
			break;
		hb_buf_add(out, chunk, (size_t)n);
		from += n;
	}
	return 0;
}

int
hb_audit_check_mark(int fd, const char *path, const struct audit_mark *mark, struct hb_error *err)
{
	struct hb_buf end = HB_BUF_INIT;
	char hash[HB_HEX256];
	const char *line;
	struct stat st;
	int rc = -1;

	if (fstat(fd, &st) != 0)
		return hb_fail_errno(err, "audit_unreadable", "checking %s", path);
	if (st.st_size < mark->size)
		return hb_fail(err, "audit_truncated",
			       "%s was cut: it ends before record %" PRId64
			       ", which its head names",
			       path, mark->head.seq);
	if (mark->size == 0)
		return mark->head.seq == 0
			       ? 0
			       : hb_fail(err, "audit_broken", "the head of %s is wrong", path);
	if (hb_audit_read(fd, path,
			  mark->size > AUDIT_RECORD_MAX ? mark->size - AUDIT_RECORD_MAX : 0,
			  mark->size, &end, err) != 0)
		goto out;
	if (end.len > 0 && end.data[end.len - 1] == '\n') {
		line = memrchr(end.data, '\n', end.len - 1);
		line = line != NULL ? line + 1 : end.data;
		hb_sha256_hex(line, (size_t)(end.data + end.len - 1 - line), hash);
		rc = strcmp(hash, mark->head.hash) == 0 ? 0 : -1;
	}
	if (rc != 0)
		hb_fail(err, "audit_broken",
			"%s is not the log that its head belongs to: record %" PRId64 " differs",
			path, mark->head.seq);
out:
	hb_buf_free(&end);
	return rc;
}

static int
read_head(int dirfd, const char *path, struct audit_mark *mark, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	char *name = hb_asprintf("%s.head", path);
	struct hb_error e;
	int rc;

	rc = hb_fs_read(dirfd, name, AUDIT_HEAD_SIZE, &text, &e);
	if (rc != 0)
		hb_fail(err, strcmp(e.code, "not_found") == 0 ? "audit_broken" : "audit_unreadable",
			"the head of the log: %s", e.message);
	else if (hb_audit_head_parse(text.data, text.len, mark) != 0)
		rc = hb_fail(err, "audit_broken", "%s is malformed", name);
	hb_buf_free(&text);
	free(name);
	return rc;
}

/* Follow the chain through every whole line; `at` ends behind the last. Passing `head`, it must
 * agree. */
static int
walk(FILE *log, const char *path, const struct audit_mark *head, struct audit_mark *at,
     struct hb_error *err)
{
	struct hb_error e;
	char *line = NULL;
	size_t room = 0;
	ssize_t n;
	int rc = -1;

	while ((n = getline(&line, &room, log)) > 0) {
		/* The end of a line that is still being written, or was torn by a crash. */
		if (line[n - 1] != '\n')
			break;
		if (!hb_audit_follows(line, (size_t)n - 1, at, at, &e)) {
			hb_fail(err, "audit_broken", "%s:%" PRId64 ": %s", path, at->head.seq + 1,
				e.message);
			goto out;
		}
		if (at->head.seq == head->head.seq &&
		    (at->size != head->size || strcmp(at->head.hash, head->head.hash) != 0)) {
			hb_fail(err, "audit_broken",
				"%s:%" PRId64 ": the record is not the one that the head names",
				path, at->head.seq);
			goto out;
		}
	}
	if (ferror(log))
		hb_fail_errno(err, "audit_unreadable", "reading %s", path);
	else
		rc = 0;
out:
	free(line);
	return rc;
}

int
hb_audit_verify(int dirfd, const char *path, struct hb_audit_head *head, struct hb_error *err)
{
	struct audit_mark before = AUDIT_MARK_EMPTY, after = AUDIT_MARK_EMPTY;
	struct audit_mark at = AUDIT_MARK_EMPTY;
	struct hb_error e;
	FILE *log = NULL;
	int fd, rc = -1;

	fd = hb_fs_open_beneath(dirfd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, &e);
	if (fd < 0)
		return hb_fail(err, "audit_unreadable", "the log: %s", e.message);
	log = fdopen(fd, "r");
	if (log == NULL) {
		hb_close(&fd);
		return hb_fail_errno(err, "audit_unreadable", "reading %s", path);
	}
	/* The head first: a writer beside us only moves it on. */
	if (read_head(dirfd, path, &before, err) != 0 || walk(log, path, &before, &at, err) != 0)
		goto out;
	if (at.head.seq < before.head.seq) {
		hb_fail(err, "audit_truncated",
			"%s was cut: it ends with record %" PRId64
			" and its head names record %" PRId64,
			path, at.head.seq, before.head.seq);
		goto out;
	}
	if (read_head(dirfd, path, &after, err) != 0)
		goto out;
	if (at.head.seq > after.head.seq + 1) {
		hb_fail(err, "audit_broken", "%s has records that its head doesn't know", path);
		goto out;
	}
	if (head != NULL)
		*head = at.head;
	rc = 0;
out:
	fclose(log);
	return rc;
}

int
hb_audit_scan(int dirfd, const char *path, hb_audit_each each, void *arg, struct hb_error *err)
{
	struct audit_mark at = AUDIT_MARK_EMPTY;
	struct hb_error e;
	char *line = NULL;
	size_t room = 0;
	ssize_t n;
	FILE *log;
	int fd, rc = 0;

	fd = hb_fs_open_beneath(dirfd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, &e);
	if (fd < 0)
		return hb_fail(err, "audit_unreadable", "the log: %s", e.message);
	log = fdopen(fd, "r");
	if (log == NULL) {
		hb_close(&fd);
		return hb_fail_errno(err, "audit_unreadable", "reading %s", path);
	}
	while (rc == 0 && (n = getline(&line, &room, log)) > 0 && line[n - 1] == '\n') {
		if (!hb_audit_follows(line, (size_t)n - 1, &at, &at, &e))
			rc = hb_fail(err, "audit_broken", "%s:%" PRId64 ": %s", path,
				     at.head.seq + 1, e.message);
		else if (each(&at.head, line, (size_t)n - 1, arg) != 0)
			break;
	}
	if (rc == 0 && ferror(log))
		rc = hb_fail_errno(err, "audit_unreadable", "reading %s", path);
	free(line);
	fclose(log);
	return rc;
}
