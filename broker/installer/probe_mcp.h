/*
 * The Model Context Protocol as far as a prober needs it: streamable HTTP transport, initialize, tools/list.
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

/* Without a key: must be 401 with a Bearer challenge (RFC 6750). Code: mcp_failed. */
int hb_mcp_challenge(uint16_t port, const char *path, int64_t deadline_ms, struct hb_error *err);

/* Names of all tools, sorted; new reference. A session that the server no longer knows is replaced by a fresh one, once. */
json_t *hb_mcp_tools(uint16_t port, const char *path, const char *key, struct hb_mcp_session *session,
		     int64_t deadline_ms, struct hb_error *err);

/* "Bearer" as one of the schemes of a WWW-Authenticate value (RFC 9110, 11.6.1). */
bool hb_challenge_has_bearer(const char *value);

/* The JSON-RPC message with this id in a body of either kind; new reference or NULL when it is not (yet) there. */
json_t *hb_mcp_message(const char *body, size_t len, json_int_t id);

#endif
