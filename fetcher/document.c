/* See document.h. */
#include "fetcher/document.h"

#include <stdbool.h>
#include <string.h>

#include "common/json.h"

#define OCI_INDEX "application/vnd.oci.image.index.v1+json"
#define DOCKER_LIST "application/vnd.docker.distribution.manifest.list.v2+json"
#define OCI_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define DOCKER_MANIFEST "application/vnd.docker.distribution.manifest.v2+json"

static int
kind_of(const json_t *doc, enum hb_document_kind *kind, struct hb_error *err)
{
	const json_t *type_field = json_object_get(doc, "mediaType");
	const char *type = hb_json_text(doc, "mediaType", "");
	bool index = json_is_array(json_object_get(doc, "manifests"));
	bool manifest = json_is_array(json_object_get(doc, "layers"));
	bool says_index = strcmp(type, OCI_INDEX) == 0 || strcmp(type, DOCKER_LIST) == 0;
	bool says_manifest = strcmp(type, OCI_MANIFEST) == 0 || strcmp(type, DOCKER_MANIFEST) == 0;

	if (hb_json_int(doc, "schemaVersion", 0) != 2)
		return hb_fail(err, "bad_manifest",
			       "the image's document is not of schema version 2");
	if (type_field && !says_index && !says_manifest)
		return hb_fail(err, "bad_manifest",
			       "the image's document is neither an image index nor an image "
			       "manifest (OCI or Docker schema 2)");
	if (json_object_get(doc, "manifests") &&
	    (json_object_get(doc, "layers") || json_object_get(doc, "config")))
		return hb_fail(err, "bad_manifest",
			       "the image's document could be read both as index and as manifest");
	if ((!index && !manifest) || (says_index && !index) || (says_manifest && !manifest))
		return hb_fail(err, "bad_manifest",
			       "the image's document lacks its list of manifests or layers");
	*kind = index ? HB_DOCUMENT_INDEX : HB_DOCUMENT_MANIFEST;
	return 0;
}

json_t *
hb_document_parse(const struct hb_buf *bytes, enum hb_document_kind *kind, struct hb_error *err)
{
	struct hb_error why = {0};
	json_t *doc = hb_json_parse_foreign(bytes->len ? bytes->data : "", bytes->len, &why);

	if (!json_is_object(doc)) {
		hb_fail(err, "bad_manifest", "the image's document is not a JSON object%s%s",
			why.message[0] ? ": " : "", why.message);
	} else if (kind_of(doc, kind, err) == 0) {
		return doc;
	}
	json_decref(doc);
	return NULL;
}

static int
decode_descriptor(const json_t *d, const char *what, struct hb_descriptor *out,
		  struct hb_error *err)
{
	long long size = hb_json_int(d, "size", -1);
	const char *type = hb_json_text(d, "mediaType", "");

	if (hb_digest_parse(hb_json_text(d, "digest", ""), out->hex, err))
		return hb_fail_prefix(err, "the image manifest is refused: its %s", what);
	if (size < 0)
		return hb_fail(err, "bad_manifest", "the image manifest gives no size for its %s",
			       what);
	if (!type[0] || strlen(type) >= sizeof(out->media_type))
		return hb_fail(err, "bad_manifest",
			       "the image manifest gives no usable media type for its %s", what);
	out->size = (uint64_t)size;
	memcpy(out->media_type, type, strlen(type) + 1);
	return 0;
}

int
hb_manifest_decode(const json_t *document, struct hb_manifest *out, struct hb_error *err)
{
	const json_t *layers = json_object_get(document, "layers"), *layer;
	struct hb_manifest m = {0};
	size_t i;

	if (json_array_size(layers) > HB_LAYERS_MAX)
		return hb_fail(err, "bad_manifest", "the image has %zu layers, more than %d",
			       json_array_size(layers), HB_LAYERS_MAX);
	if (decode_descriptor(json_object_get(document, "config"), "config", &m.config, err))
		return -1;
	m.layers = hb_calloc(json_array_size(layers) + 1, sizeof(*m.layers));
	json_array_foreach (layers, i, layer) {
		struct hb_descriptor *d = &m.layers[m.layer_count++];

		if (decode_descriptor(layer, "layer", d, err))
			goto out;
		/* Sizes are at most 2^63-1 each: the sum is kept from wrapping by refusing early.
		 */
		if (d->size > (1ULL << 50)) {
			hb_fail(err, "blob_too_large",
				"the image manifest claims a layer of %llu bytes",
				(unsigned long long)d->size);
			goto out;
		}
		m.total += d->size;
	}
	*out = m;
	return 0;
out:
	hb_manifest_free(&m);
	return -1;
}

void
hb_manifest_free(struct hb_manifest *m)
{
	free(m->layers);
	m->layers = NULL;
	m->layer_count = 0;
}

int
hb_layer_is_foreign(const struct hb_descriptor *layer)
{
	return strncmp(layer->media_type, "application/vnd.oci.image.layer.nondistributable.",
		       49) == 0 ||
	       strncmp(layer->media_type, "application/vnd.docker.image.rootfs.foreign.", 44) == 0;
}
