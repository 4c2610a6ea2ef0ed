/*
 * The probe worker: asks the payload the questions that say whether it really works. uid hermes-probe, one loopback port,
 * no files, no exec; what the payload answers is parsed here and nowhere else.
 *
 * One packet a question over a SOCK_SEQPACKET pair: JSON, NUL, MCP key, NUL, health token, NUL (either may be empty).
 *   {"run":N,"health_path":..,"health_status":N,"health_body":..,"mcp_path":..,"mcp_tools":[..],"timeout_ms":N}
 * and one answer, where code is "" when all is well, else not_ready, mcp_failed or tools_differ:
 *   {"run":N,"checks":{"http":..,"mcp_challenge":..,"mcp_tools":..},"tools":[..]|null,"address":..,"code":..,"error":..}
 * address: the MCP server's own name for itself, "" when it shows none.
 * A check is "ok", "not configured", "not checked", or what is wrong.
 */
#ifndef HB_INSTALLER_PROBE_H
#define HB_INSTALLER_PROBE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

struct hb_probe_options {
	uid_t uid;
	gid_t gid;
	uint16_t port;
	bool degraded_ok;
};

/* Fork it; *fd is the installer's end (non-blocking). */
int hb_probe_fork(const struct hb_probe_options *options, int *fd, pid_t *pid, struct hb_error *err);

/* What the worker does with one question; also for tests. The session is kept from one question to the next. */
struct hb_mcp_session {
	char id[256], version[32]; /* id "": none */
};
json_t *hb_probe_run(uint16_t port, struct hb_mcp_session *session, const json_t *question, const char *key,
		     const char *token);

#endif
