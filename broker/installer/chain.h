/*
 * The chain of an image, derived from bytes: pinned index digest -> index -> the one manifest for a
 * platform -> config and layers. The fetcher put these documents into the blob store, but nobody
 * believes it: a document counts only after its bytes were hashed here and found to have the digest
 * that the document above it names.
 *
 * Follows the OCI image-spec 1.1 (image-index.md, manifest.md, config.md, descriptor.md) and the
 * Docker schema-2 forms of the same documents.
 */
#ifndef HB_INSTALLER_CHAIN_H
#define HB_INSTALLER_CHAIN_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/digest.h"
#include "common/error.h"

#define HB_CHAIN_LAYERS_MAX 127 /* what container engines can stack */
#define HB_CHAIN_DOCUMENT_MAX \
	8388608u /* registries take manifests of 4 MiB; configs can be a little larger */

struct hb_chain_layer {
	char digest[HB_HEX256], diff_id[HB_HEX256];
	uint64_t size; /* of the blob */
	char media_type[128];
};

struct hb_chain {
	char index[HB_HEX256], manifest[HB_HEX256], config[HB_HEX256];
	struct hb_chain_layer *layers;
	size_t layer_count;
	uint64_t total_size;        /* of all layers as listed */
	json_t *image;              /* the config document, parsed */
	struct hb_buf config_bytes; /* and its exact bytes */
};

struct hb_chain_want {
	const char
		*index; /* hex: the digest the image is pinned by; may name a manifest directly */
	const char *platform; /* "linux/amd64", "linux/arm64" */
	const char *pin;      /* hex of the manifest that the platform must have, or "" */
	uint64_t max_blob, max_image;
};

/* blobs_fd: the directory that holds <hex> files. Codes: blob_missing, digest_mismatch,
 * size_mismatch, bad_image, platform_absent (names the platforms offered), platform_mismatch
 * (another than pinned), image_too_large, bad_digest. */
int hb_chain_derive(int blobs_fd, const struct hb_chain_want *want, struct hb_chain *out,
		    struct hb_error *err);
void hb_chain_free(struct hb_chain *c);

/* The choice alone, for a parsed index: hex and size of the manifest. Independent of the order of
 * entries; attestations and unknown platforms don't count; an entry that wants a newer CPU than
 * this one is never chosen. */
int hb_chain_choose(const json_t *index, const char *platform, const char *pin, char hex[HB_HEX256],
		    int64_t *size, struct hb_error *err);

/* Open one blob for reading: a regular file of exactly `size` bytes (size < 0: any up to the
 * document limit). */
int hb_blob_open(int blobs_fd, const char *hex, int64_t size, struct hb_error *err);

#endif
