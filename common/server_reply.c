/*
 * Requests as handlers see them, and the replies they give.
 *
 * A request outlives its connection: when the other side vanishes, a handler that registered
 * `closed` is told and the request is freed; otherwise it stays, deaf, until the handler has
 * replied.  Answers are ASCII-escaped JSON, so that they are valid UTF-8 whatever went into them.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/peers.h"
#include "common/server_internal.h"

struct hb_request *
hb_request_new(struct hb_conn *conn)
{
	struct hb_request *req = hb_calloc(1, sizeof(*req));

	req->conn = conn;
	req->ctx = conn->server->options.ctx;
	req->uid = conn->uid;
	req->pid = conn->pid;
	req->roles = conn->roles;
	req->tcp = conn->tcp;
	return req;
}

void
hb_request_free(struct hb_request *req)
{
	if (req == NULL)
		return;
	for (size_t i = 0; i < req->header_count; i++) {
		free(req->headers[i].name);
		free(req->headers[i].value);
	}
	for (size_t i = 0; i < req->query_count; i++) {
		free(req->query[i].name);
		free(req->query[i].value);
	}
	free(req->path);
	free(req->query_text);
	json_decref(req->json);
	hb_buf_free(&req->reply_headers);
	free(req);
}

void
hb_request_orphan(struct hb_request *req)
{
	void (*closed)(void *) = req->closed;

	req->conn = NULL;
	if (closed == NULL)
		return;
	req->closed = NULL;
	closed(req->closed_arg);
	hb_request_free(req);
}

bool
hb_request_is_tcp(const struct hb_request *req)
{
	return req->tcp;
}

uid_t
hb_request_uid(const struct hb_request *req)
{
	return req->uid;
}

pid_t
hb_request_pid(const struct hb_request *req)
{
	return req->pid;
}

unsigned
hb_request_roles(const struct hb_request *req)
{
	return req->roles;
}

const char *
hb_request_method(const struct hb_request *req)
{
	return req->method;
}

const char *
hb_request_path(const struct hb_request *req)
{
	return req->path;
}

const char *
hb_request_tail(const struct hb_request *req)
{
	if (req->route == NULL || !(req->route->flags & HB_ROUTE_PREFIX))
		return "";
	return req->path + strlen(req->route->path);
}

const json_t *
hb_request_json(const struct hb_request *req)
{
	return req->json;
}

const char *
hb_request_header(const struct hb_request *req, const char *name)
{
	for (size_t i = 0; i < req->header_count; i++)
		if (strcasecmp(req->headers[i].name, name) == 0)
			return req->headers[i].value;
	return NULL;
}

size_t
hb_request_header_count(const struct hb_request *req, const char *name)
{
	size_t count = 0;

	for (size_t i = 0; i < req->header_count; i++)
		count += strcasecmp(req->headers[i].name, name) == 0;
	return count;
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* application/x-www-form-urlencoded (WHATWG URL, section 5); NULL for a broken escape or a NUL. */
static char *
form_decode(const char *text, size_t len)
{
	char *out = hb_calloc(1, len + 1);
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		if (text[i] == '+') {
			out[n++] = ' ';
		} else if (text[i] == '%') {
			int high = i + 2 < len ? hex_digit(text[i + 1]) : -1;
			int low = high >= 0 ? hex_digit(text[i + 2]) : -1;

			if (low < 0 || (high == 0 && low == 0)) {
				free(out);
				return NULL;
			}
			out[n++] = (char)(high * 16 + low);
			i += 2;
		} else {
			out[n++] = text[i];
		}
	}
	return out;
}

static void
query_parse(struct hb_request *req)
{
	const char *at = req->query_text;

	req->query_parsed = true;
	while (at != NULL && *at != '\0' && req->query_count < HB_QUERY_MAX) {
		size_t len = strcspn(at, "&");
		size_t name_len = strcspn(at, "=&");
		struct hb_pair *pair = &req->query[req->query_count];

		pair->name = form_decode(at, name_len);
		pair->value = name_len < len ? form_decode(at + name_len + 1, len - name_len - 1)
					     : hb_strdup("");
		if (pair->name != NULL && pair->value != NULL) {
			req->query_count++;
		} else {
			free(pair->name);
			free(pair->value);
		}
		at += len + (at[len] == '&');
	}
}

const char *
hb_request_query(const struct hb_request *req, const char *name)
{
	if (!req->query_parsed)
		query_parse((struct hb_request *)
				    req); /* a cache: what callers can see does not change */
	for (size_t i = 0; i < req->query_count; i++)
		if (strcmp(req->query[i].name, name) == 0)
			return req->query[i].value;
	return NULL;
}

void
hb_request_on_close(struct hb_request *req, void (*closed)(void *arg), void *arg)
{
	req->closed = closed;
	req->closed_arg = arg;
}

void
hb_reply_header(struct hb_request *req, const char *name, const char *value)
{
	if (strpbrk(name, "\r\n:") != NULL || strpbrk(value, "\r\n") != NULL)
		return; /* would be a second header or a body: never ours */
	hb_buf_printf(&req->reply_headers, "%s: %s\r\n", name, value);
}

static const char *
reason(int status)
{
	switch (status) {
#define XX(num, name, string)                                                                      \
	case num:                                                                                  \
		return #string;
		HTTP_STATUS_MAP(XX)
#undef XX
	default:
		return "Unknown";
	}
}

/* length -1: chunked, or up to the end of the connection for HTTP/1.0, which knows no chunks. */
static void
head(struct hb_request *req, int status, const char *type, long long length)
{
	struct evbuffer *out = bufferevent_get_output(req->conn->bev);

	evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\n", status, reason(status));
	if (type != NULL)
		evbuffer_add_printf(out, "Content-Type: %s\r\nCache-Control: no-store\r\n"
				    "X-Content-Type-Options: nosniff\r\n", type);
	if (length >= 0 && status != 204)
		evbuffer_add_printf(out, "Content-Length: %lld\r\n", length);
	else if (req->chunked)
		evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n");
	if (!req->keep_alive)
		evbuffer_add_printf(out, "Connection: close\r\n");
	if (req->reply_headers.len > 0)
		evbuffer_add(out, req->reply_headers.data, req->reply_headers.len);
	evbuffer_add(out, "\r\n", 2);
}

/* The reply is whole: the connection goes on without the request. */
static void
finish(struct hb_request *req)
{
	struct hb_conn *conn = req->conn;
	bool keep_alive = req->keep_alive;

	if (conn != NULL && conn->req == req)
		conn->req = NULL;
	hb_request_free(req);
	if (conn != NULL)
		hb_conn_answered(conn, keep_alive);
}

void
hb_reply_bytes(struct hb_request *req, int status, const char *type, const void *data, size_t len)
{
	if (req->replied)
		abort(); /* two answers to one request: a programming error that would mix up
			    replies */
	req->replied = true;
	if (req->conn != NULL) {
		head(req, status, type, (long long)len);
		if (len > 0)
			evbuffer_add(bufferevent_get_output(req->conn->bev), data, len);
	}
	finish(req);
}

void
hb_reply_json(struct hb_request *req, int status, json_t *body)
{
	static const char broken[] =
		"{\"error\":\"the answer could not be encoded\",\"code\":\"internal\"}";
	char *text = json_dumps(body, JSON_COMPACT | JSON_ENSURE_ASCII);

	json_decref(body);
	if (text == NULL)
		hb_reply_bytes(req, 500, "application/json", broken, sizeof(broken) - 1);
	else
		hb_reply_bytes(req, status, "application/json", text, strlen(text));
	free(text);
}

void
hb_reply_error(struct hb_request *req, int status, const struct hb_error *err)
{
	hb_reply_json(req, status, hb_json_error(err));
}

void
hb_reply_refusal(struct hb_request *req, int status, const char *code, const char *fmt, ...)
{
	struct hb_error err;
	va_list ap;

	va_start(ap, fmt);
	hb_vfail(&err, code, fmt, ap);
	va_end(ap);
	hb_reply_error(req, status, &err);
}

void
hb_reply_start(struct hb_request *req, int status, const char *type)
{
	if (req->replied)
		abort();
	req->replied = true;
	if (req->conn == NULL)
		return;
	req->chunked = req->conn->parser.http_minor >= 1;
	head(req, status, type, -1);
}

void
hb_reply_write(struct hb_request *req, const void *data, size_t len)
{
	struct evbuffer *out;

	if (req->conn == NULL || req->conn->doomed ||
	    len == 0) /* an empty chunk would be the end */
		return;
	out = bufferevent_get_output(req->conn->bev);
	if (req->chunked)
		evbuffer_add_printf(out, "%zx\r\n", len);
	evbuffer_add(out, data, len);
	if (req->chunked)
		evbuffer_add(out, "\r\n", 2);
	if (evbuffer_get_length(out) > HB_BACKLOG_MAX) {
		req->conn->doomed = true; /* dropped from the loop: our caller still holds req */
		event_active(req->conn->resume, EV_TIMEOUT, 0);
	}
}

void
hb_reply_end(struct hb_request *req)
{
	if (req->conn != NULL && req->chunked)
		evbuffer_add(bufferevent_get_output(req->conn->bev), "0\r\n\r\n", 5);
	finish(req);
}
