/*
 * The Model Context Protocol as far as prober and caller need it: streamable HTTP transport, initialize, tools/list,
 * tools/call.
 * Answers come as JSON or as an event stream (several events, comments, in pieces); both are read, whatever the
 * Content-Type says.
 */
#ifndef HB_INSTALLER_PROBE_MCP_H
#define HB_INSTALLER_PROBE_MCP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "broker/installer/probe.h"
#include "common/error.h"

#define HB_MCP_ADDRESS_MAX 300

/* Without a key: must be 401 with a Bearer challenge (RFC 6750). Code: mcp_failed. `address` is filled in with what
 * hb_challenge_address finds. */
int hb_mcp_challenge(uint16_t port, const char *path, int64_t deadline_ms, char address[HB_MCP_ADDRESS_MAX + 1],
		     struct hb_error *err);

struct hb_mcp_server {
	uint16_t port;
	const char *path, *key;
	const char *key_name;  /* for messages: "key hermes-miles" */
	struct hb_mcp_session *session; /* kept by the caller from one call to the next */
	int64_t deadline_ms;
	size_t reply_max;      /* 0: HB_PROBE_BODY_MAX */
};

/* Names of all tools, sorted; new reference. A session that the server no longer knows is replaced by a fresh one, once.
 * Codes: mcp_failed, key_refused (401, 403), and those of hb_probe_http. */
json_t *hb_mcp_tools(const struct hb_mcp_server *server, struct hb_error *err);

/* The `result` of tools/call; new reference. `arguments` is borrowed. It is sent a second time only when the server has
 * refused the session before anything could run (400, 404, 410). The same codes. */
json_t *hb_mcp_call(const struct hb_mcp_server *server, const char *tool, const json_t *arguments,
		    struct hb_error *err);

/* "Bearer" as one of the schemes of a WWW-Authenticate value (RFC 9110, 11.6.1). */
bool hb_challenge_has_bearer(const char *value);

/* The address under which the server knows itself, with its organisation where it has one: the challenge's
 * resource_metadata without "/.well-known/oauth-protected-resource" (RFC 9728, 3.1 and 5.1). "" when there is none that is
 * plainly http or https without a user part. */
void hb_challenge_address(const char *value, char address[HB_MCP_ADDRESS_MAX + 1]);

/* The JSON-RPC message with this id in a body of either kind; new reference or NULL when it is not (yet) there. */
json_t *hb_mcp_message(const char *body, size_t len, json_int_t id);

#endif
