/*
 * The Docker engine, as a worker calls it: HTTP/1.1 over its Unix socket, blocking, one connection
 * a call.
 *
 * Only what this file serialises reaches the engine: a method and a path that the code chose, and
 * JSON made from a validated operation. Nothing of a client's bytes is passed on, and no connection
 * is ever handed to anybody. The listening process must be root's: a socket that somebody else put
 * there is told nothing.
 */
#ifndef HB_DOCKER_ENGINE_H
#define HB_DOCKER_ENGINE_H

#include <http_parser.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/error.h"

struct hb_engine {
	const char *socket;
	int minor;           /* of the API version; 0: not negotiated yet */
	int64_t deadline_ms; /* hb_monotonic_ms; no call waits longer. 0: 30 s a call */
	bool finishing;      /* putting things in order: go on although the executor is stopping */
	bool negotiated;     /* since the last look of the caller: `minor` may be new */
	char release[32];    /* the engine's own version, when negotiated */
};

/* One answer as it comes in. */
struct hb_engine_stream {
	int fd;
	http_parser parser;
	struct hb_buf body; /* not yet taken by the caller */
	size_t body_max;
	bool headers, complete, failed, ended;
};

/* Asks for the version unless it is known. Codes: engine_unreachable, wrong_peer, engine_timeout,
 * engine_bad_reply, engine_version, interrupted. */
int hb_engine_negotiate(struct hb_engine *e, struct hb_error *err);

/* One call. Returns the HTTP status, or -1. `path` begins behind the version
 * ("/containers/json?all=1"); *answer (may be NULL) is a new reference, JSON null when there is no
 * body. When the engine says that it doesn't speak our version any more, the version is negotiated
 * anew and the call sent once again: it was refused before it was looked at. */
int hb_engine_call(struct hb_engine *e, const char *method, const char *path, const json_t *body,
		   json_t **answer, struct hb_error *err);
/* The same, and any status outside 2xx (or 304) becomes an error with the engine's own message:
 * code not_found for 404, conflict for 409, else engine_error. `what` names the thing, for the
 * message. */
int hb_engine_ask(struct hb_engine *e, const char *method, const char *path, const json_t *body,
		  const char *what, json_t **answer, struct hb_error *err);

/* Begin a call whose answer goes on for a while: returns once its headers are there, with any
 * status outside 2xx as an error. The caller polls .fd, calls pump, and takes what is in .body. */
int hb_engine_stream_open(struct hb_engine *e, const char *method, const char *path,
			  const json_t *body, const char *what, struct hb_engine_stream **out,
			  struct hb_error *err);
/* Read what has come without waiting. */
void hb_engine_stream_pump(struct hb_engine_stream *s);
void hb_engine_stream_close(struct hb_engine_stream *s);

/* Percent-encoded, all but unreserved characters and those in `also`. The caller frees it. */
char *hb_engine_escape(const char *text, const char *also);

#endif
