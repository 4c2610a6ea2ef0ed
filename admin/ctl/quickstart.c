/*
 * hermesctl quickstart: from nothing to a running, healthy, digest-verified service, with a decision in between.
 * Run again it finds everything in place, changes nothing and says so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/json.h"

struct quickstart {
	struct ctl_setup setup;
	const char *approve, *user;
};

static bool is_configured_image(struct ctl *c, const json_t *runtime)
{
	return hb_json_bool(runtime, "installed", false) &&
	       strcmp(hb_json_text(runtime, "installed_image", ""), hb_config_text(c->config, "runtime.image")) == 0;
}

/* True when the configured image is installed and healthy; one that is just starting is waited for. */
static bool installed_already(struct ctl *c, json_t **runtime, struct hb_error *err)
{
	long long tries = (hb_config_int(c->config, "runtime.start_timeout") +
			   hb_config_int(c->config, "runtime.health_sustain")) * 4;

	for (;; tries--) {
		const char *state;
		*runtime = ctl_call(c, HB_PEER_BROKER, "GET", "/runtime", NULL, err);
		if (!*runtime || !is_configured_image(c, *runtime))
			return false;
		if (hb_json_bool(json_object_get(*runtime, "health"), "ok", false))
			return true;
		state = hb_json_text(json_object_get(*runtime, "process"), "state", "");
		if (tries <= 0 || (strcmp(state, "starting") != 0 && strcmp(state, "running") != 0 &&
				   strcmp(state, "backoff") != 0))
			return false;
		json_decref(*runtime);
		usleep(250000);
	}
}

static void print_addresses(struct ctl *c, const json_t *runtime)
{
	printf("\nThe service answers at ");
	ctl_print_text(hb_json_text(runtime, "address", "-"));
	printf("\nState: %s   Admin: http://%s\n\nNext:\n"
	       "  %s --state %s runtime status\n"
	       "  %s --state %s audit verify\n"
	       "  %s --state %s down\n",
	       c->state, hb_config_text(c->config, "admin.listen"), c->program, c->state, c->program, c->state,
	       c->program, c->state);
}

/* A launcher that runs with an older configuration is restarted, so that what was set is what runs. */
static int start(struct ctl *c, int changed, bool *was_running, struct hb_error *err)
{
	bool stopped;

	if (ctl_launcher_pid(c) > 0 && changed > 0) {
		ctl_note(c, "The configuration changed: restarting.");
		if (ctl_down(c, &stopped, err) < 0)
			return -1;
	}
	return ctl_up(c, was_running, err);
}

static int install(struct ctl *c, const struct quickstart *q, json_t **operation, struct hb_error *err)
{
	struct ctl_operate op = {.feature = "runtime", .user = q->user, .approve = q->approve != NULL};

	op.request = json_pack("{s:s,s:s}", "action", "install", "image", hb_config_text(c->config, "runtime.image"));
	return ctl_operate(c, &op, operation, err);
}

static int run(struct ctl *c, struct quickstart *q)
{
	struct hb_error err = {0};
	json_t *runtime = NULL, *operation = NULL;
	bool was_running = false, nothing;
	int changed = 0, code = CTL_OK;

	if (ctl_setup_state(c, &q->setup, &changed, &err) < 0)
		return ctl_error(c, &err);
	ctl_note(c, changed ? "State directory: %s" : "State directory: %s (unchanged)", c->state);
	if (start(c, changed, &was_running, &err) < 0)
		return ctl_error(c, &err);
	ctl_note(c, was_running ? "Processes: running already" : "Processes: started");
	nothing = installed_already(c, &runtime, &err);
	if (!runtime)
		return ctl_error(c, &err);
	if (!nothing) {
		json_decref(runtime);
		runtime = NULL;
		code = install(c, q, &operation, &err);
		if (code < 0)
			return ctl_error(c, &err);
		ctl_print_outcome(c, operation);
		runtime = ctl_call(c, HB_PEER_BROKER, "GET", "/runtime", NULL, &err);
	}
	if (!c->json && code == CTL_OK && runtime) {
		if (nothing && !changed && was_running)
			puts("Nothing to do: the configured image is installed and healthy.");
		ctl_print_runtime(runtime);
		print_addresses(c, runtime);
	}
	return ctl_result(c, json_pack("{s:s,s:b,s:o?,s:o?}", "status", code == CTL_OK ? "ok" : "error", "changed",
				       !nothing || changed || !was_running, "operation", operation, "runtime", runtime),
			  code);
}

int ctl_cmd_quickstart(struct ctl *c, int argc, char **argv)
{
	struct quickstart q = {0};
	const struct ctl_option options[] = {
		{"image", "REF", "repository:tag@sha256:... instead of the default", &q.setup.image, NULL},
		{"registry-mirror", "URL", "where to look for it first", &q.setup.mirror, NULL},
		{"insecure-registry", "HOST:PORT", "loopback registry that speaks plain http",
		 &q.setup.insecure_registry, NULL},
		{"approve", NULL, "consent in advance; the console approver still signs the exact digest", &q.approve,
		 NULL},
		{"set", "SECTION.KEY=VALUE", "a setting of hermes.conf (repeatable)", NULL, &q.setup.settings},
		{"user", "ID", "in whose name it is asked (default: the local console)", &q.user, NULL},
	};

	if (ctl_parse(c, "quickstart", options, 6, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	return run(c, &q);
}
