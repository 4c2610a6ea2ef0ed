/* Sealing and opening of signed records (signed.h). */
#include "common/signed.h"

#include <sodium.h>
#include <string.h>

#include "common/fields.h"
#include "common/json.h"

/* The kind with its NUL keeps a signature on one sort of record from being one on another. */
static int
signed_bytes(const char *kind, const json_t *record, struct hb_buf *out, struct hb_error *err)
{
	hb_buf_add(out, kind, strlen(kind) + 1);
	return hb_json_canonical(record, out, err);
}

json_t *
hb_signed_seal(const char *kind, const char *audience, json_t *record,
	       const struct hb_signing_key *key, struct hb_error *err)
{
	char base64[sodium_base64_ENCODED_LEN(64, sodium_base64_VARIANT_ORIGINAL)];
	struct hb_buf bytes = HB_BUF_INIT;
	unsigned char sig[64];
	json_t *envelope = NULL;

	if (record == NULL) {
		hb_fail(err, "record_malformed", "a record holds text that is not UTF-8");
		return NULL;
	}
	json_object_set_new(record, "v", json_integer(1));
	json_object_set_new(record, "audience", json_string(audience));
	json_object_set_new(record, "key_id", json_string(hb_signing_key_public(key)->id));
	if (signed_bytes(kind, record, &bytes, err) == 0) {
		hb_sign(key, bytes.data, bytes.len, sig);
		sodium_bin2base64(base64, sizeof(base64), sig, sizeof(sig),
				  sodium_base64_VARIANT_ORIGINAL);
		envelope = json_pack("{s:O, s:s}", "record", record, "signature", base64);
	}
	json_decref(record);
	hb_buf_free(&bytes);
	return envelope;
}

json_t *
hb_signed_open(const char *kind, const char *audience, const json_t *envelope,
	       const struct hb_keyring *keys, struct hb_error *err)
{
	struct parts {
		json_t *record;
		const char *signature;
	} p = {0};
	static const struct hb_field fields[] = {
		{"record", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, offsetof(struct parts, record), 0,
		 0},
		{"signature", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct parts, signature),
		 88, 88},
	};
	struct hb_buf bytes = HB_BUF_INIT;
	const struct hb_public_key *key;
	struct hb_error e = {0};
	unsigned char sig[64];
	json_t *found = NULL;
	const char *end;
	size_t len;

	if (hb_fields_decode(envelope, fields, 2, &p, &e) != 0) {
		hb_fail(err, "record_malformed", "a signed record is malformed: %s", e.message);
		return NULL;
	}
	if (sodium_base642bin(sig, sizeof(sig), p.signature, strlen(p.signature), NULL, &len, &end,
			      sodium_base64_VARIANT_ORIGINAL) != 0 ||
	    len != sizeof(sig) || *end != '\0') {
		hb_fail(err, "record_malformed", "the signature is not base64 of 64 bytes");
		return NULL;
	}
	key = hb_keyring_find(keys, hb_json_text(p.record, "key_id", ""));
	if (key == NULL) {
		hb_fail(err, "record_unknown_key",
			"it is signed by key %.16s, which this host does not trust",
			hb_json_text(p.record, "key_id", "(none)"));
		return NULL;
	}
	if (signed_bytes(kind, p.record, &bytes, &e) != 0)
		hb_fail(err, "record_malformed", "a signed record is malformed: %s", e.message);
	else if (hb_verify(key, bytes.data, bytes.len, sig) != 0)
		hb_fail(err, "record_bad_signature", "the signature is wrong");
	else if (hb_json_int(p.record, "v", 0) != 1)
		hb_fail(err, "record_malformed", "the record is of another version");
	else if (audience != NULL && strcmp(hb_json_text(p.record, "audience", ""), audience) != 0)
		hb_fail(err, "record_wrong_audience", "it was signed for another host");
	else
		found = p.record;
	hb_buf_free(&bytes);
	return found;
}
