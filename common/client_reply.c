/*
 * Answers: headers, bodies, and the lines of a stream, as they come out of the parser.
 *
 * Lines are handed over after the parser has returned and never from inside it, so that a caller
 * may cancel the call in its callback.
 */
#include <stdlib.h>
#include <string.h>

#include "common/client_internal.h"
#include "common/json.h"

static void
header_end(struct hb_client_call *call)
{
	if (call->field.len > 0 && strcasecmp(call->field.data, "content-type") == 0 &&
	    call->value.len > 0) {
		if (strncmp(call->value.data, "application/x-ndjson", 20) == 0)
			call->stream = STREAM_NDJSON;
		else if (strncmp(call->value.data, "text/event-stream", 17) == 0)
			call->stream = STREAM_EVENTS;
	}
	hb_buf_clear(&call->field);
	hb_buf_clear(&call->value);
	call->value_seen = false;
}

static int
on_field(http_parser *parser, const char *at, size_t len)
{
	struct hb_client_call *call = parser->data;

	if (call->value_seen)
		header_end(call);
	hb_buf_add(&call->field, at, len);
	return 0;
}

static int
on_value(http_parser *parser, const char *at, size_t len)
{
	struct hb_client_call *call = parser->data;

	call->value_seen = true;
	hb_buf_add(&call->value, at, len);
	return 0;
}

static int
on_headers(http_parser *parser)
{
	struct hb_client_call *call = parser->data;

	header_end(call);
	/* Errors are one JSON object, also where a stream was asked for. */
	if (call->on_line == NULL || parser->status_code / 100 != 2)
		call->stream = STREAM_NONE;
	return 0;
}

static int
on_body(http_parser *parser, const char *at, size_t len)
{
	struct hb_client_call *call = parser->data;

	hb_buf_add(&call->reply, at, len);
	return call->reply.len - call->line_at > REPLY_MAX ? -1 : 0;
}

static int
on_complete(http_parser *parser)
{
	struct hb_client_call *call = parser->data;

	if (parser->status_code / 100 == 1) /* "100 Continue" and its kind come before the answer */
		return 0;
	call->complete = true;
	http_parser_pause(parser, 1);
	return 0;
}

const http_parser_settings hb_call_settings = {
	.on_header_field = on_field,
	.on_header_value = on_value,
	.on_headers_complete = on_headers,
	.on_body = on_body,
	.on_message_complete = on_complete,
};

/* One line of a stream to its callback. Returns false when the call is gone. */
bool
hb_call_line(struct hb_client_call *call, const char *text, size_t len)
{
	struct hb_error err;
	json_t *line;

	if (call->stream ==
	    STREAM_EVENTS) { /* of an event only its data is ours (WHATWG HTML, 9.2) */
		if (len < 5 || memcmp(text, "data:", 5) != 0)
			return true;
		text += 5;
		len -= 5;
	}
	if (len == 0)
		return true;
	line = hb_json_parse(text, len, &err);
	if (line == NULL) {
		hb_call_failed(call, "bad_reply", "%s sent a line that is not JSON: %s",
		       hb_peer_name(call->server), err.message);
		return false;
	}
	call->in_callback = true;
	call->on_line(line, call->arg);
	call->in_callback = false;
	json_decref(line);
	if (call->client == NULL) { /* cancelled in there */
		hb_call_free(call);
		return false;
	}
	return true;
}

/* Whole lines of what has come so far. Returns false when the call is gone. */
bool
hb_call_lines(struct hb_client_call *call)
{
	struct hb_buf *b = &call->reply;
	char *end;

	while (call->line_at < b->len &&
	       (end = memchr(b->data + call->line_at, '\n', b->len - call->line_at)) != NULL) {
		const char *text = b->data + call->line_at;
		size_t len = (size_t)(end - text);

		call->line_at += len + 1;
		if (!hb_call_line(call, text, len > 0 && text[len - 1] == '\r' ? len - 1 : len))
			return false;
	}
	if (b->len - call->line_at > LINE_MAX) {
		hb_call_failed(call, "bad_reply", "%s sent a line of more than %d bytes",
		       hb_peer_name(call->server), LINE_MAX);
		return false;
	}
	if (call->line_at > 0) {
		b->len -= call->line_at;
		memmove(b->data, b->data + call->line_at, b->len + 1);
		call->line_at = 0;
	}
	return true;
}
