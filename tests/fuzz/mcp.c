/* What an MCP server may answer: events or JSON, results of calls, catalogues. A key in it never
 * comes out again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "broker/installer/caller.h"
#include "broker/installer/probe_mcp.h"
#include "onboarding/catalogue.h"
#include "onboarding/mcp_call.h"

#define KEY "KEY0"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void result(const json_t *value)
{
	struct hb_mcp_result r, again;
	json_t *text;

	if (hb_mcp_result_read(value, &r, NULL) < 0)
		return;
	text = hb_mcp_result_to_json(&r);
	if (!text || hb_mcp_result_from_json(text, &again, NULL) < 0 || again.state != r.state ||
	    strcmp(again.text, r.text) != 0 ||
	    (r.state == HB_MCP_PAUSED) != (r.execution[0] != '\0'))
		abort();
	json_decref(hb_catalogue_read(r.value, NULL));
	hb_mcp_result_free(&r);
	hb_mcp_result_free(&again);
	json_decref(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *message = hb_mcp_message((const char *)data, size, 1001), *clean;
	char *text;

	if (!message)
		return 0;
	clean = hb_caller_redact(message, KEY);
	text = json_dumps(clean, JSON_COMPACT | JSON_ENCODE_ANY);
	if (text && strstr(text, KEY))
		abort();
	free(text);
	result(json_object_get(clean, "result"));
	json_decref(clean);
	json_decref(message);
	return 0;
}
