/* Bringing the front door up and down, and where it may listen. */
#include "broker/broker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/ids.h"
#include "common/log.h"
#include "common/paths.h"

static void
tick(evutil_socket_t fd, short what, void *arg)
{
	struct hb_broker *b = arg;

	hb_broker_control(b);
	hb_flow_tick(b);
	hb_services_tick(b);
	hb_outbox_tick(b);
	hb_broker_send_heads(b);
	hb_watchers_tick(b);
}

/* Also a missing key is security material that a person must mend: a code that says so, not
 * "not_found". */
static int
load_key(struct hb_broker *b, struct hb_error *err)
{
	if (hb_keyring_load(AT_FDCWD, hb_now(), &b->keys, err) == 0)
		return 0;
	if (strcmp(err->code, "not_found") == 0)
		memcpy(err->code, "key_missing", sizeof("key_missing"));
	return -1;
}

/* Before anything is listened on, so that a forbidden address is an error of the configuration. */
static int
check_listen(const struct hb_process *p, struct hb_error *err)
{
	const char **items;
	size_t n = hb_config_list(p->config, "broker.listen_tcp", &items);
	struct hb_listen where;

	if (n > HB_LISTEN_MAX)
		return hb_fail(err, "config_listen", "broker.listen_tcp has more than %d addresses",
			       HB_LISTEN_MAX);
	for (size_t i = 0; i < n; i++)
		if (hb_listen_parse(items[i],
				    hb_config_bool(p->config, "broker.listen_tcp_private"), &where,
				    err) < 0)
			return -1;
	return 0;
}

int
hb_broker_open(struct hb_process *p, struct hb_broker **out, struct hb_error *err)
{
	struct hb_broker *b = hb_calloc(1, sizeof(*b));
	struct hb_error policy_error;

	b->process = p;
	LIST_INIT(&b->watchers);
	LIST_INIT(&b->runs);
	b->control.path = HB_PATH_CONTROL_SECRET;
	b->approval.path = HB_PATH_BROKER_APPROVAL_SECRET;
	b->pending_life = hb_config_int(p->config, "broker.pending_life");
	b->queue_max = hb_config_int(p->config, "broker.queue_max");
	b->approver_silence = hb_config_int(p->config, "broker.approver_silence");
	b->coalesce = hb_config_bool(p->config, "broker.coalesce");
	hb_broker_heard(b); /* it has as long from now */
	hb_services_init(b);
	/* Secrets and key must be right at the start; the policy may be mended while we run, so it
	 * is only reported. */
	if (check_listen(p, err) < 0 || load_key(b, err) < 0 ||
	    hb_secret_watch(&b->control, err) < 0 || hb_secret_watch(&b->approval, err) < 0 ||
	    hb_store_open(HB_PATH_BROKER_DB, &b->store, err) < 0) {
		hb_broker_close(b);
		return -1;
	}
	hb_broker_policy(b, &policy_error);
	hb_broker_control(b);
	*out = b;
	return 0;
}

int
hb_broker_listen(struct hb_process *p, struct hb_error *err)
{
	const char **items;
	size_t n = hb_config_list(p->config, "broker.listen_tcp", &items);
	bool private_ok = hb_config_bool(p->config, "broker.listen_tcp_private");
	struct hb_listen where = {0};

	for (size_t i = 0; i < n; i++) {
		if (hb_listen_parse(items[i], private_ok, &where, err) < 0 ||
		    hb_server_listen_tcp(p->server, where.host, where.port, NULL, err) < 0)
			return -1;
		hb_log(HB_LOG_INFO, "listening", "address", items[i], NULL);
	}
	return 0;
}

int
hb_broker_run(struct hb_process *p, struct hb_broker *b, struct hb_error *err)
{
	struct timeval second = {1, 0};

	if (hb_flow_restore(b, err) < 0)
		return -1;
	b->tick = event_new(p->base, -1, EV_PERSIST, tick, b);
	if (!b->tick || event_add(b->tick, &second) < 0)
		return hb_fail(err, "internal", "no timer could be made");
	hb_secret_deliver(b);
	hb_services_tick(b);
	hb_outbox_tick(b);
	return 0;
}

void
hb_broker_close(struct hb_broker *b)
{
	if (!b)
		return;
	if (b->tick)
		event_free(b->tick);
	hb_watchers_free(b);
	hb_runs_free(b);
	hb_secret_unwatch(&b->control);
	hb_secret_unwatch(&b->approval);
	if (b->policy_ok)
		hb_policy_view_free(&b->policy);
	json_decref(b->heads_sent);
	hb_store_close(b->store);
	free(b);
}

static bool
within4(uint32_t a, uint32_t net, int bits)
{
	return (a >> (32 - bits)) == (net >> (32 - bits));
}

/* 2: loopback, 1: private (RFC 1918, RFC 4193), 0: anything else */
static int
reach(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (inet_pton(AF_INET, host, &v4) == 1) {
		uint32_t a = ntohl(v4.s_addr);

		if (within4(a, 0x7f000000, 8))
			return 2;
		return within4(a, 0x0a000000, 8) || within4(a, 0xac100000, 12) ||
		       within4(a, 0xc0a80000, 16);
	}
	if (inet_pton(AF_INET6, host, &v6) == 1) {
		if (IN6_IS_ADDR_LOOPBACK(&v6))
			return 2;
		return (v6.s6_addr[0] & 0xfe) == 0xfc;
	}
	return 0;
}

int
hb_listen_parse(const char *text, bool private_ok, struct hb_listen *out, struct hb_error *err)
{
	const char *colon = strrchr(text, ':'), *from = text;
	size_t len = colon ? (size_t)(colon - text) : 0;
	struct hb_listen l = {0};
	char *end;
	long port;
	int how;

	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		from++;
		len -= 2;
	}
	port = colon ? strtol(colon + 1, &end, 10) : 0;
	if (!colon || len == 0 || len >= sizeof(l.host) || colon[1] < '0' || colon[1] > '9' ||
	    *end || port < 1 || port > 65535)
		return hb_fail(
			err, "config_listen",
			"broker.listen_tcp: \"%s\" is not ADDRESS:PORT with a numeric address",
			text);
	memcpy(l.host, from, len);
	l.port = (int)port;
	how = reach(l.host);
	if (how == 0)
		return hb_fail(
			err, "config_listen",
			"broker.listen_tcp: %s is not a loopback or private address; the broker "
			"is not served to other networks",
			text);
	if (how == 1 && !private_ok)
		return hb_fail(err, "config_listen",
			       "broker.listen_tcp: %s is a private address; that needs "
			       "listen_tcp_private = yes",
			       text);
	*out = l;
	return 0;
}
