/* Fields, the file, the list (inventory.h). */
#include "onboarding/inventory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fields.h"
#include "common/json.h"
#include "common/utf8.h"
#include "onboarding/credential.h"
#include "onboarding/store.h"
#include "policy/text.h"
#include "policy/unicode.h"

static const char *const validations[] = {"never", "ok", "failed", "paused"};

const char *hb_validation_name(enum hb_validation v)
{
	return validations[v];
}

void hb_connection_clear_scopes(struct hb_connection *c)
{
	free(c->scopes);
	c->scopes = NULL;
	c->scope_count = 0;
}

void hb_connection_free(struct hb_connection *c)
{
	hb_connection_clear_scopes(c);
	*c = (struct hb_connection){0};
}

void hb_connection_copy(struct hb_connection *to, const struct hb_connection *from)
{
	*to = *from;
	to->scopes = NULL;
	if (from->scope_count) {
		to->scopes = hb_calloc(from->scope_count, sizeof *to->scopes);
		memcpy(to->scopes, from->scopes, from->scope_count * sizeof *to->scopes);
	}
}

/* One line of what can be seen: letters, digits and signs, no controls, nothing that changes
 * direction or hides. */
static int plain(const char *field, const char *text, size_t max, struct hb_error *err)
{
	const char *p = text, *end = text + strlen(text);
	size_t count = hb_utf8_count(text, (size_t)(end - text));

	if (count == (size_t)-1)
		return hb_fail(err, "bad_text", "%s is not valid UTF-8", field);
	if (count == 0 || count > max)
		return hb_fail(err, "bad_text", "%s must have 1 to %zu characters", field, max);
	if (*text == ' ' || end[-1] == ' ')
		return hb_fail(err, "bad_text", "%s must not begin or end with a blank", field);
	while (p < end) {
		uint32_t c = hb_utf8_next(&p, end);

		if (!hb_unicode_is_shown(c) && !hb_unicode_is_mark(c))
			return hb_fail(err, "bad_text",
				       "%s must be one line of letters, digits and ASCII signs (no "
				       "control or invisible characters)",
				       field);
	}
	return hb_credential_refuse(field, text, err);
}

int hb_connection_set(struct hb_connection *c, enum hb_connection_field field, const char *value,
		      struct hb_error *err)
{
	switch (field) {
	case HB_C_NAME:
		if (hb_onboarding_name("name", value, err) < 0)
			return -1;
		snprintf(c->name, sizeof c->name, "%s", value);
		return 0;
	case HB_C_SERVICE:
		if (hb_onboarding_name("service", value, err) < 0)
			return -1;
		snprintf(c->service, sizeof c->service, "%s", value);
		return 0;
	case HB_C_OWNER:
		if (hb_onboarding_name("owner", value, err) < 0)
			return -1;
		snprintf(c->owner, sizeof c->owner, "%s", value);
		return 0;
	case HB_C_IDENTITY:
		if (plain("identity", value, HB_IDENTITY_MAX, err) < 0)
			return -1;
		snprintf(c->identity, sizeof c->identity, "%s", value);
		return 0;
	case HB_C_QUERY:
		if (plain("query", value, HB_QUERY_MAX, err) < 0)
			return -1;
		snprintf(c->query, sizeof c->query, "%s", value);
		return 0;
	case HB_C_REVIEW_BY:
		if (hb_onboarding_date("review_by", value, err) < 0)
			return -1;
		snprintf(c->review_by, sizeof c->review_by, "%s", value);
		return 0;
	}
	return hb_fail(err, "internal", "no such field");
}

int hb_connection_add_scope(struct hb_connection *c, const char *scope, struct hb_error *err)
{
	size_t len = strlen(scope);
	char(*more)[HB_SCOPE_MAX + 1], joined[2 * HB_SCOPE_MAX + 2];

	if (len == 0 || len > HB_SCOPE_MAX)
		return hb_fail(err, "bad_text", "each of scopes must have 1 to %d characters",
			       HB_SCOPE_MAX);
	for (size_t i = 0; i < len; i++)
		if (scope[i] < 0x21 || scope[i] > 0x7e)
			return hb_fail(err, "bad_text",
				       "each of scopes must be visible ASCII without blanks");
	/* "Bearer" and what stands behind it, taken apart at the blank: two harmless words. */
	snprintf(joined, sizeof joined, "%s %s", c->scope_count ? c->scopes[c->scope_count - 1] : "",
		 scope);
	if (hb_credential_refuse("scopes", joined, err) < 0)
		return -1;
	for (size_t i = 0; i < c->scope_count; i++)
		if (strcmp(c->scopes[i], scope) == 0)
			return hb_fail(err, "bad_text", "scopes has the same one twice");
	if (c->scope_count >= HB_SCOPES_MAX)
		return hb_fail(err, "too_many", "scopes has more than %d", HB_SCOPES_MAX);
	more = hb_calloc(c->scope_count + 1, sizeof *more);
	if (c->scope_count)
		memcpy(more, c->scopes, c->scope_count * sizeof *more);
	memcpy(more[c->scope_count], scope, len + 1);
	free(c->scopes);
	c->scopes = more;
	c->scope_count++;
	return 0;
}

int hb_connection_complete(const struct hb_connection *c, struct hb_error *err)
{
	const struct {
		const char *name, *value;
	} fields[] = {{"name", c->name},   {"service", c->service}, {"identity", c->identity},
		      {"owner", c->owner}, {"query", c->query},	    {"review_by", c->review_by}};

	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
		if (!fields[i].value[0])
			return hb_fail(err, "missing_field", "%s is missing", fields[i].name);
	return 0;
}

void hb_connection_record(struct hb_connection *c, enum hb_validation result, const char *reason,
			  int64_t now)
{
	c->result = result;
	c->checked_at = now;
	snprintf(c->reason, sizeof c->reason, "%s", result == HB_CHECK_OK ? "" : reason);
	if (result == HB_CHECK_OK)
		c->last_validated = now;
}

void hb_connection_unvalidate(struct hb_connection *c)
{
	c->last_validated = c->checked_at = 0;
	c->result = HB_NEVER_CHECKED;
	c->reason[0] = '\0';
}

json_t *hb_connection_to_json(const struct hb_connection *c)
{
	json_t *scopes = json_array();

	for (size_t i = 0; i < c->scope_count; i++)
		json_array_append_new(scopes, json_string(c->scopes[i]));
	return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:s, s:I, s:I, s:s, s:s}", "name", c->name,
			 "service", c->service, "identity", c->identity, "owner", c->owner,
			 "scopes", scopes, "query", c->query, "review_by", c->review_by,
			 "last_validated", (json_int_t)c->last_validated, "checked_at",
			 (json_int_t)c->checked_at, "result", validations[c->result], "reason",
			 c->reason);
}

/* --- the list --- */

void hb_inventory_free(struct hb_inventory *inv)
{
	for (size_t i = 0; i < inv->count; i++)
		hb_connection_free(&inv->items[i]);
	free(inv->items);
	*inv = (struct hb_inventory){0};
}

struct hb_connection *hb_inventory_find(struct hb_inventory *inv, const char *name)
{
	for (size_t i = 0; i < inv->count; i++)
		if (strcmp(inv->items[i].name, name) == 0)
			return &inv->items[i];
	return NULL;
}

int hb_inventory_add(struct hb_inventory *inv, const struct hb_connection *c, struct hb_error *err)
{
	struct hb_connection *more;
	size_t at = 0;

	if (hb_inventory_find(inv, c->name))
		return hb_fail(err, "exists", "there is a connection %s already", c->name);
	if (inv->count >= HB_CONNECTIONS_MAX)
		return hb_fail(err, "too_many", "there are %d connections already",
			       HB_CONNECTIONS_MAX);
	more = hb_calloc(inv->count + 1, sizeof *more);
	while (at < inv->count && strcmp(inv->items[at].name, c->name) < 0)
		at++;
	if (inv->count) {
		memcpy(more, inv->items, at * sizeof *more);
		memcpy(more + at + 1, inv->items + at, (inv->count - at) * sizeof *more);
	}
	hb_connection_copy(&more[at], c);
	free(inv->items);
	inv->items = more;
	inv->count++;
	return 0;
}

void hb_inventory_drop(struct hb_inventory *inv, struct hb_connection *c)
{
	size_t at = (size_t)(c - inv->items);

	hb_connection_free(c);
	memmove(c, c + 1, (inv->count - at - 1) * sizeof *c);
	inv->count--;
}

/* --- the file --- */

struct raw {
	const char *name, *service, *identity, *owner, *query, *review_by, *result, *reason;
	json_t *scopes;
	long long last_validated, checked_at;
};

#define TEXT(member, max)                                                                          \
	{                                                                                          \
#member, HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct raw, member), 0, max    \
	}
static const struct hb_field stored[] = {
	TEXT(name, 4096),
	TEXT(service, 4096),
	TEXT(identity, 4096),
	TEXT(owner, 4096),
	TEXT(query, 4096),
	TEXT(review_by, 4096),
	TEXT(result, 16),
	TEXT(reason, HB_ERROR_CODE_MAX - 1),
	{"scopes", HB_FIELD_ARRAY, HB_FIELD_REQUIRED, offsetof(struct raw, scopes), 0,
	 HB_SCOPES_MAX},
	{"last_validated", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct raw, last_validated), 0,
	 HB_JSON_INT_MAX},
	{"checked_at", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct raw, checked_at), 0,
	 HB_JSON_INT_MAX},
};

static bool is_code(const char *text)
{
	return strspn(text, HB_SET_LOWER HB_SET_DIGIT "_") == strlen(text);
}

static int decode(const json_t *item, struct hb_connection *c, struct hb_error *err)
{
	struct raw r = {0};
	json_t *scope;
	size_t i, v = 0;

	if (hb_fields_decode(item, stored, sizeof stored / sizeof stored[0], &r, NULL) < 0)
		return hb_fail(err, "bad_inventory",
			       "a connection does not have the fields it must have");
	if (hb_connection_set(c, HB_C_NAME, r.name, err) < 0 ||
	    hb_connection_set(c, HB_C_SERVICE, r.service, err) < 0 ||
	    hb_connection_set(c, HB_C_IDENTITY, r.identity, err) < 0 ||
	    hb_connection_set(c, HB_C_OWNER, r.owner, err) < 0 ||
	    hb_connection_set(c, HB_C_QUERY, r.query, err) < 0 ||
	    hb_connection_set(c, HB_C_REVIEW_BY, r.review_by, err) < 0)
		return -1;
	json_array_foreach(r.scopes, i, scope)
		if (!json_is_string(scope) ||
		    hb_connection_add_scope(c, json_string_value(scope), err) < 0)
			return json_is_string(scope)
				       ? -1
				       : hb_fail(err, "bad_inventory", "scopes must be texts");
	while (v < 4 && strcmp(validations[v], r.result) != 0)
		v++;
	if (v == 4 || !is_code(r.reason) ||
	    (v == HB_CHECK_OK && r.last_validated != r.checked_at) ||
	    (v == HB_NEVER_CHECKED) != (r.checked_at == 0) || r.last_validated > r.checked_at)
		return hb_fail(err, "bad_inventory",
			       "result, reason and times of a connection don't fit together");
	c->result = (enum hb_validation)v;
	c->last_validated = r.last_validated;
	c->checked_at = r.checked_at;
	snprintf(c->reason, sizeof c->reason, "%s", r.reason);
	return 0;
}

static int decode_gateway(const json_t *gateway, struct hb_inventory *inv, struct hb_error *err)
{
	struct gateway {
		const char *address;
		long long seen;
	} g = {0};
	static const struct hb_field fields[] = {
		{"address", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct gateway, address), 0,
		 HB_GATEWAY_MAX},
		{"seen", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct gateway, seen), 0,
		 HB_JSON_INT_MAX},
	};

	if (hb_fields_decode(gateway, fields, 2, &g, NULL) < 0 ||
	    strlen(g.address) > HB_GATEWAY_MAX)
		return hb_fail(err, "bad_inventory",
			       "gateway does not have the shape it must have");
	if (g.address[0] && plain("gateway", g.address, HB_GATEWAY_MAX, err) < 0)
		return -1;
	snprintf(inv->gateway, sizeof inv->gateway, "%s", g.address);
	inv->gateway_seen = g.seen;
	return 0;
}

static int decode_all(const json_t *all, struct hb_inventory *inv, struct hb_error *err)
{
	struct file {
		long long version, generation;
		json_t *gateway, *connections;
	} f = {0};
	static const struct hb_field fields[] = {
		{"version", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct file, version), 1, 1},
		{"generation", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct file, generation),
		 1, HB_JSON_INT_MAX},
		{"gateway", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, offsetof(struct file, gateway), 0,
		 0},
		{"connections", HB_FIELD_ARRAY, HB_FIELD_REQUIRED,
		 offsetof(struct file, connections), 0, HB_CONNECTIONS_MAX},
	};
	const json_t *item;
	size_t i;

	if (hb_fields_decode(all, fields, 4, &f, NULL) < 0)
		return hb_fail(err, "bad_inventory", "it does not have the shape it must have");
	inv->generation = f.generation;
	if (decode_gateway(f.gateway, inv, err) < 0)
		return -1;
	json_array_foreach(f.connections, i, item) {
		struct hb_connection c = {0};
		int rc = decode(item, &c, err);

		if (rc == 0)
			rc = hb_inventory_add(inv, &c, err);
		hb_connection_free(&c);
		if (rc < 0)
			return hb_fail_prefix(err, "connection %zu", i + 1);
	}
	return 0;
}

int hb_inventory_load(struct hb_inventory *out, struct hb_error *err)
{
	struct hb_inventory inv = {0};
	json_t *all = NULL;

	if (hb_onboarding_load(HB_INVENTORY_FILE, HB_INVENTORY_FILE_MAX, &all, err) < 0)
		return -1;
	if (all && decode_all(all, &inv, err) < 0) {
		json_decref(all);
		hb_inventory_free(&inv);
		return hb_fail_prefix(err, "%s can't be used; put a backup of it back",
				      HB_INVENTORY_FILE);
	}
	json_decref(all);
	*out = inv;
	return 0;
}

int hb_inventory_save(struct hb_inventory *inv, struct hb_error *err)
{
	json_t *list = json_array(), *all;
	int rc;

	for (size_t i = 0; i < inv->count; i++)
		json_array_append_new(list, hb_connection_to_json(&inv->items[i]));
	all = json_pack("{s:i, s:I, s:{s:s, s:I}, s:o}", "version", 1, "generation",
			(json_int_t)inv->generation + 1, "gateway", "address", inv->gateway, "seen",
			(json_int_t)inv->gateway_seen, "connections", list);
	if (!all)
		return hb_fail(err, "bad_text", "the inventory holds text that is not UTF-8");
	rc = hb_onboarding_save(HB_INVENTORY_FILE, all, err);
	inv->generation += rc == 0;
	json_decref(all);
	return rc;
}
