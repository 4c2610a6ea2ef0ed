/* The same steps as /prepare, in the same order, with nobody asked; see explain.h. */
#include "policy/explain.h"

#include "common/fields.h"
#include "common/json.h"
#include "policy/floor.h"
#include "policy/operation.h"
#include "policy/summary.h"

struct question {
	const char *feature;
	json_t *request;
};

static json_t *check_request(const struct question *q, struct hb_error *err)
{
	if (!hb_operation_is_sealed(q->feature, q->request))
		return hb_operation_validate(q->feature, q->request, err);
	if (hb_operation_check_sealed(q->feature, q->request, err) < 0)
		return NULL;
	return json_incref(q->request);
}

static json_t *answer(const char *feature, json_t *request, struct hb_error *err)
{
	struct hb_buf summary = HB_BUF_INIT;
	json_t *warnings = NULL, *out = NULL;
	char digest[HB_HEX256];

	if (hb_operation_digest(feature, request, digest, err) < 0 ||
	    hb_summary(feature, request, &summary, &warnings, err) < 0)
		goto out;
	out = json_pack("{s:O, s:s, s:s, s:o}", "request", request, "digest", digest, "summary",
			summary.data, "warnings", warnings);
	if (!out)
		hb_fail(err, "bad_json", "the explanation can't be written as JSON");
out:
	hb_buf_free(&summary);
	return out;
}

json_t *hb_explain(const char *text, size_t len, const struct hb_bounds *bounds,
		   struct hb_error *err)
{
	static const struct hb_field fields[] = {
		{"feature", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct question, feature), 1,
		 32},
		{"request", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, offsetof(struct question, request),
		 0, 0},
	};
	struct question q = {0};
	json_t *body = hb_json_parse(text, len, err), *request = NULL, *out = NULL;

	if (!body ||
	    hb_fields_decode(body, fields, sizeof(fields) / sizeof(fields[0]), &q, err) < 0)
		goto out;
	request = check_request(&q, err);
	if (!request)
		goto out;
	if (hb_floor_check(q.feature, request, err) < 0)
		goto out;
	if (bounds && hb_bounds_check(bounds, q.feature, request, err) < 0)
		goto out;
	out = answer(q.feature, request, err);
out:
	json_decref(request);
	json_decref(body);
	return out;
}
