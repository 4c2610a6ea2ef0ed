/* Grants: to and from JSON with exact fields, signed and opened as envelopes, compared with what is
 * expected. */
#include "common/grant.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fields.h"
#include "common/json.h"

#define SIGNED_PREFIX "hermes-grant-v1" /* and its NUL */

json_t *
hb_grant_to_json(const struct hb_grant *g)
{
	json_t *users = json_array(), *o;
	size_t i;

	for (i = 0; i < g->user_count && i < HB_GRANT_USERS_MAX; i++)
		json_array_append_new(users, json_string(g->user_ids[i]));
	o = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:s, s:I, s:s, s:I, "
		      "s:I, s:I, s:s}",
		      "v", 1, "grant_id", g->grant_id, "audience", g->audience, "capability",
		      g->capability, "operation_id", g->operation_id, "target", g->target,
		      "feature", g->feature, "action", g->action, "digest", g->digest,
		      "summary_digest", g->summary_digest, "user_ids", users, "session", g->session,
		      "generation", (json_int_t)g->generation, "decision",
		      g->approved ? "approved" : "denied", "issued_at", (json_int_t)g->issued_at,
		      "not_before", (json_int_t)g->not_before, "expires_at",
		      (json_int_t)g->expires_at, "key_id", g->key_id);
	if (o != NULL && g->tree_digest[0] != '\0')
		json_object_set_new(o, "tree_digest", json_string(g->tree_digest));
	if (o != NULL && g->requested_by[0] != '\0')
		json_object_set_new(o, "requested_by", json_string(g->requested_by));
	return o;
}

/* The fields as JSON holds them, borrowed, before they are copied. */
struct raw_grant {
	long long v, generation, issued_at, not_before, expires_at;
	const char *grant_id, *audience, *capability, *operation_id, *target, *feature, *action,
		*digest, *summary_digest, *tree_digest, *requested_by, *session, *decision, *key_id;
	json_t *user_ids;
};

#define TEXT(field, flags, min, max)                                                               \
	{                                                                                          \
#field, HB_FIELD_TEXT, flags, offsetof(struct raw_grant, field), min, max          \
	}
#define INT(field, min)                                                                            \
	{                                                                                          \
#field, HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct raw_grant, field), min,   \
			HB_JSON_INT_MAX                                                            \
	}

static const struct hb_field grant_fields[] = {
	{"v", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct raw_grant, v), 1, 1},
	TEXT(grant_id, HB_FIELD_REQUIRED | HB_FIELD_HEX64, 0, 0),
	TEXT(audience, HB_FIELD_REQUIRED, 32, 32),
	TEXT(capability, HB_FIELD_REQUIRED | HB_FIELD_HEX64, 0, 0),
	TEXT(operation_id, HB_FIELD_REQUIRED, 32, 32),
	TEXT(target, HB_FIELD_REQUIRED, 1, 23),
	TEXT(feature, HB_FIELD_REQUIRED, 1, 15),
	TEXT(action, HB_FIELD_REQUIRED, 1, 23),
	TEXT(digest, HB_FIELD_REQUIRED | HB_FIELD_HEX64, 0, 0),
	TEXT(summary_digest, HB_FIELD_REQUIRED | HB_FIELD_HEX64, 0, 0),
	TEXT(tree_digest, HB_FIELD_HEX64, 0, 0),
	TEXT(requested_by, HB_FIELD_DECIMAL, 0, 0),
	{"user_ids", HB_FIELD_ARRAY, HB_FIELD_REQUIRED, offsetof(struct raw_grant, user_ids), 1,
	 HB_GRANT_USERS_MAX},
	TEXT(session, HB_FIELD_REQUIRED, 1, 127),
	INT(generation, 0),
	TEXT(decision, HB_FIELD_REQUIRED, 6, 8),
	INT(issued_at, 0),
	INT(not_before, 0),
	INT(expires_at, 0),
	TEXT(key_id, HB_FIELD_REQUIRED, 16, 16),
};

static bool
is_hex(const char *text)
{
	return text[strspn(text, "0123456789abcdef")] == '\0';
}

/* The decoder counts characters; what is copied is bytes. */
static int
copy(char *out, size_t size, const char *name, const char *text, struct hb_error *err)
{
	if (strlen(text) >= size)
		return hb_fail(err, "out_of_range", "%s is over %zu bytes", name, size - 1);
	memcpy(out, text, strlen(text) + 1);
	return 0;
}

static int
copy_users(struct hb_grant *g, const json_t *users, struct hb_error *err)
{
	struct one {
		const char *user;
	} one = {NULL};
	const struct hb_field field = {"user_ids",
				       HB_FIELD_TEXT,
				       HB_FIELD_REQUIRED | HB_FIELD_DECIMAL,
				       offsetof(struct one, user),
				       0,
				       0};
	json_t *item, *wrapped;
	size_t i, j;
	int rc;

	json_array_foreach (users, i, item) {
		wrapped = json_pack("{s:O}", "user_ids", item);
		rc = hb_fields_decode(wrapped, &field, 1, &one, err);
		if (rc == 0)
			rc = copy(g->user_ids[i], sizeof(g->user_ids[i]), "user_ids", one.user,
				  err);
		json_decref(wrapped);
		if (rc != 0)
			return -1;
		for (j = 0; j < i; j++)
			if (strcmp(g->user_ids[j], g->user_ids[i]) == 0)
				return hb_fail(err, "out_of_range", "user_ids names %s twice",
					       g->user_ids[i]);
		g->user_count = i + 1;
	}
	return 0;
}

static int
check_raw(const struct raw_grant *r, struct hb_error *err)
{
	if (!is_hex(r->audience) || !is_hex(r->operation_id) || !is_hex(r->key_id))
		return hb_fail(err, "out_of_range",
			       "audience, operation_id and key_id must be lower-case hex");
	if (strcmp(r->decision, "approved") != 0 && strcmp(r->decision, "denied") != 0)
		return hb_fail(err, "out_of_range", "decision must be approved or denied");
	if (r->not_before > r->expires_at || r->issued_at > r->expires_at)
		return hb_fail(err, "out_of_range", "the times contradict each other");
	return 0;
}

int
hb_grant_from_json(const json_t *object, struct hb_grant *out, struct hb_error *err)
{
	struct raw_grant r = {.tree_digest = "", .requested_by = ""};
	struct hb_grant g = {0};

	if (hb_fields_decode(object, grant_fields, sizeof(grant_fields) / sizeof(grant_fields[0]),
			     &r, err) != 0 ||
	    check_raw(&r, err) != 0 || copy_users(&g, r.user_ids, err) != 0 ||
	    copy(g.grant_id, sizeof(g.grant_id), "grant_id", r.grant_id, err) != 0 ||
	    copy(g.audience, sizeof(g.audience), "audience", r.audience, err) != 0 ||
	    copy(g.capability, sizeof(g.capability), "capability", r.capability, err) != 0 ||
	    copy(g.operation_id, sizeof(g.operation_id), "operation_id", r.operation_id, err) !=
		    0 ||
	    copy(g.target, sizeof(g.target), "target", r.target, err) != 0 ||
	    copy(g.feature, sizeof(g.feature), "feature", r.feature, err) != 0 ||
	    copy(g.action, sizeof(g.action), "action", r.action, err) != 0 ||
	    copy(g.digest, sizeof(g.digest), "digest", r.digest, err) != 0 ||
	    copy(g.summary_digest, sizeof(g.summary_digest), "summary_digest", r.summary_digest,
		 err) != 0 ||
	    copy(g.tree_digest, sizeof(g.tree_digest), "tree_digest", r.tree_digest, err) != 0 ||
	    copy(g.requested_by, sizeof(g.requested_by), "requested_by", r.requested_by, err) !=
		    0 ||
	    copy(g.session, sizeof(g.session), "session", r.session, err) != 0 ||
	    copy(g.key_id, sizeof(g.key_id), "key_id", r.key_id, err) != 0) {
		if (err != NULL)
			hb_fail(err, "grant_malformed", "the grant is malformed: %s", err->message);
		return -1;
	}
	g.generation = r.generation;
	g.approved = strcmp(r.decision, "approved") == 0;
	g.issued_at = r.issued_at;
	g.not_before = r.not_before;
	g.expires_at = r.expires_at;
	*out = g;
	return 0;
}

/* The domain prefix keeps a signature on a grant from ever being one on something else. */
static int
signed_bytes(const json_t *grant, struct hb_buf *out, struct hb_error *err)
{
	hb_buf_add(out, SIGNED_PREFIX, sizeof(SIGNED_PREFIX));
	return hb_json_canonical(grant, out, err);
}

json_t *
hb_grant_seal(struct hb_grant *g, const struct hb_signing_key *key, struct hb_error *err)
{
	char base64[sodium_base64_ENCODED_LEN(64, sodium_base64_VARIANT_ORIGINAL)];
	struct hb_buf bytes = HB_BUF_INIT;
	json_t *object = NULL, *envelope = NULL;
	struct hb_grant sealed = *g, checked;
	unsigned char sig[64];

	memcpy(sealed.key_id, hb_signing_key_public(key)->id, sizeof(sealed.key_id));
	object = hb_grant_to_json(&sealed);
	/* Nothing is signed that its reader would refuse. */
	if (object == NULL) {
		hb_fail(err, "grant_malformed", "the grant holds text that is not UTF-8");
		goto out;
	}
	if (hb_grant_from_json(object, &checked, err) != 0 ||
	    signed_bytes(object, &bytes, err) != 0)
		goto out;
	hb_sign(key, bytes.data, bytes.len, sig);
	sodium_bin2base64(base64, sizeof(base64), sig, sizeof(sig), sodium_base64_VARIANT_ORIGINAL);
	envelope = json_pack("{s:O, s:s}", "grant", object, "signature", base64);
	*g = sealed;
out:
	json_decref(object);
	hb_buf_free(&bytes);
	return envelope;
}

int
hb_grant_open(const json_t *envelope, const struct hb_public_key *key, struct hb_grant *out,
	      struct hb_error *err)
{
	struct parts {
		json_t *grant;
		const char *signature;
	} p;
	static const struct hb_field fields[] = {
		{"grant", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, offsetof(struct parts, grant), 0, 0},
		{"signature", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct parts, signature),
		 88, 88},
	};
	struct hb_buf bytes = HB_BUF_INIT;
	struct hb_error e;
	unsigned char sig[64];
	const char *end;
	size_t len;
	int rc = -1;

	if (hb_fields_decode(envelope, fields, 2, &p, &e) != 0)
		return hb_fail(err, "grant_malformed", "the envelope is malformed: %s", e.message);
	if (sodium_base642bin(sig, sizeof(sig), p.signature, strlen(p.signature), NULL, &len, &end,
			      sodium_base64_VARIANT_ORIGINAL) != 0 ||
	    len != sizeof(sig) || *end != '\0')
		return hb_fail(err, "grant_malformed", "the signature is not base64 of 64 bytes");
	if (strcmp(hb_json_text(p.grant, "key_id", ""), key->id) != 0)
		return hb_fail(err, "grant_unknown_key",
			       "the grant is signed by key %.16s and this host trusts key %s only",
			       hb_json_text(p.grant, "key_id", "(none)"), key->id);
	if (signed_bytes(p.grant, &bytes, &e) != 0)
		hb_fail(err, "grant_malformed", "the grant is malformed: %s", e.message);
	else if (hb_verify(key, bytes.data, bytes.len, sig) != 0)
		hb_fail(err, "grant_bad_signature", "the signature of the grant is wrong");
	else
		rc = hb_grant_from_json(p.grant, out, err);
	hb_buf_free(&bytes);
	return rc;
}

int
hb_grant_open_ring(const json_t *envelope, const struct hb_keyring *keys, struct hb_grant *out,
		   struct hb_error *err)
{
	const char *id = hb_json_text(json_object_get(envelope, "grant"), "key_id", "");
	const struct hb_public_key *key = hb_keyring_find(keys, id);

	/* Of an unknown key: the present one's refusal names both. */
	return hb_grant_open(envelope, key != NULL ? key : &keys->keys[0], out, err);
}

int
hb_grant_check(const struct hb_grant *g, const struct hb_grant_expect *x, struct hb_error *err)
{
	if (strcmp(g->audience, x->audience) != 0)
		return hb_fail(err, "grant_wrong_audience",
			       "the grant is for host %s and this is %s", g->audience, x->audience);
	if (strcmp(g->target, x->target) != 0)
		return hb_fail(err, "grant_wrong_target",
			       "the grant is for the %s executor and this is %s", g->target,
			       x->target);
	if (strcmp(g->operation_id, x->operation_id) != 0 || strcmp(g->feature, x->feature) != 0 ||
	    strcmp(g->action, x->action) != 0)
		return hb_fail(err, "grant_wrong_operation",
			       "the grant is for %s %s of operation %s and %s %s of %s was sent",
			       g->feature, g->action, g->operation_id, x->feature, x->action,
			       x->operation_id);
	if (strcmp(g->digest, x->digest) != 0)
		return hb_fail(
			err, "grant_digest_mismatch",
			"the operation is not the one that was approved (%.16s... and %.16s...)",
			g->digest, x->digest);
	if (strcmp(g->summary_digest, x->summary_digest) != 0)
		return hb_fail(err, "grant_digest_mismatch",
			       "the text shown was not the one this operation has now");
	if (!g->approved)
		return hb_fail(err, "grant_denied", "the operation was denied");
	/* A newer one is as wrong as an older one: policy is re-read first, so this side is never
	 * behind. */
	if (g->generation != x->generation)
		return hb_fail(err, "grant_old_generation",
			       "the policy changed since: the grant is of generation %lld and now "
			       "it is %lld; "
			       "prepare the operation again",
			       (long long)g->generation, (long long)x->generation);
	if (x->now < g->not_before)
		return hb_fail(err, "grant_not_yet_valid",
			       "the grant is not valid yet: check the clock");
	if (x->now >= g->expires_at)
		return hb_fail(err, "grant_expired",
			       "the grant has expired: prepare the operation again");
	return 0;
}
