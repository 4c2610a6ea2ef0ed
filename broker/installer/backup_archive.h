/*
 * The archive of a backup: GNU tar in one zstd frame, the manifest first, then everything below
 * "data" in its order.
 *
 * Writing is done by the job worker, whose input is its own file system. Reading is not: an archive
 * may come from anywhere, so it is taken apart by a forked child with the uid of the unpack worker,
 * without network and exec, that Landlock confines to one empty directory. It takes nothing but
 * what the manifest says, in that order, byte for byte; a device, a hard link, a name that is
 * absolute or has "..", a member that is there twice or missing, bytes behind the end: each ends
 * it. The databases that come out are opened there as well (SQLite is a parser too), as copies, so
 * that what is restored is untouched.
 */
#ifndef HB_INSTALLER_BACKUP_ARCHIVE_H
#define HB_INSTALLER_BACKUP_ARCHIVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/installer/backup_manifest.h"
#include "common/error.h"

/* bytes and files so far */
typedef void (*hb_backup_progress)(uint64_t bytes, uint64_t files, void *arg);

/* List, hash and recognise everything in the directory, which nobody may be writing. Sockets and
 * fifos are left out and counted, setuid, setgid and sticky bits are not recorded. Codes:
 * unsafe_link, unsafe_file (a device), data_unreadable. */
int hb_backup_scan(int data_fd, const char *data_mount, hb_backup_progress progress, void *arg,
		   struct hb_backup_manifest *m, struct hb_error *err);
/* Write it; the file is synced. Code data_changed: the directory isn't as it was scanned. */
int hb_backup_write(int data_fd, const struct hb_backup_manifest *m, int out_fd,
		    hb_backup_progress progress, void *arg, struct hb_error *err);

struct hb_backup_read {
	int archive_fd; /* read from its beginning; borrowed */
	int dest_fd; /* an empty directory owned by uid, open for reading; borrowed. tree/ appears
			in it, or only the databases */
	uid_t uid;
	gid_t gid;
	const char *data_mount;
	bool whole; /* everything is put into tree/; else only the databases, for their check */
	bool degraded_ok;
};

struct hb_backup_reader;
/* Forks the child and returns once it has read the manifest; *head is a new object: {host_id,
 * created_at, operation_id, release, image, files, directories, links, bytes, left_out,
 * sqlite_bytes}. Forks without exec: no other thread may run. */
int hb_backup_reader_start(const struct hb_backup_read *what, struct hb_backup_reader **out,
			   json_t **head, struct hb_error *err);
/* Everything else, up to the end of the archive and the check of every database; *databases is a
 * new array of {path, pages, rows, state: "ok"|"unchecked", note}. Codes: bad_backup, unsafe_path,
 * unsafe_link, unsafe_mode, limit_exceeded, database_damaged, disk_full, io_failed, worker_died. */
int hb_backup_reader_run(struct hb_backup_reader *r, hb_backup_progress progress, void *arg,
			 json_t **databases, struct hb_error *err);
void hb_backup_reader_free(struct hb_backup_reader *r);

/* Inside: the child's side (backup_reader.c) and the check of one database (backup_sqlite.c). */
#define HB_BACKUP_PACKET_MAX 65536
void hb_backup_reader_child(int sock, const struct hb_backup_read *what) __attribute__((noreturn));
/* Copies each database of tree/ with its logs to "check" in the working directory and has SQLite
 * look at it. */
int hb_backup_check_databases(const struct hb_backup_manifest *m, json_t *list,
			      struct hb_error *err);
int hb_backup_write_full(int fd, const char *data, size_t len, struct hb_error *err);
#define HB_SQLITE_MAGIC "SQLite format 3" /* and its NUL: 16 bytes */

#endif
