/*
 * Heads of audit chains, and signed checkpoints of them.
 *
 * Who shows them: the broker, its own and those of the executors it asks for their health; root,
 * with `hermesctl audit checkpoint`, also those of fetcher and admin. They are not believed further
 * than this: a chain that was longer before, or had another record at the same place, was cut or
 * replaced, and that stays an alarm until root says otherwise. The newest checkpoint lies in
 * public/approver/checkpoint.json; all of them are in the approver's own chain, whose head goes to
 * the phone.
 */
#include <fcntl.h>
#include <string.h>

#include "approver/approver.h"
#include "common/fields.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"
#include "common/signed.h"

#define EVERY_SECONDS 10 /* at most, while chains grow */
#define SHORT_HEAD 12	 /* hex digits that go to a phone */

static const char *const processes[] = {"broker", "installer", "docker", "ssh", "fetcher", "admin"};
#define PROCESSES (sizeof(processes) / sizeof(processes[0]))

static bool
known(const char *name)
{
	for (size_t i = 0; i < PROCESSES; i++)
		if (strcmp(processes[i], name) == 0)
			return true;
	return false;
}

struct head_in {
	long long seq, at;
	const char *hash;
};

static const struct hb_field head_fields[] = {
	{"seq", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct head_in, seq), 0, HB_JSON_INT_MAX},
	{"hash", HB_FIELD_TEXT, HB_FIELD_REQUIRED | HB_FIELD_HEX64, offsetof(struct head_in, hash),
	 64, 64},
	{"at", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct head_in, at), 0, HB_JSON_INT_MAX},
};

static void
went_back(struct hb_approver *a, struct hb_head *old, const struct head_in *in)
{
	json_t *detail = json_pack("{s:s, s:I, s:s, s:I, s:s}", "process", old->process, "known",
				   (json_int_t)old->head.seq, "known_hash", old->head.hash, "shown",
				   (json_int_t)in->seq, "shown_hash", in->hash);

	snprintf(old->alarm, sizeof(old->alarm),
		 "the audit chain of %s was cut or replaced: record %lld was known and now it ends "
		 "with %lld",
		 old->process, (long long)old->head.seq, in->seq);
	hb_head_put(a->decisions, old, NULL);
	hb_log(HB_LOG_ERROR, "audit_alarm", "process", old->process, "error", old->alarm, NULL);
	hb_audit_append(a->process->audit, "audit_alarm", "refused", detail, NULL);
	json_decref(detail);
}

static int
take_one(struct hb_approver *a, const char *name, const struct head_in *in, bool accept,
	 struct hb_error *err)
{
	struct hb_head old;
	int had = hb_head_get(a->decisions, name, &old, err);
	bool same_place = had == 1 && in->seq == old.head.seq;

	if (had < 0)
		return -1;
	if (accept) {
		memset(old.alarm, 0, sizeof(old.alarm));
	} else if (same_place) {
		if (in->seq > 0 && strcmp(in->hash, old.head.hash) != 0 && !*old.alarm)
			went_back(a, &old, in);
		return 0;
	} else if (had == 1 && in->seq < old.head.seq) {
		/* Seen no later than what is known: a message that was overtaken by a newer one. */
		if (in->at > old.at && !*old.alarm)
			went_back(a, &old, in);
		return 0;
	}
	old.head.seq = in->seq;
	memcpy(old.head.hash, in->hash, sizeof(old.head.hash));
	old.at = in->at;
	a->checkpoint_due = true;
	return hb_head_put(a->decisions, &old, err);
}

int
hb_heads_take(struct hb_approver *a, json_t *heads, bool accept, struct hb_error *err)
{
	const char *name;
	json_t *value;

	json_object_foreach (heads, name, value) {
		struct head_in in = {0};

		if (!known(name))
			return hb_fail(err, "unknown_field",
				       "no process of this name has an audit chain");
		if (hb_fields_decode(value, head_fields, 3, &in, err) < 0 ||
		    take_one(a, name, &in, accept, err) < 0)
			return -1;
	}
	return 0;
}

const char *
hb_heads_alarm(struct hb_approver *a, char *text, size_t size)
{
	struct hb_head h;

	for (size_t i = 0; i < PROCESSES; i++)
		if (hb_head_get(a->decisions, processes[i], &h, NULL) == 1 && *h.alarm) {
			snprintf(text, size,
				 "AUDIT: %s; run `hermesctl audit verify`, and once it is "
				 "explained `hermesctl audit "
				 "checkpoint --accept`",
				 h.alarm);
			return text;
		}
	return NULL;
}

void
hb_witness(const struct hb_audit_head *own, struct hb_buf *out)
{
	hb_buf_printf(out, "Witness: approver %lld %.*s", (long long)own->seq, SHORT_HEAD,
		      own->hash);
}

void
hb_witness_others(struct hb_approver *a, struct hb_buf *out)
{
	struct hb_head h;

	for (size_t i = 0; i < PROCESSES; i++)
		if (hb_head_get(a->decisions, processes[i], &h, NULL) == 1 && h.head.seq > 0)
			hb_buf_printf(out, ", %s %lld %.*s", h.process, (long long)h.head.seq,
				      SHORT_HEAD, h.head.hash);
}

static json_t *
heads_now(struct hb_approver *a)
{
	struct hb_audit_head own = hb_audit_head(a->process->audit);
	json_t *heads = json_pack("{s:{s:I, s:s}}", "approver", "seq", (json_int_t)own.seq, "hash",
				  own.hash);
	struct hb_head h;

	for (size_t i = 0; i < PROCESSES; i++)
		if (hb_head_get(a->decisions, processes[i], &h, NULL) == 1)
			json_object_set_new(heads, h.process,
					    json_pack("{s:I, s:s}", "seq", (json_int_t)h.head.seq,
						      "hash", h.head.hash));
	return heads;
}

int
hb_checkpoint_now(struct hb_approver *a, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *heads = heads_now(a), *detail, *signed_heads, *envelope = NULL;
	struct hb_audit_head own;
	int64_t sequence;
	int rc = -1;

	if (hb_meta_get(a->decisions, "checkpoint", &sequence, err) < 0 ||
	    hb_meta_put(a->decisions, "checkpoint", ++sequence, err) < 0)
		goto out;
	detail = json_pack("{s:I, s:O}", "sequence", (json_int_t)sequence, "heads", heads);
	rc = hb_audit_append(a->process->audit, "checkpoint", "ok", detail, err);
	json_decref(detail);
	if (rc < 0)
		goto out;
	/* Its own record included, so that nothing that was there can be cut without being missed.
	 */
	own = hb_audit_head(a->process->audit);
	signed_heads = json_deep_copy(heads);
	json_object_set_new(signed_heads, "approver",
			    json_pack("{s:I, s:s}", "seq", (json_int_t)own.seq, "hash", own.hash));
	envelope = hb_signed_seal(HB_KIND_CHECKPOINT, a->process->host_id,
				  json_pack("{s:I, s:I, s:o}", "sequence", (json_int_t)sequence,
					    "at", (json_int_t)hb_now(), "heads", signed_heads),
				  a->key, err);
	rc = envelope ? hb_json_canonical(envelope, &text, err) : -1;
	if (rc == 0) {
		hb_buf_addc(&text, '\n');
		rc = hb_fs_write_atomic(AT_FDCWD, HB_PATH_CHECKPOINT, text.data, text.len, 0644,
					(uid_t)-1, (gid_t)-1, err);
	}
	a->checkpoint_at = hb_now();
	a->checkpoint_own = hb_audit_head(a->process->audit).seq;
	a->checkpoint_due = false;
out:
	json_decref(heads);
	json_decref(envelope);
	hb_buf_free(&text);
	return rc;
}

void
hb_checkpoint_tick(struct hb_approver *a)
{
	struct hb_error err;
	int64_t now = hb_now();

	/* Nothing new, or one was made a moment ago (a clock that was set back doesn't stop them).
	 */
	if ((!a->checkpoint_due && hb_audit_head(a->process->audit).seq == a->checkpoint_own) ||
	    (now >= a->checkpoint_at && now - a->checkpoint_at < EVERY_SECONDS))
		return;
	if (hb_checkpoint_now(a, &err) < 0)
		hb_log(HB_LOG_ERROR, "checkpoint_failed", "code", err.code, "error", err.message,
		       NULL);
}

/* ---- what is told of an operation afterwards ---- */

static json_t *
place(const struct hb_audit_head *at)
{
	return at->seq ? json_pack("{s:I, s:s}", "seq", (json_int_t)at->seq, "hash", at->hash)
		       : json_object();
}

json_t *
hb_receipt(struct hb_approver *a, const char *id, struct hb_error *err)
{
	struct hb_ask_record r;
	struct hb_ask ask;
	char users[HB_GRANT_USERS_MAX][24];
	json_t *by, *outcome;
	size_t n;

	if (hb_ask_find(a->decisions, id, &ask, err) < 0 ||
	    hb_record_get(a->decisions, id, &r, err) < 0)
		return NULL;
	if (!*r.grant_id) {
		hb_fail(err, "not_decided",
			"operation %s was decided by nobody (it is %s), so there is no receipt", id,
			hb_ask_state_name(ask.state));
		return NULL;
	}
	by = json_array();
	n = hb_decided_by(a->decisions, id, ask.state == HB_ASK_APPROVED, users,
			  HB_GRANT_USERS_MAX);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(by, json_string(users[i]));
	outcome = *r.outcome ? json_pack("{s:s, s:I, s:I, s:s}", "state", r.outcome, "returncode",
					 (json_int_t)r.returncode, "duration",
					 (json_int_t)r.duration, "output_sha256", r.output_sha256)
			     : json_object();
	return hb_signed_seal(
		HB_KIND_RECEIPT, a->process->host_id,
		json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:o, s:s, s:o, s:o, s:o, s:I}",
			  "operation_id", ask.id, "feature", ask.feature, "action", ask.action,
			  "digest", ask.digest, "summary_digest", ask.summary_digest, "decision",
			  ask.state == HB_ASK_APPROVED ? "approved" : "denied", "grant_id",
			  r.grant_id, "decided_at", (json_int_t)ask.decided_at, "decided_by", by,
			  "channel", ask.channel, "decision_record", place(&r.decided), "outcome",
			  outcome, "outcome_record", place(&r.told), "issued_at",
			  (json_int_t)hb_now()),
		a->key, err);
}
