/* hermesctl guardrails list, show: the files, what they say, and the policies that put them in
 * force. */
#include <stdio.h>
#include <string.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/guardrails.h"
#include "common/json.h"
#include "onboarding/guardrail.h"

static json_t *last_check(const struct hb_guardrails *all)
{
	struct hb_error err;
	json_t *record = ctl_guardrails_record(&err), *out = NULL;
	char digest[65];

	hb_guardrails_digest(all, digest);
	if (record)
		out = json_pack("{s:s, s:I, s:s, s:b}", "result",
				hb_json_text(record, "result", "?"), "at",
				(json_int_t)hb_json_int(record, "at", 0), "key",
				hb_json_text(record, "key", ""), "same_rules",
				strcmp(digest, hb_json_text(record, "guardrails", "")) == 0);
	json_decref(record);
	return out ? out : json_null();
}

static json_t *describe(const struct hb_guardrail *g)
{
	int counts[4] = {0};

	for (size_t i = 0; i < g->rule_count; i++)
		counts[g->rules[i].verdict]++;
	return json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i}", "name", g->name, "title", g->title,
			 "connection", g->connection, "origin", hb_guardrail_origin(g), "allow",
			 counts[HB_VERDICT_ALLOW], "approval", counts[HB_VERDICT_APPROVAL], "never",
			 counts[HB_VERDICT_NEVER]);
}

int ctl_cmd_guardrails_list(struct ctl *c, int argc, char **argv)
{
	struct hb_guardrails all = {0};
	json_t *list, *problems, *last;
	struct hb_error err = {0};
	char when[32];

	if (ctl_parse(c, "guardrails list", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || hb_guardrails_load(&all, &err) < 0)
		return ctl_error(c, &err);
	list = json_array();
	for (size_t i = 0; i < all.count; i++)
		json_array_append_new(list, describe(&all.files[i]));
	problems = hb_guardrails_problems(&all);
	last = last_check(&all);
	if (!c->json) {
		printf("%-12s %-16s %5s %8s %5s  %-8s %s\n", "NAME", "CONNECTION", "ALLOW",
		       "APPROVAL", "NEVER", "FILE", "TITLE");
		for (size_t i = 0; i < all.count; i++) {
			const json_t *g = json_array_get(list, i);

			printf("%-12s %-16s %5lld %8lld %5lld  %-8s ", hb_json_text(g, "name", ""),
			       hb_json_text(g, "connection", ""), hb_json_int(g, "allow", 0),
			       hb_json_int(g, "approval", 0), hb_json_int(g, "never", 0),
			       hb_json_text(g, "origin", ""));
			ctl_print_text(hb_json_text(g, "title", ""));
			putchar('\n');
		}
		ctl_guardrails_print("Rules that another one makes pointless:", problems);
		ctl_time(hb_json_int(last, "at", 0), when, sizeof when);
		if (json_is_null(last))
			puts("Never checked: hermesctl guardrails check");
		else
			printf("Last check: %s, %s%s\n", hb_json_text(last, "result", ""), when,
			       hb_json_bool(last, "same_rules", false)
				       ? ""
				       : ", with other rules than these");
	}
	hb_guardrails_free(&all);
	return ctl_result(c,
			  json_pack("{s:o, s:o, s:o}", "guardrails", list, "problems", problems,
				    "last_check", last),
			  CTL_OK);
}

static json_t *rules_of(const struct hb_guardrail *g)
{
	json_t *out = json_array();

	for (size_t i = 0; i < g->rule_count; i++)
		json_array_append_new(out,
				      json_pack("{s:s, s:s, s:i}", "verdict",
						hb_verdict_name(g->rules[i].verdict), "tool",
						g->rules[i].pattern, "line", g->rules[i].line));
	return out;
}

static void print_policies(const struct hb_guardrail *g, const json_t *policies)
{
	json_t *p;
	size_t i;

	printf("# Policies of the runtime for %s, to be created there from the first to the last:\n"
	       "# the one made last is looked at first.\n",
	       g->connection);
	json_array_foreach(policies, i, p)
		printf("%-16s %s\n", hb_json_text(p, "action", ""), hb_json_text(p, "pattern", ""));
}

int ctl_cmd_guardrails_show(struct ctl *c, int argc, char **argv)
{
	const char *policies = NULL;
	const struct ctl_option options[] = {
		{"policies", NULL,
		 "as policies to create in the runtime, for every file of this connection",
		 &policies, NULL},
	};
	const struct hb_guardrail *g = NULL;
	struct hb_guardrails all = {0};
	struct hb_error err = {0};
	json_t *object = NULL;

	if (ctl_parse(c, "guardrails show", options, 1, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || hb_guardrails_load(&all, &err) < 0)
		return ctl_error(c, &err);
	for (size_t i = 0; i < all.count; i++)
		if (strcmp(all.files[i].name, argv[0]) == 0)
			g = &all.files[i];
	if (!g) {
		hb_fail(&err, "not_found",
			"there is no guardrail of that name: hermesctl guardrails list");
		hb_guardrails_free(&all);
		return ctl_error(c, &err);
	}
	object = describe(g);
	if (policies)
		json_object_set_new(object, "policies", hb_guardrail_policies(&all, g->connection));
	else
		json_object_set_new(object, "rules", rules_of(g));
	if (!c->json && policies)
		print_policies(g, json_object_get(object, "policies"));
	else if (!c->json)
		ctl_print_text(g->text);
	hb_guardrails_free(&all);
	return ctl_result(c, object, CTL_OK);
}
