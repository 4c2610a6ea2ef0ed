/* hermesctl docker ... and sandbox run: each becomes one operation that a person decides on.
 * `docker run` with its many options is in docker_run.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/docker.h"
#include "common/buf.h"

int ctl_docker_number(const char *command, const char *name, const char *text, json_t *request,
		      const char *field)
{
	char *end;
	long value;

	if (!text)
		return 0;
	value = strtol(text, &end, 10);
	if (*text < '0' || *text > '9' || *end) {
		fprintf(stderr, "hermesctl %s: --%s wants a number\n", command, name);
		json_decref(request);
		return -1;
	}
	json_object_set_new(request, field, json_integer(value));
	return 0;
}

int ctl_docker_ask(struct ctl *c, const char *feature, json_t *request,
		   const struct ctl_consent *consent)
{
	struct ctl_operate op = {.feature = feature,
				 .request = request,
				 .user = consent->user,
				 .approve = consent->approve != NULL};
	struct hb_error err = {0};
	json_t *final = NULL;
	int code = ctl_operate(c, &op, &final, &err);

	if (code < 0)
		return ctl_error(c, &err);
	ctl_print_outcome(c, final);
	return ctl_result(c, final, code);
}

/* Actions on one thing, or on none. */
static int simple(struct ctl *c, const char *action, const char *field, int argc, char **argv)
{
	struct ctl_consent consent = {0};
	const char *timeout = NULL, *all = NULL, *force = NULL, *volumes = NULL, *tail = NULL;
	struct ctl_option options[6] = {
		{"approve", NULL, "consent in advance; the approver still signs the exact digest",
		 &consent.approve, NULL},
		{"user", "ID", "the user in whose name it is asked", &consent.user, NULL},
		{"timeout", "SECONDS", "how long it may take (default 120)", &timeout, NULL},
	};
	size_t count = 3;
	struct hb_error err = {0};
	char name[40];
	json_t *request;

	if (strcmp(action, "list") == 0)
		options[count++] = (struct ctl_option){"all", NULL, "also those that don't run",
						       &all, NULL};
	if (strcmp(action, "logs") == 0)
		options[count++] = (struct ctl_option){
			"tail", "LINES", "so many from the end (default 200)", &tail, NULL};
	if (strcmp(action, "remove") == 0) {
		options[count++] = (struct ctl_option){"force", NULL, "kill it first when it runs",
						       &force, NULL};
		options[count++] = (struct ctl_option){"volumes", NULL, "its anonymous volumes too",
						       &volumes, NULL};
	}
	snprintf(name, sizeof name, "docker %s", action);
	if (ctl_parse(c, name, options, count, argc, argv, field ? 1 : 0, field ? 1 : 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	request = json_pack("{s:s}", "action", action);
	if (field)
		json_object_set_new(request, field, json_string(argv[0]));
	if (all)
		json_object_set_new(request, "all", json_true());
	if (force)
		json_object_set_new(request, "force", json_true());
	if (volumes)
		json_object_set_new(request, "remove_volumes", json_true());
	if (ctl_docker_number(name, "timeout", timeout, request, "timeout") < 0 ||
	    ctl_docker_number(name, "tail", tail, request, "tail") < 0)
		return CTL_USAGE;
	return ctl_docker_ask(c, "docker", request, &consent);
}

int ctl_cmd_docker_list(struct ctl *c, int argc, char **argv)
{
	return simple(c, "list", NULL, argc, argv);
}

int ctl_cmd_docker_pull(struct ctl *c, int argc, char **argv)
{
	return simple(c, "pull", "image", argc, argv);
}

int ctl_cmd_docker_start(struct ctl *c, int argc, char **argv)
{
	return simple(c, "start", "container", argc, argv);
}

int ctl_cmd_docker_stop(struct ctl *c, int argc, char **argv)
{
	return simple(c, "stop", "container", argc, argv);
}

int ctl_cmd_docker_restart(struct ctl *c, int argc, char **argv)
{
	return simple(c, "restart", "container", argc, argv);
}

int ctl_cmd_docker_remove(struct ctl *c, int argc, char **argv)
{
	return simple(c, "remove", "container", argc, argv);
}

int ctl_cmd_docker_logs(struct ctl *c, int argc, char **argv)
{
	return simple(c, "logs", "container", argc, argv);
}

int ctl_cmd_docker_inspect(struct ctl *c, int argc, char **argv)
{
	return simple(c, "inspect", "container", argc, argv);
}

/* One word is a command for the shell as it stands; several are one argument each, whatever is in
 * them. */
static char *shell_command(int argc, char **argv)
{
	struct hb_buf out = HB_BUF_INIT;

	if (argc == 1)
		return hb_strdup(argv[0]);
	for (int i = 0; i < argc; i++) {
		const char *p = argv[i];

		hb_buf_adds(&out, i ? " '" : "'");
		for (; *p; p++) {
			if (*p == '\'')
				hb_buf_adds(&out, "'\\''");
			else
				hb_buf_addc(&out, *p);
		}
		hb_buf_addc(&out, '\'');
	}
	return hb_buf_take(&out);
}

int ctl_cmd_sandbox_run(struct ctl *c, int argc, char **argv)
{
	struct ctl_consent consent = {0};
	const char *timeout = NULL, *workdir = NULL, *egress = NULL, *raw = NULL;
	const struct ctl_option options[] = {
		{"approve", NULL, "consent in advance; the approver still signs the exact digest",
		 &consent.approve, NULL},
		{"user", "ID", "the user in whose name it is asked", &consent.user, NULL},
		{"timeout", "SECONDS", "how long it may take (default 120)", &timeout, NULL},
		{"workdir", "DIR", "/workspace or a directory below it", &workdir, NULL},
		{"egress", NULL, "with a network", &egress, NULL},
		{"net-raw", NULL, "with raw network packets (ping)", &raw, NULL},
	};
	struct hb_error err = {0};
	json_t *request;
	char *command;
	int words = ctl_parse(c, "sandbox run", options, sizeof options / sizeof *options, argc,
			      argv, 1, 1000);

	if (words < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	command = shell_command(words, argv);
	request = json_pack("{s:s, s:s, s:b}", "command", command, "network",
			    egress ? "egress" : "none", "net_raw", raw != NULL);
	free(command);
	if (!request) {
		fprintf(stderr, "hermesctl sandbox run: the command is not valid UTF-8\n");
		return CTL_USAGE;
	}
	if (workdir)
		json_object_set_new(request, "workdir", json_string(workdir));
	if (ctl_docker_number("sandbox run", "timeout", timeout, request, "timeout") < 0)
		return CTL_USAGE;
	return ctl_docker_ask(c, "local", request, &consent);
}
