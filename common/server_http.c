/*
 * One connection's requests: parsing, judging, handing over.
 *
 * A request is judged as soon as its headers are there (stranger, `before`, route, role, length),
 * so that a body nobody may send is not read.  Handlers run with the whole body decoded, one
 * request of a connection at a time.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/server_internal.h"

static void
refused(struct hb_conn *conn, const char *why)
{
	const struct hb_server_options *o = &conn->server->options;
	const char *path = conn->req != NULL && conn->req->path != NULL ? conn->req->path : "";

	if (o->on_refused != NULL)
		o->on_refused(why, conn->uid, path, o->ctx);
}

void
hb_conn_answered(struct hb_conn *conn, bool keep_alive)
{
	struct hb_server *s = conn->server;

	hb_buf_clear(&conn->body);
	if (!keep_alive || s->paused) {
		conn->state = HB_CONN_FLUSHING;
		event_del(conn->timer);
		return;
	}
	conn->state = HB_CONN_IDLE;
	TAILQ_REMOVE(&s->conns, conn, next);
	TAILQ_INSERT_TAIL(&s->conns, conn, next);
	hb_conn_arm(conn, s->idle_seconds);
	if (!conn->feeding && evbuffer_get_length(bufferevent_get_input(conn->bev)) > 0)
		event_active(conn->resume, EV_TIMEOUT, 0);
}

static int
header_push(struct hb_conn *conn)
{
	struct hb_request *req = conn->req;

	if (!conn->value_open)
		return 0;
	conn->value_open = false;
	if (req->header_count == HB_HEADER_COUNT_MAX)
		return -1;
	req->headers[req->header_count].name = hb_strdup(conn->name.len > 0 ? conn->name.data : "");
	req->headers[req->header_count].value =
		hb_strdup(conn->value.len > 0 ? conn->value.data : "");
	req->header_count++;
	hb_buf_clear(&conn->name);
	hb_buf_clear(&conn->value);
	return 0;
}

static int
head_bytes(struct hb_conn *conn, size_t len)
{
	conn->header_bytes += len;
	return conn->header_bytes > HB_HEADERS_MAX ? -1 : 0;
}

static int
on_message_begin(http_parser *parser)
{
	struct hb_conn *conn = parser->data;

	conn->req = hb_request_new(conn);
	conn->state = HB_CONN_READING;
	conn->since_ms = hb_monotonic_ms();
	conn->header_bytes = 0;
	conn->value_open = false;
	conn->headers_done = false;
	conn->unread = false;
	hb_buf_clear(&conn->url);
	hb_buf_clear(&conn->name);
	hb_buf_clear(&conn->value);
	hb_buf_clear(&conn->body);
	hb_conn_arm(conn, conn->server->request_seconds);
	return 0;
}

static int
on_url(http_parser *parser, const char *at, size_t len)
{
	struct hb_conn *conn = parser->data;

	hb_buf_add(&conn->url, at, len);
	return head_bytes(conn, len);
}

static int
on_header_field(http_parser *parser, const char *at, size_t len)
{
	struct hb_conn *conn = parser->data;

	if (conn->headers_done || header_push(conn) != 0) /* no trailers: nothing has judged them */
		return -1;
	hb_buf_add(&conn->name, at, len);
	return head_bytes(conn, len);
}

static int
on_header_value(http_parser *parser, const char *at, size_t len)
{
	struct hb_conn *conn = parser->data;

	conn->value_open = true;
	hb_buf_add(&conn->value, at, len);
	return head_bytes(conn, len);
}

static bool
path_matches(const struct hb_route *r, const char *path)
{
	size_t len = strlen(r->path);

	if (r->flags & HB_ROUTE_PREFIX)
		return strncmp(path, r->path, len) == 0 && path[len] != '\0';
	return strcmp(path, r->path) == 0;
}

static enum hb_method
method_bit(const char *method)
{
	static const struct {
		const char *name;
		enum hb_method bit;
	} known[] = {{"GET", HB_GET},
		     {"POST", HB_POST},
		     {"PUT", HB_PUT},
		     {"OPTIONS", HB_OPTIONS},
		     {"DELETE", HB_DELETE}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(known[i].name, method) == 0)
			return known[i].bit;
	return 0;
}

/* RFC 9110, 15.5.6: a 405 says what is answered. */
static void
allow_add(struct hb_conn *conn)
{
	const struct hb_server_options *o = &conn->server->options;
	static const char *const names[] = {"GET", "POST", "PUT", "OPTIONS", "DELETE"};
	struct hb_request *req = conn->req;
	unsigned methods = 0;
	char text[64] = "";

	for (size_t i = 0; i < o->route_count; i++)
		if (path_matches(&o->routes[i], req->path) &&
		    (!req->tcp || (o->routes[i].flags & HB_ROUTE_TCP)))
			methods |= o->routes[i].method;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!(methods & method_bit(names[i])))
			continue;
		strcat(text, *text != '\0' ? ", " : "");
		strcat(text, names[i]);
	}
	hb_reply_header(req, "Allow", text);
}

/* Find the route, or answer why there is none. An exact path wins over a prefix. */
static bool
route_find(struct hb_conn *conn)
{
	const struct hb_server_options *o = &conn->server->options;
	struct hb_request *req = conn->req;
	enum hb_method method = method_bit(req->method);
	const struct hb_route *found = NULL;
	bool path_known = false;

	for (size_t i = 0; i < o->route_count; i++) {
		const struct hb_route *r = &o->routes[i];

		if (!path_matches(r, req->path) || (req->tcp && !(r->flags & HB_ROUTE_TCP)))
			continue;
		path_known = true;
		if (r->method == method && (found == NULL || (found->flags & HB_ROUTE_PREFIX)))
			found = r;
	}
	if (found == NULL) {
		refused(conn, path_known ? "method" : "route");
		if (path_known)
			allow_add(conn);
		if (path_known)
			hb_reply_refusal(req, 405, "method_not_allowed",
					 "%s is not answered on this path", req->method);
		else
			hb_reply_refusal(req, 404, "unknown_route",
					 "there is nothing at this path");
		return false;
	}
	if (!req->tcp && !(found->roles & req->roles)) {
		refused(conn, "role");
		hb_reply_refusal(req, 403, "peer_not_allowed",
				 "uid %u may not call this (see common/peers.c)",
				 (unsigned)req->uid);
		return false;
	}
	req->route = found;
	req->body_max = found->body_max != 0 ? found->body_max : HB_BODY_MAX;
	return true;
}

/* RFC 3986 knows printable ASCII only. Other bytes, which the parser lets through, would also be
 * text that neither the log nor the audit chain can hold. */
static bool
is_target(const struct hb_buf *url)
{
	for (size_t i = 0; i < url->len; i++)
		if (url->data[i] <= ' ' || url->data[i] > '~' || url->data[i] == '#')
			return false;
	return url->len > 0 && url->data[0] == '/';
}

/* Path and query out of the request target (RFC 9112, origin-form only). */
static int
target_split(struct hb_conn *conn)
{
	struct hb_request *req = conn->req;
	const char *url = conn->url.len > 0 ? conn->url.data : "";
	const char *mark = strchr(url, '?');

	if (!is_target(&conn->url))
		return -1;
	req->path = mark != NULL ? strndup(url, (size_t)(mark - url)) : hb_strdup(url);
	if (mark != NULL)
		req->query_text = hb_strdup(mark + 1);
	if (req->path == NULL)
		abort();
	return 0;
}

static bool
judge(struct hb_conn *conn, bool has_body, unsigned long long length)
{
	const struct hb_server_options *o = &conn->server->options;
	struct hb_request *req = conn->req;

	if (target_split(conn) != 0) {
		refused(conn, "target");
		hb_reply_refusal(req, 400, "bad_request",
				 "the request target must be a plain path");
		return false;
	}
	if (!req->tcp && req->roles == 0) {
		refused(conn, "stranger");
		hb_reply_refusal(req, 403, "peer_not_allowed", "uid %u has no role here",
				 (unsigned)req->uid);
		return false;
	}
	if (o->before != NULL && !o->before(req, o->ctx))
		return false;
	if (!route_find(conn))
		return false;
	if ((req->route->flags & HB_ROUTE_NOBODY) && has_body) {
		refused(conn, "body");
		hb_reply_refusal(req, 400, "unexpected_body", "this request carries no body");
		return false;
	}
	if (has_body && length != ULLONG_MAX && length > req->body_max) {
		refused(conn, "length");
		hb_reply_refusal(req, 413, "too_large", "the body is larger than %zu bytes",
				 req->body_max);
		return false;
	}
	return true;
}

static int
on_headers_complete(http_parser *parser)
{
	struct hb_conn *conn = parser->data;
	unsigned long long length = parser->content_length;
	bool chunked = (parser->flags & F_CHUNKED) != 0;
	bool has_body = chunked || (length != ULLONG_MAX && length > 0);
	bool keep_alive = parser->http_minor >= 1 && http_should_keep_alive(parser);

	if (header_push(conn) != 0)
		return -1;
	conn->headers_done = true;
	parser->upgrade = 0; /* an offer we don't take up (RFC 9110, 7.8) */
	conn->req->method = http_method_str(parser->method);
	/* A refusal leaves the body unread, so what follows it on this connection can't be found
	 * any more. */
	conn->req->keep_alive = keep_alive && !has_body;
	conn->unread = has_body;
	if (!judge(conn, has_body, chunked ? ULLONG_MAX : length))
		return has_body ? -1 : 0;
	conn->req->keep_alive = keep_alive;
	return 0;
}

static int
on_body(http_parser *parser, const char *at, size_t len)
{
	struct hb_conn *conn = parser->data;

	if (conn->req == NULL)
		return -1;
	if (len > conn->req->body_max - conn->body.len) {
		conn->req->keep_alive = false;
		refused(conn, "length");
		hb_reply_refusal(conn->req, 413, "too_large", "the body is larger than %zu bytes",
				 conn->req->body_max);
		return -1;
	}
	hb_buf_add(&conn->body, at, len);
	return 0;
}

static int
on_message_complete(http_parser *parser)
{
	struct hb_conn *conn = parser->data;

	conn->complete = true;
	conn->unread = false;
	http_parser_pause(parser,
			  1); /* one request at a time; the rest stays in the input buffer */
	return 0;
}

static const http_parser_settings settings = {
	.on_message_begin = on_message_begin,
	.on_url = on_url,
	.on_header_field = on_header_field,
	.on_header_value = on_header_value,
	.on_headers_complete = on_headers_complete,
	.on_body = on_body,
	.on_message_complete = on_message_complete,
};

static void
dispatch(struct hb_conn *conn)
{
	struct hb_request *req = conn->req;
	struct hb_error err;

	if (req == NULL) /* answered when its headers were judged */
		return;
	if ((req->route->flags & HB_ROUTE_MAYBODY) && conn->body.len == 0) {
		req->json = json_object();
	} else if (!(req->route->flags & HB_ROUTE_NOBODY)) {
		req->json = hb_json_parse(conn->body.len > 0 ? conn->body.data : "", conn->body.len,
					  &err);
		if (req->json == NULL) {
			refused(conn, "json");
			hb_reply_error(req, 400, &err);
			return;
		}
	}
	conn->state = HB_CONN_BUSY;
	event_del(conn->timer);
	req->route->handler(req, req->ctx);
}

static void
malformed(struct hb_conn *conn)
{
	enum http_errno code = HTTP_PARSER_ERRNO(&conn->parser);
	bool large = code == HPE_HEADER_OVERFLOW || conn->header_bytes > HB_HEADERS_MAX ||
		     (conn->req != NULL && conn->req->header_count == HB_HEADER_COUNT_MAX);

	conn->unread = true;
	if (conn->state == HB_CONN_FLUSHING) /* a refusal is on its way already */
		return;
	if (conn->req == NULL)
		conn->req = hb_request_new(conn);
	conn->req->keep_alive = false;
	refused(conn, large ? "headers" : "malformed");
	if (large)
		hb_reply_refusal(conn->req, 431, "headers_too_large",
				 "request line and headers exceed %d bytes "
				 "or %d lines",
				 HB_HEADERS_MAX, HB_HEADER_COUNT_MAX);
	else
		hb_reply_refusal(conn->req, 400, "bad_request", "not an HTTP/1.1 request: %s",
				 http_errno_description(code));
}

/* Take requests out of the input, one after the other, until one is left with a handler. */
void
hb_conn_feed(struct hb_conn *conn)
{
	struct evbuffer *in = bufferevent_get_input(conn->bev);

	conn->feeding = true;
	while (evbuffer_get_length(in) > 0 &&
	       (conn->state == HB_CONN_IDLE || conn->state == HB_CONN_READING)) {
		size_t len = evbuffer_get_contiguous_space(in);
		const char *data = (const char *)evbuffer_pullup(in, (ev_ssize_t)len);
		size_t used = http_parser_execute(&conn->parser, &settings, data, len);
		enum http_errno code = HTTP_PARSER_ERRNO(&conn->parser);

		evbuffer_drain(in, used);
		if (code == HPE_PAUSED) {
			http_parser_pause(&conn->parser, 0);
		} else if (code != HPE_OK) {
			malformed(conn);
			break;
		}
		if (conn->complete) {
			conn->complete = false;
			dispatch(conn);
		}
	}
	conn->feeding = false;
}

void
hb_conn_too_slow(struct hb_conn *conn)
{
	conn->unread = true;
	conn->req->keep_alive = false;
	refused(conn, "slow");
	hb_reply_refusal(conn->req, 408, "request_timeout",
			 "the request was not complete after %d seconds",
			 conn->server->request_seconds);
}
