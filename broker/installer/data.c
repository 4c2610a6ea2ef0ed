/* The payload's data directory: never set up afresh over a known installation (activate.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/activate.h"
#include "common/fs.h"
#include "common/json.h"

#define SEEN_PATH "installer/data.json"
#define SEEN_MAX 65536

int hb_data_holds(const char *path, struct hb_error *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), found = 0;
	struct dirent *e;
	DIR *dir;

	if (fd < 0)
		return errno == ENOENT
			       ? 0
			       : hb_fail_errno(err, "data_unreadable", "data directory %s", path);
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return hb_fail_errno(err, "data_unreadable", "data directory %s", path);
	}
	while (!found && (e = readdir(dir)))
		found = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
			strcmp(e->d_name, "lost+found") != 0;
	closedir(dir);
	return found;
}

static int seen_load(json_t **out, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *seen = NULL;
	int rc = 0;

	if (faccessat(AT_FDCWD, SEEN_PATH, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
		*out = json_pack("{s:[]}", "seen");
		return 0;
	}
	if (hb_fs_read(AT_FDCWD, SEEN_PATH, SEEN_MAX, &text, err) < 0)
		rc = -1;
	else if (!(seen = hb_json_parse(text.data ? text.data : "", text.len, NULL)) ||
		 !json_is_array(json_object_get(seen, "seen")))
		rc = hb_fail(err, "state_broken", "%s is damaged", SEEN_PATH);
	hb_buf_free(&text);
	if (rc == 0)
		*out = seen;
	else
		json_decref(seen);
	return rc;
}

static bool is_seen(const json_t *seen, const char *path)
{
	json_t *item;
	size_t i;

	json_array_foreach (json_object_get(seen, "seen"), i, item)
		if (strcmp(json_string_value(item) ? json_string_value(item) : "", path) == 0)
			return true;
	return false;
}

/* Made, or taken over as it is: only the directory itself is given to the payload. Its parent
 * exists since start-up. */
static int make(const char *path, uid_t uid, struct hb_error *err)
{
	char *copy = hb_strdup(path);
	int fd = -1, rc = -1;

	if (mkdir(path, 0700) == 0) {
		if (hb_fs_sync_dir(AT_FDCWD, dirname(copy), err) < 0)
			goto out;
	} else if (errno != EEXIST) {
		hb_fail_errno(err, "data_unusable", "data directory %s can't be made", path);
		goto out;
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchown(fd, uid, (gid_t)uid) < 0 || fchmod(fd, 0700) < 0) {
		hb_fail_errno(err, "data_unusable",
			      "data directory %s can't be given to the runtime", path);
		goto out;
	}
	rc = 0;
out:
	hb_close(&fd);
	free(copy);
	return rc;
}

int hb_data_check(const char *path, bool create, uid_t uid, struct hb_error *err)
{
	json_t *seen;
	int holds = hb_data_holds(path, err);
	bool known;

	if (holds < 0 || seen_load(&seen, err) < 0)
		return -1;
	known = is_seen(seen, path);
	json_decref(seen);
	if (known && !holds)
		return hb_fail(err, "data_missing",
			       "data directory %s is missing or empty, but this host had data "
			       "there; put it back, or get it back with `hermesctl runtime "
			       "restore` from a backup or with `hermesctl runtime rollback "
			       "--release CURRENT --data restore` from the copy made at the last "
			       "upgrade. To begin with an empty one on purpose, take it out of %s",
			       path, SEEN_PATH);
	return create ? make(path, uid, err) : 0;
}

int hb_data_note(const char *path, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *seen;
	int holds = hb_data_holds(path, err), rc = 0;

	if (holds <= 0)
		return holds;
	if (seen_load(&seen, err) < 0)
		return -1;
	if (!is_seen(seen, path)) {
		json_array_append_new(json_object_get(seen, "seen"), json_string(path));
		rc = hb_json_canonical(seen, &text, err);
		if (rc == 0)
			rc = hb_fs_write_atomic(AT_FDCWD, SEEN_PATH, text.data, text.len, 0600, 0,
						0, err);
	}
	hb_buf_free(&text);
	json_decref(seen);
	return rc;
}
