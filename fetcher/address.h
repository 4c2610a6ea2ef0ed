/*
 * What kind of machine an address names. A registry may send us on (redirects, token realms), so
 * each address is judged twice: the literal in the URL, and the one a name resolved to, just before
 * the socket is made.
 */
#ifndef HB_FETCHER_ADDRESS_H
#define HB_FETCHER_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

enum hb_address_class {
	HB_ADDRESS_PUBLIC,
	HB_ADDRESS_PRIVATE, /* RFC 1918, RFC 6598, RFC 4193 */
	HB_ADDRESS_LOOPBACK,
	HB_ADDRESS_FORBIDDEN /* link-local, unspecified, multicast, reserved, cloud metadata */
};

/* IPv4 inside IPv6 (mapped, compatible, NAT64, 6to4) is judged as the IPv4 address it carries. */
enum hb_address_class hb_address_class(const struct sockaddr *sa);
/* A numeric host ("127.0.0.1", "::1" without brackets). Returns false for a name. */
bool hb_address_literal(const char *host, enum hb_address_class *out);
/* True for a loopback literal and for "localhost" and names below it (RFC 6761). */
bool hb_host_is_loopback(const char *host);

#endif
