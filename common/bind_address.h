/*
 * ADDRESS:PORT of a listener, judged before anything is bound: numeric, loopback, or private where
 * that was asked for (RFC 1918, RFC 4193). Wildcard, multicast, link-local and public ones are
 * refused, and so is a name, since what it means can change.
 */
#ifndef HB_COMMON_BIND_ADDRESS_H
#define HB_COMMON_BIND_ADDRESS_H

#include <stdbool.h>

#include "common/error.h"

struct hb_bind_address {
	char host[64]; /* without the brackets of IPv6 */
	int port;
	bool loopback;
};

/* `key` is the setting it comes from, for the message. Code config_listen. */
int hb_bind_address_parse(const char *key, const char *text, bool private_ok,
			  struct hb_bind_address *out, struct hb_error *err);

#endif
