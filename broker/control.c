/*
 * The approver's own word as the broker hears it: keys, pause and revocations from public/, and
 * whether the approver is there at all.
 *
 * Executors check the same themselves, so nothing here is what keeps anybody safe. It is here so
 * that clients learn at once that everything is paused or that an approval was taken back, and so
 * that nothing is begun while nobody could stop it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"

#define HEADS_SECONDS 15

static int
load(struct hb_broker *b, struct hb_error *err)
{
	struct hb_control fresh;
	struct hb_keyring keys;

	if (hb_keyring_load(AT_FDCWD, hb_now(), &keys, err) < 0)
		return -1;
	b->keys = keys;
	if (hb_control_load(&keys, b->process->host_id, &fresh, err) < 0)
		return -1;
	if (fresh.sequence < b->word_seen)
		return hb_fail(err, "control_went_back",
			       "the approver's control record is number %lld and %lld was seen "
			       "before; restart "
			       "hermes-approver, which writes it again",
			       (long long)fresh.sequence, (long long)b->word_seen);
	b->word_seen = fresh.sequence;
	b->word = fresh;
	return 0;
}

/* Approved and not begun, and taken back since: its client is told now, not when the executor
 * refuses. */
static void
end_revoked(struct hb_broker *b)
{
	char(*ids)[HB_OP_ID];
	struct hb_op op;
	size_t count;

	if (hb_store_ids(b->store, HB_Q_RESTORE, 0, hb_store_live(b->store) + 1, &ids, &count,
			 NULL) < 0)
		return;
	for (size_t i = 0; i < count; i++)
		if (!hb_run_active(b, ids[i]) && hb_store_find(b->store, ids[i], &op, NULL) == 0 &&
		    op.state == HB_OP_APPROVED &&
		    hb_control_revokes(&b->word, op.id, op.decided_at))
			hb_flow_end(b, &op, HB_OP_REVOKED, "grant_revoked",
				    "the approval was taken back");
	free(ids);
}

void
hb_broker_control(struct hb_broker *b)
{
	int64_t before = b->word.sequence;
	struct hb_error err;

	b->word_ok = load(b, &err) == 0;
	if (!b->word_ok) {
		if (strcmp(b->word_error.message, err.message) != 0)
			hb_log(HB_LOG_ERROR, "control_unusable", "code", err.code, "error",
			       err.message, NULL);
		b->word_error = err;
		return;
	}
	memset(&b->word_error, 0, sizeof(b->word_error));
	if (b->word.sequence != before) {
		hb_log(HB_LOG_WARN, "control", "paused", b->word.paused ? "yes" : "no", "by",
		       b->word.by, NULL);
		end_revoked(b);
	}
}

void
hb_broker_heard(struct hb_broker *b)
{
	b->approver_heard_ms = hb_monotonic_ms();
}

int
hb_broker_ready(struct hb_broker *b, struct hb_error *err)
{
	int64_t silent = (hb_monotonic_ms() - b->approver_heard_ms) / 1000;

	hb_broker_control(b);
	if (!b->word_ok) {
		*err = b->word_error;
		return -1;
	}
	if (hb_control_permits(&b->word, err) < 0)
		return -1;
	if (b->approver_silence > 0 && silent > b->approver_silence)
		return hb_fail(err, "approver_silent",
			       "nothing was heard of hermes-approver for %lld s, so nothing is "
			       "begun: nobody could "
			       "take it back (broker.approver_silence)",
			       (long long)silent);
	return 0;
}

json_t *
hb_broker_heads(struct hb_broker *b)
{
	struct hb_audit_head own = hb_audit_head(b->process->audit);
	json_t *heads = json_pack("{s:{s:I, s:s, s:I}}", "broker", "seq", (json_int_t)own.seq,
				  "hash", own.hash, "at", (json_int_t)hb_now());

	for (int i = 0; i < HB_SVC_COUNT; i++) {
		const struct hb_service_state *s = &b->services[i];

		if (s->peer != HB_PEER_APPROVER && s->head.seq > 0)
			json_object_set_new(heads, hb_peer_dir(s->peer),
					    json_pack("{s:I, s:s, s:I}", "seq",
						      (json_int_t)s->head.seq, "hash", s->head.hash,
						      "at", (json_int_t)s->checked_at));
	}
	return heads;
}

static void
heads_delivered(int status, const json_t *body, const struct hb_error *err, void *arg)
{
	struct hb_broker *b = arg;

	b->heads_inflight = false;
	if (status != 0)
		hb_broker_heard(b);
}

/* Only the places count, not when they were looked at. */
static bool
same_places(const json_t *x, const json_t *y)
{
	const char *name;
	json_t *value;

	if (json_object_size(x) != json_object_size(y))
		return false;
	json_object_foreach ((json_t *)(uintptr_t)x, name, value)
		if (!json_equal(json_object_get(value, "hash"),
				json_object_get(json_object_get(y, name), "hash")))
			return false;
	return true;
}

void
hb_broker_send_heads(struct hb_broker *b)
{
	struct hb_call call = {.server = HB_PEER_APPROVER,
			       .method = "POST",
			       .path = "/heads",
			       .header_name = "X-Approval-Secret",
			       .timeout_ms = HB_CALL_TIMEOUT_MS,
			       .on_done = heads_delivered,
			       .arg = b};
	int64_t now = hb_now();
	json_t *heads, *body;

	if (b->heads_inflight ||
	    (now >= b->heads_sent_at && now - b->heads_sent_at < HEADS_SECONDS) ||
	    hb_secret_watch(&b->approval, NULL) < 0)
		return;
	heads = hb_broker_heads(b);
	if (b->heads_sent && same_places(heads, b->heads_sent)) {
		json_decref(heads);
		return;
	}
	json_decref(b->heads_sent);
	b->heads_sent = heads;
	b->heads_sent_at = now;
	b->heads_inflight = true;
	body = json_pack("{s:O}", "heads", heads);
	call.header_value = b->approval.secret.text;
	call.body = body;
	hb_client_start(b->process->client, &call);
	json_decref(body);
}
