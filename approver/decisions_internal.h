/* What decisions.c and messages.c share; nobody else includes it. */
#ifndef HB_APPROVER_DECISIONS_INTERNAL_H
#define HB_APPROVER_DECISIONS_INTERNAL_H

#include "approver/decisions.h"
#include "common/db.h"

struct hb_decisions {
	sqlite3 *db;
	sqlite3_stmt *insert, *find;
	int64_t pending;
	bool full; /* synchronous=FULL at the moment */
};

/* Durability of the next transaction; not inside one. */
int hb_decisions_durable(struct hb_decisions *d, bool full, struct hb_error *err);
void hb_column_copy(sqlite3_stmt *st, int i, char *out, size_t size);
/* The offset, within whatever transaction is open. */
int hb_offset_write(struct hb_decisions *d, const struct hb_update_mark *mark, int64_t now,
		    struct hb_error *err);

#endif
