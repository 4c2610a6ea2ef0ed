/* A grant envelope from whoever can reach an executor's socket: no input may open under a key that signed nothing. */
#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/grant.h"
#include "common/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct hb_public_key key = {.bytes = {1}, .id = "0000000000000000"};
	json_t *value = hb_json_parse((const char *)data, size, NULL);
	struct hb_grant g;

	if (sodium_init() < 0)
		abort();
	if (!value)
		return 0;
	if (hb_grant_open(value, &key, &g, NULL) == 0)
		abort();
	if (hb_grant_from_json(value, &g, NULL) == 0)
		json_decref(hb_grant_to_json(&g));
	json_decref(value);
	return 0;
}
