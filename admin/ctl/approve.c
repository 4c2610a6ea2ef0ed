/*
 * The console channel: what waits, and the decision of whoever sits at this terminal. Text and digest come from the
 * approver, which made them itself from the sealed operation; the broker's word is not taken for them.
 */
#include <stdio.h>
#include <string.h>

#include "admin/ctl/ctl.h"
#include "common/json.h"

json_t *ctl_console_pending(struct ctl *c, const char *operation_id, struct hb_error *err)
{
	json_t *answer, *found = NULL;
	char path[96];

	/* One is asked for by its id: the list holds the oldest ones only. */
	if (strlen(operation_id) == 32 && strspn(operation_id, "0123456789abcdef") == 32) {
		snprintf(path, sizeof path, "/console/pending?operation_id=%s", operation_id);
		answer = ctl_call(c, HB_PEER_APPROVER, "GET", path, NULL, err);
		if (!answer)
			return NULL;
		found = json_incref(json_array_get(json_object_get(answer, "pending"), 0));
		json_decref(answer);
	}
	if (!found)
		hb_fail(err, "not_found", "no operation %.64s waits for a decision here; see `hermesctl pending`",
			operation_id);
	return found;
}

int ctl_console_decide(struct ctl *c, const json_t *pending, const char *decision, struct hb_error *err)
{
	json_t *body = json_pack("{s:s,s:s,s:s}", "operation_id", hb_json_text(pending, "operation_id", ""),
				 "decision", decision, "digest", hb_json_text(pending, "digest", ""));
	json_t *answer = ctl_call(c, HB_PEER_APPROVER, "POST", "/console/decide", body, err);

	json_decref(body);
	if (!answer)
		return -1;
	json_decref(answer);
	return 0;
}

int ctl_console_ask(struct ctl *c, const char *operation_id, bool approve, struct hb_error *err)
{
	json_t *pending = ctl_console_pending(c, operation_id, err);
	bool yes = approve;
	int rc = -1;

	if (!pending)
		return -1;
	if (!c->json)
		ctl_print_text(hb_json_text(pending, "summary", ""));
	fflush(stdout);
	if (!approve && ctl_confirm(c, "Approve exactly this operation?", &yes) < 0) {
		hb_fail(err, "no_terminal", "there is no terminal to ask in: run it in one, add --approve to consent "
			"in advance, or set a bot token so that the phone is asked");
		goto out;
	}
	rc = ctl_console_decide(c, pending, yes ? "approved" : "denied", err);
	if (rc == 0 && approve)
		ctl_note(c, "Approved in advance (--approve); the approver signed this digest.");
out:
	json_decref(pending);
	return rc;
}

static int decide_command(struct ctl *c, const char *name, const char *decision, int argc, char **argv)
{
	const char *yes = NULL;
	const struct ctl_option options[] = {{"yes", NULL, "don't ask again", &yes, NULL}};
	struct hb_error err = {0};
	json_t *pending = NULL;
	int rc;

	if (ctl_parse(c, name, options, 1, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	if (strcmp(decision, "approved") == 0)
		rc = ctl_console_ask(c, argv[0], yes != NULL, &err);
	else {
		pending = ctl_console_pending(c, argv[0], &err);
		rc = pending ? ctl_console_decide(c, pending, decision, &err) : -1;
		json_decref(pending);
	}
	if (rc < 0)
		return ctl_error(c, &err);
	return ctl_result(c, json_pack("{s:s,s:s}", "status", "ok", "operation_id", argv[0]), CTL_OK);
}

int ctl_cmd_approve(struct ctl *c, int argc, char **argv)
{
	return decide_command(c, "approve", "approved", argc, argv);
}

int ctl_cmd_deny(struct ctl *c, int argc, char **argv)
{
	return decide_command(c, "deny", "denied", argc, argv);
}

int ctl_cmd_pending(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *answer, *item;
	size_t i;

	if (ctl_parse(c, "pending", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || !(answer = ctl_call(c, HB_PEER_APPROVER, "GET", "/console/pending", NULL, &err)))
		return ctl_error(c, &err);
	json_array_foreach(json_object_get(answer, "pending"), i, item) {
		char when[32];
		if (c->json)
			break;
		ctl_time(hb_json_int(item, "expires_at", 0), when, sizeof when);
		printf("%s  until %s\n", hb_json_text(item, "operation_id", ""), when);
		ctl_print_text(hb_json_text(item, "summary", ""));
		putchar('\n');
	}
	if (!c->json && json_array_size(json_object_get(answer, "pending")) == 0)
		puts("Nothing waits for a decision.");
	return ctl_result(c, answer, CTL_OK);
}

static int control(struct ctl *c, json_t *body, const char *said)
{
	struct hb_error err = {0};
	json_t *answer, *audit;

	answer = ctl_open(c, &err) == 0 ? ctl_call(c, HB_PEER_APPROVER, "POST", "/console/control", body, &err) : NULL;
	json_decref(body);
	if (!answer)
		return ctl_error(c, &err);
	audit = json_object_get(answer, "audit");
	if (!c->json)
		printf("%s\nWitness: approver %lld %.12s\n", said, hb_json_int(audit, "seq", 0), hb_json_text(audit, "hash", ""));
	return ctl_result(c, answer, CTL_OK);
}

int ctl_cmd_pause(struct ctl *c, int argc, char **argv)
{
	if (ctl_parse(c, "pause", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	return control(c, json_pack("{s:s}", "action", "pause"), "PAUSED. Every executor refuses everything until it is resumed.");
}

int ctl_cmd_resume(struct ctl *c, int argc, char **argv)
{
	const char *yes = NULL;
	const struct ctl_option options[] = {{"yes", NULL, "don't ask again", &yes, NULL}};
	struct hb_error err = {0};
	bool sure = true;

	if (ctl_parse(c, "resume", options, 1, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (!yes && ctl_confirm(c, "Resume all operations?", &sure) < 0) {
		hb_fail(&err, "no_terminal", "there is no terminal to ask in: say --yes");
		return ctl_error(c, &err);
	}
	if (!sure) {
		ctl_note(c, "It stays paused.");
		return CTL_FAILED;
	}
	return control(c, json_pack("{s:s}", "action", "resume"), "Resumed.");
}

int ctl_cmd_revoke(struct ctl *c, int argc, char **argv)
{
	if (ctl_parse(c, "revoke", NULL, 0, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	return control(c, strcmp(argv[0], "all") == 0 ? json_pack("{s:s}", "action", "revoke_all")
						      : json_pack("{s:s,s:s}", "action", "revoke", "operation_id", argv[0]),
		       "Revoked. What has begun already goes on.");
}
