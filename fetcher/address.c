/* Prefix tables for the eye to check; the first match counts, nothing matched is public. */
#include "fetcher/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

static const struct {
	uint32_t net;
	int bits;
	enum hb_address_class class;
} v4_prefixes[] = {
	{0x00000000, 8, HB_ADDRESS_FORBIDDEN},  /* 0.0.0.0/8: reaches this host */
	{0x7f000000, 8, HB_ADDRESS_LOOPBACK},   /* 127.0.0.0/8 */
	{0xa9fe0000, 16, HB_ADDRESS_FORBIDDEN}, /* 169.254.0.0/16: link-local, metadata services */
	{0x646464c8, 32, HB_ADDRESS_FORBIDDEN}, /* 100.100.100.200: a metadata service */
	{0xa83f8110, 32, HB_ADDRESS_FORBIDDEN}, /* 168.63.129.16: a metadata service */
	{0xe0000000, 3, HB_ADDRESS_FORBIDDEN},  /* 224.0.0.0/3: multicast, reserved, broadcast */
	{0x0a000000, 8, HB_ADDRESS_PRIVATE},    /* 10.0.0.0/8 */
	{0xac100000, 12, HB_ADDRESS_PRIVATE},   /* 172.16.0.0/12 */
	{0xc0a80000, 16, HB_ADDRESS_PRIVATE},   /* 192.168.0.0/16 */
	{0x64400000, 10, HB_ADDRESS_PRIVATE},   /* 100.64.0.0/10 */
};

static enum hb_address_class
class_v4(uint32_t ip)
{
	for (size_t i = 0; i < sizeof(v4_prefixes) / sizeof(v4_prefixes[0]); i++) {
		uint32_t mask = v4_prefixes[i].bits == 32 ? 0xffffffffu
							  : ~(0xffffffffu >> v4_prefixes[i].bits);

		if ((ip & mask) == v4_prefixes[i].net)
			return v4_prefixes[i].class;
	}
	return HB_ADDRESS_PUBLIC;
}

static uint32_t
be32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static enum hb_address_class
class_v6(const unsigned char a[16])
{
	static const unsigned char zero[16], mapped[12] = {[10] = 0xff, [11] = 0xff};
	static const unsigned char nat64[12] = {0x00, 0x64, 0xff, 0x9b};
	static const unsigned char metadata[16] = {0xfd, 0x00,        0x0e,
						   0xc2, [14] = 0x02, [15] = 0x54};

	if (memcmp(a, zero, 15) == 0 && a[15] <= 1)
		return a[15] ? HB_ADDRESS_LOOPBACK : HB_ADDRESS_FORBIDDEN;
	if (memcmp(a, mapped, 12) == 0 || memcmp(a, nat64, 12) == 0 || memcmp(a, zero, 12) == 0)
		return class_v4(be32(a + 12));
	if (a[0] == 0x20 && a[1] == 0x02) /* 6to4 */
		return class_v4(be32(a + 2));
	if (memcmp(a, metadata, 16) == 0 || a[0] == 0xff || (a[0] == 0xfe && (a[1] & 0x80)))
		return HB_ADDRESS_FORBIDDEN;
	if ((a[0] & 0xfe) == 0xfc)
		return HB_ADDRESS_PRIVATE;
	return HB_ADDRESS_PUBLIC;
}

enum hb_address_class
hb_address_class(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return class_v4(
			ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr));
	if (sa->sa_family == AF_INET6)
		return class_v6(((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr.s6_addr);
	return HB_ADDRESS_FORBIDDEN;
}

bool
hb_address_literal(const char *host, enum hb_address_class *out)
{
	struct in6_addr v6;
	struct in_addr v4;

	/* inet_aton also reads 0x7f.1 and the like, as resolvers do: a literal must not slip by as
	 * a name. */
	if (inet_aton(host, &v4)) {
		*out = class_v4(ntohl(v4.s_addr));
		return true;
	}
	if (inet_pton(AF_INET6, host, &v6) == 1) {
		*out = class_v6(v6.s6_addr);
		return true;
	}
	return false;
}

bool
hb_host_is_loopback(const char *host)
{
	enum hb_address_class class;
	size_t len = strlen(host);

	if (hb_address_literal(host, &class))
		return class == HB_ADDRESS_LOOPBACK;
	if (len && host[len - 1] == '.')
		len--;
	return (len == 9 && strncasecmp(host, "localhost", 9) == 0) ||
	       (len > 10 && strncasecmp(host + len - 10, ".localhost", 10) == 0);
}
