/*
 * Drawing a summary: the few shapes that all features use, so that every summary reads the same.
 * Inside policy/.
 *
 *   name: value            one line, value escaped
 *   name: ["a","b"]        a list, as a JSON array
 *   name:                  text of several lines, each behind "| "
 *   | first line
 *   Consequences           what it will do: "- " for what is always so, "! " for warnings
 *
 * A line that begins in column one with a word and a colon is a field; no value can make one.
 */
#ifndef HB_POLICY_DRAW_H
#define HB_POLICY_DRAW_H

#include <jansson.h>
#include <stdbool.h>

#include "common/buf.h"

struct hb_page {
	struct hb_buf *out;
	struct hb_buf consequences;
	json_t *warnings; /* {code, text} */
	bool sealed;      /* the request carries its sealed fields */
};

/* `text` NULL: "(not given)". Only for texts whose grammar excludes a parenthesis. */
void hb_draw_text(struct hb_page *p, const char *label, const char *text);
/* Text that may be empty or anything: in quotes. NULL: "(sealed at prepare)". */
void hb_draw_quoted(struct hb_page *p, const char *label, const char *text);
/* A field that only sealing fills in; NULL: "(sealed at prepare)". */
void hb_draw_sealed(struct hb_page *p, const char *label, const char *text);
void hb_draw_int(struct hb_page *p, const char *label, long long number, const char *unit);
void hb_draw_bool(struct hb_page *p, const char *label, bool value);
/* Texts; NULL: "(sealed at prepare)". */
void hb_draw_list(struct hb_page *p, const char *label, const json_t *list);
/* Objects, one a line, with the keys in the given order (NULL-terminated); an absent key is left
 * out. */
void hb_draw_objects(struct hb_page *p, const char *label, const json_t *list,
		     const char *const *keys);
void hb_draw_block(struct hb_page *p, const char *label, const char *text);

/* The same from a field of the request, the label being the field's name. */
void hb_draw_field(struct hb_page *p, const json_t *request, const char *name);

/* Values in these must be escaped already (hb_escaped). */
void hb_draw_note(struct hb_page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void hb_draw_warning(struct hb_page *p, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Escaped copy; the caller frees it. */
char *hb_escaped(const char *text);

/* Warnings about letters in any text of the request: several scripts in one word, imitations of
 * ASCII, text from right to left, internationalised host names. */
void hb_draw_look_warnings(struct hb_page *p, const json_t *request);

/* One a feature: its fields, then its consequences. */
void hb_summary_runtime(struct hb_page *p, const json_t *request);
void hb_summary_local(struct hb_page *p, const json_t *request);
void hb_summary_docker(struct hb_page *p, const json_t *request);
void hb_summary_ssh(struct hb_page *p, const json_t *request);
void hb_summary_policy(struct hb_page *p, const json_t *request);

#endif
