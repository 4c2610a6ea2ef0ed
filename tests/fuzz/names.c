/* Short texts with a grammar: image references, digests, registry challenges, floor commands. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "fetcher/challenge.h"
#include "policy/image_ref.h"
#include "policy/summary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_challenge challenges[HB_CHALLENGE_MAX];
	struct hb_image_ref ref;
	struct hb_buf out = HB_BUF_INIT;
	char hex[HB_HEX256], *text = malloc(size + 1);
	size_t count;

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = 0;
	if (hb_image_ref_parse(text, true, &ref, NULL) == 0 && !hb_is_hex64(ref.digest))
		abort();
	if (hb_digest_parse(text, hex, NULL) == 0 && !hb_is_hex64(hex))
		abort();
	(void)hb_challenge_parse(text, challenges, &count, NULL);
	hb_escape_value(text, &out);
	hb_escape_block(text, &out);
	hb_buf_free(&out);
	free(text);
	return 0;
}
