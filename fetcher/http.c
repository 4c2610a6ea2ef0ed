/* See http.h. */
#include "fetcher/http.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/json.h"
#include "fetcher/address.h"

struct hb_http {
	CURL *curl;
	struct hb_http_options options;
	/* of the request under way */
	const struct hb_http_request *req;
	struct hb_response *resp;
	size_t header_bytes;
	int taken; /* what `begin` said; -2: not asked yet */
	bool address_refused;
	bool loopback_allowed; /* of the request before: its connections were judged by that */
};

/* Header fields that matter, and where each goes. */
static const struct {
	const char *name;
	size_t offset, size;
} fields[] = {
	{"content-type", offsetof(struct hb_response, content_type), 128},
	{"location", offsetof(struct hb_response, location), 4096},
	{"retry-after", offsetof(struct hb_response, retry_after), 64},
	{"content-range", offsetof(struct hb_response, content_range), 96},
};

static void
keep_challenge(struct hb_response *r, const char *value, size_t len)
{
	size_t have = strlen(r->challenge);

	/* One that doesn't fit would be read wrong: mark the whole as unreadable instead. */
	if (have + len + 3 > sizeof(r->challenge)) {
		r->oversized_headers = true;
		return;
	}
	if (have) {
		memcpy(r->challenge + have, ", ", 2);
		have += 2;
	}
	memcpy(r->challenge + have, value, len);
	r->challenge[have + len] = '\0';
}

static void
keep_field(struct hb_response *r, const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len), *value = colon ? colon + 1 : NULL;
	size_t name = colon ? (size_t)(colon - line) : 0, n;

	if (!colon)
		return;
	n = len - name - 1;
	while (n && (*value == ' ' || *value == '\t'))
		value++, n--;
	while (n && (value[n - 1] == '\r' || value[n - 1] == '\n' || value[n - 1] == ' '))
		n--;
	if (memchr(value, '\0', n))
		return;
	if (name == 16 && strncasecmp(line, "www-authenticate", 16) == 0)
		keep_challenge(r, value, n);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		char *to = (char *)r + fields[i].offset;

		if (strlen(fields[i].name) != name || strncasecmp(line, fields[i].name, name) != 0)
			continue;
		if (n >= fields[i].size) {
			r->oversized_headers = true;
			continue;
		}
		memcpy(to, value, n);
		to[n] = '\0';
	}
}

static void
reset_response(struct hb_response *r)
{
	hb_buf_free(&r->body);
	memset(r, 0, sizeof(*r));
	r->content_length = -1;
}

static size_t
on_header(char *line, size_t size, size_t count, void *arg)
{
	struct hb_http *h = arg;
	size_t len = size * count;

	h->header_bytes += len;
	if (h->header_bytes > HB_HTTP_HEADERS_MAX) {
		h->resp->oversized_headers = true;
		return 0;
	}
	if (len > 5 && strncmp(line, "HTTP/", 5) == 0)
		reset_response(h->resp); /* also after a 1xx */
	else
		keep_field(h->resp, line, len);
	return len;
}

/* The headers are complete when the first body byte comes, or when the transfer ends without one.
 */
static int
ask_sink(struct hb_http *h)
{
	curl_off_t length = -1;
	long status = 0;

	if (h->taken != -2)
		return h->taken;
	curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(h->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
	h->resp->status = (int)status;
	h->resp->content_length = length;
	h->taken = h->req->begin ? h->req->begin(h->resp, h->req->arg) : 0;
	return h->taken;
}

static size_t
on_body(char *bytes, size_t size, size_t count, void *arg)
{
	struct hb_http *h = arg;
	size_t len = size * count;
	int taken = ask_sink(h);

	h->resp->received += len;
	if (taken < 0)
		return 0;
	if (taken)
		return h->req->data(bytes, len, h->req->arg) ? 0 : len;
	if (h->resp->body.len + len > HB_HTTP_ERROR_BODY_MAX) {
		snprintf(h->resp->trouble, sizeof(h->resp->trouble), "the answer is too long");
		return 0;
	}
	hb_buf_add(&h->resp->body, bytes, len);
	return len;
}

static int
on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct hb_http *h = arg;

	return hb_stopped(h->options.stop);
}

static curl_socket_t
on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct hb_http *h = arg;
	enum hb_address_class class = hb_address_class(&address->addr);
	bool allowed = class != HB_ADDRESS_FORBIDDEN;

	if (class == HB_ADDRESS_LOOPBACK)
		allowed = h->req->loopback_allowed;
	else if (h->req->url->http)
		allowed = false; /* what can be read on the wire stays on this machine */
	if (!allowed) {
		h->address_refused = true;
		return CURL_SOCKET_BAD;
	}
	return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static CURL *
fresh_handle(void)
{
	CURL *c = curl_easy_init();

	if (!c)
		abort(); /* the same rule as buf.h: nothing can go on without memory */
	return c;
}

static void
set_options(struct hb_http *h, const struct hb_http_request *req)
{
	CURL *c;

	if (h->loopback_allowed != req->loopback_allowed) {
		curl_easy_cleanup(h->curl);
		h->curl = fresh_handle();
		h->loopback_allowed = req->loopback_allowed;
	}
	c = h->curl;
	curl_easy_reset(c); /* connections stay */
	curl_easy_setopt(c, CURLOPT_URL, req->url->text);
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, req->url->http ? "http" : "https");
	curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(c, CURLOPT_PROXY, ""); /* no proxy from the environment */
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	curl_easy_setopt(c, CURLOPT_USERAGENT, "hermes-fetcher/" HB_VERSION);
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, h->options.connect_timeout);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, h->options.stall_timeout);
	curl_easy_setopt(c, CURLOPT_TIMEOUT, req->total_timeout);
	curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 262144L);
	curl_easy_setopt(c, CURLOPT_NOBODY, req->head ? 1L : 0L);
	curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(c, CURLOPT_HEADERDATA, h);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, h);
	curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(c, CURLOPT_XFERINFODATA, h);
	curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_socket);
	curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, h);
	if (h->options.ca_file && h->options.ca_file[0]) {
		/* One file and one directory can be given: ours and the system's hashed ones. */
		curl_easy_setopt(c, CURLOPT_CAINFO, h->options.ca_file);
		curl_easy_setopt(c, CURLOPT_CAPATH, "/etc/ssl/certs");
	}
}

struct hb_http *
hb_http_new(const struct hb_http_options *options)
{
	struct hb_http *h = hb_calloc(1, sizeof(*h));

	h->options = *options;
	h->curl = fresh_handle();
	return h;
}

void
hb_http_free(struct hb_http *h)
{
	if (!h)
		return;
	curl_easy_cleanup(h->curl);
	free(h);
}

static struct curl_slist *
make_headers(const struct hb_http_request *req)
{
	struct curl_slist *list = NULL;
	struct hb_buf line = HB_BUF_INIT;

	if (req->accept) {
		hb_buf_printf(&line, "Accept: %s", req->accept);
		list = curl_slist_append(list, line.data);
	}
	/* A digest is over the bytes as stored: no transport may recode them. */
	list = curl_slist_append(list, "Accept-Encoding: identity");
	if (req->ranged) {
		hb_buf_clear(&line);
		hb_buf_printf(&line, "Range: bytes=%llu-%llu", (unsigned long long)req->range_first,
			      (unsigned long long)req->range_last);
		list = curl_slist_append(list, line.data);
	}
	if (req->authorization) {
		char *auth = hb_asprintf("Authorization: %s", req->authorization);

		list = curl_slist_append(list, auth);
		explicit_bzero(auth, strlen(auth));
		free(auth);
	}
	hb_buf_free(&line);
	return list;
}

static void
free_headers(struct curl_slist *list)
{
	for (struct curl_slist *l = list; l; l = l->next)
		explicit_bzero(l->data, strlen(l->data));
	curl_slist_free_all(list);
}

static int
no_answer(struct hb_http *h, CURLcode rc, struct hb_error *err)
{
	const char *host = h->req->url->hostport;

	switch (rc) {
	case CURLE_ABORTED_BY_CALLBACK:
		return hb_fail(err, "cancelled", "the job was cancelled");
	case CURLE_OPERATION_TIMEDOUT:
		return hb_fail(err, "timeout", "%s did not answer in time", host);
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
		return hb_fail(err, "tls_failed", "TLS with %s failed: %s%s", host,
			       curl_easy_strerror(rc),
			       h->req->loopback_allowed ? " (a registry on loopback that speaks "
							  "plain http goes into "
							  "fetcher.insecure_registries; a private "
							  "CA into fetcher.ca_file)"
							: " (a private CA goes into "
							  "fetcher.ca_file)");
	default:
		if (h->address_refused)
			return hb_fail(err, "address_refused",
				       "%s resolves to an address that is not allowed for it "
				       "(%s); nothing was sent",
				       host,
				       h->req->url->http ? "plain http is only spoken on loopback"
							 : "loopback, link-local or reserved");
		return hb_fail(err, "unreachable",
			       "%s can't be reached: %s; without a way to it, name an image that lies "
			       "on this host (oci:DIR@sha256:HEX) or a mirror (fetcher.mirrors)",
			       host, curl_easy_strerror(rc));
	}
}

int
hb_http_perform(struct hb_http *h, const struct hb_http_request *req, struct hb_response *out,
		struct hb_error *err)
{
	struct curl_slist *headers = make_headers(req);
	long status = 0;
	CURLcode rc;

	memset(out, 0, sizeof(*out));
	reset_response(out);
	h->req = req;
	h->resp = out;
	h->header_bytes = 0;
	h->taken = -2;
	h->address_refused = false;
	set_options(h, req);
	curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, headers);
	rc = curl_easy_perform(h->curl);
	curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, NULL);
	free_headers(headers);
	curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &status);
	if (rc == CURLE_ABORTED_BY_CALLBACK || status < 200 || status > 599)
		return no_answer(h, rc == CURLE_OK ? CURLE_WEIRD_SERVER_REPLY : rc, err);
	if (h->taken == -2)
		ask_sink(h); /* an answer without a body */
	out->complete = rc == CURLE_OK;
	if (rc != CURLE_OK && !out->trouble[0])
		snprintf(out->trouble, sizeof(out->trouble), "%s", curl_easy_strerror(rc));
	return 0;
}

void
hb_response_clear(struct hb_response *r)
{
	hb_buf_free(&r->body);
}

/* What a stranger wrote is shown short and in plain ASCII. */
static void
add_printable(char *out, size_t size, const char *text)
{
	size_t n = strlen(out);

	for (; *text && n + 1 < size; text++)
		out[n++] = (unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e ? '?' : *text;
	out[n] = '\0';
}

void
hb_response_reason(const char *body, size_t len, char *out, size_t size)
{
	json_t *doc = len ? hb_json_parse_foreign(body, len, NULL) : NULL;
	const json_t *first = json_array_get(json_object_get(doc, "errors"), 0);
	const char *code = hb_json_text(first, "code", NULL),
		   *message = hb_json_text(first, "message", "");

	out[0] = '\0';
	if (code) {
		add_printable(out, size < 60 ? size : 60, code);
		if (message[0]) {
			add_printable(out, size, ": ");
			add_printable(out, size < 200 ? size : 200, message);
		}
	}
	json_decref(doc);
}
