/* The releases journal (journal.h). */
#include "broker/installer/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"

/* A line holds at most one result and one activation, each far below a request body of 256 KiB. */
#define JOURNAL_MAX (4u << 20)
/* When an operation begins and the file is larger, the finished past is dropped: the ledger and the
 * audit log keep it. */
#define JOURNAL_KEEP (64u << 10)

struct hb_journal {
	int fd;
	off_t size;
	enum hb_step step;
	json_t *begin, *activate, *snapshot, *committed; /* lines of the present operation */
};

static const char *const names[] = {"none",	 "begin",  "activate", "snapshot",
				    "committed", "undone", "end"};

const char *hb_step_name(enum hb_step step)
{
	return names[step];
}

static enum hb_step step_parse(const char *name)
{
	for (size_t i = HB_STEP_BEGIN; i <= HB_STEP_END; i++)
		if (strcmp(name, names[i]) == 0)
			return (enum hb_step)i;
	return HB_STEP_NONE;
}

static bool may_follow(enum hb_step now, enum hb_step next)
{
	switch (next) {
	case HB_STEP_BEGIN:
		return now == HB_STEP_NONE || now == HB_STEP_END;
	case HB_STEP_ACTIVATE:
		return now == HB_STEP_BEGIN;
	case HB_STEP_SNAPSHOT:
		return now == HB_STEP_ACTIVATE;
	case HB_STEP_COMMITTED:
	case HB_STEP_UNDONE:
		return now == HB_STEP_ACTIVATE || now == HB_STEP_SNAPSHOT;
	case HB_STEP_END:
		return now != HB_STEP_NONE && now != HB_STEP_END;
	case HB_STEP_NONE:
		break;
	}
	return false;
}

static void replace(json_t **slot, json_t *value)
{
	json_decref(*slot);
	*slot = value;
}

/* Take a line that is on disk into the state; `line` is stolen. */
static void take(struct hb_journal *j, enum hb_step step, json_t *line)
{
	j->step = step;
	if (step == HB_STEP_BEGIN) {
		replace(&j->begin, line);
		replace(&j->activate, NULL);
		replace(&j->snapshot, NULL);
		replace(&j->committed, NULL);
	} else if (step == HB_STEP_ACTIVATE) {
		replace(&j->activate, line);
	} else if (step == HB_STEP_SNAPSHOT) {
		replace(&j->snapshot, line);
	} else if (step == HB_STEP_COMMITTED) {
		replace(&j->committed, line);
	} else {
		json_decref(line);
	}
}

static int replay(struct hb_journal *j, const struct hb_buf *all, off_t *good, struct hb_error *err)
{
	size_t at = 0;
	int line_number = 0;

	while (at < all->len) {
		const char *start = all->data + at, *end = memchr(start, '\n', all->len - at);
		enum hb_step step;
		json_t *line;

		line_number++;
		if (!end)
			break; /* torn: the step was never taken, since append had not returned */
		line = hb_json_parse(start, (size_t)(end - start), err);
		if (!line)
			return hb_fail(
				err, "journal_broken",
				"installer/journal.ndjson line %d is not a step; "
				"move the file away after `hermesctl runtime verify` is clean",
				line_number);
		step = step_parse(hb_json_text(line, "step", ""));
		if (!may_follow(j->step, step)) {
			json_decref(line);
			return hb_fail(
				err, "journal_broken",
				"installer/journal.ndjson line %d is out of order; "
				"move the file away after `hermesctl runtime verify` is clean",
				line_number);
		}
		take(j, step, line);
		at = (size_t)(end - all->data) + 1;
	}
	*good = (off_t)at;
	return 0;
}

int hb_journal_open(int dirfd, const char *path, struct hb_journal **out, struct hb_error *err)
{
	struct hb_journal *j = hb_calloc(1, sizeof *j);
	struct hb_buf all = HB_BUF_INIT;
	char chunk[8192];
	ssize_t n;

	j->fd = hb_fs_open_beneath(dirfd, path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600, err);
	if (j->fd < 0) {
		free(j);
		return -1;
	}
	while ((n = read(j->fd, chunk, sizeof chunk)) > 0 && all.len <= JOURNAL_MAX)
		hb_buf_add(&all, chunk, (size_t)n);
	if (n < 0 || all.len > JOURNAL_MAX) {
		hb_fail(err, "journal_unreadable", "%s can't be read whole", path);
		goto fail;
	}
	if (replay(j, &all, &j->size, err) < 0)
		goto fail;
	if ((size_t)j->size < all.len && (ftruncate(j->fd, j->size) < 0 || fsync(j->fd) < 0)) {
		hb_fail_errno(err, "journal_unreadable", "%s: the torn last line can't be cut off",
			      path);
		goto fail;
	}
	hb_buf_free(&all);
	*out = j;
	return 0;
fail:
	hb_buf_free(&all);
	hb_journal_close(j);
	return -1;
}

void hb_journal_close(struct hb_journal *j)
{
	if (!j)
		return;
	json_decref(j->begin);
	json_decref(j->activate);
	json_decref(j->snapshot);
	json_decref(j->committed);
	hb_close(&j->fd);
	free(j);
}

struct hb_journal_state hb_journal_state(const struct hb_journal *j)
{
	return (struct hb_journal_state){
		.step = j->step,
		.operation_id = hb_json_text(j->begin, "operation_id", ""),
		.action = hb_json_text(j->begin, "action", ""),
		.old = json_object_get(j->activate, "old"),
		.snapshot = json_object_get(j->snapshot, "snapshot"),
		.result = json_object_get(j->committed, "result"),
	};
}

bool hb_journal_open_operation(const struct hb_journal *j)
{
	return j->step != HB_STEP_NONE && j->step != HB_STEP_END;
}

json_t *hb_journal_undo(const struct hb_journal *j)
{
	json_t *old;

	if (j->step != HB_STEP_ACTIVATE && j->step != HB_STEP_SNAPSHOT)
		return NULL;
	old = json_deep_copy(json_object_get(j->activate, "old"));
	if (j->snapshot)
		json_object_set(old, "snapshot", json_object_get(j->snapshot, "snapshot"));
	return old;
}

static int write_line(struct hb_journal *j, const struct hb_buf *text, struct hb_error *err)
{
	size_t done = 0;
	ssize_t n;

	while (done < text->len) {
		n = write(j->fd, text->data + done, text->len - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			goto fail;
		done += (size_t)n;
	}
	if (fdatasync(j->fd) < 0)
		goto fail;
	j->size += (off_t)text->len;
	return 0;
fail:
	hb_fail_errno(err, "journal_failed",
		      "the step can't be recorded in installer/journal.ndjson");
	/* Part of a line must not become the beginning of the next one. */
	if (ftruncate(j->fd, j->size) < 0)
		hb_fail_prefix(err, "journal left with a torn line");
	return -1;
}

int hb_journal_append(struct hb_journal *j, enum hb_step step, const char *operation_id,
		      const char *action, const json_t *more, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *line;
	int rc = -1;

	if (!may_follow(j->step, step))
		return hb_fail(err, "journal_order", "step %s can't follow %s", names[step],
			       names[j->step]);
	line = more ? json_deep_copy(more) : json_object();
	json_object_set_new(line, "step", json_string(names[step]));
	json_object_set_new(line, "operation_id", json_string(operation_id));
	json_object_set_new(line, "action", json_string(action));
	json_object_set_new(line, "ts", json_integer(hb_now()));
	if (step == HB_STEP_BEGIN && j->size > (off_t)JOURNAL_KEEP) {
		/* All of it is finished business; an empty journal means the same. */
		if (ftruncate(j->fd, 0) < 0 || fsync(j->fd) < 0) {
			hb_fail_errno(err, "journal_failed",
				      "installer/journal.ndjson can't be shortened");
			goto out;
		}
		j->size = 0;
	}
	if (hb_json_canonical(line, &text, err) < 0)
		goto out;
	hb_buf_addc(&text, '\n');
	if (write_line(j, &text, err) < 0)
		goto out;
	take(j, step, json_incref(line));
	rc = 0;
out:
	json_decref(line);
	hb_buf_free(&text);
	return rc;
}
