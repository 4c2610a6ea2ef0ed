/* hermesctl runtime ...: the operations that need a grant, and what can be looked at without one. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/json.h"

/* install, start, stop, restart differ only in what the request holds. */
static int operate_command(struct ctl *c, const char *action, int argc, char **argv)
{
	char name[40];
	const char *image = NULL, *approve = NULL, *user = NULL, *platform = NULL, *pin = NULL;
	const struct ctl_option options[] = {
		{"approve", NULL, "consent in advance; the approver still signs the exact digest", &approve, NULL},
		{"user", "ID", "the user in whose name it is asked", &user, NULL},
		{"image", "REF", "repository:tag@sha256:... instead of the configured image", &image, NULL},
		{"platform", "OS/ARCH", "linux/amd64 or linux/arm64 (default: this machine)", &platform, NULL},
		{"platform-digest", "DIGEST", "the manifest that the platform must resolve to", &pin, NULL},
	};
	bool install = strcmp(action, "install") == 0;
	struct ctl_operate op = {.feature = "runtime"};
	struct hb_error err = {0};
	json_t *final = NULL;
	int code;

	snprintf(name, sizeof name, "runtime %s", action);
	if (ctl_parse(c, name, options, install ? 5 : 2, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	op.request = json_pack("{s:s}", "action", action);
	if (install) {
		if (!image)
			image = hb_config_text(c->config, "runtime.image");
		json_object_set_new(op.request, "image", json_string(image));
		if (platform)
			json_object_set_new(op.request, "platform", json_string(platform));
		if (pin)
			json_object_set_new(op.request, "platform_digest", json_string(pin));
	}
	op.user = user;
	op.approve = approve != NULL;
	code = ctl_operate(c, &op, &final, &err);
	if (code < 0)
		return ctl_error(c, &err);
	ctl_print_outcome(c, final);
	return ctl_result(c, final, code);
}

int ctl_cmd_runtime_install(struct ctl *c, int argc, char **argv)
{
	return operate_command(c, "install", argc, argv);
}

int ctl_cmd_runtime_start(struct ctl *c, int argc, char **argv)
{
	return operate_command(c, "start", argc, argv);
}

int ctl_cmd_runtime_stop(struct ctl *c, int argc, char **argv)
{
	return operate_command(c, "stop", argc, argv);
}

int ctl_cmd_runtime_restart(struct ctl *c, int argc, char **argv)
{
	return operate_command(c, "restart", argc, argv);
}

static json_t *get_runtime(struct ctl *c, const char *command, int argc, char **argv, int *code)
{
	struct hb_error err = {0};
	json_t *answer;

	if (ctl_parse(c, command, NULL, 0, argc, argv, 0, 0) < 0) {
		*code = CTL_USAGE;
		return NULL;
	}
	if (ctl_open(c, &err) < 0 || !(answer = ctl_call(c, HB_PEER_BROKER, "GET", "/runtime", NULL, &err))) {
		*code = ctl_error(c, &err);
		return NULL;
	}
	return answer;
}

static void print_check(const char *name, const json_t *value)
{
	if (json_is_string(value)) {
		printf("  %-15s ", name);
		ctl_print_text(json_string_value(value));
		putchar('\n');
	} else if (json_is_boolean(value))
		printf("  %-15s %s\n", name, json_is_true(value) ? "ok" : "FAILED");
}

static void print_tools(const json_t *tools)
{
	json_t *tool;
	size_t i;

	if (json_array_size(tools) == 0)
		return;
	printf("MCP tools        ");
	json_array_foreach(tools, i, tool) {
		printf("%s", i ? ", " : "");
		ctl_print_text(json_is_string(tool) ? json_string_value(tool) : "?");
	}
	putchar('\n');
}

void ctl_print_runtime(const json_t *r)
{
	static const struct {
		const char *label, *member;
	} lines[] = {{"image", "installed_image"}, {"manifest", "manifest_digest"}, {"platform", "platform"},
		     {"tree digest", "tree_digest"}, {"isolation", "isolation"},     {"supervisor", "supervisor"},
		     {"desired", "desired"},       {"address", "address"}};
	const json_t *process = json_object_get(r, "process"), *health = json_object_get(r, "health"), *v;
	const char *key;
	char when[32];

	if (!hb_json_bool(r, "installed", false)) {
		puts("Nothing is installed.");
		return;
	}
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		printf("%-16s ", lines[i].label);
		ctl_print_text(hb_json_text(r, lines[i].member, "-"));
		putchar('\n');
	}
	ctl_time(hb_json_int(process, "started_at", 0), when, sizeof when);
	printf("%-16s %s, pid %lld, since %s, %lld restarts\n", "process", hb_json_text(process, "state", "?"),
	       hb_json_int(process, "pid", 0), when, hb_json_int(process, "restarts", 0));
	printf("%-16s %s\n", "health", hb_json_bool(health, "ok", false) ? "ok" : "NOT OK");
	json_object_foreach((json_t *)json_object_get(health, "checks"), key, v)
		print_check(key, v);
	print_tools(json_object_get(health, "tools"));
	if (*hb_json_text(health, "last_failure", "")) {
		printf("%-16s ", "last failure");
		ctl_print_text(hb_json_text(health, "last_failure", ""));
		putchar('\n');
	}
}

int ctl_cmd_runtime_status(struct ctl *c, int argc, char **argv)
{
	int code = CTL_OK;
	json_t *r = get_runtime(c, "runtime status", argc, argv, &code);

	if (!r)
		return code;
	if (!c->json)
		ctl_print_runtime(r);
	if (!hb_json_bool(json_object_get(r, "health"), "ok", false))
		code = CTL_FAILED;
	return ctl_result(c, r, code);
}

static void print_differences(const json_t *verify)
{
	json_t *d;
	size_t i;

	json_array_foreach(json_object_get(verify, "differences"), i, d) {
		ctl_print_text(hb_json_text(d, "path", "?"));
		printf(": ");
		ctl_print_text(hb_json_text(d, "what", "?"));
		printf(", expected ");
		ctl_print_text(hb_json_text(d, "expected", "-"));
		printf(", found ");
		ctl_print_text(hb_json_text(d, "found", "-"));
		putchar('\n');
	}
}

int ctl_cmd_runtime_verify(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *body = NULL, *answer, *verify;
	bool ok;
	char bytes[32];

	if (ctl_parse(c, "runtime verify", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	body = json_object();
	answer = ctl_open(c, &err) < 0 ? NULL : ctl_call(c, HB_PEER_BROKER, "POST", "/runtime/verify", body, &err);
	json_decref(body);
	if (!answer)
		return ctl_error(c, &err);
	for (;;) {
		json_decref(answer);
		if (!(answer = ctl_call(c, HB_PEER_BROKER, "GET", "/runtime", NULL, &err)))
			return ctl_error(c, &err);
		verify = json_object_get(answer, "verify");
		if (strcmp(hb_json_text(verify, "state", ""), "running") != 0)
			break;
		usleep(150000);
	}
	ok = hb_json_bool(verify, "ok", false);
	if (!c->json) {
		ctl_bytes((double)hb_json_int(verify, "bytes", 0), bytes, sizeof bytes);
		printf("%s: %lld files, %s\n", ok ? "The tree equals its manifest" : "THE TREE DIFFERS",
		       hb_json_int(verify, "files", 0), bytes);
		print_differences(verify);
		if (*hb_json_text(verify, "error", ""))
			ctl_note(c, "%s", hb_json_text(verify, "error", ""));
	}
	verify = json_incref(verify);
	json_decref(answer);
	return ctl_result(c, verify, ok ? CTL_OK : CTL_FAILED);
}

int ctl_cmd_runtime_releases(struct ctl *c, int argc, char **argv)
{
	int code = CTL_OK;
	json_t *r = get_runtime(c, "runtime releases", argc, argv, &code), *releases, *item;
	size_t i;

	if (!r)
		return code;
	releases = json_incref(json_object_get(r, "releases"));
	json_decref(r);
	json_array_foreach(releases, i, item) {
		if (c->json)
			break;
		printf("%c %s  ", hb_json_bool(item, "current", false) ? '*' :
		       hb_json_bool(item, "previous", false) ? '-' : ' ', hb_json_text(item, "manifest_digest", "?"));
		ctl_print_text(hb_json_text(item, "image", ""));
		putchar('\n');
	}
	if (!c->json && json_array_size(releases) == 0)
		puts("No release is on disk.");
	return ctl_result(c, json_pack("{s:o}", "releases", releases), CTL_OK);
}
