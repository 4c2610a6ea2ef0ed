/*
 * The manifest of a backup: the first member of the archive, one JSON object that lists every other
 * member in the order in which it follows (walk.h), so that a reader can hold the archive against
 * it entry by entry.
 *
 *   {"format":"hermes-runtime-backup","version":1,"host_id":..,"created_at":N,"operation_id":..,
 *    "release":..,"image":..,"files":N,"directories":N,"links":N,"bytes":N,"left_out":N,
 *    "entries":[{"path":".","type":"directory","mode":"0700","mtime":N},
 *               {"path":"data.db","type":"file","mode":"0600","mtime":N,"size":N,"sha256":..,
 *                "sqlite":true},
 *               {"path":"run","type":"link","mtime":N,"target":"server/run"}]}
 *
 * Paths and targets are bytes, escaped as in mtree(5). What a manifest may say is decided here and
 * nowhere else: names below the data directory, each once and below a directory that was listed
 * before it, no bits beyond 0777, links that lead no further than the data directory.
 */
#ifndef HB_INSTALLER_BACKUP_MANIFEST_H
#define HB_INSTALLER_BACKUP_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/buf.h"
#include "common/digest.h"
#include "common/error.h"

#define HB_BACKUP_MEMBER "manifest.json" /* its name in the archive; all else is below "data" */
#define HB_BACKUP_MANIFEST_MAX (64u << 20)
#define HB_BACKUP_ENTRIES_MAX 400000 /* about what fits into a manifest of that size */

enum hb_backup_type { HB_BACKUP_DIRECTORY, HB_BACKUP_FILE, HB_BACKUP_LINK };

struct hb_backup_entry {
	char *path; /* "." or "a/b" */
	enum hb_backup_type type;
	mode_t mode;   /* 0777 at most; 0777 for links */
	int64_t mtime; /* seconds */
	uint64_t size;
	char sha256[HB_HEX256];
	char *target; /* links */
	bool sqlite;
	size_t parent; /* index of its directory; filled in by adding */
};

struct hb_backup_manifest {
	char host_id[65], operation_id[65], release[HB_HEX256], image[513];
	int64_t created_at;
	uint64_t files, directories, links, bytes;
	uint64_t left_out; /* sockets and fifos: they hold nothing */
	struct hb_backup_entry *entries;
	size_t count, cap;
};

/* A copy is added; the counts follow. Codes: unsafe_path, unsafe_link, unsafe_mode, bad_backup,
 * limit_exceeded. data_mount: where the payload sees the data directory; absolute links below it
 * are inside. */
int hb_backup_manifest_add(struct hb_backup_manifest *m, const struct hb_backup_entry *e,
			   const char *data_mount, struct hb_error *err);
int hb_backup_manifest_print(const struct hb_backup_manifest *m, struct hb_buf *out,
			     struct hb_error *err);
/* The same rules as adding, and counts that agree. Also code bad_backup: not a manifest at all. */
int hb_backup_manifest_parse(const char *text, size_t len, const char *data_mount,
			     struct hb_backup_manifest *out, struct hb_error *err);
void hb_backup_manifest_free(struct hb_backup_manifest *m);
/* Bytes of the databases with their logs: what a check needs a copy of. */
uint64_t hb_backup_manifest_sqlite_bytes(const struct hb_backup_manifest *m);
/* A database, or the log of one that was listed before it. */
bool hb_backup_is_database(const struct hb_backup_manifest *m, size_t i);

/* Mode a file is restored with: that of the manifest, but nothing for others where the name says
 * secret. */
mode_t hb_backup_restored_mode(const struct hb_backup_entry *e);

#endif
