/* hermesctl runtime ...: the operations that need a grant, and what can be looked at without one. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/json.h"
#include "policy/summary.h"

/* Which options an action has besides those that all have. */
#define WITH_IMAGE 1u
#define WITH_RELEASE 2u
#define WITH_PLAN 4u

struct wishes {
	const char *approve, *user, *image, *platform, *pin, *release, *data, *plan;
};

static json_t *request_of(const struct ctl *c, const char *action, unsigned with, const struct wishes *w)
{
	json_t *request = json_pack("{s:s}", "action", action);
	const char *image = w->image;

	if (with & WITH_IMAGE && !image)
		image = hb_config_text(c->config, "runtime.image");
	const struct {
		const char *name, *value;
	} fields[] = {{"image", image}, {"platform", w->platform}, {"platform_digest", w->pin},
		      {"release", w->release}, {"data", w->data}};
	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
		if (fields[i].value)
			json_object_set_new(request, fields[i].name, json_string(fields[i].value));
	return request;
}

/*
 * What an approver would be shown, and nothing else: the installer seals it, as it does for the broker, and it ends here.
 * The broker and the approver never hear of it, so there is nothing that could be approved.
 */
static int show_plan(struct ctl *c, json_t *request)
{
	json_t *body = json_pack("{s:s, s:o}", "feature", "runtime", "request", request), *warnings = NULL, *w;
	struct hb_buf text = HB_BUF_INIT;
	struct hb_error err = {0};
	json_t *answer = ctl_call(c, HB_PEER_INSTALLER, "POST", "/seal", body, &err);
	int code = -1;
	size_t i;

	json_decref(body);
	if (answer && hb_summary("runtime", json_object_get(answer, "request"), &text, &warnings, &err) == 0)
		code = CTL_OK;
	if (code == CTL_OK && !c->json) {
		fwrite(text.data, 1, text.len, stdout);
		json_array_foreach(warnings, i, w) {
			printf("\nNote: ");
			ctl_print_text(hb_json_text(w, "text", ""));
		}
		puts("\nThis is a plan: nothing was asked for and nothing has changed. Without --plan it is asked for.");
	}
	if (code == CTL_OK)
		code = ctl_result(c, json_pack("{s:s, s:O, s:s%, s:O}", "status", "planned", "request",
					       json_object_get(answer, "request"), "summary", text.data, text.len,
					       "warnings", warnings), code);
	else
		code = ctl_error(c, &err);
	json_decref(warnings);
	json_decref(answer);
	hb_buf_free(&text);
	return code;
}

/* The actions differ only in what the request holds. */
static int operate_command(struct ctl *c, const char *action, unsigned with, int argc, char **argv)
{
	struct wishes w = {0};
	const struct ctl_option image_options[] = {
		{"image", "REF", "repository:tag@sha256:... instead of the configured image", &w.image, NULL},
		{"platform", "OS/ARCH", "linux/amd64 or linux/arm64 (default: this machine)", &w.platform, NULL},
		{"platform-digest", "DIGEST", "the manifest that the platform must resolve to", &w.pin, NULL},
	};
	const struct ctl_option release_options[] = {
		{"release", "DIGEST", "64 hex digits (default: the previous release)", &w.release, NULL},
		{"data", "WORD", "keep: as it is (the default); restore: back to the copy of that release", &w.data,
		 NULL},
	};
	const struct ctl_option plan_option = {
		"plan", NULL, "only show what would be asked for; nothing is asked for and nothing changes", &w.plan, NULL};
	struct ctl_option options[8] = {
		{"approve", NULL, "consent in advance; the approver still signs the exact digest", &w.approve, NULL},
		{"user", "ID", "the user in whose name it is asked", &w.user, NULL},
	};
	struct ctl_operate op = {.feature = "runtime"};
	struct hb_error err = {0};
	json_t *final = NULL;
	size_t count = 2;
	char name[40];
	int code;

	for (size_t i = 0; with & WITH_IMAGE && i < sizeof image_options / sizeof image_options[0]; i++)
		options[count++] = image_options[i];
	for (size_t i = 0; with & WITH_RELEASE && i < sizeof release_options / sizeof release_options[0]; i++)
		options[count++] = release_options[i];
	if (with & WITH_PLAN)
		options[count++] = plan_option;
	snprintf(name, sizeof name, "runtime %s", action);
	if (ctl_parse(c, name, options, count, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	op.request = request_of(c, action, with, &w);
	if (w.plan)
		return show_plan(c, op.request);
	op.user = w.user;
	op.approve = w.approve != NULL;
	code = ctl_operate(c, &op, &final, &err);
	if (code < 0)
		return ctl_error(c, &err);
	ctl_print_outcome(c, final);
	return ctl_result(c, final, code);
}

#define OPERATION(action, with) \
	int ctl_cmd_runtime_##action(struct ctl *c, int argc, char **argv) \
	{ \
		return operate_command(c, #action, with, argc, argv); \
	}

OPERATION(install, WITH_IMAGE)
OPERATION(upgrade, WITH_IMAGE | WITH_PLAN)
OPERATION(rollback, WITH_RELEASE)
OPERATION(start, 0)
OPERATION(stop, 0)
OPERATION(restart, 0)
OPERATION(remove, 0)
OPERATION(prune, 0)

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
		     {"desired", "desired"},       {"address", "address"},
		     {"MCP address", "mcp_address"}};
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

/* The copies of the data that belong to a release: what `runtime rollback --data restore` goes back to. */
static void print_copies(const json_t *snapshots, const char *release)
{
	json_t *copy;
	size_t i;
	char when[32], bytes[32];

	json_array_foreach(snapshots, i, copy) {
		if (strcmp(hb_json_text(copy, "release", ""), release) != 0)
			continue;
		ctl_time(hb_json_int(copy, "taken_at", 0), when, sizeof when);
		ctl_bytes((double)hb_json_int(copy, "bytes", 0), bytes, sizeof bytes);
		printf("    data of %s: %lld files, %s\n", when, hb_json_int(copy, "files", 0), bytes);
	}
}

int ctl_cmd_runtime_releases(struct ctl *c, int argc, char **argv)
{
	int code = CTL_OK;
	json_t *r = get_runtime(c, "runtime releases", argc, argv, &code), *releases, *snapshots, *item;
	size_t i;

	if (!r)
		return code;
	releases = json_incref(json_object_get(r, "releases"));
	snapshots = json_incref(json_object_get(r, "snapshots"));
	json_decref(r);
	json_array_foreach(releases, i, item) {
		if (c->json)
			break;
		printf("%c %s  ", hb_json_bool(item, "current", false) ? '*' :
		       hb_json_bool(item, "previous", false) ? '-' : ' ', hb_json_text(item, "manifest_digest", "?"));
		ctl_print_text(hb_json_text(item, "image", ""));
		putchar('\n');
		print_copies(snapshots, hb_json_text(item, "manifest_digest", ""));
	}
	if (!c->json && json_array_size(releases) == 0)
		puts("No release is on disk.");
	return ctl_result(c, json_pack("{s:o, s:o?}", "releases", releases, "snapshots", snapshots), CTL_OK);
}
