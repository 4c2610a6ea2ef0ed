/* One guardrail file, read strictly (guardrail.h). What stands twice, or can't be meant, is refused
 * with its line. */
#include "onboarding/guardrail.h"

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/fields.h"
#include "common/json.h"
#include "common/strict_ini.h"

#define TITLE_MAX 80
#define CALLS_MAX 200
#define LIMIT_ITEMS_MAX 1000000

void hb_guardrail_free(struct hb_guardrail *g)
{
	for (size_t i = 0; i < g->rule_count; i++)
		free(g->rules[i].pattern);
	for (size_t i = 0; i < g->call_count; i++) {
		free(g->calls[i].tool);
		json_decref(g->calls[i].arguments);
	}
	for (size_t i = 0; i < g->limit_count; i++) {
		free(g->limits[i].tool);
		free(g->limits[i].pointer);
	}
	free(g->rules);
	free(g->calls);
	free(g->limits);
	free(g->name);
	free(g->title);
	free(g->connection);
	free(g->text);
	*g = (struct hb_guardrail){0};
}

void hb_guardrails_free(struct hb_guardrails *all)
{
	for (size_t i = 0; i < all->count; i++)
		hb_guardrail_free(&all->files[i]);
	free(all->files);
	*all = (struct hb_guardrails){0};
}

/* One more element at the end of an array, zeroed. */
static void *append(void *array, size_t *count, size_t size)
{
	char *more = hb_calloc(*count + 1, size);

	if (*count)
		memcpy(more, array, *count * size);
	free(array);
	++*count;
	return more;
}

static int bad(struct hb_error *err, const char *what)
{
	return hb_fail(err, "bad_guardrail", "%s", what);
}

/* --- [guardrail] --- */

static int take_head(struct hb_guardrail *g, const char *name, const char *value,
		     struct hb_error *err)
{
	char **place = strcmp(name, "title") == 0        ? &g->title
		       : strcmp(name, "connection") == 0 ? &g->connection
							 : NULL;

	if (!place)
		return bad(err, "[guardrail] has title and connection, nothing else");
	if (*place)
		return hb_fail(err, "bad_guardrail", "%s stands twice", name);
	if (place == &g->title && hb_text_check("title", value, 1, TITLE_MAX, err) != 0)
		return -1;
	if (place == &g->connection) {
		int dots = 0;

		for (const char *p = value; *p; p++)
			dots += *p == '.';
		if (!hb_pattern_ok(value, false) || value[0] == '*' || dots > 2)
			return bad(err, "connection is INTEGRATION, INTEGRATION.OWNER or "
					"INTEGRATION.OWNER.CONNECTION; \"*\" "
					"may stand for owner and connection");
	}
	*place = hb_strdup(value);
	return 0;
}

/* --- [allow] [approval] [never] --- */

static int take_rule(struct hb_guardrail *g, enum hb_verdict verdict, const char *name,
		     const char *value, int line, struct hb_error *err)
{
	struct hb_guardrail_rule *r;

	if (strcmp(name, "tool") != 0)
		return bad(err, "a rule is: tool = PATTERN");
	if (!hb_pattern_ok(value, true))
		return bad(err, "a pattern is segments between dots, each of letters, digits, '_', "
				"'-' and '$', or \"*\" "
				"alone; \"**\" only at the end");
	if (g->rule_count >= HB_GUARDRAIL_RULES_MAX)
		return hb_fail(err, "bad_guardrail", "more than %d rules", HB_GUARDRAIL_RULES_MAX);
	for (size_t i = 0; i < g->rule_count; i++)
		if (strcmp(g->rules[i].pattern, value) == 0)
			return hb_fail(err, "bad_guardrail", "%s stands in line %d already, as %s",
				       value, g->rules[i].line,
				       hb_verdict_name(g->rules[i].verdict));
	g->rules = append(g->rules, &g->rule_count, sizeof *g->rules);
	r = &g->rules[g->rule_count - 1];
	r->verdict = verdict;
	r->pattern = hb_strdup(value);
	r->line = line;
	return 0;
}

/* --- [call] [resume] --- */

/* The first word of a value; the rest begins at *rest. Literal tools only. */
static char *first_word(const char *value, const char **rest, struct hb_error *err)
{
	size_t len = strcspn(value, " \t");
	char *word = hb_strdup(value);

	word[len] = '\0';
	*rest = value + len + strspn(value + len, " \t");
	if (hb_tool_path_ok(word))
		return word;
	free(word);
	bad(err, "here a tool is named whole, without \"*\"");
	return NULL;
}

static int take_call(struct hb_guardrail *g, bool resume, const char *name, const char *value,
		     int line, struct hb_error *err)
{
	struct hb_error why = {0};
	struct hb_guardrail_call *c;
	json_t *arguments;
	const char *rest;
	char *tool;

	if (strcmp(name, "call") != 0)
		return bad(err, "a call is: call = TOOL {JSON arguments}");
	if (g->call_count >= CALLS_MAX)
		return hb_fail(err, "bad_guardrail", "more than %d calls", CALLS_MAX);
	tool = first_word(value, &rest, err);
	if (!tool)
		return -1;
	for (size_t i = 0; i < g->call_count; i++)
		if (strcmp(g->calls[i].tool, tool) == 0 && g->calls[i].resume == resume) {
			free(tool);
			return hb_fail(err, "bad_guardrail",
				       "a call of this tool stands in line %d already",
				       g->calls[i].line);
		}
	arguments = hb_json_parse(rest, strlen(rest), &why);
	if (!arguments) {
		free(tool);
		return hb_fail(err, "bad_guardrail",
			       "the arguments behind the tool must be a JSON object (%s)",
			       why.message);
	}
	g->calls = append(g->calls, &g->call_count, sizeof *g->calls);
	c = &g->calls[g->call_count - 1];
	*c = (struct hb_guardrail_call){
		.tool = tool, .arguments = arguments, .line = line, .resume = resume};
	return 0;
}

/* --- [limit] --- */

static int take_limit(struct hb_guardrail *g, const char *name, const char *value, int line,
		      struct hb_error *err)
{
	const char *pointer, *number;
	size_t len, digits;
	char *tool;
	struct hb_guardrail_limit *l;

	if (strcmp(name, "at-most") != 0)
		return bad(err, "a limit is: at-most = TOOL POINTER NUMBER");
	tool = first_word(value, &pointer, err);
	if (!tool)
		return -1;
	len = strcspn(pointer, " \t");
	number = pointer + len + strspn(pointer + len, " \t");
	digits = strspn(number, "0123456789");
	if (pointer[0] != '/' || digits == 0 || digits > 6 || number[digits] ||
	    atoi(number) > LIMIT_ITEMS_MAX) {
		free(tool);
		return bad(err, "a limit is: at-most = TOOL POINTER NUMBER, the pointer beginning "
				"with \"/\"");
	}
	g->limits = append(g->limits, &g->limit_count, sizeof *g->limits);
	l = &g->limits[g->limit_count - 1];
	*l = (struct hb_guardrail_limit){
		.tool = tool, .pointer = hb_strdup(pointer), .most = atoi(number), .line = line};
	l->pointer[len] = '\0';
	return 0;
}

static int on_pair(const char *section, const char *name, const char *value, int line, void *arg,
		   struct hb_error *err)
{
	struct hb_guardrail *g = arg;

	if (strcmp(section, "guardrail") == 0)
		return take_head(g, name, value, err);
	for (enum hb_verdict v = HB_VERDICT_ALLOW; v <= HB_VERDICT_NEVER; v++)
		if (strcmp(section, hb_verdict_name(v)) == 0)
			return take_rule(g, v, name, value, line, err);
	if (strcmp(section, "call") == 0 || strcmp(section, "resume") == 0)
		return take_call(g, section[0] == 'r', name, value, line, err);
	if (strcmp(section, "limit") == 0)
		return take_limit(g, name, value, line, err);
	return bad(err, "the sections are [guardrail], [allow], [approval], [never], [call], "
			"[resume] and [limit]");
}

/* What this file itself says about a tool; other files may say more. */
static enum hb_verdict own_verdict(const struct hb_guardrail *g, const char *tool)
{
	enum hb_verdict v = HB_VERDICT_NONE;

	for (size_t i = 0; i < g->rule_count; i++)
		if (g->rules[i].verdict > v && hb_pattern_match(g->rules[i].pattern, tool))
			v = g->rules[i].verdict;
	return v;
}

static int check_whole(const struct hb_guardrail *g, struct hb_error *err)
{
	if (!g->title || !g->connection)
		return hb_fail(err, "bad_guardrail",
			       "%s.ini: [guardrail] needs title and connection", g->name);
	if (g->rule_count == 0)
		return hb_fail(err, "bad_guardrail", "%s.ini: there is no rule", g->name);
	for (size_t i = 0; i < g->call_count; i++) {
		enum hb_verdict v = own_verdict(g, g->calls[i].tool);

		if (v == HB_VERDICT_NONE || (g->calls[i].resume && v != HB_VERDICT_APPROVAL))
			return hb_fail(err, "bad_guardrail", "%s.ini:%d: %s", g->name,
				       g->calls[i].line,
				       v == HB_VERDICT_NONE
					       ? "no rule of this file matches the tool"
					       : "only a tool that needs approval can be resumed");
	}
	for (size_t i = 0; i < g->limit_count; i++)
		if (own_verdict(g, g->limits[i].tool) != HB_VERDICT_ALLOW)
			return hb_fail(err, "bad_guardrail",
				       "%s.ini:%d: a limit is for a tool that is allowed", g->name,
				       g->limits[i].line);
	return 0;
}

int hb_guardrail_parse(const char *name, const char *text, size_t len, struct hb_guardrail *out,
		       struct hb_error *err)
{
	struct hb_guardrail g = {.name = hb_strdup(name)};
	char *file = hb_asprintf("%s.ini", name);
	int rc = -1;

	if (hb_ini_parse(file, text, len, on_pair, &g, err) == 0 && check_whole(&g, err) == 0) {
		struct hb_buf copy = HB_BUF_INIT;

		hb_buf_add(&copy, text, len);
		g.text = hb_buf_take(&copy);
		*out = g;
		rc = 0;
	} else {
		hb_guardrail_free(&g);
	}
	free(file);
	return rc;
}
