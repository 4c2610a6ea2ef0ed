/* The runtime store (store.h). */
#include "broker/installer/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/fs.h"
#include "common/json.h"

#define MARKER "COMPLETE"
#define MARKER_MAX 65536
#define CONFIG_MAX (4u << 20)

int hb_store_open(const char *path, uid_t unpack_uid, uid_t fetcher_uid, struct hb_store *out,
		  struct hb_error *err)
{
	struct hb_store s = {.fd = -1,
			     .releases_fd = -1,
			     .blobs_fd = -1,
			     .unpack_uid = unpack_uid,
			     .fetcher_uid = fetcher_uid};

	if (hb_fs_mkdirs(AT_FDCWD, path, 0755, 0, 0, err) < 0)
		return hb_fail_prefix(err, "runtime.storage %s", path);
	s.path = realpath(path, NULL);
	s.fd = s.path ? open(s.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (s.fd < 0) {
		hb_fail_errno(err, "storage_unusable", "runtime.storage %s can't be opened", path);
		goto fail;
	}
	if (hb_fs_mkdirs(s.fd, "releases", 0755, 0, 0, err) < 0 ||
	    hb_fs_mkdirs(s.fd, "blobs", 0755, fetcher_uid, fetcher_uid, err) < 0 ||
	    hb_fs_mkdirs(s.fd, "blobs/sha256", 0755, fetcher_uid, fetcher_uid, err) < 0)
		goto fail;
	s.releases_fd =
		hb_fs_open_beneath(s.fd, "releases", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, err);
	s.blobs_fd = hb_fs_open_beneath(s.fd, "blobs/sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0,
					err);
	if (s.releases_fd < 0 || s.blobs_fd < 0)
		goto fail;
	*out = s;
	return 0;
fail:
	hb_store_close(&s);
	return -1;
}

void hb_store_close(struct hb_store *s)
{
	hb_close(&s->fd);
	hb_close(&s->releases_fd);
	hb_close(&s->blobs_fd);
	free(s->path);
	s->path = NULL;
}

int hb_store_link(const struct hb_store *s, const char *name, char hex[HB_HEX256],
		  struct hb_error *err)
{
	static const char prefix[] = "releases/";
	char target[256];
	ssize_t n = readlinkat(s->fd, name, target, sizeof target - 1);

	if (n < 0 && errno == ENOENT) {
		hex[0] = '\0';
		return 0;
	}
	if (n < 0)
		return hb_fail_errno(err, "bad_link", "%s/%s is not a link to a release", s->path,
				     name);
	target[n] = '\0';
	if (strncmp(target, prefix, sizeof prefix - 1) != 0 ||
	    !hb_is_hex64(target + sizeof prefix - 1))
		return hb_fail(err, "bad_link",
			       "%s/%s doesn't point at releases/<digest>; remove it", s->path,
			       name);
	memcpy(hex, target + sizeof prefix - 1, HB_HEX256);
	return 0;
}

int hb_store_link_set(const struct hb_store *s, const char *name, const char *hex,
		      struct hb_error *err)
{
	char now[HB_HEX256], target[HB_HEX256 + 16];

	if (hb_store_link(s, name, now, NULL) == 0 && strcmp(now, hex) == 0)
		return 0;
	if (hex[0] == '\0') {
		if (unlinkat(s->fd, name, 0) < 0 && errno != ENOENT)
			return hb_fail_errno(err, "switch_failed", "%s/%s can't be removed",
					     s->path, name);
		return hb_fs_sync_dir(s->fd, ".", err);
	}
	snprintf(target, sizeof target, "releases/%s", hex);
	return hb_fs_link_switch(s->fd, name, target, err);
}

int hb_store_release_open(const struct hb_store *s, const char *hex, struct hb_error *err)
{
	int fd =
		hb_fs_open_beneath(s->releases_fd, hex, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, err);

	if (fd < 0)
		return hb_fail(err, "release_missing",
			       "release %s is not in %s/releases; install it again", hex, s->path);
	return fd;
}

json_t *hb_store_marker(const struct hb_store *s, const char *hex, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *marker = NULL;
	int fd = hb_store_release_open(s, hex, err);

	if (fd < 0)
		return NULL;
	if (hb_fs_read(fd, MARKER, MARKER_MAX, &text, err) == 0)
		marker = hb_json_parse(text.data ? text.data : "", text.len, err);
	if (marker && (strcmp(hb_json_text(marker, "manifest_digest", ""), hex) != 0 ||
		       !hb_is_hex64(hb_json_text(marker, "tree_digest", "")) ||
		       !hb_is_hex64(hb_json_text(marker, "config_digest", "")))) {
		json_decref(marker);
		marker = NULL;
	}
	if (!marker)
		hb_fail(err, "release_broken",
			"release %s has no usable COMPLETE marker; install it again", hex);
	hb_buf_free(&text);
	close(fd);
	return marker;
}

bool hb_store_has(const struct hb_store *s, const char *hex)
{
	json_t *marker = hb_store_marker(s, hex, NULL);

	json_decref(marker);
	return marker != NULL;
}

json_t *hb_store_image(const struct hb_store *s, const char *hex, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	char found[HB_HEX256];
	json_t *marker = hb_store_marker(s, hex, err), *image = NULL;
	int fd = marker ? hb_store_release_open(s, hex, err) : -1;

	if (fd < 0 || hb_fs_read(fd, "config.json", CONFIG_MAX, &text, err) < 0)
		goto out;
	hb_sha256_hex(text.data ? text.data : "", text.len, found);
	if (strcmp(found, hb_json_text(marker, "config_digest", "")) != 0) {
		hb_fail(err, "release_broken",
			"config.json of release %s was changed; install it again", hex);
		goto out;
	}
	image = hb_json_parse_foreign(text.data ? text.data : "", text.len, err);
out:
	hb_close(&fd);
	hb_buf_free(&text);
	json_decref(marker);
	return image;
}

static int newer_first(const void *a, const void *b)
{
	const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	long long dx = hb_json_int(x, "completed_at", 0), dy = hb_json_int(y, "completed_at", 0);

	if (dx != dy)
		return dx < dy ? 1 : -1;
	return strcmp(hb_json_text(x, "manifest_digest", ""),
		      hb_json_text(y, "manifest_digest", ""));
}

/* Names in one of the directories that `wanted` accepts, as a NULL-terminated list. */
static char **names_in(int in, const struct hb_store *s, bool (*wanted)(const char *), size_t *count,
		       struct hb_error *err)
{
	/* A fresh description: readdir moves the offset that a dup would share. */
	int fd = openat(in, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	char **list = NULL;
	struct dirent *e;
	size_t n = 0;

	if (!dir) {
		hb_fail_errno(err, "storage_unusable", "a directory of %s can't be listed",
			      s->path);
		hb_close(&fd);
		return NULL;
	}
	list = hb_calloc(1, sizeof *list);
	while ((e = readdir(dir))) {
		if (!wanted(e->d_name))
			continue;
		list = realloc(list, (n + 2) * sizeof *list);
		if (!list)
			abort();
		list[n++] = hb_strdup(e->d_name);
		list[n] = NULL;
	}
	closedir(dir);
	*count = n;
	return list;
}

static void names_free(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
}

json_t *hb_store_list(const struct hb_store *s, struct hb_error *err)
{
	char current[HB_HEX256] = "", previous[HB_HEX256] = "";
	json_t *out = NULL, **found;
	size_t count = 0, n = 0;
	char **list = names_in(s->releases_fd, s, hb_is_hex64, &count, err);

	if (!list)
		return NULL;
	(void)hb_store_link(s, "current", current, NULL);
	(void)hb_store_link(s, "previous", previous, NULL);
	found = hb_calloc(count + 1, sizeof(json_t *));
	for (size_t i = 0; i < count; i++) {
		json_t *marker = hb_store_marker(s, list[i], NULL);

		if (!marker)
			continue;
		json_object_set_new(marker, "current", json_boolean(strcmp(list[i], current) == 0));
		json_object_set_new(marker, "previous",
				    json_boolean(strcmp(list[i], previous) == 0));
		found[n++] = marker;
	}
	qsort(found, n, sizeof(json_t *), newer_first);
	out = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(out, found[i]);
	free(found);
	names_free(list);
	return out;
}

int hb_store_staging_create(const struct hb_store *s, const char *name, struct hb_error *err)
{
	int fd;

	if (hb_fs_remove_tree(s->releases_fd, name, err) < 0)
		return -1;
	if (mkdirat(s->releases_fd, name, 0700) < 0)
		return hb_fail_errno(err, "staging_failed", "%s/releases/%s can't be made", s->path,
				     name);
	fd = hb_fs_open_beneath(s->releases_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, err);
	if (fd < 0)
		return -1;
	if (fchown(fd, s->unpack_uid, s->unpack_uid) < 0) {
		hb_fail_errno(err, "staging_failed",
			      "%s/releases/%s can't be given to the unpack worker", s->path, name);
		close(fd);
		return -1;
	}
	return fd;
}

int hb_store_staging_finish(const struct hb_store *s, const char *name, int staging_fd,
			    const char *hex, const char *config, size_t config_len,
			    const json_t *marker, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	int rc = -1, mtree = -1;

	/* From here on the directory is root's: the worker has ended, and only root may put a
	 * marker into it. */
	if (fchown(staging_fd, 0, 0) < 0 || fchmod(staging_fd, 0755) < 0) {
		hb_fail_errno(err, "staging_failed",
			      "the new release can't be taken over from the worker");
		goto out;
	}
	mtree = hb_fs_open_beneath(staging_fd, "manifest.mtree", O_RDONLY | O_NONBLOCK | O_CLOEXEC,
				   0, err);
	if (mtree < 0)
		goto out;
	if (fchown(mtree, 0, 0) < 0 || fchmod(mtree, 0644) < 0) {
		hb_fail_errno(err, "staging_failed",
			      "manifest.mtree can't be taken over from the worker");
		goto out;
	}
	if (hb_fs_write_atomic(staging_fd, "config.json", config, config_len, 0644, 0, 0, err) < 0)
		goto out;
	/* One syncfs instead of an fsync for each of some ten thousand files. */
	if (syncfs(staging_fd) < 0) {
		hb_fail_errno(err, "sync_failed", "%s can't be synced", s->path);
		goto out;
	}
	if (hb_json_canonical(marker, &text, err) < 0)
		goto out;
	hb_buf_addc(&text, '\n');
	if (hb_fs_write_atomic(staging_fd, MARKER, text.data, text.len, 0644, 0, 0, err) < 0)
		goto out;
	if (renameat2(s->releases_fd, name, s->releases_fd, hex, RENAME_NOREPLACE) < 0 &&
	    (errno != EEXIST ||
	     renameat2(s->releases_fd, name, s->releases_fd, hex, RENAME_EXCHANGE) < 0)) {
		hb_fail_errno(err, "staging_failed", "release %s can't be put into place", hex);
		goto out;
	}
	rc = hb_fs_sync_dir(s->releases_fd, ".", err);
out:
	hb_close(&mtree);
	hb_buf_free(&text);
	return rc;
}

static bool is_leftover(const char *name)
{
	return name[0] == '.' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

int hb_store_clean(const struct hb_store *s, struct hb_error *err)
{
	size_t count = 0;
	char **list = names_in(s->releases_fd, s, is_leftover, &count, err);
	int rc = list ? 0 : -1;

	for (size_t i = 0; list && i < count; i++)
		if (hb_fs_remove_tree(s->releases_fd, list[i], rc == 0 ? err : NULL) < 0)
			rc = -1;
	names_free(list);
	return rc;
}

int hb_store_discard(const struct hb_store *s, const char *hex, struct hb_error *err)
{
	char name[HB_HEX256 + 16];

	snprintf(name, sizeof name, ".discard-%s", hex);
	if (hb_fs_remove_tree(s->releases_fd, name, err) < 0)
		return -1;
	if (renameat(s->releases_fd, hex, s->releases_fd, name) < 0 && errno != ENOENT)
		return hb_fail_errno(err, "remove_failed", "release %s", hex);
	return hb_fs_sync_dir(s->releases_fd, ".", err);
}

int hb_store_discard_all(const struct hb_store *s, struct hb_error *err)
{
	size_t count = 0;
	char **list = names_in(s->releases_fd, s, hb_is_hex64, &count, err);
	int rc = list ? 0 : -1;

	for (size_t i = 0; rc == 0 && i < count; i++)
		rc = hb_store_discard(s, list[i], err);
	names_free(list);
	return rc;
}

/* --- blobs --- */

static bool is_blob(const char *name)
{
	return name[0] != '.';
}

/* The digests that the markers name, as the keys of an object; NULL: one doesn't know its layers. */
static json_t *digests_in(const json_t *keep)
{
	static const char *const single[] = {"manifest_digest", "index_digest", "config_digest"};
	json_t *out = json_object(), *marker, *digest;
	size_t i, j;

	json_array_foreach (keep, i, marker) {
		const json_t *layers = json_object_get(marker, "layer_digests");

		if (!json_is_array(layers)) {
			json_decref(out);
			return NULL;
		}
		for (j = 0; j < sizeof single / sizeof *single; j++)
			json_object_set_new(out, hb_json_text(marker, single[j], ""), json_true());
		json_array_foreach (layers, j, digest)
			if (json_is_string(digest))
				json_object_set_new(out, json_string_value(digest), json_true());
	}
	return out;
}

int hb_store_prune_blobs(const struct hb_store *s, const json_t *keep, uint64_t *count,
			 uint64_t *bytes, struct hb_error *err)
{
	json_t *wanted = digests_in(keep);
	size_t n = 0;
	char **list, hex[HB_HEX256];
	struct stat st;
	int rc = 0;

	*count = *bytes = 0;
	if (!wanted)
		return 0;
	list = names_in(s->blobs_fd, s, is_blob, &n, err);
	if (!list)
		rc = -1;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		snprintf(hex, sizeof hex, "%.64s", list[i]);
		if (json_object_get(wanted, hex) ||
		    fstatat(s->blobs_fd, list[i], &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		if (unlinkat(s->blobs_fd, list[i], 0) < 0 && errno != ENOENT) {
			rc = hb_fail_errno(err, "remove_failed", "blob %s", list[i]);
			break;
		}
		*count += 1;
		*bytes += (uint64_t)st.st_size;
	}
	names_free(list);
	json_decref(wanted);
	return rc;
}
