/*
 * Reading /proc/net/{tcp,tcp6,udp,udp6}: "sl local:port remote:port st ...". Addresses are printed as 32-bit words in
 * host byte order, so a word is stored back as it was read.
 */
#include "broker/installer/listeners.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/fs.h"

#define TABLES 4
#define SUSPECTS 16
#define TABLE_MAX (32u << 20) /* 150 bytes a socket: 200,000 sockets */
#define STATE_LISTEN 0x0a
#define STATE_UNCONNECTED 0x07

struct suspect {
	unsigned long long inode;
	int64_t since_ms;
	bool seen;
};

struct hb_listeners {
	int fds[TABLES];
	struct suspect suspects[SUSPECTS];
	struct hb_buf text;
};

static const struct {
	const char *path, *name;
	bool udp, optional;
} tables[TABLES] = {
	{"/proc/net/tcp", "tcp", false, false},
	{"/proc/net/tcp6", "tcp6", false, true}, /* absent when IPv6 is off */
	{"/proc/net/udp", "udp", true, false},
	{"/proc/net/udp6", "udp6", true, true},
};

int hb_listeners_open(struct hb_listeners **out, struct hb_error *err)
{
	struct hb_listeners *l = hb_calloc(1, sizeof(*l));

	for (size_t i = 0; i < TABLES; i++)
		l->fds[i] = -1;
	for (size_t i = 0; i < TABLES; i++) {
		l->fds[i] = open(tables[i].path, O_RDONLY | O_CLOEXEC);
		if (l->fds[i] < 0 && !(tables[i].optional && errno == ENOENT)) {
			hb_fail_errno(err, "proc_missing", "cannot open %s; is /proc mounted?", tables[i].path);
			hb_listeners_free(l);
			return -1;
		}
	}
	*out = l;
	return 0;
}

void hb_listeners_free(struct hb_listeners *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < TABLES; i++)
		hb_close(&l->fds[i]);
	hb_buf_free(&l->text);
	free(l);
}

bool hb_address_is_loopback(const unsigned char a[16])
{
	static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	static const unsigned char one[16] = {[15] = 1};

	if (!memcmp(a, mapped, sizeof(mapped)))
		return a[12] == 127;
	return !memcmp(a, one, sizeof(one));
}

/* "0100007F" or 32 digits; then ":" and the port. */
static const char *parse_address(const char *p, unsigned char address[16], unsigned *port)
{
	size_t digits = strspn(p, "0123456789ABCDEFabcdef");
	unsigned char *at = address;
	char word[9] = "";

	if (digits == 8) {
		memset(address, 0, 10);
		memset(address + 10, 0xff, 2);
		at = address + 12;
	} else if (digits != 32) {
		return NULL;
	}
	for (size_t i = 0; i < digits; i += 8) {
		uint32_t value;

		memcpy(word, p + i, 8);
		value = (uint32_t)strtoul(word, NULL, 16);
		memcpy(at, &value, 4);
		at += 4;
	}
	if (sscanf(p + digits, ":%4x", port) != 1)
		return NULL;
	return p + digits + 5;
}

int hb_socket_line_parse(const char *line, struct hb_socket_line *out)
{
	unsigned char remote[16];
	unsigned port, remote_port, state, uid;
	const char *p = strchr(line, ':');
	struct hb_socket_line s;

	if (!p)
		return -1;
	p += 1 + strspn(p + 1, " ");
	p = parse_address(p, s.address, &port);
	if (!p || *p != ' ')
		return -1;
	p = parse_address(p + 1, remote, &remote_port);
	if (!p)
		return -1;
	/* st tx:rx tr:when retrnsmt uid timeout inode */
	if (sscanf(p, " %x %*x:%*x %*x:%*x %*x %u %*d %llu", &state, &uid, &s.inode) != 3)
		return -1;
	s.port = (uint16_t)port;
	s.remote_is_zero = remote_port == 0;
	s.state = state;
	s.uid = uid;
	*out = s;
	return 0;
}

static int read_table(struct hb_listeners *l, size_t i, struct hb_error *err)
{
	char piece[16384];
	ssize_t n;

	hb_buf_clear(&l->text);
	if (lseek(l->fds[i], 0, SEEK_SET) < 0)
		return hb_fail_errno(err, "proc_missing", "cannot rewind %s", tables[i].path);
	while ((n = read(l->fds[i], piece, sizeof(piece))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return hb_fail_errno(err, "proc_missing", "cannot read %s", tables[i].path);
		if (l->text.len + (size_t)n > TABLE_MAX)
			return hb_fail(err, "too_large", "%s has more than %u bytes", tables[i].path, TABLE_MAX);
		hb_buf_add(&l->text, piece, (size_t)n);
	}
	return 0;
}

/* True once this UDP socket has been there long enough. A full table judges at once: better stopped than missed. */
static bool udp_settled(struct hb_listeners *l, unsigned long long inode, int64_t now_ms)
{
	struct suspect *unused = NULL;

	for (size_t i = 0; i < SUSPECTS; i++) {
		struct suspect *s = &l->suspects[i];

		if (s->inode == inode) {
			s->seen = true;
			return now_ms - s->since_ms >= HB_UDP_SETTLE_MS;
		}
		if (!s->inode)
			unused = s;
	}
	if (!unused)
		return true;
	*unused = (struct suspect){.inode = inode, .since_ms = now_ms, .seen = true};
	return false;
}

static void describe(const struct hb_socket_line *s, const char *table, struct hb_listener_report *r)
{
	static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	bool v4 = !memcmp(s->address, mapped, sizeof(mapped)) && !strchr(table, '6');
	char text[INET6_ADDRSTRLEN] = "?";

	if (v4)
		inet_ntop(AF_INET, s->address + 12, text, sizeof(text));
	else
		inet_ntop(AF_INET6, s->address, text, sizeof(text));
	snprintf(r->where, sizeof(r->where), v4 ? "%s %s:%u" : "%s [%s]:%u", table, text, s->port);
}

/* Whoever listens on 127.0.0.1 or on everything has the port that the payload needs. */
static bool keeps_us_out(const unsigned char a[16])
{
	static const unsigned char zero[16];
	bool v4 = a[10] == 0xff && a[11] == 0xff && !memcmp(a, zero, 10);

	return v4 ? a[12] == 127 || !memcmp(a + 12, zero, 4) : !memcmp(a, zero, 16);
}

static void judge(struct hb_listeners *l, size_t table, const struct hb_socket_line *s, uid_t uid, uint16_t port,
		  int64_t now_ms, struct hb_listener_report *r)
{
	bool udp = tables[table].udp;
	bool open_to_all = !hb_address_is_loopback(s->address);

	if (udp ? !(s->state == STATE_UNCONNECTED && s->remote_is_zero) : s->state != STATE_LISTEN)
		return;
	if (!udp && s->port == port && s->uid != uid && keeps_us_out(s->address)) {
		r->foreign = true;
		r->foreign_uid = s->uid;
	}
	if (s->uid != uid)
		return;
	if (!udp && s->port == port)
		r->ours = true;
	if (!open_to_all || r->public_found)
		return;
	if (udp && !udp_settled(l, s->inode, now_ms)) {
		r->public_suspected = true;
		return;
	}
	r->public_found = true;
	describe(s, tables[table].name, r);
}

int hb_listeners_check(struct hb_listeners *l, uid_t uid, uint16_t port, int64_t now_ms,
		       struct hb_listener_report *out, struct hb_error *err)
{
	struct hb_listener_report report = {0};

	for (size_t i = 0; i < SUSPECTS; i++)
		l->suspects[i].seen = false;
	for (size_t i = 0; i < TABLES; i++) {
		char *save = NULL;

		if (l->fds[i] < 0)
			continue;
		if (read_table(l, i, err) < 0)
			return -1;
		if (!l->text.len)
			continue;
		for (char *line = strtok_r(l->text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
			struct hb_socket_line s;

			if (hb_socket_line_parse(line, &s) == 0)
				judge(l, i, &s, uid, port, now_ms, &report);
		}
	}
	for (size_t i = 0; i < SUSPECTS; i++)
		if (!l->suspects[i].seen)
			l->suspects[i].inode = 0;
	*out = report;
	return 0;
}
