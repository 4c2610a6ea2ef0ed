/*
 * hermesctl acceptance: what survives. Accounts are the connections that the runtime lists for the
 * key; that it lists any shows that the key still counts. Each operation is asked for and approved
 * like any other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/ctl/acceptance.h"
#include "common/buf.h"
#include "common/json.h"
#include "onboarding/catalogue.h"
#include "onboarding/mcp_call.h"

#define CALL_MS 60000

static int
execute(void *arg, const char *code, struct hb_mcp_result *out, struct hb_error *err)
{
	const struct ctl_acceptance *a = arg;
	const struct hb_mcp_options o = {
		.key = a->key, .timeout_ms = CALL_MS, .reply_max = HB_MCP_REPLY_MAX};

	return hb_mcp_execute(&o, code, out, err);
}

static json_t *
what_is_there(struct ctl_acceptance *a, struct hb_error *err)
{
	const struct hb_runtime runtime = {.execute = execute, .arg = a};
	struct hb_guardrails all = {0};
	json_t *catalogue;

	if (hb_guardrails_load(&all, err) < 0)
		return NULL;
	catalogue = hb_catalogue_ask(&runtime, &all, err);
	hb_guardrails_free(&all);
	return catalogue;
}

/* What there was before, or NULL with a line that says why nothing is tried. */
static json_t *
before(struct ctl_acceptance *a, const char *name)
{
	struct hb_error err = {0};
	json_t *catalogue;

	if (a->look)
		ctl_accept(a, name, CTL_NOT_RUN, "--look changes nothing");
	else if (!a->key[0])
		ctl_accept(a, name, CTL_NOT_RUN, "%s", a->no_key.message);
	else if (!(catalogue = what_is_there(a, &err)))
		ctl_accept(a, name, CTL_FAIL, "before: %s", err.message);
	else
		return catalogue;
	return NULL;
}

static void
compare(struct ctl_acceptance *a, const char *name, const json_t *was, const char *how)
{
	struct hb_error err = {0};
	json_t *now = what_is_there(a, &err), *diff;
	const json_t *lost;

	if (!now) {
		ctl_accept(a, name, CTL_FAIL, "afterwards: %s", err.message);
		return;
	}
	diff = hb_catalogue_diff(was, now);
	lost = json_object_get(diff, "connections_removed");
	if (hb_catalogue_same(diff))
		ctl_accept(a, name, CTL_PASS,
			   "%s: key %s counts as before, %zu connections and %zu tools are the same",
			   how, a->key, json_array_size(json_object_get(now, "connections")),
			   json_array_size(json_object_get(now, "tools")));
	else
		ctl_accept(a, name, CTL_FAIL,
			   "%s: %zu connections are gone%s%s, %zu came; %zu tools are gone, %zu came",
			   how, json_array_size(lost), json_array_size(lost) ? ", the first " : "",
			   json_array_size(lost) ? json_string_value(json_array_get(lost, 0)) : "",
			   json_array_size(json_object_get(diff, "connections_added")),
			   json_array_size(json_object_get(diff, "tools_removed")),
			   json_array_size(json_object_get(diff, "tools_added")));
	json_decref(diff);
	json_decref(now);
}

/* True when it succeeded; else a line says what happened. *final may be NULL. */
static bool
operate(struct ctl_acceptance *a, const char *name, json_t *request, json_t **final)
{
	struct ctl_operate op = {
		.feature = "runtime", .request = request, .user = a->user, .approve = a->approve};
	const char *action = hb_json_text(request, "action", "");
	struct hb_error err = {0};
	json_t *end = NULL;
	char what[32];
	int code;

	snprintf(what, sizeof what, "%s", action);
	code = ctl_operate(a->c, &op, &end, &err);
	if (code == CTL_OK) {
		*final = end;
		return true;
	}
	if (code < 0)
		ctl_accept(a, name, CTL_NOT_RUN, "%s was not begun: %s", what, err.message);
	else
		ctl_accept(a, name,
			   code == CTL_DENIED || code == CTL_EXPIRED ? CTL_NOT_RUN : CTL_FAIL,
			   "%s: %s%s%s", what, hb_json_text(end, "state", "?"),
			   *hb_json_text(end, "error", "") ? ", " : "",
			   hb_json_text(end, "error", ""));
	json_decref(end);
	return false;
}

void
ctl_accept_restart(struct ctl_acceptance *a)
{
	static const char name[] = "survives restart";
	json_t *was = before(a, name), *final = NULL;

	if (was && operate(a, name, json_pack("{s:s}", "action", "restart"), &final))
		compare(a, name, was, "stopped and started");
	json_decref(final);
	json_decref(was);
}

/* The newest backup's name; NULL with err. */
char *
ctl_newest_backup(struct ctl *c, struct hb_error *err)
{
	json_t *answer = ctl_call(c, HB_PEER_BROKER, "GET", "/backups", NULL, err), *b;
	const char *name = NULL;
	long long newest = 0;
	char *out = NULL;
	size_t i;

	json_array_foreach(json_object_get(answer, "backups"), i, b) {
		if (hb_json_int(b, "created_at", 0) < newest)
			continue;
		newest = hb_json_int(b, "created_at", 0);
		name = hb_json_text(b, "name", NULL);
	}
	if (name)
		out = hb_strdup(name);
	else if (answer)
		hb_fail(err, "not_found", "there is no backup");
	json_decref(answer);
	return out;
}

static char *
back_up(struct ctl_acceptance *a, const char *name)
{
	struct hb_error err = {0};
	json_t *final = NULL;
	char *out = NULL;

	if (operate(a, name, json_pack("{s:s}", "action", "backup"), &final) &&
	    !(out = ctl_newest_backup(a->c, &err)))
		ctl_accept(a, name, CTL_FAIL, "%s", err.message);
	json_decref(final);
	return out;
}

static bool
replace(struct ctl_acceptance *a, const char *name, const char *backup)
{
	json_t *removed = NULL, *installed = NULL, *restored = NULL;
	bool ok = operate(a, name, json_pack("{s:s}", "action", "remove"), &removed) &&
		  operate(a, name,
			  json_pack("{s:s, s:s}", "action", "install", "image",
				    hb_config_text(a->c->config, "runtime.image")),
			  &installed) &&
		  operate(a, name, json_pack("{s:s, s:s}", "action", "restore", "backup", backup),
			  &restored);

	if (removed && !installed)
		ctl_note(a->c, "The runtime was removed and is not back: hermesctl runtime install; "
			       "its data is untouched");
	json_decref(removed);
	json_decref(installed);
	json_decref(restored);
	return ok;
}

void
ctl_accept_restore(struct ctl_acceptance *a)
{
	static const char name[] = "survives restore";
	json_t *was = NULL;
	char *backup = NULL, how[200];

	if (!a->repull && !a->look)
		ctl_accept(a, name, CTL_NOT_RUN,
			   "--repull removes the runtime and restores it, --disposable does so with a "
			   "copy");
	else if ((was = before(a, name)) && (backup = back_up(a, name)) &&
		 replace(a, name, backup)) {
		snprintf(how, sizeof how, "removed, installed again and restored from %.100s", backup);
		compare(a, name, was, how);
	}
	json_decref(was);
	free(backup);
}
