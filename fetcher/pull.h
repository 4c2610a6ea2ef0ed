/*
 * The two jobs: resolve (index, manifest, config; tells what an image consists of) and fetch (the
 * blobs). They run in a forked child (worker.c) and block; blobs come in parallel threads.
 */
#ifndef HB_FETCHER_PULL_H
#define HB_FETCHER_PULL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/config.h"
#include "common/error.h"
#include "fetcher/registry.h"
#include "fetcher/store.h"

#define HB_FETCH_BLOBS_MAX 512

struct hb_pull_env {
	const struct hb_config *config;
	const struct hb_store *store;
	uid_t uid; /* our own: owner of the credentials file */
	void (*note)(const char *text, void *arg);
	void *note_arg;
};

struct hb_resolve_request {
	struct hb_image_ref ref;
	char platform[48];
	char pin[HB_HEX256]; /* "" for none */
};

struct hb_fetch_blob {
	char hex[HB_HEX256];
	uint64_t size;
};

struct hb_fetch_request {
	struct hb_image_ref ref;
	struct hb_fetch_blob *blobs; /* owned; no digest twice */
	size_t count;
};

/* From the bodies of /resolve and /fetch. */
int hb_resolve_decode(const json_t *body, struct hb_resolve_request *out, struct hb_error *err);
int hb_fetch_decode(const json_t *body, struct hb_fetch_request *out, struct hb_error *err);
void hb_fetch_request_free(struct hb_fetch_request *r);

/* {index_digest, manifest_digest, config_digest, layers}; a new reference. */
json_t *hb_resolve(const struct hb_pull_env *env, const struct hb_resolve_request *req,
		   struct hb_error *err);
/* Events of docs/PROTOCOL.md but for the last; `emit` is called by the calling thread only and
 * takes the reference. */
int hb_fetch(const struct hb_pull_env *env, const struct hb_fetch_request *req,
	     void (*emit)(json_t *event, void *arg), void *arg, struct hb_error *err);

#endif
