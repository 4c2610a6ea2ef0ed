/* Calls to the Docker engine (engine.h). */
#include "broker/docker/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/docker/engine_version.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "policy/executor.h"
#include "policy/text.h"

#define ANSWER_MAX (32u << 20) /* a list of thousands of containers */
#define CALL_MS 30000
#define SLICE_MS 250 /* how soon a stop of the executor is noticed */

/* --- the connection --- */

static int64_t deadline_of(const struct hb_engine *e)
{
	return e->deadline_ms ? e->deadline_ms : hb_monotonic_ms() + CALL_MS;
}

/* 0 when fd is ready for `events`. */
static int wait_for(const struct hb_engine *e, int fd, short events, int64_t deadline,
		    struct hb_error *err)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = events};
		int64_t left = deadline - hb_monotonic_ms();

		if (left <= 0)
			return hb_fail(err, "engine_timeout",
				       "the Docker engine did not answer in time");
		if (hb_worker_stopping() && !e->finishing)
			return hb_fail(err, "interrupted", "the executor is stopping");
		if (poll(&p, 1, left < SLICE_MS ? (int)left : SLICE_MS) > 0)
			return 0;
	}
}

static int dial(const struct hb_engine *e, struct hb_error *err)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t len = sizeof peer;
	int fd;

	if (strlen(e->socket) >= sizeof sun.sun_path)
		return hb_fail(err, "engine_unreachable",
			       "docker.socket is too long a path for a socket");
	memcpy(sun.sun_path, e->socket, strlen(e->socket) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return hb_fail_errno(err, "engine_unreachable", "a socket can't be made");
	if (connect(fd, (struct sockaddr *)&sun, sizeof sun) < 0) {
		hb_fail_errno(err, "engine_unreachable",
			      "the Docker engine can't be reached at %s (%s)", e->socket,
			      errno == EACCES
				      ? "this process is not in the group of the socket: restart it"
				      : "is it running?");
		hb_close(&fd);
		return -1;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != 0) {
		hb_fail(err, "wrong_peer",
			"%s is served by uid %u and not by root: nothing was sent", e->socket,
			(unsigned)peer.uid);
		hb_close(&fd);
		return -1;
	}
	return fd;
}

static int send_all(const struct hb_engine *e, int fd, const char *data, size_t len,
		    int64_t deadline, struct hb_error *err)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return hb_fail_errno(err, "engine_unreachable",
					     "the connection to the Docker engine broke");
		if (n < 0 && wait_for(e, fd, POLLOUT, deadline, err) < 0)
			return -1;
		data += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* --- the answer --- */

static int on_headers(http_parser *parser)
{
	struct hb_engine_stream *s = parser->data;

	s->headers = true;
	return 0;
}

static int on_body(http_parser *parser, const char *at, size_t len)
{
	struct hb_engine_stream *s = parser->data;

	hb_buf_add(&s->body, at, len);
	return s->body.len > s->body_max ? -1 : 0;
}

static int on_complete(http_parser *parser)
{
	struct hb_engine_stream *s = parser->data;

	s->complete = true;
	http_parser_pause(parser, 1);
	return 0;
}

static const http_parser_settings settings = {
	.on_headers_complete = on_headers,
	.on_body = on_body,
	.on_message_complete = on_complete,
};

void hb_engine_stream_pump(struct hb_engine_stream *s)
{
	char chunk[65536];

	/* No more than a few chunks at once, so that the caller takes them out in between. */
	for (int i = 0; i < 8 && !s->complete && !s->failed && !s->ended; i++) {
		ssize_t n = recv(s->fd, chunk, sizeof chunk, 0);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		s->ended = n <= 0;
		http_parser_execute(&s->parser, &settings, chunk, n > 0 ? (size_t)n : 0);
		if (!s->complete && (HTTP_PARSER_ERRNO(&s->parser) != HPE_OK || n < 0))
			s->failed = true;
	}
}

void hb_engine_stream_close(struct hb_engine_stream *s)
{
	if (!s)
		return;
	hb_close(&s->fd);
	hb_buf_free(&s->body);
	free(s);
}

/* --- requests --- */

static struct hb_engine_stream *begin(const struct hb_engine *e, const char *method,
				      const char *path, const json_t *body, int64_t deadline,
				      struct hb_error *err)
{
	struct hb_engine_stream *s = hb_calloc(1, sizeof *s);
	struct hb_buf head = HB_BUF_INIT;
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	int rc = -1;

	s->body_max = ANSWER_MAX;
	http_parser_init(&s->parser, HTTP_RESPONSE);
	s->parser.data = s;
	s->fd = dial(e, err);
	if (s->fd < 0)
		goto out;
	hb_buf_printf(&head,
		      "%s %s HTTP/1.1\r\nHost: docker\r\nUser-Agent: "
		      "hermes-docker/%s\r\nConnection: close\r\n",
		      method, path, HB_VERSION);
	if (text)
		hb_buf_printf(&head,
			      "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			      strlen(text), text);
	else
		hb_buf_adds(&head,
			    strcmp(method, "GET") == 0 ? "\r\n" : "Content-Length: 0\r\n\r\n");
	if (send_all(e, s->fd, head.data, head.len, deadline, err) < 0)
		goto out;
	while (!s->headers && !s->complete) {
		if (wait_for(e, s->fd, POLLIN, deadline, err) < 0)
			goto out;
		hb_engine_stream_pump(s);
		/* One that breaks off behind its headers has begun: its reader finds out. */
		if (!s->headers && (s->failed || s->ended)) {
			hb_fail(err, "engine_bad_reply",
				"the Docker engine ended the connection without an answer");
			goto out;
		}
	}
	rc = 0;
out:
	hb_buf_free(&head);
	free(text);
	if (rc == 0)
		return s;
	hb_engine_stream_close(s);
	return NULL;
}

static int rest(const struct hb_engine *e, struct hb_engine_stream *s, int64_t deadline,
		struct hb_error *err)
{
	while (!s->complete) {
		if (wait_for(e, s->fd, POLLIN, deadline, err) < 0)
			return -1;
		hb_engine_stream_pump(s);
		if (s->failed || (s->ended && !s->complete))
			return hb_fail(err, "engine_bad_reply", "the Docker engine's answer %s",
				       s->body.len > s->body_max ? "is too long"
								 : "ended in the middle");
	}
	return 0;
}

/* NULL with err when it is no JSON; JSON null when there is nothing. */
static json_t *decode(const struct hb_engine_stream *s, struct hb_error *err)
{
	json_t *answer;

	if (s->body.len == 0)
		return json_null();
	answer = hb_json_parse_foreign(s->body.data, s->body.len, err);
	if (!answer && s->parser.status_code / 100 != 2) {
		/* Some refusals of older engines are plain text. */
		return json_null();
	}
	if (!answer)
		hb_fail(err, "engine_bad_reply",
			"the Docker engine answered with something that is not JSON");
	return answer;
}

static int whole_call(const struct hb_engine *e, const char *method, const char *path,
		      const json_t *body, json_t **answer, struct hb_error *err)
{
	int64_t deadline = deadline_of(e);
	struct hb_engine_stream *s = begin(e, method, path, body, deadline, err);
	int status = -1;
	json_t *found;

	if (!s)
		return -1;
	if (rest(e, s, deadline, err) == 0 && (found = decode(s, err))) {
		status = (int)s->parser.status_code;
		*answer = found;
	}
	hb_engine_stream_close(s);
	return status;
}

int hb_engine_negotiate(struct hb_engine *e, struct hb_error *err)
{
	json_t *answer = NULL;
	int status, minor;

	if (e->minor)
		return 0;
	status = whole_call(e, "GET", "/version", NULL, &answer, err);
	if (status < 0)
		return -1;
	minor = status == 200
			? hb_engine_version_choose(hb_json_text(answer, "ApiVersion", ""),
						   hb_json_text(answer, "MinAPIVersion", NULL), err)
			: hb_fail(err, "engine_bad_reply",
				  "the Docker engine answered /version with %d", status);
	if (minor > 0) {
		e->minor = minor;
		e->negotiated = true;
		hb_show(hb_json_text(answer, "Version", ""), e->release, sizeof e->release);
	}
	json_decref(answer);
	return minor > 0 ? 0 : -1;
}

static char *versioned(const struct hb_engine *e, const char *path)
{
	return hb_asprintf("/v1.%d%s", e->minor, path);
}

/* The engine was changed under us: it refuses the version before it looks at anything else. */
static bool is_version_error(int status, const json_t *answer)
{
	return status == 400 &&
	       strncmp(hb_json_text(answer, "message", ""), "client version ", 15) == 0;
}

int hb_engine_call(struct hb_engine *e, const char *method, const char *path, const json_t *body,
		   json_t **answer, struct hb_error *err)
{
	json_t *found = NULL;
	int status = -1;

	for (int tries = 0; tries < 2; tries++) {
		char *full;

		if (hb_engine_negotiate(e, err) < 0)
			return -1;
		full = versioned(e, path);
		json_decref(found);
		found = NULL;
		status = whole_call(e, method, full, body, &found, err);
		free(full);
		if (status < 0 || !is_version_error(status, found))
			break;
		e->minor = 0;
	}
	if (status >= 0 && answer)
		*answer = found;
	else
		json_decref(found);
	return status;
}

static int judge(int status, const json_t *answer, const char *what, struct hb_error *err)
{
	char shown[301];

	if (status / 100 == 2 || status == 304)
		return 0;
	hb_show(hb_json_text(answer, "message", "no reason given"), shown, sizeof shown);
	return hb_fail(err,
		       status == 404   ? "not_found"
		       : status == 409 ? "conflict"
				       : "engine_error",
		       "%s: the Docker engine says: %s (%d)", what, shown, status);
}

int hb_engine_ask(struct hb_engine *e, const char *method, const char *path, const json_t *body,
		  const char *what, json_t **answer, struct hb_error *err)
{
	json_t *found = NULL;
	int status = hb_engine_call(e, method, path, body, &found, err);
	int rc = status < 0 ? -1 : judge(status, found, what, err);

	if (rc == 0 && answer)
		*answer = found;
	else
		json_decref(found);
	return rc;
}

int hb_engine_stream_open(struct hb_engine *e, const char *method, const char *path,
			  const json_t *body, const char *what, struct hb_engine_stream **out,
			  struct hb_error *err)
{
	for (int tries = 0; tries < 2; tries++) {
		int64_t deadline = deadline_of(e);
		struct hb_engine_stream *s;
		json_t *answer = NULL;
		char *full;
		int rc;

		if (hb_engine_negotiate(e, err) < 0)
			return -1;
		full = versioned(e, path);
		s = begin(e, method, full, body, deadline, err);
		free(full);
		if (!s)
			return -1;
		if (s->parser.status_code / 100 == 2) {
			*out = s;
			return 0;
		}
		rc = rest(e, s, deadline, err) == 0 && (answer = decode(s, err)) ? 0 : -1;
		if (rc == 0 && is_version_error((int)s->parser.status_code, answer) && tries == 0)
			e->minor = 0;
		else if (rc == 0)
			rc = judge((int)s->parser.status_code, answer, what, err);
		json_decref(answer);
		hb_engine_stream_close(s);
		if (rc < 0)
			return -1;
	}
	return hb_fail(err, "engine_version",
		       "the Docker engine changes its API version all the time");
}

char *hb_engine_escape(const char *text, const char *also)
{
	struct hb_buf out = HB_BUF_INIT;

	for (const char *p = text; *p; p++) {
		if (strchr(HB_SET_ALNUM "-._~", *p) || strchr(also, *p))
			hb_buf_addc(&out, *p);
		else
			hb_buf_printf(&out, "%%%02X", (unsigned char)*p);
	}
	return hb_buf_take(&out);
}
