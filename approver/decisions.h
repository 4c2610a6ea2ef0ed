/*
 * The approver's memory: what was asked, which messages show it, who decided what, and the grants
 * made of it.
 *
 * SQLite. A decision is one transaction together with the update offset it came from,
 * synchronous=FULL, so that an update delivered twice finds the decision already made. Rows of
 * requests alone are NORMAL: the broker asks again.
 */
#ifndef HB_APPROVER_DECISIONS_H
#define HB_APPROVER_DECISIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/audit.h"
#include "common/digest.h"
#include "common/error.h"

enum hb_ask_state {
	HB_ASK_PENDING,
	HB_ASK_APPROVED, /* from here on: closed */
	HB_ASK_DENIED,
	HB_ASK_EXPIRED,
	HB_ASK_WITHDRAWN, /* by the broker */
	HB_ASK_REVOKED,	  /* the policy changed */
	HB_ASK_NOT_SHOWN  /* could not be shown to those who must see it */
};

enum hb_delivery { HB_DELIVERY_NONE, HB_DELIVERY_DUE, HB_DELIVERY_DONE, HB_DELIVERY_REFUSED };

#define HB_OP_ID 33

struct hb_ask {
	char id[HB_OP_ID], capability[65];
	char target[24], feature[16], action[24], user_id[24], session[128];
	char digest[HB_HEX256], summary_digest[HB_HEX256];
	int64_t generation, created_at, expires_at;
	int quorum;
	enum hb_ask_state state;
	enum hb_delivery delivery;
	int64_t decided_at;
	char channel[24];
	char note[256]; /* what became of it, one line for people */
};

enum hb_message_state {
	HB_MSG_SENDING, /* an answer to sendMessage is awaited */
	HB_MSG_SENT,	/* there, without buttons */
	HB_MSG_SHOWN,	/* there, equal to what was sent, with buttons: taps count */
	HB_MSG_VOID	/* its token counts no more */
};

struct hb_message {
	int64_t n; /* row */
	char id[HB_OP_ID], user_id[24], bot[17], token[65];
	int64_t message_id; /* 0: not known */
	enum hb_message_state state;
	bool edit_due;
};

enum hb_ask_query {
	HB_A_DUE,
	HB_A_OLD_POLICY,
	HB_A_UNSIGNED,
	HB_A_UNDELIVERED,
	HB_A_PENDING,
	HB_A_CLOSED
};

struct hb_decisions;

const char *hb_ask_state_name(enum hb_ask_state s);

int hb_decisions_open(const char *path, struct hb_decisions **out, struct hb_error *err);
void hb_decisions_close(struct hb_decisions *d);

int hb_ask_insert(struct hb_decisions *d, const struct hb_ask *ask, const char *summary,
		  struct hb_error *err);
/* Code unknown_operation. */
int hb_ask_find(struct hb_decisions *d, const char *id, struct hb_ask *ask, struct hb_error *err);
/* Caller frees; NULL with err. */
char *hb_ask_summary(struct hb_decisions *d, const char *id, struct hb_error *err);
char *hb_ask_envelope(struct hb_decisions *d, const char *id, struct hb_error *err);
int hb_ask_ids(struct hb_decisions *d, enum hb_ask_query query, int64_t arg, size_t limit,
	       char (**ids)[HB_OP_ID], size_t *count, struct hb_error *err);
int64_t hb_ask_pending(const struct hb_decisions *d);

/* From pending to a closed state without a decision; all its messages are due for an edit. Code
 * request_closed. */
int hb_ask_close(struct hb_decisions *d, const char *id, enum hb_ask_state state, const char *note,
		 struct hb_error *err);
/* What became of it; messages are due for an edit. */
int hb_ask_note(struct hb_decisions *d, const char *id, const char *note, struct hb_error *err);

/* Where an update came from; NULL for the console. */
struct hb_update_mark {
	const char *bot;
	int64_t update_id;
};

/*
 * One person's word, once: in one durable transaction the word, the state it leads to (quorum
 * reached, or vetoed), and the update offset. ask is filled in with the row afterwards. Codes:
 * unknown_operation, request_closed (it was decided, expired, withdrawn; ask says which),
 * already_decided (this user).
 */
int hb_decide(struct hb_decisions *d, const char *id, const char *user_id, bool approve,
	      const char *channel, int64_t now, const struct hb_update_mark *mark,
	      struct hb_ask *ask, struct hb_error *err);
/* User ids who said so, in order. */
size_t hb_decided_by(struct hb_decisions *d, const char *id, bool approve, char (*users)[24],
		     size_t max);

/* at: the audit record of the decision. */
int hb_ask_signed(struct hb_decisions *d, const char *id, const char *envelope,
		  const char *grant_id, const struct hb_audit_head *at, struct hb_error *err);
int hb_ask_delivery(struct hb_decisions *d, const char *id, enum hb_delivery delivery,
		    struct hb_error *err);

/* Messages */
int hb_message_insert(struct hb_decisions *d, struct hb_message *m,
		      struct hb_error *err); /* sets n */
int hb_message_save(struct hb_decisions *d, const struct hb_message *m, struct hb_error *err);
int hb_message_by_token(struct hb_decisions *d, const char *token, struct hb_message *m,
			struct hb_error *err);
/* The one that is shown for this operation to this user by this bot; 1 found, 0 none, -1. */
int hb_message_shown(struct hb_decisions *d, const char *id, const char *user_id, const char *bot,
		     struct hb_message *m, struct hb_error *err);
/* Next message of this bot that has an edit due, after row `after`; 1, 0, -1. */
int hb_message_due(struct hb_decisions *d, const char *bot, int64_t after, struct hb_message *m,
		   struct hb_error *err);
/* At the start: what was half sent can't be believed. Every token of another bot token dies as
 * well. */
int hb_messages_void(struct hb_decisions *d, const char *bot, struct hb_error *err);

/* Update offset of a bot: next update to ask for (0: none yet), and when the last one came. */
int hb_offset_get(struct hb_decisions *d, const char *bot, int64_t *next, int64_t *seen_at,
		  struct hb_error *err);
int hb_offset_set(struct hb_decisions *d, const struct hb_update_mark *mark, int64_t now,
		  struct hb_error *err);

int hb_decisions_see_generation(struct hb_decisions *d, int64_t generation, struct hb_error *err);
/* Closed requests older than `before` go, with their messages. */
int hb_decisions_prune(struct hb_decisions *d, int64_t before, struct hb_error *err);

#endif
