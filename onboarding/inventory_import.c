/*
 * Files that people wrote, read whole or not at all. A file may hold anything, also what must never
 * be shown: messages say the line and the field, and repeat nothing of the file but names that have
 * been judged.
 *
 * JSON:
 * {"connections":[{"name":..,"service":..,"identity":..,"owner":..,"scopes":[..],"query":..,"review_by":..},
 * ..]} CSV (RFC 4180): a header with these names in any order, scopes separated by blanks, one line
 * a record. What a check found out is no field of either: it can't be imported.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fields.h"
#include "common/json.h"
#include "common/utf8.h"
#include "onboarding/credential.h"
#include "onboarding/inventory.h"

#define COLUMNS 7
#define CELL_MAX (HB_SCOPES_MAX * (HB_SCOPE_MAX + 1)) /* bytes of all scopes, with blanks */

/* In the order of enum hb_connection_field, then scopes. */
static const char *const names[COLUMNS] = {"name",  "service",	 "identity", "owner",
					   "query", "review_by", "scopes"};

static int at_line(int line, struct hb_error *err)
{
	return hb_fail_prefix(err, "line %d", line);
}

static int line_of(const char *text, const char *p)
{
	int line = 1;

	for (; text < p; text++)
		line += *text == '\n';
	return line;
}

static int check_bytes(const char *text, size_t len, struct hb_error *err)
{
	const char *p = text, *end = text + len;

	if (len > HB_IMPORT_MAX)
		return hb_fail(err, "too_large", "the file has more than %u bytes", HB_IMPORT_MAX);
	while (p < end) {
		const char *before = p;

		if (hb_utf8_next(&p, end) == HB_UTF8_BAD || !*before) {
			hb_fail(err, "bad_text",
				*before ? "the text is not valid UTF-8"
					: "the text holds a NUL byte");
			return at_line(line_of(text, before), err);
		}
	}
	return 0;
}

/* Into the list; a name stands there once. */
static int take(struct hb_inventory *out, struct hb_connection *c, int line, struct hb_error *err)
{
	const struct hb_connection *other;

	c->line = line;
	if (hb_connection_complete(c, err) < 0)
		return at_line(line, err);
	if ((other = hb_inventory_find(out, c->name))) {
		hb_fail(err, "duplicate_name", "the name %s stands in line %d already", c->name,
			other->line);
		return at_line(line, err);
	}
	return hb_inventory_add(out, c, err) < 0 ? at_line(line, err) : 0;
}

/* --- JSON --- */

struct raw {
	const char *fields[6];
	json_t *scopes;
};

#define TEXT(i, name)                                                                              \
	{                                                                                          \
		name, HB_FIELD_TEXT, HB_FIELD_REQUIRED,                                            \
			offsetof(struct raw, fields) + (i) * sizeof(char *), 0, 1 << 20            \
	}
static const struct hb_field fields[COLUMNS] = {
	TEXT(0, "name"),
	TEXT(1, "service"),
	TEXT(2, "identity"),
	TEXT(3, "owner"),
	TEXT(4, "query"),
	TEXT(5, "review_by"),
	{"scopes", HB_FIELD_ARRAY, HB_FIELD_REQUIRED, offsetof(struct raw, scopes), 0,
	 HB_SCOPES_MAX},
};

/* Before hb_fields_decode, whose message would have the name of a field that it doesn't know. */
static int known_fields(const json_t *object, struct hb_error *err)
{
	const char *key;
	json_t *value;

	if (!json_is_object(object))
		return hb_fail(err, "bad_type", "a connection must be an object");
	json_object_foreach((json_t *)object, key, value) {
		size_t i = 0;

		while (i < COLUMNS && strcmp(names[i], key) != 0)
			i++;
		if (i == COLUMNS)
			return hb_fail(err, "unknown_field",
				       "a connection has a field that is none of name, service, "
				       "identity, owner, scopes, query and "
				       "review_by");
	}
	return 0;
}

static int read_object(const json_t *object, struct hb_connection *c, struct hb_error *err)
{
	struct raw r = {0};
	json_t *scope;
	size_t i;

	if (known_fields(object, err) < 0 || hb_fields_decode(object, fields, COLUMNS, &r, err) < 0)
		return -1;
	for (i = 0; i < 6; i++)
		if (hb_connection_set(c, (enum hb_connection_field)i, r.fields[i], err) < 0)
			return -1;
	json_array_foreach(r.scopes, i, scope) {
		if (!json_is_string(scope))
			return hb_fail(err, "bad_type", "each of scopes must be a text");
		if (hb_connection_add_scope(c, json_string_value(scope), err) < 0)
			return -1;
	}
	return 0;
}

/* The line in which the next object of the array begins: the third bracket deep. The text has been
 * parsed. *at is 0, or just behind the brace that began the object before. */
static int next_object(const char *text, size_t len, size_t *at, int *line)
{
	int depth = *at ? 3 : 0;
	bool quoted = false;
	size_t i = *at;

	for (; i < len; i++) {
		*line += text[i] == '\n';
		if (quoted && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			quoted = !quoted;
		else if (quoted)
			continue;
		else if (text[i] == '{' || text[i] == '[') {
			if (++depth == 3) {
				*at = i + 1;
				return *line;
			}
		} else if (text[i] == '}' || text[i] == ']')
			depth--;
	}
	return *line;
}

int hb_inventory_read_json(const char *text, size_t len, struct hb_inventory *out,
			   struct hb_error *err)
{
	struct hb_inventory list = {0};
	json_t *all = NULL, *items, *item;
	struct hb_error why = {0};
	int line = 1, rc = -1;
	size_t i, at = 0;

	if (check_bytes(text, len, err) < 0)
		return -1;
	all = hb_json_parse(text, len, &why); /* its messages have the position alone */
	if (!all)
		return hb_fail(err, why.code, "%s", why.message);
	items = json_object_get(all, "connections");
	if (!json_is_array(items) || json_object_size(all) != 1) {
		hb_fail(err, "bad_json",
			"line 1: the file must be {\"connections\": [...]} and nothing else");
		goto out;
	}
	json_array_foreach(items, i, item) {
		struct hb_connection c = {0};
		int begins = json_is_object(item) ? next_object(text, len, &at, &line) : line;

		rc = read_object(item, &c, err) < 0 ? at_line(begins, err)
						    : take(&list, &c, begins, err);
		hb_connection_free(&c);
		if (rc < 0)
			goto out;
	}
	*out = list;
	list = (struct hb_inventory){0};
	rc = 0;
out:
	json_decref(all);
	hb_inventory_free(&list);
	return rc;
}

/* --- CSV --- */

struct csv {
	const char *p, *end;
	int line;
	struct hb_buf cell;
};

enum csv_end { CSV_CELL, CSV_LINE, CSV_BAD };

static bool at_line_end(const struct csv *c)
{
	return c->p >= c->end || *c->p == '\n' ||
	       (*c->p == '\r' && (c->p + 1 >= c->end || c->p[1] == '\n'));
}

/* One cell into c->cell; what ended it is consumed. */
static enum csv_end next_cell(struct csv *c, struct hb_error *err)
{
	hb_buf_clear(&c->cell);
	hb_buf_add(&c->cell, "", 0);
	if (c->p < c->end && *c->p == '"') {
		for (c->p++;; c->p++) {
			if (c->p >= c->end || *c->p == '\n' || *c->p == '\r') {
				hb_fail(err, "bad_csv", "a quoted cell does not end on its line");
				return CSV_BAD;
			}
			if (*c->p == '"' && (c->p + 1 >= c->end || *++c->p != '"'))
				break;
			hb_buf_addc(&c->cell, *c->p);
		}
		if (c->p < c->end && *c->p == '"')
			c->p++;
	} else
		for (; !at_line_end(c) && *c->p != ','; c->p++) {
			if (*c->p == '"' || *c->p == '\r') {
				hb_fail(err, "bad_csv",
					"a quote stands inside of a cell that does not begin with "
					"one");
				return CSV_BAD;
			}
			hb_buf_addc(&c->cell, *c->p);
		}
	if (at_line_end(c)) {
		c->p += c->p < c->end && *c->p == '\r';
		c->p += c->p < c->end;
		return CSV_LINE;
	}
	if (*c->p++ == ',')
		return CSV_CELL;
	hb_fail(err, "bad_csv", "something stands behind the closing quote of a cell");
	return CSV_BAD;
}

/* Which field each column is. */
static int read_header(struct csv *c, size_t columns[COLUMNS], struct hb_error *err)
{
	unsigned seen = 0;
	enum csv_end end = CSV_CELL;

	for (size_t n = 0; end == CSV_CELL; n++) {
		size_t i = 0;

		if ((end = next_cell(c, err)) == CSV_BAD)
			return -1;
		while (i < COLUMNS && (!c->cell.data || strcmp(names[i], c->cell.data) != 0))
			i++;
		if (n >= COLUMNS || i == COLUMNS || (seen & 1u << i))
			return hb_fail(err, "unknown_field",
				       "column %zu of the header is none of name, service, "
				       "identity, owner, scopes, query and "
				       "review_by, or stands there twice",
				       n + 1);
		seen |= 1u << i;
		columns[n] = i;
	}
	return seen == (1u << COLUMNS) - 1 ? 0
					   : hb_fail(err, "missing_field",
						     "the header must have name, service, "
						     "identity, owner, scopes, query, review_by");
}

static int take_cell(struct hb_connection *c, size_t field, char *text, struct hb_error *err)
{
	char *save = NULL;

	if (field < 6)
		return hb_connection_set(c, (enum hb_connection_field)field, text, err);
	if (strlen(text) > CELL_MAX)
		return hb_fail(err, "too_many", "scopes has more than %d", HB_SCOPES_MAX);
	/* Whole: taken apart at its blanks, "Bearer x" would be two harmless words. */
	if (hb_credential_refuse("scopes", text, err) < 0)
		return -1;
	for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
		if (hb_connection_add_scope(c, word, err) < 0)
			return -1;
	return 0;
}

static int read_row(struct csv *csv, const size_t columns[COLUMNS], struct hb_connection *c,
		    struct hb_error *err)
{
	enum csv_end end = CSV_CELL;

	for (size_t n = 0; n < COLUMNS; n++) {
		if (end == CSV_LINE)
			return hb_fail(err, "bad_csv", "it has %zu cells instead of %d", n,
				       COLUMNS);
		if ((end = next_cell(csv, err)) == CSV_BAD ||
		    take_cell(c, columns[n], csv->cell.data ? csv->cell.data : (char[]){""}, err) <
			    0)
			return -1;
	}
	return end == CSV_LINE ? 0 : hb_fail(err, "bad_csv", "it has more than %d cells", COLUMNS);
}

int hb_inventory_read_csv(const char *text, size_t len, struct hb_inventory *out,
			  struct hb_error *err)
{
	struct csv csv = {text, text + len, 1, HB_BUF_INIT};
	struct hb_inventory list = {0};
	size_t columns[COLUMNS] = {0};
	int rc;

	if (check_bytes(text, len, err) < 0)
		return -1;
	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) /* spreadsheets put it there */
		csv.p += 3;
	rc = read_header(&csv, columns, err) < 0 ? at_line(1, err) : 0;
	while (rc == 0 && csv.p < csv.end) {
		struct hb_connection c = {0};

		csv.line++;
		if (at_line_end(&csv)) { /* an empty line, at the end mostly */
			csv.p += *csv.p == '\r' && csv.p + 1 < csv.end;
			csv.p++;
			continue;
		}
		rc = read_row(&csv, columns, &c, err) < 0 ? at_line(csv.line, err)
							  : take(&list, &c, csv.line, err);
		hb_connection_free(&c);
	}
	hb_buf_free(&csv.cell);
	if (rc == 0)
		*out = list;
	else
		hb_inventory_free(&list);
	return rc;
}
