/* Indexes, manifests and image configs, as a registry sends them: what is accepted names only whole digests. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fetcher/document.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void manifest(const json_t *document)
{
	struct hb_manifest m = {0};
	uint64_t total = 0;

	if (hb_manifest_decode(document, &m, NULL) < 0)
		return;
	if (!hb_is_hex64(m.config.hex) || m.layer_count > HB_LAYERS_MAX)
		abort();
	for (size_t i = 0; i < m.layer_count; i++) {
		if (!hb_is_hex64(m.layers[i].hex) || m.layers[i].size > UINT64_MAX - total)
			abort();
		total += m.layers[i].size;
		(void)hb_layer_is_foreign(&m.layers[i]);
	}
	if (total != m.total)
		abort();
	hb_manifest_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_buf bytes = HB_BUF_INIT;
	enum hb_document_kind kind;
	json_t *document;

	hb_buf_add(&bytes, data, size);
	document = hb_document_parse(&bytes, &kind, NULL);
	if (document && kind == HB_DOCUMENT_MANIFEST)
		manifest(document);
	json_decref(document);
	hb_buf_free(&bytes);
	return 0;
}
