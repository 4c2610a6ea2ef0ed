/* Connect, write, read until the message is complete; see probe_http.h. */
#include "broker/installer/probe_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <http_parser.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/ids.h"

struct reading {
	struct hb_probe_reply *reply;
	struct hb_buf name, value;
	size_t body_max;
	bool in_value, complete, too_large;
};

void hb_probe_reply_free(struct hb_probe_reply *reply)
{
	hb_buf_free(&reply->body);
	hb_buf_free(&reply->challenges);
	*reply = (struct hb_probe_reply){0};
}

static int wait_for(int fd, short events, int64_t deadline, const char *what, struct hb_error *err)
{
	struct pollfd p = {.fd = fd, .events = events};

	for (;;) {
		int64_t left = deadline - hb_monotonic_ms();
		int n = left <= 0 ? 0 : poll(&p, 1, (int)left);

		if (n > 0)
			return 0;
		if (n == 0)
			return hb_fail(err, "timeout", "no answer from the runtime to %s in time", what);
		if (errno != EINTR)
			return hb_fail_errno(err, "unreachable", "waiting for the runtime");
	}
}

static int dial(const struct hb_probe_call *call, struct hb_error *err)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(call->port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), failed = 0;
	socklen_t len = sizeof(failed);

	if (fd < 0)
		return hb_fail_errno(err, "unreachable", "cannot make a socket");
	if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
		return fd;
	if (errno == EINPROGRESS) {
		if (wait_for(fd, POLLOUT, call->deadline_ms, "a connection", err) < 0)
			goto fail;
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len);
		if (!failed)
			return fd;
		errno = failed;
	}
	hb_fail_errno(err, "unreachable", "127.0.0.1:%u", call->port);
fail:
	hb_close(&fd);
	return -1;
}

static void compose(const struct hb_probe_call *call, struct hb_buf *out)
{
	hb_buf_printf(out, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n"
			   "User-Agent: hermes-broker/%s\r\n",
		      call->method, call->path, call->port, HB_VERSION);
	/* The MCP transport wants both types named; an ordinary page must not be taken for a JSON answer. */
	hb_buf_adds(out, call->body ? "Accept: application/json, text/event-stream\r\n" : "Accept: application/json\r\n");
	if (call->bearer && call->bearer[0])
		hb_buf_printf(out, "Authorization: Bearer %s\r\n", call->bearer);
	if (call->session && call->session[0])
		hb_buf_printf(out, "Mcp-Session-Id: %s\r\n", call->session);
	if (call->version && call->version[0])
		hb_buf_printf(out, "MCP-Protocol-Version: %s\r\n", call->version);
	if (call->body)
		hb_buf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(call->body));
	hb_buf_adds(out, "\r\n");
	if (call->body)
		hb_buf_adds(out, call->body);
}

static int send_all(int fd, const struct hb_probe_call *call, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	size_t at = 0;
	int rc = -1;

	compose(call, &text);
	while (at < text.len) {
		ssize_t n = send(fd, text.data + at, text.len - at, MSG_NOSIGNAL);

		if (n > 0)
			at += (size_t)n;
		else if (errno == EAGAIN) {
			if (wait_for(fd, POLLOUT, call->deadline_ms, call->path, err) < 0)
				goto out;
		} else if (errno != EINTR) {
			hb_fail_errno(err, "unreachable", "sending to the runtime");
			goto out;
		}
	}
	rc = 0;
out:
	if (text.data)
		explicit_bzero(text.data, text.len); /* the key is in it */
	hb_buf_free(&text);
	return rc;
}

static void header_done(struct reading *r)
{
	struct hb_probe_reply *reply = r->reply;
	const char *name = r->name.data ? r->name.data : "", *value = r->value.data ? r->value.data : "";

	if (!strcasecmp(name, "content-type"))
		snprintf(reply->type, sizeof(reply->type), "%s", value);
	else if (!strcasecmp(name, "mcp-session-id"))
		snprintf(reply->session, sizeof(reply->session), "%s", value);
	else if (!strcasecmp(name, "www-authenticate"))
		hb_buf_printf(&reply->challenges, "%s%s", reply->challenges.len ? ", " : "", value);
	hb_buf_clear(&r->name);
	hb_buf_clear(&r->value);
	r->in_value = false;
}

static int on_field(http_parser *p, const char *at, size_t len)
{
	struct reading *r = p->data;

	if (r->in_value)
		header_done(r);
	hb_buf_add(&r->name, at, len);
	return 0;
}

static int on_value(http_parser *p, const char *at, size_t len)
{
	struct reading *r = p->data;

	r->in_value = true;
	hb_buf_add(&r->value, at, len);
	return 0;
}

static int on_headers(http_parser *p)
{
	struct reading *r = p->data;

	if (r->in_value)
		header_done(r);
	r->reply->status = (int)p->status_code;
	return 0;
}

static int on_body(http_parser *p, const char *at, size_t len)
{
	struct reading *r = p->data;

	r->too_large = r->reply->body.len + len > r->body_max;
	if (r->too_large)
		return -1;
	hb_buf_add(&r->reply->body, at, len);
	return 0;
}

static int on_complete(http_parser *p)
{
	struct reading *r = p->data;

	r->complete = p->status_code / 100 != 1; /* after 100 Continue the real one follows */
	return 0;
}

static int receive(int fd, const struct hb_probe_call *call, struct reading *r, struct hb_error *err)
{
	const http_parser_settings settings = {.on_header_field = on_field, .on_header_value = on_value,
					       .on_headers_complete = on_headers, .on_body = on_body,
					       .on_message_complete = on_complete};
	char piece[16384];
	http_parser parser;

	http_parser_init(&parser, HTTP_RESPONSE);
	parser.data = r;
	while (!r->complete) {
		ssize_t n;

		/* Also when there is always more to read, and never an end. */
		if (hb_monotonic_ms() >= call->deadline_ms)
			return hb_fail(err, "timeout", "no answer from the runtime to %s in time", call->path);
		n = recv(fd, piece, sizeof(piece), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (wait_for(fd, POLLIN, call->deadline_ms, call->path, err) < 0)
				return -1;
			continue;
		}
		if (n < 0)
			return hb_fail_errno(err, "unreachable", "reading the runtime's answer to %s", call->path);
		if (http_parser_execute(&parser, &settings, piece, (size_t)n) != (size_t)n && !r->complete)
			return r->too_large ? hb_fail(err, "too_large", "the runtime's answer to %s has more than "
						      "%zu bytes", call->path, r->body_max)
					    : hb_fail(err, "bad_reply", "the runtime's answer to %s is not HTTP",
						      call->path);
		if (n == 0 && !r->complete)
			return hb_fail(err, "bad_reply", "the runtime closed the connection before it had answered %s",
				       call->path);
		if (r->reply->status && call->enough && call->enough(r->reply, call->arg))
			return 0;
	}
	return 0;
}

int hb_probe_http(const struct hb_probe_call *call, struct hb_probe_reply *reply, struct hb_error *err)
{
	struct reading r = {.reply = reply, .body_max = call->body_max ? call->body_max : HB_PROBE_BODY_MAX};
	int fd, rc = -1;

	*reply = (struct hb_probe_reply){0};
	fd = dial(call, err);
	if (fd >= 0 && send_all(fd, call, err) == 0)
		rc = receive(fd, call, &r, err);
	hb_close(&fd);
	hb_buf_free(&r.name);
	hb_buf_free(&r.value);
	return rc;
}
