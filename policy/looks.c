/*
 * Letters that deceive: words that mix scripts, words that look like ASCII and aren't, text that
 * runs from right to left, host names in their encoded international form. Such a request may be
 * honest, so it is shown with a warning and not refused. A word here is a run of letters, digits,
 * marks and the signs of names (. _ -).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "policy/draw.h"
#include "policy/unicode.h"

struct word {
	const char *text;
	size_t len;
	int script, other;        /* first script and a second one, -1 when there is none */
	bool foreign, lookalikes; /* has non-ASCII letters; all of those imitate ASCII */
	bool rtl;
};

static bool in_word(uint32_t c)
{
	return hb_unicode_is_alnum(c) || hb_unicode_is_mark(c) || c == '.' || c == '_' || c == '-';
}

static void take(struct word *w, uint32_t c)
{
	int script = hb_unicode_script(c);

	if (script >= 0 && w->script < 0)
		w->script = script;
	else if (script >= 0 && script != w->script && w->other < 0)
		w->other = script;
	if (c >= 0x80 && hb_unicode_is_alnum(c)) {
		w->lookalikes = (w->lookalikes || !w->foreign) && hb_unicode_is_lookalike(c);
		w->foreign = true;
	}
	w->rtl = w->rtl || hb_unicode_is_rtl(c);
}

/* The next word at or after *p; false at the end. */
static bool next_word(const char **p, const char *end, struct word *w)
{
	*w = (struct word){.script = -1, .other = -1};
	while (*p < end) {
		const char *start = *p;
		uint32_t c = hb_utf8_next(p, end);

		if (!in_word(c)) {
			if (w->text)
				return true;
			continue;
		}
		if (!w->text)
			w->text = start;
		w->len = (size_t)(*p - w->text);
		take(w, c);
	}
	return w->text != NULL;
}

static char *shown(const struct word *w)
{
	char *copy = strndup(w->text, w->len);

	if (!copy)
		abort();
	char *escaped = hb_escaped(copy);
	free(copy);
	return escaped;
}

static bool is_punycode(const struct word *w)
{
	for (size_t i = 0; i + 4 <= w->len; i++) {
		if (strncasecmp(w->text + i, "xn--", 4) == 0 && (i == 0 || w->text[i - 1] == '.'))
			return true;
	}
	return false;
}

/* One warning of a kind for a field: the first word that earns it. */
struct said {
	bool mixed, lookalike, rtl, punycode;
};

static void judge(struct hb_page *p, const char *field, const struct word *w, struct said *said)
{
	char *text = shown(w);

	if (w->other >= 0 && !said->mixed) {
		said->mixed = true;
		hb_draw_warning(
			p, "mixed_scripts",
			"%s: the word '%s' mixes %s and %s letters; it may imitate another name",
			field, text, hb_unicode_script_name(w->script),
			hb_unicode_script_name(w->other));
	}
	if (w->foreign && w->lookalikes && !said->lookalike) {
		said->lookalike = true;
		hb_draw_warning(p, "lookalike_letters",
				"%s: '%s' looks like plain ASCII and is not", field, text);
	}
	if (w->rtl && !said->rtl) {
		said->rtl = true;
		hb_draw_warning(p, "right_to_left",
				"%s: '%s' runs from right to left; the screen may show it and what "
				"stands beside it in another order",
				field, text);
	}
	if (is_punycode(w) && !said->punycode) {
		said->punycode = true;
		hb_draw_warning(
			p, "encoded_name",
			"%s: '%s' is an encoded international name; what it reads as is not "
			"shown here",
			field, text);
	}
	free(text);
}

static void look_at_text(struct hb_page *p, const char *field, const char *text, struct said *said)
{
	const char *end = text + strlen(text);
	struct word w;

	while (next_word(&text, end, &w))
		judge(p, field, &w, said);
}

#define KEYS_MAX 64

/* Sorted: the order of an object's keys in memory must not show in the text. */
static size_t sorted_keys(const json_t *object, const char *names[KEYS_MAX])
{
	const char *key;
	json_t *value;
	size_t count = 0;

	json_object_foreach((json_t *)object, key, value)
	{
		size_t at = count;

		if (count == KEYS_MAX)
			break;
		while (at > 0 && strcmp(names[at - 1], key) > 0) {
			names[at] = names[at - 1];
			at--;
		}
		names[at] = key;
		count++;
	}
	return count;
}

static void look_at(struct hb_page *p, const char *field, const json_t *value, struct said *said)
{
	const char *names[KEYS_MAX] = {NULL};

	if (json_is_string(value)) {
		look_at_text(p, field, json_string_value(value), said);
	} else if (json_is_array(value)) {
		for (size_t i = 0; i < json_array_size(value); i++)
			look_at(p, field, json_array_get(value, i), said);
	} else if (json_is_object(value)) {
		size_t count = sorted_keys(value, names);

		for (size_t i = 0; i < count; i++)
			look_at(p, field, json_object_get(value, names[i]), said);
	}
}

void hb_draw_look_warnings(struct hb_page *p, const json_t *request)
{
	const char *names[KEYS_MAX] = {NULL};
	size_t count = sorted_keys(request, names);

	for (size_t i = 0; i < count; i++) {
		struct said said = {0};

		look_at(p, names[i], json_object_get(request, names[i]), &said);
	}
}
