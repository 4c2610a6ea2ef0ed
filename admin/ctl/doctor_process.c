/*
 * hermesctl doctor --authority: what the kernel shows of a process beside its capabilities, compared with what is
 * declared. Every one of its user and group ids, its supplementary groups, whether a capability could come back
 * (inheritable, ambient), and the TCP and UDP sockets that it has open and that others could reach.
 */
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/doctor.h"
#include "common/buf.h"
#include "common/process.h"

#define GROUPS_MAX 64
#define TCP_LISTEN 0x0A

/* All of "Uid:" or "Gid:" are `wanted`: real, effective, saved, of the file system. */
static bool all_are(const char *status, const char *name, unsigned wanted)
{
	const char *at = strstr(status, name);
	unsigned ids[4];

	if (!at || sscanf(at + strlen(name), "%u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) != 4)
		return false;
	for (int i = 0; i < 4; i++)
		if (ids[i] != wanted)
			return false;
	return true;
}

static void extra_groups(struct ctl_findings *f, enum hb_peer server, const char *status, struct hb_buf *excess)
{
	gid_t declared[GROUPS_MAX], has[GROUPS_MAX];
	size_t count = hb_process_groups(f->c->config, server, declared, GROUPS_MAX);
	size_t n = ctl_status_groups(status, has, GROUPS_MAX);

	for (size_t i = 0; i < n; i++) {
		bool known = has[i] == hb_peer_gid(server);

		for (size_t k = 0; k < count; k++)
			known = known || has[i] == declared[k];
		if (!known)
			hb_buf_printf(excess, " group %u", (unsigned)has[i]);
	}
}

/* Is the socket with this inode a descriptor of the process? */
static bool has_socket(pid_t pid, unsigned long inode)
{
	char dir[64], path[PATH_MAX], target[64], wanted[64];
	bool found = false;
	struct dirent *de;
	DIR *d;

	snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
	snprintf(dir, sizeof dir, "/proc/%d/fd", pid);
	d = opendir(dir);
	while (d && !found && (de = readdir(d))) {
		ssize_t n;

		snprintf(path, sizeof path, "%s/%s", dir, de->d_name);
		n = readlink(path, target, sizeof target - 1);
		target[n > 0 ? n : 0] = '\0';
		found = strcmp(target, wanted) == 0;
	}
	if (d)
		closedir(d);
	return found;
}

/* Whether this program may listen on a TCP port, by its configuration. */
static bool port_declared(struct ctl_findings *f, enum hb_peer server, unsigned port)
{
	const char *keys[3] = {NULL}, **items;
	size_t n;
	char text[16];

	if (server == HB_PEER_ADMIN && hb_config_bool(f->c->config, "admin.enabled")) {
		keys[0] = hb_config_text(f->c->config, "admin.listen");
		keys[1] = hb_config_text(f->c->config, "admin.listen_private");
	}
	snprintf(text, sizeof text, ":%u", port);
	for (size_t i = 0; i < 2; i++)
		if (keys[i] && strlen(keys[i]) > strlen(text) &&
		    strcmp(keys[i] + strlen(keys[i]) - strlen(text), text) == 0)
			return true;
	n = server == HB_PEER_BROKER ? hb_config_list(f->c->config, "broker.listen_tcp", &items) : 0;
	for (size_t i = 0; i < n; i++)
		if (strlen(items[i]) > strlen(text) && strcmp(items[i] + strlen(items[i]) - strlen(text), text) == 0)
			return true;
	return false;
}

/* One table of /proc/PID/net: TCP sockets that listen, UDP sockets that are bound. */
static void listeners(struct ctl_findings *f, enum hb_peer server, pid_t pid, const char *table, struct hb_buf *excess)
{
	bool tcp = table[0] == 't';
	char path[64], line[512];
	FILE *in;

	snprintf(path, sizeof path, "/proc/%d/net/%s", pid, table);
	in = fopen(path, "re");
	while (in && fgets(line, sizeof line, in)) {
		unsigned port, state;
		unsigned long inode;

		if (sscanf(line, " %*d: %*[0-9A-F]:%X %*[0-9A-F]:%*X %X %*s %*s %*s %*u %*d %lu", &port, &state, &inode) != 3)
			continue;
		if (tcp && state == TCP_LISTEN && has_socket(pid, inode) && !port_declared(f, server, port))
			hb_buf_printf(excess, " listens on TCP %u", port);
		/* A resolver's own socket has a peer (state 1); one that is only bound waits for anybody. */
		if (!tcp && state != 1 && has_socket(pid, inode))
			hb_buf_printf(excess, " open UDP %u", port);
	}
	if (in)
		fclose(in);
}

bool ctl_doctor_process(struct ctl_findings *f, enum hb_peer server, pid_t pid, const char *status, struct hb_buf *excess)
{
	static const char *const tables[] = {"tcp", "tcp6", "udp", "udp6"};

	if (!all_are(status, "\nUid:", hb_peer_uid(server)))
		hb_buf_printf(excess, " user ids");
	if (!all_are(status, "\nGid:", hb_peer_gid(server)))
		hb_buf_printf(excess, " group ids");
	if (ctl_status_number(status, "\nCapInh:", 16) != 0 || ctl_status_number(status, "\nCapAmb:", 16) != 0)
		hb_buf_printf(excess, " inheritable capabilities");
	extra_groups(f, server, status, excess);
	/* The fetcher and the approver ask for names by UDP, from sockets that resolvers don't always connect. */
	for (size_t i = 0; i < (server == HB_PEER_FETCHER || server == HB_PEER_APPROVER ? 2u : 4u); i++)
		listeners(f, server, pid, tables[i], excess);
	return excess->len == 0;
}
