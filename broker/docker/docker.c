/* The docker executor's start, confinement and end (main.c runs it). */
#include "broker/docker/docker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "broker/docker/bubble.h"
#include "broker/docker/workspace.h"
#include "common/fs.h"
#include "common/json.h"
#include "common/log.h"
#include "common/paths.h"

#define ACTIVE_MAX 4 /* operations at once */
#define OVERTIME 60  /* seconds for a worker to end what it started, beyond the timeout */

static const struct hb_floor_own *own(void *ctx)
{
	struct hb_docker *d = ctx;

	return &d->own.floor;
}

static void note_engine(struct hb_docker *d, const json_t *engine)
{
	const char *code = hb_json_text(engine, "code", "");
	int minor = (int)hb_json_int(engine, "api_minor", 0);

	if (*code && strcmp(code, d->engine_trouble.code) != 0)
		hb_log(HB_LOG_WARN, "engine_trouble", "code", code, "msg",
		       hb_json_text(engine, "error", ""), NULL);
	hb_fail(&d->engine_trouble, code, "%s", hb_json_text(engine, "error", ""));
	if (minor == d->api_minor)
		return;
	d->api_minor = minor;
	memset(d->release, 0, sizeof d->release);
	memccpy(d->release, hb_json_text(engine, "release", ""), 0, sizeof d->release - 1);
	if (minor)
		hb_log(HB_LOG_INFO, "engine", "release", d->release, NULL);
}

static void on_note(const json_t *note, void *ctx)
{
	struct hb_docker *d = ctx;
	struct hb_error err;

	if (json_object_get(note, "engine"))
		note_engine(d, json_object_get(note, "engine"));
	if (json_object_get(note, "own") &&
	    hb_own_learn(&d->own, json_object_get(note, "own"), &err) < 0)
		hb_log(HB_LOG_ERROR, "protected_not_saved", "code", err.code, "msg", err.message,
		       NULL);
	if (hb_json_bool(note, "sweep", false))
		hb_docker_sweep(d);
}

static void docker_close(void *ctx)
{
	struct hb_docker *d = ctx;

	hb_executor_free(d->executor);
	if (d->sweep)
		event_free(d->sweep);
	if (d->runner_event)
		event_free(d->runner_event);
	hb_close(&d->runner_fd); /* the runner ends */
	if (d->runner_pid > 0)
		while (waitpid(d->runner_pid, NULL, 0) < 0 && errno == EINTR)
			;
	hb_own_free(&d->own);
	free(d);
}

static void *docker_open(struct hb_process *p, struct hb_error *err)
{
	struct hb_docker *d = hb_calloc(1, sizeof *d);
	struct hb_executor_options options = {.process = p,
					      .target = "docker",
					      .ledger_path = HB_PATH_LEDGER("docker"),
					      .active_max = ACTIVE_MAX,
					      .overtime = OVERTIME,
					      .work = hb_docker_work,
					      .own = own,
					      .on_note = on_note,
					      .ctx = d};
	char number[16];
	int recovered = 0;

	d->process = p;
	d->runner_fd = -1;
	/* The runner first: it must hold nothing of what is opened below. */
	if (hb_local_bubblewrap(p->config) && hb_bubble_start_runner(d, err) < 0)
		goto failed;
	options.keep_fd = d->runner_fd;
	if (hb_own_load(p->config, &d->own, err) < 0 ||
	    hb_executor_new(&options, &d->executor, &recovered, err) < 0)
		goto failed;
	if (recovered > 0) {
		snprintf(number, sizeof number, "%d", recovered);
		hb_log(HB_LOG_WARN, "outcome_unknown", "operations", number, NULL);
	}
	return d;
failed:
	docker_close(d);
	return NULL;
}

static int docker_sandbox(struct hb_process *p, void *ctx, struct hb_sandbox *out,
			  struct hb_error *err)
{
	static struct hb_sandbox_path paths[] = {
		{"docker", HB_FS_READ | HB_FS_WRITE}, /* ledger, audit log, what is protected */
		{"policy", HB_FS_READ},
		{"public", HB_FS_READ},
		{HB_PATH_CONF, HB_FS_READ},
		{NULL, HB_FS_READ | HB_FS_OPTIONAL}, /* local.release, to compare its manifest */
	};

	/* Names of files are looked up without any of these rights (links, owners); files are
	 * opened only here. The socket of the engine is reached by its group. */
	paths[4].path = *hb_config_text(p->config, "local.release")
				? hb_config_text(p->config, "local.release")
				: "docker";
	*out = (struct hb_sandbox){
		.name = "hermes-docker",
		.syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_UNIX | HB_SYS_EVENTS | HB_SYS_FORK,
		.paths = paths,
		.path_count = sizeof paths / sizeof *paths,
	};
	return 0;
}

/* Without its runner no local command can be run; the launcher starts both anew. */
static void on_runner_gone(evutil_socket_t fd, short what, void *arg)
{
	struct hb_docker *d = arg;

	hb_log(HB_LOG_ERROR, "runner_died", NULL);
	hb_process_exit(d->process, EX_OSERR);
}

static int docker_run(struct hb_process *p, void *ctx, struct hb_error *err)
{
	struct hb_docker *d = ctx;

	if (d->runner_fd >= 0) {
		d->runner_event = event_new(p->base, d->runner_fd, EV_READ, on_runner_gone, d);
		event_add(d->runner_event, NULL);
	}
	hb_docker_sweep(d);
	return 0;
}

static void on_stopped(void *arg)
{
	struct hb_docker *d = arg;

	hb_process_exit(d->process, 0);
}

/* What runs is ended and its outcome recorded, first. */
static void docker_stop(struct hb_process *p, void *ctx)
{
	struct hb_docker *d = ctx;

	hb_executor_stop(d->executor, on_stopped, d);
}

const struct hb_program hb_docker_program = {
	.self = HB_PEER_DOCKER,
	.usage = "Carries out Docker and sandboxed local operations, each with a grant that a "
		 "person signed.\n",
	.server = {.routes = hb_docker_routes, .route_count = HB_DOCKER_ROUTES},
	.open = docker_open,
	.sandbox = docker_sandbox,
	.run = docker_run,
	.stop = docker_stop,
	.close = docker_close,
};
