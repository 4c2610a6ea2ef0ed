/* hermesctl status: everything at a glance. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/ctl_onboarding.h"
#include "common/json.h"
#include "policy/live.h"

static void print_services(const json_t *health)
{
	json_t *h;
	const char *name;

	json_object_foreach((json_t *)health, name, h) {
		const char *error = hb_json_text(h, "error", NULL);
		printf("  %-10s %s", name, hb_json_bool(h, "reachable", false) ? hb_json_text(h, "status", "?")
									      : "unreachable");
		if (error) {
			printf(": ");
			ctl_print_text(error);
		}
		putchar('\n');
	}
}

static json_t *policy_status(struct hb_error *err)
{
	struct hb_policy_view view = {0};
	json_t *p;

	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, err) < 0)
		return json_pack("{s:s,s:s}", "error", err->message, "code", err->code);
	p = hb_policy_to_json(&view.live);
	hb_policy_view_free(&view);
	return p;
}

static void print_policy(const json_t *p)
{
	char *features, *users;

	if (hb_json_text(p, "error", NULL)) {
		printf("Policy     nothing is enabled: ");
		ctl_print_text(hb_json_text(p, "error", ""));
		putchar('\n');
		return;
	}
	features = json_dumps(json_object_get(p, "features"), JSON_COMPACT | JSON_ENCODE_ANY);
	users = json_dumps(json_object_get(p, "users"), JSON_COMPACT | JSON_ENCODE_ANY);
	printf("Policy     generation %lld, features %s, approvers %s%s\n", hb_json_int(p, "generation", 0), features,
	       users, hb_json_bool(p, "paused", false) ? ", PAUSED" : "");
	free(features);
	free(users);
}

static void print_reviews(const json_t *reviews)
{
	if (hb_json_text(reviews, "error", NULL)) {
		printf("Reviews    ");
		ctl_print_text(hb_json_text(reviews, "error", ""));
		putchar('\n');
	} else if (hb_json_int(reviews, "due", 0) > 0)
		printf("Reviews    %lld due: hermesctl review\n", hb_json_int(reviews, "due", 0));
}

int ctl_cmd_status(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0}, ignored = {0};
	json_t *health, *policy, *runtime, *reviews;
	bool ok;
	int pid;

	if (ctl_parse(c, "status", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	pid = ctl_launcher_pid(c);
	health = ctl_health(c, &ok);
	policy = policy_status(&err);
	runtime = ctl_call(c, HB_PEER_BROKER, "GET", "/runtime", NULL, &ignored);
	reviews = ctl_reviews_due(c);
	if (!c->json) {
		printf(pid ? "Launcher   pid %d\n" : "Launcher   not running (start it with ./manage.sh up)\n", pid);
		puts("Processes");
		print_services(health);
		print_policy(policy);
		print_reviews(reviews);
		puts("Runtime");
		if (runtime)
			ctl_print_runtime(runtime);
		else
			ctl_note(c, "%s", ignored.message);
	}
	return ctl_result(c, json_pack("{s:i,s:b,s:o,s:o,s:o?,s:o*}", "launcher_pid", pid, "ok", ok, "services",
				       health, "policy", policy, "runtime", runtime, "reviews", reviews),
			  ok ? CTL_OK : pid ? CTL_FAILED : CTL_UNREACHABLE);
}
