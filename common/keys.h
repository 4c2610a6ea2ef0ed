/*
 * Ed25519 keys (RFC 8032, libsodium). The signing key lives in the approver only, in locked memory.
 *
 * Files, one line each:
 *   signing key  "hermes-signing-key-v1 <base64 of the 32-byte seed>"  mode 0600
 *   public key   "hermes-public-key-v1 <base64 of the 32 bytes>"       mode 0644
 * key id: the first 16 hex digits of SHA-256 over the 32 public bytes.
 */
#ifndef HB_COMMON_KEYS_H
#define HB_COMMON_KEYS_H

#include <stddef.h>
#include <sys/types.h>

#include "common/error.h"

struct hb_public_key {
	unsigned char bytes[32];
	char id[17];
};

struct hb_signing_key; /* opaque, in sodium_malloc'ed memory */

/* After the bytes were filled in. */
void hb_public_key_set_id(struct hb_public_key *key);
int hb_public_key_load(int dirfd, const char *path, struct hb_public_key *out, struct hb_error *err);
/* owner: the uid that must own the file (or root). */
int hb_signing_key_load(int dirfd, const char *path, uid_t owner, struct hb_signing_key **out,
			struct hb_error *err);
void hb_signing_key_free(struct hb_signing_key *key);
const struct hb_public_key *hb_signing_key_public(const struct hb_signing_key *key);

/* Make a new pair and write both files (refuses to replace an existing one: key_exists). */
int hb_keys_create(int dirfd, const char *signing_path, uid_t owner, gid_t group, const char *public_path,
		   struct hb_error *err);

void hb_sign(const struct hb_signing_key *key, const void *data, size_t len, unsigned char sig[64]);
int hb_verify(const struct hb_public_key *key, const void *data, size_t len, const unsigned char sig[64]);

#endif
