/* See token.h. */
#include "fetcher/token.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

#define TOKEN_TIMEOUT 60 /* seconds for the whole exchange; token servers answer in one */

void
hb_token_scope(const char *offered, const char *repository, bool credentials, char *out,
	       size_t size)
{
	static const char name_chars[] = "abcdefghijklmnopqrstuvwxyz0123456789._-/";
	const char *name = offered + 11;
	size_t n;

	snprintf(out, size, "repository:%s:pull", repository);
	if (strncmp(offered, "repository:", 11) != 0 || credentials)
		return; /* with credentials only our own repository is ever named */
	n = strspn(name, name_chars);
	if (n && strcmp(name + n, ":pull") == 0 && strlen(offered) < size)
		memcpy(out, offered, strlen(offered) + 1);
}

static const char *
token_of(const json_t *doc)
{
	const char *token = hb_json_text(doc, "token", NULL);

	return token && token[0] ? token : hb_json_text(doc, "access_token", NULL);
}

/* It goes into a header: nothing that could end one. */
static bool
is_visible(const char *text)
{
	for (; *text; text++)
		if (*text <= 0x20 || *text >= 0x7f)
			return false;
	return true;
}

char *
hb_token_decode(const char *body, size_t len, const char *host, struct hb_error *err)
{
	json_t *doc = len ? hb_json_parse_foreign(body, len, NULL) : NULL;
	const char *token = token_of(doc);
	char *out = NULL;
	size_t n = token ? strlen(token) : 0;

	if (!token || !n) {
		hb_fail(err, "bad_token_reply",
			"the token server %s answered without a token (neither \"token\" nor "
			"\"access_token\")",
			host);
		goto out;
	}
	if (n > HB_TOKEN_MAX || !is_visible(token)) {
		hb_fail(err, "bad_token_reply",
			"the token server %s answered with something that is not a token", host);
		goto out;
	}
	out = sodium_malloc(n + 8);
	if (!out)
		abort(); /* the same rule as buf.h: nothing can go on without memory */
	memcpy(out, "Bearer ", 7);
	memcpy(out + 7, token, n + 1);
out:
	if (token)
		sodium_memzero((void *)(uintptr_t)token, strlen(token));
	json_decref(doc);
	return out;
}

/* realm?service=..&scope=.. */
static int
build_url(const struct hb_challenge *challenge, const char *repository, bool credentials,
	  struct hb_url *url, struct hb_error *err)
{
	char scope[1024];

	hb_token_scope(challenge->scope, repository, credentials, scope, sizeof(scope));
	if (challenge->service[0] && hb_url_add_query(url, "service", challenge->service, err))
		return -1;
	return hb_url_add_query(url, "scope", scope, err);
}

static char *
judge(const struct hb_url *url, const struct hb_response *r, bool credentials, char retry_after[64],
      struct hb_error *err)
{
	if (r->trouble[0] || !r->complete) {
		hb_fail(err,
			r->received > HB_HTTP_ERROR_BODY_MAX ? "bad_token_reply" : "unreachable",
			"the token server %s: %s", url->hostport, r->trouble);
		return NULL;
	}
	if (r->status == 429 || (r->status == 503 && r->retry_after[0])) {
		memcpy(retry_after, r->retry_after, 64);
		hb_fail(err, "rate_limited", "the token server %s limits our rate", url->hostport);
		return NULL;
	}
	if (r->status == 401 || r->status == 403) {
		hb_fail(err, "unauthorized",
			credentials ? "the token server %s refused the user name and password of "
				      "fetcher/credentials.json"
				    : "the token server %s wants a user name and password; put "
				      "them into "
				      "fetcher/credentials.json",
			url->hostport);
		return NULL;
	}
	if (r->status != 200) {
		/* redirects too: where credentials go was decided before */
		hb_fail(err, r->status >= 500 ? "registry_error" : "bad_token_reply",
			"the token server %s answered with status %d", url->hostport, r->status);
		return NULL;
	}
	return hb_token_decode(r->body.data ? r->body.data : "", r->body.len, url->hostport, err);
}

char *
hb_token_fetch(struct hb_http *http, const struct hb_challenge *challenge,
	       const struct hb_url *realm, const char *repository, const char *basic,
	       bool loopback_allowed, char retry_after[64], struct hb_error *err)
{
	struct hb_http_request req = {.accept = "application/json",
				      .loopback_allowed = loopback_allowed,
				      .total_timeout = TOKEN_TIMEOUT};
	struct hb_url url = *realm;
	struct hb_response resp;
	char *header = NULL, *token = NULL;

	if (build_url(challenge, repository, basic != NULL, &url, err))
		return NULL;
	req.url = &url;
	if (basic) {
		header = hb_asprintf("Basic %s", basic);
		req.authorization = header;
	}
	if (hb_http_perform(http, &req, &resp, err) == 0)
		token = judge(&url, &resp, basic != NULL, retry_after, err);
	if (resp.body.data)
		sodium_memzero(resp.body.data, resp.body.len);
	hb_response_clear(&resp);
	if (header) {
		sodium_memzero(header, strlen(header));
		free(header);
	}
	return token;
}
