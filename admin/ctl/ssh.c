/*
 * hermesctl ssh run: one command on a host that has a profile. Words are an exact argument vector,
 * so that nothing is parsed twice; --shell sends one text to the login shell there instead.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/ctl/ctl.h"
#include "common/json.h"
#include "policy/ssh_profile.h"

int ctl_cmd_ssh_run(struct ctl *c, int argc, char **argv)
{
	const char *approve = NULL, *user = NULL, *timeout = NULL, *shell = NULL;
	const struct ctl_option options[] = {
		{"approve", NULL, "consent in advance; the approver still signs the exact digest",
		 &approve, NULL},
		{"user", "ID", "the user in whose name it is asked", &user, NULL},
		{"timeout", "SECONDS", "how long it may take (default 120)", &timeout, NULL},
		{"shell", NULL, "CMD is one text for the remote login shell", &shell, NULL},
	};
	int words = ctl_parse(c, "ssh run", options, sizeof options / sizeof *options, argc, argv,
			      2, 66),
	    code;
	struct ctl_operate op = {.feature = "ssh"};
	struct hb_error err = {0};
	json_t *final = NULL, *list = json_array();
	char *end = NULL;

	if (words < 0)
		return CTL_USAGE;
	for (int i = 1; i < words; i++)
		if (json_array_append_new(list, json_string(argv[i])) < 0) {
			fprintf(stderr,
				"hermesctl ssh run: word %d is not valid UTF-8 and can't be sent\n",
				i);
			return CTL_USAGE;
		}
	if (shell && words != 2) {
		fprintf(stderr, "hermesctl ssh run: --shell takes the command as one argument\n");
		return CTL_USAGE;
	}
	op.request = json_pack("{s:s, s:O}", "profile", argv[0], shell ? "command" : "argv",
			       shell ? json_array_get(list, 0) : list);
	json_decref(list);
	if (!op.request) {
		fprintf(stderr, "hermesctl ssh run: the name of the profile is not valid UTF-8\n");
		return CTL_USAGE;
	}
	if (timeout)
		json_object_set_new(op.request, "timeout", json_integer(strtol(timeout, &end, 10)));
	if (timeout && (*timeout < '0' || *timeout > '9' || *end)) {
		fprintf(stderr, "hermesctl ssh run: --timeout wants a number\n");
		return CTL_USAGE;
	}
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	op.user = user;
	op.approve = approve != NULL;
	code = ctl_operate(c, &op, &final, &err);
	if (code < 0)
		return ctl_error(c, &err);
	ctl_print_outcome(c, final);
	return ctl_result(c, final, code);
}

static void print_profile(const json_t *p)
{
	printf("%-20s ", hb_json_text(p, "name", "?"));
	ctl_print_text(hb_json_text(p, "user", ""));
	putchar('@');
	ctl_print_text(hb_json_text(p, "host", "?"));
	printf(":%lld  %s, authority %s, %s\n", hb_json_int(p, "port", 0),
	       hb_json_text(p, "auth", "?"), hb_json_text(p, "authority", "?"),
	       hb_json_text(p, "fingerprint", "?"));
}

int ctl_cmd_ssh_profile_list(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *answer, *item;
	size_t i, broken;

	if (ctl_parse(c, "ssh profile list", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	answer = ctl_open(c, &err) < 0 ? NULL
				       : ctl_call(c, HB_PEER_SSH, "GET", "/profiles", NULL, &err);
	if (!answer)
		return ctl_error(c, &err);
	broken = json_array_size(json_object_get(answer, "broken"));
	if (!c->json) {
		json_array_foreach(json_object_get(answer, "profiles"), i, item) {
			print_profile(item);
		}
		json_array_foreach(json_object_get(answer, "broken"), i, item) {
			printf("%-20s NOT USABLE: ", hb_json_text(item, "name", "?"));
			ctl_print_text(hb_json_text(item, "error", ""));
			putchar('\n');
		}
		if (broken == 0 && json_array_size(json_object_get(answer, "profiles")) == 0)
			puts("No profile yet; `hermesctl ssh profile add` makes one.");
	}
	return ctl_result(c, answer, broken ? CTL_FAILED : CTL_OK);
}
