/* Patterns, precedence, and rules that another one makes pointless (guardrail.h). */
#include <string.h>

#include "onboarding/guardrail.h"

static const char segment_chars[] =
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$";

const char *hb_verdict_name(enum hb_verdict v)
{
	static const char *const names[] = {"none", "allow", "approval", "never"};

	return names[v];
}

/* The segment at *at, which is moved behind it and its dot; len 0: there is none. */
static const char *next_segment(const char **at, size_t *len)
{
	const char *begin = *at;

	*len = strcspn(begin, ".");
	*at = begin + *len + (begin[*len] == '.');
	return begin;
}

static bool shape_ok(const char *text, bool wild, bool tail)
{
	size_t segments = 1;

	if (strlen(text) > HB_TOOL_PATH_MAX)
		return false;
	for (;; segments++) {
		size_t len = strcspn(text, ".");

		if (len == 0 || segments > HB_TOOL_SEGMENTS_MAX)
			return false;
		if (wild && len == 1 && text[0] == '*')
			; /* a whole segment */
		else if (tail && len == 2 && text[0] == '*' && text[1] == '*')
			return !text[2];
		else if (strspn(text, segment_chars) < len)
			return false;
		if (!text[len])
			return true;
		text += len + 1;
	}
}

bool hb_tool_path_ok(const char *path)
{
	return shape_ok(path, false, false);
}

bool hb_pattern_ok(const char *pattern, bool tail)
{
	return shape_ok(pattern, true, tail);
}

bool hb_pattern_is_literal(const char *pattern)
{
	return !strchr(pattern, '*');
}

static bool is_star(const char *segment, size_t len)
{
	return len == 1 && segment[0] == '*';
}

static bool is_tail(const char *segment, size_t len)
{
	return len == 2 && segment[0] == '*' && segment[1] == '*';
}

/* A path is a pattern without stars, so that one walk serves both questions. */
bool hb_pattern_covers(const char *wide, const char *narrow)
{
	while (*wide && *narrow) {
		size_t w, n;
		const char *a = next_segment(&wide, &w), *b = next_segment(&narrow, &n);

		if (is_tail(a, w))
			return true;
		if (is_tail(b, n))
			return false; /* it goes on for longer than the wide one does */
		if (!is_star(a, w) && (w != n || memcmp(a, b, w) != 0))
			return false;
	}
	return !*wide && !*narrow;
}

bool hb_pattern_match(const char *pattern, const char *path)
{
	return hb_pattern_covers(pattern, path);
}

const char *hb_connection_tail(const char *connection, const char *path)
{
	while (*connection) {
		size_t c, p;
		const char *a = next_segment(&connection, &c), *b;

		if (!*path)
			return NULL;
		b = next_segment(&path, &p);
		if (!is_star(a, c) && (c != p || memcmp(a, b, c) != 0))
			return NULL;
	}
	return *path ? path : NULL;
}

static void set_connection(struct hb_decision *d, const char *path, const char *tail)
{
	size_t len = tail ? (size_t)(tail - path) - 1 : strlen(path);

	memcpy(d->connection, path, len);
	d->connection[len] = '\0';
}

/* A tool that no file speaks about: its first three segments are the connection, one that is the
 * runtime's own the first. */
static void guess_connection(struct hb_decision *d, const char *path)
{
	const char *at = path;
	size_t len;

	for (int i = 0; i < 3 && *at; i++)
		next_segment(&at, &len);
	set_connection(d, path, *at ? at : NULL);
}

void hb_guardrails_decide(const struct hb_guardrails *all, const char *path,
			  struct hb_decision *out)
{
	*out = (struct hb_decision){0};
	if (strlen(path) > HB_TOOL_PATH_MAX)
		return;
	for (size_t i = 0; i < all->count; i++) {
		const struct hb_guardrail *g = &all->files[i];
		const char *tail = hb_connection_tail(g->connection, path);

		if (!tail)
			continue;
		if (!out->file) {
			out->file = g;
			set_connection(out, path, tail);
		}
		for (size_t k = 0; k < g->rule_count; k++)
			if (g->rules[k].verdict > out->verdict &&
			    hb_pattern_match(g->rules[k].pattern, tail)) {
				out->verdict = g->rules[k].verdict;
				out->rule = &g->rules[k];
				out->file = g;
				set_connection(out, path, tail);
			}
	}
	if (!out->file)
		guess_connection(out, path);
}

void hb_guardrails_count(struct hb_guardrails *all, const json_t *paths)
{
	for (size_t i = 0; i < all->count; i++) {
		struct hb_guardrail *g = &all->files[i];

		for (size_t k = 0; k < g->rule_count; k++) {
			json_t *path;
			size_t n;

			g->rules[k].matched = 0;
			json_array_foreach(paths, n, path) {
				const char *tail = hb_connection_tail(g->connection,
								      json_string_value(path));

				g->rules[k].matched += tail &&
						       hb_pattern_match(g->rules[k].pattern, tail);
			}
		}
	}
}

/* The rule that makes `r` pointless, or NULL. Of two that say the same the second is the pointless
 * one. */
static const struct hb_guardrail_rule *stronger(const struct hb_guardrails *all,
						const struct hb_guardrail *g,
						const struct hb_guardrail_rule *r,
						const struct hb_guardrail **where)
{
	bool before = true;

	for (size_t i = 0; i < all->count; i++) {
		const struct hb_guardrail *other = &all->files[i];

		for (size_t k = 0; k < other->rule_count; k++) {
			const struct hb_guardrail_rule *o = &other->rules[k];

			if (o == r) {
				before = false;
				continue;
			}
			if (!hb_pattern_covers(other->connection, g->connection) ||
			    !hb_pattern_covers(o->pattern, r->pattern) || o->verdict < r->verdict)
				continue;
			if (o->verdict == r->verdict && !before &&
			    hb_pattern_covers(r->pattern, o->pattern) &&
			    hb_pattern_covers(g->connection, other->connection))
				continue;
			*where = other;
			return o;
		}
	}
	return NULL;
}

json_t *hb_guardrails_problems(const struct hb_guardrails *all)
{
	json_t *out = json_array();

	for (size_t i = 0; i < all->count; i++) {
		const struct hb_guardrail *g = &all->files[i], *where = NULL;

		for (size_t k = 0; k < g->rule_count; k++) {
			const struct hb_guardrail_rule *r = &g->rules[k],
						       *o = stronger(all, g, r, &where);

			if (o)
				json_array_append_new(
					out,
					json_pack("{s:s, s:i, s:s, s:s, s:o}", "file", g->name,
						  "line", r->line, "verdict",
						  hb_verdict_name(r->verdict), "rule", r->pattern,
						  "problem",
						  json_sprintf("never counts: %s:%d says %s for %s",
							       where->name, o->line,
							       hb_verdict_name(o->verdict),
							       o->pattern)));
		}
	}
	return out;
}

/* Is there a path that both match? */
static bool overlap(const char *one, const char *two)
{
	while (*one && *two) {
		size_t n, m;
		const char *a = next_segment(&one, &n), *b = next_segment(&two, &m);

		if (is_tail(a, n) || is_tail(b, m))
			return true;
		if (!is_star(a, n) && !is_star(b, m) && (n != m || memcmp(a, b, n) != 0))
			return false;
	}
	return !*one && !*two;
}

/* What nothing opens is blocked with everything else. */
static bool opened(const struct hb_guardrails *all, const char *connection, const char *pattern)
{
	for (size_t i = 0; i < all->count; i++) {
		const struct hb_guardrail *g = &all->files[i];

		for (size_t k = 0; strcmp(g->connection, connection) == 0 && k < g->rule_count; k++)
			if (g->rules[k].verdict != HB_VERDICT_NEVER &&
			    overlap(g->rules[k].pattern, pattern))
				return true;
	}
	return false;
}

/* The runtime's own patterns know "*" for a whole segment, and at the end for all that follows. */
static void add_policies(json_t *out, const struct hb_guardrails *all, const char *connection,
			 enum hb_verdict verdict, const char *action)
{
	for (size_t i = 0; i < all->count; i++) {
		const struct hb_guardrail *g = &all->files[i];

		for (size_t k = 0; strcmp(g->connection, connection) == 0 && k < g->rule_count;
		     k++) {
			const char *pattern = g->rules[k].pattern;
			size_t len = strlen(pattern);

			if (g->rules[k].verdict != verdict ||
			    (verdict == HB_VERDICT_NEVER && !opened(all, connection, pattern)))
				continue;
			if (len >= 2 && strcmp(pattern + len - 2, "**") == 0)
				len--;
			json_array_append_new(out, json_pack("{s:o, s:s}", "pattern",
							     json_sprintf("%s.%.*s", connection,
									  (int)len, pattern),
							     "action", action));
		}
	}
}

json_t *hb_guardrail_policies(const struct hb_guardrails *all, const char *connection)
{
	json_t *out = json_array();

	json_array_append_new(out, json_pack("{s:o, s:s}", "pattern",
					     json_sprintf("%s.*", connection), "action", "block"));
	add_policies(out, all, connection, HB_VERDICT_ALLOW, "approve");
	add_policies(out, all, connection, HB_VERDICT_APPROVAL, "require_approval");
	add_policies(out, all, connection, HB_VERDICT_NEVER, "block");
	return out;
}
