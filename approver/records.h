/*
 * The rest of the approver's memory, in the same database: what became of operations, the control
 * record, and the heads of other processes' audit chains.
 */
#ifndef HB_APPROVER_RECORDS_H
#define HB_APPROVER_RECORDS_H

#include <jansson.h>

#include "approver/decisions.h"
#include "common/audit.h"
#include "policy/control.h"

/* What is known of an operation beyond its request. */
struct hb_ask_record {
	char grant_id[65];
	struct hb_audit_head decided; /* the approver's own record of the decision; seq 0: none */
	char outcome[24];	      /* final state as the broker told it, "" while not known */
	int64_t returncode, duration;
	char output_sha256[65];
	struct hb_audit_head told; /* the approver's record of the outcome */
	char witness[400];	   /* heads that were known then, as text */
};

int hb_record_get(struct hb_decisions *d, const char *id, struct hb_ask_record *r,
		  struct hb_error *err);
/* The first outcome counts: code outcome_known when another one is stored. Messages are due for an
 * edit. */
int hb_record_outcome(struct hb_decisions *d, const char *id, const struct hb_ask_record *r,
		      const char *note, struct hb_error *err);

/* Requests of this user that wait. -1 with err. */
int64_t hb_pending_of(struct hb_decisions *d, const char *user_id, struct hb_error *err);
/* When this operation, asked for by this user, was last denied; 0: never. -1 with err. */
int64_t hb_denied_at(struct hb_decisions *d, const char *digest, const char *user_id,
		     struct hb_error *err);

/* sequence 0 when there never was one. */
int hb_control_get(struct hb_decisions *d, struct hb_control *c, struct hb_error *err);
/* Durable, in one transaction with the update it came from (mark may be NULL). */
int hb_control_put(struct hb_decisions *d, const struct hb_control *c, int64_t now,
		   const struct hb_update_mark *mark, struct hb_error *err);

struct hb_head {
	char process[16];
	struct hb_audit_head head;
	int64_t at;
	char alarm[160]; /* "" unless the chain went back */
};
/* 1 found, 0 none, -1. */
int hb_head_get(struct hb_decisions *d, const char *process, struct hb_head *h,
		struct hb_error *err);
int hb_head_put(struct hb_decisions *d, const struct hb_head *h, struct hb_error *err);
/* A number that survives restarts; 0 when never set. */
int hb_meta_get(struct hb_decisions *d, const char *key, int64_t *value, struct hb_error *err);
int hb_meta_put(struct hb_decisions *d, const char *key, int64_t value, struct hb_error *err);

#endif
