/*
 * Where the bytes of one image come from: sites of a registry, or an OCI image layout on this host.
 * One object a job, shared by its threads.
 */
#ifndef HB_FETCHER_SOURCE_H
#define HB_FETCHER_SOURCE_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/buf.h"
#include "fetcher/pull.h"

struct hb_source {
	const struct hb_store *store;
	struct hb_registry registry;
	int layout_fd; /* DIR/blobs/sha256; -1: a registry */
	char layout_name[HB_ERROR_MESSAGE_MAX / 2];
	struct hb_http_options http;
	int retries;
	struct hb_stop stop;
	atomic_bool failed; /* one thread failed: the others end */
};

int hb_source_open(const struct hb_pull_env *env, const struct hb_image_ref *ref,
		   struct hb_source *out, struct hb_error *err);
void hb_source_close(struct hb_source *s);

/* Try `attempt` at each site until it returns 0: mirrors twice, the origin as often as configured,
 * with backoff between. `attempt` returns 1 for "made progress, count anew" along with the error.
 */
typedef int (*hb_attempt_fn)(struct hb_site *site, int attempt, void *arg, struct hb_error *err);
int hb_source_try(struct hb_source *s, hb_attempt_fn attempt, void *arg, struct hb_error *err);

/* A manifest ("manifests") or config ("blobs") by digest, from the store or the source; afterwards
 * it is in the store. `size` -1: not known. Codes: not_found, digest_mismatch, size_mismatch ... */
int hb_source_document(struct hb_source *s, struct hb_http *http, const char *kind, const char *hex,
		       int64_t size, size_t max, struct hb_buf *out, struct hb_error *err);
/* Does the registry have that blob (HEAD)? 0: yes. */
int hb_source_has_blob(struct hb_source *s, struct hb_http *http, const char *hex,
		       struct hb_error *err);

/* One blob into the store, verified; `done` follows the bytes that are there. */
int hb_source_blob(struct hb_source *s, struct hb_http *http, const char *hex, uint64_t size,
		   _Atomic uint64_t *done, struct hb_error *err);

/* layout.c */
int hb_layout_open(const char *dir, int *fd, struct hb_error *err);
int hb_layout_document(int fd, const char *name, const char *hex, size_t max, struct hb_buf *out,
		       struct hb_error *err);
int hb_layout_blob(int fd, const char *name, const char *hex, uint64_t size, struct hb_partial *to,
		   _Atomic uint64_t *done, const struct hb_stop *stop, struct hb_error *err);

#endif
