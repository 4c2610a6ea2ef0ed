/* One shape for every outcome (outcome.h). */
#include "policy/outcome.h"

#include <string.h>

#include "common/digest.h"
#include "common/json.h"

static void fill(json_t *result, const char *name, json_t *value)
{
	if (json_object_get(result, name))
		json_decref(value);
	else
		json_object_set_new(result, name, value);
}

json_t *hb_outcome(json_t *result, const struct hb_error *err, double seconds)
{
	const char *output;
	char sha[HB_HEX256];

	if (!result)
		result = json_object();
	if (err) {
		fill(result, "output", json_string(err->message));
		fill(result, "returncode", json_integer(1));
		json_object_set_new(result, "error", json_string(err->message));
		json_object_set_new(result, "code", json_string(err->code));
	}
	fill(result, "returncode", json_integer(0));
	fill(result, "truncated", json_false());
	fill(result, "timed_out", json_boolean(err && strcmp(err->code, "timeout") == 0));
	output = hb_json_text(result, "output", "");
	hb_sha256_hex(output, strlen(output), sha);
	json_object_set_new(result, "output", json_string(output));
	json_object_set_new(result, "output_sha256", json_string(sha));
	json_object_set_new(result, "duration", json_integer((json_int_t)(seconds + 0.5)));
	json_object_set_new(result, "duration_ms", json_integer((json_int_t)(seconds * 1000)));
	return result;
}
