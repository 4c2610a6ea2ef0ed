/* What comes back from the Bot API, read without believing it. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "approver/botapi.h"
#include "common/buf.h"
#include "common/json.h"

#define RETRY_AFTER_MAX 86400

/* Length of `secret` at p, raw or with any of its bytes percent-encoded; 0 when it isn't there. */
static size_t
secret_at(const char *p, const char *secret)
{
	const char *start = p;
	char hex[3] = "";

	for (; *secret; secret++) {
		if (*p == *secret) {
			p++;
			continue;
		}
		if (p[0] != '%' || !p[1] || !p[2])
			return 0;
		memcpy(hex, p + 1, 2);
		if (strspn(hex, "0123456789abcdefABCDEF") != 2 ||
		    strtol(hex, NULL, 16) != (unsigned char)*secret)
			return 0;
		p += 3;
	}
	return (size_t)(p - start);
}

void
hb_bot_scrub(const char *text, const char *token, char *out, size_t size)
{
	const char *secret =
		token ? strchr(token, ':') : NULL; /* the part after the bot's id is the secret */
	size_t n = 0, hit;

	secret = secret ? secret + 1 : NULL;
	while (*text && n + 4 < size) {
		hit = secret && *secret ? secret_at(text, secret) : 0;
		if (hit) {
			memcpy(out + n, "***", 3);
			n += 3;
			text += hit;
			continue;
		}
		out[n] = *text;
		if ((unsigned char)out[n] < 0x20 || out[n] == 0x7f)
			out[n] = ' ';
		n++;
		text++;
	}
	/* Never end inside a character. */
	while (n > 0 && ((unsigned char)*text & 0xC0) == 0x80 &&
	       ((unsigned char)out[n - 1] & 0x80)) {
		bool lead = ((unsigned char)out[n - 1] & 0xC0) == 0xC0;

		n--;
		if (lead)
			break;
	}
	out[n] = 0;
}

void
hb_bot_read_reply(int http, const char *text, size_t len, const char *token,
		  struct hb_bot_reply *reply, json_t **parsed)
{
	json_t *root;
	long long after;

	memset(reply, 0, sizeof(*reply));
	reply->http = http;
	reply->error_code = http;
	*parsed = NULL;
	if (http >= 300 && http < 400) {
		snprintf(reply->description, sizeof(reply->description),
			 "redirected, which is not followed");
		return;
	}
	root = hb_json_parse_foreign(text, len, NULL);
	if (!json_is_object(root)) {
		json_decref(root);
		snprintf(reply->description, sizeof(reply->description),
			 "status %d with no readable answer", http);
		/* A 200 that can't be read says as little as none: the call may have been carried
		 * out. */
		if (http == 200)
			reply->http = reply->error_code = 0;
		return;
	}
	*parsed = root;
	reply->ok = http / 100 == 2 && json_is_true(json_object_get(root, "ok"));
	if (!reply->ok)
		reply->error_code = (int)hb_json_int(root, "error_code", http);
	hb_bot_scrub(hb_json_text(root, "description", ""), token, reply->description,
		     sizeof(reply->description));
	after = hb_json_int(json_object_get(root, "parameters"), "retry_after", 0);
	reply->retry_after = after < 0 ? 0 : after > RETRY_AFTER_MAX ? RETRY_AFTER_MAX : (int)after;
	reply->result = json_object_get(root, "result");
}

int64_t
hb_update_id(const json_t *update)
{
	json_t *id = json_object_get(update, "update_id");

	return json_is_integer(id) && json_integer_value(id) >= 0 ? json_integer_value(id) : -1;
}

bool
hb_update_tap(const json_t *update, struct hb_tap *out)
{
	json_t *query = json_object_get(update, "callback_query");
	json_t *message = json_object_get(query, "message"),
	       *chat = json_object_get(message, "chat");
	const char *data = hb_json_text(query, "data", ""), *id = hb_json_text(query, "id", "");

	memset(out, 0, sizeof(*out));
	if (!json_is_object(query))
		return false;
	if (strlen(id) < sizeof(out->callback_id))
		memcpy(out->callback_id, id, strlen(id) + 1);
	if (strlen(data) < sizeof(out->data))
		memcpy(out->data, data, strlen(data) + 1);
	out->from_id = hb_json_int(json_object_get(query, "from"), "id", 0);
	out->chat_id = hb_json_int(chat, "id", 0);
	out->message_id = hb_json_int(message, "message_id", 0);
	out->private_chat = strcmp(hb_json_text(chat, "type", ""), "private") == 0;
	return true;
}

bool
hb_update_said(const json_t *update, struct hb_said *out)
{
	json_t *message = json_object_get(update, "message"),
	       *chat = json_object_get(message, "chat");
	static const char *const marks[] = {"forward_origin", "forward_from", "forward_date",
					    "via_bot", "sender_chat"};
	const char *text = hb_json_text(message, "text", "");

	memset(out, 0, sizeof(*out));
	if (!json_is_object(message))
		return false;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		out->foreign = out->foreign || json_object_get(message, marks[i]);
	if (strlen(text) < sizeof(out->text))
		memcpy(out->text, text, strlen(text) + 1);
	out->from_id = hb_json_int(json_object_get(message, "from"), "id", 0);
	out->chat_id = hb_json_int(chat, "id", 0);
	out->private_chat = strcmp(hb_json_text(chat, "type", ""), "private") == 0;
	return true;
}

bool
hb_message_faithful(const json_t *message, const char *text, const char *user_id,
		    int64_t *message_id)
{
	json_t *chat = json_object_get(message, "chat");
	char id[32];

	*message_id = hb_json_int(message, "message_id", 0);
	snprintf(id, sizeof(id), "%lld", hb_json_int(chat, "id", 0));
	return *message_id > 0 && strcmp(id, user_id) == 0 &&
	       strcmp(hb_json_text(chat, "type", ""), "private") == 0 &&
	       strcmp(hb_json_text(message, "text", ""), text) == 0;
}
