/* See url.h. CURLU handles do the parsing; this file only asks for the parts and judges them. */
#include "fetcher/url.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/buf.h"
#include "fetcher/address.h"

static int
check_bytes(const char *text, struct hb_error *err)
{
	size_t n = strlen(text);

	if (n == 0 || n >= sizeof(((struct hb_url *)0)->text) / 2)
		return hb_fail(err, "bad_url", "a URL is empty or too long");
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] <= 0x20 || (unsigned char)text[i] >= 0x7f ||
		    text[i] == '\\')
			return hb_fail(err, "bad_url",
				       "a URL holds a character that doesn't belong there");
	return 0;
}

static int
copy_part(CURLU *h, CURLUPart part, unsigned flags, char *out, size_t size)
{
	char *text = NULL;
	int rc = -1;

	if (curl_url_get(h, part, &text, flags) == CURLUE_OK && strlen(text) < size) {
		memcpy(out, text, strlen(text) + 1);
		rc = 0;
	}
	curl_free(text);
	return rc;
}

static bool
part_present(CURLU *h, CURLUPart part)
{
	char *text = NULL;
	bool yes = curl_url_get(h, part, &text, 0) == CURLUE_OK;

	curl_free(text);
	return yes;
}

static int
take_apart(CURLU *h, struct hb_url *out, struct hb_error *err)
{
	char scheme[16], host[256], port[8];
	size_t n;

	if (copy_part(h, CURLUPART_SCHEME, 0, scheme, sizeof(scheme)) ||
	    (strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0))
		return hb_fail(err, "bad_url", "a URL must begin with https:// (or http://)");
	if (part_present(h, CURLUPART_USER) || part_present(h, CURLUPART_PASSWORD) ||
	    part_present(h, CURLUPART_OPTIONS))
		return hb_fail(err, "bad_url", "a URL carries a user name or password");
	curl_url_set(h, CURLUPART_FRAGMENT, NULL, 0);
	if (part_present(h, CURLUPART_ZONEID) ||
	    copy_part(h, CURLUPART_HOST, 0, host, sizeof(host)) ||
	    copy_part(h, CURLUPART_PORT, CURLU_DEFAULT_PORT, port, sizeof(port)) ||
	    copy_part(h, CURLUPART_URL, 0, out->text, sizeof(out->text)))
		return hb_fail(err, "bad_url", "a URL can't be read");
	n = strlen(host);
	for (size_t i = 0; i < n; i++)
		if (host[i] >= 'A' && host[i] <= 'Z')
			host[i] = (char)(host[i] - 'A' + 'a');
	if (n > 200 || strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_:[]") != n)
		return hb_fail(err, "bad_url", "a URL has a malformed host name");
	out->http = strcmp(scheme, "http") == 0;
	snprintf(out->origin, sizeof(out->origin), "%s://%s:%s", scheme, host, port);
	snprintf(out->hostport, sizeof(out->hostport), "%s%s%s", host,
		 strcmp(port, out->http ? "80" : "443") == 0 ? "" : ":",
		 strcmp(port, out->http ? "80" : "443") == 0 ? "" : port);
	if (host[0] == '[') {
		host[n - 1] = '\0';
		memmove(host, host + 1, n - 1);
	}
	snprintf(out->host, sizeof(out->host), "%s", host);
	return 0;
}

static int
parse(const char *base, const char *text, struct hb_url *out, struct hb_error *err)
{
	struct hb_url url = {0};
	CURLU *h;
	int rc = -1;

	if (check_bytes(text, err))
		return -1;
	h = curl_url();
	if (!h)
		return hb_fail(err, "no_memory", "out of memory");
	if ((base && curl_url_set(h, CURLUPART_URL, base, 0) != CURLUE_OK) ||
	    curl_url_set(h, CURLUPART_URL, text, 0) != CURLUE_OK) {
		hb_fail(err, "bad_url", "a URL can't be read");
		goto out;
	}
	if (take_apart(h, &url, err))
		goto out;
	*out = url;
	rc = 0;
out:
	curl_url_cleanup(h);
	return rc;
}

int
hb_url_parse(const char *text, struct hb_url *out, struct hb_error *err)
{
	if (strncasecmp(text, "https://", 8) != 0 && strncasecmp(text, "http://", 7) != 0)
		return hb_fail(err, "bad_url", "a URL must begin with https:// (or http://)");
	return parse(NULL, text, out, err);
}

int
hb_url_resolve(const struct hb_url *base, const char *reference, struct hb_url *out,
	       struct hb_error *err)
{
	return parse(base->text, reference, out, err);
}

/* The rules that redirects and realms share; `code` and `what` make the refusal. */
static int
check_target(const struct hb_site_rules *rules, const struct hb_url *to, const char *code,
	     const char *what, struct hb_error *err)
{
	enum hb_address_class class;
	bool loopback = hb_host_is_loopback(to->host);

	if (hb_address_literal(to->host, &class) && class == HB_ADDRESS_FORBIDDEN)
		return hb_fail(err, code,
			       "the registry %s %s, an address it may not send us to (link-local, "
			       "metadata or reserved); nothing was sent there",
			       what, to->hostport);
	if (loopback && !rules->loopback)
		return hb_fail(err, code,
			       "the registry %s %s on this machine's loopback, which only a "
			       "registry on "
			       "loopback may do; nothing was sent there",
			       what, to->hostport);
	if (to->http && !(rules->plain && loopback))
		return hb_fail(err, code,
			       "the registry %s %s over plain http, which is not protected; "
			       "nothing was "
			       "sent there",
			       what, to->hostport);
	return 0;
}

int
hb_redirect_check(const struct hb_site_rules *rules, const struct hb_url *to, struct hb_error *err)
{
	return check_target(rules, to, "redirect_refused", "redirects to", err);
}

int
hb_realm_check(const struct hb_site_rules *rules, const struct hb_url *registry, const char *realm,
	       bool credentials, const char *const *allowed, struct hb_url *out,
	       struct hb_error *err)
{
	struct hb_error why = {0};
	struct hb_url url;
	bool listed;

	if (hb_url_parse(realm, &url, &why))
		return hb_fail(err, "realm_refused",
			       "the registry %s names an unusable token server: %s",
			       registry->hostport, why.message);
	if (check_target(rules, &url, "realm_refused", "wants a token from", err))
		return -1;
	if (credentials) {
		listed = strcmp(url.origin, registry->origin) == 0 ||
			 (!url.http && strcmp(url.hostport, registry->host) == 0);
		for (size_t i = 0; allowed && allowed[i]; i++)
			listed |= strcasecmp(allowed[i], url.hostport) == 0;
		if (!listed)
			return hb_fail(err, "realm_refused",
				       "the registry %s wants its user name and password sent to "
				       "%s; nothing was sent. If that is its token server, add it "
				       "to \"realm_hosts\" "
				       "of this registry in fetcher/credentials.json",
				       registry->hostport, url.hostport);
	}
	*out = url;
	return 0;
}

int
hb_url_add_query(struct hb_url *url, const char *name, const char *value, struct hb_error *err)
{
	CURLU *h = curl_url();
	struct hb_buf pair = HB_BUF_INIT;
	struct hb_url next;
	int rc = -1;

	hb_buf_printf(&pair, "%s=%s", name, value);
	/* URLENCODE with APPENDQUERY leaves the first "=" alone and encodes all else. */
	if (!h || curl_url_set(h, CURLUPART_URL, url->text, 0) != CURLUE_OK ||
	    curl_url_set(h, CURLUPART_QUERY, pair.data, CURLU_APPENDQUERY | CURLU_URLENCODE) !=
		    CURLUE_OK) {
		hb_fail(err, "bad_url", "a token URL can't be built");
		goto out;
	}
	if (take_apart(h, &next, err))
		goto out;
	*url = next;
	rc = 0;
out:
	curl_url_cleanup(h);
	hb_buf_free(&pair);
	return rc;
}
