/*
 * Quoting for the shell at the other end (quote.h).
 *
 * The protocol carries one string, which the login shell of the remote user reads. Between single
 * quotes a POSIX shell takes every byte but the single quote for itself (XCU 2.2.2), newlines
 * included; a quote is written as '\''. `exec` makes it the program and not a builtin of the same
 * name, and leaves no shell behind to be signalled.
 */
#include "broker/ssh/quote.h"

#include <string.h>

int hb_quote_argv(const json_t *argv, struct hb_buf *out, struct hb_error *err)
{
	const json_t *item;
	size_t i;

	json_array_foreach(argv, i, item) {
		const char *text = json_string_value(item);

		if (!text || strlen(text) != json_string_length(item))
			return hb_fail(err, "argv_unsafe",
				       "argv[%zu] can't be handed to a program: it is not text, or "
				       "has a NUL",
				       i);
		if (i == 0 && (text[0] == '-' || text[0] == '\0'))
			return hb_fail(err, "argv_unsafe",
				       "argv[0] must name a program; one that begins with '-' "
				       "would be read as an option by some shells, write ./%s",
				       text[0] ? "-..." : "NAME");
	}
	if (json_array_size(argv) == 0)
		return hb_fail(err, "argv_unsafe", "argv is empty");
	hb_buf_adds(out, "exec");
	json_array_foreach(argv, i, item) {
		hb_buf_adds(out, " '");
		for (const char *p = json_string_value(item); *p; p++) {
			if (*p == '\'')
				hb_buf_adds(out, "'\\''");
			else
				hb_buf_addc(out, *p);
		}
		hb_buf_addc(out, '\'');
	}
	return 0;
}
