/* Open addressing with linear probing; doubled when two thirds are in use. */
#include "broker/installer/unpack_table.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 1024

static uint64_t key_of(const struct hb_table *t, size_t slot)
{
	uint64_t key;

	memcpy(&key, t->slots + slot * t->record, sizeof(key));
	return key;
}

/* Inode numbers come in runs, so the bits are mixed before the low ones are used (a 64-bit
 * finaliser). */
static size_t home(const struct hb_table *t, uint64_t key)
{
	key ^= key >> 32;
	key *= 0x9e3779b97f4a7c15u;
	key ^= key >> 29;
	return (size_t)key & (t->cap - 1);
}

static size_t find(const struct hb_table *t, uint64_t key)
{
	size_t slot = home(t, key);
	uint64_t there;

	while ((there = key_of(t, slot)) != 0 && there != key)
		slot = (slot + 1) & (t->cap - 1);
	return slot;
}

void hb_table_init(struct hb_table *t, size_t record)
{
	*t = (struct hb_table){.record = record};
}

void hb_table_free(struct hb_table *t)
{
	free(t->slots);
	t->slots = NULL;
	t->count = t->cap = 0;
}

void hb_table_clear(struct hb_table *t)
{
	hb_table_free(t);
}

void *hb_table_get(const struct hb_table *t, uint64_t key)
{
	size_t slot;

	if (t->cap == 0 || key == 0)
		return NULL;
	slot = find(t, key);
	return key_of(t, slot) == key ? t->slots + slot * t->record : NULL;
}

static bool grow(struct hb_table *t)
{
	struct hb_table bigger = {.record = t->record,
				  .count = t->count,
				  .cap = t->cap == 0 ? FIRST_CAP : t->cap * 2};
	uint64_t key;

	bigger.slots = calloc(bigger.cap, bigger.record);
	if (bigger.slots == NULL)
		return false;
	for (size_t i = 0; i < t->cap; i++) {
		key = key_of(t, i);
		if (key != 0)
			memcpy(bigger.slots + find(&bigger, key) * t->record,
			       t->slots + i * t->record, t->record);
	}
	free(t->slots);
	*t = bigger;
	return true;
}

void *hb_table_put(struct hb_table *t, uint64_t key)
{
	size_t slot;

	if (key == 0)
		return NULL;
	if ((t->count + 1) * 3 > t->cap * 2 && !grow(t))
		return NULL;
	slot = find(t, key);
	if (key_of(t, slot) == 0) {
		memcpy(t->slots + slot * t->record, &key, sizeof(key));
		t->count++;
	}
	return t->slots + slot * t->record;
}
