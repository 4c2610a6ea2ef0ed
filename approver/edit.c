/*
 * Messages are kept true: what became of a request is written under it, and its buttons go. Due
 * edits are marked in the database, so none is forgotten by a restart or a rate limit; they go out
 * one after the other.
 */
#include <stdlib.h>
#include <string.h>

#include "approver/telegram_internal.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define RETRY_FIRST_MS 1000
#define RETRY_MAX_MS 60000
#define MESSAGE_MAX 4096 /* UTF-16 units */

static void
names(struct hb_approver *a, const struct hb_ask *ask, bool approve, struct hb_buf *out)
{
	char users[16][24];
	size_t n = hb_decided_by(a->decisions, ask->id, approve, users, 16);

	for (size_t i = 0; i < n; i++)
		hb_buf_printf(out, "%s%s", i ? ", " : "", users[i]);
}

void
hb_status_line(struct hb_approver *a, const struct hb_ask *ask, const struct hb_message *m,
	       struct hb_buf *out)
{
	char when[48], users[16][24];
	struct hb_ask_record r;
	size_t n;

	hb_local_time(ask->decided_at, when, sizeof(when));
	if (hb_record_get(a->decisions, ask->id, &r, NULL) < 0)
		memset(&r, 0, sizeof(r));
	if (m->state == HB_MSG_VOID && ask->state == HB_ASK_PENDING) {
		hb_buf_adds(out, "SUPERSEDED by a newer message. Nothing was run from here.");
		return;
	}
	switch (ask->state) {
	case HB_ASK_PENDING:
		n = hb_decided_by(a->decisions, ask->id, true, users, 16);
		hb_buf_printf(out, "%zu of %d approvals so far", n, ask->quorum);
		if (n > 0) {
			hb_buf_adds(out, ": ");
			names(a, ask, true, out);
		}
		hb_buf_addc(out, '.');
		return;
	case HB_ASK_APPROVED:
		hb_buf_adds(out, "APPROVED by ");
		names(a, ask, true, out);
		break;
	case HB_ASK_DENIED:
		hb_buf_adds(out, "DENIED by ");
		names(a, ask, false, out);
		break;
	case HB_ASK_EXPIRED:
		hb_buf_adds(out, "EXPIRED");
		break;
	case HB_ASK_WITHDRAWN:
		hb_buf_adds(out, "WITHDRAWN");
		break;
	case HB_ASK_REVOKED:
		hb_buf_adds(out, "CLOSED");
		break;
	case HB_ASK_NOT_SHOWN:
		hb_buf_adds(out, "REFUSED");
		break;
	}
	hb_buf_printf(out, " at %s%s%s.", when, *ask->channel ? " by " : "", ask->channel);
	/* Kept on the phone: where in the chain the decision stands, and later the outcome
	 * (docs/TELEGRAM.md). */
	if (r.decided.seq) {
		hb_buf_addc(out, '\n');
		hb_witness(&r.decided, out);
	}
	if (*ask->note)
		hb_buf_printf(out, "\n%s", ask->note);
	if (r.told.seq)
		hb_buf_printf(out, "\n%s", r.witness);
	if (ask->state != HB_ASK_APPROVED)
		hb_buf_adds(out, "\nNothing was run.");
}

/* Everything the status line depends on, so that a change while an edit was on its way is noticed.
 */
static void
version(struct hb_approver *a, const struct hb_ask *ask, const struct hb_message *m, char *out,
	size_t size)
{
	char users[16][24];

	snprintf(out, size, "%d %d %zu %s", ask->state, m->state,
		 hb_decided_by(a->decisions, ask->id, true, users, 16), ask->note);
}

static json_t *
edit_params(struct hb_telegram *t, const struct hb_message *m)
{
	struct hb_buf full = HB_BUF_INIT;
	struct hb_ask ask;
	json_t *params;

	if (hb_ask_find(t->a->decisions, m->id, &ask, NULL) < 0 ||
	    hb_message_text(t->a, &ask, &full, NULL) < 0) {
		hb_buf_free(&full);
		return NULL;
	}
	hb_buf_adds(&full, "\n\n");
	hb_status_line(t->a, &ask, m, &full);
	/* Too long with many names or chains: what was asked stands in the audit log and in the
	 * receipt, what became of it can't be left out. Never while there are buttons under it. */
	if (hb_utf16_length(full.data) > MESSAGE_MAX && ask.state != HB_ASK_PENDING) {
		hb_buf_clear(&full);
		hb_buf_printf(&full, "Approval request\n\n%s %s\nOperation %s\nDigest %s\n\n",
			      ask.feature, ask.action, ask.id, ask.digest);
		hb_status_line(t->a, &ask, m, &full);
	}
	params = json_pack("{s:s, s:I, s:s, s:{s:b}}", "chat_id", m->user_id, "message_id",
			   (json_int_t)m->message_id, "text", full.data, "link_preview_options",
			   "is_disabled", 1);
	/* Without markup the buttons go; they stay only while somebody else still has to decide. */
	if (ask.state == HB_ASK_PENDING && m->state == HB_MSG_SHOWN)
		json_object_set_new(params, "reply_markup", hb_buttons(m->token));
	hb_buf_free(&full);
	version(t->a, &ask, m, t->edit_version, sizeof(t->edit_version));
	return params;
}

static void
put_off(struct hb_telegram *t)
{
	int64_t ms = (int64_t)RETRY_FIRST_MS << (t->edit_fails < 6 ? t->edit_fails : 6);

	t->edit_fails++;
	t->edit_not_before_ms = hb_monotonic_ms() + (ms > RETRY_MAX_MS ? RETRY_MAX_MS : ms);
}

static void
edited(const struct hb_bot_reply *r, void *arg)
{
	struct hb_telegram *t = arg;
	struct hb_message *m = &t->editing, now;
	char fresh[sizeof(t->edit_version)] = "";
	struct hb_ask ask;

	t->edit = NULL;
	if (r->error_code == 429 && !r->ok) {
		hb_method_block(t, HB_M_EDIT, r->retry_after);
		goto out;
	}
	if (!r->ok && r->error_code != 400 && r->error_code != 403) {
		put_off(t);
		goto out;
	}
	t->edit_fails = 0;
	if (!r->ok)
		hb_log(HB_LOG_DEBUG, "edit_refused", "operation", m->id, "error", r->description,
		       NULL);
	/* What is true may have changed again while this was on its way. */
	if (hb_message_by_token(t->a->decisions, m->token, &now, NULL) == 1) {
		if (hb_ask_find(t->a->decisions, now.id, &ask, NULL) == 0)
			version(t->a, &ask, &now, fresh, sizeof(fresh));
		if (strcmp(fresh, t->edit_version) == 0) {
			now.edit_due = false;
			hb_message_save(t->a->decisions, &now, NULL);
		}
	}
out:
	hb_telegram_edits(t);
}

void
hb_telegram_edits(struct hb_telegram *t)
{
	json_t *params;

	if (t->edit || !*t->fp || !hb_bot_usable(t) || hb_method_wait(t, HB_M_EDIT) > 0 ||
	    hb_monotonic_ms() < t->edit_not_before_ms)
		return;
	while (hb_message_due(t->a->decisions, t->fp, 0, &t->editing, NULL) == 1) {
		params = edit_params(t, &t->editing);
		if (params) {
			t->edit = hb_bot_call(t->bot, "editMessageText", params, HB_CALL_MS, edited,
					      t);
			return;
		}
		t->editing.edit_due = false; /* its request is gone */
		if (hb_message_save(t->a->decisions, &t->editing, NULL) < 0)
			return;
	}
}
