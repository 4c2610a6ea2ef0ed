/* Pause and revocations, signed by the approver (control.h). */
#include "policy/control.h"

#include <fcntl.h>
#include <string.h>

#include "common/fields.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/paths.h"
#include "common/peers.h"
#include "common/signed.h"
#include "policy/trusted.h"

#define CONTROL_SIZE_MAX 32768 /* 256 revocations of 35 bytes each, and the rest */

static int unusable(struct hb_error *err, const char *why)
{
	return hb_fail(err, "control_unusable",
		       "whether operations are paused can't be told, so all are refused: %s (%s); "
		       "hermes-approver writes it anew when it is restarted",
		       why, HB_PATH_CONTROL);
}

struct raw {
	long long v, sequence, revoked_before, at;
	bool paused;
	const char *audience, *key_id, *by, *channel;
	json_t *revoked;
};

#define TEXT(name, min, max)                                                                       \
	{                                                                                          \
#name, HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct raw, name), min, max      \
	}
#define INT(name, min)                                                                             \
	{                                                                                          \
#name, HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct raw, name), min, HB_JSON_INT_MAX \
	}

static const struct hb_field fields[] = {
	INT(v, 1),
	INT(sequence, 1),
	INT(revoked_before, 0),
	INT(at, 0),
	{"paused", HB_FIELD_BOOL, HB_FIELD_REQUIRED, offsetof(struct raw, paused), 0, 0},
	TEXT(audience, 32, 32),
	TEXT(key_id, 16, 16),
	{"by", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_DECIMAL, offsetof(struct raw, by), 1,
	 20},
	TEXT(channel, 1, 23),
	{"revoked", HB_FIELD_ARRAY, HB_FIELD_REQUIRED, offsetof(struct raw, revoked), 0,
	 HB_REVOKED_MAX},
};

static int from_record(const json_t *record, struct hb_control *out, struct hb_error *err)
{
	struct hb_control c = {0};
	struct raw r = {0};
	json_t *item;
	size_t i;

	if (hb_fields_decode(record, fields, sizeof(fields) / sizeof(fields[0]), &r, err) < 0)
		return -1;
	json_array_foreach(r.revoked, i, item)
	{
		const char *id = json_string_value(item);

		if (!id || strlen(id) != 32 || strspn(id, "0123456789abcdef") != 32)
			return hb_fail(err, "bad_type",
				       "revoked holds something else than operation ids");
		memcpy(c.revoked[c.revoked_count++], id, 33);
	}
	if (strlen(r.channel) >= sizeof(c.channel))
		return hb_fail(err, "out_of_range", "channel is too long");
	c.sequence = r.sequence;
	c.paused = r.paused;
	c.revoked_before = r.revoked_before;
	c.at = r.at;
	memcpy(c.by, r.by, strlen(r.by) + 1);
	memcpy(c.channel, r.channel, strlen(r.channel) + 1);
	*out = c;
	return 0;
}

int hb_control_load(const struct hb_keyring *keys, const char *audience, struct hb_control *out,
		    struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	struct hb_error why = {0};
	json_t *envelope = NULL, *record;
	int rc = -1;

	if (hb_trusted_read(AT_FDCWD, HB_PATH_CONTROL, hb_peer_uid(HB_PEER_APPROVER),
			    CONTROL_SIZE_MAX, "control_missing", &text, &why) < 0) {
		if (strcmp(why.code, "control_missing") == 0) {
			*out = (struct hb_control){0};
			rc = 0;
		} else {
			unusable(err, why.message);
		}
		goto out;
	}
	envelope = hb_json_parse(text.data ? text.data : "", text.len, &why);
	record = envelope ? hb_signed_open(HB_KIND_CONTROL, audience, envelope, keys, &why) : NULL;
	if (!record || from_record(record, out, &why) < 0)
		unusable(err, why.message);
	else
		rc = 0;
out:
	json_decref(envelope);
	hb_buf_free(&text);
	return rc;
}

json_t *hb_control_seal(const struct hb_control *c, const char *audience,
			const struct hb_signing_key *key, struct hb_error *err)
{
	json_t *revoked = json_array();

	for (size_t i = 0; i < c->revoked_count; i++)
		json_array_append_new(revoked, json_string(c->revoked[i]));
	return hb_signed_seal(HB_KIND_CONTROL, audience,
			      json_pack("{s:I, s:b, s:I, s:o, s:s, s:s, s:I}", "sequence",
					(json_int_t)c->sequence, "paused", (int)c->paused,
					"revoked_before", (json_int_t)c->revoked_before, "revoked",
					revoked, "by", c->by, "channel", c->channel, "at",
					(json_int_t)c->at),
			      key, err);
}

int hb_control_write(const json_t *envelope, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	int rc = hb_json_canonical(envelope, &text, err);

	if (rc == 0) {
		hb_buf_addc(&text, '\n');
		rc = hb_fs_write_atomic(AT_FDCWD, HB_PATH_CONTROL, text.data, text.len, 0644,
					(uid_t)-1, (gid_t)-1, err);
	}
	hb_buf_free(&text);
	return rc;
}

int hb_control_permits(const struct hb_control *c, struct hb_error *err)
{
	char when[21];

	if (!c->paused)
		return 0;
	hb_time_rfc3339(c->at, when);
	return hb_fail(err, "paused",
		       "all operations were paused at %s by user %s; an approver resumes them with "
		       "/resume, or root "
		       "with: hermesctl resume",
		       when, c->by);
}

bool hb_control_revokes(const struct hb_control *c, const char *operation_id, int64_t issued_at)
{
	if (c->sequence > 0 && issued_at <= c->revoked_before)
		return true;
	for (size_t i = 0; i < c->revoked_count; i++) {
		if (strcmp(c->revoked[i], operation_id) == 0)
			return true;
	}
	return false;
}

int hb_control_grant(const struct hb_control *c, const struct hb_grant *g, struct hb_error *err)
{
	if (hb_control_revokes(c, g->operation_id, g->issued_at))
		return hb_fail(err, "grant_revoked",
			       "the approval of operation %s was taken back by user %s",
			       g->operation_id, c->by);
	return 0;
}
