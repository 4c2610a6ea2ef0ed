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
	json_t *answer = ctl_call(c, HB_PEER_APPROVER, "GET", "/console/pending", NULL, err), *item, *found = NULL;
	size_t i;

	if (!answer)
		return NULL;
	json_array_foreach(json_object_get(answer, "pending"), i, item)
		if (strcmp(hb_json_text(item, "operation_id", ""), operation_id) == 0)
			found = json_incref(item);
	json_decref(answer);
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
