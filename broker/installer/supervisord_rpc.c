/* A minimal client of supervisord (supervisord_rpc.h). */
#include "broker/installer/supervisord_rpc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/fs.h"

#define TIMEOUT_S 5
#define ANSWER_MAX (256u << 10)

static int dial(const char *path, struct hb_error *err)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	const struct timeval limit = {TIMEOUT_S, 0};
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int fd;

	if (strlen(path) >= sizeof(addr.sun_path))
		return hb_fail(err, "supervisord_unreachable", "the path of the socket %s is too long", path);
	memcpy(addr.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ||
	    connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		hb_fail_errno(err, "supervisord_unreachable",
			      "supervisord doesn't answer on %s; start it, or set runtime.supervisord_socket", path);
		hb_close(&fd);
		return -1;
	}
	/* Whoever starts the payload must not be somebody else's program. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || (peer.uid != 0 && peer.uid != geteuid())) {
		close(fd);
		return hb_fail(err, "supervisord_unreachable", "%s is served by uid %u and not by root", path,
			       (unsigned)peer.uid);
	}
	return fd;
}

static int send_all(int fd, const struct hb_buf *text)
{
	size_t done = 0;

	while (done < text->len) {
		ssize_t n = send(fd, text->data + done, text->len - done, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		done += (size_t)n;
	}
	return 0;
}

static int receive_all(int fd, struct hb_buf *out)
{
	char piece[8192];
	ssize_t n;

	for (;;) {
		n = recv(fd, piece, sizeof(piece), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || out->len > ANSWER_MAX)
			return n < 0 ? -1 : 0;
		hb_buf_add(out, piece, (size_t)n);
	}
}

/* HTTP/1.0, so that the answer is neither chunked nor kept open (RFC 1945). */
static int exchange(int fd, const char *method, const char *params, struct hb_buf *answer)
{
	struct hb_buf body = HB_BUF_INIT, text = HB_BUF_INIT;
	int rc;

	hb_buf_printf(&body, "<?xml version=\"1.0\"?><methodCall><methodName>%s</methodName><params>%s</params></methodCall>",
		      method, params);
	hb_buf_printf(&text, "POST /RPC2 HTTP/1.0\r\nHost: supervisord\r\nContent-Type: text/xml\r\nContent-Length: %zu\r\n\r\n",
		      body.len);
	hb_buf_add(&text, body.data, body.len);
	rc = send_all(fd, &text) < 0 || receive_all(fd, answer) < 0 ? -1 : 0;
	hb_buf_free(&body);
	hb_buf_free(&text);
	return rc;
}

int hb_supervisord_call(const char *socket_path, const char *method, const char *params, struct hb_buf *answer,
			struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	int fd = dial(socket_path, err), rc = -1, status = 0;
	char *body;
	char fault[256] = "";
	long code;

	if (fd < 0)
		return -1;
	if (exchange(fd, method, params, &text) < 0) {
		hb_fail_errno(err, "supervisord_unreachable", "supervisord on %s stopped answering", socket_path);
		goto out;
	}
	hb_buf_addc(&text, '\0');
	body = strstr(text.data, "\r\n\r\n");
	if (!body || sscanf(text.data, "HTTP/%*d.%*d %d", &status) != 1 || status != 200) {
		hb_fail(err, "supervisord_failed", "supervisord answers %s with HTTP status %d%s", method, status,
			status == 401 ? "; a user name on its socket is not supported" : "");
		goto out;
	}
	hb_buf_clear(answer);
	hb_buf_adds(answer, body + 4);
	hb_buf_addc(answer, '\0');
	rc = 0;
	code = hb_supervisord_number(answer->data, "faultCode");
	if (strstr(answer->data, "<fault>") && code > 0) {
		hb_supervisord_member(answer->data, "faultString", fault, sizeof(fault));
		hb_fail(err, "supervisord_failed", "supervisord refuses %s: %.200s", method, fault);
		rc = (int)code;
	}
out:
	hb_buf_free(&text);
	close(fd);
	return rc;
}

/* --- as much XML as is needed --- */

/* The text of the value at `at`, inside its type element if there is one; its length, or -1. */
static long value_at(const char *at, const char **text)
{
	const char *end;

	at += strspn(at, " \t\r\n");
	if (strncmp(at, "<value>", 7) != 0)
		return -1;
	at += 7;
	if (*at == '<' && at[1] != '/') { /* <string>, <int>, <boolean> ... */
		at = strchr(at, '>');
		if (!at)
			return -1;
		at++;
	}
	end = strchr(at, '<');
	*text = at;
	return end ? end - at : -1;
}

static void decode(const char *text, size_t len, struct hb_buf *out)
{
	static const struct {
		const char *entity;
		char c;
	} entities[] = {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}};

	for (size_t i = 0; i < len;) {
		size_t step = 1;
		char c = text[i];

		for (size_t j = 0; c == '&' && j < sizeof(entities) / sizeof(entities[0]); j++)
			if (strncmp(text + i, entities[j].entity, strlen(entities[j].entity)) == 0) {
				step = strlen(entities[j].entity);
				c = entities[j].c;
				break;
			}
		hb_buf_addc(out, c);
		i += step;
	}
}

bool hb_supervisord_member(const char *xml, const char *name, char *out, size_t size)
{
	struct hb_buf text = HB_BUF_INIT;
	const char *at = xml, *value;
	size_t len = strlen(name);
	long n = -1;

	while (n < 0 && (at = strstr(at, "<name>"))) {
		at += 6;
		if (strncmp(at, name, len) == 0 && strncmp(at + len, "</name>", 7) == 0)
			n = value_at(at + len + 7, &value);
	}
	if (n < 0)
		return false;
	decode(value, (size_t)n, &text);
	snprintf(out, size, "%.*s", (int)text.len, text.data ? text.data : "");
	hb_buf_free(&text);
	return true;
}

long hb_supervisord_number(const char *xml, const char *name)
{
	char text[32], *end;
	long n;

	if (!hb_supervisord_member(xml, name, text, sizeof(text)))
		return -1;
	n = strtol(text, &end, 10);
	return *end || end == text ? -1 : n;
}

bool hb_supervisord_text(const char *xml, struct hb_buf *out)
{
	const char *at = strstr(xml, "<param>"), *value;
	long n = at ? value_at(at + 7, &value) : -1;

	if (n < 0)
		return false;
	decode(value, (size_t)n, out);
	return true;
}
