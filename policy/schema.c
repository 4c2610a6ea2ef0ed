/* The walker over rule tables; see schema.h. */
#include "policy/schema.h"

#include <stdio.h>
#include <string.h>

#include "common/fields.h"
#include "common/utf8.h"
#include "policy/text.h"

/* Where a fault is, and where to say so. */
struct place {
	const struct hb_rule *rule;
	const char *where;
	struct hb_error *err;
};

static int wrong_type(const struct place *p, const char *wanted)
{
	return hb_fail(p->err, "bad_type", "field '%s%s' must be %s", p->where, p->rule->name,
		       wanted);
}

static int check_text(const struct place *p, const json_t *value, long long min, long long max)
{
	const char *text = json_string_value(value);
	char name[128], code[HB_ERROR_CODE_MAX];

	if (!text)
		return wrong_type(p, "text");
	snprintf(name, sizeof(name), "%s%s", p->where, p->rule->name);
	if (strlen(text) != json_string_length(value))
		return hb_fail(p->err, "bad_type", "field '%s' holds a NUL character", name);
	if (hb_text_check(name, text, (size_t)min, (size_t)max, p->err) < 0)
		return -1;
	if (!p->rule->check || p->rule->check(text))
		return 0;
	char shown[121];
	hb_show(text, shown, sizeof(shown));
	snprintf(code, sizeof(code), "bad_%s", p->rule->name);
	return hb_fail(p->err, p->rule->code ? p->rule->code : code,
		       "field '%s' is '%s'; it must be %s", name, shown, p->rule->must);
}

static bool one_of(const char *words, const char *text)
{
	size_t len = strlen(text);

	for (const char *w = words; *w;) {
		size_t n = strcspn(w, " ");

		if (n == len && memcmp(w, text, n) == 0)
			return true;
		w += n + (w[n] == ' ');
	}
	return false;
}

static int check_word(const struct place *p, const json_t *value)
{
	const char *text = json_string_value(value);
	char code[HB_ERROR_CODE_MAX];

	if (!text)
		return wrong_type(p, "text");
	if (one_of(p->rule->words, text) && strlen(text) == json_string_length(value))
		return 0;
	char shown[65];
	hb_show(text, shown, sizeof(shown));
	snprintf(code, sizeof(code), "bad_%s", p->rule->name);
	return hb_fail(p->err, code, "field '%s%s' is '%s'; it must be one of: %s", p->where,
		       p->rule->name, shown, p->rule->words);
}

static int check_int(const struct place *p, const json_t *value)
{
	const struct hb_rule *r = p->rule;

	if (!json_is_integer(value))
		return wrong_type(p, "a whole number");
	if (json_integer_value(value) < r->min || json_integer_value(value) > r->max)
		return hb_fail(p->err, "out_of_range", "field '%s%s' must be from %lld to %lld",
			       p->where, r->name, r->min, r->max);
	return 0;
}

static int check_count(const struct place *p, const json_t *value)
{
	const struct hb_rule *r = p->rule;
	size_t n = json_array_size(value);

	if (!json_is_array(value))
		return wrong_type(p, "a list");
	if (n < (size_t)r->min || n > (size_t)r->max)
		return hb_fail(p->err, "out_of_range", "field '%s%s' must have %lld to %lld items",
			       p->where, r->name, r->min, r->max);
	return 0;
}

static json_t *apply_list(const struct place *p, const json_t *value)
{
	size_t i;
	json_t *item;

	if (check_count(p, value) < 0)
		return NULL;
	json_array_foreach(value, i, item)
	{
		if (check_text(p, item, p->rule->flags & HB_RULE_EMPTY_ITEM ? 0 : 1,
			       p->rule->item_max) < 0)
			return NULL;
	}
	return json_deep_copy(value);
}

static json_t *apply_object(const struct place *p, const json_t *value, const char *label)
{
	char where[160];

	if (!json_is_object(value)) {
		wrong_type(p, "an object");
		return NULL;
	}
	snprintf(where, sizeof(where), "%s%s.", p->where, label);
	return hb_rules_apply(p->rule->fields, p->rule->field_count, value, where, p->err);
}

static json_t *apply_objects(const struct place *p, const json_t *value)
{
	json_t *out = NULL, *item;
	size_t i;

	if (check_count(p, value) < 0)
		return NULL;
	out = json_array();
	json_array_foreach(value, i, item)
	{
		char label[80];

		snprintf(label, sizeof(label), "%s[%zu]", p->rule->name, i);
		json_t *made = apply_object(p, item, label);
		if (!made) {
			json_decref(out);
			return NULL;
		}
		json_array_append_new(out, made);
	}
	return out;
}

static json_t *apply_value(const struct place *p, const json_t *value)
{
	switch (p->rule->kind) {
	case HB_RULE_TEXT:
		return check_text(p, value, p->rule->min, p->rule->max) < 0 ? NULL
									    : json_deep_copy(value);
	case HB_RULE_WORD:
		return check_word(p, value) < 0 ? NULL : json_deep_copy(value);
	case HB_RULE_INT:
		return check_int(p, value) < 0 ? NULL : json_deep_copy(value);
	case HB_RULE_BOOL:
		if (!json_is_boolean(value)) {
			wrong_type(p, "true or false");
			return NULL;
		}
		return json_deep_copy(value);
	case HB_RULE_LIST:
		return apply_list(p, value);
	case HB_RULE_OBJECT:
		return apply_object(p, value, p->rule->name);
	case HB_RULE_OBJECTS:
		return apply_objects(p, value);
	}
	return NULL;
}

static json_t *default_value(const struct hb_rule *r)
{
	switch (r->kind) {
	case HB_RULE_TEXT:
	case HB_RULE_WORD:
		return json_string(r->text_fn ? r->text_fn() : r->text);
	case HB_RULE_INT:
		return json_integer(r->number);
	case HB_RULE_BOOL:
		return json_boolean(r->number != 0);
	case HB_RULE_LIST:
		return r->text ? json_pack("[s]", r->text) : json_array();
	case HB_RULE_OBJECTS:
		return json_array();
	case HB_RULE_OBJECT:
		return NULL;
	}
	return NULL;
}

static int check_known(const struct hb_rule *rules, size_t count, const json_t *object,
		       const char *where, struct hb_error *err)
{
	const char *key;
	json_t *value;
	char shown[65];

	json_object_foreach((json_t *)object, key, value)
	{
		size_t i = 0;

		while (i < count && strcmp(rules[i].name, key) != 0)
			i++;
		if (i < count)
			continue;
		hb_show(key, shown, sizeof(shown));
		if (strcmp(key, "secret_ref") == 0)
			return hb_fail(err, "unknown_field",
				       "field '%s%s' is refused: secrets are not passed through "
				       "operations; give a plain value that may be shown",
				       where, shown);
		return hb_fail(err, "unknown_field", "unknown field '%s%s'; remove it", where,
			       shown);
	}
	return 0;
}

json_t *hb_rules_apply(const struct hb_rule *rules, size_t count, const json_t *object,
		       const char *where, struct hb_error *err)
{
	json_t *out = NULL;

	if (check_known(rules, count, object, where, err) < 0)
		return NULL;
	out = json_object();
	for (size_t i = 0; i < count; i++) {
		struct place p = {.rule = &rules[i], .where = where, .err = err};
		const json_t *value = json_object_get(object, rules[i].name);
		json_t *made = NULL;

		if (value) {
			made = apply_value(&p, value);
		} else if (rules[i].flags & HB_RULE_REQUIRED) {
			hb_fail(err, "missing_field", "field '%s%s' is missing", where,
				rules[i].name);
		} else if (rules[i].flags & HB_RULE_OPTIONAL) {
			continue;
		} else {
			made = default_value(&rules[i]);
		}
		if (!made) {
			json_decref(out);
			return NULL;
		}
		json_object_set_new(out, rules[i].name, made);
	}
	return out;
}
