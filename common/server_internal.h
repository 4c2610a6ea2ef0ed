/* What server.c (connections) and server_reply.c (requests and replies) share; nobody else includes
 * it. */
#ifndef HB_COMMON_SERVER_INTERNAL_H
#define HB_COMMON_SERVER_INTERNAL_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <http_parser.h>
#include <sys/queue.h>

#include "common/buf.h"
#include "common/ids.h"
#include "common/server.h"

/* Limits, each with its reason. */
#define HB_HEADERS_MAX 16384 /* bytes of request line and headers: a browser sends about 2 KiB */
#define HB_HEADER_COUNT_MAX 64      /* a browser sends about 20 */
#define HB_QUERY_MAX 16             /* no route of ours reads more than 3 */
/* whole request from its first byte, so that a trickle can't hold a place */
#define HB_REQUEST_SECONDS 15
#define HB_IDLE_SECONDS 60          /* between requests; our own client lets go after 30 */
/* a connection just accepted has its request on the way, and is not idle yet */
#define HB_FRESH_MS 20
#define HB_WRITE_SECONDS 30         /* a reader that takes nothing */
#define HB_LINGER_SECONDS 2         /* reading on after a refusal, so that the refusal arrives */
#define HB_LINGER_BYTES (1 << 20)
#define HB_BACKLOG_MAX (8 << 20)    /* unsent bytes of a chunked reply: the reader is gone */
#define HB_PIPELINE_MAX 65536       /* bytes read ahead while a request is answered */

struct hb_pair {
	char *name, *value;
};

struct hb_request {
	struct hb_conn *conn; /* NULL once the other side is gone */
	void *ctx;
	uid_t uid;
	pid_t pid;
	unsigned roles;
	bool tcp;
	const char *method;
	char *path;           /* cut at '?' */
	char *query_text;     /* what came after it, or NULL */
	struct hb_pair headers[HB_HEADER_COUNT_MAX];
	size_t header_count;
	struct hb_pair query[HB_QUERY_MAX];
	size_t query_count;
	bool query_parsed;
	const struct hb_route *route;
	size_t body_max;
	json_t *json;
	struct hb_buf reply_headers;
	bool replied;         /* an answer has begun */
	bool chunked;         /* ... and more of it may follow */
	bool keep_alive;
	void (*closed)(void *arg);
	void *closed_arg;
};

struct hb_conn {
	TAILQ_ENTRY(hb_conn) next;
	struct hb_server *server;
	struct bufferevent *bev;
	struct event *timer;       /* meaning depends on state */
	struct event *resume;      /* look at input that came while a request was answered */
	http_parser parser;
	enum {
		HB_CONN_IDLE,      /* nothing of a request has come */
		HB_CONN_READING,   /* part of a request has come */
		HB_CONN_BUSY,      /* a handler has the request */
		HB_CONN_FLUSHING,  /* last answer is being sent, then close */
		HB_CONN_LINGERING  /* ... reading and dropping input until then */
	} state;
	uid_t uid;
	pid_t pid;
	unsigned roles;
	bool tcp;
	struct hb_request *req;    /* being read or answered */
	struct hb_buf url, name, value, body;
	bool value_open;           /* the last header callback was a value */
	size_t header_bytes;
	bool headers_done;
	bool feeding;              /* inside feed(): it looks at the rest of the input itself */
	bool complete;             /* the parser saw the end of the message */
	bool unread;               /* the message was answered before its body was read */
	bool doomed;               /* to be dropped as soon as the loop comes round */
	size_t lingered;
	int64_t since_ms;          /* accepted, or the first byte of this request; for crowded_ms */
};

struct hb_server_listener {
	struct hb_server *server;
	struct evconnlistener *listener;
	bool tcp;
};

#define HB_LISTENERS_MAX 8

struct hb_server {
	struct event_base *base;
	struct hb_server_options options;
	struct hb_server_listener listeners[HB_LISTENERS_MAX];
	size_t listener_count;
	TAILQ_HEAD(hb_conn_list, hb_conn) conns; /* oldest activity first */
	int conn_count, conn_max, request_seconds, idle_seconds;
	bool paused;          /* not accepting: every place is taken, or descriptors ran out */
	struct event *retry;  /* ... and then this looks again */
};

/* server.c */
void hb_conn_arm(struct hb_conn *conn, int seconds);

/* server_http.c */
void hb_conn_feed(struct hb_conn *conn);
void hb_conn_answered(struct hb_conn *conn, bool keep_alive);
void hb_conn_too_slow(struct hb_conn *conn);

/* server_reply.c */
struct hb_request *hb_request_new(struct hb_conn *conn);
void hb_request_free(struct hb_request *req);
/* The other side is gone: tell the handler's `closed`, or keep the request until the handler has
 * replied. */
void hb_request_orphan(struct hb_request *req);
void hb_reply_refusal(struct hb_request *req, int status, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
