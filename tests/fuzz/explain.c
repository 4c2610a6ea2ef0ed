/* A request as any client may send it: validation, floor, summary, escapes, digest. */
#include <stdint.h>

#include "policy/explain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_decref(hb_explain((const char *)data, size, NULL, NULL));
	return 0;
}
