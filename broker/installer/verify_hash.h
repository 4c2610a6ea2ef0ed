/* The reading half of verification: two threads that hash files, and the list of differences that
 * all parts add to. */
#ifndef HB_INSTALLER_VERIFY_HASH_H
#define HB_INSTALLER_VERIFY_HASH_H

#include <jansson.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/error.h"

struct hb_verify_hash;

int hb_verify_hash_start(struct hb_verify_hash **out, struct hb_error *err);
/* Takes fd over; waits while the queue is full. */
void hb_verify_hash_add(struct hb_verify_hash *h, int fd, const char *path, uint64_t size,
			const char sha256[HB_HEX256]);
/* Waits for all; -1 when a file could not be read. */
int hb_verify_hash_end(struct hb_verify_hash *h, struct hb_error *err);
void hb_verify_hash_free(struct hb_verify_hash *h);
/* Files and bytes hashed so far. */
void hb_verify_hash_progress(struct hb_verify_hash *h, uint64_t *files, uint64_t *bytes);

/* One difference; texts are escaped as in manifest.mtree. */
void hb_verify_difference(struct hb_verify_hash *h, const char *path, const char *what,
			  const char *expected, const char *found);
/* Their number, and the first of them by path as a new array. */
uint64_t hb_verify_differences(struct hb_verify_hash *h, json_t **list);

#endif
