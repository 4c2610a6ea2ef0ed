/*
 * Small open-addressing hash table for the unpack worker: fixed-size records keyed by a 64-bit
 * number, no removal.
 *
 * The worker remembers three things for every entry of an image (the digest of a file, the final
 * mode of a directory, which names the current layer made) and must stay small with a hundred
 * thousand of them, so records lie in one array without pointers. A record begins with its key; key
 * 0 means empty.
 */
#ifndef HB_INSTALLER_UNPACK_TABLE_H
#define HB_INSTALLER_UNPACK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hb_table {
	unsigned char *slots;
	size_t record; /* bytes, a multiple of 8 */
	size_t count, cap;
};

void hb_table_init(struct hb_table *t, size_t record);
void hb_table_free(struct hb_table *t);
/* Forget everything and give the memory back. */
void hb_table_clear(struct hb_table *t);

/* The record with this key, or NULL. */
void *hb_table_get(const struct hb_table *t, uint64_t key);
/* The record with this key, new and zeroed if there was none; NULL when memory ran out. Valid until
 * the next put. */
void *hb_table_put(struct hb_table *t, uint64_t key);

#endif
