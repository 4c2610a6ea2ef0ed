/*
 * The catalogue: which connections the runtime has and which tools it lists, as its MCP server
 * tells whoever asks with a key. A tool that its policies block is not listed.
 * {"connections":["google.org.ben"],"tools":["google.org.ben.x.y"]}, both sorted, each path of the
 * shape of hb_tool_path_ok.
 *
 * The record is what the last check saw and found; without it nothing is known to be proven.
 */
#ifndef HB_ONBOARDING_CATALOGUE_H
#define HB_ONBOARDING_CATALOGUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "onboarding/guardrail.h"
#include "onboarding/mcp_call.h"

#define HB_CATALOGUE_TOOLS_MAX 10000
#define HB_GUARDRAIL_RECORD "onboarding/guardrails.json"

/* How the runtime is asked: hermesctl by mcp_call.h, tests by a script. */
struct hb_runtime {
	int (*execute)(void *arg, const char *code, struct hb_mcp_result *out,
		       struct hb_error *err);
	int (*resume)(void *arg, const char *execution, const char *action,
		      struct hb_mcp_result *out, struct hb_error *err);
	void (*progress)(void *arg, const char *what, int done, int total); /* or NULL */
	void *arg;
};

/* The question as code for `execute`: one line of JSON that says it, then what answers it. */
char *hb_runtime_code(json_t *question /* stolen */, const char *program);

/*
 * Ask for it. Guardrails name integrations that are asked for besides those that the runtime names.
 * New reference, or NULL; codes bad_reply (a list that can't be one), runtime_failed (the runtime
 * says why), and those of mcp_call.h.
 */
json_t *hb_catalogue_ask(const struct hb_runtime *runtime, const struct hb_guardrails *all,
			 struct hb_error *err);
/* What the code returned, as a catalogue; new reference or NULL (bad_reply). */
json_t *hb_catalogue_read(const json_t *value, struct hb_error *err);

/* {"tools_added","tools_removed","connections_added","connections_removed"}, sorted lists; new
 * reference. */
json_t *hb_catalogue_diff(const json_t *before, const json_t *after);
bool hb_catalogue_same(const json_t *diff);

/* A sorted list of strings without duplicates from any array of strings; new reference. */
json_t *hb_sorted_texts(const json_t *list);
bool hb_has_text(const json_t *sorted, const char *text);

#endif
