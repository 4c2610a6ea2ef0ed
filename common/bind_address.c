#include "common/bind_address.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

enum reach { REACH_NO_ADDRESS, REACH_LOOPBACK, REACH_PRIVATE, REACH_WILDCARD, REACH_WIDER };

static bool
within(uint32_t address, uint32_t net, int bits)
{
	return (address >> (32 - bits)) == (net >> (32 - bits));
}

static enum reach
reach4(uint32_t a)
{
	if (a == 0)
		return REACH_WILDCARD;
	if (within(a, 0x7f000000, 8))
		return REACH_LOOPBACK;
	return within(a, 0x0a000000, 8) || within(a, 0xac100000, 12) || within(a, 0xc0a80000, 16)
		       ? REACH_PRIVATE
		       : REACH_WIDER;
}

static enum reach
reach(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (inet_pton(AF_INET, host, &v4) == 1)
		return reach4(ntohl(v4.s_addr));
	if (inet_pton(AF_INET6, host, &v6) != 1)
		return REACH_NO_ADDRESS;
	if (IN6_IS_ADDR_UNSPECIFIED(&v6))
		return REACH_WILDCARD;
	if (IN6_IS_ADDR_LOOPBACK(&v6))
		return REACH_LOOPBACK;
	return (v6.s6_addr[0] & 0xfe) == 0xfc ? REACH_PRIVATE : REACH_WIDER;
}

static int
split(const char *key, const char *text, struct hb_bind_address *out, struct hb_error *err)
{
	const char *colon = strrchr(text, ':'), *from = text;
	size_t len = colon != NULL ? (size_t)(colon - text) : 0;
	char *end = NULL;
	long port = 0;
	bool bracket = text[0] == '[';

	if (bracket && len >= 2 && text[len - 1] == ']') {
		from++;
		len -= 2;
	}
	if (colon != NULL && colon[1] >= '1' && colon[1] <= '9')
		port = strtol(colon + 1, &end, 10);
	if (len == 0 || len >= sizeof(out->host) || port < 1 || port > 65535 || *end != '\0')
		return hb_fail(err, "config_listen",
			       "%s: \"%.80s\" is not ADDRESS:PORT with a numeric address", key,
			       text);
	memset(out->host, 0, sizeof(out->host));
	memcpy(out->host, from, len);
	out->port = (int)port;
	if ((strchr(out->host, ':') != NULL) != bracket)
		return hb_fail(err, "config_listen", "%s: an IPv6 address stands in [brackets]",
			       key);
	return 0;
}

int
hb_bind_address_parse(const char *key, const char *text, bool private_ok,
		      struct hb_bind_address *out, struct hb_error *err)
{
	struct hb_bind_address a = {.port = 0};

	if (split(key, text, &a, err) != 0)
		return -1;
	switch (reach(a.host)) {
	case REACH_LOOPBACK:
		a.loopback = true;
		break;
	case REACH_PRIVATE:
		if (private_ok)
			break;
		return hb_fail(err, "config_listen",
			       "%s: %s is not a loopback address (127.x.x.x or [::1])", key,
			       a.host);
	case REACH_NO_ADDRESS:
		return hb_fail(err, "config_listen", "%s: \"%s\" is not a numeric address", key,
			       a.host);
	case REACH_WILDCARD:
		return hb_fail(err, "config_listen",
			       "%s: %s would listen on every interface; name one private address",
			       key, a.host);
	default:
		return hb_fail(err, "config_listen",
			       "%s: %s is public, multicast or link-local; only loopback%s "
			       "addresses are listened on",
			       key, a.host, private_ok ? " and private" : "");
	}
	*out = a;
	return 0;
}
