/*
 * Which sockets a user listens on, from the kernel's tables in /proc/net (proc_net(5)).
 *
 * The four tables are opened once, before confinement, and read again from their start for every check: no path has to
 * be reachable afterwards. Loopback is 127.0.0.0/8, ::1 and ::ffff:127.0.0.0/104.
 */
#ifndef HB_INSTALLER_LISTENERS_H
#define HB_INSTALLER_LISTENERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

struct hb_listeners; /* four open tables, and what was seen the last time */

int hb_listeners_open(struct hb_listeners **out, struct hb_error *err);
void hb_listeners_free(struct hb_listeners *l);

struct hb_listener_report {
	bool ours;             /* the user listens on the TCP port */
	bool foreign;          /* somebody else listens on the TCP port */
	uid_t foreign_uid;
	bool public_found;     /* a listener of the user outside loopback: `where` names it */
	bool public_suspected; /* an unconnected UDP socket outside loopback that is too new to judge */
	char where[80];        /* "tcp 0.0.0.0:4788" */
};

/*
 * Look now. TCP: sockets in LISTEN. UDP has no such state: an unconnected socket bound outside loopback is one that can
 * be spoken to, but a resolver's looks the same for the moment it waits; it counts when the same socket (by inode)
 * is still there after HB_UDP_SETTLE_MS.
 */
#define HB_UDP_SETTLE_MS 2000
int hb_listeners_check(struct hb_listeners *l, uid_t uid, uint16_t port, int64_t now_ms,
		       struct hb_listener_report *out, struct hb_error *err);

/* One line of a table, for tests and the fuzzer: 0 when it holds a socket. */
struct hb_socket_line {
	unsigned char address[16]; /* IPv4 mapped */
	uint16_t port;
	bool remote_is_zero;
	unsigned state;
	uid_t uid;
	unsigned long long inode;
};
int hb_socket_line_parse(const char *line, struct hb_socket_line *out);
bool hb_address_is_loopback(const unsigned char address[16]);

#endif
