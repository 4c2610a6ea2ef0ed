/*
 * The same start for every long-running program, in the same order: arguments, state directory, configuration,
 * identity check, audit log, open what needs rights, listen, sandbox, "ready", loop, stop.
 *
 * Arguments of every program: --state DIR, --ready-fd N (one byte '1' is written when serving), --help, --version.
 * A main.c fills a struct hb_program and calls hb_process_main.
 */
#ifndef HB_COMMON_PROCESS_H
#define HB_COMMON_PROCESS_H

#include <event2/event.h>
#include <stdbool.h>

#include "common/audit.h"
#include "common/client.h"
#include "common/config.h"
#include "common/error.h"
#include "common/peers.h"
#include "common/sandbox.h"
#include "common/server.h"

struct hb_process {
	enum hb_peer self;
	struct event_base *base;
	struct hb_config *config;
	struct hb_audit *audit;
	struct hb_server *server;
	struct hb_client *client;
	struct hb_sandbox_report sandbox;
	char host_id[33];
	int64_t started_at;
	int exit_code;
};

struct hb_program {
	enum hb_peer self;
	const char *usage;               /* text of --help after the common options */
	struct hb_server_options server; /* .ctx is filled in with what `open` returns; on_refused NULL: logged */
	/* Before confinement: open files, keys, databases; fork declared workers. Returns the program's state or NULL. */
	void *(*open)(struct hb_process *p, struct hb_error *err);
	/* Still before confinement, with p->server made: further sockets to listen on, so that no program needs the
	 * right to make or bind one afterwards. May be NULL. */
	int (*listen)(struct hb_process *p, void *ctx, struct hb_error *err);
	/* What it needs afterwards; may depend on the configuration. */
	int (*sandbox)(struct hb_process *p, void *ctx, struct hb_sandbox *out, struct hb_error *err);
	/* Once confined and listening: start timers and so on. May be NULL. */
	int (*run)(struct hb_process *p, void *ctx, struct hb_error *err);
	/* SIGTERM or SIGINT: finish, then call hb_process_exit(). NULL: leave at once. */
	void (*stop)(struct hb_process *p, void *ctx);
	void (*close)(void *ctx);
};

/* Exit codes (sysexits.h): 0 stopped, 64 usage, 77 wrong identity or permissions, 78 configuration or security
 * material, 71 cannot start (the reason is one log line). */
int hb_process_main(const struct hb_program *program, int argc, char **argv);
void hb_process_exit(struct hb_process *p, int code);

/* Uids and sockets that the configuration adds to the table of peers: identities.base_uid, broker.client_uids,
 * approver.console_approvers. Also for programs that are not servers (launcher, hermesctl). */
int hb_process_peers(const struct hb_config *config, struct hb_error *err);
/* Supplementary groups of p: those of the table, and for docker the group of the Docker socket (never root's). */
size_t hb_process_groups(const struct hb_config *config, enum hb_peer p, gid_t *groups, size_t max);

/* {"status":"ok"|"error","error":..,"checks":{..}} with what every process has: version, uid, uptime, sandbox. */
json_t *hb_process_health(struct hb_process *p, const char *error);

#endif
