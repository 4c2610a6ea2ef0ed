/*
 * Requests and decisions in SQLite; messages.c has the messages and offsets. The hot statements (a
 * request stored, a request found) are kept prepared, the rest is rare and prepared when used.
 */
#include "approver/decisions.h"

#include <stdlib.h>
#include <string.h>

#include "approver/decisions_internal.h"
#include "common/buf.h"
#include "common/ids.h"

static const char schema_1[] =
	"CREATE TABLE asks ("
	" n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, capability TEXT NOT NULL, target TEXT "
	"NOT NULL,"
	" feature TEXT NOT NULL, action TEXT NOT NULL, user_id TEXT NOT NULL, session TEXT NOT "
	"NULL,"
	" digest TEXT NOT NULL, summary_digest TEXT NOT NULL, generation INTEGER NOT NULL, "
	"created_at INTEGER NOT NULL,"
	" expires_at INTEGER NOT NULL, quorum INTEGER NOT NULL, state INTEGER NOT NULL, delivery "
	"INTEGER NOT NULL,"
	" decided_at INTEGER NOT NULL, channel TEXT NOT NULL, note TEXT NOT NULL, summary TEXT NOT "
	"NULL,"
	" envelope TEXT) STRICT;"
	"CREATE INDEX asks_pending ON asks(expires_at) WHERE state = 0;"
	"CREATE INDEX asks_undelivered ON asks(n) WHERE delivery = 1;"
	/* One word a person and request: the primary key is the rule. */
	"CREATE TABLE decisions (id TEXT NOT NULL, user_id TEXT NOT NULL, approve INTEGER NOT NULL,"
	" channel TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (id, user_id)) STRICT;"
	"CREATE TABLE messages (n INTEGER PRIMARY KEY, id TEXT NOT NULL, user_id TEXT NOT NULL, "
	"bot TEXT NOT NULL,"
	" token TEXT NOT NULL UNIQUE, message_id INTEGER NOT NULL, state INTEGER NOT NULL, "
	"edit_due INTEGER NOT NULL)"
	" STRICT;"
	"CREATE INDEX messages_ask ON messages(id);"
	"CREATE INDEX messages_due ON messages(bot, n) WHERE edit_due = 1;"
	"CREATE TABLE offsets (bot TEXT PRIMARY KEY, next INTEGER NOT NULL, seen_at INTEGER NOT "
	"NULL) STRICT;"
	"CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;";
static const char schema_2[] =
	"ALTER TABLE asks ADD COLUMN grant_id TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE asks ADD COLUMN decided_seq INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE asks ADD COLUMN decided_head TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE asks ADD COLUMN outcome TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE asks ADD COLUMN returncode INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE asks ADD COLUMN duration INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE asks ADD COLUMN output_sha256 TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE asks ADD COLUMN outcome_seq INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE asks ADD COLUMN outcome_head TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE asks ADD COLUMN witness TEXT NOT NULL DEFAULT '';"
	"CREATE INDEX asks_pending_user ON asks(user_id) WHERE state = 0;"
	"CREATE INDEX asks_denied ON asks(digest) WHERE state = 2;"
	/* One row: what public/approver/control.json says, kept here first. */
	"CREATE TABLE control (one INTEGER PRIMARY KEY CHECK (one = 1), sequence INTEGER NOT NULL,"
	" paused INTEGER NOT NULL, revoked_before INTEGER NOT NULL, revoked TEXT NOT NULL,"
	" by_user TEXT NOT NULL, channel TEXT NOT NULL, at INTEGER NOT NULL) STRICT;"
	/* The newest head that was shown of each process's audit chain. */
	"CREATE TABLE heads (process TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash TEXT NOT NULL,"
	" at INTEGER NOT NULL, alarm TEXT NOT NULL) STRICT;";
/* What waits is looked up all the time and is little beside what is kept. */
static const char schema_3[] = "CREATE INDEX asks_waiting ON asks(n) WHERE state = 0;";
static const char *const steps[] = {schema_1, schema_2, schema_3};

#define ASK_COLUMNS                                                                                \
	"id, capability, target, feature, action, user_id, session, digest, summary_digest, "      \
	"generation, created_at,"                                                                  \
	" expires_at, quorum, state, delivery, decided_at, channel, note"

static const char *const names[] = {
	[HB_ASK_PENDING] = "pending",	  [HB_ASK_APPROVED] = "approved",
	[HB_ASK_DENIED] = "denied",	  [HB_ASK_EXPIRED] = "expired",
	[HB_ASK_WITHDRAWN] = "withdrawn", [HB_ASK_REVOKED] = "revoked",
	[HB_ASK_NOT_SHOWN] = "not_shown",
};

const char *
hb_ask_state_name(enum hb_ask_state s)
{
	return (size_t)s < sizeof(names) / sizeof(names[0]) ? names[s] : "unknown";
}

int
hb_decisions_open(const char *path, struct hb_decisions **out, struct hb_error *err)
{
	struct hb_decisions *d = hb_calloc(1, sizeof(*d));
	const struct hb_db_options options = {.full_sync = true, .steps = steps, .step_count = 2};

	if (hb_db_open(path, &options, &d->db, err) < 0 ||
	    hb_db_exec(d->db, "PRAGMA cache_size=-1024", err) < 0)
		goto fail;
	d->full = true;
	if (sqlite3_prepare_v3(d->db,
			       "INSERT INTO asks (" ASK_COLUMNS ", summary) VALUES"
			       " (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
			       -1, SQLITE_PREPARE_PERSISTENT, &d->insert, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v3(d->db, "SELECT " ASK_COLUMNS " FROM asks WHERE id = ?", -1,
			       SQLITE_PREPARE_PERSISTENT, &d->find, NULL) != SQLITE_OK) {
		hb_db_fail(d->db, err, "preparing a statement");
		goto fail;
	}
	if (hb_db_int(d->db, &d->pending, err, "SELECT count(*) FROM asks WHERE state = 0", "") < 0)
		goto fail;
	*out = d;
	return 0;
fail:
	hb_decisions_close(d);
	return -1;
}

void
hb_decisions_close(struct hb_decisions *d)
{
	if (!d)
		return;
	sqlite3_finalize(d->insert);
	sqlite3_finalize(d->find);
	hb_db_close(d->db);
	free(d);
}

int
hb_decisions_durable(struct hb_decisions *d, bool full, struct hb_error *err)
{
	if (d->full == full)
		return 0;
	if (hb_db_exec(d->db, full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", err) <
	    0)
		return -1;
	d->full = full;
	return 0;
}

int
hb_ask_insert(struct hb_decisions *d, const struct hb_ask *a, const char *summary,
	      struct hb_error *err)
{
	int rc;

	if (hb_decisions_durable(d, false, err) < 0 ||
	    hb_db_rebind(d->insert, err,
			 "tttttttttiiiiiiitt"
			 "t",
			 a->id, a->capability, a->target, a->feature, a->action, a->user_id,
			 a->session, a->digest, a->summary_digest, a->generation, a->created_at,
			 a->expires_at, (int64_t)a->quorum, (int64_t)a->state, (int64_t)a->delivery,
			 a->decided_at, a->channel, a->note, summary) < 0)
		return -1;
	rc = hb_db_step(d->insert, err);
	sqlite3_reset(d->insert);
	if (rc < 0)
		return -1;
	d->pending++;
	return 0;
}

void
hb_column_copy(sqlite3_stmt *st, int i, char *out, size_t size)
{
	memccpy(out, hb_db_text(st, i), 0, size);
	out[size - 1] = 0;
}

static void
read_ask(sqlite3_stmt *st, struct hb_ask *a)
{
	memset(a, 0, sizeof(*a));
	hb_column_copy(st, 0, a->id, sizeof(a->id));
	hb_column_copy(st, 1, a->capability, sizeof(a->capability));
	hb_column_copy(st, 2, a->target, sizeof(a->target));
	hb_column_copy(st, 3, a->feature, sizeof(a->feature));
	hb_column_copy(st, 4, a->action, sizeof(a->action));
	hb_column_copy(st, 5, a->user_id, sizeof(a->user_id));
	hb_column_copy(st, 6, a->session, sizeof(a->session));
	hb_column_copy(st, 7, a->digest, sizeof(a->digest));
	hb_column_copy(st, 8, a->summary_digest, sizeof(a->summary_digest));
	a->generation = sqlite3_column_int64(st, 9);
	a->created_at = sqlite3_column_int64(st, 10);
	a->expires_at = sqlite3_column_int64(st, 11);
	a->quorum = sqlite3_column_int(st, 12);
	a->state = (enum hb_ask_state)sqlite3_column_int(st, 13);
	a->delivery = (enum hb_delivery)sqlite3_column_int(st, 14);
	a->decided_at = sqlite3_column_int64(st, 15);
	hb_column_copy(st, 16, a->channel, sizeof(a->channel));
	hb_column_copy(st, 17, a->note, sizeof(a->note));
}

int
hb_ask_find(struct hb_decisions *d, const char *id, struct hb_ask *ask, struct hb_error *err)
{
	int rc;

	if (hb_db_rebind(d->find, err, "t", id) < 0)
		return -1;
	rc = hb_db_step(d->find, err);
	if (rc == 1)
		read_ask(d->find, ask);
	sqlite3_reset(d->find);
	if (rc == 0)
		return hb_fail(err, "unknown_operation",
			       "the approver was never asked about an operation with this id");
	return rc == 1 ? 0 : -1;
}

static char *
text_of(struct hb_decisions *d, const char *sql, const char *id, struct hb_error *err)
{
	sqlite3_stmt *st = hb_db_prepare(d->db, err, sql, "t", id);
	char *text = NULL;

	if (!st)
		return NULL;
	switch (hb_db_step(st, err)) {
	case 1:
		text = hb_strdup(hb_db_text(st, 0));
		break;
	case 0:
		hb_fail(err, "unknown_operation", "operation %s has nothing of the kind", id);
		break;
	default:
		break;
	}
	sqlite3_finalize(st);
	return text;
}

char *
hb_ask_summary(struct hb_decisions *d, const char *id, struct hb_error *err)
{
	return text_of(d, "SELECT summary FROM asks WHERE id = ?", id, err);
}

char *
hb_ask_envelope(struct hb_decisions *d, const char *id, struct hb_error *err)
{
	return text_of(d, "SELECT envelope FROM asks WHERE id = ? AND envelope IS NOT NULL", id,
		       err);
}

int
hb_ask_ids(struct hb_decisions *d, enum hb_ask_query query, int64_t arg, size_t limit,
	   char (**ids)[HB_OP_ID], size_t *count, struct hb_error *err)
{
	static const char *const sql[] = {
		[HB_A_DUE] = "SELECT id FROM asks WHERE state = 0 AND expires_at <= ? LIMIT ?",
		[HB_A_OLD_POLICY] =
			"SELECT id FROM asks WHERE state = 0 AND generation <> ? LIMIT ?",
		[HB_A_UNSIGNED] = "SELECT id FROM asks WHERE delivery = 1 AND envelope IS NULL AND "
				  "?1=?1 LIMIT ?2",
		[HB_A_UNDELIVERED] = "SELECT id FROM asks WHERE delivery = 1 AND envelope IS NOT "
				     "NULL AND ?1=?1 LIMIT ?2",
		[HB_A_PENDING] =
			"SELECT id FROM asks WHERE state = 0 AND expires_at > ? ORDER BY n LIMIT ?",
		[HB_A_CLOSED] =
			"SELECT id FROM asks WHERE state <> 0 AND ?1=?1 ORDER BY n DESC LIMIT ?2",
	};
	sqlite3_stmt *st = hb_db_prepare(d->db, err, sql[query], "ii", arg, (int64_t)limit);
	struct hb_buf found = HB_BUF_INIT;
	char id[HB_OP_ID];
	size_t n = 0;
	int rc;

	if (!st)
		return -1;
	while ((rc = hb_db_step(st, err)) == 1) {
		memset(id, 0, sizeof(id));
		hb_column_copy(st, 0, id, sizeof(id));
		hb_buf_add(&found, id, sizeof(id));
		n++;
	}
	sqlite3_finalize(st);
	if (rc < 0) {
		hb_buf_free(&found);
		return -1;
	}
	*ids = (char(*)[HB_OP_ID])hb_buf_take(&found);
	*count = n;
	return 0;
}

int64_t
hb_ask_pending(const struct hb_decisions *d)
{
	return d->pending;
}

static int
edits_due(struct hb_decisions *d, const char *id, struct hb_error *err)
{
	return hb_db_run(d->db, err,
			 "UPDATE messages SET edit_due = 1 WHERE id = ? AND message_id <> 0", "t",
			 id);
}

int
hb_ask_close(struct hb_decisions *d, const char *id, enum hb_ask_state state, const char *note,
	     struct hb_error *err)
{
	int changed;

	if (hb_decisions_durable(d, false, err) < 0 || hb_db_begin(d->db, err) < 0)
		return -1;
	changed = hb_db_run(
		d->db, err,
		"UPDATE asks SET state = ?, note = ?, decided_at = ? WHERE id = ? AND state = 0",
		"itit", (int64_t)state, note, hb_now(), id);
	if (changed < 0 || (changed > 0 && edits_due(d, id, err) < 0)) {
		hb_db_rollback(d->db);
		return -1;
	}
	if (hb_db_commit(d->db, err) < 0)
		return -1;
	if (changed == 0)
		return hb_fail(err, "request_closed", "operation %s is not pending", id);
	d->pending--;
	return 0;
}

int
hb_ask_note(struct hb_decisions *d, const char *id, const char *note, struct hb_error *err)
{
	if (hb_decisions_durable(d, false, err) < 0 ||
	    hb_db_run(d->db, err, "UPDATE asks SET note = ? WHERE id = ?", "tt", note, id) < 0)
		return -1;
	return edits_due(d, id, err) < 0 ? -1 : 0;
}

/* Inside the transaction: the word, and what follows from it. */
static int
record(struct hb_decisions *d, struct hb_ask *ask, const char *user_id, bool approve,
       const char *channel, int64_t now, struct hb_error *err)
{
	int64_t words = 0;
	enum hb_ask_state state = HB_ASK_PENDING;

	if (hb_db_int(d->db, &words, err,
		      "SELECT count(*) FROM decisions WHERE id = ? AND user_id = ?", "tt", ask->id,
		      user_id) < 0)
		return -1;
	if (words > 0)
		return hb_fail(err, "already_decided",
			       "user %s has decided about this operation already", user_id);
	if (hb_db_run(d->db, err, "INSERT INTO decisions VALUES (?,?,?,?,?)", "ttiti", ask->id,
		      user_id, (int64_t)approve, channel, now) < 0 ||
	    hb_db_int(d->db, &words, err,
		      "SELECT count(*) FROM decisions WHERE id = ? AND approve = 1", "t",
		      ask->id) < 0)
		return -1;
	if (!approve)
		state = HB_ASK_DENIED; /* one denial is enough */
	else if (words >= ask->quorum)
		state = HB_ASK_APPROVED;
	if (state != HB_ASK_PENDING && hb_db_run(d->db, err,
						 "UPDATE asks SET state = ?, delivery = 1, "
						 "decided_at = ?, channel = ? WHERE id = ?",
						 "iitt", (int64_t)state, now, channel, ask->id) < 0)
		return -1;
	return edits_due(d, ask->id, err) < 0 ? -1 : 0;
}

int
hb_decide(struct hb_decisions *d, const char *id, const char *user_id, bool approve,
	  const char *channel, int64_t now, const struct hb_update_mark *mark, struct hb_ask *ask,
	  struct hb_error *err)
{
	if (hb_decisions_durable(d, true, err) < 0 || hb_db_begin(d->db, err) < 0)
		return -1;
	if (hb_ask_find(d, id, ask, err) < 0)
		goto fail;
	if (ask->state == HB_ASK_PENDING && ask->expires_at <= now) {
		hb_fail(err, "request_closed", "operation %s has expired", id);
		goto fail;
	}
	if (ask->state != HB_ASK_PENDING) {
		hb_fail(err, "request_closed", "operation %s is %s already", id,
			hb_ask_state_name(ask->state));
		goto fail;
	}
	if (record(d, ask, user_id, approve, channel, now, err) < 0 ||
	    (mark && hb_offset_write(d, mark, now, err) < 0))
		goto fail;
	if (hb_db_commit(d->db, err) < 0)
		return -1;
	if (hb_ask_find(d, id, ask, err) < 0)
		return -1;
	if (ask->state != HB_ASK_PENDING)
		d->pending--;
	return 0;
fail:
	hb_db_rollback(d->db);
	return -1;
}

size_t
hb_decided_by(struct hb_decisions *d, const char *id, bool approve, char (*users)[24], size_t max)
{
	sqlite3_stmt *st =
		hb_db_prepare(d->db, NULL,
			      "SELECT user_id FROM decisions WHERE id = ? AND approve = ?"
			      " ORDER BY rowid",
			      "ti", id, (int64_t)approve);
	size_t n = 0;

	if (!st)
		return 0;
	while (n < max && hb_db_step(st, NULL) == 1)
		hb_column_copy(st, 0, users[n++], sizeof(users[0]));
	sqlite3_finalize(st);
	return n;
}

int
hb_ask_signed(struct hb_decisions *d, const char *id, const char *envelope, const char *grant_id,
	      const struct hb_audit_head *at, struct hb_error *err)
{
	if (hb_decisions_durable(d, true, err) < 0)
		return -1;
	return hb_db_run(d->db, err,
			 "UPDATE asks SET envelope = ?, grant_id = ?, decided_seq = ?, "
			 "decided_head = ?"
			 " WHERE id = ? AND envelope IS NULL",
			 "ttitt", envelope, grant_id, at->seq, at->hash, id) < 0
		       ? -1
		       : 0;
}

int
hb_ask_delivery(struct hb_decisions *d, const char *id, enum hb_delivery delivery,
		struct hb_error *err)
{
	if (hb_decisions_durable(d, false, err) < 0)
		return -1;
	return hb_db_run(d->db, err, "UPDATE asks SET delivery = ? WHERE id = ?", "it",
			 (int64_t)delivery, id) < 0
		       ? -1
		       : 0;
}

int
hb_decisions_see_generation(struct hb_decisions *d, int64_t generation, struct hb_error *err)
{
	int64_t seen = 0;

	if (hb_db_int(d->db, &seen, err, "SELECT value FROM meta WHERE key = 'generation'", "") < 0)
		return -1;
	if (generation < seen)
		return hb_fail(err, "generation_went_back",
			       "policy generation is %lld but %lld was seen before: an old policy "
			       "file was put back; "
			       "write it again with `hermesctl policy set` so that its generation "
			       "is higher",
			       (long long)generation, (long long)seen);
	if (generation == seen)
		return 0;
	if (hb_decisions_durable(d, true, err) < 0)
		return -1;
	return hb_db_run(d->db, err,
			 "INSERT INTO meta VALUES ('generation', ?)"
			 " ON CONFLICT(key) DO UPDATE SET value = excluded.value",
			 "i", generation) < 0
		       ? -1
		       : 0;
}

int
hb_decisions_prune(struct hb_decisions *d, int64_t before, struct hb_error *err)
{
	static const char *const sql[] = {
		"DELETE FROM messages WHERE id IN (SELECT id FROM asks WHERE state <> 0 AND "
		"delivery <> 1"
		" AND created_at < ?)",
		"DELETE FROM decisions WHERE id IN (SELECT id FROM asks WHERE state <> 0 AND "
		"delivery <> 1"
		" AND created_at < ?)",
		"DELETE FROM asks WHERE state <> 0 AND delivery <> 1 AND created_at < ?",
	};

	for (size_t i = 0; i < sizeof(sql) / sizeof(sql[0]); i++)
		if (hb_db_run(d->db, err, sql[i], "i", before) < 0)
			return -1;
	return 0;
}
