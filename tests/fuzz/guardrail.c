/* Guardrail files: one that is accepted decides about any path without reading beyond it, and each
 * policy it becomes has the shape that the runtime takes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "onboarding/guardrail.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_guardrail g;
	struct hb_guardrails all = {.files = &g, .count = 1};
	struct hb_decision d;
	json_t *list, *item;
	size_t i;

	if (hb_guardrail_parse("fuzz", (const char *)data, size, &g, NULL) < 0)
		return 0;
	for (i = 0; i < g.rule_count; i++) {
		if (!hb_pattern_ok(g.rules[i].pattern, true) ||
		    !hb_pattern_covers("**", g.rules[i].pattern) ||
		    !hb_pattern_covers(g.rules[i].pattern, g.rules[i].pattern))
			abort();
		hb_guardrails_decide(&all, g.rules[i].pattern, &d);
	}
	list = hb_guardrails_problems(&all);
	json_decref(list);
	list = hb_guardrail_policies(&all, g.connection);
	json_array_foreach(list, i, item)
		if (strstr(hb_json_text(item, "pattern", "**"), "**"))
			abort();
	json_decref(list);
	hb_guardrail_free(&g);
	return 0;
}
