/* What a backup may hold, and how that is written down (backup_manifest.h). */
#include "broker/installer/backup_manifest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "broker/installer/mtree.h"
#include "common/fields.h"
#include "common/json.h"

#define FORMAT "hermes-runtime-backup"
#define PATH_BYTES_MAX 4000
#define NAME_BYTES_MAX 255

static const char *const type_names[] = {"directory", "file", "link"};

/* For messages: any byte, cut. */
static const char *show(const char *path, char out[168])
{
	struct hb_buf text = HB_BUF_INIT;

	hb_mtree_escape(&text, path, strlen(path));
	snprintf(out, 168, "%.160s", text.data ? text.data : "");
	hb_buf_free(&text);
	return out;
}

static int check_path(const char *path, struct hb_error *err)
{
	const char *at = path;
	char shown[168];

	if (strcmp(path, ".") == 0)
		return 0;
	if (strlen(path) > PATH_BYTES_MAX)
		return hb_fail(err, "limit_exceeded", "a path in the backup has more than %d bytes",
			       PATH_BYTES_MAX);
	for (;;) {
		size_t len = strcspn(at, "/");

		if (len == 0 || len > NAME_BYTES_MAX || (len == 1 && at[0] == '.') ||
		    (len == 2 && at[0] == '.' && at[1] == '.'))
			return hb_fail(err, "unsafe_path",
				       "\"%s\" is no path below the data directory",
				       show(path, shown));
		if (at[len] == '\0')
			return 0;
		at += len + 1;
	}
}

/* Where the directory of `path` stands in the list: walk order leaves only those that hold the last
 * entry. */
static bool find_parent(const struct hb_backup_manifest *m, const char *path, size_t *parent)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0, at = m->count - 1;

	if (m->entries[at].type != HB_BACKUP_DIRECTORY)
		at = m->entries[at].parent;
	for (; at != 0; at = m->entries[at].parent)
		if (strncmp(m->entries[at].path, path, len) == 0 &&
		    m->entries[at].path[len] == '\0')
			break;
	*parent = at;
	return at != 0 || len == 0;
}

/* ".." only at its beginning, and no more of them than there are directories above the link: then
 * no chain of links leads out either, since each step stays inside. */
static bool link_stays_inside(const char *path, const char *target, const char *data_mount)
{
	size_t depth = 0, mount = strlen(data_mount);
	bool names = false;

	if (target[0] == '/') {
		if (mount < 2 || strncmp(target, data_mount, mount) != 0 ||
		    (target[mount] != '/' && target[mount] != '\0'))
			return false;
		target += mount;
		names = true;
	}
	for (const char *p = path; *p; p++)
		depth += *p == '/';
	while (*target) {
		size_t len = strcspn(target, "/");

		if (len == 2 && target[0] == '.' && target[1] == '.') {
			if (names || depth-- == 0)
				return false;
		} else if (len > 0 && !(len == 1 && target[0] == '.')) {
			names = true;
		}
		target += len + (target[len] == '/');
	}
	return true;
}

static int check_entry(const struct hb_backup_manifest *m, const struct hb_backup_entry *e,
		       const char *data_mount, size_t *parent, struct hb_error *err)
{
	char shown[168];

	*parent = 0;
	if (check_path(e->path, err) < 0)
		return -1;
	show(e->path, shown);
	if (m->count >= HB_BACKUP_ENTRIES_MAX)
		return hb_fail(err, "limit_exceeded",
			       "there are more than %d entries in the data directory",
			       HB_BACKUP_ENTRIES_MAX);
	if ((m->count == 0) != (strcmp(e->path, ".") == 0) ||
	    (m->count == 0 && e->type != HB_BACKUP_DIRECTORY))
		return hb_fail(err, "bad_backup",
			       "the first entry, and only that, is the data directory itself");
	if (m->count > 1 && hb_mtree_compare(m->entries[m->count - 1].path, e->path) >= 0)
		return hb_fail(err, "bad_backup", "\"%s\" is there twice or out of order", shown);
	if (m->count > 0 && !find_parent(m, e->path, parent))
		return hb_fail(err, "unsafe_path",
			       "\"%s\" does not lie in a directory of the backup", shown);
	if (e->mode & ~(mode_t)0777)
		return hb_fail(err, "unsafe_mode",
			       "\"%s\" has mode %04o; setuid, setgid and sticky bits are refused",
			       shown, e->mode);
	if (e->type == HB_BACKUP_LINK &&
	    (!e->target || e->target[0] == '\0' || strlen(e->target) > PATH_BYTES_MAX ||
	     !link_stays_inside(e->path, e->target, data_mount)))
		return hb_fail(err, "unsafe_link",
			       "the link \"%s\" leads out of the data directory; remove it or "
			       "point it inside",
			       shown);
	return 0;
}

int hb_backup_manifest_add(struct hb_backup_manifest *m, const struct hb_backup_entry *e,
			   const char *data_mount, struct hb_error *err)
{
	struct hb_backup_entry *mine;
	size_t parent;

	if (check_entry(m, e, data_mount, &parent, err) < 0)
		return -1;
	if (e->type == HB_BACKUP_FILE && e->size > (uint64_t)HB_JSON_INT_MAX - m->bytes)
		return hb_fail(err, "limit_exceeded", "the sizes in the backup are impossible");
	if (m->count == m->cap) {
		m->cap = m->cap ? 2 * m->cap : 64;
		m->entries = realloc(m->entries, m->cap * sizeof *m->entries);
		if (!m->entries)
			abort();
	}
	mine = &m->entries[m->count++];
	*mine = *e;
	mine->parent = parent;
	mine->path = hb_strdup(e->path);
	mine->target = e->type == HB_BACKUP_LINK ? hb_strdup(e->target) : NULL;
	m->directories += e->type == HB_BACKUP_DIRECTORY;
	m->links += e->type == HB_BACKUP_LINK;
	m->files += e->type == HB_BACKUP_FILE;
	m->bytes += e->type == HB_BACKUP_FILE ? e->size : 0;
	return 0;
}

void hb_backup_manifest_free(struct hb_backup_manifest *m)
{
	for (size_t i = 0; i < m->count; i++) {
		free(m->entries[i].path);
		free(m->entries[i].target);
	}
	free(m->entries);
	memset(m, 0, sizeof *m);
}

/* --- writing --- */

static json_t *escaped(const char *bytes)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *out;

	hb_mtree_escape(&text, bytes, strlen(bytes));
	out = json_string(text.data ? text.data : "");
	hb_buf_free(&text);
	return out;
}

static json_t *entry_json(const struct hb_backup_entry *e)
{
	json_t *o = json_pack("{s:o, s:s, s:I}", "path", escaped(e->path), "type",
			      type_names[e->type], "mtime", (json_int_t)e->mtime);
	char mode[8];

	if (e->type == HB_BACKUP_LINK) {
		json_object_set_new(o, "target", escaped(e->target));
		return o;
	}
	snprintf(mode, sizeof mode, "%04o", e->mode & 0777u);
	json_object_set_new(o, "mode", json_string(mode));
	if (e->type == HB_BACKUP_FILE) {
		json_object_set_new(o, "size", json_integer((json_int_t)e->size));
		json_object_set_new(o, "sha256", json_string(e->sha256));
		if (e->sqlite)
			json_object_set_new(o, "sqlite", json_true());
	}
	return o;
}

int hb_backup_manifest_print(const struct hb_backup_manifest *m, struct hb_buf *out,
			     struct hb_error *err)
{
	json_t *entries = json_array(), *o;
	int rc;

	for (size_t i = 0; i < m->count; i++)
		json_array_append_new(entries, entry_json(&m->entries[i]));
	o = json_pack("{s:s, s:i, s:s, s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "format",
		      FORMAT, "version", 1, "host_id", m->host_id, "created_at",
		      (json_int_t)m->created_at, "operation_id", m->operation_id, "release",
		      m->release, "image", m->image, "files", (json_int_t)m->files, "directories",
		      (json_int_t)m->directories, "links", (json_int_t)m->links, "bytes",
		      (json_int_t)m->bytes, "left_out", (json_int_t)m->left_out, "entries",
		      entries);
	rc = hb_json_canonical(o, out, err);
	json_decref(o);
	if (rc == 0 && out->len > HB_BACKUP_MANIFEST_MAX)
		rc = hb_fail(err, "limit_exceeded",
			     "the names in the data directory are too many for one backup");
	return rc;
}

/* --- reading --- */

struct head {
	const char *format, *host_id, *operation_id, *release, *image;
	long long version, created_at, files, directories, links, bytes, left_out;
	json_t *entries;
};

#define AT(member) offsetof(struct head, member)
#define NUMBER(member)                                                                   \
	{                                                                                \
#member, HB_FIELD_INT, HB_FIELD_REQUIRED, AT(member), 0, HB_JSON_INT_MAX \
	}
static const struct hb_field head_fields[] = {
	{"format", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(format), 1, 64},
	{"version", HB_FIELD_INT, HB_FIELD_REQUIRED, AT(version), 1, 1},
	{"host_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(host_id), 0, 64},
	{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(operation_id), 0, 64},
	{"release", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(release), 0, 64},
	{"image", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(image), 0, 512},
	NUMBER(created_at),
	NUMBER(files),
	NUMBER(directories),
	NUMBER(links),
	NUMBER(bytes),
	NUMBER(left_out),
	{"entries", HB_FIELD_ARRAY, HB_FIELD_REQUIRED, AT(entries), 1, HB_BACKUP_ENTRIES_MAX},
};
#undef AT

struct line {
	const char *path, *type, *mode, *sha256, *target;
	long long mtime, size;
	bool sqlite;
};

#define AT(member) offsetof(struct line, member)
static const struct hb_field line_fields[] = {
	{"path", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(path), 1, 4L * PATH_BYTES_MAX},
	{"type", HB_FIELD_TEXT, HB_FIELD_REQUIRED, AT(type), 1, 16},
	{"mtime", HB_FIELD_INT, HB_FIELD_REQUIRED, AT(mtime), -HB_JSON_INT_MAX, HB_JSON_INT_MAX},
	{"mode", HB_FIELD_TEXT, 0, AT(mode), 4, 5},
	{"size", HB_FIELD_INT, 0, AT(size), 0, HB_JSON_INT_MAX},
	{"sha256", HB_FIELD_TEXT, HB_FIELD_HEX64, AT(sha256), 64, 64},
	{"target", HB_FIELD_TEXT, 0, AT(target), 1, 4L * PATH_BYTES_MAX},
	{"sqlite", HB_FIELD_BOOL, 0, AT(sqlite), 0, 0},
};
#undef AT

/* Exactly the members of its type. */
static bool has_members(const struct line *l, enum hb_backup_type type)
{
	bool file = type == HB_BACKUP_FILE, link = type == HB_BACKUP_LINK;

	return (l->mode != NULL) == !link && (l->target != NULL) == link &&
	       (l->sha256 != NULL) == file && (l->size >= 0) == file && (file || !l->sqlite);
}

static int parse_entry(struct hb_backup_manifest *m, const json_t *item, const char *data_mount,
		       struct hb_error *err)
{
	struct line l = {.size = -1};
	struct hb_backup_entry e = {.mode = 0777};
	char *end = NULL;
	int rc = -1;

	if (hb_fields_decode(item, line_fields, sizeof line_fields / sizeof *line_fields, &l, err) <
	    0)
		return hb_fail(err, "bad_backup", "entry %zu of the manifest: %s", m->count + 1,
			       err ? err->message : "not valid");
	while (e.type <= HB_BACKUP_LINK && strcmp(type_names[e.type], l.type) != 0)
		e.type++;
	if (e.type > HB_BACKUP_LINK)
		return hb_fail(err, "bad_backup",
			       "entry %zu of the manifest is a \"%s\"; only directories, files and "
			       "links are restored",
			       m->count + 1, l.type);
	if (!has_members(&l, e.type))
		return hb_fail(err, "bad_backup",
			       "entry %zu of the manifest lacks or has members that a %s has not",
			       m->count + 1, type_names[e.type]);
	e.path = hb_strdup(l.path);
	e.target = l.target ? hb_strdup(l.target) : NULL;
	if (l.mode)
		e.mode = (mode_t)strtoul(l.mode, &end, 8);
	if (hb_mtree_unescape(e.path) < 0 || (e.target && hb_mtree_unescape(e.target) < 0) ||
	    (end && *end) || (l.mode && !isdigit((unsigned char)l.mode[0]))) {
		hb_fail(err, "bad_backup", "entry %zu of the manifest is not written as one",
			m->count + 1);
		goto out;
	}
	e.mtime = l.mtime;
	e.size = l.size > 0 ? (uint64_t)l.size : 0;
	if (l.sha256)
		memcpy(e.sha256, l.sha256, sizeof e.sha256);
	e.sqlite = l.sqlite;
	rc = hb_backup_manifest_add(m, &e, data_mount, err);
out:
	free(e.path);
	free(e.target);
	return rc;
}

static bool counts_agree(const struct hb_backup_manifest *m, const struct head *h)
{
	return m->files == (uint64_t)h->files && m->directories == (uint64_t)h->directories &&
	       m->links == (uint64_t)h->links && m->bytes == (uint64_t)h->bytes;
}

int hb_backup_manifest_parse(const char *text, size_t len, const char *data_mount,
			     struct hb_backup_manifest *out, struct hb_error *err)
{
	struct hb_backup_manifest m = {0};
	struct head h = {0};
	struct hb_error why;
	json_t *o, *item;
	size_t i;

	o = len <= HB_BACKUP_MANIFEST_MAX ? hb_json_parse(text, len, NULL) : NULL;
	if (!o)
		return hb_fail(err, "bad_backup", "the archive's first member is not a manifest");
	if (hb_fields_decode(o, head_fields, sizeof head_fields / sizeof *head_fields, &h, &why) <
	    0) {
		hb_fail(err, "bad_backup", "the manifest: %s", why.message);
		goto fail;
	}
	if (strcmp(h.format, FORMAT) != 0 || (h.release[0] && !hb_is_hex64(h.release))) {
		hb_fail(err, "bad_backup", "the manifest is not that of a runtime backup");
		goto fail;
	}
	json_array_foreach(h.entries, i, item)
		if (parse_entry(&m, item, data_mount, err) < 0)
			goto fail;
	if (!counts_agree(&m, &h)) {
		hb_fail(err, "bad_backup", "the manifest's counts are not those of its entries");
		goto fail;
	}
	snprintf(m.host_id, sizeof m.host_id, "%s", h.host_id);
	snprintf(m.operation_id, sizeof m.operation_id, "%s", h.operation_id);
	snprintf(m.release, sizeof m.release, "%s", h.release);
	snprintf(m.image, sizeof m.image, "%.512s", h.image);
	m.created_at = h.created_at;
	m.left_out = (uint64_t)h.left_out;
	json_decref(o);
	*out = m;
	return 0;
fail:
	hb_backup_manifest_free(&m);
	json_decref(o);
	return -1;
}

/* --- questions --- */

bool hb_backup_is_database(const struct hb_backup_manifest *m, size_t i)
{
	static const char *const logs[] = {"-wal", "-journal"};
	const struct hb_backup_entry *e = &m->entries[i];
	size_t len = strlen(e->path);

	if (e->type != HB_BACKUP_FILE)
		return false;
	if (e->sqlite)
		return true;
	for (size_t l = 0; l < 2; l++) {
		size_t suffix = strlen(logs[l]);

		if (len <= suffix || strcmp(e->path + len - suffix, logs[l]) != 0)
			continue;
		/* "x" sorts before "x-wal", with little in between. */
		for (size_t k = i; k-- > 0;) {
			if (strncmp(m->entries[k].path, e->path, len - suffix) != 0)
				break;
			if (m->entries[k].path[len - suffix] == '\0')
				return m->entries[k].sqlite;
		}
	}
	return false;
}

uint64_t hb_backup_manifest_sqlite_bytes(const struct hb_backup_manifest *m)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < m->count; i++)
		sum += hb_backup_is_database(m, i) ? m->entries[i].size : 0;
	return sum;
}

static bool says_secret(const char *path)
{
	static const char *const parts[] = {"secret", "token", "passw", "credential", "private"};
	static const char *const ends[] = {".key", ".pem", ".p12", ".env"};
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	size_t len = strlen(name);

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (strcasestr(name, parts[i]))
			return true;
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		if (len >= strlen(ends[i]) &&
		    strcasecmp(name + len - strlen(ends[i]), ends[i]) == 0)
			return true;
	return false;
}

mode_t hb_backup_restored_mode(const struct hb_backup_entry *e)
{
	return e->type == HB_BACKUP_FILE && says_secret(e->path) ? e->mode & 0700 : e->mode;
}
