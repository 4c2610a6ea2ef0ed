/*
 * The graph of who may talk to whom, a line an edge.
 *
 * Both ends read it: a server turns a caller's uid into roles and looks for an edge that its route
 * names; a client compares the uid of the process that listens with the one this table gives that
 * name.  Several roles may share a uid (root is three of them), so what is decided is always "may
 * any role of this uid", never "which one is it".
 */
#include "common/peers.h"

#include <string.h>

/* further uids of one role: a host has a handful of agents and operators */
#define PEER_UIDS_MAX 32
#define CALLERS_GID_OFFSET 100  /* keeps the groups of sockets apart from the groups of processes */
#define INSTALLER_OFFSET 9 /* root has no uid of ours; this numbers only the group of its socket   \
			    */

const struct hb_edge hb_edges[] = {
	{HB_PEER_CLIENT, HB_PEER_BROKER, "asks for operations"},
	{HB_PEER_OPERATOR, HB_PEER_BROKER, "hermesctl asks for operations and reads them"},
	{HB_PEER_OPERATOR, HB_PEER_ADMIN, "hermesctl reads status and changes live policy"},
	{HB_PEER_OPERATOR, HB_PEER_APPROVER, "hermesctl approve, as a console approver"},
	{HB_PEER_OPERATOR, HB_PEER_INSTALLER, "hermesctl stops the runtime for a snapshot"},
	{HB_PEER_CONSOLE, HB_PEER_APPROVER, "a listed person decides in a terminal"},

	{HB_PEER_BROKER, HB_PEER_INSTALLER, "seal, execute, status"},
	{HB_PEER_BROKER, HB_PEER_DOCKER, "seal, execute, status"},
	{HB_PEER_BROKER, HB_PEER_SSH, "seal, execute, status"},
	{HB_PEER_BROKER, HB_PEER_ADMIN, "seal, execute, status of a change of policy"},
	{HB_PEER_BROKER, HB_PEER_APPROVER, "asks for a person's decision"},
	{HB_PEER_APPROVER, HB_PEER_BROKER, "delivers a signed grant"},
	{HB_PEER_INSTALLER, HB_PEER_FETCHER, "resolve and fetch images"},

	{HB_PEER_ADMIN, HB_PEER_BROKER, "health, operations; asks for a new control secret, and for a policy to be widened"},
	{HB_PEER_ADMIN, HB_PEER_FETCHER, "health"},
	{HB_PEER_ADMIN, HB_PEER_INSTALLER, "health"},
	{HB_PEER_ADMIN, HB_PEER_DOCKER, "health"},
	{HB_PEER_ADMIN, HB_PEER_SSH, "health"},
	{HB_PEER_ADMIN, HB_PEER_APPROVER, "health; hands over a bot token"},

	{HB_PEER_LAUNCHER, HB_PEER_BROKER, "health"},
	{HB_PEER_LAUNCHER, HB_PEER_FETCHER, "health"},
	{HB_PEER_LAUNCHER, HB_PEER_INSTALLER, "health"},
	{HB_PEER_LAUNCHER, HB_PEER_DOCKER, "health"},
	{HB_PEER_LAUNCHER, HB_PEER_SSH, "health"},
	{HB_PEER_LAUNCHER, HB_PEER_APPROVER, "health"},
	{HB_PEER_LAUNCHER, HB_PEER_ADMIN, "health"},
};
const size_t hb_edge_count = sizeof(hb_edges) / sizeof(hb_edges[0]);

/* offset: added to base_uid; -1: root; -2: only the uids given to hb_peers_allow(). */
static const struct {
	const char *name, *dir, *socket;
	int offset;
} peers[HB_PEER_COUNT] = {
	[HB_PEER_BROKER] = {"hermes-broker", "broker", "run/broker/sock", 0},
	[HB_PEER_FETCHER] = {"hermes-fetcher", "fetcher", "run/fetcher/sock", 1},
	[HB_PEER_UNPACK] = {"hermes-unpack", "unpack", NULL, 2},
	[HB_PEER_PROBE] = {"hermes-probe", "probe", NULL, 3},
	[HB_PEER_DOCKER] = {"hermes-docker", "docker", "run/docker/sock", 4},
	[HB_PEER_SSH] = {"hermes-ssh", "ssh", "run/ssh/sock", 5},
	[HB_PEER_APPROVER] = {"hermes-approver", "approver", "run/approver/sock", 6},
	[HB_PEER_ADMIN] = {"hermes-admin", "admin", "run/admin/sock", 7},
	[HB_PEER_RUNTIME] = {"hermes-runtime", "runtime", NULL, 8},
	[HB_PEER_INSTALLER] = {"hermes-installer", "installer", "run/installer/sock", -1},
	[HB_PEER_LAUNCHER] = {"hermes-launcher", "launcher", NULL, -1},
	[HB_PEER_OPERATOR] = {"operator", NULL, NULL, -1},
	[HB_PEER_CLIENT] = {"client", NULL, NULL, -2},
	[HB_PEER_CONSOLE] = {"console approver", NULL, NULL, -2},
};

static uid_t base = 10110;

static struct {
	uid_t uids[PEER_UIDS_MAX];
	size_t count;
} allowed[HB_PEER_COUNT];

void
hb_peers_init(uid_t base_uid)
{
	base = base_uid;
	memset(allowed, 0, sizeof(allowed));
}

const char *
hb_peer_name(enum hb_peer p)
{
	return peers[p].name;
}

const char *
hb_peer_dir(enum hb_peer p)
{
	return peers[p].dir;
}

const char *
hb_peer_socket(enum hb_peer p)
{
	return peers[p].socket;
}

uid_t
hb_peer_uid(enum hb_peer p)
{
	if (peers[p].offset >= 0)
		return base + (uid_t)peers[p].offset;
	return peers[p].offset == -1 ? 0 : (uid_t)-1;
}

gid_t
hb_peer_gid(enum hb_peer p)
{
	return (gid_t)hb_peer_uid(p);
}

gid_t
hb_peer_callers_gid(enum hb_peer server)
{
	int offset = peers[server].offset >= 0 ? peers[server].offset : INSTALLER_OFFSET;

	return (gid_t)base + CALLERS_GID_OFFSET + (gid_t)offset;
}

size_t
hb_peer_groups(enum hb_peer p, gid_t *groups, size_t max)
{
	size_t count = 0;

	for (size_t i = 0; i < hb_edge_count && count < max; i++)
		if (hb_edges[i].from == p)
			groups[count++] = hb_peer_callers_gid(hb_edges[i].to);
	return count;
}

void
hb_peers_allow(enum hb_peer role, const uid_t *uids, size_t count)
{
	allowed[role].count = count < PEER_UIDS_MAX ? count : PEER_UIDS_MAX;
	memcpy(allowed[role].uids, uids, allowed[role].count * sizeof(uids[0]));
}

unsigned
hb_peer_roles(uid_t uid)
{
	unsigned roles = 0;

	if (uid == (uid_t)-1)
		return 0;
	for (int p = 0; p < HB_PEER_COUNT; p++) {
		if (hb_peer_uid(p) == uid)
			roles |= HB_PEER_BIT(p);
		for (size_t i = 0; i < allowed[p].count; i++)
			if (allowed[p].uids[i] == uid)
				roles |= HB_PEER_BIT(p);
	}
	return roles;
}

bool
hb_edge_exists(enum hb_peer from, enum hb_peer to)
{
	for (size_t i = 0; i < hb_edge_count; i++)
		if (hb_edges[i].from == from && hb_edges[i].to == to)
			return true;
	return false;
}
