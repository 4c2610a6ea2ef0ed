/* What client.c (calls and connections) and client_reply.c (answers) share; nobody else includes
 * it. */
#ifndef HB_COMMON_CLIENT_INTERNAL_H
#define HB_COMMON_CLIENT_INTERNAL_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <http_parser.h>
#include <sys/queue.h>

#include "common/buf.h"
#include "common/client.h"

#define REPLY_MAX (16 << 20)     /* a long audit tail is under 1 MiB */
#define LINE_MAX (1 << 20)
#define IDLE_SECONDS 30          /* our servers wait 60 */
#define IDLE_PER_SERVER 4
#define TIMEOUT_MS 10000
#define CONNECT_RETRY_MS 10      /* the server's backlog is full */

struct hb_client_conn {
	TAILQ_ENTRY(hb_client_conn) next;
	struct hb_client *client;
	enum hb_peer server;
	struct bufferevent *bev;
	struct event *idle;          /* lets go of a connection nobody uses */
	struct hb_client_call *call;
	bool reused;
};

enum hb_stream { STREAM_NONE, STREAM_NDJSON, STREAM_EVENTS };

struct hb_client_call {
	TAILQ_ENTRY(hb_client_call) next;
	struct hb_client *client;    /* NULL once cancelled inside a callback */
	struct hb_client_conn *conn;
	struct event
		*timer; /* silence; also the next try to connect, and failures told from the loop */
	struct hb_buf head, body;    /* the request as sent */
	enum hb_peer server;
	int timeout_ms, waited_ms;
	void (*on_line)(json_t *line, void *arg);
	void (*on_done)(int status, const json_t *body, const struct hb_error *err, void *arg);
	void *arg;
	struct hb_error failure;     /* code set: to be told from the loop */
	bool sent, retried, in_callback, answered;

	http_parser parser;
	struct hb_buf field, value, reply;
	enum hb_stream stream;
	bool value_seen, complete;
	size_t line_at;              /* lines of `reply` before this are done */
};

struct hb_client {
	struct event_base *base;
	TAILQ_HEAD(hb_conn_idle, hb_client_conn) idle;     /* newest first */
	TAILQ_HEAD(hb_call_list, hb_client_call) calls;
};

/* client.c */
void hb_call_free(struct hb_client_call *call);
/* Tell the caller and free the call. */
void hb_call_failed(struct hb_client_call *call, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* client_reply.c */
extern const http_parser_settings hb_call_settings;
/* One line, or every whole line that has come, to the caller. False: the call is gone. */
bool hb_call_line(struct hb_client_call *call, const char *text, size_t len);
bool hb_call_lines(struct hb_client_call *call);

#endif
