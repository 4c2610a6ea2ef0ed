/*
 * The program: what is opened, what is left to it, what it answers. Operations themselves are
 * policy/executor.h's business up to the worker (work.c).
 */
#include "broker/ssh/ssh.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "broker/ssh/profile.h"
#include "broker/ssh/quote.h"
#include "broker/ssh/run.h"
#include "common/fields.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"
#include "policy/operation.h"

#define ACTIVE_MAX 4
#define OVERTIME 30 /* two goodbyes, ten seconds of pipes, and a busy machine */

/* --- routes --- */

static void health(struct hb_request *req, void *ctx)
{
	struct hb_ssh *s = ctx;
	struct hb_error err, why;
	struct hb_gate gate;
	json_t *answer, *checks, *usable = NULL, *broken = NULL, *item;
	const char *error = NULL;
	size_t i;

	if (access(HB_SSH_PROGRAM, F_OK) < 0)
		error = HB_SSH_PROGRAM " is missing: install the package openssh-client";
	if (hb_profiles_list(&usable, &broken, &err) < 0)
		error = err.message;
	if (hb_executor_gate(s->executor, &gate, &why) < 0 || hb_gate_policy_fresh(&gate, &why) < 0)
		error = why.message;
	answer = hb_process_health(s->process, error);
	checks = json_object_get(answer, "checks");
	json_object_set_new(checks, "deployed", json_true());
	json_object_set_new(checks, "operations", hb_executor_counts(s->executor));
	json_object_set_new(checks, "starter", json_pack("{s:i}", "pid", (int)s->starter_pid));
	json_object_set_new(checks, "profile_count",
			    json_integer((json_int_t)json_array_size(usable)));
	json_object_set_new(checks, "profiles", json_array());
	json_array_foreach(usable, i, item) {
		json_array_append_new(json_object_get(checks, "profiles"),
				      json_pack("{s:O, s:O}", "name", json_object_get(item, "name"),
						"auth", json_object_get(item, "auth")));
	}
	json_object_set_new(checks, "profiles_broken", broken ? broken : json_array());
	json_decref(usable);
	hb_reply_json(req, 200, answer);
}

static void profiles(struct hb_request *req, void *ctx)
{
	struct hb_error err;
	json_t *usable, *broken;

	if (hb_profiles_list(&usable, &broken, &err) < 0) {
		hb_reply_error(req, 200, &err);
		return;
	}
	hb_reply_json(
		req, 200,
		json_pack("{s:s, s:o, s:o}", "status", "ok", "profiles", usable, "broken", broken));
}

static json_t *seal_request(const json_t *body, struct hb_error *err)
{
	struct seal {
		const char *feature;
		json_t *request;
	} in = {0};
	static const struct hb_field fields[] = {
		{"feature", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct seal, feature), 1,
		 15},
		{"request", HB_FIELD_OBJECT, HB_FIELD_REQUIRED, offsetof(struct seal, request), 0,
		 0},
	};
	struct hb_buf quoted = HB_BUF_INIT;
	struct hb_loaded l;
	json_t *sealed = NULL, *profile;

	if (hb_fields_decode(body, fields, 2, &in, err) < 0)
		return NULL;
	if (strcmp(in.feature, "ssh") != 0) {
		hb_fail(err, "wrong_executor", "feature %.15s is not carried out here", in.feature);
		return NULL;
	}
	sealed = hb_operation_validate("ssh", in.request, err);
	if (!sealed)
		return NULL;
	if (json_object_get(sealed, "argv") &&
	    hb_quote_argv(json_object_get(sealed, "argv"), &quoted, err) < 0)
		goto refused;
	if (hb_loaded_open(hb_json_text(sealed, "profile", ""), &l, err) < 0)
		goto refused;
	profile = hb_loaded_seal(&l, err);
	hb_loaded_close(&l);
	if (!profile)
		goto refused;
	json_object_set_new(sealed, "sealed_profile", profile);
	hb_buf_free(&quoted);
	return sealed;
refused:
	hb_buf_free(&quoted);
	json_decref(sealed);
	return NULL;
}

static void seal(struct hb_request *req, void *ctx)
{
	struct hb_ssh *s = ctx;
	struct hb_error err, failed;
	json_t *detail, *sealed = seal_request(hb_request_json(req), &err);

	if (sealed) {
		hb_reply_json(req, 200, json_pack("{s:s, s:o}", "status", "ok", "request", sealed));
		return;
	}
	/* A profile that is hostile or was tampered with shows here first. */
	detail = json_pack("{s:s, s:s, s:s}", "phase", "seal", "code", err.code, "error",
			   err.message);
	if (hb_audit_append(s->process->audit, "ssh", "refused", detail, &failed) < 0)
		hb_log(HB_LOG_ERROR, "audit_failed", "msg", failed.message, NULL);
	json_decref(detail);
	hb_log(HB_LOG_WARN, "seal_refused", "code", err.code, "msg", err.message, NULL);
	hb_reply_error(req, 200, &err);
}

static void execute(struct hb_request *req, void *ctx)
{
	struct hb_ssh *s = ctx;

	hb_executor_handle_execute(s->executor, req);
}

static void status(struct hb_request *req, void *ctx)
{
	struct hb_ssh *s = ctx;

	hb_executor_handle_status(s->executor, req);
}

#define BROKER HB_PEER_BIT(HB_PEER_BROKER)
#define WATCHERS (BROKER | HB_PEER_BIT(HB_PEER_ADMIN) | HB_PEER_BIT(HB_PEER_LAUNCHER))

const struct hb_route hb_ssh_routes[] = {
	{HB_GET, "/health", WATCHERS, 0, HB_ROUTE_NOBODY, health},
	{HB_GET, "/profiles", WATCHERS, 0, HB_ROUTE_NOBODY, profiles},
	{HB_POST, "/seal", BROKER, 0, 0, seal},
	{HB_POST, "/execute", BROKER, 0, 0, execute},
	{HB_POST, "/status", BROKER, 0, 0, status},
};
const size_t hb_ssh_route_count = sizeof(hb_ssh_routes) / sizeof(hb_ssh_routes[0]);

/* --- its life --- */

static void ssh_close(void *ctx)
{
	struct hb_ssh *s = ctx;

	hb_executor_free(s->executor);
	if (s->starter_end)
		event_free(s->starter_end);
	hb_close(&s->starter_fd); /* the starter ends with it */
	free(s);
}

static void *ssh_open(struct hb_process *p, struct hb_error *err)
{
	struct hb_ssh *s = hb_calloc(1, sizeof(*s));
	bool degraded_ok = strcmp(hb_config_text(p->config, "sandbox.mode"), "degraded") == 0;
	int recovered = 0;

	s->process = p;
	s->starter_fd = -1;
	/* The starter first: it must hold none of what is opened below. */
	if (hb_starter_fork(degraded_ok, &s->starter_fd, &s->starter_pid, err) == 0) {
		const struct hb_executor_options options = {.process = p,
							    .target = "ssh",
							    .ledger_path = HB_PATH_LEDGER("ssh"),
							    .active_max = ACTIVE_MAX,
							    .overtime = OVERTIME,
							    .keep_fd = s->starter_fd,
							    .work = hb_ssh_work,
							    .ctx = s};

		if (hb_executor_new(&options, &s->executor, &recovered, err) == 0) {
			if (recovered)
				hb_log(HB_LOG_WARN, "outcome_unknown", "msg",
				       "operations were under way when this process ended; "
				       "they are never repeated",
				       NULL);
			return s;
		}
	}
	ssh_close(s);
	return NULL;
}

static int ssh_sandbox(struct hb_process *p, void *ctx, struct hb_sandbox *out,
		       struct hb_error *err)
{
	static const char *const extra[] = {"memfd_create",
					    NULL}; /* keys and credentials for one run */
	static const struct hb_sandbox_path paths[] = {
		{"ssh", HB_FS_READ | HB_FS_WRITE}, /* ledger, audit log, profiles */
		{"run", HB_FS_READ | HB_FS_WRITE},
		{"policy", HB_FS_READ},
		{"public", HB_FS_READ},
		{HB_PATH_CONF, HB_FS_READ},
		{HB_SSH_PROGRAM, HB_FS_READ | HB_FS_OPTIONAL}, /* to say that it is missing */
	};

	/* No exec and no inet socket: both are the starter's alone. */
	out->syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_UNIX | HB_SYS_FORK | HB_SYS_EVENTS;
	out->extra = extra;
	out->paths = paths;
	out->path_count = sizeof(paths) / sizeof(paths[0]);
	return 0;
}

static void on_starter_end(evutil_socket_t fd, short what, void *arg)
{
	struct hb_ssh *s = arg;

	/* Nothing can be run any more; who started us starts us again, starter included. */
	hb_log(HB_LOG_ERROR, "starter_gone", "msg", "the process that starts ssh has ended", NULL);
	hb_process_exit(s->process, EX_TEMPFAIL);
}

static int ssh_run(struct hb_process *p, void *ctx, struct hb_error *err)
{
	struct hb_ssh *s = ctx;

	/* It never sends anything: readable means ended. */
	s->starter_end = event_new(p->base, s->starter_fd, EV_READ, on_starter_end, s);
	if (!s->starter_end || event_add(s->starter_end, NULL) != 0)
		return hb_fail(err, "internal", "the starter can't be watched");
	return 0;
}

static void on_stopped(void *arg)
{
	hb_process_exit(arg, 0);
}

static void ssh_stop(struct hb_process *p, void *ctx)
{
	struct hb_ssh *s = ctx;

	hb_executor_stop(s->executor, on_stopped, p);
}

const struct hb_program hb_ssh_program = {
	.self = HB_PEER_SSH,
	.usage = "Runs commands on other hosts through ssh, each with a grant that a person "
		 "signed.\n",
	.server = {.routes = hb_ssh_routes,
		   .route_count = sizeof(hb_ssh_routes) / sizeof(hb_ssh_routes[0])},
	.open = ssh_open,
	.sandbox = ssh_sandbox,
	.run = ssh_run,
	.stop = ssh_stop,
	.close = ssh_close,
};
