/* The grants an executor has used. A row is written before the effect and never deleted. */
#include "common/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/db.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"

struct hb_ledger {
	sqlite3 *db;
	int lock;
};

static const char *const steps[] = {
	"CREATE TABLE grants ("
	"  grant_id TEXT NOT NULL PRIMARY KEY,"
	"  operation_id TEXT NOT NULL UNIQUE,"
	"  feature TEXT NOT NULL, action TEXT NOT NULL, digest TEXT NOT NULL,"
	"  state TEXT NOT NULL CHECK (state IN "
	"('executing','succeeded','failed','outcome_unknown')),"
	"  started_at INTEGER NOT NULL, finished_at INTEGER NOT NULL DEFAULT 0,"
	"  result TEXT NOT NULL DEFAULT '{}'"
	") STRICT, WITHOUT ROWID;"
	"CREATE TABLE seen (what TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) STRICT;"
	"INSERT INTO seen VALUES ('generation', 0);"
	/* Final states are final whatever the code above does. */
	"CREATE TRIGGER final_states BEFORE UPDATE OF state ON grants WHEN old.state <> 'executing'"
	"  BEGIN SELECT RAISE(ABORT, 'a final state never changes'); END;"
	"CREATE TRIGGER never_deleted BEFORE DELETE ON grants"
	"  BEGIN SELECT RAISE(ABORT, 'a used grant is never forgotten'); END;",
};

static int
take_lock(const char *path, int *lock, struct hb_error *err)
{
	char *name = hb_asprintf("%s.lock", path);
	int fd;

	fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		hb_fail_errno(err, "ledger_failed", "opening %s", name);
	else if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		*lock = fd;
	else {
		hb_fail(err, "ledger_locked", "%s is held: another process uses this ledger", name);
		close(fd);
	}
	free(name);
	return *lock >= 0 ? 0 : -1;
}

int
hb_ledger_open(const char *path, struct hb_ledger **out, int *recovered, struct hb_error *err)
{
	return hb_ledger_open_settled(path, NULL, NULL, NULL, out, recovered, err);
}

/* An operation that was finished already, or never burnt, needs no settling. */
static int
settle(struct hb_ledger *l, const char *operation_id, const char *state, const json_t *result,
       struct hb_error *err)
{
	struct hb_error why;

	if (hb_ledger_finish(l, operation_id, state, result, &why) == 0 ||
	    strcmp(why.code, "ledger_final") == 0 || strcmp(why.code, "unknown_operation") == 0)
		return 0;
	return hb_fail(err, why.code, "%s", why.message);
}

int
hb_ledger_open_settled(const char *path, const char *operation_id, const char *state,
		       const json_t *result, struct hb_ledger **out, int *recovered,
		       struct hb_error *err)
{
	const struct hb_db_options options = {.full_sync = true, .steps = steps, .step_count = 1};
	struct hb_ledger *l = hb_calloc(1, sizeof(*l));
	int changed;

	l->lock = -1;
	if (take_lock(path, &l->lock, err) != 0 || hb_db_open(path, &options, &l->db, err) != 0)
		goto fail;
	if (operation_id != NULL && settle(l, operation_id, state, result, err) != 0)
		goto fail;
	changed = hb_db_run(l->db, err,
			    "UPDATE grants SET state = 'outcome_unknown', finished_at = ?"
			    " WHERE state = 'executing'",
			    "i", hb_now());
	if (changed < 0)
		goto fail;
	if (recovered != NULL)
		*recovered = changed;
	*out = l;
	return 0;
fail:
	hb_ledger_close(l);
	return -1;
}

void
hb_ledger_close(struct hb_ledger *l)
{
	if (l == NULL)
		return;
	hb_db_close(l->db);
	hb_close(&l->lock);
	free(l);
}

int
hb_ledger_burn(struct hb_ledger *l, const struct hb_grant *g, struct hb_error *err)
{
	int changed;

	/* One statement, one commit: either unique key makes it a replay. */
	changed = hb_db_run(
		l->db, err,
		"INSERT INTO grants (grant_id, operation_id, feature, action, digest, state,"
		" started_at) VALUES (?, ?, ?, ?, ?, 'executing', ?) ON CONFLICT DO NOTHING",
		"ttttti", g->grant_id, g->operation_id, g->feature, g->action, g->digest, hb_now());
	if (changed < 0)
		return -1;
	if (changed == 0)
		return hb_fail(err, "grant_replayed",
			       "operation %s was already started once; it is never repeated",
			       g->operation_id);
	return 0;
}

int
hb_ledger_finish(struct hb_ledger *l, const char *operation_id, const char *state,
		 const json_t *result, struct hb_error *err)
{
	char *text;
	int64_t n;
	int changed;

	if (strcmp(state, "succeeded") != 0 && strcmp(state, "failed") != 0 &&
	    strcmp(state, "outcome_unknown") != 0)
		return hb_fail(err, "ledger_failed", "%s is not a final state", state);
	text = result != NULL ? json_dumps(result, JSON_COMPACT | JSON_SORT_KEYS) : hb_strdup("{}");
	if (text == NULL)
		return hb_fail(err, "ledger_failed", "the result of %s can't be written as JSON",
			       operation_id);
	changed = hb_db_run(l->db, err,
			    "UPDATE grants SET state = ?, finished_at = ?, result = ?"
			    " WHERE operation_id = ? AND state = 'executing'",
			    "titt", state, hb_now(), text, operation_id);
	free(text);
	if (changed != 0)
		return changed > 0 ? 0 : -1;
	switch (hb_db_int(l->db, &n, err, "SELECT 1 FROM grants WHERE operation_id = ?", "t",
			  operation_id)) {
	case 1:
		return hb_fail(err, "ledger_final", "operation %s has its final state already",
			       operation_id);
	case 0:
		return hb_fail(err, "unknown_operation", "operation %s was never started here",
			       operation_id);
	default:
		return -1;
	}
}

json_t *
hb_ledger_find(struct hb_ledger *l, const char *operation_id, struct hb_error *err)
{
	json_t *found = NULL, *result;
	sqlite3_stmt *st;
	const char *text;

	st = hb_db_prepare(l->db, err,
			   "SELECT operation_id, grant_id, state, started_at, finished_at, result"
			   " FROM grants WHERE operation_id = ?",
			   "t", operation_id);
	if (st == NULL)
		return NULL;
	switch (hb_db_step(st, err)) {
	case 1:
		text = hb_db_text(st, 5);
		result = hb_json_parse_foreign(text, strlen(text), err);
		if (result != NULL)
			found = json_pack("{s:s, s:s, s:s, s:I, s:I, s:o}", "operation_id",
					  hb_db_text(st, 0), "grant_id", hb_db_text(st, 1), "state",
					  hb_db_text(st, 2), "started_at",
					  (json_int_t)sqlite3_column_int64(st, 3), "finished_at",
					  (json_int_t)sqlite3_column_int64(st, 4), "result",
					  result);
		break;
	case 0:
		hb_fail(err, "unknown_operation", "operation %s was never started here",
			operation_id);
		break;
	default:
		break;
	}
	sqlite3_finalize(st);
	return found;
}

int
hb_ledger_see_generation(struct hb_ledger *l, int64_t generation, struct hb_error *err)
{
	int64_t highest = 0;

	if (hb_db_int(l->db, &highest, err, "SELECT value FROM seen WHERE what = 'generation'",
		      "") < 0)
		return -1;
	if (generation < highest)
		return hb_fail(err, "generation_went_back",
			       "the policy's generation is %lld and %lld was seen before: an old "
			       "policy file was "
			       "put back; restore the newer one",
			       (long long)generation, (long long)highest);
	/* Asked before every operation and almost never new: no write then. */
	if (generation == highest)
		return 0;
	return hb_db_run(l->db, err,
			 "UPDATE seen SET value = ? WHERE what = 'generation' AND value < ?", "ii",
			 generation, generation) >= 0
		       ? 0
		       : -1;
}

int
hb_ledger_see_control(struct hb_ledger *l, int64_t sequence, struct hb_error *err)
{
	int64_t highest = 0;

	if (hb_db_int(l->db, &highest, err, "SELECT value FROM seen WHERE what = 'control'", "") <
	    0)
		return -1;
	if (sequence < highest)
		return hb_fail(err, "control_went_back",
			       "the approver's control record (pause, revocations) is number %lld "
			       "and %lld was "
			       "seen before: it was removed or an old one put back, so everything "
			       "is refused; "
			       "restart hermes-approver, which writes it again",
			       (long long)sequence, (long long)highest);
	if (sequence == highest)
		return 0;
	return hb_db_run(l->db, err,
			 "INSERT INTO seen VALUES ('control', ?)"
			 " ON CONFLICT(what) DO UPDATE SET value = max(value, excluded.value)",
			 "i", sequence) >= 0
		       ? 0
		       : -1;
}
