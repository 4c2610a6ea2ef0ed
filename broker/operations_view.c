/* Operations as clients see them. Capability and envelope are not among the columns read here. */
#include "broker/operations_internal.h"

#define VIEW                                                                                       \
	"SELECT id, feature, action, target, state, digest, summary, summary_digest, user_id, "    \
	"session, generation,"                                                                     \
	" created_at, expires_at, decided_at, decided_by, channel, started_at, finished_at, "      \
	"progress, result,"                                                                        \
	" error, code FROM operations "

static void
set_json(json_t *object, const char *name, sqlite3_stmt *st, int i, json_t *absent)
{
	const char *text = (const char *)sqlite3_column_text(st, i);
	json_t *value = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;

	if (value)
		json_decref(absent);
	json_object_set_new(object, name, value ? value : absent);
}

static json_t *
view_row(sqlite3_stmt *st)
{
	static const char *const texts[] = {"id", "feature", "action", "target"};
	static const struct {
		const char *name;
		int column;
	} more_texts[] = {{"digest", 5},  {"summary", 6}, {"summary_digest", 7},
			  {"user_id", 8}, {"session", 9}, {"channel", 15}},
	  times[] = {{"generation", 10}, {"created_at", 11}, {"expires_at", 12},
		     {"decided_at", 13}, {"started_at", 16}, {"finished_at", 17}};
	json_t *o = json_object();

	for (int i = 0; i < 4; i++)
		json_object_set_new(o, i == 0 ? "operation_id" : texts[i],
				    json_string((const char *)sqlite3_column_text(st, i)));
	json_object_set_new(
		o, "state",
		json_string(hb_op_state_name((enum hb_op_state)sqlite3_column_int(st, 4))));
	for (size_t k = 0; k < sizeof(more_texts) / sizeof(more_texts[0]); k++)
		json_object_set_new(
			o, more_texts[k].name,
			json_string((const char *)sqlite3_column_text(st, more_texts[k].column)));
	for (size_t k = 0; k < sizeof(times) / sizeof(times[0]); k++)
		json_object_set_new(o, times[k].name,
				    json_integer(sqlite3_column_int64(st, times[k].column)));
	set_json(o, "decided_by", st, 14, json_array());
	set_json(o, "progress", st, 18, json_null());
	set_json(o, "result", st, 19, json_null());
	if (*(const char *)sqlite3_column_text(st, 20)) {
		json_object_set_new(o, "error",
				    json_string((const char *)sqlite3_column_text(st, 20)));
		json_object_set_new(o, "code",
				    json_string((const char *)sqlite3_column_text(st, 21)));
	}
	return o;
}

json_t *
hb_store_json(struct hb_store *s, const char *id, struct hb_error *err)
{
	sqlite3_stmt *st = hb_db_prepare(hb_store_db(s), err, VIEW "WHERE id = ?", "t", id);
	json_t *o = NULL;
	int rc;

	if (!st)
		return NULL;
	rc = hb_db_step(st, err);
	if (rc == 1)
		o = view_row(st);
	else if (rc == 0)
		hb_fail(err, "unknown_operation",
			"no operation has this id; `hermesctl operations list` shows those there "
			"are");
	sqlite3_finalize(st);
	return o;
}

json_t *
hb_store_list(struct hb_store *s, int limit, struct hb_error *err)
{
	sqlite3_stmt *st = hb_db_prepare(hb_store_db(s), err, VIEW "ORDER BY n DESC LIMIT ?", "i",
					 (int64_t)limit);
	json_t *list;
	int rc;

	if (!st)
		return NULL;
	list = json_array();
	while ((rc = hb_db_step(st, err)) == 1)
		json_array_append_new(list, view_row(st));
	sqlite3_finalize(st);
	if (rc < 0) {
		json_decref(list);
		return NULL;
	}
	return list;
}
