/* Ed25519 key files, signing and verifying. Seeds and secret keys only ever lie in sodium_malloc'ed
 * memory. */
#include "common/keys.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fs.h"

#define SIGNING_PREFIX "hermes-signing-key-v1 "
#define PUBLIC_PREFIX "hermes-public-key-v1 "
#define KEY_FILE_MAX 256
#define BASE64_32 sodium_base64_ENCODED_LEN(32, sodium_base64_VARIANT_ORIGINAL) /* with NUL */

struct hb_signing_key {
	unsigned char secret[crypto_sign_SECRETKEYBYTES];
	struct hb_public_key public;
};

static void
init_sodium(void)
{
	if (sodium_init() < 0)
		abort();
}

/* "<prefix><base64 of 32 bytes>", nothing before or after. */
static int
decode_line(const char *text, const char *prefix, unsigned char out[32])
{
	size_t len = strlen(prefix), got;
	const char *end;

	if (strncmp(text, prefix, len) != 0)
		return -1;
	text += len;
	if (sodium_base642bin(out, 32, text, strlen(text), NULL, &got, &end,
			      sodium_base64_VARIANT_ORIGINAL) != 0 ||
	    got != 32 || *end != '\0')
		return -1;
	return 0;
}

void
hb_public_key_set_id(struct hb_public_key *key)
{
	char hex[HB_HEX256];

	hb_sha256_hex(key->bytes, sizeof(key->bytes), hex);
	memcpy(key->id, hex, 16);
	key->id[16] = '\0';
}

int
hb_public_key_load(int dirfd, const char *path, struct hb_public_key *out, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	struct hb_public_key key;
	int rc = -1;

	init_sodium();
	/* Whoever can replace it decides whose consent counts: root's file, or our own. */
	if (hb_fs_read_trusted(dirfd, path, geteuid(), KEY_FILE_MAX, &text, err) != 0)
		return hb_fail_prefix(err, "the approver's public key");
	if (text.len > 0 && text.data[text.len - 1] == '\n')
		text.data[--text.len] = '\0';
	if (text.len == 0 || strlen(text.data) != text.len ||
	    decode_line(text.data, PUBLIC_PREFIX, key.bytes) != 0) {
		hb_fail(err, "key_malformed", "%s is not a public key: \"%s<base64>\" is wanted",
			path, PUBLIC_PREFIX);
		goto out;
	}
	hb_public_key_set_id(&key);
	*out = key;
	rc = 0;
out:
	hb_buf_free(&text);
	return rc;
}

int
hb_signing_key_load(int dirfd, const char *path, uid_t owner, struct hb_signing_key **out,
		    struct hb_error *err)
{
	struct hb_secret file = {0};
	struct hb_signing_key *key;
	unsigned char *seed;
	int rc = -1;

	init_sodium();
	if (hb_secret_read(dirfd, path, owner, KEY_FILE_MAX, &file, err) != 0)
		return -1;
	key = sodium_malloc(sizeof(*key));
	seed = sodium_malloc(32);
	if (key == NULL || seed == NULL) {
		hb_fail(err, "no_memory", "no protected memory for %s", path);
		goto out;
	}
	if (decode_line(file.text, SIGNING_PREFIX, seed) != 0) {
		hb_fail(err, "key_malformed", "%s is not a signing key", path);
		goto out;
	}
	crypto_sign_seed_keypair(key->public.bytes, key->secret, seed);
	hb_public_key_set_id(&key->public);
	*out = key;
	key = NULL;
	rc = 0;
out:
	sodium_free(seed);
	sodium_free(key);
	hb_secret_free(&file);
	return rc;
}

void
hb_signing_key_free(struct hb_signing_key *key)
{
	sodium_free(key); /* wipes */
}

const struct hb_public_key *
hb_signing_key_public(const struct hb_signing_key *key)
{
	return &key->public;
}

struct new_pair {
	unsigned char seed[32], secret[crypto_sign_SECRETKEYBYTES];
	char line[sizeof(SIGNING_PREFIX) + 64];
};

int
hb_keys_create(int dirfd, const char *signing_path, uid_t owner, gid_t group,
	       const char *public_path, struct hb_error *err)
{
	unsigned char public[32];
	char public_line[sizeof(PUBLIC_PREFIX) + 64], base64[BASE64_32];
	const size_t prefix = sizeof(SIGNING_PREFIX) - 1;
	struct new_pair *pair;
	struct stat st;
	int rc = -1;

	init_sodium();
	if (fstatat(dirfd, public_path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return hb_fail(err, "key_exists", "%s exists already", public_path);
	pair = sodium_malloc(sizeof(*pair));
	if (pair == NULL)
		return hb_fail(err, "no_memory", "no protected memory for a new key");
	randombytes_buf(pair->seed, sizeof(pair->seed));
	crypto_sign_seed_keypair(public, pair->secret, pair->seed);
	/* Written in place: no copy of the seed outside this memory. */
	memcpy(pair->line, SIGNING_PREFIX, prefix);
	sodium_bin2base64(pair->line + prefix, BASE64_32, pair->seed, 32,
			  sodium_base64_VARIANT_ORIGINAL);
	memcpy(pair->line + prefix + BASE64_32 - 1, "\n", 2);
	sodium_bin2base64(base64, sizeof(base64), public, 32, sodium_base64_VARIANT_ORIGINAL);
	snprintf(public_line, sizeof(public_line), "%s%s\n", PUBLIC_PREFIX, base64);
	if (hb_fs_write_new(dirfd, signing_path, pair->line, strlen(pair->line), 0600, owner, group,
			    err) != 0)
		goto out;
	if (hb_fs_write_new(dirfd, public_path, public_line, strlen(public_line), 0644, (uid_t)-1,
			    (gid_t)-1, err) != 0) {
		/* Half a pair would stand in the way of the next try. */
		unlinkat(dirfd, signing_path, 0);
		goto out;
	}
	rc = 0;
out:
	if (rc != 0 && err != NULL && strcmp(err->code, "exists") == 0)
		snprintf(err->code, sizeof(err->code), "key_exists");
	sodium_free(pair);
	return rc;
}

void
hb_sign(const struct hb_signing_key *key, const void *data, size_t len, unsigned char sig[64])
{
	crypto_sign_detached(sig, NULL, data, len, key->secret);
}

int
hb_verify(const struct hb_public_key *key, const void *data, size_t len,
	  const unsigned char sig[64])
{
	return crypto_sign_verify_detached(sig, data, len, key->bytes);
}
