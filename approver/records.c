/* Outcomes, the control record, heads (records.h). */
#include "approver/records.h"

#include <stdlib.h>
#include <string.h>

#include "approver/decisions_internal.h"

int
hb_record_get(struct hb_decisions *d, const char *id, struct hb_ask_record *r, struct hb_error *err)
{
	sqlite3_stmt *st = hb_db_prepare(
		d->db, err,
		"SELECT grant_id, decided_seq, decided_head, outcome, returncode, duration,"
		" output_sha256, outcome_seq, outcome_head, witness FROM asks WHERE id = ?",
		"t", id);
	int rc;

	memset(r, 0, sizeof(*r));
	if (!st)
		return -1;
	rc = hb_db_step(st, err);
	if (rc == 1) {
		hb_column_copy(st, 0, r->grant_id, sizeof(r->grant_id));
		r->decided.seq = sqlite3_column_int64(st, 1);
		hb_column_copy(st, 2, r->decided.hash, sizeof(r->decided.hash));
		hb_column_copy(st, 3, r->outcome, sizeof(r->outcome));
		r->returncode = sqlite3_column_int64(st, 4);
		r->duration = sqlite3_column_int64(st, 5);
		hb_column_copy(st, 6, r->output_sha256, sizeof(r->output_sha256));
		r->told.seq = sqlite3_column_int64(st, 7);
		hb_column_copy(st, 8, r->told.hash, sizeof(r->told.hash));
		hb_column_copy(st, 9, r->witness, sizeof(r->witness));
	}
	sqlite3_finalize(st);
	if (rc == 0)
		return hb_fail(err, "unknown_operation",
			       "the approver was never asked about an operation with this id");
	return rc == 1 ? 0 : -1;
}

int
hb_record_outcome(struct hb_decisions *d, const char *id, const struct hb_ask_record *r,
		  const char *note, struct hb_error *err)
{
	int changed;

	if (hb_decisions_durable(d, false, err) < 0 || hb_db_begin(d->db, err) < 0)
		return -1;
	changed = hb_db_run(
		d->db, err,
		"UPDATE asks SET note = ?, outcome = ?, returncode = ?, duration = ?, "
		"output_sha256 = ?,"
		" outcome_seq = ?, outcome_head = ?, witness = ? WHERE id = ? AND outcome = ''",
		"ttiititt"
		"t",
		note, r->outcome, r->returncode, r->duration, r->output_sha256, r->told.seq,
		r->told.hash, r->witness, id);
	if (changed < 0 ||
	    hb_db_run(d->db, err,
		      "UPDATE messages SET edit_due = 1 WHERE id = ? AND message_id <> 0", "t",
		      id) < 0) {
		hb_db_rollback(d->db);
		return -1;
	}
	if (hb_db_commit(d->db, err) < 0)
		return -1;
	return changed > 0 ? 0
			   : hb_fail(err, "outcome_known",
				     "an outcome of operation %s is stored already", id);
}

int64_t
hb_pending_of(struct hb_decisions *d, const char *user_id, struct hb_error *err)
{
	int64_t n = 0;

	return hb_db_int(d->db, &n, err,
			 "SELECT count(*) FROM asks WHERE state = 0 AND user_id = ?", "t",
			 user_id) < 0
		       ? -1
		       : n;
}

int64_t
hb_denied_at(struct hb_decisions *d, const char *digest, const char *user_id, struct hb_error *err)
{
	int64_t at = 0;

	return hb_db_int(d->db, &at, err,
			 "SELECT coalesce(max(decided_at), 0) FROM asks WHERE state = 2 AND digest "
			 "= ? AND user_id = ?",
			 "tt", digest, user_id) < 0
		       ? -1
		       : at;
}

/* ---- the control record ---- */

int
hb_control_get(struct hb_decisions *d, struct hb_control *c, struct hb_error *err)
{
	sqlite3_stmt *st = hb_db_prepare(
		d->db, err,
		"SELECT sequence, paused, revoked_before, revoked, by_user, channel, at FROM "
		"control",
		"");
	int rc;

	memset(c, 0, sizeof(*c));
	if (!st)
		return -1;
	rc = hb_db_step(st, err);
	if (rc == 1) {
		json_t *revoked = json_loads(hb_db_text(st, 3), 0, NULL), *item;
		size_t i;

		c->sequence = sqlite3_column_int64(st, 0);
		c->paused = sqlite3_column_int(st, 1) != 0;
		c->revoked_before = sqlite3_column_int64(st, 2);
		json_array_foreach (revoked, i, item) {
			const char *id = json_string_value(item);

			if (id && strlen(id) == 32 && c->revoked_count < HB_REVOKED_MAX)
				memcpy(c->revoked[c->revoked_count++], id, 33);
		}
		json_decref(revoked);
		hb_column_copy(st, 4, c->by, sizeof(c->by));
		hb_column_copy(st, 5, c->channel, sizeof(c->channel));
		c->at = sqlite3_column_int64(st, 6);
	}
	sqlite3_finalize(st);
	return rc < 0 ? -1 : 0;
}

int
hb_control_put(struct hb_decisions *d, const struct hb_control *c, int64_t now,
	       const struct hb_update_mark *mark, struct hb_error *err)
{
	json_t *revoked = json_array();
	char *text;
	int rc = -1;

	for (size_t i = 0; i < c->revoked_count; i++)
		json_array_append_new(revoked, json_string(c->revoked[i]));
	text = json_dumps(revoked, JSON_COMPACT);
	json_decref(revoked);
	if (hb_decisions_durable(d, true, err) < 0 || hb_db_begin(d->db, err) < 0)
		goto out;
	if (hb_db_run(d->db, err, "INSERT OR REPLACE INTO control VALUES (1,?,?,?,?,?,?,?)",
		      "iiittti", c->sequence, (int64_t)c->paused, c->revoked_before, text, c->by,
		      c->channel, c->at) < 0 ||
	    (mark && hb_offset_write(d, mark, now, err) < 0))
		hb_db_rollback(d->db);
	else
		rc = hb_db_commit(d->db, err);
out:
	free(text);
	return rc;
}

/* ---- heads and numbers ---- */

int
hb_head_get(struct hb_decisions *d, const char *process, struct hb_head *h, struct hb_error *err)
{
	sqlite3_stmt *st = hb_db_prepare(d->db, err,
					 "SELECT seq, hash, at, alarm FROM heads WHERE process = ?",
					 "t", process);
	int rc;

	memset(h, 0, sizeof(*h));
	memccpy(h->process, process, 0, sizeof(h->process) - 1);
	if (!st)
		return -1;
	rc = hb_db_step(st, err);
	if (rc == 1) {
		h->head.seq = sqlite3_column_int64(st, 0);
		hb_column_copy(st, 1, h->head.hash, sizeof(h->head.hash));
		h->at = sqlite3_column_int64(st, 2);
		hb_column_copy(st, 3, h->alarm, sizeof(h->alarm));
	}
	sqlite3_finalize(st);
	return rc;
}

int
hb_head_put(struct hb_decisions *d, const struct hb_head *h, struct hb_error *err)
{
	if (hb_decisions_durable(d, false, err) < 0)
		return -1;
	return hb_db_run(d->db, err, "INSERT OR REPLACE INTO heads VALUES (?,?,?,?,?)", "titit",
			 h->process, h->head.seq, h->head.hash, h->at, h->alarm) < 0
		       ? -1
		       : 0;
}

int
hb_meta_get(struct hb_decisions *d, const char *key, int64_t *value, struct hb_error *err)
{
	*value = 0;
	return hb_db_int(d->db, value, err, "SELECT value FROM meta WHERE key = ?", "t", key) < 0
		       ? -1
		       : 0;
}

int
hb_meta_put(struct hb_decisions *d, const char *key, int64_t value, struct hb_error *err)
{
	if (hb_decisions_durable(d, true, err) < 0)
		return -1;
	return hb_db_run(d->db, err, "INSERT OR REPLACE INTO meta VALUES (?,?)", "ti", key, value) <
			       0
		       ? -1
		       : 0;
}
