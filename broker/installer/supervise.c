/*
 * The supervisor's decisions. Events come from three sides: the runner (started, failed, ended), the probe (answers)
 * and the clock (look at the listeners, ask the probe, deadlines). Each is handled here and may change the phase;
 * whoever waits is told from a deferred event, never from within a call of the interface.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/installer/supervise_internal.h"
#include "common/buf.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define FIRST_TICK_MS 250

/* --- telling those who wait --- */

static void finish_one(struct hb_supervisor *s, struct hb_waiter *w, const struct hb_error *err)
{
	struct hb_waiter **end = &s->finished;

	w->ok = err == NULL;
	w->err = err ? *err : (struct hb_error){0};
	w->next = NULL;
	while (*end)
		end = &(*end)->next;
	*end = w;
	event_active(s->finish, EV_TIMEOUT, 1);
}

void hb_supervisor_finish(struct hb_supervisor *s, struct hb_waiter **list, const struct hb_error *err)
{
	while (*list) {
		struct hb_waiter *w = *list;

		*list = w->next;
		finish_one(s, w, err);
	}
}

static void on_finish(evutil_socket_t fd, short what, void *arg)
{
	struct hb_supervisor *s = arg;

	while (s->finished) {
		struct hb_waiter *w = s->finished;

		s->finished = w->next;
		if (w->done)
			w->done(w->ok, &w->err, w->arg);
		free(w);
	}
}

static struct hb_waiter *waiter_new(hb_supervisor_done done, void *arg, struct hb_waiter *next)
{
	struct hb_waiter *w = hb_calloc(1, sizeof(*w));

	w->done = done;
	w->arg = arg;
	w->next = next;
	return w;
}

/* --- phases --- */

void hb_supervisor_set_phase(struct hb_supervisor *s, enum hb_phase phase)
{
	if (s->phase == phase)
		return;
	s->phase = phase;
	hb_log(HB_LOG_INFO, "runtime_state", "state", hb_phase_name(phase), NULL);
	if (s->changed)
		s->changed(s->changed_arg);
}

bool hb_supervisor_is_up(const struct hb_supervisor *s)
{
	return s->phase == HB_STARTING || s->phase == HB_RUNNING || s->phase == HB_HEALTHY || s->phase == HB_UNHEALTHY;
}

void hb_supervisor_note_failure(struct hb_supervisor *s, const struct hb_error *why)
{
	hb_supervisor_remember_failure(s, why);
	hb_log(HB_LOG_WARN, "runtime_failed", "code", why->code, "msg", why->message, NULL);
}

/* End the tree; `next` says what then. */
void hb_supervisor_end(struct hb_supervisor *s, enum hb_next next)
{
	s->next = next;
	evtimer_del(s->tick);
	hb_supervisor_send_stop(s);
	hb_supervisor_set_phase(s, HB_STOPPING);
}

static void begin(struct hb_supervisor *s)
{
	struct hb_listener_report r;
	struct hb_error err;

	hb_supervisor_forget_checks(s);
	s->waiting = !s->runner_up;
	if (s->waiting) { /* for the end of what an earlier runner left: it may hold the port */
		hb_supervisor_set_phase(s, HB_STARTING);
		return;
	}
	if (hb_listeners_check(s->listeners, s->runtime_uid, s->port, hb_monotonic_ms(), &r, &err) < 0) {
		hb_supervisor_give_up(s, &err);
		return;
	}
	if (r.ours || r.foreign) {
		hb_fail(&err, "port_in_use",
			"port %u is taken by a process of uid %u; stop it (ss -ltnp shows it) or set runtime.port",
			s->port, (unsigned)(r.foreign ? r.foreign_uid : s->runtime_uid));
		hb_supervisor_give_up(s, &err);
		return;
	}
	s->run++;
	s->pid = 0;
	s->isolation[0] = '\0';
	s->runner_busy = true;
	s->stop_sent = false;
	s->next = HB_NEXT_RESTART;
	s->started_ms = hb_monotonic_ms();
	s->started_at = hb_now();
	s->probe_due_ms = 0;
	hb_supervisor_set_phase(s, HB_STARTING);
	if (hb_supervisor_send_start(s, &err) < 0) {
		s->runner_busy = false;
		hb_supervisor_give_up(s, &err);
		return;
	}
	hb_supervisor_set_tick(s, FIRST_TICK_MS);
}

static void on_pause(evutil_socket_t fd, short what, void *arg)
{
	begin(arg);
}

/* It ended, or hangs, without being asked to. */
static void restart(struct hb_supervisor *s)
{
	int64_t pause = hb_restarts_note(&s->restarts, s->budget, s->window_ms, hb_monotonic_ms());
	struct timeval tv = {.tv_sec = pause / 1000, .tv_usec = pause % 1000 * 1000};

	if (pause < 0) {
		hb_log(HB_LOG_ERROR, "runtime_gave_up", "msg", "too many restarts; start the runtime again by hand", NULL);
		hb_supervisor_set_phase(s, HB_GAVE_UP);
		return;
	}
	hb_supervisor_set_phase(s, HB_BACKOFF);
	evtimer_add(s->pause, &tv);
}

void hb_supervisor_give_up(struct hb_supervisor *s, const struct hb_error *why)
{
	hb_supervisor_note_failure(s, why);
	evtimer_del(s->pause);
	/* A start that was asked for fails as a whole; a payload that was accepted before stays wanted. */
	if (s->starting) {
		s->desired = false;
		s->starting->err = *why;
	}
	if (s->runner_busy) {
		hb_supervisor_end(s, s->starting ? HB_NEXT_STOP : HB_NEXT_GIVE_UP);
		return;
	}
	hb_supervisor_set_phase(s, s->starting ? HB_STOPPED : HB_GAVE_UP);
	hb_supervisor_finish(s, &s->starting, why);
}

/* --- what the runner says --- */

static void port_or_exit(struct hb_supervisor *s, struct hb_error *why)
{
	struct hb_listener_report r;

	if (hb_listeners_check(s->listeners, s->runtime_uid, s->port, hb_monotonic_ms(), &r, NULL) == 0 && r.foreign)
		hb_fail(why, "port_in_use", "the runtime ended; port %u is taken by a process of uid %u", s->port,
			(unsigned)r.foreign_uid);
}

static void on_gone(struct hb_supervisor *s, struct hb_error *why)
{
	bool asked = s->phase == HB_STOPPING;
	struct hb_error start_error = s->starting ? s->starting->err : (struct hb_error){0};
	struct hb_error stopped;

	s->runner_busy = false;
	s->pid = 0;
	s->probe_due_ms = 0;
	evtimer_del(s->tick);
	hb_fail(&stopped, "not_running", "the runtime has ended");
	hb_supervisor_finish(s, &s->probing, &stopped);
	if (!asked) {
		port_or_exit(s, why);
		if (s->starting) {
			hb_supervisor_give_up(s, why);
			return;
		}
		hb_supervisor_note_failure(s, why);
		restart(s);
		return;
	}
	if (s->next == HB_NEXT_START) {
		hb_supervisor_finish(s, &s->stopping, NULL);
		begin(s);
		return;
	}
	if (s->next == HB_NEXT_RESTART) {
		restart(s);
		return;
	}
	hb_supervisor_set_phase(s, s->next == HB_NEXT_GIVE_UP ? HB_GAVE_UP : HB_STOPPED);
	if (s->starting)
		hb_supervisor_finish(s, &s->starting, &start_error);
	hb_supervisor_finish(s, &s->stopping, NULL);
}

static void on_started(struct hb_supervisor *s, const json_t *event)
{
	s->pid = (pid_t)hb_json_int(event, "pid", 0);
	snprintf(s->isolation, sizeof(s->isolation), "%s", hb_json_text(event, "isolation", ""));
	s->own_proc = hb_json_bool(event, "own_proc", false);
	s->landlocked = hb_json_bool(event, "landlock", false);
	hb_log(HB_LOG_INFO, "runtime_started", "isolation", s->isolation, NULL);
	if (s->changed)
		s->changed(s->changed_arg);
}

void hb_supervisor_on_event(struct hb_supervisor *s, const json_t *event)
{
	const char *name = hb_json_text(event, "event", "");
	struct hb_error why = {0};

	if (!strcmp(name, "up")) {
		s->group = hb_json_bool(event, "group", false);
		if (hb_json_int(event, "leftovers", 0) > 0)
			hb_log(HB_LOG_WARN, "runtime_leftovers_ended", NULL);
		s->runner_up = true;
		if (s->waiting)
			begin(s);
		return;
	}
	if (hb_json_int(event, "run", 0) != s->run || !s->runner_busy) {
		if (!strcmp(name, "failed"))
			hb_log(HB_LOG_ERROR, "runner_failed", "msg", hb_json_text(event, "error", ""), NULL);
		return;
	}
	if (!strcmp(name, "started") && s->phase == HB_STARTING)
		on_started(s, event);
	else if (!strcmp(name, "failed")) {
		hb_fail(&why, hb_json_text(event, "code", "start_failed"), "%s", hb_json_text(event, "error", ""));
		on_gone(s, &why);
	} else if (!strcmp(name, "ended")) {
		hb_supervisor_remember_exit(s, event, &why);
		on_gone(s, &why);
	} else if (!strcmp(name, "stuck")) {
		hb_fail(&why, "stop_failed", "processes of the runtime outlive SIGKILL; the kernel holds them");
		hb_supervisor_note_failure(s, &why);
		hb_supervisor_finish(s, &s->stopping, &why);
	}
}

/* --- the interface --- */

static void copy_spec(struct hb_supervisor *s, const struct hb_run_spec *spec)
{
	json_t *text = hb_run_spec_to_json(spec);

	hb_run_spec_free(&s->spec);
	s->have_spec = hb_run_spec_from_json(text, &s->spec, &s->last_check) == 0;
	json_decref(text);
}

void hb_supervisor_start(struct hb_supervisor *s, const struct hb_run_spec *spec, hb_supervisor_done done, void *arg)
{
	struct hb_error err;

	hb_fail(&err, "cancelled", "another start or stop came in between");
	hb_supervisor_finish(s, &s->starting, &err);
	evtimer_del(s->pause);
	copy_spec(s, spec);
	s->starting = waiter_new(done, arg, NULL);
	s->restarts.count = 0;
	if (!s->have_spec) {
		err = s->last_check;
		hb_supervisor_give_up(s, &err);
		return;
	}
	s->desired = true;
	if (s->runner_busy)
		hb_supervisor_end(s, HB_NEXT_START);
	else
		begin(s);
}

void hb_supervisor_stop(struct hb_supervisor *s, hb_supervisor_done done, void *arg)
{
	struct hb_error err;

	hb_fail(&err, "cancelled", "the runtime was stopped before it had become healthy");
	hb_supervisor_finish(s, &s->starting, &err);
	evtimer_del(s->pause);
	s->waiting = s->desired = false;
	s->stopping = waiter_new(done, arg, s->stopping);
	if (s->runner_busy) {
		hb_supervisor_end(s, HB_NEXT_STOP);
		return;
	}
	hb_supervisor_set_phase(s, HB_STOPPED);
	hb_supervisor_finish(s, &s->stopping, NULL);
}

void hb_supervisor_probe(struct hb_supervisor *s, hb_supervisor_done done, void *arg)
{
	struct hb_error err;
	bool ready;

	s->probing = waiter_new(done, arg, s->probing);
	if (!hb_supervisor_is_up(s) || !s->pid) {
		hb_fail(&err, "not_running", "the runtime is not running (%s)", hb_phase_name(s->phase));
		hb_supervisor_finish(s, &s->probing, &err);
		return;
	}
	if (!hb_supervisor_look(s, hb_monotonic_ms(), &ready))
		return; /* told when it has ended */
	if (ready)
		hb_supervisor_ask(s, hb_monotonic_ms());
	else
		hb_supervisor_finish(s, &s->probing, &s->last_check);
}

bool hb_supervisor_is_running(const struct hb_supervisor *s)
{
	return hb_supervisor_is_up(s) || s->phase == HB_BACKOFF || s->phase == HB_STOPPING;
}

static int supervisor_make(struct hb_process *process, bool trial, uint16_t port, struct hb_supervisor **out,
			   struct hb_error *err)
{
	struct hb_supervisor *s = hb_calloc(1, sizeof(*s));
	const struct hb_config *c = process->config;

	snprintf(s->instance, sizeof(s->instance), trial ? "%.26s-trial" : "%.32s", process->host_id);
	s->trial = trial;
	s->supervisord = !trial && !strcmp(hb_config_text(process->config, "runtime.supervisor"), "supervisord");

	s->process = process;
	s->runner_fd = s->probe_fd = -1;
	s->runtime_uid = hb_peer_uid(HB_PEER_RUNTIME);
	s->port = port;
	s->start_ms = hb_config_int(c, "runtime.start_timeout") * 1000;
	s->sustain_ms = hb_config_int(c, "runtime.health_sustain") * 1000;
	s->interval_ms = hb_config_int(c, "runtime.health_interval") * 1000;
	s->stop_ms = hb_config_int(c, "runtime.stop_timeout") * 1000;
	s->window_ms = hb_config_int(c, "runtime.restart_window") * 1000;
	s->budget = (size_t)hb_config_int(c, "runtime.restart_budget");
	hb_supervisor_forget_checks(s);
	if (hb_supervisor_fork(s, err) < 0 || hb_listeners_open(&s->listeners, err) < 0) {
		hb_supervisor_free(s);
		return -1;
	}
	*out = s;
	return 0;
}

int hb_supervisor_new(struct hb_process *process, struct hb_supervisor **out, struct hb_error *err)
{
	return supervisor_make(process, false, (uint16_t)hb_config_int(process->config, "runtime.port"), out, err);
}

int hb_supervisor_new_trial(struct hb_process *process, uint16_t port, struct hb_supervisor **out, struct hb_error *err)
{
	return supervisor_make(process, true, port, out, err);
}

uint16_t hb_supervisor_port(const struct hb_supervisor *s)
{
	return s->port;
}

int hb_supervisor_run(struct hb_supervisor *s, void (*changed)(void *arg), void *arg, struct hb_error *err)
{
	struct event_base *base = s->process->base;

	s->changed = changed;
	s->changed_arg = arg;
	s->pause = evtimer_new(base, on_pause, s);
	s->finish = event_new(base, -1, 0, on_finish, s);
	if (!s->pause || !s->finish)
		return hb_fail(err, "event_failed", "cannot make the supervisor's timers");
	return hb_supervisor_listen(s, err);
}

void hb_supervisor_free(struct hb_supervisor *s)
{
	struct event *events[] = {s->runner_event, s->probe_event, s->tick, s->pause, s->finish};
	struct hb_waiter *lists[] = {s->starting, s->stopping, s->probing, s->finished};

	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (events[i])
			event_free(events[i]);
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		while (lists[i]) {
			struct hb_waiter *w = lists[i];

			lists[i] = w->next;
			free(w);
		}
	hb_supervisor_close_workers(s);
	hb_listeners_free(s->listeners);
	hb_run_spec_free(&s->spec);
	json_decref(s->checks);
	json_decref(s->tools);
	json_decref(s->last_failure);
	json_decref(s->last_exit);
	free(s);
}
