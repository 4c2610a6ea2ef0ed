/*
 * Calls to our own servers over their Unix sockets. The server's uid is checked by SO_PEERCRED before a byte is
 * sent. Responses are parsed by the http-parser library (libevent 2.1's own client can't dial a Unix socket, and
 * libcurl in every process would cost two megabytes each). Idle connections are kept and used again.
 */
#ifndef HB_COMMON_CLIENT_H
#define HB_COMMON_CLIENT_H

#include <event2/event.h>
#include <jansson.h>
#include <stddef.h>

#include "common/error.h"
#include "common/peers.h"

struct hb_call {
	enum hb_peer server;
	const char *socket;        /* NULL: the server's own path; else another one (hermesctl --socket) */
	const char *method;        /* "GET", "POST" */
	const char *path;          /* with query */
	const char *header_name;   /* one extra header, or NULL */
	const char *header_value;
	const json_t *body;        /* borrowed; NULL for none */
	int timeout_ms;            /* of silence; 0: 10 s */
	/* Streaming replies (application/x-ndjson, and the data of text/event-stream): called for each line, parsed.
	 * The line is borrowed. Cancelling the call in here is allowed. */
	void (*on_line)(json_t *line, void *arg);
	/* Exactly once: status > 0 with the parsed body (borrowed, may be NULL for streams), or status 0
	 * and err (code unreachable, wrong_peer, timeout, bad_reply). */
	void (*on_done)(int status, const json_t *body, const struct hb_error *err, void *arg);
	void *arg;
};

struct hb_client;      /* pool of connections bound to an event base */
struct hb_client_call; /* one call under way */

/* Ignores SIGPIPE for the process. */
struct hb_client *hb_client_new(struct event_base *base);
void hb_client_free(struct hb_client *c); /* calls under way are dropped without on_done */
struct hb_client_call *hb_client_start(struct hb_client *c, const struct hb_call *call);
void hb_client_cancel(struct hb_client_call *call); /* no on_done */

/* Blocking, with an event loop of its own: for command line tools and worker processes. Returns the body as a new
 * reference and the status; NULL with err when there was no answer. A body with an "error" member is returned
 * like any other: callers use hb_reply_failed(). */
json_t *hb_client_call_sync(const struct hb_call *call, int *status, struct hb_error *err);

/* Turns {"error","code"} (or a status outside 2xx) into err and returns -1; 0 otherwise. */
int hb_reply_failed(int status, const json_t *body, struct hb_error *err);

#endif
