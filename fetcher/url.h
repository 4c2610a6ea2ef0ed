/*
 * URLs that others chose (redirect targets, token realms), taken apart by libcurl's own parser so
 * that what is checked is what will be dialled, and the rules for where a registry may send us.
 */
#ifndef HB_FETCHER_URL_H
#define HB_FETCHER_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

struct hb_url {
	char text[8192];    /* whole URL, normalised, without fragment */
	char host[256];     /* lower case, without brackets */
	char origin[300];   /* https://host:port, port always given */
	char hostport[272]; /* host, with :port unless it is the scheme's own */
	bool http;          /* plain http */
};

/* Absolute http or https only; userinfo, control characters, blanks and zones are refused. Code:
 * bad_url. */
int hb_url_parse(const char *text, struct hb_url *out, struct hb_error *err);
/* `reference` may be relative to base (Location). */
int hb_url_resolve(const struct hb_url *base, const char *reference, struct hb_url *out,
		   struct hb_error *err);

/* Where a site (a registry or mirror as configured) may send us. */
struct hb_site_rules {
	bool plain;    /* the site itself is an allowed plain-http one (and so on loopback) */
	bool loopback; /* the site itself is on loopback */
};

/* Redirects: https, or http to loopback when the site is plain; never link-local; loopback only
 * when the site is. Code: redirect_refused. */
int hb_redirect_check(const struct hb_site_rules *rules, const struct hb_url *to,
		      struct hb_error *err);

/* Realms: the same, and with credentials only the hosts in `allowed` (NULL-terminated, host[:port])
 * or the registry's own host. `realm` is the text of the challenge. Code: realm_refused, the
 * message names the host. */
int hb_realm_check(const struct hb_site_rules *rules, const struct hb_url *registry,
		   const char *realm, bool credentials, const char *const *allowed,
		   struct hb_url *out, struct hb_error *err);

/* Append name=value to a query, percent-encoded so that the value can't add parameters. Code:
 * bad_url. */
int hb_url_add_query(struct hb_url *url, const char *name, const char *value, struct hb_error *err);

#endif
