/*
 * Listeners and connections of the servers; server_http.c has the requests, server_reply.c the
 * answers.
 *
 * HTTP is parsed by the http-parser library over libevent bufferevents, as in client.c.  evhttp was
 * the other choice; it answers malformed and oversized requests in HTML by itself, has no cap on
 * connections, and bounds a request only by silence, so that a byte every few seconds holds a place
 * for ever.  Here the peer is known at accept, a request has one deadline, and every answer is
 * JSON.
 */
#include "common/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/peers.h"
#include "common/server_internal.h"

#define BACKLOG 128
#define CONNECTIONS_MAX 512

void
hb_conn_arm(struct hb_conn *conn, int seconds)
{
	struct timeval tv = {.tv_sec = seconds};

	event_add(conn->timer, &tv);
}

static void
accepting(struct hb_server *s, bool on)
{
	if (s->paused == !on)
		return;
	s->paused = !on;
	for (size_t i = 0; i < s->listener_count; i++) {
		if (on)
			evconnlistener_enable(s->listeners[i].listener);
		else
			evconnlistener_disable(s->listeners[i].listener);
	}
}

static void
conn_drop(struct hb_conn *conn)
{
	struct hb_server *s = conn->server;
	struct hb_request *req = conn->req;
	bool with_handler = conn->state == HB_CONN_BUSY;

	TAILQ_REMOVE(&s->conns, conn, next);
	s->conn_count--;
	bufferevent_free(conn->bev);
	event_free(conn->timer);
	event_free(conn->resume);
	hb_buf_free(&conn->url);
	hb_buf_free(&conn->name);
	hb_buf_free(&conn->value);
	hb_buf_free(&conn->body);
	free(conn);
	if (s->conn_count < s->conn_max)
		accepting(s, true);
	if (req != NULL && with_handler)
		hb_request_orphan(req);
	else
		hb_request_free(req);
}

/* ---- connection events ---- */

static void
on_read(struct bufferevent *bev, void *arg)
{
	struct hb_conn *conn = arg;
	struct evbuffer *in = bufferevent_get_input(bev);

	if (conn->state == HB_CONN_FLUSHING || conn->state == HB_CONN_LINGERING) {
		conn->lingered += evbuffer_get_length(in);
		evbuffer_drain(in, evbuffer_get_length(in));
		if (conn->lingered > HB_LINGER_BYTES)
			conn_drop(conn);
		return;
	}
	hb_conn_feed(conn);
}

/* All output is with the kernel. */
static void
on_written(struct bufferevent *bev, void *arg)
{
	struct hb_conn *conn = arg;

	if (conn->state != HB_CONN_FLUSHING)
		return;
	if (!conn->unread) {
		conn_drop(conn);
		return;
	}
	/* Closing with unread input would reset the connection and take the answer with it. */
	shutdown(bufferevent_getfd(bev), SHUT_WR);
	conn->state = HB_CONN_LINGERING;
	hb_conn_arm(conn, HB_LINGER_SECONDS);
}

static void
on_event(struct bufferevent *bev, short what, void *arg)
{
	struct hb_conn *conn = arg;
	bool output = evbuffer_get_length(bufferevent_get_output(bev)) > 0;

	/* A caller that ends its side after its request still gets an answer that is ready. */
	if ((what & BEV_EVENT_EOF) && output &&
	    (conn->state == HB_CONN_IDLE || conn->state == HB_CONN_FLUSHING)) {
		conn->state = HB_CONN_FLUSHING;
		conn->unread = false;
		return;
	}
	conn_drop(conn);
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct hb_conn *conn = arg;

	if (conn->state != HB_CONN_READING) {
		conn_drop(conn);
		return;
	}
	hb_conn_too_slow(conn);
}

static void
on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct hb_conn *conn = arg;

	if (conn->doomed)
		conn_drop(conn);
	else
		hb_conn_feed(conn);
}

/* ---- listening ---- */

/* The connection that has been idle longest; else, where the server is told to, the one that has
 * taken longest to send its request (or to take its answer). */
static struct hb_conn *
find_dispensable(struct hb_server *s, const struct hb_conn *newest)
{
	int64_t now = hb_monotonic_ms();
	struct hb_conn *conn, *slow = NULL;

	TAILQ_FOREACH(conn, &s->conns, next) {
		if (conn == newest)
			continue;
		if (conn->state == HB_CONN_IDLE && now - conn->since_ms > HB_FRESH_MS)
			return conn;
		if (conn->state != HB_CONN_BUSY && s->options.crowded_ms > 0 &&
		    now - conn->since_ms > s->options.crowded_ms &&
		    (slow == NULL || conn->since_ms < slow->since_ms))
			slow = conn;
	}
	return slow;
}

/* A place for the next caller. */
static void
make_room(struct hb_server *s, const struct hb_conn *newest)
{
	struct timeval soon = {.tv_usec = 100000};
	struct hb_conn *conn;

	if (s->conn_count < s->conn_max)
		return;
	conn = find_dispensable(s, newest);
	if (conn != NULL) {
		conn_drop(conn);
		return;
	}
	accepting(s, false);
	event_add(s->retry, &soon);
}

static void
on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *sa, int salen, void *arg)
{
	struct hb_server_listener *listener = arg;
	struct hb_server *s = listener->server;
	struct ucred cred = {.uid = (uid_t)-1};
	socklen_t len = sizeof(cred);
	struct timeval write_tv = {.tv_sec = HB_WRITE_SECONDS};
	struct hb_conn *conn;
	int one = 1;

	if (listener->tcp) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	} else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0) {
		close(fd);
		return;
	}
	conn = hb_calloc(1, sizeof(*conn));
	conn->server = s;
	conn->tcp = listener->tcp;
	conn->uid = cred.uid;
	conn->pid = cred.pid;
	conn->since_ms = hb_monotonic_ms();
	conn->roles = listener->tcp ? 0 : hb_peer_roles(cred.uid);
	conn->bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
	conn->timer = evtimer_new(s->base, on_timer, conn);
	conn->resume = event_new(s->base, -1, 0, on_resume, conn);
	if (conn->bev == NULL || conn->timer == NULL || conn->resume == NULL)
		abort();
	http_parser_init(&conn->parser, HTTP_REQUEST);
	conn->parser.data = conn;
	TAILQ_INSERT_TAIL(&s->conns, conn, next);
	s->conn_count++;
	bufferevent_setcb(conn->bev, on_read, on_written, on_event, conn);
	bufferevent_setwatermark(conn->bev, EV_READ, 0, HB_PIPELINE_MAX);
	bufferevent_set_timeouts(conn->bev, NULL, &write_tv);
	bufferevent_enable(conn->bev, EV_READ | EV_WRITE);
	hb_conn_arm(conn, s->request_seconds);
	make_room(s, conn);
}

/* accept(2) failed, most likely for want of descriptors: look again in a moment instead of
 * spinning. */
static void
on_accept_error(struct evconnlistener *l, void *arg)
{
	struct hb_server_listener *listener = arg;
	struct timeval soon = {.tv_usec = 100000};

	accepting(listener->server, false);
	event_add(listener->server->retry, &soon);
}

static void
on_retry(evutil_socket_t fd, short what, void *arg)
{
	struct hb_server *s = arg;

	if (s->conn_count >= s->conn_max)
		make_room(s, NULL);
	if (s->conn_count < s->conn_max)
		accepting(s, true);
}

int
hb_server_new(struct event_base *base, const struct hb_server_options *options,
	      struct hb_server **out, struct hb_error *err)
{
	struct hb_server *s = hb_calloc(1, sizeof(*s));

	s->base = base;
	s->options = *options;
	s->conn_max = options->max_connections > 0 ? options->max_connections : CONNECTIONS_MAX;
	s->request_seconds =
		options->request_seconds > 0 ? options->request_seconds : HB_REQUEST_SECONDS;
	s->idle_seconds = options->idle_seconds > 0 ? options->idle_seconds : HB_IDLE_SECONDS;
	TAILQ_INIT(&s->conns);
	s->retry = evtimer_new(base, on_retry, s);
	if (s->retry == NULL) {
		free(s);
		return hb_fail(err, "internal", "cannot create a timer for the server");
	}
	*out = s;
	return 0;
}

/* Takes fd, also on failure. */
static int
listener_add(struct hb_server *s, int fd, bool tcp, const char *where, struct hb_error *err)
{
	struct hb_server_listener *l = &s->listeners[s->listener_count];

	if (s->listener_count == HB_LISTENERS_MAX) {
		close(fd);
		return hb_fail(err, "internal", "more than %d listeners", HB_LISTENERS_MAX);
	}
	if (listen(fd, BACKLOG) != 0) {
		hb_fail_errno(err, "listen_failed", "cannot listen on %s", where);
		close(fd);
		return -1;
	}
	l->server = s;
	l->tcp = tcp;
	l->listener = evconnlistener_new(s->base, on_accept, l,
					 LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
	if (l->listener == NULL) {
		close(fd);
		return hb_fail(err, "listen_failed", "cannot watch %s", where);
	}
	evconnlistener_set_error_cb(l->listener, on_accept_error);
	s->listener_count++;
	return 0;
}

int
hb_server_listen_unix(struct hb_server *s, const char *path, struct hb_error *err)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct stat st;
	mode_t mask;
	int fd, rc;

	if (strlen(path) >= sizeof(sun.sun_path))
		return hb_fail(err, "listen_failed", "socket path %s is longer than %zu bytes",
			       path, sizeof(sun.sun_path) - 1);
	memcpy(sun.sun_path, path, strlen(path) + 1);
	if (lstat(path, &st) == 0) {
		if (!S_ISSOCK(st.st_mode))
			return hb_fail(err, "listen_failed",
				       "%s is in the way and not a socket: remove it", path);
		if (unlink(path) != 0)
			return hb_fail_errno(err, "listen_failed",
					     "cannot replace the old socket %s", path);
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return hb_fail_errno(err, "listen_failed", "cannot create a Unix socket");
	mask = umask(0111); /* 0666 whatever the umask was: the directory decides who gets here */
	rc = bind(fd, (struct sockaddr *)&sun, sizeof(sun));
	umask(mask);
	if (rc != 0) {
		hb_fail_errno(err, "listen_failed", "cannot bind %s", path);
		close(fd);
		return -1;
	}
	return listener_add(s, fd, false, path, err);
}

int
hb_server_listen_tcp(struct hb_server *s, const char *host, int port, int *bound_port,
		     struct hb_error *err)
{
	struct sockaddr_storage ss = {0};
	struct sockaddr_in *v4 = (struct sockaddr_in *)&ss;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&ss;
	socklen_t len;
	char where[96];
	int fd, one = 1;

	snprintf(where, sizeof(where), "%s port %d", host, port);
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		len = sizeof(*v4);
	} else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		len = sizeof(*v6);
	} else {
		return hb_fail(err, "listen_failed", "%s is not a numeric address", host);
	}
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return hb_fail_errno(err, "listen_failed", "cannot create a socket for %s", where);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&ss, len) != 0) {
		hb_fail_errno(err, errno == EADDRINUSE ? "port_taken" : "listen_failed",
			      "cannot bind %s", where);
		close(fd);
		return -1;
	}
	if (bound_port != NULL && getsockname(fd, (struct sockaddr *)&ss, &len) == 0)
		*bound_port = ntohs(ss.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
	return listener_add(s, fd, true, where, err);
}

void
hb_server_free(struct hb_server *s)
{
	struct hb_conn *conn;

	if (s == NULL)
		return;
	for (size_t i = 0; i < s->listener_count; i++)
		evconnlistener_free(s->listeners[i].listener);
	s->listener_count = 0;
	while ((conn = TAILQ_FIRST(&s->conns)) != NULL)
		conn_drop(conn); /* NOLINT: TAILQ_REMOVE isn't followed */
	event_free(s->retry);
	free(s);
}
