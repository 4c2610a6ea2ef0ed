/*
 * hermesctl runtime stage, check, quiesce, resume: what needs no grant, since nothing that runs is changed for good.
 * quiesce and resume go to the installer itself, which takes them from root on this host only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/json.h"

#define POLL_US 150000

/* GET /runtime until `ready` says so; the last answer, or NULL with err. */
static json_t *wait_for(struct ctl *c, enum hb_peer server, bool (*ready)(struct ctl *c, const json_t *runtime),
			struct hb_error *err)
{
	for (;;) {
		json_t *answer = ctl_call(c, server, "GET", "/runtime", NULL, err);

		if (!answer || ready(c, answer))
			return answer;
		json_decref(answer);
		usleep(POLL_US);
	}
}

static bool is_staged(struct ctl *c, const json_t *runtime)
{
	const json_t *staged = json_object_get(runtime, "staged");

	if (strcmp(hb_json_text(staged, "state", ""), "running") != 0)
		return true;
	if (json_object_get(staged, "progress"))
		ctl_progress(c, json_object_get(staged, "progress"));
	return false;
}

int ctl_cmd_runtime_stage(struct ctl *c, int argc, char **argv)
{
	const char *image = NULL, *platform = NULL, *pin = NULL;
	const struct ctl_option options[] = {
		{"image", "REF", "repository:tag@sha256:... instead of the configured image", &image, NULL},
		{"platform", "OS/ARCH", "linux/amd64 or linux/arm64 (default: this machine)", &platform, NULL},
		{"platform-digest", "DIGEST", "the manifest that the platform must resolve to", &pin, NULL},
	};
	json_t *body, *answer, *staged;
	struct hb_error err = {0};
	bool ok;

	if (ctl_parse(c, "runtime stage", options, 3, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	body = json_pack("{s:s, s:s*, s:s*}", "image", image ? image : hb_config_text(c->config, "runtime.image"),
			 "platform", platform, "platform_digest", pin);
	answer = ctl_call(c, HB_PEER_BROKER, "POST", "/runtime/stage", body, &err);
	json_decref(body);
	json_decref(answer);
	if (answer)
		answer = wait_for(c, HB_PEER_BROKER, is_staged, &err);
	ctl_progress_end(c);
	if (!answer)
		return ctl_error(c, &err);
	staged = json_incref(json_object_get(answer, "staged"));
	json_decref(answer);
	ok = strcmp(hb_json_text(staged, "state", ""), "done") == 0;
	if (!c->json) {
		ctl_print_text(hb_json_text(staged, ok ? "output" : "error", ""));
		putchar('\n');
	}
	return ctl_result(c, staged, ok ? CTL_OK : CTL_FAILED);
}

int ctl_cmd_runtime_check(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *body = NULL, *answer;

	if (ctl_parse(c, "runtime check", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	body = json_object();
	answer = ctl_open(c, &err) < 0 ? NULL : ctl_call(c, HB_PEER_BROKER, "POST", "/runtime/probe", body, &err);
	json_decref(body);
	if (!answer)
		return ctl_error(c, &err);
	if (!c->json)
		puts("Every check passes.");
	return ctl_result(c, answer, CTL_OK);
}

static bool is_quiet(struct ctl *c, const json_t *runtime)
{
	const json_t *quiesced = json_object_get(runtime, "quiesced");

	return !json_is_object(quiesced) || hb_json_bool(quiesced, "synced", false);
}

int ctl_cmd_runtime_quiesce(struct ctl *c, int argc, char **argv)
{
	const char *seconds = NULL;
	const struct ctl_option options[] = {
		{"for", "SECONDS", "start again by itself after this time (default 300)", &seconds, NULL},
	};
	json_t *body = json_object(), *answer = NULL, *quiesced;
	struct hb_error err = {0};
	char when[32], *end = NULL;

	if (ctl_parse(c, "runtime quiesce", options, 1, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (seconds) {
		json_object_set_new(body, "seconds", json_integer(strtoll(seconds, &end, 10)));
		if (*end || end == seconds)
			hb_fail(&err, "out_of_range", "--for wants a number of seconds");
	}
	if (!err.code[0] && ctl_open(c, &err) == 0)
		answer = ctl_call(c, HB_PEER_INSTALLER, "POST", "/quiesce", body, &err);
	json_decref(body);
	json_decref(answer);
	if (answer)
		answer = wait_for(c, HB_PEER_INSTALLER, is_quiet, &err);
	if (!answer)
		return ctl_error(c, &err);
	quiesced = json_incref(json_object_get(answer, "quiesced"));
	json_decref(answer);
	if (!json_is_object(quiesced)) {
		json_decref(quiesced);
		hb_fail(&err, "quiesce_failed",
			"the runtime couldn't be stopped and synced; the installer's log says why");
		return ctl_error(c, &err);
	}
	ctl_time(hb_json_int(quiesced, "until", 0), when, sizeof when);
	if (!c->json)
		printf("Stopped and synced: take the snapshot now. It starts again by itself at %s, or with\n"
		       "  hermesctl runtime resume\n", when);
	return ctl_result(c, quiesced, CTL_OK);
}

/* Up, or not to be up, or given up. */
static bool is_settled(struct ctl *c, const json_t *runtime)
{
	const char *state = hb_json_text(json_object_get(runtime, "process"), "state", "");

	return strcmp(state, "healthy") == 0 || strcmp(state, "gave_up") == 0 ||
	       strcmp(hb_json_text(runtime, "desired", ""), "stopped") == 0 ||
	       hb_json_text(runtime, "trouble", "")[0] != '\0';
}

int ctl_cmd_runtime_resume(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *body = NULL, *answer = NULL;
	const char *state, *trouble;
	bool ok;

	if (ctl_parse(c, "runtime resume", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	body = json_object();
	if (ctl_open(c, &err) == 0)
		answer = ctl_call(c, HB_PEER_INSTALLER, "POST", "/resume", body, &err);
	json_decref(body);
	json_decref(answer);
	if (answer)
		answer = wait_for(c, HB_PEER_INSTALLER, is_settled, &err);
	if (!answer)
		return ctl_error(c, &err);
	state = hb_json_text(json_object_get(answer, "process"), "state", "?");
	trouble = hb_json_text(answer, "trouble", "");
	ok = strcmp(state, "healthy") == 0 || strcmp(hb_json_text(answer, "desired", ""), "stopped") == 0;
	if (!c->json) {
		printf("The runtime is %s.", state);
		if (*trouble) {
			putchar(' ');
			ctl_print_text(trouble);
		}
		putchar('\n');
	}
	return ctl_result(c, answer, ok ? CTL_OK : CTL_FAILED);
}
