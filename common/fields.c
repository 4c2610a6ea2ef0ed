/* The one decoder from a JSON object to a struct, and the one rule for text. */
#include "common/fields.h"

#include <stdbool.h>
#include <string.h>

#include "common/digest.h"
#include "common/utf8.h"

int
hb_text_check(const char *name, const char *text, size_t min, size_t max, struct hb_error *err)
{
	const char *p = text, *end = text + strlen(text);
	size_t count = 0;
	uint32_t cp;

	while (p < end) {
		cp = hb_utf8_next(&p, end);
		if (cp == HB_UTF8_BAD)
			return hb_fail(err, "bad_type", "%s is not valid UTF-8", name);
		if ((cp < 0x20 && cp != '\t' && cp != '\n' && cp != '\r') || cp == 0x7f)
			return hb_fail(err, "out_of_range", "%s holds the control character U+%04X",
				       name, cp);
		count++;
	}
	if (count < min && count == 0)
		return hb_fail(err, "out_of_range", "%s is empty", name);
	if (count < min || count > max)
		return hb_fail(err, "out_of_range", "%s has %zu characters; %zu to %zu are allowed",
			       name, count, min, max);
	return 0;
}

static int
check_text(const struct hb_field *f, const char *text, struct hb_error *err)
{
	size_t digits;

	if (f->flags & HB_FIELD_HEX64) {
		if (!hb_is_hex64(text))
			return hb_fail(err, "out_of_range",
				       "%s must be exactly 64 lower-case hex digits", f->name);
		return 0;
	}
	if (f->flags & HB_FIELD_DECIMAL) {
		digits = strspn(text, "0123456789");
		if (digits < 1 || digits > 20 || text[digits] != '\0' ||
		    (text[0] == '0' && digits > 1))
			return hb_fail(err, "out_of_range",
				       "%s must be 1 to 20 decimal digits without a leading zero",
				       f->name);
		return 0;
	}
	return hb_text_check(f->name, text, f->min < 0 ? 0 : (size_t)f->min,
			     f->max < 0 ? 0 : (size_t)f->max, err);
}

static int
wrong_type(const struct hb_field *f, const char *wanted, struct hb_error *err)
{
	return hb_fail(err, "bad_type", "%s must be %s", f->name, wanted);
}

/* `where` is the field's place in the output; NULL: only check. */
static int
decode_one(const struct hb_field *f, json_t *v, void *where, struct hb_error *err)
{
	long long n;

	switch (f->type) {
	case HB_FIELD_TEXT:
		if (!json_is_string(v))
			return wrong_type(f, "a string", err);
		if (strlen(json_string_value(v)) != json_string_length(v))
			return hb_fail(err, "out_of_range", "%s holds the control character U+0000",
				       f->name);
		if (check_text(f, json_string_value(v), err) != 0)
			return -1;
		if (where != NULL)
			*(const char **)where = json_string_value(v);
		return 0;
	case HB_FIELD_INT:
		if (!json_is_integer(v))
			return wrong_type(f, "an integer", err);
		n = (long long)json_integer_value(v);
		if (n < f->min || n > f->max)
			return hb_fail(err, "out_of_range", "%s is %lld; %lld to %lld are allowed",
				       f->name, n, f->min, f->max);
		if (where != NULL)
			*(long long *)where = n;
		return 0;
	case HB_FIELD_BOOL:
		if (!json_is_boolean(v))
			return wrong_type(f, "true or false", err);
		if (where != NULL)
			*(bool *)where = json_is_true(v);
		return 0;
	case HB_FIELD_OBJECT:
		if (!json_is_object(v))
			return wrong_type(f, "an object", err);
		break;
	case HB_FIELD_ARRAY:
		if (!json_is_array(v))
			return wrong_type(f, "a list", err);
		if ((long long)json_array_size(v) < f->min ||
		    (long long)json_array_size(v) > f->max)
			return hb_fail(err, "out_of_range",
				       "%s has %zu items; %lld to %lld are allowed", f->name,
				       json_array_size(v), f->min, f->max);
		break;
	}
	if (where != NULL)
		*(json_t **)where = v;
	return 0;
}

int
hb_fields_decode(const json_t *object, const struct hb_field *fields, size_t count, void *out,
		 struct hb_error *err)
{
	const char *key;
	json_t *v;
	size_t i;

	if (!json_is_object(object))
		return hb_fail(err, "bad_type", "an object is wanted");
	json_object_foreach ((json_t *)object, key, v) {
		for (i = 0; i < count; i++)
			if (strcmp(key, fields[i].name) == 0)
				break;
		if (i == count)
			return hb_fail(err, "unknown_field", "there is no field \"%.64s\" here",
				       key);
	}
	/* Everything is checked before the first byte of the output changes. */
	for (i = 0; i < count; i++) {
		v = json_object_get(object, fields[i].name);
		if (v == NULL && (fields[i].flags & HB_FIELD_REQUIRED))
			return hb_fail(err, "missing_field", "the field %s is missing",
				       fields[i].name);
		if (v != NULL && decode_one(&fields[i], v, NULL, err) != 0)
			return -1;
	}
	for (i = 0; i < count; i++) {
		v = json_object_get(object, fields[i].name);
		if (v != NULL)
			decode_one(&fields[i], v, (char *)out + fields[i].offset, err);
	}
	return 0;
}
