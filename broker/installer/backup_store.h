/*
 * The directory of backups: root's, 0700, never inside the data directory or the disposable
 * storage.
 *
 *   runtime-<time>-<8 hex>.tar.zst         an archive (backup_archive.h), 0600
 *   runtime-<time>-<8 hex>.tar.zst.age     the same, encrypted
 *   <archive>.json                         its record: what it holds, its hash, when last verified
 *   .new-<name>, .scratch-<random>         being made; leftovers after a crash
 *
 * A record is a note of what was seen on this host, not a proof: before a restore the archive is
 * hashed and read whole.
 *
 *   {"version":1,"name":..,"sha256":..,"size":N,"created_at":N,"host_id":..,"operation_id":..,
 *    "release":..,"image":..,"files":N,"directories":N,"links":N,"bytes":N,"left_out":N,
 *    "encrypted":bool,"last_verified":N,"databases":[{path, pages, rows, state, note}],
 *    "drill":{at, ok, release, proves | error, code}?}
 */
#ifndef HB_INSTALLER_BACKUP_STORE_H
#define HB_INSTALLER_BACKUP_STORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/digest.h"
#include "common/error.h"

#define HB_BACKUP_PREFIX "runtime-"
#define HB_BACKUP_SUFFIX ".tar.zst"
#define HB_BACKUP_AGE ".age"
#define HB_BACKUP_NAME_MAX 256

struct hb_backup_store {
	int fd;			 /* -1 when it can't be used */
	char *path;		 /* absolute */
	struct hb_error trouble; /* why it can't; code "" when it can */
};

/* Opens or creates it. path "": "installer/backups". data, storage: absolute, need not exist. Never
 * fails as a whole: what is wrong stands in `trouble`, and every use is refused with it. Codes:
 * backup_dir_unusable, backup_dir_inside_data. */
void hb_backup_store_open(const char *path, const char *data, const char *storage,
			  struct hb_backup_store *out);
void hb_backup_store_close(struct hb_backup_store *s);
/* 0, or its trouble. */
int hb_backup_store_check(const struct hb_backup_store *s, struct hb_error *err);
/* Remove what a crash left. */
int hb_backup_store_clean(const struct hb_backup_store *s, struct hb_error *err);

/* "runtime-<UTC time>-<8 hex>.tar.zst", not taken yet. */
void hb_backup_name(int64_t now, bool encrypted, char out[HB_BACKUP_NAME_MAX]);
bool hb_backup_is_name(
	const char *name); /* of an archive, whoever made it: NAME.tar.zst[.age] without a slash */
bool hb_backup_is_encrypted(const char *name);

/* For reading: a regular file with one name, root's, for root only. Codes: backup_missing,
 * loose_permissions. */
int hb_backup_open(const struct hb_backup_store *s, const char *name, struct hb_error *err);
/* Of the whole file, by descriptor. */
int hb_backup_hash(int fd, void (*progress)(uint64_t done, void *arg), void *arg,
		   char hex[HB_HEX256], uint64_t *size, struct hb_error *err);

/* NULL with code backup_unverified when there is none, record_broken when it can't be read. */
json_t *hb_backup_record_load(const struct hb_backup_store *s, const char *name,
			      struct hb_error *err);
int hb_backup_record_save(const struct hb_backup_store *s, const json_t *record,
			  struct hb_error *err);
/* Exactly the members above. Code record_broken. */
int hb_backup_record_check(const json_t *record, const char *name, struct hb_error *err);

/* Every archive, newest first: its record and "recorded": true, or {name, size, created_at (of
 * the file), encrypted, recorded: false}. */
json_t *hb_backup_list(const struct hb_backup_store *s, struct hb_error *err);

/* Remove our own archives beyond the newest `keep`, and those older than max_age seconds (0: none
 * is too old), but never the newest verified one, and none that `except` (NULL-terminated, may be
 * NULL) names. Names removed are added to `removed`. */
int hb_backup_retain(const struct hb_backup_store *s, int64_t now, size_t keep, int64_t max_age,
		     const char *const *except, json_t *removed, struct hb_error *err);

#endif
