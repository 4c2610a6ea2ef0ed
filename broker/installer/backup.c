/* Making a backup (backup.h). */
#include "broker/installer/backup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/activate.h"
#include "broker/installer/age.h"
#include "broker/installer/backup_internal.h"
#include "broker/installer/walk.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"

#define ENTRY_COST 2048ull /* tar header, padding and a line of the manifest */
#define AGE_HEADER "age-encryption.org/"

struct hb_backup_draft {
	char name[HB_BACKUP_NAME_MAX], temporary[HB_BACKUP_NAME_MAX + 16];
	int fd;
	struct hb_backup_manifest m;
};

/* --- room --- */

/* Content that doesn't shrink at all, twice when it is encrypted; the databases twice more to be
 * looked at. */
static uint64_t room_for(bool encrypts, uint64_t bytes, uint64_t entries, uint64_t databases)
{
	return (bytes + bytes / 256 + entries * ENTRY_COST) * (encrypts ? 2 : 1) +
	       2 * databases + HB_BACKUP_RESERVE;
}

struct size {
	uint64_t bytes, entries, max;
	bool cut;
};

static int measure(struct hb_walk_entry *e, void *arg, struct hb_error *err)
{
	struct size *s = arg;

	if (s->entries == s->max) {
		s->cut = true;
		return -1;
	}
	s->entries++;
	s->bytes += S_ISREG(e->st.st_mode) ? (uint64_t)e->st.st_size : 0;
	return 0;
}

static int open_data(const char *data, struct hb_error *err)
{
	int fd = open(data, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno == ENOENT)
		return hb_fail(err, "data_missing", "there is no data directory %s to back up",
			       data);
	return hb_fail_errno(err, "data_unreadable", "data directory %s", data);
}

int hb_backup_room(const struct hb_backup_store *store, bool encrypts, const char *data,
		   uint64_t entries_max, struct hb_error *err)
{
	struct size s = {.max = entries_max ? entries_max : UINT64_MAX};
	int fd, rc;

	if (hb_backup_store_check(store, err) < 0)
		return -1;
	fd = open_data(data, err);
	if (fd < 0)
		return -1;
	/* While the service runs, files come and go, and which are databases isn't known yet: the
	 * exact look comes when it is stopped. */
	rc = hb_walk(fd, measure, NULL, &s, NULL) < 0 && !s.cut
		     ? 0
		     : hb_backup_need_room(store->fd, store->path,
					   room_for(encrypts, s.bytes, s.entries, 0), "a backup",
					   err);
	close(fd);
	return rc;
}

/* --- the draft --- */

static void about_this_host(struct hb_work *w, struct hb_backup_manifest *m)
{
	json_t *activation = NULL;

	snprintf(m->host_id, sizeof m->host_id, "%s", w->host_id);
	snprintf(m->operation_id, sizeof m->operation_id, "%s", w->operation_id);
	m->created_at = hb_now();
	(void)hb_store_link(w->store, "current", m->release, NULL);
	(void)hb_activation_load(&activation, NULL);
	if (strcmp(hb_json_text(activation, "manifest_digest", ""), m->release) == 0)
		snprintf(m->image, sizeof m->image, "%.512s",
			 hb_json_text(activation, "image", ""));
	json_decref(activation);
}

static int draft_write(struct hb_work *w, struct hb_backup_draft *d, int data_fd,
		       struct hb_error *err)
{
	struct hb_backup_phase scan = {w, "hash", 0, 0}, write = {w, "archive", 0, 0};

	if (hb_backup_scan(data_fd, hb_config_text(w->config, "runtime.data_mount"),
			   hb_backup_on_progress, &scan, &d->m, err) < 0)
		return -1;
	if (hb_backup_need_room(
		    w->backups->fd, w->backups->path,
		    room_for(w->age_fd >= 0, d->m.bytes, d->m.count,
			     hb_backup_manifest_sqlite_bytes(&d->m)),
		    "a backup", err) < 0)
		return -1;
	/* 0600 from the first byte, in a directory that only root enters. */
	d->fd = openat(w->backups->fd, d->temporary,
		       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (d->fd < 0)
		return hb_fail_errno(err, "io_failed", "a backup can't be begun in %s",
				     w->backups->path);
	write.bytes = d->m.bytes;
	write.files = d->m.files;
	return hb_backup_write(data_fd, &d->m, d->fd, hb_backup_on_progress, &write, err);
}

int hb_backup_begin(struct hb_work *w, const char *data, struct hb_backup_draft **out,
		    struct hb_error *err)
{
	struct hb_backup_draft *d;
	const char **recipients;
	int data_fd, rc;

	if (hb_backup_store_check(w->backups, err) < 0)
		return -1;
	if (w->age_fd < 0 && hb_config_list(w->config, "runtime.age_recipients", &recipients) > 0)
		return hb_fail(err, "age_missing",
			       "runtime.age_recipients is set but nothing here can encrypt; see "
			       "the log of hermes-installer");
	data_fd = open_data(data, err);
	if (data_fd < 0)
		return -1;
	d = hb_calloc(1, sizeof *d);
	d->fd = -1;
	about_this_host(w, &d->m);
	hb_backup_name(d->m.created_at, w->age_fd >= 0, d->name);
	snprintf(d->temporary, sizeof d->temporary, ".new-%s", d->name);
	rc = draft_write(w, d, data_fd, err);
	close(data_fd);
	if (rc < 0)
		hb_backup_draft_free(w, d);
	else
		*out = d;
	return rc;
}

void hb_backup_draft_free(struct hb_work *w, struct hb_backup_draft *d)
{
	if (!d)
		return;
	if (d->temporary[0])
		unlinkat(w->backups->fd, d->temporary, 0);
	hb_close(&d->fd);
	hb_backup_manifest_free(&d->m);
	free(d);
}

/* --- from draft to backup --- */

/* What was read back is what was written. */
static int agrees(const struct hb_backup_manifest *m, const json_t *head, struct hb_error *err)
{
	if (hb_json_int(head, "files", -1) == (long long)m->files &&
	    hb_json_int(head, "directories", -1) == (long long)m->directories &&
	    hb_json_int(head, "links", -1) == (long long)m->links &&
	    hb_json_int(head, "bytes", -1) == (long long)m->bytes &&
	    hb_json_int(head, "created_at", -1) == (long long)m->created_at &&
	    strcmp(hb_json_text(head, "operation_id", "?"), m->operation_id) == 0)
		return 0;
	return hb_fail(err, "bad_backup", "the backup reads back otherwise than it was written");
}

/* The draft becomes its encrypted form; the plain one is gone afterwards. */
static int encrypt(struct hb_work *w, struct hb_backup_draft *d, struct hb_error *err)
{
	char name[HB_BACKUP_NAME_MAX + 16], begin[sizeof AGE_HEADER] = "";
	struct hb_progress p = {.phase = "encrypt", .unit = "bytes"};
	int fd, rc = -1;

	hb_work_progress(w, &p);
	snprintf(name, sizeof name, ".new-age-%s", d->name);
	fd = openat(w->backups->fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return hb_fail_errno(err, "io_failed", "an encrypted backup can't be begun in %s",
				     w->backups->path);
	if (lseek(d->fd, 0, SEEK_SET) < 0)
		hb_fail_errno(err, "io_failed", "the backup can't be read back");
	else if (hb_age_encrypt(w->age_fd, d->fd, fd, err) == 0) {
		if (pread(fd, begin, sizeof begin - 1, 0) != (ssize_t)sizeof begin - 1 ||
		    strcmp(begin, AGE_HEADER) != 0)
			hb_fail(err, "age_failed", "what age wrote is not an age file");
		else if (fsync(fd) < 0)
			hb_fail_errno(err, "io_failed", "the encrypted backup can't be synced");
		else
			rc = 0;
	}
	if (rc < 0) {
		unlinkat(w->backups->fd, name, 0);
		close(fd);
		return -1;
	}
	unlinkat(w->backups->fd, d->temporary, 0);
	close(d->fd);
	d->fd = fd;
	snprintf(d->temporary, sizeof d->temporary, "%s", name);
	return 0;
}

static int put_in_place(struct hb_work *w, struct hb_backup_draft *d, struct hb_error *err)
{
	if (renameat2(w->backups->fd, d->temporary, w->backups->fd, d->name, RENAME_NOREPLACE) < 0)
		return hb_fail_errno(err, "io_failed", "backup %s can't be put in its place",
				     d->name);
	d->temporary[0] = '\0';
	return hb_fs_sync_dir(w->backups->fd, ".", err);
}

static int retain(struct hb_work *w, const char *const *except, json_t *record,
		  struct hb_error *err)
{
	json_t *removed = json_array();
	int rc = hb_backup_retain(
		w->backups, hb_now(), (size_t)hb_config_int(w->config, "runtime.backup_keep"),
		hb_config_int(w->config, "runtime.backup_max_age") * 86400, except, removed, err);

	json_object_set_new(record, "removed", removed);
	return rc < 0 ? hb_fail_prefix(err, "the new backup is complete, but") : 0;
}

int hb_backup_finish(struct hb_work *w, struct hb_backup_draft *d, const char *const *except,
		     json_t **record, struct hb_error *err)
{
	json_t *head = NULL, *databases = NULL, *made = NULL;
	struct hb_backup_phase hash = {w, "hash backup", 0, 0};
	char hex[HB_HEX256];
	uint64_t size;
	int rc = -1;

	if (hb_backup_check_archive(w, d->fd, &head, &databases, err) < 0 ||
	    agrees(&d->m, head, err) < 0 || (w->age_fd >= 0 && encrypt(w, d, err) < 0) ||
	    hb_backup_hash(d->fd, hb_backup_on_hashed, &hash, hex, &size, err) < 0 ||
	    put_in_place(w, d, err) < 0)
		goto out;
	made = hb_backup_record_make(d->name, head, databases, hex, size);
	if (hb_backup_record_save(w->backups, made, err) < 0 || retain(w, except, made, err) < 0)
		goto out;
	*record = json_incref(made);
	rc = 0;
out:
	json_decref(made);
	json_decref(head);
	json_decref(databases);
	return rc;
}

int hb_backup_create(struct hb_work *w, const char *data, const char *const *except,
		     json_t **record, struct hb_error *err)
{
	struct hb_backup_draft *d;
	int rc;

	if (hb_backup_begin(w, data, &d, err) < 0)
		return -1;
	rc = hb_backup_finish(w, d, except, record, err);
	hb_backup_draft_free(w, d);
	return rc;
}
