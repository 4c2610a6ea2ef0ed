/*
 * Operations over the four schemas: validated form, sealed form, digest. What each feature may ask
 * for stands in its own schema_*.c; this file only knows how the two forms relate.
 */
#include "policy/operation.h"

#include <string.h>

#include "common/json.h"
#include "policy/live.h"
#include "policy/schema.h"
#include "policy/text.h"

static const struct hb_schema *const schemas[] = {&hb_schema_runtime, &hb_schema_local,
						  &hb_schema_docker, &hb_schema_ssh,
						  &hb_schema_policy};

const char *hb_feature_canonical(const char *name)
{
	return hb_feature_name(hb_feature_bit(name));
}

const struct hb_schema *hb_schema_find(const char *feature)
{
	const char *name = hb_feature_canonical(feature);

	for (size_t i = 0; name && i < HB_COUNT(schemas); i++) {
		if (strcmp(schemas[i]->feature, name) == 0)
			return schemas[i];
	}
	return NULL;
}

const struct hb_schema_action *hb_schema_action(const struct hb_schema *s, const json_t *request)
{
	const char *name = s->verb ? s->verb : hb_json_text(request, "action", "");

	for (size_t i = 0; i < s->action_count; i++) {
		if (strcmp(s->actions[i].name, name) == 0)
			return &s->actions[i];
	}
	return NULL;
}

static const struct hb_schema_action *find_action(const char *feature, const json_t *request,
						  const struct hb_schema **schema,
						  struct hb_error *err)
{
	char shown[33];

	*schema = hb_schema_find(feature);
	if (!*schema) {
		hb_show(feature, shown, sizeof(shown));
		hb_fail(err, "unknown_feature",
			"unknown feature '%s'; known are runtime, local, docker and ssh", shown);
		return NULL;
	}
	if (!json_is_object(request)) {
		hb_fail(err, "bad_type", "the request must be an object");
		return NULL;
	}
	if (!(*schema)->verb && !json_object_get(request, "action")) {
		hb_fail(err, "missing_field", "field 'action' is missing");
		return NULL;
	}
	const struct hb_schema_action *action = hb_schema_action(*schema, request);
	if (!action) {
		hb_show(hb_json_text(request, "action", "(not text)"), shown, sizeof(shown));
		hb_fail(err, "bad_action", "unknown action '%s' of feature '%s'", shown,
			(*schema)->feature);
	}
	return action;
}

static json_t *validate(const struct hb_schema *s, const struct hb_schema_action *a,
			const json_t *request, struct hb_error *err)
{
	json_t *out = hb_rules_apply(a->rules, a->count, request, "", err);

	if (out && s->fill)
		s->fill(out);
	if (out && s->check && s->check(out, err) < 0) {
		json_decref(out);
		return NULL;
	}
	return out;
}

json_t *hb_operation_validate(const char *feature, const json_t *request, struct hb_error *err)
{
	const struct hb_schema *s;
	const struct hb_schema_action *a = find_action(feature, request, &s, err);

	return a ? validate(s, a, request, err) : NULL;
}

int hb_operation_is_sealed(const char *feature, const json_t *request)
{
	const struct hb_schema *s;
	const struct hb_schema_action *a = find_action(feature, request, &s, NULL);

	for (size_t i = 0; a && i < a->sealed_count; i++) {
		if (json_object_get(request, a->sealed[i].name))
			return 1;
	}
	return 0;
}

/* Split into the validated part and the sealed fields (new references). */
static void split(const struct hb_schema_action *a, const json_t *request, json_t **plain,
		  json_t **sealed)
{
	*plain = json_copy((json_t *)request);
	*sealed = json_object();
	for (size_t i = 0; i < a->sealed_count; i++) {
		json_t *value = json_object_get(request, a->sealed[i].name);

		if (value)
			json_object_set(*sealed, a->sealed[i].name, value);
		json_object_del(*plain, a->sealed[i].name);
	}
}

json_t *hb_operation_unsealed(const char *feature, const json_t *request)
{
	const struct hb_schema *s;
	const struct hb_schema_action *a = find_action(feature, request, &s, NULL);
	json_t *plain, *sealed;

	if (!a)
		return NULL;
	split(a, request, &plain, &sealed);
	json_decref(sealed);
	return plain;
}

int hb_operation_check_sealed(const char *feature, const json_t *request, struct hb_error *err)
{
	const struct hb_schema *s;
	const struct hb_schema_action *a = find_action(feature, request, &s, err);
	json_t *plain = NULL, *sealed = NULL, *valid = NULL, *exact = NULL;
	int rc = -1;

	if (!a)
		return -1;
	split(a, request, &plain, &sealed);
	for (size_t i = 0; i < a->sealed_count; i++) {
		if (!json_object_get(sealed, a->sealed[i].name)) {
			hb_fail(err, "not_sealed",
				"field '%s' is missing: the operation was not sealed by its "
				"executor",
				a->sealed[i].name);
			goto out;
		}
	}
	valid = validate(s, a, plain, err);
	if (!valid)
		goto out;
	/* Exactly the validated form: nothing that a default would still have to fill in. */
	if (!json_equal(valid, plain)) {
		hb_fail(err, "not_sealed",
			"a sealed operation must carry every field; prepare it anew");
		goto out;
	}
	exact = hb_rules_apply(a->sealed, a->sealed_count, sealed, "", err);
	if (!exact)
		goto out;
	if (!json_equal(exact, sealed)) {
		hb_fail(err, "not_sealed",
			"a sealed field is incomplete; prepare the operation anew");
		goto out;
	}
	if (s->check_sealed && s->check_sealed(request, err) < 0)
		goto out;
	rc = 0;
out:
	json_decref(plain);
	json_decref(sealed);
	json_decref(valid);
	json_decref(exact);
	return rc;
}

int hb_operation_digest(const char *feature, const json_t *request, char hex[HB_HEX256],
			struct hb_error *err)
{
	const char *name = hb_feature_canonical(feature);

	if (!name)
		return hb_fail(err, "unknown_feature",
			       "an operation of an unknown feature has no digest");
	json_t *operation = json_pack("{s:s, s:O}", "feature", name, "request", (json_t *)request);
	if (!operation)
		return hb_fail(err, "bad_json", "the request can't be put into canonical form");
	int rc = hb_json_digest(operation, hex, err);
	json_decref(operation);
	return rc;
}

const char *hb_operation_action(const char *feature, const json_t *request)
{
	const struct hb_schema *s = hb_schema_find(feature);
	const struct hb_schema_action *a = s ? hb_schema_action(s, request) : NULL;

	return a ? a->name : "";
}

int hb_operation_timeout(const char *feature, const json_t *request)
{
	(void)feature;
	return (int)hb_json_int(request, "timeout", HB_TIMEOUT);
}
