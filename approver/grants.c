/*
 * Grants: made from decisions that are on disk, and taken to the broker until it has them.
 *
 * Order: the decision's transaction; the audit record; the signature, stored; the delivery. A crash
 * between any two of them is taken up here, from the database. A grant's life counts from the
 * decision, not from the signature.
 */
#include <stdlib.h>
#include <string.h>

#include "approver/approver.h"
#include "approver/telegram.h"
#include "common/grant.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define SLOTS (sizeof(((struct hb_approver *)0)->delivering_ids) / HB_OP_ID)
#define BACKOFF_MAX_SECONDS 15
#define DELIVERY_TIMEOUT_MS 10000

struct parcel {
	struct hb_approver *a;
	char id[HB_OP_ID];
};

static char *
slot_of(struct hb_approver *a, const char *id)
{
	for (size_t i = 0; i < SLOTS; i++)
		if (strcmp(a->delivering_ids[i], id) == 0)
			return a->delivering_ids[i];
	return NULL;
}

static void
undeliverable(struct hb_approver *a, const struct hb_ask *ask, const char *code, const char *note)
{
	hb_ask_delivery(a->decisions, ask->id, HB_DELIVERY_REFUSED, NULL);
	hb_ask_note(a->decisions, ask->id, note, NULL);
	hb_log(HB_LOG_WARN, "grant_unused", "operation", ask->id, "code", code, NULL);
	hb_approver_audit(a, "grant", "refused", ask, "why", code, NULL);
	hb_telegram_edits(a->telegram);
}

static void
fill(struct hb_approver *a, const struct hb_ask *ask, struct hb_grant *g)
{
	hb_random_hex(32, g->grant_id);
	memcpy(g->audience, a->process->host_id, sizeof(a->process->host_id));
	memcpy(g->capability, ask->capability, sizeof(ask->capability));
	memcpy(g->operation_id, ask->id, sizeof(ask->id));
	memcpy(g->target, ask->target, sizeof(g->target));
	memcpy(g->feature, ask->feature, sizeof(g->feature));
	memcpy(g->action, ask->action, sizeof(g->action));
	memcpy(g->digest, ask->digest, sizeof(g->digest));
	memcpy(g->summary_digest, ask->summary_digest, sizeof(g->summary_digest));
	memcpy(g->session, ask->session, sizeof(g->session));
	memcpy(g->requested_by, ask->user_id, sizeof(g->requested_by));
	g->generation = ask->generation;
	g->approved = ask->state == HB_ASK_APPROVED;
	g->user_count =
		hb_decided_by(a->decisions, ask->id, g->approved, g->user_ids, HB_GRANT_USERS_MAX);
	g->issued_at = g->not_before = ask->decided_at;
	g->expires_at = ask->decided_at + a->grant_life;
}

static void
sign_one(struct hb_approver *a, const char *id)
{
	struct hb_grant g = {0};
	struct hb_audit_head at;
	struct hb_ask ask;
	struct hb_error err;
	json_t *envelope;
	char *text, by[HB_GRANT_USERS_MAX * 24] = "";
	bool key_usable;

	if (hb_ask_find(a->decisions, id, &ask, &err) < 0)
		return;
	key_usable = hb_approver_key(a, &err) == 0 && !*a->key_error.code;
	if (ask.decided_at + a->grant_life <= hb_now()) {
		undeliverable(
			a, &ask, "grant_expired",
			key_usable
				? "The decision came to nothing: the approver was down. Nothing was run."
				: "The decision came to nothing: the signing key can't be used. Nothing "
				  "was run.");
		return;
	}
	/* Others may have read it: what it signs proves nothing any more. Health says what to do; it is
	 * tried again with the next tick. A denial can't do harm. */
	if (!key_usable && ask.state == HB_ASK_APPROVED)
		return;
	fill(a, &ask, &g);
	for (size_t i = 0, n = 0; i < g.user_count; i++)
		n += (size_t)snprintf(by + n, sizeof(by) - n, "%s%s", i ? "," : "", g.user_ids[i]);
	/* No record, no grant. It is tried again with the next tick. */
	if (hb_approver_audit(a, "decision", g.approved ? "ok" : "denied", &ask, "by", by,
			      &err) < 0) {
		hb_log(HB_LOG_ERROR, "audit_failed", "operation", id, "error", err.message, NULL);
		return;
	}
	at = hb_audit_head(a->process->audit);
	envelope = hb_grant_seal(&g, a->key, &err);
	text = envelope ? json_dumps(envelope, JSON_COMPACT) : NULL;
	json_decref(envelope);
	if (!text || hb_ask_signed(a->decisions, id, text, g.grant_id, &at, &err) < 0)
		hb_log(HB_LOG_ERROR, "grant_not_signed", "operation", id, "error", err.message,
		       NULL);
	else
		hb_log(HB_LOG_INFO, "signed", "operation", id, "decision",
		       g.approved ? "approved" : "denied", "grant", g.grant_id, NULL);
	free(text);
}

/* Refusals after which a second try can't help. */
static bool
for_good(const char *code)
{
	return strncmp(code, "grant_", 6) == 0 || strcmp(code, "operation_final") == 0 ||
	       strcmp(code, "unknown_operation") == 0;
}

static void
delivered(int status, const json_t *body, const struct hb_error *reason, void *arg)
{
	struct parcel *p = arg;
	struct hb_approver *a = p->a;
	char *slot = slot_of(a, p->id);
	struct hb_error err;
	struct hb_ask ask;

	if (slot)
		*slot = 0;
	a->delivering--;
	if (hb_ask_find(a->decisions, p->id, &ask, NULL) < 0)
		goto out;
	if (status != 0 && hb_reply_failed(status, body, &err) == 0) {
		a->delivery_fails = 0;
		hb_ask_delivery(a->decisions, p->id, HB_DELIVERY_DONE, NULL);
		goto out;
	}
	if (status == 0)
		err = *reason;
	if (status != 0 && for_good(err.code)) {
		undeliverable(a, &ask, err.code,
			      "The broker did not take the decision. Nothing was run.");
		goto out;
	}
	a->delivery_fails++;
	a->deliver_not_before = hb_now() + (a->delivery_fails < 4 ? 1 << (a->delivery_fails - 1)
								  : BACKOFF_MAX_SECONDS);
	hb_log(HB_LOG_WARN, "grant_not_delivered", "operation", p->id, "code", err.code, "error",
	       err.message, NULL);
out:
	free(p);
	hb_grants_tick(a);
}

static void
deliver_one(struct hb_approver *a, const char *id)
{
	struct hb_call call = {.server = HB_PEER_BROKER,
			       .method = "POST",
			       .path = "/approval-grant",
			       .timeout_ms = DELIVERY_TIMEOUT_MS,
			       .on_done = delivered};
	struct hb_ask ask;
	struct parcel *p;
	char *text, *slot;
	json_t *body, *envelope;

	if (hb_ask_find(a->decisions, id, &ask, NULL) < 0)
		return;
	if (ask.decided_at + a->grant_life <= hb_now()) {
		undeliverable(a, &ask, "grant_expired",
			      "The broker could not be reached in time. Nothing was run.");
		return;
	}
	text = hb_ask_envelope(a->decisions, id, NULL);
	envelope = text ? json_loads(text, 0, NULL) : NULL;
	free(text);
	slot = slot_of(a, "");
	if (!envelope || !slot) {
		json_decref(envelope);
		return;
	}
	body = json_pack("{s:s, s:s, s:o}", "operation_id", id, "channel", ask.channel, "envelope",
			 envelope);
	p = hb_calloc(1, sizeof(*p));
	p->a = a;
	memcpy(p->id, id, sizeof(p->id));
	memcpy(slot, id, HB_OP_ID);
	a->delivering++;
	call.body = body;
	call.arg = p;
	hb_client_start(a->process->client, &call);
	json_decref(body);
}

void
hb_grants_tick(struct hb_approver *a)
{
	char(*ids)[HB_OP_ID];
	size_t count;

	if (hb_ask_ids(a->decisions, HB_A_UNSIGNED, 0, 64, &ids, &count, NULL) == 0) {
		for (size_t i = 0; i < count; i++)
			sign_one(a, ids[i]);
		free(ids);
	}
	if (hb_now() < a->deliver_not_before ||
	    hb_ask_ids(a->decisions, HB_A_UNDELIVERED, 0, 2 * SLOTS, &ids, &count, NULL) < 0)
		return;
	for (size_t i = 0; i < count && a->delivering < (int)SLOTS; i++)
		if (!slot_of(a, ids[i]))
			deliver_one(a, ids[i]);
	free(ids);
	hb_telegram_edits(a->telegram);
}
