/*
 * The caller worker: authenticated calls to the payload's MCP server with named keys, for
 * hermesctl.
 *
 * A worker of its own beside the probe, because a call may take minutes and health must not wait
 * for it. uid hermes-probe; connects to the payload's port; reads the files in probe/keys and no
 * others; no exec. The key stays in it: what it answers has "[key]" where the runtime echoed one.
 *
 * One JSON line each way over a stream socket pair.
 *   {"id":N,"key":NAME,"tool":"execute"|"resume"|"","arguments":{..},"timeout_ms":N,"reply_max":N}
 *   {"id":N,"state":..,"text":..,"execution":..,"address":..,"value":..}   (onboarding/mcp_call.h)
 *   {"id":N,"tools":[..]}  for tool ""         {"id":N,"error":..,"code":..}
 */
#ifndef HB_INSTALLER_CALLER_H
#define HB_INSTALLER_CALLER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "common/process.h"
#include "common/server.h"

struct hb_caller_options {
	uid_t uid;
	gid_t gid;
	uint16_t port;
	const char *mcp_path;
	bool degraded_ok;
};

/* --- the worker (caller.c) --- */

int hb_caller_fork(const struct hb_caller_options *options, int *fd, pid_t *pid,
		   struct hb_error *err);

struct hb_caller_sessions; /* one a key */
struct hb_caller_sessions *hb_caller_sessions_new(void);
/* What the worker does with one line; also for tests. Never NULL. */
json_t *hb_caller_run(const struct hb_caller_options *options, struct hb_caller_sessions *sessions,
		      const json_t *question);

/* Every occurrence of `secret` in the strings and names of `value` becomes "[key]"; new reference.
 */
json_t *hb_caller_redact(const json_t *value, const char *secret);

/* --- in the installer (caller_route.c) --- */

struct hb_caller;
struct hb_supervisor;

/* Before confinement: forks the worker. */
int hb_caller_new(struct hb_process *process, uint16_t port, struct hb_caller **out,
		  struct hb_error *err);
/* Once confined. `supervisor` says before each call whether it is the payload that listens on the
 * port. */
int hb_caller_listen(struct hb_caller *c, struct hb_supervisor *supervisor, struct hb_error *err);
void hb_caller_free(struct hb_caller *c);

/* POST /mcp */
void hb_caller_handle(struct hb_caller *c, struct hb_request *req);

#endif
