/* Strict JSON: what is accepted must have a canonical form that parses to itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_buf once = HB_BUF_INIT, twice = HB_BUF_INIT;
	json_t *value = hb_json_parse((const char *)data, size, NULL), *again;

	json_decref(hb_json_parse_foreign((const char *)data, size, NULL));
	if (!value)
		return 0;
	if (hb_json_canonical(value, &once, NULL) < 0)
		abort();
	again = hb_json_parse(once.data, once.len, NULL);
	if (!again || hb_json_canonical(again, &twice, NULL) < 0 || once.len != twice.len ||
	    memcmp(once.data, twice.data, once.len) != 0)
		abort();
	json_decref(value);
	json_decref(again);
	hb_buf_free(&once);
	hb_buf_free(&twice);
	return 0;
}
