/* The call as hermesctl makes it, and what an answer of the runtime means (mcp_call.h). */
#include "onboarding/mcp_call.h"

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/client.h"
#include "common/json.h"

#define ROUTE "/mcp"
#define GRACE_MS \
	15000 /* the installer answers within the call's time; so much later nobody listens any \
		 more */

int hb_mcp_key_name_check(const char *name, struct hb_error *err)
{
	size_t len = strlen(name);

	if (len > 0 && len < HB_MCP_NAME_MAX && name[0] >= 'a' && name[0] <= 'z' &&
	    strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == len)
		return 0;
	return hb_fail(err, "bad_key_name",
		       "a key's name has lower-case letters, digits and '-', begins with a "
		       "letter and is shorter than %d bytes",
		       HB_MCP_NAME_MAX);
}

void hb_mcp_result_free(struct hb_mcp_result *r)
{
	free(r->text);
	free(r->execution);
	free(r->address);
	json_decref(r->value);
	*r = (struct hb_mcp_result){0};
}

static const char *const states[] = {
	[HB_MCP_OK] = "ok", [HB_MCP_FAILED] = "failed", [HB_MCP_PAUSED] = "paused"};

const char *hb_mcp_state_name(enum hb_mcp_state state)
{
	return states[state];
}

/* --- reading what the runtime says --- */

static char *text_of(const json_t *result)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *part;
	size_t i;

	json_array_foreach(json_object_get(result, "content"), i, part) {
		if (strcmp(hb_json_text(part, "type", ""), "text") != 0)
			continue;
		if (text.len)
			hb_buf_addc(&text, '\n');
		hb_buf_adds(&text, hb_json_text(part, "text", ""));
	}
	return hb_buf_take(&text);
}

/* The runtime names a waiting tool with its root, "tools.google.org..."; paths elsewhere are
 * without it. */
static const char *without_root(const char *address)
{
	return strncmp(address, "tools.", 6) == 0 ? address + 6 : address;
}

static int paused(const json_t *structured, bool is_error, struct hb_mcp_result *out,
		  struct hb_error *err)
{
	const char *id = hb_json_text(structured, "executionId", "");

	if (is_error || !id[0] || strlen(id) > 200)
		return hb_fail(
			err, "bad_reply",
			"the runtime says that a call waits and does not say usably for what");
	out->state = HB_MCP_PAUSED;
	out->execution = hb_strdup(id);
	out->address = hb_strdup(without_root(
		hb_json_text(json_object_get(structured, "interaction"), "address", "")));
	return 0;
}

int hb_mcp_result_read(const json_t *result, struct hb_mcp_result *out, struct hb_error *err)
{
	const json_t *structured = json_object_get(result, "structuredContent"),
		     *flag = json_object_get(result, "isError");
	const char *status = hb_json_text(structured, "status", "");
	struct hb_mcp_result r = {0};
	int rc = 0;

	if (!json_is_object(result) || (flag && !json_is_boolean(flag)) ||
	    !json_is_array(json_object_get(result, "content")) ||
	    (structured && !json_is_object(structured)))
		return hb_fail(err, "bad_reply",
			       "the runtime's answer is not the result of a tool call");
	if (strcmp(status, "waiting_for_interaction") == 0)
		rc = paused(structured, json_is_true(flag), &r, err);
	else if (json_is_true(flag) || strcmp(status, "error") == 0)
		r.state = HB_MCP_FAILED;
	else if (status[0] && strcmp(status, "completed") != 0)
		rc = hb_fail(
			err, "bad_reply",
			"the runtime's answer has a status that is none of completed, error and "
			"waiting_for_interaction");
	if (rc == 0) {
		r.text = text_of(result);
		r.execution = r.execution ? r.execution : hb_strdup("");
		r.address = r.address ? r.address : hb_strdup("");
		r.value = r.state == HB_MCP_OK ? json_incref(json_object_get(structured, "result"))
					       : NULL;
		*out = r;
	}
	return rc;
}

/* --- between installer and hermesctl --- */

json_t *hb_mcp_result_to_json(const struct hb_mcp_result *r)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:O?}", "state", states[r->state], "text", r->text,
			 "execution", r->execution, "address", r->address, "value", r->value);
}

int hb_mcp_result_from_json(const json_t *object, struct hb_mcp_result *out, struct hb_error *err)
{
	const char *state = hb_json_text(object, "state", "");
	json_t *value = json_object_get(object, "value");

	for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
		if (strcmp(states[i], state) != 0)
			continue;
		*out = (struct hb_mcp_result){
			.state = (enum hb_mcp_state)i,
			.text = hb_strdup(hb_json_text(object, "text", "")),
			.execution = hb_strdup(hb_json_text(object, "execution", "")),
			.address = hb_strdup(hb_json_text(object, "address", "")),
			.value = json_is_null(value) ? NULL : json_incref(value),
		};
		return 0;
	}
	return hb_fail(err, "bad_reply",
		       "the installer's answer to a call of the runtime can't be read");
}

/* `arguments` is stolen. */
static json_t *ask(const struct hb_mcp_options *o, const char *tool, json_t *arguments,
		   struct hb_error *err)
{
	int timeout = o->timeout_ms > 0 ? o->timeout_ms : HB_MCP_TIMEOUT_MS, status = 0;
	json_t *body = json_pack("{s:s, s:s, s:o, s:i, s:I}", "key", o->key, "tool", tool,
				 "arguments", arguments, "timeout_ms", timeout, "reply_max",
				 (json_int_t)(o->reply_max ? o->reply_max : HB_MCP_REPLY_BYTES));
	struct hb_call call = {.server = HB_PEER_INSTALLER,
			       .method = "POST",
			       .path = ROUTE,
			       .body = body,
			       .timeout_ms = timeout + GRACE_MS};
	json_t *answer = NULL;

	if (!body)
		hb_fail(err, "bad_request",
			"what is to be asked of the runtime is not plain UTF-8 text");
	else if (hb_mcp_key_name_check(o->key, err) == 0)
		answer = hb_client_call_sync(&call, &status, err);
	json_decref(body);
	if (answer && hb_reply_failed(status, answer, err) < 0) {
		json_decref(answer);
		return NULL;
	}
	return answer;
}

static int call(const struct hb_mcp_options *o, const char *tool, json_t *arguments,
		struct hb_mcp_result *out, struct hb_error *err)
{
	json_t *answer = ask(o, tool, arguments, err);
	int rc = answer ? hb_mcp_result_from_json(answer, out, err) : -1;

	json_decref(answer);
	return rc;
}

int hb_mcp_execute(const struct hb_mcp_options *o, const char *code, struct hb_mcp_result *out,
		   struct hb_error *err)
{
	return call(o, "execute", json_pack("{s:s}", "code", code), out, err);
}

int hb_mcp_resume(const struct hb_mcp_options *o, const char *execution, const char *action,
		  const char *content, struct hb_mcp_result *out, struct hb_error *err)
{
	return call(o, "resume",
		    json_pack("{s:s, s:s, s:s*}", "executionId", execution, "action", action,
			      "content", content),
		    out, err);
}

json_t *hb_mcp_list_tools(const struct hb_mcp_options *o, struct hb_error *err)
{
	json_t *answer = ask(o, "", json_object(), err), *tools = json_object_get(answer, "tools");

	if (answer && !json_is_array(tools))
		hb_fail(err, "bad_reply", "the installer's answer holds no list of tools");
	tools = json_is_array(tools) ? json_incref(tools) : NULL;
	json_decref(answer);
	return tools;
}
