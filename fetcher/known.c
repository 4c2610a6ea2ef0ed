/* See known.h. */
#include "fetcher/known.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/json.h"
#include "fetcher/document.h"

#define KNOWN_MAX 16

struct answer {
	char *question;
	json_t *reply;
};

struct hb_known {
	struct answer answers[KNOWN_MAX];
	size_t next;
};

struct hb_known *
hb_known_new(void)
{
	return hb_calloc(1, sizeof(struct hb_known));
}

void
hb_known_free(struct hb_known *k)
{
	for (size_t i = 0; k && i < KNOWN_MAX; i++) {
		free(k->answers[i].question);
		json_decref(k->answers[i].reply);
	}
	free(k);
}

static char *
question_of(const struct hb_resolve_request *what)
{
	char name[600];

	hb_image_ref_name(&what->ref, name, sizeof(name));
	return hb_asprintf("%s@%s %s %s", name, what->ref.digest, what->platform, what->pin);
}

static struct answer *
find(struct hb_known *k, const char *question)
{
	for (size_t i = 0; i < KNOWN_MAX; i++)
		if (k->answers[i].question && strcmp(k->answers[i].question, question) == 0)
			return &k->answers[i];
	return NULL;
}

static bool
is_stored(const struct hb_store *store, const char *hex, size_t max)
{
	struct hb_buf bytes = HB_BUF_INIT;
	struct hb_error err;
	int have = hb_store_get(store, hex, max, &bytes, &err);

	hb_buf_free(&bytes);
	return have == 1;
}

json_t *
hb_known_find(struct hb_known *k, const struct hb_store *store,
	      const struct hb_resolve_request *what)
{
	char *question = question_of(what);
	struct answer *a = find(k, question);
	json_t *found = a ? a->reply : NULL;

	free(question);
	if (!found || !is_stored(store, hb_json_text(found, "index_digest", ""), HB_MANIFEST_MAX) ||
	    !is_stored(store, hb_json_text(found, "manifest_digest", ""), HB_MANIFEST_MAX) ||
	    !is_stored(store, hb_json_text(found, "config_digest", ""), HB_IMAGE_CONFIG_MAX))
		return NULL;
	return json_incref(found);
}

/* Whether the registry gives such a layer out is asked each time. */
static bool
has_foreign_layer(const json_t *reply)
{
	json_t *layer;
	size_t i;

	json_array_foreach (json_object_get(reply, "layers"), i, layer) {
		struct hb_descriptor d = {0};

		snprintf(d.media_type, sizeof(d.media_type), "%s",
			 hb_json_text(layer, "media_type", ""));
		if (hb_layer_is_foreign(&d))
			return true;
	}
	return false;
}

void
hb_known_add(struct hb_known *k, const struct hb_resolve_request *what, json_t *reply)
{
	char *question = question_of(what);
	struct answer *a = find(k, question);
	static const char *const digests[] = {"index_digest", "manifest_digest", "config_digest"};

	bool keep = !has_foreign_layer(reply);

	for (size_t i = 0; i < 3; i++)
		keep = keep && hb_is_hex64(hb_json_text(reply, digests[i], ""));
	if (!keep) {
		free(question);
		return;
	}
	if (!a) {
		a = &k->answers[k->next];
		k->next = (k->next + 1) % KNOWN_MAX;
	}
	free(a->question);
	json_decref(a->reply);
	*a = (struct answer){question, json_incref(reply)};
}
