/* See keys.h. */
#include "onboarding/keys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/fields.h"
#include "common/ids.h"
#include "common/json.h"
#include "onboarding/credential.h"
#include "onboarding/store.h"

#define FILE_MAX (256u << 10) /* 64 descriptions of some hundred bytes fit many times */
#define KEY_LEAST 8	      /* bytes: shorter is a slip of the hand */
#define DAY 86400

int hb_onboarding_name(const char *field, const char *name, struct hb_error *err)
{
	size_t len = strlen(name);
	bool good = len > 0 && len < HB_ONBOARDING_NAME_MAX && name[0] >= 'a' && name[0] <= 'z' &&
		    name[len - 1] != '-';

	for (size_t i = 0; good && i < len; i++)
		good = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9') ||
		       (name[i] == '-' && name[i - 1] != '-');
	if (!good)
		return hb_fail(err, "bad_name",
			       "%s must have small letters, digits and single hyphens between "
			       "them, begin with a letter, and "
			       "have at most %d of them",
			       field, HB_ONBOARDING_NAME_MAX - 1);
	return hb_credential_refuse(field, name, err);
}

static bool parse_date(const char *date, struct tm *tm)
{
	static const char shape[] = "dddd-dd-dd";
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int y, m, d;

	if (strlen(date) != 10)
		return false;
	for (int i = 0; i < 10; i++)
		if (shape[i] == 'd' ? date[i] < '0' || date[i] > '9' : date[i] != '-')
			return false;
	y = atoi(date);
	m = atoi(date + 5);
	d = atoi(date + 8);
	if (y < 2000 || y > 2199 || m < 1 || m > 12 || d < 1)
		return false;
	if (d > days[m - 1] + (m == 2 && y % 4 == 0 && (y % 100 != 0 || y % 400 == 0)))
		return false;
	*tm = (struct tm){.tm_year = y - 1900, .tm_mon = m - 1, .tm_mday = d};
	return true;
}

int hb_onboarding_date(const char *field, const char *date, struct hb_error *err)
{
	struct tm tm;

	return parse_date(date, &tm)
		       ? 0
		       : hb_fail(err, "bad_date", "%s must be a day as YYYY-MM-DD, 2000 to 2199",
				 field);
}

int64_t hb_onboarding_date_end(const char *date)
{
	struct tm tm;

	return parse_date(date, &tm) ? (int64_t)timegm(&tm) + DAY : 0;
}

void hb_onboarding_date_of(int64_t t, char out[11])
{
	char text[21];

	hb_time_rfc3339(t, text);
	memcpy(out, text, 10);
	out[10] = '\0';
}

bool hb_onboarding_past(const char *date, int64_t now)
{
	return date[0] && now >= hb_onboarding_date_end(date);
}

static void key_path(const char *name, char out[128])
{
	snprintf(out, 128, HB_KEYS_DIR "/%s", name);
}

int hb_named_key_read(const char *name, uid_t probe_uid, struct hb_secret *out,
		      struct hb_error *err)
{
	char path[128];
	struct hb_error why = {0};

	if (hb_onboarding_name("the name of a key", name, err) < 0)
		return -1;
	key_path(name, path);
	if (hb_secret_read(AT_FDCWD, path, probe_uid, HB_KEY_TEXT_MAX + 1, out, &why) == 0)
		return 0;
	if (strcmp(why.code, "secret_missing") == 0)
		return hb_fail(err, "key_unknown",
			       "there is no key %s: hermesctl runtime key set %s", name, name);
	return hb_fail(err, why.code, "%s", why.message);
}

void hb_named_key_used(const char *name)
{
	json_t *all = NULL;
	int64_t now = hb_now(), before;

	if (hb_onboarding_load(HB_KEYS_USE_FILE, FILE_MAX, &all, NULL) < 0 || !all)
		all = json_object(); /* damaged: only times are lost */
	before = hb_json_int(all, name, 0);
	if ((before <= now - HB_KEY_USE_STEP || before > now) &&
	    json_object_size(all) < 4 * HB_NAMED_KEYS_MAX) {
		json_object_set_new(all, name, json_integer(now));
		(void)hb_onboarding_save(HB_KEYS_USE_FILE, all, NULL);
	}
	json_decref(all);
}

/* --- descriptions --- */

struct raw_key {
	const char *name, *purpose, *owner, *expires;
	long long created;
};

static int decode_key(const json_t *item, struct hb_named_key *out, struct hb_error *err)
{
	static const struct hb_field fields[] = {
		{"name", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct raw_key, name), 1,
		 HB_ONBOARDING_NAME_MAX},
		{"purpose", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct raw_key, purpose), 0,
		 HB_KEY_PURPOSE_MAX},
		{"owner", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct raw_key, owner), 1,
		 HB_ONBOARDING_NAME_MAX},
		{"expires", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct raw_key, expires), 0,
		 10},
		{"created", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct raw_key, created), 0,
		 HB_JSON_INT_MAX},
	};
	struct raw_key raw = {0};

	if (hb_fields_decode(item, fields, sizeof fields / sizeof fields[0], &raw, NULL) < 0)
		return hb_fail(err, "bad_keys_file",
			       "a description of a key does not have the fields it must have");
	if (hb_onboarding_name("name", raw.name, err) < 0 ||
	    hb_onboarding_name("owner", raw.owner, err) < 0 ||
	    (raw.expires[0] && hb_onboarding_date("expires", raw.expires, err) < 0))
		return -1;
	memset(out, 0, sizeof *out);
	snprintf(out->name, sizeof out->name, "%s", raw.name);
	snprintf(out->owner, sizeof out->owner, "%s", raw.owner);
	snprintf(out->purpose, sizeof out->purpose, "%s", raw.purpose);
	snprintf(out->expires, sizeof out->expires, "%s", raw.expires);
	out->created = raw.created;
	out->described = true;
	return 0;
}

/* The array of descriptions; *generation may be NULL. */
static json_t *load(int64_t *generation, struct hb_error *err)
{
	struct file {
		long long version, generation;
		json_t *keys;
	} f = {0};
	static const struct hb_field fields[] = {
		{"version", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct file, version), 1, 1},
		{"generation", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct file, generation),
		 1, HB_JSON_INT_MAX},
		{"keys", HB_FIELD_ARRAY, HB_FIELD_REQUIRED, offsetof(struct file, keys), 0,
		 HB_NAMED_KEYS_MAX},
	};
	json_t *all, *keys = NULL, *item;
	struct hb_named_key key;
	size_t i;

	if (hb_onboarding_load(HB_KEYS_FILE, FILE_MAX, &all, err) < 0)
		return NULL;
	if (!all) {
		if (generation)
			*generation = 0;
		return json_array();
	}
	if (hb_fields_decode(all, fields, 3, &f, NULL) < 0) {
		hb_fail(err, "bad_keys_file",
			"%s does not have the shape it must have; put a backup of it back",
			HB_KEYS_FILE);
		goto out;
	}
	json_array_foreach(f.keys, i, item)
		if (decode_key(item, &key, err) < 0) {
			hb_fail_prefix(err, "%s", HB_KEYS_FILE);
			goto out;
		}
	keys = json_incref(f.keys);
	if (generation)
		*generation = f.generation;
out:
	json_decref(all);
	return keys;
}

static int save(json_t *keys, int64_t generation, struct hb_error *err)
{
	json_t *all = json_pack("{s:i, s:I, s:O}", "version", 1, "generation",
				(json_int_t)generation + 1, "keys", keys);
	int rc = hb_onboarding_save(HB_KEYS_FILE, all, err);

	json_decref(all);
	return rc;
}

static size_t index_of(const json_t *keys, const char *name)
{
	const json_t *item;
	size_t i;

	json_array_foreach(keys, i, item)
		if (strcmp(hb_json_text(item, "name", ""), name) == 0)
			return i;
	return (size_t)-1;
}

/* --- listing --- */

static struct hb_named_key *find(struct hb_named_key *keys, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

/* Files without a description: what a crash or another hand left. Names that are none of ours are
 * counted as nothing. */
static int add_files(struct hb_named_key *out, size_t *count, size_t max, struct hb_error *err)
{
	struct hb_error why = {0};
	int fd = hb_fs_open_beneath(AT_FDCWD, HB_KEYS_DIR, O_RDONLY | O_DIRECTORY, 0, &why);
	struct dirent *e;
	DIR *dir;

	if (fd < 0 && strcmp(why.code, "not_found") == 0)
		return 0;
	if (fd < 0)
		return hb_fail(err, why.code, "%s", why.message);
	if (!(dir = fdopendir(fd))) {
		hb_close(&fd);
		return hb_fail_errno(err, "read_failed", "%s", HB_KEYS_DIR);
	}
	while ((e = readdir(dir)))
		if (*count < max && hb_onboarding_name("", e->d_name, NULL) == 0 &&
		    !find(out, *count, e->d_name)) {
			memset(&out[*count], 0, sizeof out[*count]);
			snprintf(out[(*count)++].name, HB_ONBOARDING_NAME_MAX, "%.63s", e->d_name);
		}
	closedir(dir);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct hb_named_key *)a)->name,
		      ((const struct hb_named_key *)b)->name);
}

int hb_named_keys_list(uid_t probe_uid, struct hb_named_key *out, size_t max, struct hb_error *err)
{
	json_t *keys = load(NULL, err), *used = NULL, *item;
	struct hb_error why = {0};
	size_t count = 0, i;

	if (!keys)
		return -1;
	json_array_foreach(keys, i, item)
		if (count < max && decode_key(item, &out[count], err) == 0)
			count++;
	json_decref(keys);
	if (add_files(out, &count, max, err) < 0)
		return -1;
	(void)hb_onboarding_load(HB_KEYS_USE_FILE, FILE_MAX, &used, NULL);
	for (i = 0; i < count; i++) {
		struct hb_secret secret = {0};

		out[i].present = hb_named_key_read(out[i].name, probe_uid, &secret, &why) == 0;
		if (!out[i].present)
			snprintf(out[i].trouble, sizeof out[i].trouble, "%.199s", why.message);
		else if (!out[i].described)
			snprintf(out[i].trouble, sizeof out[i].trouble,
				 "it has no description: set it again, or remove it");
		hb_secret_free(&secret);
		/* A use of another key that had this name doesn't count. */
		out[i].last_used = hb_json_int(used, out[i].name, 0);
		if (out[i].last_used < out[i].created)
			out[i].last_used = 0;
	}
	json_decref(used);
	qsort(out, count, sizeof *out, by_name);
	return (int)count;
}

/* --- changing --- */

static int check_key(const struct hb_secret *key, struct hb_error *err)
{
	if (key->len < KEY_LEAST || key->len > HB_KEY_TEXT_MAX)
		return hb_fail(err, "bad_key", "a key has %d to %d characters", KEY_LEAST,
			       HB_KEY_TEXT_MAX);
	for (size_t i = 0; i < key->len; i++)
		if (key->text[i] < 0x21 || key->text[i] > 0x7e)
			return hb_fail(err, "bad_key",
				       "a key has visible ASCII characters only, on one line and "
				       "without blanks");
	return 0;
}

static int describe(const struct hb_named_key_set *s, const char *default_owner, json_t *keys,
		    size_t at, json_t **out, struct hb_error *err)
{
	const json_t *old = at == (size_t)-1 ? NULL : json_array_get(keys, at);
	const char *purpose = s->purpose ? s->purpose : hb_json_text(old, "purpose", "");
	const char *owner = s->owner ? s->owner : hb_json_text(old, "owner", default_owner);
	const char *expires = s->expires ? s->expires : hb_json_text(old, "expires", "");

	if (hb_onboarding_name("owner", owner, err) < 0 ||
	    hb_text_check("purpose", purpose, 0, HB_KEY_PURPOSE_MAX, err) < 0 ||
	    hb_credential_refuse("purpose", purpose, err) < 0 ||
	    (expires[0] && hb_onboarding_date("expires", expires, err) < 0))
		return -1;
	if (!old && json_array_size(keys) >= HB_NAMED_KEYS_MAX)
		return hb_fail(err, "too_many_keys", "there are %d keys already: remove one",
			       HB_NAMED_KEYS_MAX);
	*out = json_pack("{s:s, s:s, s:s, s:s, s:I}", "name", s->name, "purpose", purpose, "owner",
			 owner, "expires", expires, "created", (json_int_t)hb_now());
	return *out ? 0 : hb_fail(err, "bad_text", "purpose is not UTF-8");
}

int hb_named_key_set(const struct hb_named_key_set *s, const struct hb_secret *key,
		     const char *default_owner, uid_t probe_uid, gid_t probe_gid, bool *replaced,
		     struct hb_error *err)
{
	json_t *keys = NULL, *item = NULL;
	int64_t generation;
	char path[128];
	size_t at;
	int rc = -1;

	if (hb_onboarding_name("the name of a key", s->name, err) < 0 || check_key(key, err) < 0 ||
	    !(keys = load(&generation, err)))
		return -1;
	key_path(s->name, path);
	at = index_of(keys, s->name);
	if (describe(s, default_owner, keys, at, &item, err) < 0 ||
	    hb_onboarding_audit("key_set", "intent", s->name, NULL, err) < 0)
		goto out;
	if (hb_fs_write_atomic(AT_FDCWD, path, key->text, key->len, 0600, probe_uid, probe_gid,
			       err) < 0)
		goto failed;
	if (at == (size_t)-1)
		json_array_append(keys, item);
	else
		json_array_set(keys, at, item);
	if (save(keys, generation, err) < 0)
		goto failed;
	*replaced = at != (size_t)-1;
	rc = hb_onboarding_audit("key_set", "ok", s->name, NULL, err);
	goto out;
failed:
	(void)hb_onboarding_audit("key_set", "failed", s->name, NULL, NULL);
out:
	json_decref(keys);
	json_decref(item);
	return rc;
}

/* By the directory's descriptor: the directory belongs to the prober. */
static int remove_file(const char *name, struct hb_error *err)
{
	int dir = hb_fs_open_beneath(AT_FDCWD, HB_KEYS_DIR, O_RDONLY | O_DIRECTORY, 0, err), rc = 0;

	if (dir < 0)
		return -1;
	if ((unlinkat(dir, name, 0) < 0 && errno != ENOENT) || fsync(dir) < 0)
		rc = hb_fail_errno(err, "write_failed", "removing %s/%s", HB_KEYS_DIR, name);
	hb_close(&dir);
	return rc;
}

int hb_named_key_remove(const char *name, struct hb_error *err)
{
	json_t *keys = NULL;
	int64_t generation;
	struct stat st;
	char path[128];
	size_t at;
	int rc = -1;

	if (hb_onboarding_name("the name of a key", name, err) < 0 ||
	    !(keys = load(&generation, err)))
		return -1;
	key_path(name, path);
	at = index_of(keys, name);
	if (at == (size_t)-1 && lstat(path, &st) < 0) {
		hb_fail(err, "not_found", "there is no key %s", name);
		goto out;
	}
	if (hb_onboarding_audit("key_remove", "intent", name, NULL, err) < 0)
		goto out;
	if (remove_file(name, err) < 0)
		goto failed;
	if (at != (size_t)-1) {
		json_array_remove(keys, at);
		if (save(keys, generation, err) < 0)
			goto failed;
	}
	rc = hb_onboarding_audit("key_remove", "ok", name, NULL, err);
	goto out;
failed:
	(void)hb_onboarding_audit("key_remove", "failed", name, NULL, NULL);
out:
	json_decref(keys);
	return rc;
}
