/* Opening, migrating and asking SQLite; the identity-path VFS. */
#include "common/db.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fs.h"

#define VFS_NAME "hermes"

static sqlite3_vfs vfs;
static pthread_once_t vfs_once = PTHREAD_ONCE_INIT;

/* A path is used as it was given: below the working directory. */
static int
identity_path(sqlite3_vfs *unused, const char *name, int size, char *out)
{
	if (snprintf(out, (size_t)size, "%s", name) >= size)
		return SQLITE_CANTOPEN;
	return SQLITE_OK;
}

static void
register_vfs(void)
{
	const sqlite3_vfs *plain;

	if (sqlite3_initialize() != SQLITE_OK || (plain = sqlite3_vfs_find("unix")) == NULL)
		abort();
	/* Everything is the plain Unix VFS, its private data included, but for the path. */
	vfs = *plain;
	vfs.zName = VFS_NAME;
	vfs.pNext = NULL;
	vfs.xFullPathname = identity_path;
	if (sqlite3_vfs_register(&vfs, 0) != SQLITE_OK)
		abort();
}

const char *
hb_db_vfs(void)
{
	pthread_once(&vfs_once, register_vfs);
	return VFS_NAME;
}

int
hb_db_fail(sqlite3 *db, struct hb_error *err, const char *what)
{
	const char *code = "db_failed", *name = db != NULL ? sqlite3_db_filename(db, "main") : NULL;

	if (db != NULL && sqlite3_errcode(db) == SQLITE_FULL)
		code = "disk_full";
	return hb_fail(err, code, "%s: %s%s%s", what, name != NULL ? name : "",
		       name != NULL ? ": " : "", db != NULL ? sqlite3_errmsg(db) : "no memory");
}

int
hb_db_exec(sqlite3 *db, const char *sql, struct hb_error *err)
{
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		return hb_db_fail(db, err, "the database refused a statement");
	return 0;
}

int
hb_db_begin(sqlite3 *db, struct hb_error *err)
{
	return hb_db_exec(db, "BEGIN IMMEDIATE", err);
}

int
hb_db_commit(sqlite3 *db, struct hb_error *err)
{
	if (hb_db_exec(db, "COMMIT", err) == 0)
		return 0;
	hb_db_rollback(db);
	return -1;
}

void
hb_db_rollback(sqlite3 *db)
{
	/* A failed statement may have rolled back already. */
	if (sqlite3_get_autocommit(db) == 0)
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
}

static int
bind(sqlite3_stmt *st, const char *types, va_list ap)
{
	const void *blob;
	int at, rc = SQLITE_OK;

	/* A statement that is not given all of its values is a programming error. */
	if ((int)strlen(types) != sqlite3_bind_parameter_count(st))
		abort();
	for (at = 1; *types != '\0' && rc == SQLITE_OK; types++, at++) {
		switch (*types) {
		case 't':
			rc = sqlite3_bind_text(st, at, va_arg(ap, const char *), -1,
					       SQLITE_TRANSIENT);
			break;
		case 'i':
			rc = sqlite3_bind_int64(st, at, va_arg(ap, int64_t));
			break;
		case 'b':
			blob = va_arg(ap, const void *);
			rc = sqlite3_bind_blob64(st, at, blob, va_arg(ap, size_t),
						 SQLITE_TRANSIENT);
			break;
		case 'n':
			rc = sqlite3_bind_null(st, at);
			break;
		default:
			abort();
		}
	}
	return rc;
}

static sqlite3_stmt *
prepare(sqlite3 *db, struct hb_error *err, const char *sql, const char *types, va_list ap)
{
	sqlite3_stmt *st = NULL;

	if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK ||
	    bind(st, types, ap) != SQLITE_OK) {
		hb_db_fail(db, err, "the database refused a statement");
		sqlite3_finalize(st);
		return NULL;
	}
	return st;
}

sqlite3_stmt *
hb_db_prepare(sqlite3 *db, struct hb_error *err, const char *sql, const char *types, ...)
{
	sqlite3_stmt *st;
	va_list ap;

	va_start(ap, types);
	st = prepare(db, err, sql, types, ap);
	va_end(ap);
	return st;
}

int
hb_db_rebind(sqlite3_stmt *st, struct hb_error *err, const char *types, ...)
{
	va_list ap;
	int rc;

	sqlite3_reset(st);
	va_start(ap, types);
	rc = bind(st, types, ap);
	va_end(ap);
	if (rc != SQLITE_OK)
		return hb_db_fail(sqlite3_db_handle(st), err, "the database refused a value");
	return 0;
}

int
hb_db_step(sqlite3_stmt *st, struct hb_error *err)
{
	switch (sqlite3_step(st)) {
	case SQLITE_ROW:
		return 1;
	case SQLITE_DONE:
		return 0;
	default:
		return hb_db_fail(sqlite3_db_handle(st), err, "the database failed");
	}
}

int
hb_db_run(sqlite3 *db, struct hb_error *err, const char *sql, const char *types, ...)
{
	sqlite3_stmt *st;
	va_list ap;
	int rc;

	va_start(ap, types);
	st = prepare(db, err, sql, types, ap);
	va_end(ap);
	if (st == NULL)
		return -1;
	while ((rc = hb_db_step(st, err)) == 1)
		continue;
	sqlite3_finalize(st);
	return rc == 0 ? sqlite3_changes(db) : -1;
}

int
hb_db_int(sqlite3 *db, int64_t *out, struct hb_error *err, const char *sql, const char *types, ...)
{
	sqlite3_stmt *st;
	va_list ap;
	int rc;

	va_start(ap, types);
	st = prepare(db, err, sql, types, ap);
	va_end(ap);
	if (st == NULL)
		return -1;
	rc = hb_db_step(st, err);
	if (rc == 1)
		*out = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return rc;
}

const char *
hb_db_text(sqlite3_stmt *st, int column)
{
	const char *text = (const char *)sqlite3_column_text(st, column);

	return text != NULL ? text : "";
}

/* Create the file ourselves, private, and judge it by descriptor. */
static int
check_file(const char *path, bool create, struct hb_error *err)
{
	int fd, rc;

	fd = open(path,
		  (create ? O_RDWR | O_CREAT : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
		  0600);
	if (fd < 0)
		return hb_fail_errno(err, "db_failed", "opening the database %s", path);
	rc = hb_fs_check_trusted(fd, path, geteuid(), err);
	hb_close(&fd);
	return rc;
}

static int
migrate(sqlite3 *db, const struct hb_db_options *o, struct hb_error *err)
{
	int64_t version;
	char sql[64];
	int i;

	if (o->step_count == 0)
		return 0;
	if (hb_db_begin(db, err) != 0)
		return -1;
	if (hb_db_int(db, &version, err, "PRAGMA user_version", "") != 1)
		goto fail;
	if (version < 0 || version > o->step_count) {
		hb_fail(err, "db_newer",
			"%s has schema %lld and this release knows %d: it was made by a later "
			"release",
			sqlite3_db_filename(db, "main"), (long long)version, o->step_count);
		goto fail;
	}
	for (i = (int)version; i < o->step_count; i++)
		if (hb_db_exec(db, o->steps[i], err) != 0)
			goto fail;
	snprintf(sql, sizeof(sql), "PRAGMA user_version = %d", o->step_count);
	if (version != o->step_count && hb_db_exec(db, sql, err) != 0)
		goto fail;
	return hb_db_commit(db, err);
fail:
	hb_db_rollback(db);
	return -1;
}

/* Journal mode is asked back: SQLite answers with what it really is and doesn't fail. */
static int
set_up(sqlite3 *db, const struct hb_db_options *o, struct hb_error *err)
{
	sqlite3_stmt *st;
	int rc;

	sqlite3_extended_result_codes(db, 0);
	sqlite3_busy_timeout(db, o->busy_ms > 0 ? o->busy_ms : 5000);
	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	if (hb_db_exec(db, "PRAGMA foreign_keys = ON", err) != 0)
		return -1;
	if (o->read_only)
		return 0;
	st = hb_db_prepare(db, err, "PRAGMA journal_mode = WAL", "");
	if (st == NULL)
		return -1;
	rc = hb_db_step(st, err);
	if (rc == 1 && strcmp(hb_db_text(st, 0), "wal") != 0)
		rc = hb_fail(err, "db_failed",
			     "%s: no write-ahead log is possible on this file system",
			     sqlite3_db_filename(db, "main"));
	sqlite3_finalize(st);
	if (rc != 1)
		return -1;
	return hb_db_exec(
		db, o->full_sync ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL",
		err);
}

int
hb_db_open(const char *path, const struct hb_db_options *options, sqlite3 **out,
	   struct hb_error *err)
{
	int flags = SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_PRIVATECACHE |
		    (options->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
	sqlite3 *db = NULL;

	pthread_once(&vfs_once, register_vfs);
	if (check_file(path, !options->read_only, err) != 0)
		return -1;
	if (sqlite3_open_v2(path, &db, flags, VFS_NAME) != SQLITE_OK) {
		hb_db_fail(db, err, "opening the database");
		goto fail;
	}
	if (set_up(db, options, err) != 0 ||
	    (!options->read_only && migrate(db, options, err) != 0))
		goto fail;
	*out = db;
	return 0;
fail:
	sqlite3_close(db);
	return -1;
}

void
hb_db_close(sqlite3 *db)
{
	/* Statements left over would keep the file open for ever. */
	if (sqlite3_close(db) != SQLITE_OK)
		abort();
}
