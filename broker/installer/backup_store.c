/* The directory of backups and their records (backup_store.h). */
#include "broker/installer/backup_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/fields.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"

#define DEFAULT_DIR "installer/backups"
#define RECORD_MAX 262144
#define RECORD_SUFFIX ".json"
#define CHUNK ((size_t)1024 * 1024)

/* --- the directory --- */

/* Is `inner` the directory `outer` or below it? By inodes, so that no spelling and no bind mount
 * hides it. */
static bool lies_in(int inner, const char *outer)
{
	int fd = openat(inner, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), up;
	struct stat st, want, above;
	bool found = false;

	if (stat(outer, &want) < 0) {
		hb_close(&fd);
		return false;
	}
	while (fd >= 0 && fstat(fd, &st) == 0) {
		found = st.st_dev == want.st_dev && st.st_ino == want.st_ino;
		up = found ? -1 : openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (up >= 0 && fstat(up, &above) == 0 && above.st_dev == st.st_dev &&
		    above.st_ino == st.st_ino)
			hb_close(&up); /* the root */
		close(fd);
		fd = up;
	}
	return found;
}

/* A data directory that isn't there yet has no inode: then by its path. */
static bool path_in(const char *inner, const char *outer)
{
	size_t len = strlen(outer);

	return strncmp(inner, outer, len) == 0 && (inner[len] == '/' || inner[len] == '\0');
}

static int judge(const struct hb_backup_store *s, const char *data, const char *storage,
		 struct hb_error *err)
{
	struct stat st;

	if (lies_in(s->fd, data) || path_in(s->path, data))
		return hb_fail(err, "backup_dir_inside_data",
			       "backups in %s would lie in the data directory %s itself; set "
			       "runtime.backup_dir to "
			       "another place",
			       s->path, data);
	if (lies_in(s->fd, storage) || path_in(s->path, storage))
		return hb_fail(err, "backup_dir_unusable",
			       "%s lies in runtime.storage (%s), which may be thrown away; set "
			       "runtime.backup_dir to "
			       "another place",
			       s->path, storage);
	if (fstat(s->fd, &st) < 0 || st.st_uid != 0 || (st.st_mode & 077) != 0)
		return hb_fail(err, "backup_dir_unusable",
			       "others can reach %s, and backups hold keys; run: chown root %s && "
			       "chmod 700 %s",
			       s->path, s->path, s->path);
	return 0;
}

void hb_backup_store_open(const char *path, const char *data, const char *storage,
			  struct hb_backup_store *out)
{
	const char *wanted = path[0] ? path : DEFAULT_DIR;
	struct hb_backup_store s = {.fd = -1};
	struct stat st;
	int rc = 0;

	s.path = hb_strdup(wanted);
	/* One that exists keeps its mode: it is judged, not mended. */
	if (path_in(wanted, data) || path_in(wanted, storage))
		rc = hb_fail(&s.trouble, "backup_dir_inside_data",
			     "runtime.backup_dir %s lies in the data directory or in "
			     "runtime.storage; set it to another "
			     "place",
			     wanted);
	else if (lstat(wanted, &st) < 0)
		rc = hb_fs_mkdirs(AT_FDCWD, wanted, 0700, 0, 0, &s.trouble);
	if (rc == 0) {
		free(s.path);
		s.path = realpath(wanted, NULL);
		s.fd = s.path ? open(s.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
		if (!s.path)
			s.path = hb_strdup(wanted);
		if (s.fd < 0)
			rc = hb_fail_errno(&s.trouble, "backup_dir_unusable",
					   "runtime.backup_dir %s can't be opened", wanted);
	}
	if (rc == 0)
		rc = judge(&s, data, storage, &s.trouble);
	if (rc < 0)
		hb_close(&s.fd);
	*out = s;
}

void hb_backup_store_close(struct hb_backup_store *s)
{
	hb_close(&s->fd);
	free(s->path);
	s->path = NULL;
}

int hb_backup_store_check(const struct hb_backup_store *s, struct hb_error *err)
{
	if (s->fd >= 0)
		return 0;
	return hb_fail(err, s->trouble.code[0] ? s->trouble.code : "backup_dir_unusable", "%s",
		       s->trouble.message);
}

/* Names that `wanted` accepts, as an array of strings. */
static json_t *names_in(const struct hb_backup_store *s, bool (*wanted)(const char *),
			struct hb_error *err)
{
	int fd = openat(s->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	json_t *list = json_array();
	struct dirent *e;

	if (!dir) {
		hb_fail_errno(err, "backup_dir_unusable", "%s can't be listed", s->path);
		hb_close(&fd);
		json_decref(list);
		return NULL;
	}
	while ((e = readdir(dir)))
		if (wanted(e->d_name))
			json_array_append_new(list, json_string(e->d_name));
	closedir(dir);
	return list;
}

static bool is_leftover(const char *name)
{
	/* Also what an interrupted write of a record leaves: ".<name>.json.<random>". */
	return strncmp(name, ".new-", 5) == 0 || strncmp(name, ".scratch-", 9) == 0 ||
	       strncmp(name, "." HB_BACKUP_PREFIX, sizeof HB_BACKUP_PREFIX) == 0;
}

int hb_backup_store_clean(const struct hb_backup_store *s, struct hb_error *err)
{
	json_t *list, *name;
	size_t i;
	int rc = 0;

	if (s->fd < 0)
		return 0;
	list = names_in(s, is_leftover, err);
	if (!list)
		return -1;
	json_array_foreach(list, i, name)
		rc = rc < 0 ? rc : hb_fs_remove_tree(s->fd, json_string_value(name), err);
	json_decref(list);
	return rc;
}

/* --- names and files --- */

void hb_backup_name(int64_t now, bool encrypted, char out[HB_BACKUP_NAME_MAX])
{
	time_t when = (time_t)now;
	char stamp[24] = "", random[9];
	struct tm tm;

	if (gmtime_r(&when, &tm))
		strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &tm);
	hb_random_hex(4, random);
	snprintf(out, HB_BACKUP_NAME_MAX, HB_BACKUP_PREFIX "%s-%s" HB_BACKUP_SUFFIX "%s", stamp,
		 random, encrypted ? HB_BACKUP_AGE : "");
}

static bool ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), n = strlen(end);

	return len > n && strcmp(text + len - n, end) == 0;
}

bool hb_backup_is_encrypted(const char *name)
{
	return ends_with(name, HB_BACKUP_AGE);
}

bool hb_backup_is_name(const char *name)
{
	size_t len = strlen(name);

	return len < HB_BACKUP_NAME_MAX - 16 && name[0] != '.' && name[0] != '-' &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
		       len &&
	       (ends_with(name, HB_BACKUP_SUFFIX) ||
		ends_with(name, HB_BACKUP_SUFFIX HB_BACKUP_AGE));
}

/* What retention may remove: names that hb_backup_name makes. */
static bool is_ours(const char *name)
{
	return hb_backup_is_name(name) &&
	       strncmp(name, HB_BACKUP_PREFIX, sizeof HB_BACKUP_PREFIX - 1) == 0;
}

int hb_backup_open(const struct hb_backup_store *s, const char *name, struct hb_error *err)
{
	struct stat st;
	int fd;

	if (hb_backup_store_check(s, err) < 0)
		return -1;
	if (!hb_backup_is_name(name))
		return hb_fail(err, "backup_missing",
			       "a backup is named by its file name, *" HB_BACKUP_SUFFIX
			       "; `hermesctl backup list` shows "
			       "them");
	fd = hb_fs_open_beneath(s->fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0, err);
	if (fd < 0)
		return hb_fail(err, "backup_missing",
			       "there is no backup %s in %s; `hermesctl backup list` shows them",
			       name, s->path);
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 && st.st_uid == 0 &&
	    (st.st_mode & 077) == 0)
		return fd;
	close(fd);
	return hb_fail(err, "loose_permissions",
		       "%s/%s must be a file of root with one name and mode 0600; run: chown root "
		       "%s/%s && chmod 600 %s/%s",
		       s->path, name, s->path, name, s->path, name);
}

int hb_backup_hash(int fd, void (*progress)(uint64_t done, void *arg), void *arg,
		   char hex[HB_HEX256], uint64_t *size, struct hb_error *err)
{
	struct hb_sha256 *hash = hb_sha256_new();
	unsigned char *chunk = hb_calloc(1, CHUNK), digest[32];
	uint64_t done = 0;
	ssize_t n;

	while ((n = pread(fd, chunk, CHUNK, (off_t)done)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		hb_sha256_update(hash, chunk, (size_t)n);
		done += (uint64_t)n;
		if (progress)
			progress(done, arg);
	}
	hb_sha256_final(hash, digest);
	hb_sha256_free(hash);
	free(chunk);
	if (n < 0)
		return hb_fail_errno(err, "io_failed", "the backup can't be read");
	hb_hex(digest, sizeof digest, hex);
	*size = done;
	return 0;
}

/* --- records --- */

struct record {
	const char *name, *sha256, *host_id, *operation_id, *release, *image;
	long long version, size, created_at, files, directories, links, bytes, left_out,
		last_verified;
	bool encrypted;
	json_t *databases, *drill;
};

#define AT(member) offsetof(struct record, member)
#define NUMBER(member)                                                                   \
	{                                                                                \
#member, HB_FIELD_INT, HB_FIELD_REQUIRED, AT(member), 0, HB_JSON_INT_MAX \
	}
static const struct hb_field record_fields[] = {
	{"version", HB_FIELD_INT, HB_FIELD_REQUIRED, AT(version), 1, 1},
	{"name", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(name), 1, HB_BACKUP_NAME_MAX},
	{"sha256", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_HEX64, AT(sha256), 64, 64},
	{"host_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(host_id), 0, 64},
	{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(operation_id), 0, 64},
	{"release", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(release), 0, 64},
	{"image", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(image), 0, 512},
	NUMBER(size),
	NUMBER(created_at),
	NUMBER(files),
	NUMBER(directories),
	NUMBER(links),
	NUMBER(bytes),
	NUMBER(left_out),
	NUMBER(last_verified),
	{"encrypted", HB_FIELD_BOOL, HB_FIELD_REQUIRED, AT(encrypted), 0, 0},
	{"databases", HB_FIELD_ARRAY, HB_FIELD_REQUIRED, AT(databases), 0, 64},
	{"drill", HB_FIELD_OBJECT, 0, AT(drill), 0, 0},
};
#undef AT

int hb_backup_record_check(const json_t *record, const char *name, struct hb_error *err)
{
	struct record r = {0};
	struct hb_error why;

	if (hb_fields_decode(record, record_fields, sizeof record_fields / sizeof *record_fields,
			     &r, &why) < 0)
		return hb_fail(err, "record_broken",
			       "the record of backup %s: %s; `hermesctl backup verify %s` makes it "
			       "anew",
			       name, why.message, name);
	if (strcmp(r.name, name) != 0 || (r.release[0] && !hb_is_hex64(r.release)))
		return hb_fail(err, "record_broken",
			       "the record of backup %s is that of another; `hermesctl backup "
			       "verify %s` makes it anew",
			       name, name);
	return 0;
}

json_t *hb_backup_record_load(const struct hb_backup_store *s, const char *name,
			      struct hb_error *err)
{
	char file[HB_BACKUP_NAME_MAX + 8];
	struct hb_buf text = HB_BUF_INIT;
	struct hb_error why;
	json_t *record = NULL;

	if (hb_backup_store_check(s, err) < 0)
		return NULL;
	snprintf(file, sizeof file, "%s" RECORD_SUFFIX, name);
	if (hb_fs_read(s->fd, file, RECORD_MAX, &text, &why) < 0)
		hb_fail(err,
			strcmp(why.code, "not_found") == 0 ? "backup_unverified" : "record_broken",
			"backup %s was not verified on this host yet (%s); run: hermesctl backup "
			"verify %s",
			name, why.message, name);
	else if (!(record = hb_json_parse(text.data ? text.data : "", text.len, &why)))
		hb_fail(err, "record_broken",
			"the record of backup %s is damaged; `hermesctl backup verify %s` makes it "
			"anew",
			name, name);
	hb_buf_free(&text);
	if (record && hb_backup_record_check(record, name, err) < 0) {
		json_decref(record);
		record = NULL;
	}
	return record;
}

int hb_backup_record_save(const struct hb_backup_store *s, const json_t *record,
			  struct hb_error *err)
{
	const char *name = hb_json_text(record, "name", "");
	char file[HB_BACKUP_NAME_MAX + 8];
	struct hb_buf text = HB_BUF_INIT;
	int rc;

	if (hb_backup_record_check(record, name, err) < 0)
		return -1;
	snprintf(file, sizeof file, "%s" RECORD_SUFFIX, name);
	rc = hb_json_canonical(record, &text, err);
	if (rc == 0)
		rc = hb_fs_write_atomic(s->fd, file, text.data, text.len, 0600, 0, 0, err);
	hb_buf_free(&text);
	return rc;
}

/* --- list and retention --- */

static int newer_first(const void *a, const void *b)
{
	const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	long long dx = hb_json_int(x, "created_at", 0), dy = hb_json_int(y, "created_at", 0);

	if (dx != dy)
		return dx < dy ? 1 : -1;
	return strcmp(hb_json_text(y, "name", ""), hb_json_text(x, "name", ""));
}

json_t *hb_backup_list(const struct hb_backup_store *s, struct hb_error *err)
{
	json_t *names, *name, *out, **found;
	size_t i, n = 0;

	if (hb_backup_store_check(s, err) < 0 || !(names = names_in(s, hb_backup_is_name, err)))
		return NULL;
	found = hb_calloc(json_array_size(names) + 1, sizeof(json_t *));
	json_array_foreach(names, i, name) {
		const char *text = json_string_value(name);
		json_t *record = hb_backup_record_load(s, text, NULL);
		struct stat st;

		if (fstatat(s->fd, text, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode)) {
			json_decref(record);
			continue;
		}
		/* A record of other bytes is none. */
		if (record && hb_json_int(record, "size", -1) != st.st_size) {
			json_decref(record);
			record = NULL;
		}
		if (!record)
			record = json_pack("{s:s, s:I, s:I, s:b}", "name", text, "size",
					   (json_int_t)st.st_size, "created_at",
					   (json_int_t)st.st_mtime, "encrypted",
					   hb_backup_is_encrypted(text));
		json_object_set_new(record, "recorded",
				    json_boolean(json_object_get(record, "sha256") != NULL));
		found[n++] = record;
	}
	qsort(found, n, sizeof(json_t *), newer_first);
	out = json_array();
	for (i = 0; i < n; i++)
		json_array_append_new(out, found[i]);
	free(found);
	json_decref(names);
	return out;
}

static bool named_in(const char *const *list, const char *name)
{
	for (; list && *list; list++)
		if (strcmp(*list, name) == 0)
			return true;
	return false;
}

static int remove_backup(const struct hb_backup_store *s, const char *name, struct hb_error *err)
{
	char record[HB_BACKUP_NAME_MAX + 8];

	snprintf(record, sizeof record, "%s" RECORD_SUFFIX, name);
	if ((unlinkat(s->fd, name, 0) < 0 && errno != ENOENT) ||
	    (unlinkat(s->fd, record, 0) < 0 && errno != ENOENT))
		return hb_fail_errno(err, "io_failed", "the old backup %s can't be removed", name);
	return 0;
}

int hb_backup_retain(const struct hb_backup_store *s, int64_t now, size_t keep, int64_t max_age,
		     const char *const *except, json_t *removed, struct hb_error *err)
{
	json_t *list = hb_backup_list(s, err), *item;
	bool verified = false;
	size_t i, ours = 0;
	int rc = 0;

	if (!list)
		return -1;
	json_array_foreach(list, i, item) {
		const char *name = hb_json_text(item, "name", "");
		bool newest = !verified && hb_json_int(item, "last_verified", 0) > 0, old;

		verified = verified || newest;
		/* Somebody else's file, copied here to be restored: theirs to remove. */
		if (!is_ours(name))
			continue;
		old = max_age > 0 && now - hb_json_int(item, "created_at", now) > max_age;
		if ((ours++ < keep && !old) || newest || named_in(except, name))
			continue;
		rc = remove_backup(s, name, err);
		if (rc < 0)
			break;
		json_array_append_new(removed, json_string(name));
	}
	if (rc == 0 && json_array_size(removed) > 0)
		rc = hb_fs_sync_dir(s->fd, ".", err);
	json_decref(list);
	return rc;
}
