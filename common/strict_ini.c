/*
 * inih splits lines into sections, names and values. It forgives much (cuts long lines and names,
 * joins indented lines, goes on after errors), so every line is looked at here first, as it is
 * handed over, and the first fault ends it.
 */
#include "common/strict_ini.h"

#include <ini.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/fields.h"

#define NAME_MAX_LEN 48 /* inih keeps 49 bytes of a name or section and drops the rest silently */

struct reader {
	const char *file, *at, *end;
	int line;
	hb_ini_handler handler;
	void *arg;
	struct hb_error *err;
	bool failed;
};

static void
refuse(struct reader *r, const char *what)
{
	hb_fail(r->err, "ini_malformed", "%s:%d: %s", r->file, r->line, what);
	r->failed = true;
}

static const char *
line_fault(const char *line)
{
	size_t name;

	if (hb_text_check("line", line, 0, HB_INI_LINE_MAX, NULL) != 0)
		return "the line is not plain UTF-8 text";
	if (line[0] == '\0' || line[0] == '#' || line[0] == ';')
		return NULL;
	if (line[0] == ' ' || line[0] == '\t')
		return line[strspn(line, " \t")] == '\0' ? NULL
							 : "a line may not begin with a blank";
	if (line[0] == '[') {
		name = strcspn(line + 1, "]");
		if (name == 0 || name > NAME_MAX_LEN || line[1 + name] != ']' ||
		    line[2 + name + strspn(line + 2 + name, " \t")] != '\0')
			return "a section is [name] alone on its line";
		return NULL;
	}
	name = strcspn(line, "=:");
	if (line[name] != '=')
		return "the line must be key = value";
	if (name == 0 || name > NAME_MAX_LEN)
		return "the key is empty or too long";
	return NULL;
}

/* fgets-like, as inih wants it. */
static char *
next_line(char *out, int size, void *arg)
{
	struct reader *r = arg;
	const char *newline, *fault;
	size_t len;

	if (r->failed || r->at == r->end)
		return NULL;
	newline = memchr(r->at, '\n', (size_t)(r->end - r->at));
	len = (size_t)((newline != NULL ? newline : r->end) - r->at);
	r->line++;
	if (len + 2 > (size_t)size || len > HB_INI_LINE_MAX) {
		refuse(r, "the line is too long");
		return NULL;
	}
	memcpy(out, r->at, len);
	r->at += len + (newline != NULL);
	if (len > 0 && out[len - 1] == '\r')
		len--;
	out[len] = '\0';
	fault = strlen(out) != len || strchr(out, '\r') != NULL ? "the line is not plain UTF-8 text"
								: line_fault(out);
	if (fault != NULL) {
		refuse(r, fault);
		return NULL;
	}
	out[len] = '\n';
	out[len + 1] = '\0';
	return out;
}

static int
on_pair(void *arg, const char *section, const char *name, const char *value)
{
	struct reader *r = arg;

	if (r->failed)
		return 0;
	if (section[0] == '\0') {
		refuse(r, "the key stands outside a [section]");
		return 0;
	}
	if (r->handler(section, name, value, r->line, r->arg, r->err) != 0) {
		hb_fail_prefix(r->err, "%s:%d", r->file, r->line);
		r->failed = true;
		return 0;
	}
	return 1;
}

int
hb_ini_parse(const char *file, const char *text, size_t len, hb_ini_handler handler, void *arg,
	     struct hb_error *err)
{
	struct hb_error ignored = {"", ""};
	struct reader r = {.file = file,
			   .at = text,
			   .end = text + len,
			   .handler = handler,
			   .arg = arg,
			   .err = err != NULL ? err : &ignored};
	int rc;

	/* Debian builds inih with its options as variables. Even were they not honoured, next_line
	 * refuses what they are about, except for inline comments, which the tests watch. */
	ini_use_stack = false;
	ini_initial_alloc = HB_INI_LINE_MAX + 4;
	ini_allow_multiline = false;
	ini_allow_inline_comments = false;
	ini_allow_bom = false;
	ini_allow_no_value = false;
	if (len > HB_INI_FILE_MAX)
		return hb_fail(err, "ini_malformed", "%s: the file is over %d bytes", file,
			       HB_INI_FILE_MAX);
	rc = ini_parse_stream(next_line, &r, on_pair, &r);
	if (r.failed)
		return -1;
	if (rc != 0)
		return hb_fail(err, "ini_malformed", "%s:%d: the line can't be read", file, rc);
	return 0;
}
