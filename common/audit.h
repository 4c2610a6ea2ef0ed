/*
 * Hash-chained audit log: one canonical JSON record a line,
 *   {"action":..,"detail":{..},"prev":"<hex>","process":..,"seq":N,"status":..,"ts":N}
 * hash of a record = SHA-256 of its line without the newline; `prev` of the first is 64 zeros.
 * A record is fsync'ed before hb_audit_append returns: no record, no effect. One writer (flock).
 * The head (seq, hash) is also kept in a file beside it, so that a cut tail is noticed.
 */
#ifndef HB_COMMON_AUDIT_H
#define HB_COMMON_AUDIT_H

#include <jansson.h>
#include <stdint.h>

#include "common/error.h"

struct hb_audit;

struct hb_audit_head {
	int64_t seq; /* 0: empty */
	char hash[65];
};

/* Opens or creates `path` (0600) and `path`.head; a torn last line is moved to `path`.torn and
 * recorded. Codes: audit_locked, audit_truncated, audit_broken, audit_unwritable, audit_unreadable.
 */
int
hb_audit_open(const char *path, const char *process, struct hb_audit **out, struct hb_error *err);
void hb_audit_close(struct hb_audit *a);

/* status: intent (before an effect), ok, refused, denied, failed, timeout, cancelled, crashed,
 * unknown. detail may be NULL; it's not kept. */
int hb_audit_append(struct hb_audit *a, const char *action, const char *status,
		    const json_t *detail, struct hb_error *err);
/* The last record written. */
struct hb_audit_head hb_audit_head(const struct hb_audit *a);

/* The last `limit` records, newest first, as a JSON array. */
json_t *hb_audit_tail(const struct hb_audit *a, int limit, struct hb_error *err);

/* After audit_broken or audit_truncated an open is refused until the operator has said so here (as
 * root, with the process stopped). Old log and head are kept as `path`.aside-*; a new chain begins
 * with a record that names them. */
int hb_audit_acknowledge(const char *path, const char *process, const char *reason,
			 struct hb_error *err);

/* Verify a file offline. Codes: audit_broken (names line), audit_truncated, audit_unreadable. Also
 * beside a running writer. A torn last line is no error: the next open sets it aside. */
int hb_audit_verify(int dirfd, const char *path, struct hb_audit_head *head, struct hb_error *err);

/* Follow a chain without its head file, also one that was set aside: `each` gets every whole record
 * that continues it (line without newline, borrowed) until it returns non-zero, which is no error.
 * Codes: audit_broken after the last good record, audit_unreadable. */
typedef int (*hb_audit_each)(const struct hb_audit_head *at, const char *line, size_t len,
			     void *arg);
int hb_audit_scan(int dirfd, const char *path, hb_audit_each each, void *arg, struct hb_error *err);

#endif
