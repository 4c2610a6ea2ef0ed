/*
 * One authenticated call to the runtime's MCP server, from a command line tool: hermesctl asks the
 * installer (POST /mcp), the installer passes it on to its caller worker, and that worker alone
 * (uid hermes-probe, the payload's loopback port, the directory of named keys and nothing else)
 * reads the key and speaks MCP. The key is in no argument, environment, log or answer: where the
 * runtime echoes it, "[key]" stands in its place.
 *
 * Named keys are the files HB_MCP_KEYS/NAME: 0600, owner hermes-probe, the key and at most a
 * newline.
 *
 * The call blocks until there is an answer or its time is up. The worker answers one call after the
 * other and keeps one MCP session for each key; a session that the runtime has forgotten is
 * replaced once, before anything could have run.
 */
#ifndef HB_ONBOARDING_MCP_CALL_H
#define HB_ONBOARDING_MCP_CALL_H

#include <jansson.h>
#include <stddef.h>

#include "common/error.h"

#define HB_MCP_KEYS "probe/keys" /* below the state directory; 0700, owner hermes-probe */
#define HB_MCP_KEY_MAX 4096      /* bytes of a key */
#define HB_MCP_NAME_MAX 64       /* of its name */

#define HB_MCP_TIMEOUT_MS 30000 /* when timeout_ms is 0 */
#define HB_MCP_TIMEOUT_MAX_MS 300000
#define HB_MCP_REPLY_BYTES (256u << 10) /* when reply_max is 0 */
#define HB_MCP_REPLY_MAX (4u << 20)

/* Lower-case letters, digits and '-', beginning with a letter, shorter than HB_MCP_NAME_MAX. Code
 * bad_key_name. */
int hb_mcp_key_name_check(const char *name, struct hb_error *err);

struct hb_mcp_options {
	const char *key;  /* name of the key */
	int timeout_ms;   /* over everything: waiting for the worker, session, answer */
	size_t reply_max; /* bytes of one reply of the runtime; more is an error (too_large), never
			     cut */
};

enum hb_mcp_state {
	HB_MCP_OK,     /* it ran to its end */
	HB_MCP_FAILED, /* the runtime says that it failed (isError, or status "error") */
	HB_MCP_PAUSED  /* it waits for somebody: hb_mcp_resume with `execution` */
};

struct hb_mcp_result {
	enum hb_mcp_state state;
	char *text; /* the text parts of the answer, joined by newlines; never NULL; escape before
		       printing */
	char *execution; /* paused: the execution to resume; else "" */
	char *address;   /* paused: the tool that waits ("google.org.ben.gmail.send"), when the
			    runtime says; else "" */
	json_t *value; /* what the code returned, when the runtime gives it as structure; or NULL */
};
void hb_mcp_result_free(struct hb_mcp_result *r);
const char *hb_mcp_state_name(enum hb_mcp_state state); /* ok, failed, paused */

/*
 * 0 with a result (whichever state), or -1 when there is none: nothing is known to have worked
 * then. Codes: bad_key_name, secret_missing, secret_permissions, secret_empty   the key key_refused
 * the runtime does not take it (401, 403) not_running, port_in_use                          there
 * is no payload to ask unreachable, timeout, busy                        no answer (a call that
 * timed out may still run) too_large, bad_reply, mcp_failed                  an answer that can't
 * be used
 */
int hb_mcp_execute(const struct hb_mcp_options *o, const char *code, struct hb_mcp_result *out,
		   struct hb_error *err);
/* action: accept, decline, cancel. content: JSON object text, or NULL. */
int hb_mcp_resume(const struct hb_mcp_options *o, const char *execution, const char *action,
		  const char *content, struct hb_mcp_result *out, struct hb_error *err);
/* Names of the server's own tools, sorted; new reference, or NULL. */
json_t *hb_mcp_list_tools(const struct hb_mcp_options *o, struct hb_error *err);

/* --- what both ends of the installer's route agree on, for the installer and for tests --- */

/*
 * The `result` member of an answer to tools/call, as a struct: isError, then
 * structuredContent.status
 * ("completed", "error", "waiting_for_interaction"; any other word is refused), text parts. Code
 * bad_reply.
 */
int hb_mcp_result_read(const json_t *result, struct hb_mcp_result *out, struct hb_error *err);
json_t *hb_mcp_result_to_json(const struct hb_mcp_result *r);
int hb_mcp_result_from_json(const json_t *object, struct hb_mcp_result *out, struct hb_error *err);

#endif
