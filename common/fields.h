/*
 * Decoding an object into a struct, the same way everywhere: exact fields, types, ranges,
 * nothing left over.  Handlers work on the struct and never touch raw JSON.
 */
#ifndef HB_COMMON_FIELDS_H
#define HB_COMMON_FIELDS_H

#include <jansson.h>
#include <stddef.h>

#include "common/error.h"

enum hb_field_type {
	HB_FIELD_TEXT,   /* const char *, borrowed from the object; length in code points min..max */
	HB_FIELD_INT,    /* long long, min..max */
	HB_FIELD_BOOL,   /* bool */
	HB_FIELD_OBJECT, /* json_t *, borrowed */
	HB_FIELD_ARRAY   /* json_t *, borrowed; element count min..max */
};

#define HB_FIELD_REQUIRED 1u
#define HB_FIELD_HEX64 2u    /* text: exactly 64 lower-case hex digits */
#define HB_FIELD_DECIMAL 4u  /* text: 1..20 decimal digits, no leading zero unless "0" */

struct hb_field {
	const char *name;
	enum hb_field_type type;
	unsigned flags;
	size_t offset; /* into the output struct */
	long long min, max;
};

/* Codes: unknown_field, missing_field, bad_type, out_of_range. The output's fields keep what the
 * caller put there (the default) when an optional field is absent. */
int hb_fields_decode(const json_t *object, const struct hb_field *fields, size_t count, void *out,
		     struct hb_error *err);

/* The text rule of every schema: valid UTF-8, min..max code points, refuses U+0000-0008, 000B, 000C,
 * 000E-001F, 007F. `name` is used in the message. */
int hb_text_check(const char *name, const char *text, size_t min, size_t max, struct hb_error *err);

#endif
