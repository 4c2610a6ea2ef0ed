/*
 * The operations table. Statements are prepared once and kept; every function binds, steps and
 * resets. operations_view.c has what clients see of a row.
 */
#include "broker/operations.h"

#include <stdlib.h>
#include <string.h>

#include "broker/operations_internal.h"
#include "common/buf.h"
#include "common/db.h"

static const char schema_1[] =
	"CREATE TABLE operations ("
	" n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, capability TEXT NOT NULL UNIQUE,"
	" feature TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL, user_id TEXT NOT NULL,"
	" session TEXT NOT NULL, digest TEXT NOT NULL, summary_digest TEXT NOT NULL, generation "
	"INTEGER NOT NULL,"
	" created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,"
	" state INTEGER NOT NULL, tell INTEGER NOT NULL, execute_requested INTEGER NOT NULL, sent "
	"INTEGER NOT NULL,"
	" channel TEXT NOT NULL, grant_id TEXT NOT NULL, decided_at INTEGER NOT NULL, "
	"grant_expires INTEGER NOT NULL,"
	" started_at INTEGER NOT NULL, finished_at INTEGER NOT NULL, code TEXT NOT NULL, error "
	"TEXT NOT NULL,"
	" request TEXT NOT NULL, summary TEXT NOT NULL,"
	" envelope TEXT, decided_by TEXT, result TEXT, progress TEXT) STRICT;"
	/* Partial: final rows, nearly all of them, cost nothing here. */
	"CREATE INDEX operations_live ON operations(state, expires_at) WHERE state < 4;"
	"CREATE INDEX operations_tell ON operations(n) WHERE tell <> 0;"
	"CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;";

/* Also for the question whether the same is waiting already. */
static const char schema_2[] =
	"CREATE INDEX operations_waiting ON operations(digest) WHERE state = 1;";

static const char *const steps[] = {schema_1, schema_2};

#define FIXED_AND_CHANGING                                                                         \
	"id, capability, feature, action, target, user_id, session, digest, summary_digest, "      \
	"generation,"                                                                              \
	" created_at, expires_at, state, tell, execute_requested, sent, channel, grant_id, "       \
	"decided_at,"                                                                              \
	" grant_expires, started_at, finished_at, code, error"

enum statement {
	ST_INSERT,
	ST_UPDATE,
	ST_FIND_ID,
	ST_FIND_CAPABILITY,
	ST_TEXT, /* one for each column */
	ST_TEXT_LAST = ST_TEXT + HB_COL_RESULT,
	ST_IDS, /* one for each query */
	ST_IDS_LAST = ST_IDS + HB_Q_TELL,
	ST_COUNT_LIVE,
	ST_RESUBMIT,
	ST_PRUNE,
	ST_GENERATION_GET,
	ST_GENERATION_SET,
	ST_FIND_WAITING,
	ST_COUNT
};

static const char *const sql[ST_COUNT] = {
	[ST_INSERT] = "INSERT INTO operations (" FIXED_AND_CHANGING ", request, summary) VALUES"
		      " (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
	[ST_UPDATE] = "UPDATE operations SET state=?3, tell=?4, execute_requested=?5, sent=?6,"
		      " channel=?7, grant_id=?8, decided_at=?9, grant_expires=?10,"
		      " started_at=?11, finished_at=?12, code=?13, error=?14,"
		      " envelope=coalesce(?15,envelope), decided_by=coalesce(?16,decided_by),"
		      " result=coalesce(?17,result), progress=coalesce(?18,progress)"
		      " WHERE id=?1 AND state=?2",
	[ST_FIND_ID] = "SELECT " FIXED_AND_CHANGING " FROM operations WHERE id=?1",
	[ST_FIND_CAPABILITY] = "SELECT " FIXED_AND_CHANGING " FROM operations WHERE capability=?1",
	[ST_FIND_WAITING] =
		"SELECT " FIXED_AND_CHANGING " FROM operations WHERE state = 1 AND digest=?1"
		" AND user_id=?2 AND session=?3 AND generation=?4 AND expires_at > ?5 ORDER BY n "
		"LIMIT 1",
	[ST_TEXT + HB_COL_REQUEST] = "SELECT request FROM operations WHERE id=?1",
	[ST_TEXT + HB_COL_SUMMARY] = "SELECT summary FROM operations WHERE id=?1",
	[ST_TEXT + HB_COL_ENVELOPE] = "SELECT envelope FROM operations WHERE id=?1",
	[ST_TEXT + HB_COL_RESULT] = "SELECT result FROM operations WHERE id=?1",
	[ST_IDS + HB_Q_RESTORE] =
		"SELECT id FROM operations WHERE state < 4 AND state IN (0,2,3) AND ?1=?1 LIMIT ?2",
	[ST_IDS + HB_Q_PENDING_DUE] = "SELECT id FROM operations WHERE state < 4 AND state IN "
				      "(0,1) AND expires_at <= ?1 LIMIT ?2",
	[ST_IDS + HB_Q_GRANT_DUE] = "SELECT id FROM operations WHERE state < 4 AND state = 2 AND "
				    "grant_expires <= ?1 LIMIT ?2",
	[ST_IDS + HB_Q_OLD_POLICY] = "SELECT id FROM operations WHERE state < 4 AND state IN "
				     "(0,1,2) AND generation <> ?1 LIMIT ?2",
	[ST_IDS + HB_Q_TELL] =
		"SELECT id FROM operations WHERE tell <> 0 AND ?1=?1 ORDER BY n LIMIT ?2",
	[ST_COUNT_LIVE] = "SELECT count(*) FROM operations WHERE state < 4",
	[ST_RESUBMIT] = "UPDATE operations SET tell=1 WHERE state < 4 AND state = 1",
	[ST_PRUNE] =
		"DELETE FROM operations WHERE n IN (SELECT n FROM operations WHERE created_at < ?1"
		" AND state >= 4 AND tell = 0 ORDER BY n LIMIT 500)",
	[ST_GENERATION_GET] = "SELECT value FROM meta WHERE key='generation'",
	[ST_GENERATION_SET] = "INSERT INTO meta VALUES ('generation', ?1)"
			      " ON CONFLICT(key) DO UPDATE SET value=excluded.value",
};

struct hb_store {
	sqlite3 *db;
	sqlite3_stmt *st[ST_COUNT];
	size_t live;
	bool full; /* synchronous=FULL at the moment */
};

static const char *const state_names[] = {
	[HB_OP_PREPARED] = "prepared",	     [HB_OP_AWAITING] = "awaiting_approval",
	[HB_OP_APPROVED] = "approved",	     [HB_OP_EXECUTING] = "executing",
	[HB_OP_SUCCEEDED] = "succeeded",     [HB_OP_FAILED] = "failed",
	[HB_OP_UNKNOWN] = "outcome_unknown", [HB_OP_DENIED] = "denied",
	[HB_OP_EXPIRED] = "expired",	     [HB_OP_CANCELLED] = "cancelled",
	[HB_OP_REVOKED] = "revoked",
};

const char *
hb_op_state_name(enum hb_op_state s)
{
	return (size_t)s < sizeof(state_names) / sizeof(state_names[0]) ? state_names[s]
									: "unknown";
}

static int
fail_sql(struct hb_store *s, struct hb_error *err, const char *doing)
{
	return hb_db_fail(s->db, err, doing);
}

int
hb_store_open(const char *path, struct hb_store **out, struct hb_error *err)
{
	struct hb_store *s = hb_calloc(1, sizeof(*s));
	const struct hb_db_options options = {.steps = steps,
					      .step_count = sizeof(steps) / sizeof(steps[0])};

	if (hb_db_open(path, &options, &s->db, err) < 0 ||
	    hb_db_exec(s->db, "PRAGMA cache_size=-1024", err) < 0)
		goto fail;
	for (int i = 0; i < ST_COUNT; i++)
		if (sqlite3_prepare_v3(s->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &s->st[i],
				       NULL) != SQLITE_OK) {
			fail_sql(s, err, "prepare a statement");
			goto fail;
		}
	if (sqlite3_step(s->st[ST_COUNT_LIVE]) == SQLITE_ROW)
		s->live = (size_t)sqlite3_column_int64(s->st[ST_COUNT_LIVE], 0);
	sqlite3_reset(s->st[ST_COUNT_LIVE]);
	*out = s;
	return 0;
fail:
	hb_store_close(s);
	return -1;
}

void
hb_store_close(struct hb_store *s)
{
	if (!s)
		return;
	for (int i = 0; i < ST_COUNT; i++)
		sqlite3_finalize(s->st[i]);
	hb_db_close(s->db);
	free(s);
}

/* synchronous can be changed between transactions; a grant must not be lost by a power cut, a
 * request may. */
static int
set_durable(struct hb_store *s, bool full, struct hb_error *err)
{
	if (s->full == full)
		return 0;
	if (sqlite3_exec(s->db, full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL",
			 NULL, NULL, NULL) != SQLITE_OK)
		return fail_sql(s, err, "set durability");
	s->full = full;
	return 0;
}

static void
bind_text(sqlite3_stmt *st, int i, const char *text)
{
	if (text)
		sqlite3_bind_text(st, i, text, -1, SQLITE_STATIC);
	else
		sqlite3_bind_null(st, i);
}

/* Run a statement that returns no row; the number of changed rows or -1. */
static int
run(struct hb_store *s, sqlite3_stmt *st, const char *doing, struct hb_error *err)
{
	int rc = sqlite3_step(st), result;

	result = rc == SQLITE_DONE ? sqlite3_changes(s->db) : fail_sql(s, err, doing);
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return result;
}

int
hb_store_insert(struct hb_store *s, const struct hb_op *op, const char *request,
		const char *summary, struct hb_error *err)
{
	sqlite3_stmt *st = s->st[ST_INSERT];
	const char *texts[] = {op->id,	    op->capability, op->feature,
			       op->action,  op->target,	    op->user_id,
			       op->session, op->digest,	    op->summary_digest};
	int64_t numbers[] = {op->generation, op->created_at,	    op->expires_at, op->state,
			     op->tell,	     op->execute_requested, op->sent};
	int64_t times[] = {op->decided_at, op->grant_expires, op->started_at, op->finished_at};
	int i = 1;

	if (set_durable(s, false, err) < 0)
		return -1;
	for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++)
		bind_text(st, i++, texts[k]);
	for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++)
		sqlite3_bind_int64(st, i++, numbers[k]);
	bind_text(st, i++, op->channel);
	bind_text(st, i++, op->grant_id);
	for (size_t k = 0; k < sizeof(times) / sizeof(times[0]); k++)
		sqlite3_bind_int64(st, i++, times[k]);
	bind_text(st, i++, op->code);
	bind_text(st, i++, op->error);
	bind_text(st, i++, request);
	bind_text(st, i++, summary);
	if (run(s, st, "store an operation", err) < 0)
		return -1;
	s->live++;
	return 0;
}

int
hb_store_update(struct hb_store *s, const struct hb_op *op, enum hb_op_state from,
		const struct hb_op_extra *extra, bool durable, struct hb_error *err)
{
	static const struct hb_op_extra nothing;
	sqlite3_stmt *st = s->st[ST_UPDATE];
	int64_t numbers[] = {from, op->state, op->tell, op->execute_requested, op->sent};
	int64_t times[] = {op->decided_at, op->grant_expires, op->started_at, op->finished_at};
	int i = 2, changed;

	if (!extra)
		extra = &nothing;
	if (set_durable(s, durable, err) < 0)
		return -1;
	bind_text(st, 1, op->id);
	for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++)
		sqlite3_bind_int64(st, i++, numbers[k]);
	bind_text(st, i++, op->channel);
	bind_text(st, i++, op->grant_id);
	for (size_t k = 0; k < sizeof(times) / sizeof(times[0]); k++)
		sqlite3_bind_int64(st, i++, times[k]);
	bind_text(st, i++, op->code);
	bind_text(st, i++, op->error);
	bind_text(st, i++, extra->envelope);
	bind_text(st, i++, extra->decided_by);
	bind_text(st, i++, extra->result);
	bind_text(st, i++, extra->progress);
	changed = run(s, st, "update an operation", err);
	if (changed < 0)
		return -1;
	if (changed == 0)
		return hb_fail(err, "operation_changed", "operation %s is no longer %s", op->id,
			       hb_op_state_name(from));
	if (hb_op_final(op->state) && !hb_op_final(from) && s->live > 0)
		s->live--;
	return 0;
}

static void
column(sqlite3_stmt *st, int i, char *out, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(st, i);

	memccpy(out, text ? text : "", 0, size);
	out[size - 1] = 0;
}

static void
read_row(sqlite3_stmt *st, struct hb_op *op)
{
	memset(op, 0, sizeof(*op));
	column(st, 0, op->id, sizeof(op->id));
	column(st, 1, op->capability, sizeof(op->capability));
	column(st, 2, op->feature, sizeof(op->feature));
	column(st, 3, op->action, sizeof(op->action));
	column(st, 4, op->target, sizeof(op->target));
	column(st, 5, op->user_id, sizeof(op->user_id));
	column(st, 6, op->session, sizeof(op->session));
	column(st, 7, op->digest, sizeof(op->digest));
	column(st, 8, op->summary_digest, sizeof(op->summary_digest));
	op->generation = sqlite3_column_int64(st, 9);
	op->created_at = sqlite3_column_int64(st, 10);
	op->expires_at = sqlite3_column_int64(st, 11);
	op->state = (enum hb_op_state)sqlite3_column_int(st, 12);
	op->tell = (enum hb_op_tell)sqlite3_column_int(st, 13);
	op->execute_requested = sqlite3_column_int(st, 14) != 0;
	op->sent = sqlite3_column_int(st, 15) != 0;
	column(st, 16, op->channel, sizeof(op->channel));
	column(st, 17, op->grant_id, sizeof(op->grant_id));
	op->decided_at = sqlite3_column_int64(st, 18);
	op->grant_expires = sqlite3_column_int64(st, 19);
	op->started_at = sqlite3_column_int64(st, 20);
	op->finished_at = sqlite3_column_int64(st, 21);
	column(st, 22, op->code, sizeof(op->code));
	column(st, 23, op->error, sizeof(op->error));
}

static int
find(struct hb_store *s, enum statement which, const char *key, struct hb_op *op,
     struct hb_error *err)
{
	sqlite3_stmt *st = s->st[which];
	int rc, result = 0;

	bind_text(st, 1, key);
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		read_row(st, op);
	else if (rc == SQLITE_DONE)
		result = hb_fail(err, "unknown_operation",
				 which == ST_FIND_ID ? "no operation has this id; `hermesctl "
						       "operations list` shows those there are"
						     : "no operation has this capability: it was "
						       "never issued here, or it is long over");
	else
		result = fail_sql(s, err, "read an operation");
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return result;
}

int
hb_store_find(struct hb_store *s, const char *id, struct hb_op *op, struct hb_error *err)
{
	return find(s, ST_FIND_ID, id, op, err);
}

int
hb_store_find_capability(struct hb_store *s, const char *capability, struct hb_op *op,
			 struct hb_error *err)
{
	return find(s, ST_FIND_CAPABILITY, capability, op, err);
}

int
hb_store_find_waiting(struct hb_store *s, const struct hb_op *like, int64_t now, struct hb_op *op)
{
	sqlite3_stmt *st = s->st[ST_FIND_WAITING];
	int rc;

	bind_text(st, 1, like->digest);
	bind_text(st, 2, like->user_id);
	bind_text(st, 3, like->session);
	sqlite3_bind_int64(st, 4, like->generation);
	sqlite3_bind_int64(st, 5, now);
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		read_row(st, op);
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : -1;
}

char *
hb_store_text(struct hb_store *s, const char *id, enum hb_op_column which, struct hb_error *err)
{
	sqlite3_stmt *st = s->st[ST_TEXT + which];
	char *text = NULL;
	int rc;

	bind_text(st, 1, id);
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL)
		text = hb_strdup((const char *)sqlite3_column_text(st, 0));
	else if (rc == SQLITE_ROW || rc == SQLITE_DONE)
		hb_fail(err, "unknown_operation", "operation %s has no such column yet", id);
	else
		fail_sql(s, err, "read an operation");
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return text;
}

int
hb_store_ids(struct hb_store *s, enum hb_op_query query, int64_t arg, size_t limit,
	     char (**ids)[HB_OP_ID], size_t *count, struct hb_error *err)
{
	sqlite3_stmt *st = s->st[ST_IDS + query];
	struct hb_buf found = HB_BUF_INIT;
	char id[HB_OP_ID];
	size_t n = 0;
	int rc;

	sqlite3_bind_int64(st, 1, arg);
	sqlite3_bind_int64(st, 2, (int64_t)limit);
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		memset(id, 0, sizeof(id));
		column(st, 0, id, sizeof(id));
		hb_buf_add(&found, id, sizeof(id));
		n++;
	}
	if (rc != SQLITE_DONE)
		fail_sql(s, err, "look for operations");
	sqlite3_reset(st);
	if (rc != SQLITE_DONE) {
		hb_buf_free(&found);
		return -1;
	}
	*ids = (char(*)[HB_OP_ID])hb_buf_take(&found);
	*count = n;
	return 0;
}

sqlite3 *
hb_store_db(const struct hb_store *s)
{
	return s->db;
}

size_t
hb_store_live(const struct hb_store *s)
{
	return s->live;
}

int
hb_store_resubmit(struct hb_store *s, struct hb_error *err)
{
	if (set_durable(s, false, err) < 0)
		return -1;
	return run(s, s->st[ST_RESUBMIT], "mark operations", err) < 0 ? -1 : 0;
}

int
hb_store_prune(struct hb_store *s, int64_t before, struct hb_error *err)
{
	sqlite3_bind_int64(s->st[ST_PRUNE], 1, before);
	return run(s, s->st[ST_PRUNE], "remove old operations", err) < 0 ? -1 : 0;
}

int
hb_store_see_generation(struct hb_store *s, int64_t generation, struct hb_error *err)
{
	sqlite3_stmt *get = s->st[ST_GENERATION_GET];
	int64_t seen = sqlite3_step(get) == SQLITE_ROW ? sqlite3_column_int64(get, 0) : 0;

	sqlite3_reset(get);
	if (generation < seen)
		return hb_fail(err, "generation_went_back",
			       "policy generation is %lld but %lld was seen before: an old policy "
			       "file was put back; "
			       "write it again with `hermesctl policy set` so that its generation "
			       "is higher",
			       (long long)generation, (long long)seen);
	if (generation == seen)
		return 0;
	if (set_durable(s, true, err) < 0)
		return -1;
	sqlite3_bind_int64(s->st[ST_GENERATION_SET], 1, generation);
	return run(s, s->st[ST_GENERATION_SET], "remember the policy generation", err) < 0 ? -1 : 0;
}
