/*
 * The approver's public keys that count.
 *
 *   public/approver.pub            signs now
 *   public/approver-previous.pub   signed before a rotation that honours its grants; one line,
 *                                  "hermes-previous-key-v1 <base64 of 32 bytes> <UTC seconds>";
 * from that second on it counts for nothing any more public/retired/<key id>.pub    every key that
 * ever signed: only for reading receipts and checkpoints
 */
#ifndef HB_COMMON_KEYRING_H
#define HB_COMMON_KEYRING_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/keys.h"

#define HB_KEYRING_MAX 32

struct hb_keyring {
	struct hb_public_key keys[HB_KEYRING_MAX]; /* the present one first */
	size_t count;
	int64_t previous_until; /* 0: there is no previous one (any more) */
};

/* The present key, and the previous one while it is valid at `now`. A previous key that can't be
 * read is an error, like any other damaged security material. Codes as hb_public_key_load. */
int hb_keyring_load(int dirfd, int64_t now, struct hb_keyring *out, struct hb_error *err);
/* Further keys for checking old papers; what can't be read is left out. */
void hb_keyring_add_retired(int dirfd, struct hb_keyring *ring);
const struct hb_public_key *hb_keyring_find(const struct hb_keyring *ring, const char *key_id);

/* Write the previous-key file (root's, 0644); replaces one. */
int hb_keyring_write_previous(int dirfd, const struct hb_public_key *key, int64_t until,
			      struct hb_error *err);

#endif
