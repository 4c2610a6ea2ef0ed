/* Asking for the catalogue, judging what comes, and comparing two (catalogue.h). */
#include "onboarding/catalogue.h"

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/json.h"

#define PAGES_MAX 200
#define DECLINES_MAX 3

/*
 * A search without words finds nothing, so that the owner's word, which is in each address, is
 * searched for, and the names of everything that is known. A connection list that somebody must
 * approve is declined by us and counts as refused.
 */
static const char program[] =
	"const seen = {}, found = {}, words = q.words.slice();\n"
	"try {\n"
	"  const r = await tools.executor.coreTools.connections.list({});\n"
	"  if (r && r.ok) for (const c of r.data.connections) {\n"
	"    found[c.integration + '.' + c.owner + '.' + c.name] = true;\n"
	"    words.push(c.integration, c.name);\n"
	"  }\n"
	"} catch (e) {}\n"
	"let cut = false;\n"
	"for (const query of new Set(words)) {\n"
	"  let offset = 0, more = true;\n"
	"  for (let page = 0; more && page < q.pages; page++) {\n"
	"    const r = await tools.search({ query, limit: 100, offset });\n"
	"    for (const i of r.items) seen[i.path] = true;\n"
	"    more = r.hasMore === true;\n"
	"    offset = r.nextOffset;\n"
	"  }\n"
	"  cut = cut || more;\n"
	"}\n"
	"return { connections: Object.keys(found), tools: Object.keys(seen), cut };\n";

char *hb_runtime_code(json_t *question, const char *what)
{
	char *text = json_dumps(question, JSON_COMPACT | JSON_ENSURE_ASCII), *code;

	code = hb_asprintf("const q = %s;\n%s", text ? text : "null", what);
	free(text);
	json_decref(question);
	return code;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(json_string_value(*(json_t *const *)a),
		      json_string_value(*(json_t *const *)b));
}

json_t *hb_sorted_texts(const json_t *list)
{
	size_t n = json_array_size(list), kept = 0;
	json_t **items = hb_calloc(n + 1, sizeof *items), *out = json_array();

	for (size_t i = 0; i < n; i++)
		if (json_is_string(json_array_get(list, i)))
			items[kept++] = json_array_get(list, i);
	qsort(items, kept, sizeof *items, by_text);
	for (size_t i = 0; i < kept; i++)
		if (i == 0 || by_text(&items[i - 1], &items[i]) != 0)
			json_array_append(out, items[i]);
	free(items);
	return out;
}

bool hb_has_text(const json_t *sorted, const char *text)
{
	size_t low = 0, high = json_array_size(sorted);

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(text, json_string_value(json_array_get(sorted, middle)));

		if (order == 0)
			return true;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return false;
}

/* Each a path that could be a tool's; what is not is named by its place only. */
static json_t *paths_of(const json_t *list, const char *what, struct hb_error *err)
{
	json_t *item;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > HB_CATALOGUE_TOOLS_MAX) {
		hb_fail(err, "bad_reply",
			"the runtime's list of %s is none, or has more than %d entries", what,
			HB_CATALOGUE_TOOLS_MAX);
		return NULL;
	}
	json_array_foreach(list, i, item)
		if (!json_is_string(item) ||
		    json_string_length(item) != strlen(json_string_value(item)) ||
		    !hb_tool_path_ok(json_string_value(item))) {
			hb_fail(err, "bad_reply",
				"entry %zu of the runtime's list of %s is no path of a tool", i + 1,
				what);
			return NULL;
		}
	return hb_sorted_texts(list);
}

json_t *hb_catalogue_read(const json_t *value, struct hb_error *err)
{
	json_t *connections, *tools = NULL;

	if (!json_is_object(value) || !json_is_boolean(json_object_get(value, "cut"))) {
		hb_fail(err, "bad_reply",
			"the runtime's answer to the question for its tools is no list of tools");
		return NULL;
	}
	if (json_is_true(json_object_get(value, "cut"))) {
		hb_fail(err, "bad_reply", "the runtime's list of tools has no end");
		return NULL;
	}
	connections = paths_of(json_object_get(value, "connections"), "connections", err);
	if (connections)
		tools = paths_of(json_object_get(value, "tools"), "tools", err);
	if (!tools) {
		json_decref(connections);
		return NULL;
	}
	return json_pack("{s:o, s:o}", "connections", connections, "tools", tools);
}

static json_t *words_of(const struct hb_guardrails *all)
{
	json_t *words = json_pack("[s, s]", "org", "user"), *sorted;

	for (size_t i = 0; i < all->count; i++) {
		const char *c = all->files[i].connection;

		json_array_append_new(words, json_stringn(c, strcspn(c, ".")));
	}
	sorted = hb_sorted_texts(words);
	json_decref(words);
	return sorted;
}

json_t *hb_catalogue_ask(const struct hb_runtime *runtime, const struct hb_guardrails *all,
			 struct hb_error *err)
{
	char *code = hb_runtime_code(json_pack("{s:s, s:o, s:i}", "ask", "catalogue", "words",
					       words_of(all), "pages", PAGES_MAX),
				     program);
	struct hb_mcp_result r = {0}, next = {0};
	json_t *catalogue = NULL;
	int rc = runtime->execute(runtime->arg, code, &r, err);

	for (int i = 0; rc == 0 && r.state == HB_MCP_PAUSED && i < DECLINES_MAX; i++) {
		rc = runtime->resume(runtime->arg, r.execution, "decline", &next, err);
		if (rc == 0) {
			hb_mcp_result_free(&r);
			r = next;
			next = (struct hb_mcp_result){0};
		}
	}
	if (rc == 0 && r.state == HB_MCP_OK)
		catalogue = hb_catalogue_read(r.value, err);
	else if (rc == 0)
		hb_fail(err, "runtime_failed", "the runtime does not list its tools: %.300s",
			r.state == HB_MCP_PAUSED ? "it waits for an approval again and again"
						 : r.text);
	hb_mcp_result_free(&r);
	free(code);
	return catalogue;
}

/* Of `a` what is not in `b`. */
static json_t *missing(const json_t *a, const json_t *b)
{
	json_t *out = json_array(), *item;
	size_t i;

	json_array_foreach(a, i, item)
		if (!hb_has_text(b, json_string_value(item)))
			json_array_append(out, item);
	return out;
}

json_t *hb_catalogue_diff(const json_t *before, const json_t *after)
{
	const json_t *t1 = json_object_get(before, "tools"), *t2 = json_object_get(after, "tools"),
		     *c1 = json_object_get(before, "connections"),
		     *c2 = json_object_get(after, "connections");

	return json_pack("{s:o, s:o, s:o, s:o}", "tools_added", missing(t2, t1), "tools_removed",
			 missing(t1, t2), "connections_added", missing(c2, c1),
			 "connections_removed", missing(c1, c2));
}

bool hb_catalogue_same(const json_t *diff)
{
	const char *name;
	json_t *list;

	json_object_foreach((json_t *)(uintptr_t)diff, name, list)
		if (json_array_size(list) > 0)
			return false;
	return true;
}
