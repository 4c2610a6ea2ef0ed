/* The check from beginning to end (guardrail_check.h). Each thing that was tried becomes one
 * finding. */
#include "onboarding/guardrail_check.h"

#include <string.h>

#include "common/buf.h"
#include "common/json.h"
#include "onboarding/guardrail_ask.h"

struct check {
	struct hb_guardrails *all;
	const struct hb_runtime *runtime;
	const json_t *tools; /* those that are listed */
	json_t *hidden;      /* those that are not, and may exist: sorted paths */
	json_t *described;   /* hb_runtime_describe of every tool that may be called */
	json_t *findings;
	int passed, failed, not_run, calls, done, total;
	bool open; /* something that is in reach was not tried: a tool that should wait may run */
};

/* --- findings --- */

enum outcome { PASS, FAIL, NOT_RUN };

/* `found` is stolen. */
static void note(struct check *c, const struct hb_decision *d, const char *tool, const char *check,
		 const char *expected, json_t *found, enum outcome outcome)
{
	static const char *const words[] = {"pass", "fail", "not run"};
	int *counters[] = {&c->passed, &c->failed, &c->not_run};

	++*counters[outcome];
	c->open = c->open || (outcome == NOT_RUN && strcmp(check, "refused") != 0);
	json_array_append_new(c->findings,
			      json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:s, s:s}", "connection",
					d->connection, "tool", tool, "check", check, "expected",
					expected, "found", found, "result", words[outcome], "file",
					d->file ? d->file->name : "", "rule",
					d->rule ? d->rule->pattern : ""));
}

static void note_did(struct check *c, const struct hb_decision *d, const char *tool,
		     const char *check, const char *expected, const struct hb_call_result *r,
		     enum outcome outcome)
{
	static const char *const words[] = {[HB_DID_RUN] = "it ran",
					    [HB_DID_BLOCK] = "refused",
					    [HB_DID_FAIL] = "not blocked: it was tried and failed",
					    [HB_DID_PAUSE] = "it waits for approval"};

	note(c, d, tool, check, expected,
	     r->why[0] ? json_sprintf("%s (%s)", words[r->did], r->why)
		       : json_string(words[r->did]),
	     outcome);
}

/* --- calling --- */

static const struct hb_guardrail_call *call_of(const struct check *c, const char *path, bool resume)
{
	for (size_t i = 0; i < c->all->count; i++) {
		const struct hb_guardrail *g = &c->all->files[i];
		const char *tail = hb_connection_tail(g->connection, path);

		for (size_t k = 0; tail && k < g->call_count; k++)
			if (g->calls[k].resume == resume && strcmp(g->calls[k].tool, tail) == 0)
				return &g->calls[k];
	}
	return NULL;
}

/* With what a tool can be called without harm (a new reference), or NULL, and why not is a finding.
 */
static json_t *harmless(struct check *c, const struct hb_decision *d, const char *path,
			const char *check, const char *expected)
{
	const struct hb_guardrail_call *call = call_of(c, path, false);
	const char *word = hb_json_text(c->described, path, "unknown");

	if (c->calls >= HB_GUARDRAIL_CALLS_MAX) {
		note(c, d, path, check, expected,
		     json_sprintf("%d tools were called already", c->calls), NOT_RUN);
		return NULL;
	}
	c->calls++;
	if (c->runtime->progress)
		c->runtime->progress(c->runtime->arg, "calling tools", ++c->done, c->total);
	if (call)
		return json_incref(call->arguments);
	if (strcmp(word, "needs") == 0)
		return json_object();
	c->calls--;
	note(c, d, path, check, expected,
	     json_string("not called: it may do something without any argument; name a harmless "
			 "call in [call]"),
	     NOT_RUN);
	return NULL;
}

static int decline(struct check *c, const struct hb_call_result *paused, struct hb_call_result *out,
		   struct hb_error *err)
{
	return hb_runtime_answer(c->runtime, paused->execution, "decline", out, err);
}

/* A call that should not have paused must not wait for ever. */
static int decline_quietly(struct check *c, const struct hb_call_result *r, struct hb_error *err)
{
	struct hb_call_result after = {0};
	int rc = r->did == HB_DID_PAUSE ? decline(c, r, &after, err) : 0;

	hb_call_result_free(&after);
	return rc;
}

/* --- never, and what no rule allows --- */

static int check_refused(struct check *c, const struct hb_decision *d, const char *path,
			 struct hb_error *err)
{
	static const char expected[] = "refused when it is called";
	json_t *arguments = harmless(c, d, path, "refused", expected);
	struct hb_call_result r = {0};
	int rc = 0;

	if (!arguments)
		return 0;
	rc = hb_runtime_call(c->runtime, path, arguments, NULL, &r, err);
	if (rc == 0) {
		note_did(c, d, path, "refused", expected, &r, r.did == HB_DID_BLOCK ? PASS : FAIL);
		rc = decline_quietly(c, &r, err);
	}
	hb_call_result_free(&r);
	json_decref(arguments);
	return rc;
}

/* --- allow --- */

static void check_limits(struct check *c, const struct hb_decision *d, const char *path,
			 const json_t *pointers, const json_t *items)
{
	json_t *pointer;
	size_t n;

	json_array_foreach(pointers, n, pointer) {
		const json_t *count = json_array_get(items, n);
		int most = (int)hb_json_int(pointer, "most", 0);
		char *expected = hb_asprintf("at most %d items at %s", most,
					     hb_json_text(pointer, "pointer", ""));
		bool good = json_is_integer(count) && json_integer_value(count) >= 0 &&
			    json_integer_value(count) <= most;

		note(c, d, path, "at-most", expected,
		     json_is_integer(count)
			     ? json_sprintf("%lld", (long long)json_integer_value(count))
			     : json_string("no list there"),
		     good ? PASS : FAIL);
		free(expected);
	}
}

/* Limits of this tool: [{pointer, most}] and the bare pointers. */
static json_t *limits_of(const struct check *c, const char *path, json_t *bare)
{
	json_t *out = json_array();

	for (size_t i = 0; i < c->all->count; i++) {
		const struct hb_guardrail *g = &c->all->files[i];
		const char *tail = hb_connection_tail(g->connection, path);

		for (size_t k = 0; tail && k < g->limit_count; k++)
			if (strcmp(g->limits[k].tool, tail) == 0) {
				json_array_append_new(bare, json_string(g->limits[k].pointer));
				json_array_append_new(out, json_pack("{s:s, s:i}", "pointer",
								     g->limits[k].pointer, "most",
								     g->limits[k].most));
			}
	}
	return out;
}

static int check_allowed(struct check *c, const struct hb_decision *d, const char *path,
			 struct hb_error *err)
{
	const struct hb_guardrail_call *call = call_of(c, path, false);
	json_t *bare = json_array(), *limits = limits_of(c, path, bare), *arguments = NULL;
	struct hb_call_result r = {0};
	int rc = 0;

	note(c, d, path, "listed", "listed", json_string("listed"), PASS);
	if (call || json_array_size(limits) > 0)
		arguments = harmless(c, d, path, "sample", "a sample call works");
	if (arguments) {
		rc = hb_runtime_call(c->runtime, path, arguments, bare, &r, err);
		if (rc == 0) {
			note_did(c, d, path, "sample", "a sample call works", &r,
				 r.did == HB_DID_RUN ? PASS : FAIL);
			if (r.did == HB_DID_RUN)
				check_limits(c, d, path, limits, r.items);
			rc = decline_quietly(c, &r, err);
		}
	}
	hb_call_result_free(&r);
	json_decref(arguments);
	json_decref(limits);
	json_decref(bare);
	return rc;
}

/* --- approval --- */

/* Paused, then answered: declined it must not run; accepted, and only where the file says so, it
 * must. */
static int check_answer(struct check *c, const struct hb_decision *d, const char *path,
			const json_t *arguments, bool accept, struct hb_error *err)
{
	const char *check = accept ? "resumed" : "declined",
		   *expected = accept ? "runs once it is accepted"
				      : "does not run once it is declined";
	struct hb_call_result r = {0}, after = {0};
	int rc = hb_runtime_call(c->runtime, path, arguments, NULL, &r, err);

	if (rc < 0)
		return -1;
	if (!accept || r.did != HB_DID_PAUSE)
		note_did(c, d, path, "pauses", "waits for approval", &r,
			 r.did == HB_DID_PAUSE ? PASS : FAIL);
	if (r.did == HB_DID_PAUSE)
		rc = hb_runtime_answer(c->runtime, r.execution, accept ? "accept" : "decline",
				       &after, err);
	if (rc == 0 && r.did == HB_DID_PAUSE) {
		bool good = accept ? after.did == HB_DID_RUN
				   : after.did == HB_DID_FAIL || after.did == HB_DID_BLOCK;

		if (good)
			note(c, d, path, check, expected,
			     json_string(accept ? "it ran" : "it did not run"), PASS);
		else
			note_did(c, d, path, check, expected, &after, FAIL);
		rc = decline_quietly(c, &after, err);
	}
	hb_call_result_free(&r);
	hb_call_result_free(&after);
	return rc;
}

static int check_approval(struct check *c, const struct hb_decision *d, const char *path,
			  struct hb_error *err)
{
	const struct hb_guardrail_call *resume = call_of(c, path, true);
	json_t *arguments = resume ? json_incref(resume->arguments)
				   : harmless(c, d, path, "pauses", "waits for approval");
	int rc;

	if (!arguments)
		return 0;
	rc = check_answer(c, d, path, arguments, false, err);
	if (rc == 0 && resume)
		rc = check_answer(c, d, path, arguments, true, err);
	json_decref(arguments);
	return rc;
}

/* --- each tool --- */

static int check_listed(struct check *c, const struct hb_decision *d, const char *path,
			struct hb_error *err)
{
	if (d->verdict == HB_VERDICT_ALLOW)
		return check_allowed(c, d, path, err);
	if (d->verdict == HB_VERDICT_APPROVAL)
		return check_approval(c, d, path, err);
	/* Not called: whoever asks can reach it, and that is what was to be found out. */
	note(c, d, path, d->verdict == HB_VERDICT_NEVER ? "hidden" : "denied",
	     d->verdict == HB_VERDICT_NEVER ? "not listed" : "not listed (no rule allows it)",
	     json_string("listed"), FAIL);
	return 0;
}

static int check_hidden(struct check *c, const struct hb_decision *d, const char *path,
			struct hb_error *err)
{
	if (strcmp(hb_json_text(c->described, path, "unknown"), "absent") == 0)
		return 0; /* there is no such tool */
	if (d->verdict == HB_VERDICT_NEVER || d->verdict == HB_VERDICT_NONE) {
		note(c, d, path, "hidden", "not listed", json_string("not listed"), PASS);
		return check_refused(c, d, path, err);
	}
	note(c, d, path, "listed",
	     d->verdict == HB_VERDICT_ALLOW ? "listed" : "listed, and waits for approval",
	     json_string("not listed, although it is there"), FAIL);
	return 0;
}

/* A connection that no file speaks about is one finding, not one for each of its tools. */
static int check_tools(struct check *c, struct hb_error *err)
{
	json_t *strangers = json_object(), *path, *count;
	struct hb_decision d;
	const char *connection;
	size_t i;
	int rc = 0;

	json_array_foreach(c->tools, i, path) {
		hb_guardrails_decide(c->all, json_string_value(path), &d);
		if (!d.file)
			json_object_set_new(
				strangers, d.connection,
				json_integer(hb_json_int(strangers, d.connection, 0) + 1));
		else if (rc == 0)
			rc = check_listed(c, &d, json_string_value(path), err);
	}
	json_object_foreach(strangers, connection, count) {
		struct hb_decision unknown = {0};

		memcpy(unknown.connection, connection, strlen(connection) + 1);
		note(c, &unknown, "*", "guardrail", "a guardrail for this connection",
		     json_sprintf("none, and %lld tools are listed",
				  (long long)json_integer_value(count)),
		     FAIL);
	}
	json_decref(strangers);
	json_array_foreach(c->hidden, i, path) {
		if (rc < 0)
			break;
		hb_guardrails_decide(c->all, json_string_value(path), &d);
		rc = check_hidden(c, &d, json_string_value(path), err);
	}
	return rc;
}

/* --- which tools may be hidden --- */

/* All connections: those that the runtime names, those of its tools, and those that a file names
 * whole. */
static json_t *connections_of(const struct check *c, const json_t *catalogue)
{
	json_t *list = json_copy(json_object_get(catalogue, "connections")), *path, *sorted;
	struct hb_decision d;
	size_t i;

	json_array_foreach(c->tools, i, path) {
		hb_guardrails_decide(c->all, json_string_value(path), &d);
		json_array_append_new(list, json_string(d.connection));
	}
	for (i = 0; i < c->all->count; i++)
		if (hb_pattern_is_literal(c->all->files[i].connection))
			json_array_append_new(list, json_string(c->all->files[i].connection));
	sorted = hb_sorted_texts(list);
	json_decref(list);
	return sorted;
}

static void add_path(json_t *list, const json_t *connection, const char *tail)
{
	json_array_append_new(list, json_sprintf("%s.%s", json_string_value(connection), tail));
}

/* Tools that rules and calls name whole, for each connection they are about; and what the last
 * check saw. */
static void find_hidden(struct check *c, const json_t *connections, const json_t *before)
{
	json_t *list = json_array(), *path, *connection;
	struct hb_decision d;
	size_t i, n;

	for (i = 0; i < c->all->count; i++) {
		const struct hb_guardrail *g = &c->all->files[i];

		json_array_foreach(connections, n, connection) {
			if (!hb_pattern_match(g->connection, json_string_value(connection)))
				continue;
			for (size_t k = 0; k < g->rule_count; k++)
				if (hb_pattern_is_literal(g->rules[k].pattern))
					add_path(list, connection, g->rules[k].pattern);
			for (size_t k = 0; k < g->call_count; k++)
				add_path(list, connection, g->calls[k].tool);
		}
	}
	json_array_foreach(json_object_get(before, "tools"), i, path) {
		hb_guardrails_decide(c->all, json_string_value(path), &d);
		if (d.file && (d.verdict == HB_VERDICT_NEVER || d.verdict == HB_VERDICT_NONE))
			json_array_append(list, path);
	}
	path = hb_sorted_texts(list);
	json_decref(list);
	c->hidden = json_array();
	for (i = 0; i < json_array_size(path); i++) {
		const char *text = json_string_value(json_array_get(path, i));

		if (!hb_has_text(c->tools, text) && hb_tool_path_ok(text))
			json_array_append(c->hidden, json_array_get(path, i));
	}
	json_decref(path);
}

/* Every tool that might be called without arguments of the file's own. */
static json_t *to_describe(const struct check *c)
{
	json_t *list = json_copy(c->hidden), *path;
	struct hb_decision d;
	size_t i;

	json_array_foreach(c->tools, i, path) {
		hb_guardrails_decide(c->all, json_string_value(path), &d);
		if (d.verdict == HB_VERDICT_APPROVAL || d.verdict == HB_VERDICT_ALLOW)
			json_array_append(list, path);
	}
	return list;
}

/* --- the report --- */

static json_t *existing(const struct check *c)
{
	json_t *list = json_copy((json_t *)(uintptr_t)c->tools), *path;
	size_t i;

	json_array_foreach(c->hidden, i, path)
		if (strcmp(hb_json_text(c->described, json_string_value(path), ""), "absent") != 0)
			json_array_append(list, path);
	return list;
}

static void add_unmatched(const struct check *c, const json_t *connections, json_t *report)
{
	json_t *tools = json_array(), *rules = json_array(), *idle = json_array(), *item;
	struct hb_decision d;
	size_t i;

	json_array_foreach(c->tools, i, item) {
		hb_guardrails_decide(c->all, json_string_value(item), &d);
		if (!d.rule)
			json_array_append(tools, item);
	}
	for (size_t f = 0; f < c->all->count; f++) {
		const struct hb_guardrail *g = &c->all->files[f];
		bool used = false;

		json_array_foreach(connections, i, item)
			used = used || hb_pattern_match(g->connection, json_string_value(item));
		if (!used)
			json_array_append_new(idle, json_string(g->name));
		for (size_t k = 0; used && k < g->rule_count; k++)
			if (g->rules[k].matched == 0)
				json_array_append_new(
					rules, json_pack("{s:s, s:i, s:s, s:s}", "file", g->name,
							 "line", g->rules[k].line, "verdict",
							 hb_verdict_name(g->rules[k].verdict),
							 "rule", g->rules[k].pattern));
	}
	json_object_set_new(report, "unmatched_tools", tools);
	json_object_set_new(report, "unmatched_rules", rules);
	json_object_set_new(report, "idle_files", idle);
}

static json_t *report_of(struct check *c, const json_t *catalogue, const json_t *connections)
{
	json_t *problems = hb_guardrails_problems(c->all), *paths = existing(c), *report;

	hb_guardrails_count(c->all, paths);
	report = json_pack("{s:b, s:i, s:i, s:i, s:O, s:O, s:o}", "ok",
			   c->failed == 0 && c->passed > 0 && !c->open &&
				   json_array_size(problems) == 0,
			   "passed", c->passed, "failed", c->failed, "not_run", c->not_run,
			   "catalogue", catalogue, "findings", c->findings, "problems", problems);
	add_unmatched(c, connections, report);
	json_decref(paths);
	return report;
}

/* What was true at the beginning must be so at the end, or nothing is known about either. */
static int check_unchanged(struct check *c, const json_t *catalogue, struct hb_error *err)
{
	json_t *again = hb_catalogue_ask(c->runtime, c->all, err), *diff;
	int rc = -1;

	if (!again)
		return -1;
	diff = hb_catalogue_diff(catalogue, again);
	if (hb_catalogue_same(diff))
		rc = 0;
	else
		hb_fail(err, "catalogue_changed",
			"the runtime's tools changed while they were checked (%zu more, %zu "
			"fewer); "
			"check again once nobody edits its sources and policies",
			json_array_size(json_object_get(diff, "tools_added")) +
				json_array_size(json_object_get(diff, "connections_added")),
			json_array_size(json_object_get(diff, "tools_removed")) +
				json_array_size(json_object_get(diff, "connections_removed")));
	json_decref(diff);
	json_decref(again);
	return rc;
}

int hb_guardrails_check(struct hb_guardrails *all, const struct hb_runtime *runtime,
			const json_t *before, json_t **report, struct hb_error *err)
{
	struct check c = {.all = all, .runtime = runtime};
	json_t *catalogue = hb_catalogue_ask(runtime, all, err), *connections = NULL, *list = NULL;
	int rc = -1;

	if (!catalogue)
		return -1;
	c.tools = json_object_get(catalogue, "tools");
	c.findings = json_array();
	connections = connections_of(&c, catalogue);
	find_hidden(&c, connections, before);
	list = to_describe(&c);
	c.total = (int)json_array_size(list);
	c.described = hb_runtime_describe(runtime, list, err);
	if (c.described && check_tools(&c, err) == 0 && check_unchanged(&c, catalogue, err) == 0) {
		*report = report_of(&c, catalogue, connections);
		rc = 0;
	}
	json_decref(list);
	json_decref(connections);
	json_decref(c.hidden);
	json_decref(c.described);
	json_decref(c.findings);
	json_decref(catalogue);
	return rc;
}
