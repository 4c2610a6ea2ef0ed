/*
 * SQLite, opened the same way by everyone: WAL, a chosen durability, a busy timeout, a version that
 * decides which migrations run, and a VFS that never asks for the absolute path of a file (SQLite's
 * own does, and then opens by that, which fails for a process whose state lies below a directory it
 * may not enter).
 *
 * The working directory must not change while a database is open. Files are created 0600.
 */
#ifndef HB_COMMON_DB_H
#define HB_COMMON_DB_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct hb_db_options {
	bool full_sync; /* synchronous=FULL: a commit is on disk when it returns; else NORMAL */
	bool read_only; /* must exist; no migration */
	int busy_ms;    /* 0: 5000 */
	const char *const *steps; /* steps[i] brings the schema from version i to i+1 (SQL, may be
				     several statements) */
	int step_count;
};

/* Codes: db_failed, db_newer (made by a later release), disk_full, loose_permissions. */
int hb_db_open(const char *path, const struct hb_db_options *options, sqlite3 **out,
	       struct hb_error *err);
void hb_db_close(sqlite3 *db); /* NULL is allowed; statements must be finalized */
/* The name of the VFS described above, registered: for those who open a file that isn't ours. */
const char *hb_db_vfs(void);

/* -1 with code db_failed (disk_full) and SQLite's reason; never the SQL's values. */
int hb_db_fail(sqlite3 *db, struct hb_error *err, const char *what);

/* Statements without values. */
int hb_db_exec(sqlite3 *db, const char *sql, struct hb_error *err);
/* BEGIN IMMEDIATE: the write lock is had at once, not in the middle. */
int hb_db_begin(sqlite3 *db, struct hb_error *err);
int hb_db_commit(sqlite3 *db, struct hb_error *err); /* rolls back when it fails */
void hb_db_rollback(sqlite3 *db);

/*
 * Prepare one statement and bind its values; `types` has a letter for each:
 *   t const char * (NULL binds NULL; copied)   i int64_t, always cast   b const void *, size_t   n
 * nothing, NULL NULL on failure. A statement may be reused by hb_db_rebind.
 */
sqlite3_stmt *
hb_db_prepare(sqlite3 *db, struct hb_error *err, const char *sql, const char *types, ...);
int hb_db_rebind(sqlite3_stmt *st, struct hb_error *err, const char *types, ...);

/* 1: a row is there, 0: done, -1: failed. */
int hb_db_step(sqlite3_stmt *st, struct hb_error *err);

/* Prepare, bind, run to the end, finalize. Number of rows changed, or -1. */
int hb_db_run(sqlite3 *db, struct hb_error *err, const char *sql, const char *types, ...);

/* First column of the first row. 1: found, 0: no row, -1: failed. */
int
hb_db_int(sqlite3 *db, int64_t *out, struct hb_error *err, const char *sql, const char *types, ...);

/* Column as text, never NULL ("" for NULL); valid until the next step. */
const char *hb_db_text(sqlite3_stmt *st, int column);

#endif
