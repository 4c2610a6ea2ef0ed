/*
 * The executor's own memory of grants: each is used at most once, and what became of it.
 *
 * SQLite, journal WAL, synchronous=FULL: a burn is on disk before the effect begins. A row that was "executing"
 * when the process died is "outcome_unknown" afterwards and is never repeated. One writer: the file is locked.
 * Also remembers the highest policy generation seen, so that it can't go back.
 */
#ifndef HB_COMMON_LEDGER_H
#define HB_COMMON_LEDGER_H

#include <jansson.h>
#include <stdint.h>

#include "common/error.h"
#include "common/grant.h"

struct hb_ledger;

/* Opens or creates; rows left "executing" become "outcome_unknown" (count in *recovered when not NULL). */
int hb_ledger_open(const char *path, struct hb_ledger **out, int *recovered, struct hb_error *err);
/* The same for an executor with a journal of its own that knows what became of the operation it was at: that one, when it
 * is still "executing", first gets this final state and result. */
int hb_ledger_open_settled(const char *path, const char *operation_id, const char *state, const json_t *result,
			   struct hb_ledger **out, int *recovered, struct hb_error *err);
void hb_ledger_close(struct hb_ledger *l);

/* Record the grant id and operation as executing. Code grant_replayed when either is known already. */
int hb_ledger_burn(struct hb_ledger *l, const struct hb_grant *g, struct hb_error *err);

/* state: "succeeded", "failed" or "outcome_unknown"; result is kept as JSON. Final states never change. */
int hb_ledger_finish(struct hb_ledger *l, const char *operation_id, const char *state, const json_t *result,
		     struct hb_error *err);

/* {operation_id, grant_id, state, started_at, finished_at, result}; NULL with code unknown_operation. */
json_t *hb_ledger_find(struct hb_ledger *l, const char *operation_id, struct hb_error *err);

/* Raise the remembered generation; code generation_went_back when `generation` is lower than it. */
int hb_ledger_see_generation(struct hb_ledger *l, int64_t generation, struct hb_error *err);

/* The same for the sequence of the approver's control record; 0 when there is none. Code
 * control_went_back. */
int hb_ledger_see_control(struct hb_ledger *l, int64_t sequence, struct hb_error *err);

#endif
