/* Is a database whole: SQLite's own check, on a copy, in the confined reader. */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/installer/backup_archive.h"
#include "broker/installer/mtree.h"
#include "common/db.h"
#include "common/fs.h"

#define PIECE ((size_t)256 * 1024)
#define SHOWN 32 /* databases told about; all are checked */

/* A database may be hostile: none of its own SQL runs, no corrupt cell is trusted. */
static int open_copy(const char *name, sqlite3 **db, struct hb_error *err)
{
	if (sqlite3_open_v2(name, db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW, hb_db_vfs()) !=
	    SQLITE_OK)
		return hb_fail(err, "database_damaged", "it can't be opened: %s",
			       *db ? sqlite3_errmsg(*db) : "no memory");
	sqlite3_db_config(*db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(*db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_db_config(*db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
	sqlite3_db_config(*db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
	sqlite3_exec(*db, "PRAGMA cell_size_check = ON", NULL, NULL, NULL);
	return 0;
}

/* SQLITE_ERROR is SQLite lacking something (a module, a collation); all else is the file's fault.
 */
static int failed(sqlite3 *db, char note[128], struct hb_error *err)
{
	if (sqlite3_errcode(db) == SQLITE_ERROR) {
		snprintf(note, 128, "not checked: %.100s", sqlite3_errmsg(db));
		return 0;
	}
	if (sqlite3_errcode(db) == SQLITE_FULL || sqlite3_errcode(db) == SQLITE_IOERR)
		return hb_fail(err, "io_failed", "it can't be checked: %s", sqlite3_errmsg(db));
	return hb_fail(err, "database_damaged", "%s", sqlite3_errmsg(db));
}

static int integrity(sqlite3 *db, char note[128], struct hb_error *err)
{
	sqlite3_stmt *st = NULL;
	const char *text;
	int rc = 0;

	if (sqlite3_prepare_v2(db, "PRAGMA integrity_check(1)", -1, &st, NULL) != SQLITE_OK)
		return failed(db, note, err);
	if (sqlite3_step(st) != SQLITE_ROW)
		rc = failed(db, note, err);
	else if ((text = (const char *)sqlite3_column_text(st, 0)) == NULL ||
		 strcmp(text, "ok") != 0)
		rc = hb_fail(err, "database_damaged", "%.200s", text ? text : "no answer");
	sqlite3_finalize(st);
	return rc;
}

static int64_t number(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *st = NULL;
	int64_t out = -1;

	if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK &&
	    sqlite3_step(st) == SQLITE_ROW)
		out = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return out;
}

/* Rows of all tables: what a person can compare with what should be there. */
static int64_t count_rows(sqlite3 *db)
{
	sqlite3_stmt *st = NULL;
	int64_t sum = 0, n;

	if (sqlite3_prepare_v2(db,
			       "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > "
			       "0 AND name NOT LIKE "
			       "'sqlite\\_%' ESCAPE '\\'",
			       -1, &st, NULL) != SQLITE_OK)
		return 0;
	while (sqlite3_step(st) == SQLITE_ROW) {
		char *sql =
			sqlite3_mprintf("SELECT count(*) FROM \"%w\"", sqlite3_column_text(st, 0));

		n = sql ? number(db, sql) : -1;
		sqlite3_free(sql);
		sum += n > 0 ? n : 0;
	}
	sqlite3_finalize(st);
	return sum;
}

static int check_one(const char *name, int64_t *pages, int64_t *rows, char note[128],
		     struct hb_error *err)
{
	sqlite3 *db = NULL;
	int rc;

	note[0] = '\0';
	*pages = *rows = 0;
	rc = open_copy(name, &db, err);
	if (rc == 0)
		rc = integrity(db, note, err);
	if (rc == 0) {
		*pages = number(db, "PRAGMA page_count");
		*rows = count_rows(db);
	}
	sqlite3_close(db);
	return rc;
}

static int copy_piece(const char *from, const char *to, struct hb_error *err)
{
	int in = hb_fs_open_beneath(AT_FDCWD, from, O_RDONLY, 0, err), out, rc = 0;
	char *piece;
	ssize_t n;

	if (in < 0)
		return -1;
	out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	piece = hb_calloc(1, PIECE);
	if (out < 0)
		rc = hb_fail_errno(err, "io_failed", "a copy of a database can't be made");
	while (rc == 0 && (n = read(in, piece, PIECE)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		rc = n < 0 ? hb_fail_errno(err, "io_failed", "copying a database")
			   : hb_backup_write_full(out, piece, (size_t)n, err);
	}
	free(piece);
	hb_close(&in);
	hb_close(&out);
	return rc;
}

static void remove_copy(void)
{
	static const char *const names[] = {"check", "check-wal", "check-shm", "check-journal"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		unlink(names[i]);
}

/* A database is its file and its logs: "data.db" alone may be older than what was committed. */
static int copy_database(const struct hb_backup_manifest *m, size_t i, struct hb_error *err)
{
	static const char *const logs[] = {"-wal", "-journal"};
	const char *base = m->entries[i].path;
	char from[4096 + 32], to[32];
	size_t len = strlen(base);

	snprintf(from, sizeof from, "tree/%s", base);
	if (copy_piece(from, "check", err) < 0)
		return -1;
	for (size_t k = i + 1; k < m->count && strncmp(m->entries[k].path, base, len) == 0; k++)
		for (size_t l = 0; l < 2; l++) {
			if (strcmp(m->entries[k].path + len, logs[l]) != 0 ||
			    m->entries[k].type != HB_BACKUP_FILE)
				continue;
			snprintf(from, sizeof from, "tree/%s", m->entries[k].path);
			snprintf(to, sizeof to, "check%s", logs[l]);
			if (copy_piece(from, to, err) < 0)
				return -1;
		}
	return 0;
}

int hb_backup_check_databases(const struct hb_backup_manifest *m, json_t *list,
			      struct hb_error *err)
{
	for (size_t i = 0; i < m->count; i++) {
		const struct hb_backup_entry *e = &m->entries[i];
		struct hb_buf path = HB_BUF_INIT;
		int64_t pages = 0, rows = 0;
		char note[128] = "";
		int rc;

		if (!e->sqlite)
			continue;
		hb_mtree_escape(&path, e->path, strlen(e->path));
		rc = copy_database(m, i, err);
		if (rc == 0)
			rc = check_one("check", &pages, &rows, note, err);
		remove_copy();
		if (rc < 0)
			hb_fail_prefix(err, "database \"%.200s\"", path.data);
		else if (json_array_size(list) < SHOWN)
			json_array_append_new(
				list,
				json_pack("{s:s%, s:I, s:I, s:s, s:s}", "path", path.data,
					  path.len > 500 ? (size_t)500 : path.len, "pages",
					  (json_int_t)pages, "rows", (json_int_t)rows, "state",
					  note[0] ? "unchecked" : "ok", "note", note));
		hb_buf_free(&path);
		if (rc < 0)
			return -1;
	}
	return 0;
}
