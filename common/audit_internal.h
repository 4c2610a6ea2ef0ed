/* Shared by audit.c (writing) and audit_read.c (reading): the head file and the shape of a record.
 */
#ifndef HB_COMMON_AUDIT_INTERNAL_H
#define HB_COMMON_AUDIT_INTERNAL_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/audit.h"
#include "common/buf.h"

/* The longest record is an operation's whole summary with its digests: far below this. */
#define AUDIT_RECORD_MAX 131072

/* "hermes-audit-head-v1 <20 digits sequence> <64 hex> <20 digits bytes>\n" */
#define AUDIT_HEAD_SIZE (20 + 1 + 20 + 1 + 64 + 1 + 20 + 1)

/* A place in the chain: the last record before it and the bytes up to there. */
struct audit_mark {
	struct hb_audit_head head;
	off_t size;
};

#define AUDIT_MARK_EMPTY                                                                           \
	{                                                                                          \
		{0, "0000000000000000000000000000000000000000000000000000000000000000"}, 0         \
	}

void hb_audit_head_format(const struct audit_mark *mark, char text[AUDIT_HEAD_SIZE + 1]);
int hb_audit_head_parse(const char *text, size_t len, struct audit_mark *mark);

/* Whether `line` (without newline) is exactly the record that follows `at`; `next` is the place
 * after it. */
bool hb_audit_follows(const char *line, size_t len, const struct audit_mark *at,
		      struct audit_mark *next, struct hb_error *err);

/* Bytes [from, to) of the log; to -1: its end. */
int hb_audit_read(int fd, const char *path, off_t from, off_t to, struct hb_buf *out,
		  struct hb_error *err);

/* The log reaches `mark` and the record that ends there is the one it names. */
int
hb_audit_check_mark(int fd, const char *path, const struct audit_mark *mark, struct hb_error *err);

#endif
