/*
 * The escape rule: how a value is put into a summary so that what is seen is what it is.
 *
 *   printable ASCII, letters and decimal digits of other scripts   as they are
 *   backslash, tab, newline, carriage return                       \\ \t \n \r
 *   a blank at the beginning, at the end, or behind another        \x20
 *   everything else                                                \u{HEX}
 *
 * A combining mark is shown only behind a letter or digit, and at most three in a row (more would
 * reach into other lines). Since the backslash itself is always doubled, the rule can be undone:
 * two values never look the same.
 */
#include "policy/summary.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/utf8.h"
#include "policy/unicode.h"

#define MARKS_IN_A_ROW 3

static void escape_char(uint32_t c, const char *raw, size_t raw_len, bool as_is, struct hb_buf *out)
{
	if (c == '\\')
		hb_buf_adds(out, "\\\\");
	else if (c == '\t')
		hb_buf_adds(out, "\\t");
	else if (c == '\n')
		hb_buf_adds(out, "\\n");
	else if (c == '\r')
		hb_buf_adds(out, "\\r");
	else if (c == HB_UTF8_BAD)
		hb_buf_printf(out, "\\x%02X",
			      (unsigned char)*raw); /* never in valid JSON; shown all the same */
	else if (as_is)
		hb_buf_add(out, raw, raw_len);
	else
		hb_buf_printf(out, "\\u{%X}", (unsigned)c);
}

static void escape(const char *text, size_t len, struct hb_buf *out)
{
	const char *p = text, *end = text + len;
	bool base = false; /* the last character can carry a mark */
	int marks = 0;
	char before = ' '; /* a blank at the beginning counts as a repeated one */

	while (p < end) {
		const char *raw = p;
		uint32_t c = hb_utf8_next(&p, end);

		if (c == ' ') {
			hb_buf_adds(out, before == ' ' || p == end ? "\\x20" : " ");
			base = false;
		} else if (hb_unicode_is_mark(c)) {
			marks++;
			base = base && marks <= MARKS_IN_A_ROW;
			escape_char(c, raw, (size_t)(p - raw), base, out);
		} else {
			marks = 0;
			base = hb_unicode_is_alnum(c);
			escape_char(c, raw, (size_t)(p - raw), hb_unicode_is_shown(c), out);
		}
		before = c == ' ' ? ' ' : 'x';
	}
}

void hb_escape_value(const char *text, struct hb_buf *out)
{
	escape(text, strlen(text), out);
}

void hb_escape_block(const char *text, struct hb_buf *out)
{
	for (;;) {
		size_t len = strcspn(text, "\n");

		hb_buf_adds(out, "| ");
		escape(text, len, out);
		hb_buf_addc(out, '\n');
		if (text[len] == '\0')
			return;
		text += len + 1;
	}
}
