/*
 * How the schemas are written down: tables of rules, a line a field, so that what may be asked can
 * be read at a glance. One walker (schema.c) applies them; it gives back a new object that holds
 * exactly the known fields with every default filled in, or refuses.
 *
 * Inside policy/ only; others use operation.h.
 */
#ifndef HB_POLICY_SCHEMA_H
#define HB_POLICY_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

enum hb_rule_kind {
	HB_RULE_TEXT, /* min..max code points, the text rule of common/fields.h */
	HB_RULE_WORD, /* one of `words` */
	HB_RULE_INT,  /* min..max */
	HB_RULE_BOOL,
	HB_RULE_LIST,   /* min..max texts of at most item_max code points */
	HB_RULE_OBJECT, /* `fields` */
	HB_RULE_OBJECTS /* a list of min..max such objects */
};

#define HB_RULE_REQUIRED 1u
#define HB_RULE_OPTIONAL 2u   /* stays absent when absent */
#define HB_RULE_EMPTY_ITEM 4u /* LIST: an item may be "" */

/* False when the text isn't right. */
typedef bool (*hb_rule_check)(const char *text);

struct hb_rule {
	const char *name;
	enum hb_rule_kind kind;
	unsigned flags;
	long long min, max, item_max;
	long long number;             /* default of INT and BOOL */
	const char *text;             /* default of TEXT and WORD; of LIST: its one item */
	const char *(*text_fn)(void); /* the same when it depends on the machine */
	const char *words;            /* separated by blanks */
	hb_rule_check check;          /* TEXT, or each item of LIST */
	const char *must;             /* what check wants, for the message: "must be <must>" */
	const char *code;             /* error code when check fails; default bad_<name> */
	const struct hb_rule *fields;
	size_t field_count;
};

/* `where` is put before field names in messages ("mounts[2]."), "" at the top. Codes:
 * unknown_field, missing_field, bad_type, out_of_range, bad_<name>. */
json_t *hb_rules_apply(const struct hb_rule *rules, size_t count, const json_t *object,
		       const char *where, struct hb_error *err);

#define HB_COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct hb_schema_action {
	const char *name;
	const struct hb_rule *rules;
	size_t count;
	const struct hb_rule *sealed; /* fields that only sealing can fill in; all required */
	size_t sealed_count;
};

struct hb_schema {
	const char *feature;
	const char *verb; /* feature with one action: its name, and the request has no "action" */
	const struct hb_schema_action *actions;
	size_t action_count;
	/* Defaults that depend on another field; may be NULL. */
	void (*fill)(json_t *validated);
	/* Rules between fields; may be NULL. */
	int (*check)(const json_t *validated, struct hb_error *err);
	int (*check_sealed)(const json_t *sealed, struct hb_error *err);
};

extern const struct hb_schema hb_schema_runtime, hb_schema_local, hb_schema_docker, hb_schema_ssh,
	hb_schema_policy;

/* NULL when there is none. */
const struct hb_schema *hb_schema_find(const char *feature);
const struct hb_schema_action *hb_schema_action(const struct hb_schema *s, const json_t *request);

/* Rules that more than one schema has. */
#define HB_RULE_TIMEOUT(limit, usual) \
	{ \
		"timeout", HB_RULE_INT, .min = 1, .max = (limit), .number = (usual) \
	}
#define HB_TIMEOUT 120
#define HB_TIMEOUT_MAX 900

#endif
