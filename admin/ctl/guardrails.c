/*
 * hermesctl guardrails check, diff: does the runtime do what the files say. What a check found is
 * written down only when it came to its end; one that could not leaves its error there, never an
 * older success.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/guardrails.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "onboarding/catalogue.h"
#include "onboarding/guardrail_check.h"
#include "onboarding/keys.h"
#include "onboarding/mcp_call.h"
#include "onboarding/store.h"

#define RECORD_MAX (8u << 20)
#define CHECK_SECONDS 300
#define CALL_MS 60000

/* --- the runtime, asked by its MCP server --- */

struct asking {
	struct ctl *c;
	const char *key;
	int64_t deadline_ms;
};

static int options_of(const struct asking *a, struct hb_mcp_options *o, struct hb_error *err)
{
	int64_t left = a->deadline_ms - hb_monotonic_ms();

	if (left <= 0)
		return hb_fail(
			err, "timeout",
			"the check took longer than it may; --timeout SECONDS gives it more");
	*o = (struct hb_mcp_options){.key = a->key,
				     .timeout_ms = (int)(left < CALL_MS ? left : CALL_MS),
				     .reply_max = HB_MCP_REPLY_MAX};
	return 0;
}

static int ask_execute(void *arg, const char *code, struct hb_mcp_result *out, struct hb_error *err)
{
	struct hb_mcp_options o;

	return options_of(arg, &o, err) < 0 ? -1 : hb_mcp_execute(&o, code, out, err);
}

static int ask_resume(void *arg, const char *execution, const char *action,
		      struct hb_mcp_result *out, struct hb_error *err)
{
	struct hb_mcp_options o;

	return options_of(arg, &o, err) < 0 ? -1
					    : hb_mcp_resume(&o, execution, action, NULL, out, err);
}

static void show_progress(void *arg, const char *what, int done, int total)
{
	const struct asking *a = arg;
	json_t *p = json_pack("{s:s, s:i, s:i, s:s}", "phase", what, "done", done, "total", total,
			      "unit", "tools");

	ctl_progress(a->c, p);
	json_decref(p);
}

int ctl_onboarding_key(struct ctl *c, const char *given, char out[HB_ONBOARDING_NAME_MAX],
		       struct hb_error *err)
{
	struct hb_named_key *keys;
	int n, usable = 0;

	if (!given && hb_config_text(c->config, "runtime.mcp_key")[0])
		given = hb_config_text(c->config, "runtime.mcp_key");
	if (given) {
		if (hb_mcp_key_name_check(given, err) < 0)
			return -1;
		snprintf(out, HB_ONBOARDING_NAME_MAX, "%s", given);
		return 0;
	}
	keys = hb_calloc(HB_NAMED_KEYS_MAX, sizeof *keys);
	n = hb_named_keys_list(hb_peer_uid(HB_PEER_PROBE), keys, HB_NAMED_KEYS_MAX, err);
	for (int i = 0; i < n; i++)
		if (keys[i].present && usable++ == 0)
			snprintf(out, HB_ONBOARDING_NAME_MAX, "%s", keys[i].name);
	free(keys);
	if (n < 0)
		return -1;
	if (usable == 1)
		return 0;
	return hb_fail(
		err, "key_unknown",
		usable ? "which key is to be used? Name it with --key NAME (`hermesctl runtime key "
			 "list` shows them)"
		       : "there is no key for the runtime yet: `hermesctl runtime key set NAME`");
}

/* --- the record --- */

json_t *ctl_guardrails_record(struct hb_error *err)
{
	json_t *record = NULL;

	if (hb_onboarding_load(HB_GUARDRAIL_RECORD, RECORD_MAX, &record, err) < 0)
		return NULL;
	if (!record)
		hb_fail(err, "not_found",
			"the guardrails were never checked: hermesctl guardrails check");
	return record;
}

/* What did not pass; what did is a number. */
static json_t *unproven(const json_t *findings)
{
	json_t *out = json_array(), *f;
	size_t i;

	json_array_foreach(findings, i, f)
		if (strcmp(hb_json_text(f, "result", ""), "pass") != 0)
			json_array_append(out, f);
	return out;
}

/* report NULL: it did not come to its end, `why` says why. The catalogue of the last one that did
 * is kept. */
static int save_record(const struct hb_guardrails *all, const char *key, const json_t *report,
		       const json_t *before, const struct hb_error *why, struct hb_error *err)
{
	const json_t *catalogue = report ? json_object_get(report, "catalogue") : before;
	char digest[65];
	json_t *record;
	int rc;

	hb_guardrails_digest(all, digest);
	record = json_pack("{s:i, s:I, s:s, s:s, s:s, s:O*}", "version", 1, "at",
			   (json_int_t)hb_now(), "key", key, "guardrails", digest, "result",
			   !report                             ? "error"
			   : hb_json_bool(report, "ok", false) ? "passed"
							       : "failed",
			   "catalogue", (json_t *)(uintptr_t)catalogue);
	if (report) {
		static const char *const members[] = {"passed", "failed", "not_run",
						      "unmatched_tools", "unmatched_rules"};

		for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
			json_object_set(record, members[i], json_object_get(report, members[i]));
		json_object_set_new(record, "findings",
				    unproven(json_object_get(report, "findings")));
	} else {
		json_object_set_new(record, "error", json_string(why->message));
		json_object_set_new(record, "code", json_string(why->code));
	}
	rc = hb_onboarding_save(HB_GUARDRAIL_RECORD, record, err);
	json_decref(record);
	return rc;
}

/* --- printing --- */

static void print_findings(const json_t *findings, const char *result)
{
	json_t *f;
	size_t i;

	json_array_foreach(findings, i, f) {
		if (strcmp(hb_json_text(f, "result", ""), result) != 0)
			continue;
		printf("%-8s ", strcmp(result, "fail") == 0 ? "FAIL" : result);
		ctl_print_text(hb_json_text(f, "tool", "?"));
		printf("\n         connection ");
		ctl_print_text(hb_json_text(f, "connection", "?"));
		printf(": expected %s; found ", hb_json_text(f, "expected", "?"));
		ctl_print_text(hb_json_text(f, "found", "?"));
		if (*hb_json_text(f, "file", ""))
			printf(" (%s.ini: %s)", hb_json_text(f, "file", ""),
			       *hb_json_text(f, "rule", "") ? hb_json_text(f, "rule", "")
							    : "no rule matches");
		putchar('\n');
	}
}

/* What closes most of them. */
static void print_advice(const json_t *findings)
{
	json_t *named = json_object(), *f;
	size_t i;

	json_array_foreach(findings, i, f) {
		const char *file = hb_json_text(f, "file", ""),
			   *check = hb_json_text(f, "check", "");

		if (strcmp(hb_json_text(f, "result", ""), "fail") != 0 || !*file ||
		    json_object_get(named, file) ||
		    (strcmp(check, "hidden") != 0 && strcmp(check, "denied") != 0))
			continue;
		json_object_set_new(named, file, json_true());
		printf("Policies of the runtime that keep away what %s.ini does not allow: "
		       "hermesctl guardrails show --policies "
		       "%s\n",
		       file, file);
	}
	json_decref(named);
}

/* Services call many things otherwise, or don't have them: how many, file by file. */
static void print_unmatched(const json_t *rules)
{
	json_t *r;
	size_t i;

	if (json_array_size(rules) > 0)
		puts("Rules that match no tool of the runtime (--all lists them):");
	json_array_foreach(rules, i, r) {
		const char *file = hb_json_text(r, "file", "");
		int counts[4] = {0};
		json_t *other;
		size_t n;

		if (i > 0 &&
		    strcmp(file, hb_json_text(json_array_get(rules, i - 1), "file", "")) == 0)
			continue;
		json_array_foreach(rules, n, other)
			for (enum hb_verdict v = HB_VERDICT_ALLOW; v <= HB_VERDICT_NEVER; v++)
				counts[v] += strcmp(hb_json_text(other, "file", ""), file) == 0 &&
					     strcmp(hb_json_text(other, "verdict", ""),
						    hb_verdict_name(v)) == 0;
		printf("  %s.ini: %d allow, %d approval, %d never\n", file,
		       counts[HB_VERDICT_ALLOW], counts[HB_VERDICT_APPROVAL],
		       counts[HB_VERDICT_NEVER]);
	}
}

void ctl_guardrails_print(const char *title, const json_t *list)
{
	json_t *item;
	size_t i;

	if (json_array_size(list) > 0)
		printf("%s\n", title);
	json_array_foreach(list, i, item) {
		printf("  ");
		if (json_is_string(item))
			ctl_print_text(json_string_value(item));
		else if (*hb_json_text(item, "problem", ""))
			printf("%s.ini:%lld: %s: %s", hb_json_text(item, "file", ""),
			       hb_json_int(item, "line", 0), hb_json_text(item, "rule", ""),
			       hb_json_text(item, "problem", ""));
		else
			printf("%s.ini:%lld: %s (%s)", hb_json_text(item, "file", ""),
			       hb_json_int(item, "line", 0), hb_json_text(item, "rule", ""),
			       hb_json_text(item, "verdict", ""));
		putchar('\n');
	}
}

static void print_report(const json_t *r, bool all)
{
	const json_t *findings = json_object_get(r, "findings"),
		     *catalogue = json_object_get(r, "catalogue");

	print_findings(findings, "fail");
	print_findings(findings, "not run");
	ctl_guardrails_print("Rules that another one makes pointless:",
			     json_object_get(r, "problems"));
	ctl_guardrails_print("Tools that no rule matches:", json_object_get(r, "unmatched_tools"));
	if (all)
		ctl_guardrails_print("Rules that match no tool of the runtime:",
				     json_object_get(r, "unmatched_rules"));
	else
		print_unmatched(json_object_get(r, "unmatched_rules"));
	ctl_guardrails_print("Files for which the runtime has no connection:",
			     json_object_get(r, "idle_files"));
	print_advice(findings);
	printf("%s: %lld passed, %lld failed, %lld not run; %zu tools of %zu connections are "
	       "listed.\n",
	       hb_json_bool(r, "ok", false) ? "The guardrails hold"
					    : "THE GUARDRAILS ARE NOT PROVEN",
	       hb_json_int(r, "passed", 0), hb_json_int(r, "failed", 0),
	       hb_json_int(r, "not_run", 0), json_array_size(json_object_get(catalogue, "tools")),
	       json_array_size(json_object_get(catalogue, "connections")));
}

/* --- guardrails check --- */

static int parse_seconds(const char *text, int64_t *ms, struct hb_error *err)
{
	char *end;
	long seconds = text ? strtol(text, &end, 10) : CHECK_SECONDS;

	if (text && (end == text || *end || seconds < 1 || seconds > 3600))
		return hb_fail(err, "usage", "--timeout is a number of seconds from 1 to 3600");
	*ms = seconds * 1000;
	return 0;
}

/* Under the lock: two checks at once would see each other's calls. */
static int check(struct asking *a, json_t **report, struct hb_error *err)
{
	const struct hb_runtime runtime = {
		.execute = ask_execute, .resume = ask_resume, .progress = show_progress, .arg = a};
	struct hb_guardrails all = {0};
	json_t *record = NULL, *before = NULL;
	struct hb_error why = {0};
	int lock = -1, rc = -1;

	if (hb_guardrails_load(&all, err) < 0 || hb_onboarding_lock(&lock, err) < 0)
		goto out;
	/* A record that can't be read is no reason to prove nothing; this one replaces it. */
	if (hb_onboarding_load(HB_GUARDRAIL_RECORD, RECORD_MAX, &record, &why) == 0)
		before = json_object_get(record, "catalogue");
	rc = hb_guardrails_check(&all, &runtime, before, report, err);
	ctl_progress_end(a->c);
	if (rc < 0)
		(void)save_record(&all, a->key, NULL, before, err, &why);
	else
		rc = save_record(&all, a->key, *report, NULL, NULL, err);
	if (rc == 0)
		rc = hb_onboarding_audit("guardrails.check",
					 hb_json_bool(*report, "ok", false) ? "ok" : "failed",
					 a->key, NULL, err);
out:
	json_decref(record);
	hb_close(&lock);
	hb_guardrails_free(&all);
	return rc;
}

int ctl_cmd_guardrails_check(struct ctl *c, int argc, char **argv)
{
	const char *key = NULL, *timeout = NULL, *all = NULL;
	const struct ctl_option options[] = {
		{"all", NULL, "every rule that matches no tool, not only how many", &all, NULL},
		{"key", "NAME", "the key to ask with (default: runtime.mcp_key, else the only one)",
		 &key, NULL},
		{"timeout", "SECONDS", "for the whole check (default: 300)", &timeout, NULL},
	};
	char name[HB_ONBOARDING_NAME_MAX];
	struct asking a = {.c = c, .key = name};
	struct hb_error err = {0};
	json_t *report = NULL;
	int64_t ms = 0;
	bool ok;

	if (ctl_parse(c, "guardrails check", options, 3, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (parse_seconds(timeout, &ms, &err) < 0 || ctl_open(c, &err) < 0 ||
	    ctl_onboarding_key(c, key, name, &err) < 0)
		return ctl_error(c, &err);
	a.deadline_ms = hb_monotonic_ms() + ms;
	if (check(&a, &report, &err) < 0) {
		json_decref(report);
		return ctl_error(c, &err);
	}
	ok = hb_json_bool(report, "ok", false);
	if (!c->json)
		print_report(report, all != NULL);
	return ctl_result(c, report, ok ? CTL_OK : CTL_FAILED);
}

/* --- guardrails diff --- */

static void print_change(const char *sign, const json_t *list)
{
	json_t *item;
	size_t i;

	json_array_foreach(list, i, item) {
		printf("%s ", sign);
		ctl_print_text(json_string_value(item));
		putchar('\n');
	}
}

int ctl_cmd_guardrails_diff(struct ctl *c, int argc, char **argv)
{
	const char *key = NULL;
	const struct ctl_option options[] = {
		{"key", "NAME", "the key to ask with (default: runtime.mcp_key, else the only one)",
		 &key, NULL},
	};
	char name[HB_ONBOARDING_NAME_MAX];
	struct asking a = {.c = c, .key = name};
	const struct hb_runtime runtime = {.execute = ask_execute, .resume = ask_resume, .arg = &a};
	struct hb_guardrails all = {0};
	json_t *record = NULL, *now = NULL, *diff = NULL;
	struct hb_error err = {0};
	bool same = false;

	if (ctl_parse(c, "guardrails diff", options, 1, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	a.deadline_ms = hb_monotonic_ms() + CHECK_SECONDS * 1000;
	if (ctl_open(c, &err) < 0 || ctl_onboarding_key(c, key, name, &err) < 0 ||
	    hb_guardrails_load(&all, &err) < 0 || !(record = ctl_guardrails_record(&err)))
		goto out;
	if (!json_object_get(record, "catalogue"))
		hb_fail(&err, "not_found",
			"no check has come to its end yet: hermesctl guardrails check");
	else
		now = hb_catalogue_ask(&runtime, &all, &err);
	if (!now)
		goto out;
	diff = hb_catalogue_diff(json_object_get(record, "catalogue"), now);
	same = hb_catalogue_same(diff);
	if (!c->json) {
		print_change("+", json_object_get(diff, "connections_added"));
		print_change("-", json_object_get(diff, "connections_removed"));
		print_change("+", json_object_get(diff, "tools_added"));
		print_change("-", json_object_get(diff, "tools_removed"));
		puts(same ? "The runtime lists what it listed at the last check."
			  : "The runtime's tools are others than at the last check: hermesctl "
			    "guardrails check");
	}
out:
	hb_guardrails_free(&all);
	json_decref(record);
	json_decref(now);
	if (!diff)
		return ctl_error(c, &err);
	json_object_set_new(diff, "same", json_boolean(same));
	return ctl_result(c, diff, same ? CTL_OK : CTL_FAILED);
}
