/*
 * Strict parsing and the canonical form.
 *
 * jansson does the parsing; a walk over the result refuses what is valid JSON but not in our
 * subset. Its own error text quotes the input, which may be a secret, so only the position is
 * passed on.
 */
#include "common/json.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/utf8.h"

static const char *
reason(enum json_error_code code)
{
	switch (code) {
	case json_error_invalid_utf8:
		return "the text is not valid UTF-8";
	case json_error_premature_end_of_input:
		return "the text ends too early";
	case json_error_end_of_input_expected:
		return "something follows the value";
	case json_error_duplicate_key:
		return "an object has the same key twice";
	case json_error_numeric_overflow:
		return "a number is out of range";
	case json_error_null_character:
	case json_error_null_byte_in_key:
		return "a string holds U+0000";
	case json_error_stack_overflow:
		return "values are nested too deeply";
	default:
		return "the text is not JSON";
	}
}

static json_t *
load(const char *text, size_t len, size_t flags, struct hb_error *err)
{
	enum json_error_code code;
	json_error_t e;
	json_t *value;

	/* Checked first: jansson's reader is not asked to make sense of a NUL byte. */
	if (memchr(text, '\0', len) != NULL) {
		hb_fail(err, "bad_json", "the text holds a NUL byte");
		return NULL;
	}
	value = json_loadb(text, len, flags | JSON_REJECT_DUPLICATES, &e);
	if (value != NULL)
		return value;
	code = json_error_code(&e);
	hb_fail(err, code == json_error_duplicate_key ? "duplicate_key" : "bad_json",
		"%s (line %d, column %d)", reason(code), e.line, e.column);
	return NULL;
}

/* `depth` is that of `value` itself; the outermost object has 1. */
static int
check_subset(const json_t *value, int depth, struct hb_error *err)
{
	const char *key;
	json_t *child;
	json_int_t n;
	size_t i;

	if (depth > HB_JSON_DEPTH_MAX)
		return hb_fail(err, "bad_json", "values are nested deeper than %d",
			       HB_JSON_DEPTH_MAX);
	switch (json_typeof(value)) {
	case JSON_REAL:
		return hb_fail(err, "bad_json", "a number is not an integer");
	case JSON_INTEGER:
		n = json_integer_value(value);
		if (n > HB_JSON_INT_MAX || n < -HB_JSON_INT_MAX)
			return hb_fail(err, "bad_json", "a number is beyond 2^53-1");
		return 0;
	case JSON_ARRAY:
		json_array_foreach (value, i, child)
			if (check_subset(child, depth + 1, err) != 0)
				return -1;
		return 0;
	case JSON_OBJECT:
		json_object_foreach ((json_t *)value, key, child)
			if (check_subset(child, depth + 1, err) != 0)
				return -1;
		return 0;
	default:
		return 0;
	}
}

json_t *
hb_json_parse(const char *text, size_t len, struct hb_error *err)
{
	json_t *value = load(text, len, 0, err);

	if (value == NULL)
		return NULL;
	if (!json_is_object(value))
		hb_fail(err, "bad_json", "the outermost value is not an object");
	else if (check_subset(value, 1, err) == 0)
		return value;
	json_decref(value);
	return NULL;
}

json_t *
hb_json_parse_foreign(const char *text, size_t len, struct hb_error *err)
{
	return load(text, len, JSON_DECODE_ANY, err);
}

static uint32_t
utf16_units(uint32_t cp)
{
	/* A pair as one number that sorts as its two units do, after or before single units as its
	 * first does. */
	if (cp < 0x10000)
		return cp << 16;
	cp -= 0x10000;
	return (0xd800 + (cp >> 10)) << 16 | (0xdc00 + (cp & 0x3ff));
}

/* RFC 8785 section 3.2.3: keys sort by UTF-16 code units, which is not the order of UTF-8 bytes. */
static int
compare_keys(const void *a, const void *b)
{
	const char *x = *(const char *const *)a, *y = *(const char *const *)b;
	const char *x_end = x + strlen(x), *y_end = y + strlen(y);

	while (x < x_end && y < y_end) {
		uint32_t u = utf16_units(hb_utf8_next(&x, x_end));
		uint32_t v = utf16_units(hb_utf8_next(&y, y_end));

		if (u != v)
			return u < v ? -1 : 1;
	}
	return (x < x_end) - (y < y_end);
}

static int
add_string(const char *text, size_t len, struct hb_buf *out, struct hb_error *err)
{
	static const char short_form[] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
	size_t i;

	if (hb_utf8_count(text, len) == (size_t)-1 || memchr(text, '\0', len) != NULL)
		return hb_fail(err, "bad_json", "a string is not valid UTF-8 or holds U+0000");
	hb_buf_addc(out, '"');
	for (i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '"' || c == '\\')
			hb_buf_printf(out, "\\%c", c);
		else if (c < sizeof(short_form) && short_form[c] != 0)
			hb_buf_printf(out, "\\%c", short_form[c]);
		else if (c < 0x20)
			hb_buf_printf(out, "\\u%04x", c);
		else
			hb_buf_addc(out, (char)c);
	}
	hb_buf_addc(out, '"');
	return 0;
}

static int add_value(const json_t *value, struct hb_buf *out, struct hb_error *err);

static int
add_object(const json_t *object, struct hb_buf *out, struct hb_error *err)
{
	size_t count = json_object_size(object), i = 0;
	const char **keys, *key;
	json_t *child;
	int rc = -1;

	keys = hb_calloc(count, sizeof(*keys));
	json_object_foreach ((json_t *)object, key, child) {
		/* Before sorting: comparison relies on valid text. */
		if (hb_utf8_count(key, strlen(key)) == (size_t)-1) {
			hb_fail(err, "bad_json", "a key is not valid UTF-8");
			goto out;
		}
		keys[i++] = key;
	}
	qsort(keys, count, sizeof(*keys), compare_keys);
	hb_buf_addc(out, '{');
	for (i = 0; i < count; i++) {
		if (i > 0)
			hb_buf_addc(out, ',');
		if (add_string(keys[i], strlen(keys[i]), out, err) != 0)
			goto out;
		hb_buf_addc(out, ':');
		if (add_value(json_object_get(object, keys[i]), out, err) != 0)
			goto out;
	}
	hb_buf_addc(out, '}');
	rc = 0;
out:
	free(keys);
	return rc;
}

static int
add_value(const json_t *value, struct hb_buf *out, struct hb_error *err)
{
	json_t *child;
	size_t i;

	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return add_object(value, out, err);
	case JSON_ARRAY:
		hb_buf_addc(out, '[');
		json_array_foreach (value, i, child) {
			if (i > 0)
				hb_buf_addc(out, ',');
			if (add_value(child, out, err) != 0)
				return -1;
		}
		hb_buf_addc(out, ']');
		return 0;
	case JSON_STRING:
		return add_string(json_string_value(value), json_string_length(value), out, err);
	case JSON_INTEGER:
		hb_buf_printf(out, "%lld", (long long)json_integer_value(value));
		return 0;
	case JSON_TRUE:
		hb_buf_adds(out, "true");
		return 0;
	case JSON_FALSE:
		hb_buf_adds(out, "false");
		return 0;
	case JSON_NULL:
		hb_buf_adds(out, "null");
		return 0;
	default:
		return hb_fail(err, "bad_json", "a number is not an integer");
	}
}

int
hb_json_canonical(const json_t *value, struct hb_buf *out, struct hb_error *err)
{
	size_t before = out->len;

	if (value == NULL)
		return hb_fail(err, "bad_json", "there is no value");
	/* Bounds the recursion below too. */
	if (check_subset(value, 1, err) != 0)
		return -1;
	if (add_value(value, out, err) == 0)
		return 0;
	out->len = before;
	if (out->data != NULL)
		out->data[before] = '\0';
	return -1;
}

int
hb_json_digest(const json_t *value, char hex[65], struct hb_error *err)
{
	struct hb_buf b = HB_BUF_INIT;
	int rc = hb_json_canonical(value, &b, err);

	if (rc == 0)
		hb_sha256_hex(b.data, b.len, hex);
	hb_buf_free(&b);
	return rc;
}

const char *
hb_json_text(const json_t *object, const char *key, const char *fallback)
{
	const json_t *v = json_object_get(object, key);

	return json_is_string(v) ? json_string_value(v) : fallback;
}

long long
hb_json_int(const json_t *object, const char *key, long long fallback)
{
	const json_t *v = json_object_get(object, key);

	return json_is_integer(v) ? (long long)json_integer_value(v) : fallback;
}

bool
hb_json_bool(const json_t *object, const char *key, bool fallback)
{
	const json_t *v = json_object_get(object, key);

	return json_is_boolean(v) ? json_is_true(v) : fallback;
}

json_t *
hb_json_error(const struct hb_error *err)
{
	return json_pack("{s:s, s:s}", "error", err->message, "code", err->code);
}
