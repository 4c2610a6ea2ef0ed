/*
 * From a pinned digest to the list of what an image consists of. The digest may name an index or,
 * directly, a manifest; the latter is taken when its config says that it is for this platform.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fields.h"
#include "common/json.h"
#include "fetcher/document.h"
#include "fetcher/platform.h"
#include "fetcher/source.h"

/* "sha256:<hex>" or bare hex, both exact. */
static int
take_digest(const char *text, char hex[HB_HEX256], struct hb_error *err)
{
	if (hb_is_hex64(text)) {
		memcpy(hex, text, HB_HEX256);
		return 0;
	}
	return hb_digest_parse(text, hex, err);
}

int
hb_resolve_decode(const json_t *body, struct hb_resolve_request *out, struct hb_error *err)
{
	struct fields {
		const char *image, *platform, *pin;
	} f = {.pin = ""};
	static const struct hb_field table[] = {
		{"image", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct fields, image), 1,
		 1024},
		{"platform", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct fields, platform), 1,
		 40},
		{"platform_digest", HB_FIELD_TEXT, 0, offsetof(struct fields, pin), 0, 71},
	};
	struct hb_platform platform;

	memset(out, 0, sizeof(*out));
	if (hb_fields_decode(body, table, sizeof(table) / sizeof(table[0]), &f, err) ||
	    hb_image_ref_parse(f.image, false, &out->ref, err) ||
	    hb_platform_parse(f.platform, &platform, err))
		return -1;
	snprintf(out->platform, sizeof(out->platform), "%s", f.platform);
	return f.pin[0] ? take_digest(f.pin, out->pin, err) : 0;
}

static bool
seen_before(const struct hb_fetch_request *r, const char *hex, uint64_t size, struct hb_error *err,
	    bool *conflict)
{
	for (size_t i = 0; i < r->count; i++) {
		if (strcmp(r->blobs[i].hex, hex) != 0)
			continue;
		*conflict = r->blobs[i].size != size;
		if (*conflict)
			hb_fail(err, "bad_manifest", "sha256:%s is listed with two different sizes",
				hex);
		return true;
	}
	return false;
}

static int
decode_blob(const json_t *item, struct hb_fetch_request *r, struct hb_error *err)
{
	struct fields {
		const char *digest;
		long long size;
	} f = {0};
	static const struct hb_field table[] = {
		{"digest", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct fields, digest), 64,
		 71},
		{"size", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct fields, size), 0,
		 1LL << 50},
	};
	struct hb_fetch_blob *b = &r->blobs[r->count];
	bool conflict = false;

	if (hb_fields_decode(item, table, 2, &f, err) || take_digest(f.digest, b->hex, err))
		return -1;
	b->size = (uint64_t)f.size;
	if (seen_before(r, b->hex, b->size, err, &conflict))
		return conflict ? -1 : 0;
	r->count++;
	return 0;
}

int
hb_fetch_decode(const json_t *body, struct hb_fetch_request *out, struct hb_error *err)
{
	struct fields {
		const char *image;
		json_t *blobs;
	} f = {0};
	static const struct hb_field table[] = {
		{"image", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct fields, image), 1,
		 1024},
		{"blobs", HB_FIELD_ARRAY, HB_FIELD_REQUIRED, offsetof(struct fields, blobs), 0,
		 HB_FETCH_BLOBS_MAX},
	};
	json_t *item;
	size_t i;

	memset(out, 0, sizeof(*out));
	if (hb_fields_decode(body, table, 2, &f, err) ||
	    hb_image_ref_parse(f.image, false, &out->ref, err))
		return -1;
	out->blobs = hb_calloc(json_array_size(f.blobs) + 1, sizeof(*out->blobs));
	json_array_foreach (f.blobs, i, item)
		if (decode_blob(item, out, err)) {
			hb_fetch_request_free(out);
			return -1;
		}
	return 0;
}

void
hb_fetch_request_free(struct hb_fetch_request *r)
{
	free(r->blobs);
	memset(r, 0, sizeof(*r));
}

/* Layers within the limits, and none that the registry doesn't give out. */
static int
check_layers(const struct hb_config *config, struct hb_source *s, struct hb_http *http,
	     const struct hb_manifest *m, struct hb_error *err)
{
	uint64_t blob_max = (uint64_t)hb_config_int(config, "fetcher.max_blob_size");
	uint64_t image_max = (uint64_t)hb_config_int(config, "fetcher.max_image_size");
	struct hb_error why;

	if (m->total > image_max)
		return hb_fail(err, "image_too_large",
			       "the image has %llu bytes of layers, fetcher.max_image_size "
			       "allows %llu",
			       (unsigned long long)m->total, (unsigned long long)image_max);
	for (size_t i = 0; i < m->layer_count; i++) {
		const struct hb_descriptor *d = &m->layers[i];

		if (d->size > blob_max)
			return hb_fail(err, "blob_too_large",
				       "layer sha256:%s has %llu bytes, fetcher.max_blob_size "
				       "allows %llu",
				       d->hex, (unsigned long long)d->size,
				       (unsigned long long)blob_max);
		if (hb_layer_is_foreign(d) && hb_source_has_blob(s, http, d->hex, &why))
			return hb_fail(err, "layer_not_distributable",
				       "layer sha256:%s is marked as not distributable "
				       "and the registry does not give it out; other places are "
				       "not asked",
				       d->hex);
	}
	return 0;
}

static json_t *
make_result(const char *index, const char *manifest, const struct hb_manifest *m)
{
	json_t *layers = json_array();

	for (size_t i = 0; i < m->layer_count; i++)
		json_array_append_new(layers,
				      json_pack("{s:s, s:I, s:s}", "digest", m->layers[i].hex,
						"size", (json_int_t)m->layers[i].size, "media_type",
						m->layers[i].media_type));
	return json_pack("{s:s, s:s, s:s, s:s, s:o}", "status", "ok", "index_digest", index,
			 "manifest_digest", manifest, "config_digest", m->config.hex, "layers",
			 layers);
}

/* The manifest document for the platform; `hex` goes from the pinned digest to the manifest's. */
static json_t *
find_manifest(struct hb_source *s, struct hb_http *http, const struct hb_platform *want,
	      const char *pin, char hex[HB_HEX256], struct hb_error *err)
{
	struct hb_buf bytes = HB_BUF_INIT;
	enum hb_document_kind kind;
	json_t *doc = NULL, *found = NULL;
	long long size = -1;

	if (hb_source_document(s, http, "manifests", hex, -1, HB_MANIFEST_MAX, &bytes, err))
		goto out;
	doc = hb_document_parse(&bytes, &kind, err);
	if (!doc)
		goto out;
	if (kind == HB_DOCUMENT_MANIFEST) {
		if (pin && strcmp(pin, hex) != 0)
			hb_fail(err, "platform_mismatch",
				"the image's manifest is sha256:%s, not the pinned sha256:%s", hex,
				pin);
		else
			found = json_incref(doc);
		goto out;
	}
	if (hb_platform_choose(json_object_get(doc, "manifests"), want, pin, hex, &size, err) ||
	    hb_source_document(s, http, "manifests", hex, size, HB_MANIFEST_MAX, &bytes, err))
		goto out;
	found = hb_document_parse(&bytes, &kind, err);
	if (found && kind != HB_DOCUMENT_MANIFEST) {
		hb_fail(err, "bad_manifest", "the index's entry sha256:%s is another index", hex);
		json_decref(found);
		found = NULL;
	}
out:
	json_decref(doc);
	hb_buf_free(&bytes);
	return found;
}

static int
check_config(struct hb_source *s, struct hb_http *http, const struct hb_descriptor *d,
	     const struct hb_platform *want, struct hb_error *err)
{
	struct hb_buf bytes = HB_BUF_INIT;
	json_t *config = NULL;
	int rc = -1;

	if (hb_source_document(s, http, "blobs", d->hex, (int64_t)d->size, HB_IMAGE_CONFIG_MAX,
			       &bytes, err))
		goto out;
	config = hb_json_parse_foreign(bytes.len ? bytes.data : "", bytes.len, NULL);
	if (!json_is_object(config))
		hb_fail(err, "bad_manifest", "the image's config sha256:%s is not a JSON object",
			d->hex);
	else
		rc = hb_platform_check(config, want, err);
out:
	json_decref(config);
	hb_buf_free(&bytes);
	return rc;
}

json_t *
hb_resolve(const struct hb_pull_env *env, const struct hb_resolve_request *req,
	   struct hb_error *err)
{
	struct hb_source source;
	struct hb_http *http = NULL;
	struct hb_platform want;
	struct hb_manifest m = {0};
	char hex[HB_HEX256];
	json_t *doc = NULL, *result = NULL;

	if (hb_platform_parse(req->platform, &want, err) || hb_store_usable(env->store, err) ||
	    hb_source_open(env, &req->ref, &source, err))
		return NULL;
	http = hb_http_new(&source.http);
	memcpy(hex, req->ref.digest, sizeof(hex));
	doc = find_manifest(&source, http, &want, req->pin[0] ? req->pin : NULL, hex, err);
	if (!doc || hb_manifest_decode(doc, &m, err) ||
	    check_layers(env->config, &source, http, &m, err) ||
	    check_config(&source, http, &m.config, &want, err))
		goto out;
	result = make_result(req->ref.digest, hex, &m);
out:
	hb_manifest_free(&m);
	json_decref(doc);
	hb_http_free(http);
	hb_source_close(&source);
	return result;
}
