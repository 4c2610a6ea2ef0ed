/* The MCP dialogue; see probe_mcp.h. Text from the server reaches error messages only cut and escaped. */
#include "broker/installer/probe_mcp.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "broker/installer/probe_http.h"
#include "common/buf.h"
#include "common/json.h"

#define PROTOCOL_VERSION "2025-06-18"
#define PAGES_MAX 50
#define TOOLS_MAX 1000
#define LONG_BODY 65536
#define CALL_ID 1001 /* above those of initialize and of the pages of a list */

static const char initialize[] =
	"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"" PROTOCOL_VERSION
	"\",\"capabilities\":{},\"clientInfo\":{\"name\":\"hermes-broker\",\"version\":\"" HB_VERSION "\"}}}";
static const char initialized[] = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";

struct dialogue {
	struct hb_mcp_server server;
	json_int_t wanted; /* id of the message that is waited for */
	int status;        /* of the last answer */
};

bool hb_challenge_has_bearer(const char *value)
{
	bool quoted = false, at_start = true;

	for (const char *p = value; *p; p++) {
		if (quoted) {
			if (*p == '\\' && p[1])
				p++;
			else if (*p == '"')
				quoted = false;
			continue;
		}
		if (at_start && !strncasecmp(p, "bearer", 6) && (!p[6] || p[6] == ' ' || p[6] == ','))
			return true;
		if (*p == '"')
			quoted = true;
		if (*p == ',')
			at_start = true;
		else if (*p != ' ' && *p != '\t')
			at_start = false;
	}
	return false;
}

/* A request of the server's own may have the same number. */
static bool answers(const json_t *message, json_int_t id)
{
	return json_is_integer(json_object_get(message, "id")) && hb_json_int(message, "id", -1) == id &&
	       !json_object_get(message, "method");
}

/* One message, or an array of them (older servers answer in batches). */
static json_t *pick(const char *text, size_t len, json_int_t id)
{
	json_t *value = hb_json_parse_foreign(text, len, NULL), *found = NULL, *item;
	size_t i;

	if (json_is_object(value)) {
		if (answers(value, id))
			found = json_incref(value);
	} else if (json_is_array(value)) {
		json_array_foreach(value, i, item)
			if (!found && answers(item, id))
				found = json_incref(item);
	}
	json_decref(value);
	return found;
}

/* The event stream format of the HTML standard: "data" lines are joined by newlines, an empty line ends an event; comments
 * and other fields don't matter here. The last event may lack its empty line when the stream was cut. */
static json_t *pick_event(const char *body, size_t len, json_int_t id)
{
	struct hb_buf data = HB_BUF_INIT;
	json_t *found = NULL;
	size_t at = 0;

	while (!found && at <= len) {
		size_t n = 0;
		const char *line = body + at;

		while (at + n < len && line[n] != '\n' && line[n] != '\r')
			n++;
		if (n == 0) {
			if (data.len)
				found = pick(data.data, data.len, id);
			hb_buf_clear(&data);
		} else if (n >= 5 && !strncmp(line, "data:", 5)) {
			size_t skip = n > 5 && line[5] == ' ' ? 6 : 5;

			if (data.len)
				hb_buf_addc(&data, '\n');
			hb_buf_add(&data, line + skip, n - skip);
		}
		at += n;
		if (at + 1 < len && body[at] == '\r' && body[at + 1] == '\n')
			at++;
		at++;
	}
	if (!found && data.len)
		found = pick(data.data, data.len, id);
	hb_buf_free(&data);
	return found;
}

json_t *hb_mcp_message(const char *body, size_t len, json_int_t id)
{
	size_t at = 0;

	while (at < len && isspace((unsigned char)body[at]))
		at++;
	if (at < len && (body[at] == '{' || body[at] == '['))
		return pick(body + at, len - at, id);
	return len ? pick_event(body, len, id) : NULL;
}

/* Looked for after each piece. A long body is not read again and again: only where an event of a stream has ended. */
static bool has_message(const struct hb_probe_reply *reply, void *arg)
{
	const struct dialogue *d = arg;
	const struct hb_buf *body = &reply->body;
	json_t *message;

	if (!d->wanted || reply->status != 200 || !body->len || !memchr("\n}]", body->data[body->len - 1], 3))
		return false;
	if (body->len > LONG_BODY && (body->data[0] == '{' || body->data[0] == '[' ||
				      (strcmp(body->data + body->len - 2, "\n\n") != 0 &&
				       strcmp(body->data + body->len - 4, "\r\n\r\n") != 0)))
		return false;
	message = hb_mcp_message(reply->body.data, reply->body.len, d->wanted);
	json_decref(message);
	return message != NULL;
}

static int post(struct dialogue *d, const char *body, json_int_t wanted, bool with_session,
		struct hb_probe_reply *reply, struct hb_error *err)
{
	const struct hb_mcp_server *s = &d->server;
	struct hb_probe_call call = {.port = s->port, .method = "POST", .path = s->path, .bearer = s->key, .body = body,
				     .deadline_ms = s->deadline_ms, .body_max = s->reply_max, .enough = has_message,
				     .arg = d};

	if (with_session) {
		call.session = s->session->id;
		call.version = s->session->version;
	}
	d->wanted = wanted;
	d->status = 0;
	if (hb_probe_http(&call, reply, err) < 0)
		return -1;
	d->status = reply->status;
	return 0;
}

void hb_challenge_address(const char *value, char address[HB_MCP_ADDRESS_MAX + 1])
{
	static const char name[] = "resource_metadata=\"", known[] = "/.well-known/oauth-protected-resource";
	const char *at = strcasestr(value, name), *end, *cut;

	address[0] = '\0';
	if (!at)
		return;
	at += sizeof(name) - 1;
	end = at + strcspn(at, "\"");
	cut = strstr(at, known);
	if (*end != '"' || !cut || cut >= end || (strncmp(at, "http://", 7) != 0 && strncmp(at, "https://", 8) != 0))
		return;
	if ((size_t)(end - at) - (sizeof(known) - 1) > HB_MCP_ADDRESS_MAX)
		return;
	for (const char *p = at; p < end; p++)
		if (!isalnum((unsigned char)*p) && !strchr(":/.-_~[]%", *p))
			return;
	snprintf(address, HB_MCP_ADDRESS_MAX + 1, "%.*s%.*s", (int)(cut - at), at, (int)(end - cut - (sizeof(known) - 1)),
		 cut + sizeof(known) - 1);
}

int hb_mcp_challenge(uint16_t port, const char *path, int64_t deadline_ms, char address[HB_MCP_ADDRESS_MAX + 1],
		     struct hb_error *err)
{
	struct dialogue d = {.server = {.port = port, .path = path, .deadline_ms = deadline_ms}};
	struct hb_probe_reply reply = {0};
	int rc = -1;

	if (post(&d, initialize, 0, false, &reply, err) < 0)
		goto out;
	if (reply.status >= 200 && reply.status < 300)
		hb_fail(err, "mcp_failed", "POST %s answers %d without a key: it must ask for one (401)", path,
			reply.status);
	else if (reply.status != 401)
		hb_fail(err, "mcp_failed", "POST %s without a key answers %d instead of 401", path, reply.status);
	else if (!hb_challenge_has_bearer(reply.challenges.data ? reply.challenges.data : ""))
		hb_fail(err, "mcp_failed", "POST %s answers 401 without a Bearer challenge", path);
	else {
		hb_challenge_address(reply.challenges.data, address);
		rc = 0;
	}
out:
	hb_probe_reply_free(&reply);
	return rc;
}

/* The result member of the answer to request `id`; new reference. */
static json_t *result_of(const struct dialogue *d, const struct hb_probe_reply *reply, json_int_t id,
			 const char *method, struct hb_error *err)
{
	json_t *message = NULL, *result = NULL;

	if (reply->status == 401 || reply->status == 403) {
		hb_fail(err, "key_refused", "%s: the runtime refuses the %s (%d)", method, d->server.key_name,
			reply->status);
		return NULL;
	}
	if (reply->status != 200) {
		hb_fail(err, "mcp_failed", "%s answers %d instead of 200", method, reply->status);
		return NULL;
	}
	message = hb_mcp_message(reply->body.data ? reply->body.data : "", reply->body.len, id);
	result = json_object_get(message, "result");
	if (json_is_object(result))
		json_incref(result);
	else if (json_object_get(message, "error"))
		hb_fail(err, "mcp_failed", "%s answers with error %lld", method,
			hb_json_int(json_object_get(message, "error"), "code", 0));
	else
		hb_fail(err, "mcp_failed", "the answer to %s holds no JSON-RPC result", method);
	if (!json_is_object(result))
		result = NULL;
	json_decref(message);
	return result;
}

/* What goes back into a request header must not end it. */
static bool is_visible(const char *text)
{
	for (; *text; text++)
		if (*text < 0x21 || *text > 0x7e)
			return false;
	return true;
}

static int open_session(struct dialogue *d, struct hb_error *err)
{
	struct hb_probe_reply reply = {0};
	json_t *result = NULL;
	int rc = -1;

	*d->server.session = (struct hb_mcp_session){0};
	if (post(d, initialize, 1, false, &reply, err) < 0)
		goto out;
	result = result_of(d, &reply, 1, "initialize", err);
	if (!result)
		goto out;
	snprintf(d->server.session->version, sizeof(d->server.session->version), "%s",
		 hb_json_text(result, "protocolVersion", PROTOCOL_VERSION));
	snprintf(d->server.session->id, sizeof(d->server.session->id), "%s", reply.session);
	if (!is_visible(d->server.session->version) || !is_visible(d->server.session->id)) {
		hb_fail(err, "mcp_failed", "initialize answers with an unusable session id or version");
		goto out;
	}
	hb_probe_reply_free(&reply);
	if (post(d, initialized, 0, true, &reply, err) < 0)
		goto out;
	if (reply.status < 200 || reply.status > 299) {
		hb_fail(err, "mcp_failed", "notifications/initialized answers %d", reply.status);
		goto out;
	}
	rc = 0;
out:
	if (rc < 0)
		*d->server.session = (struct hb_mcp_session){0};
	json_decref(result);
	hb_probe_reply_free(&reply);
	return rc;
}

/* One page; *cursor is taken and replaced (NULL: the last). */
static int list_page(struct dialogue *d, json_int_t id, char **cursor, json_t *names, struct hb_error *err)
{
	json_t *params = *cursor ? json_pack("{s:s}", "cursor", *cursor) : json_object(), *tool, *result = NULL;
	json_t *request = json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id", id, "method", "tools/list", "params",
				    params);
	char *body = json_dumps(request, JSON_COMPACT);
	struct hb_probe_reply reply = {0};
	int rc = -1;
	size_t i;

	free(*cursor);
	*cursor = NULL;
	if (!body || post(d, body, id, true, &reply, err) < 0)
		goto out;
	result = result_of(d, &reply, id, "tools/list", err);
	if (!result)
		goto out;
	json_array_foreach(json_object_get(result, "tools"), i, tool)
		if (json_array_size(names) < TOOLS_MAX)
			json_array_append_new(names, json_string(hb_json_text(tool, "name", "?")));
	if (hb_json_text(result, "nextCursor", "")[0])
		*cursor = hb_strdup(hb_json_text(result, "nextCursor", ""));
	rc = 0;
out:
	free(body);
	json_decref(request);
	json_decref(result);
	hb_probe_reply_free(&reply);
	return rc;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(json_string_value(*(json_t *const *)a), json_string_value(*(json_t *const *)b));
}

static json_t *sorted(json_t *names)
{
	size_t n = json_array_size(names);
	json_t **list = hb_calloc(n + 1, sizeof(*list)), *out = json_array();

	for (size_t i = 0; i < n; i++)
		list[i] = json_array_get(names, i);
	qsort(list, n, sizeof(*list), by_text);
	for (size_t i = 0; i < n; i++)
		json_array_append(out, list[i]);
	free(list);
	json_decref(names);
	return out;
}

static json_t *list_all(struct dialogue *d, struct hb_error *err)
{
	json_t *names = json_array();
	char *cursor = NULL;
	int page = 0;

	do {
		if (list_page(d, 2 + page, &cursor, names, err) < 0) {
			json_decref(names);
			return NULL;
		}
	} while (cursor && ++page < PAGES_MAX);
	free(cursor);
	return sorted(names);
}

json_t *hb_mcp_tools(const struct hb_mcp_server *server, struct hb_error *err)
{
	struct dialogue d = {.server = *server};

	if (server->session->version[0]) {
		json_t *names = list_all(&d, err);

		/* Any answer but a good one may mean that the server forgot the session: servers say 400, 401, 404, 410
		 * or 503 for that. One fresh start tells. No answer at all is not about the session. */
		if (names || d.status == 0)
			return names;
	}
	return open_session(&d, err) < 0 ? NULL : list_all(&d, err);
}

static json_t *call_once(struct dialogue *d, const char *body, struct hb_error *err)
{
	struct hb_probe_reply reply = {0};
	json_t *result = NULL;

	if (post(d, body, CALL_ID, true, &reply, err) == 0)
		result = result_of(d, &reply, CALL_ID, "tools/call", err);
	hb_probe_reply_free(&reply);
	return result;
}

json_t *hb_mcp_call(const struct hb_mcp_server *server, const char *tool, const json_t *arguments,
		    struct hb_error *err)
{
	struct dialogue d = {.server = *server};
	json_t *request = json_pack("{s:s, s:i, s:s, s:{s:s, s:O}}", "jsonrpc", "2.0", "id", CALL_ID, "method",
				    "tools/call", "params", "name", tool, "arguments", arguments), *result = NULL;
	char *body = json_dumps(request, JSON_COMPACT);
	bool fresh = !server->session->version[0];

	if (!body)
		hb_fail(err, "bad_request", "the call can't be written as JSON");
	else if (!fresh || open_session(&d, err) == 0)
		result = call_once(&d, body, err);
	/* These are given before a call is looked at; whatever else went wrong, it may have run. */
	if (body && !result && !fresh && (d.status == 400 || d.status == 404 || d.status == 410) &&
	    open_session(&d, err) == 0)
		result = call_once(&d, body, err);
	json_decref(request);
	free(body);
	return result;
}
