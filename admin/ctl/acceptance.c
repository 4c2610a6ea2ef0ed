/*
 * hermesctl acceptance run: does this deployment do what it was made for? A fixed list of criteria,
 * each passed, failed or not run, with what was seen. Nothing that was not seen counts as passed,
 * and what could not be tried says why.
 */
#include "admin/ctl/acceptance.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/ctl/ctl_onboarding.h"
#include "admin/ctl/guardrails.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "onboarding/store.h"

#define EVIDENCE_MAX 700

static const char *const words[] = {"pass", "fail", "not run"};

/* In this order: what only looks comes first, what ends the service last. */
static void (*const criteria[])(struct ctl_acceptance *) = {
	ctl_accept_health, ctl_accept_challenge, ctl_accept_tools,     ctl_accept_pages,
	ctl_accept_pin,    ctl_accept_tree,	 ctl_accept_listeners, ctl_accept_credentials,
	ctl_accept_state,  ctl_accept_restart,	 ctl_accept_restore,
};

void
ctl_accept(struct ctl_acceptance *a, const char *name, enum ctl_verdict verdict,
	   const char *evidence, ...)
{
	char text[EVIDENCE_MAX];
	va_list ap;

	va_start(ap, evidence);
	vsnprintf(text, sizeof text, evidence, ap);
	va_end(ap);
	json_array_append_new(a->lines, json_pack("{s:s, s:s, s:s}", "name", name, "result",
						  words[verdict], "evidence", text));
	ctl_progress_end(a->c);
	if (a->c->json)
		return;
	printf("%-8s %-20s ", verdict == CTL_FAIL ? "FAIL" : words[verdict], name);
	ctl_print_text(text);
	putchar('\n');
	fflush(stdout);
}

static int
count(const json_t *lines, enum ctl_verdict verdict)
{
	const json_t *line;
	size_t i;
	int n = 0;

	json_array_foreach(lines, i, line)
		n += strcmp(hb_json_text(line, "result", ""), words[verdict]) == 0;
	return n;
}

/* The report stays in the state directory for whoever asks when this was last proven. */
static json_t *
report(struct ctl_acceptance *a)
{
	int failed = count(a->lines, CTL_FAIL), not_run = count(a->lines, CTL_NOT_RUN);

	return json_pack("{s:s, s:I, s:s, s:s, s:s, s:O, s:i, s:i, s:i}", "result",
			 failed ? "failed" : not_run ? "incomplete" : "passed", "at",
			 (json_int_t)hb_now(), "key", a->key, "image",
			 hb_json_text(a->runtime, "installed_image", ""), "manifest",
			 hb_json_text(a->runtime, "manifest_digest", ""), "lines", a->lines,
			 "passed", count(a->lines, CTL_PASS), "failed", failed, "not_run", not_run);
}

static int
run(struct ctl_acceptance *a)
{
	struct hb_error err = {0};
	json_t *result;
	const char *word;
	int lock = -1, rc;

	a->lines = json_array();
	for (size_t i = 0; i < sizeof criteria / sizeof criteria[0]; i++)
		criteria[i](a);
	result = report(a);
	word = hb_json_text(result, "result", "");
	rc = hb_onboarding_lock(&lock, &err);
	if (rc == 0)
		rc = hb_onboarding_save(HB_ACCEPTANCE_RECORD, result, &err);
	if (rc == 0)
		rc = hb_onboarding_audit("acceptance.run", strcmp(word, "failed") ? "ok" : "failed",
					 a->key[0] ? a->key : NULL, NULL, &err);
	hb_close(&lock);
	if (!a->c->json)
		printf("%s: %lld passed, %lld failed, %lld not run.\n",
		       strcmp(word, "passed") == 0	 ? "Accepted"
		       : strcmp(word, "incomplete") == 0 ? "NOT EVERYTHING WAS TRIED"
							 : "NOT ACCEPTED",
		       hb_json_int(result, "passed", 0), hb_json_int(result, "failed", 0),
		       hb_json_int(result, "not_run", 0));
	json_decref(a->lines);
	json_decref(a->runtime);
	if (rc < 0) {
		json_decref(result);
		return ctl_error(a->c, &err);
	}
	rc = strcmp(word, "passed") == 0       ? CTL_OK
	     : strcmp(word, "incomplete") == 0 ? CTL_UNKNOWN
					       : CTL_FAILED;
	return ctl_result(a->c, result, rc);
}

int
ctl_cmd_acceptance_run(struct ctl *c, int argc, char **argv)
{
	const char *approve = NULL, *look = NULL, *repull = NULL, *key = NULL, *disposable = NULL;
	struct ctl_acceptance a = {.c = c};
	const struct ctl_option options[] = {
		{"approve", NULL, "consent in advance to its operations; the approver still signs "
				  "each exact digest", &approve, NULL},
		{"browser", "PATH", "Chromium, for the pages (default: the one that is installed)",
		 &a.browser, NULL},
		{"disposable", NULL, "all of it in an instance of its own beside this one, with "
				     "the newest backup's data; removed afterwards", &disposable, NULL},
		{"key", "NAME", "the key to ask with (default: runtime.mcp_key, else the only one)",
		 &key, NULL},
		{"look", NULL, "only what changes nothing: no restart, no backup", &look, NULL},
		{"repull", NULL, "remove the runtime and restore it from the new backup as well",
		 &repull, NULL},
		{"user", "ID", "the user in whose name operations are asked", &a.user, NULL},
	};
	struct hb_error err = {0};
	int lock = -1;

	if (ctl_parse(c, "acceptance run", options, sizeof options / sizeof options[0], argc, argv,
		      0, 0) < 0)
		return CTL_USAGE;
	if (ctl_onboarding_open(c, &lock, &err) < 0)
		return ctl_error(c, &err);
	hb_close(&lock);
	a.approve = approve != NULL;
	a.look = look != NULL;
	a.repull = repull != NULL;
	if (ctl_onboarding_key(c, key, a.key, &a.no_key) < 0) {
		if (key)
			return ctl_error(c, &a.no_key);
		a.key[0] = '\0';
	}
	return disposable ? ctl_accept_disposable(&a) : run(&a);
}

int
ctl_cmd_acceptance_show(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *record = NULL, *line;
	char when[32];
	size_t i;

	if (ctl_parse(c, "acceptance show", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_onboarding_open(c, NULL, &err) < 0 ||
	    hb_onboarding_load(HB_ACCEPTANCE_RECORD, 1 << 20, &record, &err) < 0)
		return ctl_error(c, &err);
	if (!record) {
		hb_fail(&err, "not_found", "there is no report yet: hermesctl acceptance run");
		return ctl_error(c, &err);
	}
	if (!c->json) {
		ctl_time(hb_json_int(record, "at", 0), when, sizeof when);
		printf("%s, %s\n", when, hb_json_text(record, "result", "?"));
		json_array_foreach(json_object_get(record, "lines"), i, line) {
			printf("%-8s %-20s ", hb_json_text(line, "result", "?"),
			       hb_json_text(line, "name", "?"));
			ctl_print_text(hb_json_text(line, "evidence", ""));
			putchar('\n');
		}
	}
	return ctl_result(c, record,
			  strcmp(hb_json_text(record, "result", ""), "passed") == 0 ? CTL_OK
										    : CTL_FAILED);
}
