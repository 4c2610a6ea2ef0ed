/* libcurl's multi interface on libevent: curl says which sockets and when, the loop says what
 * happened. */
#include "approver/botapi.h"

#include <curl/curl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

#include "common/buf.h"

#define CONNECT_TIMEOUT_MS 10000

struct hb_bot_call {
	LIST_ENTRY(hb_bot_call) link;
	struct hb_bot *bot;
	CURL *easy;
	struct curl_slist *headers;
	char *body;
	struct hb_buf reply;
	bool too_long;
	hb_bot_done done;
	void *arg;
};

struct sock {
	struct event *ev;
};

struct hb_bot {
	struct event_base *base;
	CURLM *multi;
	struct event *timer;
	char *api_base, *ca_file;
	char *token;	/* sodium_malloc'ed, or NULL */
	char *previous; /* calls made with it may still be answered */
	LIST_HEAD(hb_bot_call_list, hb_bot_call) calls;
};

static void
call_free(struct hb_bot_call *c)
{
	LIST_REMOVE(c, link);
	curl_multi_remove_handle(c->bot->multi, c->easy);
	curl_easy_cleanup(c->easy);
	curl_slist_free_all(c->headers);
	free(c->body);
	hb_buf_free(&c->reply);
	free(c);
}

static void
finished(struct hb_bot_call *c, CURLcode code)
{
	struct hb_bot_reply reply = {0};
	json_t *parsed = NULL;
	long http = 0;
	hb_bot_done done = c->done;
	void *arg = c->arg;

	if (code == CURLE_OK) {
		curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &http);
		hb_bot_read_reply((int)http, c->reply.data ? c->reply.data : "", c->reply.len,
				  c->bot->token, &reply, &parsed);
		if (c->bot->previous) {
			char once[sizeof(reply.description)];

			memcpy(once, reply.description, sizeof(once));
			hb_bot_scrub(once, c->bot->previous, reply.description,
				     sizeof(reply.description));
		}
	} else {
		snprintf(reply.description, sizeof(reply.description), "%s",
			 c->too_long ? "the answer is too long" : curl_easy_strerror(code));
	}
	call_free(c);
	done(&reply, arg);
	json_decref(parsed);
}

static void
reap(struct hb_bot *bot)
{
	CURLMsg *msg;
	int left;

	while ((msg = curl_multi_info_read(bot->multi, &left))) {
		struct hb_bot_call *c = NULL;

		if (msg->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&c);
		finished(c, msg->data.result);
	}
}

static void
socket_ready(evutil_socket_t fd, short what, void *arg)
{
	struct hb_bot *bot = arg;
	int running;

	curl_multi_socket_action(bot->multi, fd,
				 (what & EV_READ ? CURL_CSELECT_IN : 0) |
					 (what & EV_WRITE ? CURL_CSELECT_OUT : 0),
				 &running);
	reap(bot);
}

static void
timer_ready(evutil_socket_t fd, short what, void *arg)
{
	struct hb_bot *bot = arg;
	int running;

	curl_multi_socket_action(bot->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	reap(bot);
}

static int
want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *sockp)
{
	struct hb_bot *bot = arg;
	struct sock *s = sockp;
	short events = EV_PERSIST;

	if (what == CURL_POLL_REMOVE) {
		if (s) {
			event_free(s->ev);
			free(s);
			curl_multi_assign(bot->multi, fd, NULL);
		}
		return 0;
	}
	if (what & CURL_POLL_IN)
		events |= EV_READ;
	if (what & CURL_POLL_OUT)
		events |= EV_WRITE;
	if (!s) {
		s = hb_calloc(1, sizeof(*s));
		curl_multi_assign(bot->multi, fd, s);
	} else {
		event_free(s->ev);
	}
	s->ev = event_new(bot->base, fd, events, socket_ready, bot);
	if (!s->ev || event_add(s->ev, NULL) < 0)
		abort();
	return 0;
}

static int
want_timer(CURLM *multi, long ms, void *arg)
{
	struct hb_bot *bot = arg;
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};

	if (ms < 0)
		event_del(bot->timer);
	else
		event_add(bot->timer, &tv);
	return 0;
}

static size_t
take_bytes(char *data, size_t size, size_t n, void *arg)
{
	struct hb_bot_call *c = arg;

	if (c->reply.len + size * n > HB_BOT_REPLY_MAX) {
		c->too_long = true;
		return 0;
	}
	hb_buf_add(&c->reply, data, size * n);
	return size * n;
}

static bool
loopback_host(const char *host)
{
	return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
	       (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == strlen(host));
}

int
hb_bot_check_base(const char *api_base, struct hb_error *err)
{
	CURLU *u = curl_url();
	char *scheme = NULL, *host = NULL, *extra = NULL;
	static const CURLUPart forbidden[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY,
					      CURLUPART_FRAGMENT};
	int rc = 0;

	if (curl_url_set(u, CURLUPART_URL, api_base, 0) != CURLUE_OK ||
	    curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
	    curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK) {
		rc = hb_fail(err, "config_api_base",
			     "approver.api_base is not an address like https://api.telegram.org");
		goto out;
	}
	for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]) && rc == 0; i++) {
		if (curl_url_get(u, forbidden[i], &extra, 0) == CURLUE_OK)
			rc = hb_fail(err, "config_api_base",
				     "approver.api_base may hold no user, query or fragment");
		curl_free(extra);
		extra = NULL;
	}
	if (rc == 0 && strcmp(scheme, "https") != 0 &&
	    !(strcmp(scheme, "http") == 0 && loopback_host(host)))
		rc = hb_fail(err, "config_api_base",
			     "approver.api_base must be https (http only to a loopback address)");
out:
	curl_free(scheme);
	curl_free(host);
	curl_url_cleanup(u);
	return rc;
}

int
hb_bot_port(const char *api_base, uint16_t *port, struct hb_error *err)
{
	CURLU *u = curl_url();
	char *text = NULL;
	int rc = hb_bot_check_base(api_base, err);

	/* Checked above, so that what follows can't fail but for memory. */
	if (rc == 0 && (curl_url_set(u, CURLUPART_URL, api_base, 0) != CURLUE_OK ||
			curl_url_get(u, CURLUPART_PORT, &text, CURLU_DEFAULT_PORT) != CURLUE_OK))
		rc = hb_fail(err, "config_api_base", "the port of approver.api_base can't be told");
	if (rc == 0)
		*port = (uint16_t)atoi(text);
	curl_free(text);
	curl_url_cleanup(u);
	return rc;
}

int
hb_bot_new(struct event_base *base, const char *api_base, const char *ca_file, struct hb_bot **out,
	   struct hb_error *err)
{
	struct hb_bot *bot;
	size_t len = strlen(api_base);

	if (hb_bot_check_base(api_base, err) < 0)
		return -1;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
		return hb_fail(err, "internal", "libcurl can't be set up");
	bot = hb_calloc(1, sizeof(*bot));
	bot->base = base;
	bot->api_base = hb_strdup(api_base);
	if (len > 0 && bot->api_base[len - 1] == '/')
		bot->api_base[len - 1] = 0;
	bot->ca_file = *ca_file ? hb_strdup(ca_file) : NULL;
	LIST_INIT(&bot->calls);
	bot->multi = curl_multi_init();
	bot->timer = evtimer_new(base, timer_ready, bot);
	if (!bot->multi || !bot->timer)
		abort();
	curl_multi_setopt(bot->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
	curl_multi_setopt(bot->multi, CURLMOPT_SOCKETDATA, bot);
	curl_multi_setopt(bot->multi, CURLMOPT_TIMERFUNCTION, want_timer);
	curl_multi_setopt(bot->multi, CURLMOPT_TIMERDATA, bot);
	*out = bot;
	return 0;
}

void
hb_bot_free(struct hb_bot *bot)
{
	if (!bot)
		return;
	for (struct hb_bot_call *c = LIST_FIRST(&bot->calls), *next; c; c = next) {
		next = LIST_NEXT(c, link);
		call_free(c);
	}
	curl_multi_cleanup(bot->multi);
	event_free(bot->timer);
	hb_bot_set_token(bot, NULL);
	sodium_free(bot->previous);
	free(bot->api_base);
	free(bot->ca_file);
	free(bot);
}

bool
hb_bot_token_ok(const char *token)
{
	size_t digits = strspn(token, "0123456789");
	const char *rest = token + digits + 1;

	if (digits < 1 || token[digits] != ':')
		return false;
	return strlen(rest) >= 20 &&
	       strspn(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") ==
		       strlen(rest);
}

void
hb_bot_set_token(struct hb_bot *bot, const char *token)
{
	sodium_free(bot->previous);
	bot->previous = bot->token;
	bot->token = NULL;
	if (!token)
		return;
	bot->token = sodium_malloc(strlen(token) + 1);
	if (!bot->token)
		abort();
	memcpy(bot->token, token, strlen(token) + 1);
}

static void
set_options(struct hb_bot_call *c, int timeout_ms)
{
	struct hb_bot *bot = c->bot;
	CURL *e = c->easy;

	curl_easy_setopt(e, CURLOPT_PRIVATE, c);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR,
			 strncmp(bot->api_base, "http:", 5) == 0 ? "http" : "https");
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_PROXY, "");
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
	curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
	if (bot->ca_file)
		curl_easy_setopt(e, CURLOPT_CAINFO, bot->ca_file);
	curl_easy_setopt(e, CURLOPT_USERAGENT, "hermes-approver");
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS,
			 (long)(timeout_ms < CONNECT_TIMEOUT_MS ? timeout_ms : CONNECT_TIMEOUT_MS));
	curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->headers);
	curl_easy_setopt(e, CURLOPT_POSTFIELDS, c->body);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_bytes);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
}

struct hb_bot_call *
hb_bot_call(struct hb_bot *bot, const char *method, json_t *params, int timeout_ms,
	    hb_bot_done done, void *arg)
{
	struct hb_bot_call *c = hb_calloc(1, sizeof(*c));
	struct hb_buf url = HB_BUF_INIT;

	c->bot = bot;
	c->done = done;
	c->arg = arg;
	c->easy = curl_easy_init();
	c->body = json_dumps(params, JSON_COMPACT);
	json_decref(params);
	if (!c->easy || !c->body)
		abort();
	/* No "Expect: 100-continue": it costs a second with servers that don't know it. */
	c->headers = curl_slist_append(curl_slist_append(NULL, "Content-Type: application/json"),
				       "Expect:");
	set_options(c, timeout_ms);
	hb_buf_printf(&url, "%s/bot%s/%s", bot->api_base, bot->token ? bot->token : "", method);
	curl_easy_setopt(c->easy, CURLOPT_URL, url.data);
	sodium_memzero(url.data, url.len);
	hb_buf_free(&url);
	LIST_INSERT_HEAD(&bot->calls, c, link);
	curl_multi_add_handle(bot->multi, c->easy);
	return c;
}

void
hb_bot_cancel(struct hb_bot_call *call)
{
	call_free(call);
}
