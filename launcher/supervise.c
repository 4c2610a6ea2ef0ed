/*
 * The loop: start all at once, restart what ends, stop in order.
 *
 * A process that ends is started again after a delay that doubles from a tenth of a second to
 * launcher.restart_delay_max, and begins anew after a minute of running.  One that says its
 * configuration or permissions are wrong waits the longest delay at once: only a person mends that.
 * Stopping asks the installer first, since it has the runtime to end, then the others, then kills.
 * We are subreaper: what a dead process leaves behind comes to us and is ended too.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/ids.h"
#include "common/log.h"
#include "launcher/launcher.h"

#define SERVICES_MAX 16
#define DELAY_FIRST_MS 100
#define STABLE_MS 60000
/* for those without work of their own; on top of the runtime's for the installer */
#define STOP_SECONDS 10
#define KILL_SECONDS 5   /* a killed process that does not go is stuck in the kernel: leave it */

struct supervisor;

struct child {
	struct supervisor *sup;
	const struct hb_service *service;
	pid_t pid;              /* 0: not running */
	int64_t started_ms;
	int delay_ms;           /* before the next start */
	bool ready;
	struct event *restart, *ready_event;
	int ready_fd;
	struct hb_logfile *log; /* NULL in the foreground */
};

struct supervisor {
	const struct hb_supervise *options;
	struct event_base *base;
	struct child children[SERVICES_MAX];
	size_t count;
	int ready_fd;
	enum { RUNNING, STOPPING_FIRST, STOPPING_REST, KILLING } phase;
	struct event *signals[3], *deadline;
};

static void
after(struct event *timer, int64_t ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_add(timer, &tv);
}

static const char *
name_of(const struct child *c)
{
	return hb_peer_name(c->service->peer);
}

/* ---- starting ---- */

static void
all_ready(struct supervisor *sup)
{
	for (size_t i = 0; i < sup->count; i++)
		if (!sup->children[i].ready)
			return;
	hb_log(HB_LOG_INFO, "all_ready", NULL);
	if (sup->ready_fd >= 0 && write(sup->ready_fd, "1", 1) != 1)
		hb_log(HB_LOG_WARN, "ready_unread", NULL);
	hb_close(&sup->ready_fd);
}

static void
ready_close(struct child *c)
{
	if (c->ready_event != NULL)
		event_free(c->ready_event);
	c->ready_event = NULL;
	hb_close(&c->ready_fd);
}

static void
on_ready(evutil_socket_t fd, short what, void *arg)
{
	struct child *c = arg;
	char byte;
	bool ok = read(fd, &byte, 1) == 1 && byte == '1';

	ready_close(c);
	if (!ok) /* it ended: SIGCHLD tells */
		return;
	c->ready = true;
	all_ready(c->sup);
}

static void
restart_later(struct child *c, bool hopeless)
{
	int most = (int)hb_config_int(c->sup->options->config, "launcher.restart_delay_max") * 1000;
	int delay = hopeless || c->delay_ms > most ? most : c->delay_ms;
	char text[16];

	snprintf(text, sizeof(text), "%d", delay);
	hb_log(HB_LOG_WARN, "restart", "service", name_of(c), "delay_ms", text, NULL);
	after(c->restart, delay);
	c->delay_ms = c->delay_ms * 2 < most ? c->delay_ms * 2 : most;
}

static int
start_open(struct child *c, struct hb_spawn *what, int ready[2], struct hb_error *err)
{
	what->program_fd = hb_programs_open(&c->sup->options->programs, c->service, err);
	if (what->program_fd < 0)
		return -1;
	what->error_fd =
		c->log != NULL ? hb_logfile_pipe(c->log, err) : fcntl(2, F_DUPFD_CLOEXEC, 3);
	if (what->error_fd < 0)
		return -1;
	if (pipe2(ready, O_CLOEXEC) != 0)
		return hb_fail_errno(err, "spawn_failed", "cannot create a pipe for %s",
				     name_of(c));
	what->ready_fd = ready[1];
	return 0;
}

static void
start(struct child *c)
{
	struct hb_spawn what = {.service = c->service,
				.config = c->sup->options->config,
				.program_fd = -1,
				.error_fd = -1,
				.ready_fd = -1};
	int ready[2] = {-1, -1};
	struct hb_error err;
	pid_t pid = -1;
	char text[16];

	c->ready = false;
	c->started_ms = hb_monotonic_ms();
	if (start_open(c, &what, ready, &err) == 0)
		pid = hb_spawn(&what, &err);
	if (pid < 0) {
		hb_log(HB_LOG_ERROR, "cannot_start", "service", name_of(c), "code", err.code, "msg",
		       err.message, NULL);
		restart_later(c, true);
	} else {
		c->pid = pid;
		snprintf(text, sizeof(text), "%d", (int)pid);
		hb_log(HB_LOG_INFO, "started", "service", name_of(c), "pid", text, NULL);
		ready_close(c);
		c->ready_fd = ready[0];
		ready[0] = -1;
		c->ready_event = event_new(c->sup->base, c->ready_fd, EV_READ, on_ready, c);
		event_add(c->ready_event, NULL);
	}
	hb_close(&what.program_fd);
	hb_close(&what.error_fd);
	hb_close(&ready[0]);
	hb_close(&ready[1]);
}

static void
on_restart(evutil_socket_t fd, short what, void *arg)
{
	start(arg);
}

/* ---- stopping ---- */

/* Children we did not start: left behind by those we did. Returns how many there are. */
static int
strays_signal(const struct supervisor *sup, int number)
{
	char path[64], text[32];
	int count = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	f = fopen(path, "re");
	while (f != NULL && fscanf(f, "%31s", text) == 1) {
		pid_t pid = (pid_t)strtol(text, NULL, 10);
		bool known = false;

		for (size_t i = 0; i < sup->count; i++)
			known = known || sup->children[i].pid == pid;
		if (!known && pid > 0) {
			count++;
			kill(pid, number);
		}
	}
	if (f != NULL)
		fclose(f);
	return count;
}

static int
running(const struct supervisor *sup, bool first_only)
{
	int count = 0;

	for (size_t i = 0; i < sup->count; i++)
		count += sup->children[i].pid != 0 &&
			 (!first_only || sup->children[i].service->stops_first);
	return count;
}

static void
signal_running(struct supervisor *sup, int number, bool first_only)
{
	for (size_t i = 0; i < sup->count; i++) {
		struct child *c = &sup->children[i];

		if (c->pid != 0 && (!first_only || c->service->stops_first))
			kill(number == SIGKILL ? -c->pid : c->pid, number);
	}
}

/* Go on to the next phase as soon as this one is done, or late. */
static void
stop_step(struct supervisor *sup, bool late)
{
	if (sup->phase == STOPPING_FIRST && (late || running(sup, true) == 0)) {
		if (late)
			signal_running(sup, SIGKILL, true);
		sup->phase = STOPPING_REST;
		signal_running(sup, SIGTERM, false);
		strays_signal(sup, SIGTERM);
		after(sup->deadline, STOP_SECONDS * 1000LL);
		late = false;
	}
	if (sup->phase == STOPPING_REST && running(sup, false) == 0 &&
	    strays_signal(sup, SIGTERM) == 0) {
		event_base_loopbreak(sup->base);
		return;
	}
	if (sup->phase == STOPPING_REST && late) {
		sup->phase = KILLING;
		hb_log(HB_LOG_WARN, "killing", "msg", "not all processes ended when asked", NULL);
		signal_running(sup, SIGKILL, false);
		strays_signal(sup, SIGKILL);
		after(sup->deadline, KILL_SECONDS * 1000LL);
	} else if (sup->phase == KILLING &&
		   (late || (running(sup, false) == 0 && strays_signal(sup, SIGKILL) == 0))) {
		event_base_loopbreak(sup->base);
	}
}

static void
on_deadline(evutil_socket_t fd, short what, void *arg)
{
	stop_step(arg, true);
}

static void
on_stop(evutil_socket_t fd, short what, void *arg)
{
	struct supervisor *sup = arg;
	long long limit =
		hb_config_int(sup->options->config, "runtime.stop_timeout") + STOP_SECONDS;

	if (sup->phase != RUNNING)
		return;
	hb_log(HB_LOG_INFO, "stopping", NULL);
	sup->phase = STOPPING_FIRST;
	for (size_t i = 0; i < sup->count; i++)
		event_del(sup->children[i].restart);
	signal_running(sup, SIGTERM, true);
	after(sup->deadline, limit * 1000);
	stop_step(sup, false);
}

/* ---- ends of processes ---- */

static void
ended(struct child *c, int status)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	bool hopeless = code == EX_USAGE || code == EX_NOPERM || code == EX_CONFIG;
	pid_t pid = c->pid;
	char text[48];

	if (WIFSIGNALED(status))
		snprintf(text, sizeof(text), "signal %s", sigabbrev_np(WTERMSIG(status)));
	else
		snprintf(text, sizeof(text), "status %d", code);
	hb_log(c->sup->phase == RUNNING ? HB_LOG_WARN : HB_LOG_INFO, "ended", "service", name_of(c),
	       "by", text, NULL);
	c->pid = 0;
	c->ready = false;
	ready_close(c);
	if (c->service->end_group)
		kill(-pid, SIGKILL);
	if (c->sup->phase != RUNNING)
		return;
	if (hb_monotonic_ms() - c->started_ms > STABLE_MS)
		c->delay_ms = DELAY_FIRST_MS;
	restart_later(c, hopeless);
}

static void
on_child(evutil_socket_t fd, short what, void *arg)
{
	struct supervisor *sup = arg;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (size_t i = 0; i < sup->count; i++)
			if (sup->children[i].pid == pid)
				ended(&sup->children[i], status);
	if (sup->phase != RUNNING)
		stop_step(sup, false);
}

/* ---- all of it ---- */

static int
children_init(struct supervisor *sup, struct hb_error *err)
{
	for (size_t i = 0; i < hb_service_count && sup->count < SERVICES_MAX; i++) {
		struct child *c = &sup->children[sup->count];

		c->sup = sup;
		c->service = &hb_services[i];
		c->ready_fd = -1;
		c->delay_ms = DELAY_FIRST_MS;
		c->restart = evtimer_new(sup->base, on_restart, c);
		sup->count++;
		if (c->restart == NULL)
			return hb_fail(err, "internal", "cannot create a timer");
		if (!sup->options->foreground &&
		    hb_logfile_open(sup->base, hb_peer_dir(c->service->peer), &c->log, err) != 0)
			return -1;
	}
	return 0;
}

static int
signals_init(struct supervisor *sup, struct hb_error *err)
{
	static const struct {
		int number;
		event_callback_fn callback;
	} wanted[] = {{SIGCHLD, on_child}, {SIGTERM, on_stop}, {SIGINT, on_stop}};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		sup->signals[i] =
			evsignal_new(sup->base, wanted[i].number, wanted[i].callback, sup);
		if (sup->signals[i] == NULL || event_add(sup->signals[i], NULL) != 0)
			return hb_fail(err, "internal", "cannot watch signals");
	}
	sup->deadline = evtimer_new(sup->base, on_deadline, sup);
	return sup->deadline != NULL ? 0 : hb_fail(err, "internal", "cannot create a timer");
}

int
hb_supervise(const struct hb_supervise *options)
{
	struct supervisor sup = {.options = options,
				 .ready_fd = options->ready_fd,
				 .base = event_base_new()};
	struct hb_error err;
	int code = EX_OSERR;

	signal(SIGHUP, SIG_IGN);
	if (sup.base == NULL || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
		hb_log(HB_LOG_ERROR, "cannot_start", "msg",
		       "no event loop, or not allowed to adopt orphans", NULL);
	else if (children_init(&sup, &err) != 0 || signals_init(&sup, &err) != 0)
		hb_log(HB_LOG_ERROR, "cannot_start", "code", err.code, "msg", err.message, NULL);
	else
		code = 0;
	for (size_t i = 0; code == 0 && i < sup.count; i++)
		start(&sup.children[i]);
	if (code == 0 && event_base_dispatch(sup.base) < 0)
		code = EX_OSERR;
	for (size_t i = 0; i < sup.count; i++) {
		ready_close(&sup.children[i]);
		event_free(sup.children[i].restart);
		hb_logfile_free(sup.children[i].log);
	}
	for (int i = 0; i < 3; i++)
		if (sup.signals[i] != NULL)
			event_free(sup.signals[i]);
	if (sup.deadline != NULL)
		event_free(sup.deadline);
	hb_close(&sup.ready_fd);
	if (sup.base != NULL)
		event_base_free(sup.base);
	hb_log(HB_LOG_INFO, "stopped", NULL);
	return code;
}
