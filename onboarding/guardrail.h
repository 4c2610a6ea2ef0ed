/*
 * Guardrails: what the tools behind one kind of connection may do, as files that are compared with the live runtime.
 *
 * A file (conf/guardrails/NAME.ini, strict INI):
 *   [guardrail]
 *   title = Mail
 *   connection = google.*.*                which connections: INTEGRATION[.OWNER[.CONNECTION]]
 *   [allow] [approval] [never]
 *   tool = gmail.users.messages.list       repeated; the part of a tool's path behind the connection
 *   [call]
 *   call = TOOL {JSON arguments}           arguments with which a check may call a tool; they can do no harm
 *   [resume]
 *   call = TOOL {JSON arguments}           approval tools that a check may let run, too
 *   [limit]
 *   at-most = TOOL POINTER N               the array that the tool's data has there holds at most N items
 *
 * Patterns: segments between dots, compared byte by byte (case counts). "*" stands for exactly one whole segment, "**",
 * only at the end of a tool pattern, for one or more. Nothing stands for a part of a segment.
 *
 * All files whose connection matches the beginning of a tool's path speak about that tool. Precedence: never, approval,
 * allow, in whichever file or order they stand; a tool that no rule matches is denied.
 */
#ifndef HB_ONBOARDING_GUARDRAIL_H
#define HB_ONBOARDING_GUARDRAIL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

#define HB_GUARDRAIL_DIR "conf/guardrails"
#define HB_GUARDRAIL_FILES_MAX 64
#define HB_GUARDRAIL_RULES_MAX 1000 /* of one file */
#define HB_TOOL_PATH_MAX 300        /* bytes of a tool's whole path, and of a pattern */
#define HB_TOOL_SEGMENTS_MAX 16

enum hb_verdict { HB_VERDICT_NONE, HB_VERDICT_ALLOW, HB_VERDICT_APPROVAL, HB_VERDICT_NEVER };
const char *hb_verdict_name(enum hb_verdict v); /* none, allow, approval, never */

struct hb_guardrail_rule {
	enum hb_verdict verdict;
	char *pattern;
	int line;
	size_t matched; /* by hb_guardrails_count */
};

struct hb_guardrail_call {
	char *tool;
	json_t *arguments;
	int line;
	bool resume;
};

struct hb_guardrail_limit {
	char *tool, *pointer; /* JSON pointer (RFC 6901) into the tool's data */
	int most, line;
};

struct hb_guardrail {
	char *name, *title, *connection;
	char *text; /* of the file */
	struct hb_guardrail_rule *rules;
	struct hb_guardrail_call *calls;
	struct hb_guardrail_limit *limits;
	size_t rule_count, call_count, limit_count;
};

struct hb_guardrails {
	struct hb_guardrail *files; /* sorted by name */
	size_t count;
};

/* --- guardrail.c --- */

/* `name` is the file's name without ".ini". Codes: ini_malformed, bad_guardrail. */
int hb_guardrail_parse(const char *name, const char *text, size_t len, struct hb_guardrail *out, struct hb_error *err);
void hb_guardrail_free(struct hb_guardrail *g);
void hb_guardrails_free(struct hb_guardrails *all);

/* --- guardrail_match.c --- */

/* A path as a runtime may name a tool: 1..HB_TOOL_SEGMENTS_MAX segments of letters, digits, '_', '-' and '$'. */
bool hb_tool_path_ok(const char *path);
/* `tail`: "**" may stand at the end. */
bool hb_pattern_ok(const char *pattern, bool tail);
bool hb_pattern_match(const char *pattern, const char *path);
/* Whatever `narrow` matches, `wide` matches. */
bool hb_pattern_covers(const char *wide, const char *narrow);
bool hb_pattern_is_literal(const char *pattern);
/* The part of the path behind the connection, or NULL when the connection doesn't match its beginning. */
const char *hb_connection_tail(const char *connection, const char *path);

struct hb_decision {
	enum hb_verdict verdict;
	const struct hb_guardrail *file; /* of the rule; else any that speaks about the connection; NULL: none does */
	const struct hb_guardrail_rule *rule;
	char connection[HB_TOOL_PATH_MAX + 1]; /* the beginning of the path that is the connection */
};
void hb_guardrails_decide(const struct hb_guardrails *all, const char *path, struct hb_decision *out);
/* Sets `matched` of every rule by these paths (strings). */
void hb_guardrails_count(struct hb_guardrails *all, const json_t *paths);
/* What a file's author can't have meant: rules that another one makes pointless. {file, line, rule, problem}; new. */
json_t *hb_guardrails_problems(const struct hb_guardrails *all);

/* --- guardrail_files.c --- */

/* Every file of HB_GUARDRAIL_DIR, judged and read by descriptor (root's, nobody else's to write). Codes: no_guardrails,
 * loose_permissions, and those of hb_guardrail_parse. */
int hb_guardrails_load(struct hb_guardrails *out, struct hb_error *err);
/* Over all texts, so that a result can be told from one with other rules. */
void hb_guardrails_digest(const struct hb_guardrails *all, char hex[65]);

struct hb_shipped_file {
	const char *name; /* without ".ini" */
	const unsigned char *text;
	size_t len;
};
extern const struct hb_shipped_file hb_shipped_guardrails[];
extern const size_t hb_shipped_guardrail_count;
/* "shipped", "changed" or "own" */
const char *hb_guardrail_origin(const struct hb_guardrail *g);
/* Puts those that are missing where they belong; others are left as they are. */
int hb_guardrails_ship(int *changed, struct hb_error *err);

/* Policies of the runtime that put all files with this connection in force together, in the order in which they are to be
 * created there (the newest stands first, the first that matches counts): [{pattern, action}]; new reference. Never-rules
 * that no other rule opens are blocked by the first policy, with everything else. */
json_t *hb_guardrail_policies(const struct hb_guardrails *all, const char *connection);

#endif
