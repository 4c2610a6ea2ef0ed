/*
 * One HTTP request at a time over libcurl, nothing followed, nothing retried, nothing stored that
 * wasn't asked for. Every connection is judged by the address it is about to be made to, after name
 * resolution. One object a thread; its connections are kept and used again.
 */
#ifndef HB_FETCHER_HTTP_H
#define HB_FETCHER_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/error.h"
#include "fetcher/store.h"
#include "fetcher/url.h"

#define HB_HTTP_HEADERS_MAX 65536    /* all header lines of one answer */
#define HB_HTTP_ERROR_BODY_MAX 65536 /* of an answer that isn't the thing asked for */

struct hb_http_options {
	long connect_timeout, stall_timeout; /* seconds */
	const char *ca_file;                 /* in addition to the system's; NULL or "" for none */
	const struct hb_stop *stop;
};

struct hb_response {
	int status;
	char content_type[128], location[4096], retry_after[64], content_range[96];
	char challenge[8193];   /* WWW-Authenticate fields joined by ", " */
	int64_t content_length; /* -1: not given */
	uint64_t received;      /* body bytes */
	bool complete;          /* the connection ended the way the framing says */
	bool oversized_headers;
	char trouble[160];  /* why it is not complete */
	struct hb_buf body; /* of answers the sink did not take; capped */
};

struct hb_http_request {
	const struct hb_url *url;
	bool head;
	const char *accept;        /* or NULL */
	const char *authorization; /* "Bearer ..": borrowed, or NULL */
	bool ranged;
	uint64_t range_first, range_last; /* always closed */
	bool loopback_allowed; /* else an address on loopback is refused; plain http is allowed only
				  there */
	long total_timeout;    /* seconds, 0: none */
	/* Called when the headers are complete. 1: the body goes to `data`; 0: it is kept in
	 * response.body; -1: end. */
	int (*begin)(const struct hb_response *r, void *arg);
	int (*data)(const void *bytes, size_t len, void *arg); /* -1 ends the transfer */
	void *arg;
};

struct hb_http;

struct hb_http *hb_http_new(const struct hb_http_options *options);
void hb_http_free(struct hb_http *h);

/* 0 when an answer with headers came (see `complete`), -1 when none did. Codes: unreachable,
 * timeout, tls_failed, address_refused, cancelled. The response's body must be freed with
 * hb_response_clear either way. */
int hb_http_perform(struct hb_http *h, const struct hb_http_request *req, struct hb_response *out,
		    struct hb_error *err);
void hb_response_clear(struct hb_response *r);

/* The first error of a registry's error body (distribution-spec, "Error Codes"), made printable:
 * "TOOMANYREQUESTS: .." */
void hb_response_reason(const char *body, size_t len, char *out, size_t size);

#endif
