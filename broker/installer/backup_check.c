/* Reading backups back: to check one, and to lay one out beside the data (backup.h). */
#include "broker/installer/backup_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/data_swap.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"

void hb_backup_on_progress(uint64_t bytes, uint64_t files, void *arg)
{
	const struct hb_backup_phase *p = arg;
	struct hb_progress progress = {.phase = p->name,
				       .unit = "bytes",
				       .done = bytes,
				       .total = p->bytes,
				       .files_done = files,
				       .files_total = p->files};

	hb_work_progress(p->w, &progress);
}

void hb_backup_on_hashed(uint64_t done, void *arg)
{
	hb_backup_on_progress(done, 0, arg);
}

int hb_backup_need_room(int fd, const char *where, uint64_t need, const char *what,
			struct hb_error *err)
{
	uint64_t bytes, inodes;

	if (hb_fs_space(fd, ".", &bytes, &inodes, err) < 0)
		return -1;
	if (bytes >= need)
		return 0;
	return hb_fail(err, "not_enough_space",
		       "the file system of %s has %llu MiB free and about %llu MiB are needed for "
		       "%s; free %llu MiB more",
		       where, (unsigned long long)(bytes >> 20),
		       (unsigned long long)(need >> 20) + 1, what,
		       (unsigned long long)((need - bytes) >> 20) + 1);
}

json_t *hb_backup_record_make(const char *name, const json_t *head, const json_t *databases,
			      const char *sha256, uint64_t size)
{
	json_t *r = json_deep_copy(head);

	json_object_del(r, "sqlite_bytes");
	json_object_set_new(r, "version", json_integer(1));
	json_object_set_new(r, "name", json_string(name));
	json_object_set_new(r, "sha256", json_string(sha256));
	json_object_set_new(r, "size", json_integer((json_int_t)size));
	json_object_set_new(r, "encrypted", json_boolean(hb_backup_is_encrypted(name)));
	json_object_set_new(r, "last_verified", json_integer(hb_now()));
	json_object_set(r, "databases", (json_t *)(uintptr_t)databases);
	return r;
}

/* --- reading one back --- */

/* A directory for the reader among the backups; its name into `name`. */
static int scratch_create(struct hb_work *w, char name[64], struct hb_error *err)
{
	char random[17];
	int fd;

	hb_random_hex(8, random);
	snprintf(name, 64, ".scratch-%s", random);
	if (mkdirat(w->backups->fd, name, 0700) < 0)
		return hb_fail_errno(err, "io_failed",
				     "a directory for the check can't be made in %s",
				     w->backups->path);
	fd = hb_fs_open_beneath(w->backups->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, err);
	if (fd >= 0 && fchown(fd, w->store->unpack_uid, (gid_t)w->store->unpack_uid) < 0) {
		hb_fail_errno(err, "io_failed", "a directory can't be given to the backup reader");
		hb_close(&fd);
	}
	return fd;
}

/* head and databases are new objects, set on success only. */
static int read_archive(struct hb_work *w, int archive_fd, int dest_fd, const char *dest,
			bool whole, const char *phase, json_t **head, json_t **databases,
			struct hb_error *err)
{
	const struct hb_backup_read what = {.archive_fd = archive_fd,
					    .dest_fd = dest_fd,
					    .uid = w->store->unpack_uid,
					    .gid = (gid_t)w->store->unpack_uid,
					    .data_mount = hb_config_text(w->config, "runtime.data_"
										    "mount"),
					    .whole = whole,
					    .degraded_ok = w->degraded_ok};
	struct hb_backup_reader *r = NULL;
	struct hb_backup_phase p = {w, phase, 0, 0};
	uint64_t sqlite;
	json_t *said = NULL;
	int rc = -1;

	if (hb_backup_reader_start(&what, &r, &said, err) < 0)
		return -1;
	p.bytes = (uint64_t)hb_json_int(said, "bytes", 0);
	p.files = (uint64_t)hb_json_int(said, "files", 0);
	sqlite = (uint64_t)hb_json_int(said, "sqlite_bytes", 0);
	if (hb_backup_need_room(
		    dest_fd, dest,
		    (whole ? p.bytes + p.files * 4096 : sqlite) + sqlite + HB_BACKUP_RESERVE,
		    whole ? "what is in the backup" : "the check of its databases", err) == 0)
		rc = hb_backup_reader_run(r, hb_backup_on_progress, &p, databases, err);
	hb_backup_reader_free(r);
	if (rc == 0)
		*head = json_incref(said);
	json_decref(said);
	return rc;
}

/* Into a scratch directory, the databases only. */
int hb_backup_check_archive(struct hb_work *w, int archive_fd, json_t **head, json_t **databases,
			    struct hb_error *err)
{
	char name[64];
	int dir = scratch_create(w, name, err), rc = -1;

	if (dir >= 0)
		rc = read_archive(w, archive_fd, dir, w->backups->path, false, "verify", head,
				  databases, err);
	hb_close(&dir);
	(void)hb_fs_remove_tree(w->backups->fd, name, NULL);
	return rc;
}

/* --- verifying and laying out --- */

/* Nobody here can read it: its bytes are held against its record. */
static int verify_encrypted(struct hb_work *w, const char *name, const char *hex, uint64_t size,
			    json_t **record, struct hb_error *err)
{
	json_t *r = hb_backup_record_load(w->backups, name, err);
	int rc = -1;

	if (!r)
		return hb_fail(err, "backup_encrypted",
			       "%s is encrypted and has no record on this host, so nothing can be "
			       "said about it; run: "
			       "hermesctl backup decrypt %s --identity FILE",
			       name, name);
	if (strcmp(hb_json_text(r, "sha256", ""), hex) != 0 ||
	    hb_json_int(r, "size", -1) != (long long)size)
		hb_fail(err, "bad_backup", "the bytes of %s are not those that were written", name);
	else {
		json_object_set_new(r, "last_verified", json_integer(hb_now()));
		rc = hb_backup_record_save(w->backups, r, err);
	}
	if (rc == 0)
		*record = json_incref(r);
	json_decref(r);
	return rc;
}

/* It no longer counts as verified, if it did. */
static void forget_verified(struct hb_work *w, const char *name)
{
	json_t *r = hb_backup_record_load(w->backups, name, NULL);

	if (r) {
		json_object_set_new(r, "last_verified", json_integer(0));
		(void)hb_backup_record_save(w->backups, r, NULL);
	}
	json_decref(r);
}

static bool is_damage(const struct hb_error *err)
{
	static const char *const codes[] = {"bad_backup",  "unsafe_path",      "unsafe_link",
					    "unsafe_mode", "database_damaged", "limit_exceeded"};

	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
		if (strcmp(err->code, codes[i]) == 0)
			return true;
	return false;
}

int hb_backup_verify(struct hb_work *w, const char *name, json_t **record, struct hb_error *err)
{
	json_t *head = NULL, *databases = NULL, *old = NULL, *made = NULL;
	struct hb_backup_phase hash = {w, "hash backup", 0, 0};
	char hex[HB_HEX256];
	uint64_t size;
	int fd = hb_backup_open(w->backups, name, err), rc = -1;

	if (fd < 0 || hb_backup_hash(fd, hb_backup_on_hashed, &hash, hex, &size, err) < 0)
		goto out;
	if (hb_backup_is_encrypted(name)) {
		rc = verify_encrypted(w, name, hex, size, record, err);
		goto out;
	}
	if (hb_backup_check_archive(w, fd, &head, &databases, err) < 0)
		goto out;
	made = hb_backup_record_make(name, head, databases, hex, size);
	/* What a drill proved holds for the same bytes only. */
	old = hb_backup_record_load(w->backups, name, NULL);
	if (old && strcmp(hb_json_text(old, "sha256", ""), hex) == 0 &&
	    json_object_get(old, "drill"))
		json_object_set(made, "drill", json_object_get(old, "drill"));
	rc = hb_backup_record_save(w->backups, made, err);
	if (rc == 0)
		*record = json_incref(made);
out:
	if (rc < 0 && is_damage(err))
		forget_verified(w, name);
	hb_close(&fd);
	json_decref(old);
	json_decref(made);
	json_decref(head);
	json_decref(databases);
	return rc;
}

int hb_backup_restore_into(struct hb_work *w, const char *name, const char *sha256, int dest_fd,
			   json_t **head, struct hb_error *err)
{
	json_t *said = NULL, *databases = NULL;
	struct hb_backup_phase hash = {w, "hash backup", 0, 0};
	char hex[HB_HEX256];
	uint64_t size;
	int fd, rc = -1;

	if (hb_backup_is_encrypted(name))
		return hb_fail(err, "backup_encrypted",
			       "%s is encrypted; run: hermesctl backup decrypt %s --identity FILE",
			       name, name);
	fd = hb_backup_open(w->backups, name, err);
	if (fd < 0 || hb_backup_hash(fd, hb_backup_on_hashed, &hash, hex, &size, err) < 0)
		goto out;
	/* The same descriptor is read below: what is approved is what is taken. */
	if (strcmp(hex, sha256) != 0) {
		hb_fail(err, "sealed_changed",
			"backup %s is not the one that was approved (its bytes have changed); "
			"prepare the operation again",
			name);
		goto out;
	}
	if (read_archive(w, fd, dest_fd, hb_config_text(w->config, "runtime.data"), true, "restore",
			 &said, &databases, err) < 0 ||
	    hb_data_fresh_adopt(dest_fd, w->store->unpack_uid, w->runtime_uid, err) < 0)
		goto out;
	json_object_set(said, "databases", databases);
	*head = json_incref(said);
	rc = 0;
out:
	hb_close(&fd);
	json_decref(said);
	json_decref(databases);
	return rc;
}
