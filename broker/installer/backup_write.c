/* Writing the archive: two walks over the stopped service's data, the second one held against the
 * first. */
#include "broker/installer/backup_archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/walk.h"
#include "common/fs.h"

#define CHUNK ((size_t)256 * 1024)
#define BLOCK 65536
/* Data of this kind (databases, JSON) shrinks to a third at level 3, at 300 MB/s; higher levels
 * gain a tenth. */
#define LEVEL "3"
#define TARGET_MAX 4096

static const char *below(const char *walk_path)
{
	return walk_path[1] == '/' ? walk_path + 2 : walk_path;
}

struct pass {
	struct hb_backup_manifest *m;
	const char *data_mount;
	hb_backup_progress progress;
	void *arg;
	uint64_t bytes, files;
	unsigned char *chunk;
	/* of the second walk */
	struct archive *archive;
	size_t next;
};

static void report(struct pass *p)
{
	if (p->progress)
		p->progress(p->bytes, p->files, p->arg);
}

/* Read a file whole: `each` gets its pieces. The file must have the size that was seen. */
static int read_file(struct pass *p, const struct hb_walk_entry *e,
		     int (*each)(struct pass *, const void *, size_t, void *, struct hb_error *),
		     void *arg, struct hb_error *err)
{
	int fd = openat(e->dirfd, e->name,
			O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC),
	    rc = 0;
	uint64_t got = 0;
	struct stat st;
	ssize_t n = 0;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		hb_fail_errno(err, "data_unreadable", "%s in the data directory", e->path);
		hb_close(&fd);
		return -1;
	}
	while (rc == 0 && (n = read(fd, p->chunk, CHUNK)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			rc = hb_fail_errno(err, "data_unreadable", "%s in the data directory",
					   e->path);
			break;
		}
		got += (uint64_t)n;
		p->bytes += (uint64_t)n;
		rc = each(p, p->chunk, (size_t)n, arg, err);
		report(p);
	}
	if (rc == 0 && got != (uint64_t)e->st.st_size)
		rc = hb_fail(err, "data_changed",
			     "%s in the data directory changed while it was read", e->path);
	hb_close(&fd);
	return rc;
}

/* --- first walk --- */

struct hashed {
	struct hb_sha256 *hash;
	unsigned char first[16];
	size_t have;
};

static int hash_piece(struct pass *p, const void *data, size_t len, void *arg, struct hb_error *err)
{
	struct hashed *h = arg;
	size_t want = sizeof h->first - h->have;

	want = want < len ? want : len;
	memcpy(h->first + h->have, data, want);
	h->have += want;
	hb_sha256_update(h->hash, data, len);
	return 0;
}

static int scan_file(struct pass *p, const struct hb_walk_entry *w, struct hb_backup_entry *e,
		     struct hb_error *err)
{
	struct hashed h = {.hash = hb_sha256_new()};
	unsigned char digest[32];
	int rc = read_file(p, w, hash_piece, &h, err);

	hb_sha256_final(h.hash, digest);
	hb_sha256_free(h.hash);
	hb_hex(digest, sizeof digest, e->sha256);
	e->size = (uint64_t)w->st.st_size;
	e->sqlite =
		h.have == sizeof h.first && memcmp(h.first, HB_SQLITE_MAGIC, sizeof h.first) == 0;
	p->files++;
	return rc;
}

static int read_target(const struct hb_walk_entry *w, char out[TARGET_MAX + 1],
		       struct hb_error *err)
{
	ssize_t n = readlinkat(w->dirfd, w->name, out, TARGET_MAX);

	if (n < 0)
		return hb_fail_errno(err, "data_unreadable", "link %s in the data directory",
				     w->path);
	out[n] = '\0';
	return 0;
}

static int scan_entry(struct hb_walk_entry *w, void *arg, struct hb_error *err)
{
	struct pass *p = arg;
	char target[TARGET_MAX + 1];
	struct hb_backup_entry e = {.path = (char *)(uintptr_t)below(w->path),
				    .mode = w->st.st_mode & 0777,
				    .mtime = w->st.st_mtime,
				    .target = target};

	if (S_ISDIR(w->st.st_mode)) {
		e.type = HB_BACKUP_DIRECTORY;
	} else if (S_ISREG(w->st.st_mode)) {
		e.type = HB_BACKUP_FILE;
		if (scan_file(p, w, &e, err) < 0)
			return -1;
	} else if (S_ISLNK(w->st.st_mode)) {
		e.type = HB_BACKUP_LINK;
		if (read_target(w, target, err) < 0)
			return -1;
	} else if (S_ISSOCK(w->st.st_mode) || S_ISFIFO(w->st.st_mode)) {
		p->m->left_out++;
		return 0;
	} else {
		return hb_fail(err, "unsafe_file",
			       "%s in the data directory is a device; remove it", w->path);
	}
	return hb_backup_manifest_add(p->m, &e, p->data_mount, err);
}

int hb_backup_scan(int data_fd, const char *data_mount, hb_backup_progress progress, void *arg,
		   struct hb_backup_manifest *m, struct hb_error *err)
{
	struct pass p = {.m = m, .data_mount = data_mount, .progress = progress, .arg = arg};
	int rc;

	p.chunk = hb_calloc(1, CHUNK);
	rc = hb_walk(data_fd, scan_entry, NULL, &p, err);
	free(p.chunk);
	if (rc < 0)
		hb_backup_manifest_free(m);
	return rc;
}

/* --- second walk --- */

static int archive_failed(struct pass *p, const char *what, struct hb_error *err)
{
	const char *why = archive_error_string(p->archive);

	errno = archive_errno(p->archive);
	if (errno == ENOSPC || errno == EDQUOT)
		return hb_fail_errno(err, "disk_full", "writing the backup");
	return hb_fail(err, "io_failed", "writing the backup (%s): %s", what,
		       why ? why : "unknown");
}

static int write_header(struct pass *p, const char *name, mode_t mode, int64_t mtime, uint64_t size,
			const char *target, struct hb_error *err)
{
	struct archive_entry *e = archive_entry_new();
	int rc;

	archive_entry_set_pathname(e, name);
	archive_entry_set_mode(e, (__LA_MODE_T)mode);
	archive_entry_set_mtime(e, (time_t)mtime, 0);
	archive_entry_set_size(e, (la_int64_t)size);
	if (target)
		archive_entry_set_symlink(e, target);
	rc = archive_write_header(p->archive, e);
	archive_entry_free(e);
	/* A warning is something that the format can't express: then it must not be written. */
	return rc == ARCHIVE_OK ? 0 : archive_failed(p, name, err);
}

static int write_bytes(struct pass *p, const void *data, size_t len, struct hb_error *err)
{
	return archive_write_data(p->archive, data, len) == (la_ssize_t)len
		       ? 0
		       : archive_failed(p, "data", err);
}

static int write_piece(struct pass *p, const void *data, size_t len, void *arg,
		       struct hb_error *err)
{
	hb_sha256_update(arg, data, len);
	return write_bytes(p, data, len, err);
}

static int changed(const struct hb_walk_entry *w, struct hb_error *err)
{
	return hb_fail(err, "data_changed",
		       "%s in the data directory changed during the backup: something other than "
		       "the stopped service "
		       "writes there",
		       w->path);
}

static int write_file(struct pass *p, const struct hb_walk_entry *w,
		      const struct hb_backup_entry *e, const char *name, struct hb_error *err)
{
	struct hb_sha256 *hash;
	unsigned char digest[32];
	char hex[HB_HEX256];
	int rc;

	if ((uint64_t)w->st.st_size != e->size)
		return changed(w, err);
	if (write_header(p, name, S_IFREG | e->mode, e->mtime, e->size, NULL, err) < 0)
		return -1;
	hash = hb_sha256_new();
	rc = read_file(p, w, write_piece, hash, err);
	hb_sha256_final(hash, digest);
	hb_sha256_free(hash);
	hb_hex(digest, sizeof digest, hex);
	if (rc == 0 && strcmp(hex, e->sha256) != 0)
		rc = changed(w, err);
	p->files++;
	return rc;
}

static int write_entry(struct hb_walk_entry *w, void *arg, struct hb_error *err)
{
	static const mode_t kinds[] = {S_IFDIR, S_IFREG, S_IFLNK};
	struct pass *p = arg;
	const struct hb_backup_entry *e;
	char name[TARGET_MAX + 16], target[TARGET_MAX + 1];

	if (S_ISSOCK(w->st.st_mode) || S_ISFIFO(w->st.st_mode))
		return 0;
	if (p->next == p->m->count)
		return changed(w, err);
	e = &p->m->entries[p->next++];
	if (strcmp(e->path, below(w->path)) != 0 || (w->st.st_mode & S_IFMT) != kinds[e->type])
		return changed(w, err);
	snprintf(name, sizeof name, "data%s%s", p->next == 1 ? "" : "/",
		 p->next == 1 ? "" : e->path);
	if (e->type == HB_BACKUP_DIRECTORY)
		return write_header(p, name, S_IFDIR | e->mode, e->mtime, 0, NULL, err);
	if (e->type == HB_BACKUP_FILE)
		return write_file(p, w, e, name, err);
	if (read_target(w, target, err) < 0)
		return -1;
	if (strcmp(target, e->target) != 0)
		return changed(w, err);
	return write_header(p, name, S_IFLNK | 0777, e->mtime, 0, target, err);
}

static int write_all(struct pass *p, int data_fd, int out_fd, struct hb_error *err)
{
	struct hb_buf manifest = HB_BUF_INIT;
	int rc = -1;

	if (archive_write_set_format_gnutar(p->archive) != ARCHIVE_OK ||
	    archive_write_add_filter_zstd(p->archive) != ARCHIVE_OK ||
	    archive_write_set_filter_option(p->archive, "zstd", "compression-level", LEVEL) !=
		    ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(p->archive, BLOCK) != ARCHIVE_OK ||
	    archive_write_set_bytes_in_last_block(p->archive, 1) != ARCHIVE_OK ||
	    archive_write_open_fd(p->archive, out_fd) != ARCHIVE_OK)
		return archive_failed(p, "begin", err);
	if (hb_backup_manifest_print(p->m, &manifest, err) < 0 ||
	    write_header(p, HB_BACKUP_MEMBER, S_IFREG | 0600, p->m->created_at, manifest.len, NULL,
			 err) < 0 ||
	    write_bytes(p, manifest.data, manifest.len, err) < 0)
		goto out;
	if (hb_walk(data_fd, write_entry, NULL, p, err) < 0)
		goto out;
	if (p->next != p->m->count)
		hb_fail(err, "data_changed",
			"files vanished from the data directory during the backup");
	else if (archive_write_close(p->archive) != ARCHIVE_OK)
		archive_failed(p, "end", err);
	else
		rc = 0;
out:
	hb_buf_free(&manifest);
	return rc;
}

int hb_backup_write(int data_fd, const struct hb_backup_manifest *m, int out_fd,
		    hb_backup_progress progress, void *arg, struct hb_error *err)
{
	struct pass p = {.m = (struct hb_backup_manifest *)(uintptr_t)m,
			 .progress = progress,
			 .arg = arg,
			 .archive = archive_write_new()};
	int rc;

	p.chunk = hb_calloc(1, CHUNK);
	rc = write_all(&p, data_fd, out_fd, err);
	if (rc < 0)
		archive_write_fail(p.archive); /* freeing would write the rest of it */
	archive_write_free(p.archive);
	free(p.chunk);
	if (rc == 0 && fsync(out_fd) < 0)
		rc = hb_fail_errno(err, "io_failed", "the backup can't be synced");
	return rc;
}
