/*
 * Answers of /resolve that a child has given before. What a digest names can't change, so such an
 * answer holds for as long as the documents it was read from are in the store: they are hashed
 * again each time, but not parsed, since that is for children only.
 */
#ifndef HB_FETCHER_KNOWN_H
#define HB_FETCHER_KNOWN_H

#include <jansson.h>

#include "fetcher/pull.h"

struct hb_known;

struct hb_known *hb_known_new(void);
void hb_known_free(struct hb_known *k);
/* A new reference, or NULL: ask a child. */
json_t *hb_known_find(struct hb_known *k, const struct hb_store *store,
		      const struct hb_resolve_request *what);
/* The oldest gives way. An answer that depended on more than digests is not kept. */
void hb_known_add(struct hb_known *k, const struct hb_resolve_request *what, json_t *reply);

#endif
