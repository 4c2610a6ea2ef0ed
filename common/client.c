/*
 * Calls to our own servers: one connection a call, kept for the next call to the same server.
 *
 * The listening process is judged by SO_PEERCRED before a byte is written: who can put a socket
 * file in the run directory could otherwise read what we send.  A kept connection may have been
 * closed by the server meanwhile. On a Unix socket that is told apart exactly: EPIPE when nothing
 * more could be sent, ECONNRESET when the server closed with our bytes unread.  Only then, and only
 * when no byte of an answer came, is the call sent once more; a plain end means that the server had
 * read the request and may have acted.
 */
#include "common/client.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/client_internal.h"
#include "common/json.h"

static void try_start(struct hb_client_call *call);

static void
arm(struct event *timer, int ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000L};

	event_add(timer, &tv);
}

static void
conn_free(struct hb_client_conn *conn)
{
	bufferevent_free(conn->bev);
	event_free(conn->idle);
	free(conn);
}

void
hb_call_free(struct hb_client_call *call)
{
	if (call->conn != NULL)
		conn_free(call->conn);
	event_free(call->timer);
	if (call->head.len > 0)
		explicit_bzero(call->head.data, call->head.len); /* may hold a shared secret */
	hb_buf_free(&call->head);
	hb_buf_free(&call->body);
	hb_buf_free(&call->field);
	hb_buf_free(&call->value);
	hb_buf_free(&call->reply);
	free(call);
}

/* Take the call from the client, so that whatever its callback does can't reach it any more. */
static void
detach(struct hb_client_call *call)
{
	if (call->client == NULL)
		return;
	TAILQ_REMOVE(&call->client->calls, call, next);
	call->client = NULL;
}

static void
done(struct hb_client_call *call, int status, const json_t *body, const struct hb_error *err)
{
	detach(call);
	event_del(call->timer);
	if (call->conn != NULL) {
		conn_free(call->conn);
		call->conn = NULL;
	}
	call->in_callback = true;
	call->on_done(status, body, err, call->arg);
	hb_call_free(call);
}

void
hb_call_failed(struct hb_client_call *call, const char *code, const char *fmt, ...)
{
	struct hb_error err;
	va_list ap;

	va_start(ap, fmt);
	hb_vfail(&err, code, fmt, ap);
	va_end(ap);
	done(call, 0, NULL, &err);
}

static void on_idle_event(struct bufferevent *bev, short what, void *arg);

/* Keep the connection for the next call, unless the server won't or enough are kept. */
static void
conn_keep(struct hb_client_call *call)
{
	struct hb_client *client = call->client;
	struct hb_client_conn *conn = call->conn, *other;
	int count = 0;

	if (!http_should_keep_alive(&call->parser) ||
	    evbuffer_get_length(bufferevent_get_input(conn->bev)) > 0)
		return;
	TAILQ_FOREACH(other, &client->idle, next)
		count += other->server == conn->server;
	if (count >= IDLE_PER_SERVER)
		return;
	call->conn = NULL;
	conn->call = NULL;
	bufferevent_setcb(conn->bev, NULL, NULL, on_idle_event, conn);
	TAILQ_INSERT_HEAD(&client->idle, conn, next);
	arm(conn->idle, IDLE_SECONDS * 1000);
}

static void
finish(struct hb_client_call *call)
{
	struct hb_error err;
	json_t *body = NULL;
	int status = call->parser.status_code;

	if (call->stream != STREAM_NONE) {
		if (call->reply.len > 0 && !hb_call_line(call, call->reply.data, call->reply.len))
			return;
	} else if (call->reply.len > 0) {
		body = hb_json_parse(call->reply.data, call->reply.len, &err);
		if (body == NULL) {
			hb_call_failed(call, "bad_reply",
			       "%s answered %d with something that is not JSON: %s",
			       hb_peer_name(call->server), status, err.message);
			return;
		}
	}
	conn_keep(call);
	done(call, status, body, NULL);
	json_decref(body);
}

static void
on_read(struct bufferevent *bev, void *arg)
{
	struct hb_client_conn *conn = arg;
	struct hb_client_call *call = conn->call;
	struct evbuffer *in = bufferevent_get_input(bev);
	size_t len;

	arm(call->timer, call->timeout_ms);
	while ((len = evbuffer_get_contiguous_space(in)) > 0) {
		const char *data = (const char *)evbuffer_pullup(in, (ev_ssize_t)len);
		size_t used = http_parser_execute(&call->parser, &hb_call_settings, data, len);
		enum http_errno code = HTTP_PARSER_ERRNO(&call->parser);

		call->answered = true;
		evbuffer_drain(in, used);
		if (code != HPE_OK && code != HPE_PAUSED) {
			hb_call_failed(call, "bad_reply", "%s sent no valid HTTP answer (%s)",
			       hb_peer_name(call->server),
			       call->reply.len > REPLY_MAX ? "too long"
							   : http_errno_description(code));
			return;
		}
		if (call->stream != STREAM_NONE && !hb_call_lines(call))
			return;
		if (call->complete) {
			http_parser_pause(&call->parser, 0);
			finish(call);
			return;
		}
	}
}

static void
on_event(struct bufferevent *bev, short what, void *arg)
{
	struct hb_client_conn *conn = arg;
	struct hb_client_call *call = conn->call;
	int error = errno;
	bool unprocessed = (what & BEV_EVENT_ERROR) && (error == EPIPE || error == ECONNRESET);

	if (!call->answered && conn->reused && !call->retried && unprocessed) {
		call->retried = true;
		call->conn = NULL;
		conn_free(conn);
		try_start(call);
		return;
	}
	/* An answer without a length ends with the connection. */
	if ((what & BEV_EVENT_EOF) && call->answered) {
		http_parser_execute(&call->parser, &hb_call_settings, NULL, 0);
		if (call->complete) {
			finish(call);
			return;
		}
	}
	if (what & BEV_EVENT_ERROR)
		hb_call_failed(call, "unreachable", "the connection to %s broke: %s",
		       hb_peer_name(call->server), strerror(error));
	else
		hb_call_failed(call, "unreachable",
		       "%s ended the connection before its answer was complete",
		       hb_peer_name(call->server));
}

static void
on_idle_event(struct bufferevent *bev, short what, void *arg)
{
	struct hb_client_conn *conn = arg;

	TAILQ_REMOVE(&conn->client->idle, conn, next);
	conn_free(conn);
}

static void
on_idle_timer(evutil_socket_t fd, short what, void *arg)
{
	on_idle_event(NULL, 0, arg);
}

/* ---- the connection ---- */

/* Returns 0, -1 with err, or 1: the backlog is full, try again. */
static int
conn_open(struct hb_client *client, enum hb_peer server, struct hb_client_conn **out,
	  struct hb_error *err)
{
	const char *path = hb_peer_socket(server), *name = hb_peer_name(server);
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct ucred cred = {.uid = (uid_t)-1};
	socklen_t len = sizeof(cred);
	struct hb_client_conn *conn;
	int fd;

	if (path == NULL || strlen(path) >= sizeof(sun.sun_path))
		return hb_fail(err, "unreachable", "%s has no socket", name);
	memcpy(sun.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return hb_fail_errno(err, "unreachable", "cannot create a socket for %s", name);
	if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) != 0) {
		int error = errno;

		close(fd);
		if (error == EAGAIN)
			return 1;
		errno = error;
		if (error == ENOENT || error == ECONNREFUSED)
			return hb_fail_errno(err, "unreachable", "%s is not running (%s)", name,
					     path);
		return hb_fail_errno(err, "unreachable", "cannot reach %s at %s", name, path);
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0 ||
	    cred.uid != hb_peer_uid(server)) {
		close(fd);
		return hb_fail(err, "wrong_peer",
			       "%s is served by uid %u and not by %s (uid %u): nothing was sent",
			       path, (unsigned)cred.uid, name, (unsigned)hb_peer_uid(server));
	}
	conn = hb_calloc(1, sizeof(*conn));
	conn->client = client;
	conn->server = server;
	conn->bev = bufferevent_socket_new(client->base, fd, BEV_OPT_CLOSE_ON_FREE);
	conn->idle = evtimer_new(client->base, on_idle_timer, conn);
	if (conn->bev == NULL || conn->idle == NULL)
		abort();
	*out = conn;
	return 0;
}

static struct hb_client_conn *
conn_reuse(struct hb_client *client, enum hb_peer server)
{
	struct hb_client_conn *conn;
	char byte;

	for (conn = TAILQ_FIRST(&client->idle); conn != NULL; conn = TAILQ_NEXT(conn, next))
		if (conn->server == server)
			break;
	if (conn == NULL)
		return NULL;
	TAILQ_REMOVE(&client->idle, conn, next);
	event_del(conn->idle);
	conn->reused = true;
	/* Silence is the only right answer of an idle connection. */
	if (recv(bufferevent_getfd(conn->bev), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
	    errno != EAGAIN) {
		conn_free(conn);
		return NULL;
	}
	return conn;
}

static void
try_start(struct hb_client_call *call)
{
	struct hb_client_conn *conn = call->retried ? NULL : conn_reuse(call->client, call->server);
	int rc = conn != NULL ? 0 : conn_open(call->client, call->server, &conn, &call->failure);

	if (rc == 1) {
		call->waited_ms += CONNECT_RETRY_MS;
		if (call->waited_ms > call->timeout_ms)
			hb_fail(&call->failure, "timeout", "%s takes no more connections",
				hb_peer_name(call->server));
		arm(call->timer, CONNECT_RETRY_MS);
		return;
	}
	if (conn == NULL) { /* the failure is told from the loop */
		arm(call->timer, 0);
		return;
	}
	call->conn = conn;
	conn->call = call;
	call->sent = true;
	http_parser_init(&call->parser, HTTP_RESPONSE);
	call->parser.data = call;
	bufferevent_setcb(conn->bev, on_read, NULL, on_event, conn);
	bufferevent_enable(conn->bev, EV_READ | EV_WRITE);
	bufferevent_write(conn->bev, call->head.data, call->head.len);
	if (call->body.len > 0)
		bufferevent_write(conn->bev, call->body.data, call->body.len);
	arm(call->timer, call->timeout_ms);
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct hb_client_call *call = arg;

	if (call->failure.code[0] != '\0') {
		struct hb_error err = call->failure;

		done(call, 0, NULL, &err);
	} else if (!call->sent || call->conn == NULL) {
		try_start(call);
	} else {
		hb_call_failed(call, "timeout", "%s was silent for %d ms",
			       hb_peer_name(call->server), call->timeout_ms);
	}
}

/* ---- calls ---- */

static int
request_build(struct hb_client_call *call, const struct hb_call *wanted, struct hb_error *err)
{
	const char *value = wanted->header_value != NULL ? wanted->header_value : "";

	if (strpbrk(wanted->path, " \r\n") != NULL || strpbrk(value, "\r\n") != NULL)
		return hb_fail(err, "bad_request", "the call to %s holds a line break",
			       hb_peer_name(call->server));
	if (wanted->body != NULL) {
		char *text = json_dumps(wanted->body, JSON_COMPACT | JSON_ENSURE_ASCII);

		if (text == NULL)
			return hb_fail(err, "bad_request",
				       "the call to %s can't be written as JSON",
				       hb_peer_name(call->server));
		hb_buf_adds(&call->body, text);
		free(text);
	}
	hb_buf_printf(&call->head, "%s %s HTTP/1.1\r\nHost: localhost\r\n", wanted->method,
		      wanted->path);
	if (wanted->header_name != NULL)
		hb_buf_printf(&call->head, "%s: %s\r\n", wanted->header_name, value);
	if (wanted->body != NULL)
		hb_buf_printf(&call->head,
			      "Content-Type: application/json\r\nContent-Length: %zu\r\n",
			      call->body.len);
	hb_buf_adds(&call->head, "\r\n");
	return 0;
}

struct hb_client *
hb_client_new(struct event_base *base)
{
	struct hb_client *client = hb_calloc(1, sizeof(*client));

	signal(SIGPIPE, SIG_IGN); /* a server that has gone is an error of the call, not our end */
	client->base = base;
	TAILQ_INIT(&client->idle);
	TAILQ_INIT(&client->calls);
	return client;
}

void
hb_client_free(struct hb_client *client)
{
	struct hb_client_conn *conn;
	struct hb_client_call *call;

	if (client == NULL)
		return;
	while ((call = TAILQ_FIRST(&client->calls)) != NULL)
		hb_client_cancel(call); /* NOLINT: TAILQ_REMOVE isn't followed */
	while ((conn = TAILQ_FIRST(&client->idle)) != NULL) {
		TAILQ_REMOVE(&client->idle, conn, next);
		conn_free(conn);
	}
	free(client);
}

struct hb_client_call *
hb_client_start(struct hb_client *client, const struct hb_call *wanted)
{
	struct hb_client_call *call = hb_calloc(1, sizeof(*call));

	call->client = client;
	call->server = wanted->server;
	call->timeout_ms = wanted->timeout_ms > 0 ? wanted->timeout_ms : TIMEOUT_MS;
	call->on_line = wanted->on_line;
	call->on_done = wanted->on_done;
	call->arg = wanted->arg;
	call->timer = evtimer_new(client->base, on_timer, call);
	if (call->timer == NULL)
		abort();
	TAILQ_INSERT_TAIL(&client->calls, call, next);
	if (request_build(call, wanted, &call->failure) == 0)
		try_start(call);
	else
		arm(call->timer, 0);
	return call;
}

void
hb_client_cancel(struct hb_client_call *call)
{
	detach(call);
	if (!call->in_callback)
		hb_call_free(call);
}

/* ---- blocking ---- */

struct sync {
	const struct hb_call *wanted;
	struct event_base *base;
	json_t *body;
	int status;
	struct hb_error err;
};

static void
sync_done(int status, const json_t *body, const struct hb_error *err, void *arg)
{
	struct sync *s = arg;

	s->status = status;
	s->body = body != NULL ? json_incref((json_t *)body) : NULL;
	if (err != NULL)
		s->err = *err;
	event_base_loopbreak(s->base);
}

static void
sync_line(json_t *line, void *arg)
{
	struct sync *s = arg;

	s->wanted->on_line(line, s->wanted->arg);
}

json_t *
hb_client_call_sync(const struct hb_call *wanted, int *status, struct hb_error *err)
{
	struct sync s = {.wanted = wanted, .base = event_base_new()};
	struct hb_client *client = hb_client_new(s.base);
	struct hb_call call = *wanted;

	if (s.base == NULL)
		abort();
	call.on_done = sync_done;
	call.on_line = wanted->on_line != NULL ? sync_line : NULL;
	call.arg = &s;
	hb_client_start(client, &call);
	event_base_dispatch(s.base);
	hb_client_free(client);
	event_base_free(s.base);
	if (s.status == 0) {
		if (err != NULL)
			*err = s.err;
		return NULL;
	}
	if (status != NULL)
		*status = s.status;
	return s.body != NULL ? s.body : json_object();
}

int
hb_reply_failed(int status, const json_t *body, struct hb_error *err)
{
	const char *text = hb_json_text(body, "error", NULL);

	if (text != NULL)
		return hb_fail(err, hb_json_text(body, "code", "refused"), "%s", text);
	if (status < 200 || status > 299)
		return hb_fail(err, "refused", "the answer had status %d", status);
	return 0;
}
