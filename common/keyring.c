/* Which public keys count, and until when (keyring.h). */
#include "common/keyring.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/json.h"
#include "common/paths.h"

#define PREVIOUS_PREFIX "hermes-previous-key-v1 "
#define PREVIOUS_MAX 256
#define BASE64_32 sodium_base64_ENCODED_LEN(32, sodium_base64_VARIANT_ORIGINAL) /* with NUL */

static int
malformed(struct hb_error *err)
{
	return hb_fail(
		err, "key_malformed",
		"%s is not a previous key: rotate again with hermesctl keys rotate, or remove it",
		HB_PATH_PREVIOUS_KEY);
}

static int
parse_previous(const char *text, struct hb_public_key *key, int64_t *until, struct hb_error *err)
{
	const char *p = text + strlen(PREVIOUS_PREFIX), *end;
	size_t got;
	char *stop;

	if (strncmp(text, PREVIOUS_PREFIX, strlen(PREVIOUS_PREFIX)) != 0 ||
	    strlen(p) <= BASE64_32 || p[BASE64_32 - 1] != ' ')
		return malformed(err);
	if (sodium_base642bin(key->bytes, sizeof(key->bytes), p, BASE64_32 - 1, NULL, &got, &end,
			      sodium_base64_VARIANT_ORIGINAL) != 0 ||
	    got != sizeof(key->bytes) || end != p + BASE64_32 - 1)
		return malformed(err);
	p += BASE64_32;
	if (*p < '1' || *p > '9' || strlen(p) > 16)
		return malformed(err);
	*until = strtoll(p, &stop, 10);
	if (*stop != '\0' || *until > HB_JSON_INT_MAX)
		return malformed(err);
	hb_public_key_set_id(key);
	return 0;
}

/* 1 there is one and it counts, 0 none, -1. */
static int
load_previous(int dirfd, int64_t now, struct hb_public_key *key, int64_t *until,
	      struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	int fd, rc = -1;

	fd = hb_fs_open_beneath(dirfd, HB_PATH_PREVIOUS_KEY, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0,
				err);
	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	if (hb_fs_check_trusted(fd, HB_PATH_PREVIOUS_KEY, geteuid(), err) != 0 ||
	    hb_fs_read(dirfd, HB_PATH_PREVIOUS_KEY, PREVIOUS_MAX, &text, err) != 0)
		goto out;
	if (text.len > 0 && text.data[text.len - 1] == '\n')
		text.data[--text.len] = '\0';
	if (text.len == 0 || strlen(text.data) != text.len)
		malformed(err);
	else if (parse_previous(text.data, key, until, err) == 0)
		rc = *until > now;
out:
	hb_close(&fd);
	hb_buf_free(&text);
	return rc;
}

int
hb_keyring_load(int dirfd, int64_t now, struct hb_keyring *out, struct hb_error *err)
{
	struct hb_keyring ring = {.count = 1};
	int64_t until = 0;
	int more;

	if (hb_public_key_load(dirfd, HB_PATH_PUBLIC_KEY, &ring.keys[0], err) != 0)
		return -1;
	more = load_previous(dirfd, now, &ring.keys[1], &until, err);
	if (more < 0)
		return -1;
	if (more > 0) {
		ring.count = 2;
		ring.previous_until = until;
	}
	*out = ring;
	return 0;
}

void
hb_keyring_add_retired(int dirfd, struct hb_keyring *ring)
{
	int fd = openat(dirfd, HB_PATH_RETIRED_KEYS,
			O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;
	char path[320];

	if (dir == NULL) {
		hb_close(&fd);
		return;
	}
	while (ring->count < HB_KEYRING_MAX && (e = readdir(dir)) != NULL) {
		struct hb_public_key key;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", HB_PATH_RETIRED_KEYS, e->d_name);
		if (hb_public_key_load(dirfd, path, &key, NULL) == 0 &&
		    hb_keyring_find(ring, key.id) == NULL)
			ring->keys[ring->count++] = key;
	}
	closedir(dir);
}

const struct hb_public_key *
hb_keyring_find(const struct hb_keyring *ring, const char *key_id)
{
	for (size_t i = 0; i < ring->count; i++)
		if (strcmp(ring->keys[i].id, key_id) == 0)
			return &ring->keys[i];
	return NULL;
}

int
hb_keyring_write_previous(int dirfd, const struct hb_public_key *key, int64_t until,
			  struct hb_error *err)
{
	char base64[BASE64_32], line[PREVIOUS_MAX];
	int n;

	sodium_bin2base64(base64, sizeof(base64), key->bytes, sizeof(key->bytes),
			  sodium_base64_VARIANT_ORIGINAL);
	n = snprintf(line, sizeof(line), "%s%s %lld\n", PREVIOUS_PREFIX, base64, (long long)until);
	return hb_fs_write_atomic(dirfd, HB_PATH_PREVIOUS_KEY, line, (size_t)n, 0644, (uid_t)-1,
				  (gid_t)-1, err);
}
