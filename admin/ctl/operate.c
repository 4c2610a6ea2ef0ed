/*
 * One operation from asking to outcome: prepare, show the exact text, get a person's decision, follow.
 *
 * The decision is never made here: --approve and a "yes" in the terminal are sent to the approver's console, which
 * signs exactly the digest that it showed itself (approve.c), or refuses.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/buf.h"
#include "common/ids.h"
#include "common/json.h"
#include "policy/live.h"

#define POLL_US 200000

static bool is_final(const char *state)
{
	static const char *const final[] = {"succeeded", "failed", "outcome_unknown", "denied", "expired",
					    "cancelled", "revoked"};

	for (size_t i = 0; i < sizeof final / sizeof final[0]; i++)
		if (strcmp(state, final[i]) == 0)
			return true;
	return false;
}

int ctl_outcome_exit(const json_t *operation)
{
	const char *state = hb_json_text(operation, "state", "");

	if (strcmp(state, "succeeded") == 0)
		return CTL_OK;
	return strcmp(state, "failed") == 0 ? CTL_FAILED : ctl_exit_for(state);
}

void ctl_print_outcome(struct ctl *c, const json_t *operation)
{
	const json_t *result = json_object_get(operation, "result");
	const char *output = hb_json_text(result, "output", "");
	const char *error = hb_json_text(operation, "error", "");

	if (c->json)
		return;
	printf("%s %s: %s\n", hb_json_text(operation, "feature", "operation"),
	       hb_json_text(operation, "action", ""), hb_json_text(operation, "state", "?"));
	if (*output) {
		ctl_print_text(output);
		if (output[strlen(output) - 1] != '\n')
			putchar('\n');
	}
	if (*error) {
		ctl_print_text(error);
		printf(" (%s)\n", hb_json_text(operation, "code", "no code"));
	}
}

int ctl_follow(struct ctl *c, const char *operation_id, json_t **final, struct hb_error *err)
{
	char path[96];
	int failures = 0, waited = 0;

	snprintf(path, sizeof path, "/operations/%s", operation_id);
	for (;;) {
		json_t *op = ctl_call(c, HB_PEER_BROKER, "GET", path, NULL, err);
		if (!op && (strcmp(err->code, "unreachable") != 0 || ++failures > 100))
			return -1; /* a broker that restarts is back within 20 s */
		if (op) {
			const char *state = hb_json_text(op, "state", "");
			failures = 0;
			if (strcmp(state, "executing") == 0)
				ctl_progress(c, json_object_get(op, "progress"));
			/* Not for a decision made a moment ago that is still on its way. */
			if (strcmp(state, "awaiting_approval") == 0 && ++waited == 5)
				ctl_note(c, "Waiting for a decision on %s.", operation_id);
			if (is_final(state)) {
				ctl_progress_end(c);
				*final = op;
				return ctl_outcome_exit(op);
			}
			json_decref(op);
		}
		usleep(POLL_US);
	}
}

/* Whether the phone is asked: the approver says if a bot is configured. */
static bool bot_configured(struct ctl *c)
{
	struct hb_error ignored = {0};
	json_t *health = ctl_call(c, HB_PEER_APPROVER, "GET", "/health", NULL, &ignored);
	bool yes = health && hb_json_bool(json_object_get(health, "checks"), "bot_configured", false);

	json_decref(health);
	return yes;
}

/* 0: decided here or left to the phone; -1: nobody can decide, the operation is taken back. */
static int get_decision(struct ctl *c, const struct ctl_operate *op, const json_t *prepared, struct hb_error *err)
{
	if (!op->approve && bot_configured(c)) {
		if (!c->json)
			ctl_print_text(hb_json_text(prepared, "summary", ""));
		fflush(stdout);
		ctl_note(c, "The request was sent to the approvers in Telegram.");
		return 0;
	}
	return ctl_console_ask(c, hb_json_text(prepared, "operation_id", ""), op->approve, err);
}

static void take_back(struct ctl *c, const json_t *prepared)
{
	struct hb_error ignored = {0};
	json_t *body = json_pack("{s:s}", "capability", hb_json_text(prepared, "capability", ""));

	json_decref(ctl_call(c, HB_PEER_BROKER, "POST", "/cancel", body, &ignored));
	json_decref(body);
}

static int choose_user(const struct ctl_operate *op, char user[24], struct hb_error *err)
{
	struct hb_policy_view view = {0};

	if (op->user) {
		snprintf(user, 24, "%s", op->user);
		return 0;
	}
	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, err) < 0)
		return -1;
	if (view.live.user_count == 0) {
		hb_policy_view_free(&view);
		return hb_fail(err, "no_approver", "live policy names no user: add one with "
			       "`hermesctl policy set --add-user ID`");
	}
	snprintf(user, 24, "%s", hb_policy_user(&view.live, "0") ? "0" : view.live.users[0]);
	hb_policy_view_free(&view);
	return 0;
}

int ctl_operate(struct ctl *c, const struct ctl_operate *op, json_t **final, struct hb_error *err)
{
	char user[24], session[40] = "hermesctl-";
	json_t *body = NULL, *prepared = NULL, *answer = NULL;
	int rc = -1;

	if (choose_user(op, user, err) < 0) {
		json_decref(op->request);
		return -1;
	}
	hb_random_hex(8, session + strlen(session));
	body = json_pack("{s:s,s:o,s:s,s:s}", "feature", op->feature, "request", op->request, "user_id", user,
			 "session", session);
	prepared = ctl_call(c, HB_PEER_BROKER, "POST", "/prepare", body, err);
	json_decref(body);
	if (!prepared)
		return -1;
	body = json_pack("{s:s,s:s,s:s,s:s,s:s,s:b}", "feature", op->feature, "capability",
			 hb_json_text(prepared, "capability", ""), "digest", hb_json_text(prepared, "digest", ""),
			 "user_id", user, "session", session, "async", 1);
	answer = ctl_call(c, HB_PEER_BROKER, "POST", "/execute", body, err);
	json_decref(body);
	if (!answer)
		goto out;
	json_decref(answer);
	if (get_decision(c, op, prepared, err) < 0) {
		take_back(c, prepared);
		goto out;
	}
	rc = ctl_follow(c, hb_json_text(prepared, "operation_id", ""), final, err);
out:
	json_decref(prepared);
	return rc;
}
