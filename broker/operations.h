/*
 * The broker's memory of operations: one SQLite table, one row an operation.
 *
 * The row is the truth; nothing about an operation lives only in memory, so a restart at any
 * instant finds everything again. The database authorises nothing: executors verify the grant
 * themselves. Rows are committed with synchronous=NORMAL (they survive the death of the process),
 * rows that hold a grant or an outcome with FULL.
 */
#ifndef HB_BROKER_OPERATIONS_H
#define HB_BROKER_OPERATIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/error.h"

enum hb_op_state {
	HB_OP_PREPARED,
	HB_OP_AWAITING,
	HB_OP_APPROVED,
	HB_OP_EXECUTING,
	HB_OP_SUCCEEDED, /* from here on: final */
	HB_OP_FAILED,
	HB_OP_UNKNOWN,
	HB_OP_DENIED,
	HB_OP_EXPIRED,
	HB_OP_CANCELLED,
	HB_OP_REVOKED
};

/* What the approver still has to be told; kept in the row so that a restart doesn't forget it. */
enum hb_op_tell { HB_TELL_NOTHING, HB_TELL_SUBMIT, HB_TELL_WITHDRAW, HB_TELL_OUTCOME };

#define HB_OP_ID 33
#define HB_CAPABILITY 65

struct hb_op {
	/* fixed when it is made */
	char id[HB_OP_ID], capability[HB_CAPABILITY];
	char feature[16], action[24], target[24], user_id[24], session[128];
	char digest[HB_HEX256], summary_digest[HB_HEX256];
	int64_t generation, created_at, expires_at;
	/* what changes */
	enum hb_op_state state;
	enum hb_op_tell tell;
	bool execute_requested; /* the client has sent /execute */
	bool sent;		/* the executor said that it has the grant */
	char channel[24], grant_id[HB_HEX256];
	int64_t decided_at, grant_expires, started_at, finished_at;
	char code[HB_ERROR_CODE_MAX], error[HB_ERROR_MESSAGE_MAX]; /* "" unless refused or failed */
};

/* Larger columns, written along with an update when not NULL. JSON text. */
struct hb_op_extra {
	const char *envelope, *decided_by, *result, *progress;
};

enum hb_op_column { HB_COL_REQUEST, HB_COL_SUMMARY, HB_COL_ENVELOPE, HB_COL_RESULT };

enum hb_op_query {
	HB_Q_RESTORE, /* prepared, approved or executing: what a restart must look at one by one */
	HB_Q_PENDING_DUE, /* prepared or awaiting, expires_at <= arg */
	HB_Q_GRANT_DUE,	  /* approved, grant_expires <= arg */
	HB_Q_OLD_POLICY,  /* prepared, awaiting or approved, generation <> arg */
	HB_Q_TELL	  /* something to tell the approver */
};

struct hb_store;

const char *hb_op_state_name(enum hb_op_state s);
static inline bool
hb_op_final(enum hb_op_state s)
{
	return s >= HB_OP_SUCCEEDED;
}

int hb_store_open(const char *path, struct hb_store **out, struct hb_error *err);
void hb_store_close(struct hb_store *s);

int hb_store_insert(struct hb_store *s, const struct hb_op *op, const char *request,
		    const char *summary, struct hb_error *err);

/* Write what changes, if the row is still in state `from` (code operation_changed otherwise).
 * `durable`: on disk before this returns. */
int hb_store_update(struct hb_store *s, const struct hb_op *op, enum hb_op_state from,
		    const struct hb_op_extra *extra, bool durable, struct hb_error *err);

/* Code unknown_operation when there is none. */
int hb_store_find(struct hb_store *s, const char *id, struct hb_op *op, struct hb_error *err);
int hb_store_find_capability(struct hb_store *s, const char *capability, struct hb_op *op,
			     struct hb_error *err);

/* One like `like` (user, session, digest, generation) that waits for a decision at `now`: 1 found,
 * 0 none, -1. */
int hb_store_find_waiting(struct hb_store *s, const struct hb_op *like, int64_t now,
			  struct hb_op *op);

/* One large column; caller frees. NULL with err when missing. */
char *hb_store_text(struct hb_store *s, const char *id, enum hb_op_column column,
		    struct hb_error *err);

/* Ids of the rows a query finds, oldest first; caller frees *ids. */
int hb_store_ids(struct hb_store *s, enum hb_op_query query, int64_t arg, size_t limit,
		 char (**ids)[HB_OP_ID], size_t *count, struct hb_error *err);
size_t hb_store_live(const struct hb_store *s); /* how many are not final */

/* As clients see it (docs/PROTOCOL.md, One operation): never the capability. New references. */
json_t *hb_store_json(struct hb_store *s, const char *id, struct hb_error *err);
json_t *hb_store_list(struct hb_store *s, int limit, struct hb_error *err); /* newest first */

/* The approver lost its memory or may have: submit everything that awaits a decision again. */
int hb_store_resubmit(struct hb_store *s, struct hb_error *err);
/* Final operations older than `before` go. */
int hb_store_prune(struct hb_store *s, int64_t before, struct hb_error *err);

/* Highest policy generation seen; code generation_went_back when `generation` is lower. */
int hb_store_see_generation(struct hb_store *s, int64_t generation, struct hb_error *err);

#endif
