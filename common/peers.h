/*
 * Who is who, and who may talk to whom: the one table both ends of every socket check against SO_PEERCRED.
 *
 * uids are numeric: base_uid (hermes.conf [identities] base_uid, default 10110) plus a fixed offset. The group
 * that may reach a server's socket directory is uid + 100 of that server; each caller is a member of the
 * groups of the servers it calls.
 */
#ifndef HB_COMMON_PEERS_H
#define HB_COMMON_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum hb_peer {
	HB_PEER_BROKER,    /* +0 */
	HB_PEER_FETCHER,   /* +1 */
	HB_PEER_UNPACK,    /* +2 worker */
	HB_PEER_PROBE,     /* +3 worker */
	HB_PEER_DOCKER,    /* +4 */
	HB_PEER_SSH,       /* +5 */
	HB_PEER_APPROVER,  /* +6 */
	HB_PEER_ADMIN,     /* +7 */
	HB_PEER_RUNTIME,   /* +8 the payload: talks to none of us */
	HB_PEER_INSTALLER, /* root */
	HB_PEER_LAUNCHER,  /* root: calls nobody but /health */
	HB_PEER_OPERATOR,  /* root: hermesctl */
	HB_PEER_CLIENT,    /* uids listed in [broker] client_uids */
	HB_PEER_CONSOLE,   /* uids listed in [approver] console_approvers */
	HB_PEER_COUNT
};

#define HB_PEER_BIT(p) (1u << (p))

struct hb_edge {
	enum hb_peer from, to;
	const char *why;
};
extern const struct hb_edge hb_edges[];
extern const size_t hb_edge_count;

void hb_peers_init(uid_t base_uid);
const char *hb_peer_name(enum hb_peer p);      /* "hermes-broker" */
const char *hb_peer_dir(enum hb_peer p);       /* "broker": its state directory and run/ name */
const char *hb_peer_socket(enum hb_peer p);    /* "run/broker/sock"; NULL for those that serve nothing */
uid_t hb_peer_uid(enum hb_peer p);
gid_t hb_peer_gid(enum hb_peer p);             /* primary group, same number as the uid */
gid_t hb_peer_callers_gid(enum hb_peer server);
/* Supplementary groups of p (callers' groups of the servers it calls); returns the count. */
size_t hb_peer_groups(enum hb_peer p, gid_t *groups, size_t max);

/* Extra uids for HB_PEER_CLIENT / HB_PEER_CONSOLE, from the configuration. */
void hb_peers_allow(enum hb_peer role, const uid_t *uids, size_t count);

/* Bit set of the roles that uid may act as (0: a stranger). Root is INSTALLER, LAUNCHER and OPERATOR. */
unsigned hb_peer_roles(uid_t uid);
bool hb_edge_exists(enum hb_peer from, enum hb_peer to);

#endif
