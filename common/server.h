/*
 * HTTP/1.1 with JSON over a Unix stream socket (libevent bufferevents, http-parser), one route table a server.
 *
 * For each request, in this order: peer uid by SO_PEERCRED (a stranger: 403), `before`, path and method against the
 * table (404, 405), the route's roles (403), body cap (413), strict JSON (400). Every refusal is JSON with a code, also
 * for what is not HTTP, and is told to `on_refused` (why: stranger, route, method, role, body, length, json,
 * target, headers, malformed, slow). Handlers get a decoded object.
 *
 * TCP listeners (the broker's and admin's) have no peer uid: routes are then open only if they carry HB_ROUTE_TCP,
 * and the program authenticates by header itself.
 */
#ifndef HB_COMMON_SERVER_H
#define HB_COMMON_SERVER_H

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/error.h"

#define HB_BODY_MAX 262144 /* WIRE: bodies at most 256 KiB */

struct hb_server;
struct hb_request;

enum hb_method { HB_GET = 1, HB_POST = 2, HB_PUT = 4, HB_OPTIONS = 8, HB_DELETE = 16 };

#define HB_ROUTE_TCP 1u     /* also reachable over a TCP listener */
#define HB_ROUTE_PREFIX 2u  /* path matches what begins with it (path ends in '/') */
#define HB_ROUTE_NOBODY 4u  /* no JSON body is expected (GET) */
#define HB_ROUTE_MAYBODY 8u /* no body at all is the same as {} */

typedef void (*hb_handler)(struct hb_request *req, void *ctx);

struct hb_route {
	enum hb_method method;
	const char *path;
	unsigned roles;  /* HB_PEER_BIT()s that may call it over the Unix socket */
	size_t body_max; /* 0: HB_BODY_MAX */
	unsigned flags;
	hb_handler handler;
};

struct hb_server_options {
	const struct hb_route *routes;
	size_t route_count;
	void *ctx;
	/* Sees each request before routing (TCP: Host, Origin, key checks). Return false after replying. */
	bool (*before)(struct hb_request *req, void *ctx);
	void (*on_refused)(const char *why, uid_t uid, const char *path, void *ctx);
	int max_connections;   /* 0: 512 */
	int request_seconds;   /* for a whole request from its first byte; 0: 15 */
	int idle_seconds;      /* between requests; 0: 60 */
	/* When every place is taken: a connection that has been sending one request for longer than this gives way to
	 * a new one, oldest first. 0: never, new ones wait. */
	int crowded_ms;
};

int hb_server_new(struct event_base *base, const struct hb_server_options *options, struct hb_server **out,
		  struct hb_error *err);
/* Socket made, bound and listened on by the calling process itself (so that its clients see its uid);
 * a stale socket file is replaced. The directory's group and mode guard it; the socket is 0666 within. */
int hb_server_listen_unix(struct hb_server *s, const char *path, struct hb_error *err);
/* host: a numeric address; port 0 picks one (returned). */
int hb_server_listen_tcp(struct hb_server *s, const char *host, int port, int *bound_port, struct hb_error *err);
void hb_server_free(struct hb_server *s);

bool hb_request_is_tcp(const struct hb_request *req);
uid_t hb_request_uid(const struct hb_request *req); /* (uid_t)-1 over TCP */
pid_t hb_request_pid(const struct hb_request *req);
unsigned hb_request_roles(const struct hb_request *req);
const char *hb_request_method(const struct hb_request *req);
const char *hb_request_path(const struct hb_request *req);  /* without the query */
const char *hb_request_tail(const struct hb_request *req);  /* after a PREFIX route's path */
const char *hb_request_query(const struct hb_request *req, const char *name); /* decoded; NULL when absent */
const char *hb_request_header(const struct hb_request *req, const char *name);
/* How often a header was sent: what must be there once (Host, a key) is ambiguous when sent twice. */
size_t hb_request_header_count(const struct hb_request *req, const char *name);
const json_t *hb_request_json(const struct hb_request *req); /* borrowed; NULL for NOBODY */

/* A header on whatever answer follows. */
void hb_reply_header(struct hb_request *req, const char *name, const char *value);
/* Exactly one reply per request, at once or later; the request is gone afterwards. `body` is stolen. */
void hb_reply_json(struct hb_request *req, int status, json_t *body);
void hb_reply_error(struct hb_request *req, int status, const struct hb_error *err); /* {"error","code"} */
void hb_reply_bytes(struct hb_request *req, int status, const char *type, const void *data, size_t len);

/* A chunked reply: start, any number of writes, end. */
void hb_reply_start(struct hb_request *req, int status, const char *type);
void hb_reply_write(struct hb_request *req, const void *data, size_t len);
void hb_reply_end(struct hb_request *req);

/* Called once when the other side vanishes before the reply is complete; afterwards req must not be used. */
void hb_request_on_close(struct hb_request *req, void (*closed)(void *arg), void *arg);

#endif
