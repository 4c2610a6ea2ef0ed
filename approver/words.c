/* What approvers are answered in the chat: plain text, each value from outside escaped, never
 * longer than a message. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "approver/approver.h"
#include "approver/telegram.h"
#include "common/ids.h"
#include "common/json.h"
#include "policy/summary.h"

#define LIST_MAX 8 /* of the longest entries still fit one message */

void
hb_local_time(int64_t t, char *out, size_t size)
{
	time_t when = (time_t)t;
	struct tm tm;

	if (!localtime_r(&when, &tm) || strftime(out, size, "%Y-%m-%d %H:%M:%S %Z", &tm) == 0)
		snprintf(out, size, "%lld", (long long)t);
}

void
hb_words_help(struct hb_buf *out)
{
	hb_buf_adds(out,
		    "Hermes Broker approver\n\n"
		    "/pending  what waits for a decision\n"
		    "/status  how everything is\n"
		    "/history  what was decided last\n"
		    "/receipt ID  one operation, with its place in the audit chain\n"
		    "/revoke ID  take back an approval that has not run, or deny what waits\n"
		    "/revoke all  the same with all of them\n"
		    "/pause  refuse everything, at once\n"
		    "/resume  end a pause (asks once more)\n"
		    "/help  this\n\n"
		    "Decisions are made with the buttons under a request, never by writing.");
}

static void
head_of(const struct hb_ask *ask, size_t n, struct hb_buf *out)
{
	hb_buf_printf(out, "\n\n%zu. %s %s\nOperation %s\nAsked for user %s, session ", n,
		      ask->feature, ask->action, ask->id, ask->user_id);
	hb_escape_value(ask->session, out);
}

void
hb_words_pending(struct hb_approver *a, struct hb_buf *out)
{
	char(*ids)[HB_OP_ID];
	char users[16][24];
	struct hb_ask ask;
	size_t count, shown = 0;
	int64_t now = hb_now();

	if (hb_ask_ids(a->decisions, HB_A_PENDING, now, LIST_MAX, &ids, &count, NULL) < 0) {
		hb_buf_adds(out, "The list can't be read.");
		return;
	}
	hb_buf_printf(out, count ? "%lld waiting for a decision." : "Nothing waits for a decision.",
		      (long long)hb_ask_pending(a->decisions));
	for (size_t i = 0; i < count; i++) {
		if (hb_ask_find(a->decisions, ids[i], &ask, NULL) < 0)
			continue;
		head_of(&ask, ++shown, out);
		hb_buf_printf(out, "\n%zu of %d approvals, %lld min left",
			      hb_decided_by(a->decisions, ask.id, true, users, 16), ask.quorum,
			      (long long)((ask.expires_at - now + 59) / 60));
	}
	free(ids);
}

void
hb_words_history(struct hb_approver *a, struct hb_buf *out)
{
	char(*ids)[HB_OP_ID];
	char when[48];
	struct hb_ask ask;
	struct hb_ask_record r;
	size_t count, shown = 0;

	if (hb_ask_ids(a->decisions, HB_A_CLOSED, 0, LIST_MAX, &ids, &count, NULL) < 0) {
		hb_buf_adds(out, "The list can't be read.");
		return;
	}
	hb_buf_adds(out, count ? "The last decisions." : "Nothing was decided yet.");
	for (size_t i = 0; i < count; i++) {
		if (hb_ask_find(a->decisions, ids[i], &ask, NULL) < 0 ||
		    hb_record_get(a->decisions, ids[i], &r, NULL) < 0)
			continue;
		hb_local_time(ask.decided_at, when, sizeof(when));
		head_of(&ask, ++shown, out);
		hb_buf_printf(out, "\n%s %s%s%s", hb_ask_state_name(ask.state), when,
			      *r.outcome ? ", " : "", r.outcome);
		if (strcmp(r.outcome, "succeeded") == 0 || strcmp(r.outcome, "failed") == 0)
			hb_buf_printf(out, ", exit code %lld", (long long)r.returncode);
	}
	free(ids);
}

void
hb_words_status(struct hb_approver *a, struct hb_buf *out)
{
	static const char *const names[] = {"runtime", "local", "docker", "ssh"};
	json_t *health = hb_approver_health(a), *checks = json_object_get(health, "checks");
	struct hb_audit_head own = hb_audit_head(a->process->audit);
	const char *comma = "";
	char when[48];

	hb_buf_adds(out, "Hermes Broker\n\nPaused: ");
	if (a->control.paused) {
		hb_local_time(a->control.at, when, sizeof(when));
		hb_buf_printf(out, "YES, since %s by user %s", when, a->control.by);
	} else {
		hb_buf_adds(out, a->policy_ok && a->policy.live.paused ? "YES, by the live policy"
								       : "no");
	}
	hb_buf_printf(out, "\nBot: %s", hb_json_text(checks, "bot_state", "?"));
	hb_buf_adds(out, "\nFeatures: ");
	for (unsigned i = 0; i < 4 && a->policy_ok; i++)
		if (a->policy.live.features & (1u << i)) {
			hb_buf_printf(out, "%s%s", comma, names[i]);
			comma = ", ";
		}
	if (!*comma)
		hb_buf_adds(out, "none");
	hb_buf_printf(out, "\nApprovers: %zu\nPolicy generation: %lld\nWaiting: %lld\nKey: %s\n",
		      a->policy_ok ? a->policy.live.user_count : 0,
		      hb_json_int(checks, "policy_generation", 0),
		      (long long)hb_ask_pending(a->decisions), hb_json_text(checks, "key_id", "?"));
	if (json_object_get(health, "error")) {
		hb_buf_adds(out, "Trouble: ");
		hb_escape_value(hb_json_text(health, "error", ""), out);
		hb_buf_addc(out, '\n');
	}
	hb_witness(&own, out);
	hb_witness_others(a, out);
	json_decref(health);
}

int
hb_words_receipt(struct hb_approver *a, const char *id, struct hb_buf *out, struct hb_error *err)
{
	char when[48], users[16][24];
	struct hb_ask ask;
	struct hb_ask_record r;
	size_t n;

	if (hb_ask_find(a->decisions, id, &ask, err) < 0 ||
	    hb_record_get(a->decisions, id, &r, err) < 0)
		return -1;
	hb_buf_printf(out,
		      "Receipt\n\n%s %s\nOperation %s\nDigest %s\nSummary digest %s\nAsked for "
		      "user %s, session ",
		      ask.feature, ask.action, ask.id, ask.digest, ask.summary_digest, ask.user_id);
	hb_escape_value(ask.session, out);
	if (ask.state == HB_ASK_PENDING) {
		hb_buf_adds(out, "\nIt waits for a decision.");
		return 0;
	}
	hb_local_time(ask.decided_at, when, sizeof(when));
	hb_buf_printf(out, "\n\n%s %s%s%s", hb_ask_state_name(ask.state), when,
		      *ask.channel ? " by " : "", ask.channel);
	n = hb_decided_by(a->decisions, id, ask.state == HB_ASK_APPROVED, users, 16);
	for (size_t i = 0; i < n; i++)
		hb_buf_printf(out, "%s%s", i ? ", " : "\nBy user ", users[i]);
	if (*r.grant_id)
		hb_buf_printf(out, "\nGrant %s\n", r.grant_id);
	if (r.decided.seq)
		hb_witness(&r.decided, out);
	if (*ask.note)
		hb_buf_printf(out, "\n\n%s", ask.note);
	if (r.told.seq) {
		hb_buf_addc(out, '\n');
		hb_buf_adds(out, r.witness);
	}
	return 0;
}
