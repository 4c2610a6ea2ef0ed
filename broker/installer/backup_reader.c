/* The confined child that takes an archive apart (backup_archive.h). */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/backup_archive.h"
#include "broker/installer/backup_stream.h"
#include "broker/installer/mtree.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/sandbox.h"

#define SOCK_FD 3
#define ARCHIVE_FD 4
#define DEST_FD 5
#define PIECE ((size_t)256 * 1024)
#define PROGRESS_MS 250
/* Tables of 400,000 entries and SQLite's cache; an archive made to fill memory ends this child and
 * nothing else. */
#define MAX_MEMORY ((size_t)1024 * 1024 * 1024)

struct reader {
	const struct hb_backup_read *what;
	struct hb_backup_manifest m;
	struct hb_backup_stream *stream;
	struct archive *archive; /* the stream's */
	/* the directory written to last */
	size_t parent;
	int parent_fd;
	uint64_t bytes, files;
	int64_t told_ms;
};

static const struct hb_sandbox_path paths[] = {
	{".", HB_FS_READ | HB_FS_WRITE},
};

static const struct hb_sandbox box = {
	.name = "backup-reader",
	.syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_OWNERS,
	.paths = paths,
	.path_count = sizeof paths / sizeof *paths,
#if !defined(__SANITIZE_ADDRESS__)
	.max_memory = MAX_MEMORY,
#endif
};

/* --- talking --- */

static int tell(json_t *packet)
{
	struct hb_buf text = HB_BUF_INIT;
	ssize_t n = -1;

	if (hb_json_canonical(packet, &text, NULL) == 0 && text.len <= HB_BACKUP_PACKET_MAX)
		n = send(SOCK_FD, text.data, text.len, MSG_NOSIGNAL);
	json_decref(packet);
	hb_buf_free(&text);
	return n > 0 ? 0 : -1;
}

static void tell_progress(struct reader *r)
{
	int64_t now = hb_monotonic_ms();

	if (now - r->told_ms < PROGRESS_MS)
		return;
	r->told_ms = now;
	(void)tell(json_pack("{s:I, s:I}", "bytes", (json_int_t)r->bytes, "files",
			     (json_int_t)r->files));
}

/* --- members --- */

static const char *kind_of(struct archive_entry *e)
{
	if (archive_entry_hardlink(e))
		return "a hard link";
	switch (archive_entry_filetype(e)) {
	case AE_IFREG:
		return "a file";
	case AE_IFDIR:
		return "a directory";
	case AE_IFLNK:
		return "a link";
	default:
		return "a device or the like";
	}
}

static const char *shown_name(struct archive_entry *e, char out[128])
{
	const char *name = archive_entry_pathname(e);
	struct hb_buf text = HB_BUF_INIT;

	hb_mtree_escape(&text, name ? name : "", name ? strlen(name) : 0);
	snprintf(out, 128, "%.120s", text.data ? text.data : "");
	hb_buf_free(&text);
	return out;
}

static const char *shown_path(const struct hb_backup_entry *e, char out[128])
{
	struct hb_buf text = HB_BUF_INIT;

	hb_mtree_escape(&text, e->path, strlen(e->path));
	snprintf(out, 128, "%.120s", text.data);
	hb_buf_free(&text);
	return out;
}

/* The manifest: first, and small enough to be held. */
static int read_manifest(struct reader *r, struct hb_error *err)
{
	struct archive_entry *e;
	struct hb_buf text = HB_BUF_INIT;
	la_ssize_t n;
	char *piece;
	int rc = -1;

	if (archive_read_next_header(r->archive, &e) != ARCHIVE_OK)
		return hb_backup_stream_failed(r->stream, err);
	if (!archive_entry_pathname(e) ||
	    strcmp(archive_entry_pathname(e), HB_BACKUP_MEMBER) != 0 ||
	    archive_entry_filetype(e) != AE_IFREG || archive_entry_hardlink(e) ||
	    archive_entry_size(e) <= 0 ||
	    archive_entry_size(e) > (la_int64_t)HB_BACKUP_MANIFEST_MAX)
		return hb_fail(err, "bad_backup",
			       "the archive does not begin with a manifest: it is no backup of "
			       "ours");
	piece = hb_calloc(1, PIECE);
	while ((n = archive_read_data(r->archive, piece, PIECE)) > 0)
		hb_buf_add(&text, piece, (size_t)n);
	if (n < 0)
		hb_backup_stream_failed(r->stream, err);
	else
		rc = hb_backup_manifest_parse(text.data ? text.data : "", text.len,
					      r->what->data_mount, &r->m, err);
	free(piece);
	hb_buf_free(&text);
	return rc;
}

/* "data", "data/a", with a slash behind directories. */
static bool is_named(const char *name, const struct hb_backup_entry *want)
{
	size_t len;

	if (!name || strncmp(name, "data", 4) != 0)
		return false;
	name += 4;
	if (strcmp(want->path, ".") != 0) {
		len = strlen(want->path);
		if (*name++ != '/' || strncmp(name, want->path, len) != 0)
			return false;
		name += len;
	}
	return *name == '\0' || (want->type == HB_BACKUP_DIRECTORY && strcmp(name, "/") == 0);
}

/* Exactly what the manifest lists next, or the whole archive is refused. */
static int check_member(struct reader *r, size_t i, struct archive_entry *e, struct hb_error *err)
{
	static const __LA_MODE_T kinds[] = {AE_IFDIR, AE_IFREG, AE_IFLNK};
	const struct hb_backup_entry *want = i < r->m.count ? &r->m.entries[i] : NULL;
	char name[128], path[128];

	shown_name(e, name);
	if (!want)
		return hb_fail(err, "bad_backup", "member \"%s\" (%s) is not in the manifest", name,
			       kind_of(e));
	if (!is_named(archive_entry_pathname(e), want) || archive_entry_hardlink(e) ||
	    archive_entry_filetype(e) != kinds[want->type])
		return hb_fail(err, "bad_backup",
			       "member \"%s\" (%s) stands where the manifest lists \"%s\"", name,
			       kind_of(e), shown_path(want, path));
	if (want->type != HB_BACKUP_LINK && (archive_entry_mode(e) & 07777) != want->mode)
		return hb_fail(err, "bad_backup",
			       "member \"%s\" has another mode than in the manifest", name);
	if (want->type == HB_BACKUP_FILE &&
	    (!archive_entry_size_is_set(e) || archive_entry_size(e) != (la_int64_t)want->size ||
	     archive_entry_sparse_count(e) > 0))
		return hb_fail(err, "bad_backup",
			       "member \"%s\" has another size than in the manifest", name);
	if (want->type == HB_BACKUP_LINK &&
	    (!archive_entry_symlink(e) || strcmp(archive_entry_symlink(e), want->target) != 0))
		return hb_fail(err, "bad_backup",
			       "the link \"%s\" has another target than in the manifest", name);
	return 0;
}

/* The directory of entry i below tree/, opened without following anything; kept for the next entry.
 */
static int parent_of(struct reader *r, size_t i, struct hb_error *err)
{
	size_t parent = r->m.entries[i].parent;
	struct hb_buf path = HB_BUF_INIT;

	if (r->parent_fd >= 0 && r->parent == parent)
		return 0;
	hb_close(&r->parent_fd);
	hb_buf_adds(&path, "tree");
	if (parent != 0)
		hb_buf_printf(&path, "/%s", r->m.entries[parent].path);
	r->parent_fd = hb_fs_open_beneath(AT_FDCWD, path.data, O_RDONLY | O_DIRECTORY, 0, err);
	r->parent = parent;
	hb_buf_free(&path);
	return r->parent_fd < 0 ? -1 : 0;
}

static const char *leaf_of(const struct hb_backup_entry *e)
{
	const char *slash = strrchr(e->path, '/');

	return slash ? slash + 1 : e->path;
}

int hb_backup_write_full(int fd, const char *data, size_t len, struct hb_error *err)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return hb_fail_errno(err, "io_failed", "writing what is in the backup");
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

/* The content of the present member: hashed, recognised, and written when fd >= 0. */
static int take_content(struct reader *r, const struct hb_backup_entry *e, int fd,
			struct hb_error *err)
{
	struct hb_sha256 *hash = hb_sha256_new();
	char *piece = hb_calloc(1, PIECE), hex[HB_HEX256], first[16] = "";
	unsigned char digest[32];
	char shown[128];
	uint64_t got = 0;
	la_ssize_t n;
	int rc = 0;

	while (rc == 0 && (n = archive_read_data(r->archive, piece, PIECE)) != 0) {
		if (n < 0) {
			rc = hb_backup_stream_failed(r->stream, err);
			break;
		}
		for (la_ssize_t k = 0; k < n && got + (uint64_t)k < sizeof first; k++)
			first[got + (uint64_t)k] = piece[k];
		got += (uint64_t)n;
		r->bytes += (uint64_t)n;
		hb_sha256_update(hash, piece, (size_t)n);
		if (fd >= 0)
			rc = hb_backup_write_full(fd, piece, (size_t)n, err);
		tell_progress(r);
	}
	hb_sha256_final(hash, digest);
	hb_sha256_free(hash);
	free(piece);
	hb_hex(digest, sizeof digest, hex);
	if (rc == 0 && (got != e->size || strcmp(hex, e->sha256) != 0))
		rc = hb_fail(err, "bad_backup",
			     "the content of \"%s\" is not what the manifest says",
			     shown_path(e, shown));
	if (rc == 0 && e->sqlite != (got >= 16 && memcmp(first, HB_SQLITE_MAGIC, 16) == 0))
		rc = hb_fail(err, "bad_backup",
			     "\"%s\" is or isn't a database, against the manifest",
			     shown_path(e, shown));
	return rc;
}

static int take_file(struct reader *r, size_t i, struct hb_error *err)
{
	const struct hb_backup_entry *e = &r->m.entries[i];
	struct timespec times[2] = {{.tv_sec = e->mtime}, {.tv_sec = e->mtime}};
	char shown[128];
	int fd = -1, rc;

	if (r->what->whole || hb_backup_is_database(&r->m, i)) {
		if (parent_of(r, i, err) < 0)
			return -1;
		fd = openat(r->parent_fd, leaf_of(e),
			    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0)
			return hb_fail_errno(err, "io_failed", "\"%s\" can't be made",
					     shown_path(e, shown));
	}
	rc = take_content(r, e, fd, err);
	if (rc == 0 && r->what->whole &&
	    (fchmod(fd, hb_backup_restored_mode(e)) < 0 || futimens(fd, times) < 0))
		rc = hb_fail_errno(err, "io_failed", "\"%s\" can't be finished",
				   shown_path(e, shown));
	hb_close(&fd);
	r->files++;
	return rc;
}

static int take_member(struct reader *r, size_t i, struct hb_error *err)
{
	const struct hb_backup_entry *e = &r->m.entries[i];
	struct timespec times[2] = {{.tv_sec = e->mtime}, {.tv_sec = e->mtime}};
	char shown[128];

	if (e->type == HB_BACKUP_FILE)
		return take_file(r, i, err);
	if (i == 0)
		return 0; /* tree/ is there */
	if (e->type == HB_BACKUP_DIRECTORY) {
		if (parent_of(r, i, err) < 0)
			return -1;
		/* Its mode comes last: it must stay writable until then. */
		return mkdirat(r->parent_fd, leaf_of(e), 0700) < 0
			       ? hb_fail_errno(err, "io_failed", "\"%s\" can't be made",
					       shown_path(e, shown))
			       : 0;
	}
	if (!r->what->whole)
		return 0;
	if (parent_of(r, i, err) < 0)
		return -1;
	if (symlinkat(e->target, r->parent_fd, leaf_of(e)) < 0 ||
	    utimensat(r->parent_fd, leaf_of(e), times, AT_SYMLINK_NOFOLLOW) < 0)
		return hb_fail_errno(err, "io_failed", "the link \"%s\" can't be made",
				     shown_path(e, shown));
	return 0;
}

/* Innermost first: afterwards a directory may be closed even to its owner. */
static int finish_directories(struct reader *r, struct hb_error *err)
{
	for (size_t i = r->m.count; i-- > 0;) {
		const struct hb_backup_entry *e = &r->m.entries[i];
		struct timespec times[2] = {{.tv_sec = e->mtime}, {.tv_sec = e->mtime}};
		char path[4096 + 16], shown[128];
		int fd, rc;

		if (e->type != HB_BACKUP_DIRECTORY)
			continue;
		snprintf(path, sizeof path, "tree%s%s", i ? "/" : "", i ? e->path : "");
		fd = hb_fs_open_beneath(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, err);
		if (fd < 0)
			return -1;
		rc = fchmod(fd, i ? e->mode : 0700) < 0 || futimens(fd, times) < 0
			     ? hb_fail_errno(err, "io_failed", "directory \"%s\" can't be finished",
					     shown_path(e, shown))
			     : 0;
		hb_close(&fd);
		if (rc < 0)
			return -1;
	}
	return 0;
}

static int take_all(struct reader *r, struct hb_error *err)
{
	struct archive_entry *e;
	size_t i = 0;
	int rc;

	if (mkdir("tree", 0700) < 0)
		return hb_fail_errno(err, "io_failed",
				     "a directory for the backup's content can't be made");
	while ((rc = archive_read_next_header(r->archive, &e)) == ARCHIVE_OK) {
		if (check_member(r, i, e, err) < 0 || take_member(r, i, err) < 0)
			return -1;
		i++;
	}
	if (rc != ARCHIVE_EOF)
		return hb_backup_stream_failed(r->stream, err);
	if (i != r->m.count)
		return hb_fail(err, "bad_backup",
			       "the archive ends after %zu of %zu members; it was cut off", i,
			       r->m.count);
	return hb_backup_stream_end(r->stream, err);
}

/* --- the child --- */

static int keep_descriptors(int sock, const struct hb_backup_read *what, struct hb_error *err)
{
	int from[] = {sock, what->archive_fd, what->dest_fd}, null;

	for (int i = 0; i < 3; i++)
		from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 64);
	for (int i = 0; i < 3; i++)
		if (from[i] < 0 || dup3(from[i], SOCK_FD + i, O_CLOEXEC) < 0)
			return hb_fail_errno(err, "io_failed",
					     "the backup reader can't keep its descriptors");
	if (close_range(DEST_FD + 1, ~0u, 0) < 0)
		return hb_fail_errno(err, "io_failed",
				     "the backup reader can't close its descriptors");
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
		return hb_fail_errno(err, "io_failed", "the backup reader can't open /dev/null");
	hb_close(&null);
	return 0;
}

static int become(const struct hb_backup_read *what, struct hb_error *err)
{
	uid_t uid = what->uid;
	gid_t gid = what->gid;

	if (geteuid() == uid && getegid() == gid)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return hb_fail_errno(err, "io_failed", "the backup reader can't become uid %u",
				     (unsigned)uid);
	if (uid != 0 && (setuid(0) == 0 || geteuid() != uid || getegid() != gid))
		return hb_fail(err, "io_failed", "the backup reader still has its old identity");
	return 0;
}

static json_t *head_of(const struct hb_backup_manifest *m)
{
	return json_pack("{s:s, s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "host_id",
			 m->host_id, "created_at", (json_int_t)m->created_at, "operation_id",
			 m->operation_id, "release", m->release, "image", m->image, "files",
			 (json_int_t)m->files, "directories", (json_int_t)m->directories, "links",
			 (json_int_t)m->links, "bytes", (json_int_t)m->bytes, "left_out",
			 (json_int_t)m->left_out, "sqlite_bytes",
			 (json_int_t)hb_backup_manifest_sqlite_bytes(m));
}

/* The other side looks for room meanwhile; one byte means go on. */
static bool told_to_go_on(void)
{
	char byte;
	ssize_t n;

	do
		n = recv(SOCK_FD, &byte, 1, 0);
	while (n < 0 && errno == EINTR);
	return n == 1;
}

void hb_backup_reader_child(int sock, const struct hb_backup_read *what)
{
	struct reader r = {.what = what, .parent_fd = -1};
	json_t *databases = json_array();
	struct hb_error err = {"", ""};

	prctl(PR_SET_NAME, "hermes-backup");
	if (keep_descriptors(sock, what, &err) < 0)
		goto failed;
	if (fchdir(DEST_FD) < 0) {
		hb_fail_errno(&err, "io_failed", "the backup reader can't enter its directory");
		goto failed;
	}
	if (become(what, &err) < 0 || hb_sandbox_apply(&box, what->degraded_ok, NULL, &err) < 0)
		goto failed;
	if (hb_backup_stream_open(ARCHIVE_FD, &r.stream, &err) < 0)
		goto failed;
	r.archive = hb_backup_stream_archive(r.stream);
	if (read_manifest(&r, &err) < 0)
		goto failed;
	if (tell(json_pack("{s:o}", "head", head_of(&r.m))) < 0 || !told_to_go_on())
		_exit(0);
	if (take_all(&r, &err) < 0 || hb_backup_check_databases(&r.m, databases, &err) < 0 ||
	    (what->whole && finish_directories(&r, &err) < 0))
		goto failed;
	(void)tell(json_pack("{s:O}", "databases", databases));
	_exit(0);
failed:
	/* A message may quote names of the archive; what isn't UTF-8 can't be told. */
	if (tell(json_pack("{s:s, s:s}", "error", err.message, "code", err.code)) < 0)
		(void)tell(json_pack("{s:s, s:s}", "error",
				     "the backup holds names that can't be shown", "code",
				     err.code));
	_exit(1);
}
