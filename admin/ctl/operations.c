/* hermesctl operations ...: what was asked, what became of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/ctl/ctl.h"
#include "common/json.h"

int ctl_cmd_operations_list(struct ctl *c, int argc, char **argv)
{
	const char *limit = NULL;
	const struct ctl_option options[] = {{"limit", "N", "how many (default 20, at most 200)", &limit, NULL}};
	struct hb_error err = {0};
	char path[64];
	json_t *answer, *op;
	size_t i;

	if (ctl_parse(c, "operations list", options, 1, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	snprintf(path, sizeof path, "/operations?limit=%d", limit ? atoi(limit) : 20);
	if (ctl_open(c, &err) < 0 || !(answer = ctl_call(c, HB_PEER_BROKER, "GET", path, NULL, &err)))
		return ctl_error(c, &err);
	json_array_foreach(json_object_get(answer, "operations"), i, op) {
		char when[32];
		if (c->json)
			break;
		ctl_time(hb_json_int(op, "created_at", 0), when, sizeof when);
		printf("%s  %s  %-8s %-10s %s\n", hb_json_text(op, "operation_id", "?"), when,
		       hb_json_text(op, "feature", "?"), hb_json_text(op, "action", ""), hb_json_text(op, "state", "?"));
	}
	return ctl_result(c, answer, CTL_OK);
}

static json_t *get_operation(struct ctl *c, const char *id, struct hb_error *err)
{
	char path[96];

	if (strlen(id) != 32 || strspn(id, "0123456789abcdef") != 32) {
		hb_fail(err, "not_found", "an operation id is 32 hex digits; see `hermesctl operations list`");
		return NULL;
	}
	snprintf(path, sizeof path, "/operations/%s", id);
	return ctl_call(c, HB_PEER_BROKER, "GET", path, NULL, err);
}

static void print_times(const json_t *op)
{
	static const char *const members[] = {"created_at", "expires_at", "decided_at", "started_at", "finished_at"};

	for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
		char when[32];
		ctl_time(hb_json_int(op, members[i], 0), when, sizeof when);
		printf("%-12s %s\n", members[i], when);
	}
}

int ctl_cmd_operations_show(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *op;

	if (ctl_parse(c, "operations show", NULL, 0, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || !(op = get_operation(c, argv[0], &err)))
		return ctl_error(c, &err);
	if (!c->json) {
		printf("operation    %s\nstate        %s\ndigest       %s\nuser         %s\nchannel      %s\n",
		       hb_json_text(op, "operation_id", "?"), hb_json_text(op, "state", "?"),
		       hb_json_text(op, "digest", "?"), hb_json_text(op, "user_id", "?"),
		       hb_json_text(op, "channel", "-"));
		print_times(op);
		putchar('\n');
		ctl_print_text(hb_json_text(op, "summary", ""));
		putchar('\n');
		ctl_print_outcome(c, op);
	}
	return ctl_result(c, op, CTL_OK);
}

int ctl_cmd_operations_watch(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *op = NULL;
	int code;

	if (ctl_parse(c, "operations watch", NULL, 0, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || !(op = get_operation(c, argv[0], &err)))
		return ctl_error(c, &err);
	json_decref(op);
	code = ctl_follow(c, argv[0], &op, &err);
	if (code < 0)
		return ctl_error(c, &err);
	ctl_print_outcome(c, op);
	return ctl_result(c, op, code);
}

int ctl_cmd_operations_cancel(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *body, *answer;

	if (ctl_parse(c, "operations cancel", NULL, 0, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	body = json_pack("{s:s}", "operation_id", argv[0]);
	answer = ctl_call(c, HB_PEER_BROKER, "POST", "/cancel", body, &err);
	json_decref(body);
	if (!answer)
		return ctl_error(c, &err);
	if (!c->json)
		puts("cancelled");
	return ctl_result(c, answer, CTL_OK);
}
