/* Calls and descriptions as code for `execute`, and their answers, which may be anything
 * (guardrail_ask.h). */
#include "onboarding/guardrail_ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

#define BATCH 100 /* paths described by one execution */

static const char call_program[] =
	"const count = (data, pointer) => {\n"
	"  for (const part of pointer.split('/').slice(1)) {\n"
	"    if (data === null || typeof data !== 'object') return null;\n"
	"    data = data[part.replace(/~1/g, '/').replace(/~0/g, '~')];\n"
	"  }\n"
	"  return Array.isArray(data) ? data.length : null;\n"
	"};\n"
	"try {\n"
	"  const r = await tools[q.tool](q.arguments);\n"
	"  if (r && r.ok === true) return { did: 'ran', items: q.pointers.map((p) => count(r.data, "
	"p)) };\n"
	"  if (r && r.ok === false) return { did: 'refused', why: String(r.error && r.error.code) "
	"};\n"
	"  return { did: 'ran', items: q.pointers.map(() => null) };\n"
	"} catch (e) {\n"
	"  return { did: 'threw', why: String(e && e.message) };\n"
	"}\n";

/* An argument is needed when its name stands without a question mark on the outermost level of the
 * type. */
static const char describe_program[] =
	"const needs = (type) => {\n"
	"  let t = type.trim(), before;\n"
	"  if (t[0] !== '{' || t[t.length - 1] !== '}') return false;\n"
	"  t = t.slice(1, -1);\n"
	"  do { before = t; t = t.replace(/\\{[^{}]*\\}|\\([^()]*\\)/g, ' '); } while (t !== "
	"before);\n"
	"  return !/[{}]/.test(t) && t.split(';').some((p) => "
	"/^\\s*([\\w$]+|\"[^\"]*\")\\s*:/.test(p));\n"
	"};\n"
	"const out = {};\n"
	"for (const path of q.paths) {\n"
	"  try {\n"
	"    const d = await tools.describe.tool({ path });\n"
	"    if (d.error) out[path] = d.error.code === 'tool_not_found' ? 'absent' : 'unknown';\n"
	"    else out[path] = needs(String(d.inputTypeScript || '')) ? 'needs' : 'free';\n"
	"  } catch (e) { out[path] = 'unknown'; }\n"
	"}\n"
	"return out;\n";

void hb_call_result_free(struct hb_call_result *r)
{
	json_decref(r->items);
	*r = (struct hb_call_result){0};
}

/* The runtime, or a service behind it, chose the text. */
static void say(struct hb_call_result *out, const char *text)
{
	size_t len = strlen(text);
	char *escaped;

	while (len > 100 || (len > 0 && (text[len] & 0xc0) == 0x80))
		len--;
	json_t *cut = json_stringn_nocheck(text, len);
	escaped = json_dumps(cut, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
	snprintf(out->why, sizeof out->why, "%s", escaped ? escaped : "\"?\"");
	free(escaped);
	json_decref(cut);
}

static int read_value(const json_t *value, struct hb_call_result *out, struct hb_error *err)
{
	const char *did = hb_json_text(value, "did", ""), *why = hb_json_text(value, "why", "");

	if (strcmp(did, "ran") == 0 && json_is_array(json_object_get(value, "items"))) {
		out->did = HB_DID_RUN;
		out->items = json_incref(json_object_get(value, "items"));
	} else if (strcmp(did, "refused") == 0 &&
		   (strcmp(why, "tool_blocked") == 0 || strcmp(why, "tool_not_found") == 0)) {
		out->did = HB_DID_BLOCK;
		say(out, why);
	} else if (strcmp(did, "refused") == 0 || strcmp(did, "threw") == 0) {
		out->did = HB_DID_FAIL;
		say(out, why);
	} else {
		return hb_fail(err, "bad_reply",
			       "the runtime's answer does not say what came of the call");
	}
	return 0;
}

static int read_result(const struct hb_mcp_result *r, const char *tool, struct hb_call_result *out,
		       struct hb_error *err)
{
	*out = (struct hb_call_result){0};
	if (r->state == HB_MCP_PAUSED) {
		if (tool && r->address[0] && strcmp(r->address, tool) != 0)
			return hb_fail(
				err, "bad_reply",
				"a call of %s waits, and the runtime says that another tool does",
				tool);
		out->did = HB_DID_PAUSE;
		snprintf(out->execution, sizeof out->execution, "%s", r->execution);
		return 0;
	}
	if (r->state == HB_MCP_FAILED) {
		out->did = HB_DID_FAIL;
		say(out, r->text);
		return 0;
	}
	return read_value(r->value, out, err);
}

int hb_runtime_call(const struct hb_runtime *runtime, const char *tool, const json_t *arguments,
		    const json_t *pointers, struct hb_call_result *out, struct hb_error *err)
{
	json_t *question = json_pack(
		"{s:s, s:s, s:O, s:o}", "ask", "call", "tool", tool, "arguments", arguments,
		"pointers", pointers ? json_copy((json_t *)(uintptr_t)pointers) : json_array());
	char *code = hb_runtime_code(question, call_program);
	struct hb_mcp_result r = {0};
	int rc = runtime->execute(runtime->arg, code, &r, err);

	if (rc == 0)
		rc = read_result(&r, tool, out, err);
	if (rc < 0)
		hb_fail_prefix(err, "calling %s", tool);
	hb_mcp_result_free(&r);
	free(code);
	return rc;
}

int hb_runtime_answer(const struct hb_runtime *runtime, const char *execution, const char *action,
		      struct hb_call_result *out, struct hb_error *err)
{
	struct hb_mcp_result r = {0};
	int rc = runtime->resume(runtime->arg, execution, action, &r, err);

	if (rc == 0)
		rc = read_result(&r, NULL, out, err);
	hb_mcp_result_free(&r);
	return rc;
}

static int describe_some(const struct hb_runtime *runtime, const json_t *paths, size_t from,
			 json_t *all, struct hb_error *err)
{
	json_t *some = json_array(), *path;
	struct hb_mcp_result r = {0};
	size_t i;
	char *code;
	int rc;

	for (i = from; i < json_array_size(paths) && i < from + BATCH; i++)
		json_array_append(some, json_array_get(paths, i));
	code = hb_runtime_code(json_pack("{s:s, s:O}", "ask", "describe", "paths", some),
			       describe_program);
	rc = runtime->execute(runtime->arg, code, &r, err);
	if (rc == 0 && (r.state != HB_MCP_OK || !json_is_object(r.value)))
		rc = hb_fail(err, r.state == HB_MCP_OK ? "bad_reply" : "runtime_failed",
			     "the runtime does not describe its tools: %.300s", r.text);
	json_array_foreach(some, i, path) {
		const char *word = rc == 0 ? hb_json_text(r.value, json_string_value(path), "")
					   : "-";

		if (rc == 0 && strcmp(word, "absent") != 0 && strcmp(word, "needs") != 0 &&
		    strcmp(word, "free") != 0 && strcmp(word, "unknown") != 0)
			rc = hb_fail(err, "bad_reply",
				     "the runtime's description of %s can't be read",
				     json_string_value(path));
		if (rc == 0)
			json_object_set_new(all, json_string_value(path), json_string(word));
	}
	hb_mcp_result_free(&r);
	free(code);
	json_decref(some);
	return rc;
}

json_t *hb_runtime_describe(const struct hb_runtime *runtime, const json_t *paths,
			    struct hb_error *err)
{
	json_t *all = json_object();

	for (size_t from = 0; from < json_array_size(paths); from += BATCH)
		if (describe_some(runtime, paths, from, all, err) < 0) {
			json_decref(all);
			return NULL;
		}
	return all;
}
