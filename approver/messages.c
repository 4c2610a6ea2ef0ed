/* Messages that show requests, and how far a bot's updates have been read. */
#include <string.h>

#include "approver/decisions_internal.h"

#define COLUMNS "n, id, user_id, bot, token, message_id, state, edit_due"

int
hb_message_insert(struct hb_decisions *d, struct hb_message *m, struct hb_error *err)
{
	if (hb_decisions_durable(d, false, err) < 0 ||
	    hb_db_run(d->db, err,
		      "INSERT INTO messages (id, user_id, bot, token, message_id, state, edit_due)"
		      " VALUES (?,?,?,?,?,?,?)",
		      "ttttiii", m->id, m->user_id, m->bot, m->token, m->message_id,
		      (int64_t)m->state, (int64_t)m->edit_due) < 0)
		return -1;
	m->n = sqlite3_last_insert_rowid(d->db);
	return 0;
}

int
hb_message_save(struct hb_decisions *d, const struct hb_message *m, struct hb_error *err)
{
	if (hb_decisions_durable(d, false, err) < 0)
		return -1;
	return hb_db_run(d->db, err,
			 "UPDATE messages SET message_id = ?, state = ?, edit_due = ? WHERE n = ?",
			 "iiii", m->message_id, (int64_t)m->state, (int64_t)m->edit_due, m->n) < 0
		       ? -1
		       : 0;
}

static int
one(sqlite3_stmt *st, struct hb_message *m, struct hb_error *err)
{
	int rc;

	if (!st)
		return -1;
	rc = hb_db_step(st, err);
	if (rc == 1) {
		memset(m, 0, sizeof(*m));
		m->n = sqlite3_column_int64(st, 0);
		hb_column_copy(st, 1, m->id, sizeof(m->id));
		hb_column_copy(st, 2, m->user_id, sizeof(m->user_id));
		hb_column_copy(st, 3, m->bot, sizeof(m->bot));
		hb_column_copy(st, 4, m->token, sizeof(m->token));
		m->message_id = sqlite3_column_int64(st, 5);
		m->state = (enum hb_message_state)sqlite3_column_int(st, 6);
		m->edit_due = sqlite3_column_int(st, 7) != 0;
	}
	sqlite3_finalize(st);
	return rc;
}

int
hb_message_by_token(struct hb_decisions *d, const char *token, struct hb_message *m,
		    struct hb_error *err)
{
	return one(hb_db_prepare(d->db, err, "SELECT " COLUMNS " FROM messages WHERE token = ?",
				 "t", token),
		   m, err);
}

int
hb_message_shown(struct hb_decisions *d, const char *id, const char *user_id, const char *bot,
		 struct hb_message *m, struct hb_error *err)
{
	return one(hb_db_prepare(d->db, err,
				 "SELECT " COLUMNS
				 " FROM messages WHERE id = ? AND user_id = ? AND bot = ?"
				 " AND state = 2",
				 "ttt", id, user_id, bot),
		   m, err);
}

int
hb_message_due(struct hb_decisions *d, const char *bot, int64_t after, struct hb_message *m,
	       struct hb_error *err)
{
	return one(hb_db_prepare(d->db, err,
				 "SELECT " COLUMNS
				 " FROM messages WHERE edit_due = 1 AND bot = ? AND n > ?"
				 " ORDER BY n LIMIT 1",
				 "ti", bot, after),
		   m, err);
}

int
hb_messages_void(struct hb_decisions *d, const char *bot, struct hb_error *err)
{
	if (hb_decisions_durable(d, true, err) < 0)
		return -1;
	return hb_db_run(d->db, err,
			 "UPDATE messages SET state = 3, edit_due = (message_id <> 0)"
			 " WHERE state <> 3 AND (state <> 2 OR bot <> ?)"
			 " AND id IN (SELECT id FROM asks WHERE state = 0)",
			 "t", bot) < 0
		       ? -1
		       : 0;
}

int
hb_offset_get(struct hb_decisions *d, const char *bot, int64_t *next, int64_t *seen_at,
	      struct hb_error *err)
{
	*next = *seen_at = 0;
	if (hb_db_int(d->db, next, err, "SELECT next FROM offsets WHERE bot = ?", "t", bot) < 0 ||
	    hb_db_int(d->db, seen_at, err, "SELECT seen_at FROM offsets WHERE bot = ?", "t", bot) <
		    0)
		return -1;
	return 0;
}

int
hb_offset_write(struct hb_decisions *d, const struct hb_update_mark *mark, int64_t now,
		struct hb_error *err)
{
	/* Bot API: the next offset is one above the highest update seen. It isn't always higher
	 * than the old one: after a week of silence the numbering starts anew, anywhere. */
	return hb_db_run(d->db, err,
			 "INSERT INTO offsets VALUES (?,?,?) ON CONFLICT(bot) DO UPDATE SET"
			 " next = excluded.next, seen_at = excluded.seen_at",
			 "tii", mark->bot, mark->update_id + 1, now) < 0
		       ? -1
		       : 0;
}

int
hb_offset_set(struct hb_decisions *d, const struct hb_update_mark *mark, int64_t now,
	      struct hb_error *err)
{
	if (hb_decisions_durable(d, true, err) < 0)
		return -1;
	return hb_offset_write(d, mark, now, err);
}
