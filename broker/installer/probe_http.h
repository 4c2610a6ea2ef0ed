/*
 * One HTTP/1.1 request to the payload on 127.0.0.1 (RFC 9112), for a worker that has nothing else to do: blocking, with
 * one deadline over everything. The reply is parsed by the http-parser library and capped.
 */
#ifndef HB_INSTALLER_PROBE_HTTP_H
#define HB_INSTALLER_PROBE_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/error.h"

#define HB_PROBE_BODY_MAX (1u << 20)

struct hb_probe_reply {
	int status;
	struct hb_buf body;
	struct hb_buf challenges; /* values of all WWW-Authenticate fields, joined by ", " */
	char type[128];           /* Content-Type, "" when there is none */
	char session[256];        /* Mcp-Session-Id */
};

struct hb_probe_call {
	uint16_t port;
	const char *method, *path;
	const char *bearer;  /* NULL or "": no Authorization */
	const char *session; /* NULL or "": no Mcp-Session-Id */
	const char *version; /* NULL or "": no MCP-Protocol-Version */
	const char *body;    /* JSON, or NULL */
	int64_t deadline_ms; /* hb_monotonic_ms */
	size_t body_max;     /* 0: HB_PROBE_BODY_MAX */
	/* An event stream may stay open after the answer: true once the body holds what was asked for. */
	bool (*enough)(const struct hb_probe_reply *reply, void *arg);
	void *arg;
};

/* Codes: unreachable, timeout, bad_reply, too_large. The reply is always to be freed. */
int hb_probe_http(const struct hb_probe_call *call, struct hb_probe_reply *reply, struct hb_error *err);
void hb_probe_reply_free(struct hb_probe_reply *reply);

#endif
