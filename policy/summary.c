/*
 * What a person is shown: title, every field, consequences. The features' own parts are in
 * summary_*.c, the escape rule in escape.c. Made from the operation alone, so that broker, approver
 * and executor get the same bytes.
 */
#include "policy/summary.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/utf8.h"
#include "policy/draw.h"
#include "policy/operation.h"

#define AT_PREPARE "(sealed at prepare)"

static void quote(struct hb_buf *out, const char *text)
{
	struct hb_buf escaped = HB_BUF_INIT;

	hb_escape_value(text, &escaped);
	hb_buf_addc(out, '"');
	for (size_t i = 0; i < escaped.len; i++) {
		if (escaped.data[i] == '"')
			hb_buf_addc(out, '\\');
		hb_buf_addc(out, escaped.data[i]);
	}
	hb_buf_addc(out, '"');
	hb_buf_free(&escaped);
}

char *hb_escaped(const char *text)
{
	struct hb_buf out = HB_BUF_INIT;

	hb_escape_value(text, &out);
	return hb_buf_take(&out);
}

static void label(struct hb_page *p, const char *name)
{
	hb_buf_printf(p->out, "%s: ", name);
}

static void plain(struct hb_page *p, const char *name, const char *value)
{
	hb_buf_printf(p->out, "%s: %s\n", name, value);
}

void hb_draw_text(struct hb_page *p, const char *name, const char *text)
{
	if (!text) {
		plain(p, name, "(not given)");
		return;
	}
	label(p, name);
	hb_escape_value(text, p->out);
	hb_buf_addc(p->out, '\n');
}

void hb_draw_quoted(struct hb_page *p, const char *name, const char *text)
{
	if (!text) {
		plain(p, name, AT_PREPARE);
		return;
	}
	label(p, name);
	quote(p->out, text);
	hb_buf_addc(p->out, '\n');
}

void hb_draw_sealed(struct hb_page *p, const char *name, const char *text)
{
	if (text)
		hb_draw_text(p, name, text);
	else
		plain(p, name, AT_PREPARE);
}

void hb_draw_int(struct hb_page *p, const char *name, long long number, const char *unit)
{
	hb_buf_printf(p->out, "%s: %lld%s%s\n", name, number, unit[0] ? " " : "", unit);
}

void hb_draw_bool(struct hb_page *p, const char *name, bool value)
{
	plain(p, name, value ? "yes" : "no");
}

void hb_draw_list(struct hb_page *p, const char *name, const json_t *list)
{
	const json_t *item;
	size_t i;

	if (!list) {
		plain(p, name, AT_PREPARE);
		return;
	}
	label(p, name);
	hb_buf_addc(p->out, '[');
	json_array_foreach(list, i, item)
	{
		if (i > 0)
			hb_buf_addc(p->out, ',');
		quote(p->out, json_string_value(item));
	}
	hb_buf_adds(p->out, "]\n");
}

static void draw_object(struct hb_page *p, const json_t *object, const char *const *keys)
{
	const char *comma = "";

	hb_buf_adds(p->out, "  {");
	for (; *keys; keys++) {
		const json_t *value = json_object_get(object, *keys);

		if (!value)
			continue;
		hb_buf_printf(p->out, "%s\"%s\":", comma, *keys);
		comma = ",";
		if (json_is_string(value))
			quote(p->out, json_string_value(value));
		else if (json_is_integer(value))
			hb_buf_printf(p->out, "%lld", (long long)json_integer_value(value));
		else
			hb_buf_adds(p->out, json_is_true(value) ? "true" : "false");
	}
	hb_buf_addc(p->out, '}');
}

void hb_draw_objects(struct hb_page *p, const char *name, const json_t *list,
		     const char *const *keys)
{
	const json_t *item;
	size_t i;

	if (json_array_size(list) == 0) {
		plain(p, name, "[]");
		return;
	}
	hb_buf_printf(p->out, "%s: [\n", name);
	json_array_foreach(list, i, item)
	{
		draw_object(p, item, keys);
		hb_buf_adds(p->out, i + 1 < json_array_size(list) ? ",\n" : "]\n");
	}
}

void hb_draw_block(struct hb_page *p, const char *name, const char *text)
{
	hb_buf_printf(p->out, "%s:\n", name);
	hb_escape_block(text, p->out);
}

void hb_draw_field(struct hb_page *p, const json_t *request, const char *name)
{
	const json_t *value = json_object_get(request, name);

	if (json_is_array(value))
		hb_draw_list(p, name, value);
	else if (json_is_integer(value))
		hb_draw_int(p, name, json_integer_value(value), "");
	else if (json_is_boolean(value))
		hb_draw_bool(p, name, json_is_true(value));
	else
		hb_draw_text(p, name, json_string_value(value));
}

__attribute__((format(printf, 1, 0))) static char *format(const char *fmt, va_list ap)
{
	char *text = NULL;

	if (vasprintf(&text, fmt, ap) < 0)
		abort();
	return text;
}

void hb_draw_note(struct hb_page *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	char *text = format(fmt, ap);
	va_end(ap);
	hb_buf_printf(&p->consequences, "- %s\n", text);
	free(text);
}

void hb_draw_warning(struct hb_page *p, const char *code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	char *text = format(fmt, ap);
	va_end(ap);
	hb_buf_printf(&p->consequences, "! %s\n", text);
	json_array_append_new(p->warnings, json_pack("{s:s, s:s}", "code", code, "text", text));
	free(text);
}

/* --- the whole --- */

static const struct {
	const char *feature;
	void (*draw)(struct hb_page *p, const json_t *request);
} features[] = {
	{"runtime", hb_summary_runtime},
	{"local", hb_summary_local},
	{"docker", hb_summary_docker},
	{"ssh", hb_summary_ssh},
	{"policy", hb_summary_policy},
};

/* The stricter of code points and UTF-16 units is always the latter; both are said for the reader's
 * sake. */
static size_t shown_length(const char *text, size_t len)
{
	const char *p = text, *end = text + len;
	size_t units = 0;

	while (p < end)
		units += hb_utf8_next(&p, end) > 0xffff ? 2 : 1;
	return units;
}

static void draw(struct hb_page *p, const char *feature, const json_t *request)
{
	hb_buf_printf(p->out, "Hermes Broker: %s %s\n", feature,
		      hb_operation_action(feature, request));
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
		if (strcmp(features[i].feature, feature) == 0)
			features[i].draw(p, request);
	}
	hb_draw_look_warnings(p, request);
	hb_buf_adds(p->out, "\nConsequences\n");
	hb_buf_add(p->out, p->consequences.data, p->consequences.len);
}

int hb_summary(const char *feature, const json_t *request, struct hb_buf *out, json_t **warnings,
	       struct hb_error *err)
{
	const char *name = hb_feature_canonical(feature);
	struct hb_buf text = HB_BUF_INIT;
	struct hb_page page = {.out = &text};
	int rc = -1;

	if (!name || hb_operation_action(name, request)[0] == '\0')
		return hb_fail(err, "unknown_feature",
			       "an operation of an unknown feature or action can't be shown");
	page.warnings = json_array();
	page.sealed = hb_operation_is_sealed(name, request) != 0;
	draw(&page, name, request);

	size_t length = shown_length(text.data, text.len);
	if (length > HB_SUMMARY_MAX) {
		hb_fail(err, "too_long_to_show",
			"the summary is %zu characters long and at most %d can be shown whole; "
			"what can't be shown can't be approved, so split or shorten the request",
			length, HB_SUMMARY_MAX);
		goto out;
	}
	hb_buf_add(out, text.data, text.len);
	if (warnings)
		*warnings = json_incref(page.warnings);
	rc = 0;
out:
	json_decref(page.warnings);
	hb_buf_free(&page.consequences);
	hb_buf_free(&text);
	return rc;
}

void hb_summary_digest(const struct hb_buf *text, char hex[HB_HEX256])
{
	hb_sha256_hex(text->data ? text->data : "", text->len, hex);
}
