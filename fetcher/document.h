/*
 * The three JSON documents of an image: index (or Docker manifest list), manifest (OCI or Docker
 * schema 2), config. Nothing of a document is used before every digest in it went through
 * hb_digest_parse.
 */
#ifndef HB_FETCHER_DOCUMENT_H
#define HB_FETCHER_DOCUMENT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/digest.h"
#include "common/error.h"

#define HB_MANIFEST_MAX (4u << 20) /* distribution-spec asks registries to take at least this */
#define HB_IMAGE_CONFIG_MAX (8u << 20)
#define HB_LAYERS_MAX 512

/* What a registry must be asked for: without the index types some answer 404. */
#define HB_ACCEPT_MANIFESTS \
	"application/vnd.oci.image.index.v1+json, " \
	"application/vnd.docker.distribution.manifest.list.v2+json, " \
	"application/vnd.oci.image.manifest.v1+json, " \
	"application/vnd.docker.distribution.manifest.v2+json"

enum hb_document_kind { HB_DOCUMENT_INDEX, HB_DOCUMENT_MANIFEST };

struct hb_descriptor {
	char hex[HB_HEX256];
	uint64_t size;
	char media_type[128];
};

struct hb_manifest {
	struct hb_descriptor config;
	struct hb_descriptor *layers; /* owned */
	size_t layer_count;
	uint64_t total; /* bytes of all layers */
};

/* Parse and tell which it is. A document that could be read as both is refused (an image must mean
 * one thing). Code: bad_manifest. */
json_t *hb_document_parse(const struct hb_buf *bytes, enum hb_document_kind *kind,
			  struct hb_error *err);
int hb_manifest_decode(const json_t *document, struct hb_manifest *out, struct hb_error *err);
void hb_manifest_free(struct hb_manifest *m);
/* A layer that its registry may not pass on (Windows base layers); its "urls" are never followed.
 */
int hb_layer_is_foreign(const struct hb_descriptor *layer);

#endif
