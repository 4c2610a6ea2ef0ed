/* Compare an installed tree with the manifest.mtree made when it was unpacked: type, mode, owner,
 * size, link target, content. */
#ifndef HB_INSTALLER_VERIFY_H
#define HB_INSTALLER_VERIFY_H

#include <jansson.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/error.h"

struct hb_verify_result {
	int ok;
	char tree_digest[HB_HEX256]; /* of the manifest file as it is now */
	uint64_t files, bytes;       /* looked at */
	uint64_t difference_count;
	json_t *differences; /* the first 20: {path, what, expected, found}; owned by the caller */
};

/* release_fd holds rootfs/ and manifest.mtree. expected_tree_digest "" : not compared. owner: uid
 * everything must have. `ok` 0 with differences is a successful call; -1 is for what could not be
 * read at all. */
int hb_tree_verify(int release_fd, const char *expected_tree_digest, uid_t owner,
		   void (*progress)(uint64_t files, uint64_t bytes, void *arg), void *arg,
		   struct hb_verify_result *out, struct hb_error *err);

#endif
