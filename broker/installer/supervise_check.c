/*
 * Is it really healthy: the listener tables, the probe's answers and the deadlines, and what follows from them.
 *
 * The probe is only asked while the payload's own user holds the listening socket: what answers on the port is then the
 * payload. Listeners are looked at more often than the probe asks, since one outside loopback must not stay.
 */
#include <stdio.h>
#include <string.h>

#include "broker/installer/supervise_internal.h"
#include "common/ids.h"
#include "common/json.h"

#define STARTING_TICK_MS 250
#define LISTENER_TICK_MS 5000 /* a public listener lives no longer than this */
#define PROBE_STARTING_MS 1000
#define HTTP_FAILURES_MAX 3 /* consecutive; then it hangs and is started again */

static void check_failed(struct hb_supervisor *s, const struct hb_error *why)
{
	s->last_check = *why;
	s->good_since_ms = 0;
	if (s->phase == HB_RUNNING)
		hb_supervisor_set_phase(s, HB_STARTING);
	if (s->phase == HB_HEALTHY) {
		hb_supervisor_note_failure(s, why);
		s->healthy_since = 0;
		hb_supervisor_set_phase(s, HB_UNHEALTHY);
	}
}

static void check_passed(struct hb_supervisor *s, int64_t now)
{
	s->last_check = (struct hb_error){0};
	if (!s->good_since_ms)
		s->good_since_ms = now;
	if (s->phase == HB_STARTING)
		hb_supervisor_set_phase(s, HB_RUNNING);
	if (s->phase == HB_HEALTHY || s->suspected ||
	    (s->phase == HB_RUNNING && now - s->good_since_ms < s->sustain_ms))
		return;
	s->healthy_since = hb_now();
	hb_supervisor_set_phase(s, HB_HEALTHY);
	hb_supervisor_finish(s, &s->starting, NULL);
}

/* Only when it doesn't answer at all: a revoked key, say, is no reason to end a service that works. */
static void end_if_hanging(struct hb_supervisor *s)
{
	if (s->phase == HB_UNHEALTHY && s->http_failures >= HTTP_FAILURES_MAX)
		hb_supervisor_end(s, HB_NEXT_RESTART);
}

void hb_supervisor_on_answer(struct hb_supervisor *s, const json_t *answer)
{
	json_t *tools = json_object_get(answer, "tools"), *checks = json_object_get(answer, "checks");
	int64_t now = hb_monotonic_ms();
	struct hb_error why = {0};
	bool good = !hb_json_text(answer, "code", "?")[0];

	s->probe_busy = false;
	if (hb_json_int(answer, "run", -1) != s->run || !hb_supervisor_is_up(s))
		return;
	json_object_update(s->checks, checks);
	if (json_is_array(tools)) {
		json_decref(s->tools);
		s->tools = json_incref(tools);
	}
	if (strcmp(hb_json_text(checks, "mcp_challenge", ""), "ok") == 0)
		snprintf(s->shown_address, sizeof s->shown_address, "%s", hb_json_text(answer, "address", ""));
	s->http_failures = strcmp(hb_json_text(checks, "http", ""), "ok") ? s->http_failures + 1 : 0;
	s->probe_due_ms = now + (s->phase == HB_HEALTHY && good ? s->interval_ms : PROBE_STARTING_MS);
	if (good)
		check_passed(s, now);
	else {
		hb_fail(&why, hb_json_text(answer, "code", "not_ready"), "%s", hb_json_text(answer, "error", ""));
		check_failed(s, &why);
	}
	if (s->phase == HB_HEALTHY)
		s->probe_due_ms = now + s->interval_ms;
	hb_supervisor_finish(s, &s->probing, good ? NULL : &why);
	end_if_hanging(s);
}

/* False when the payload is being ended for what it listens on. */
bool hb_supervisor_look(struct hb_supervisor *s, int64_t now, bool *ready)
{
	struct hb_listener_report r;
	struct hb_error err;

	*ready = false;
	if (hb_listeners_check(s->listeners, s->runtime_uid, s->port, now, &r, &err) < 0) {
		check_failed(s, &err);
		return true;
	}
	s->suspected = r.public_suspected;
	if (r.public_found) {
		json_object_set_new(s->checks, "listeners", json_string(r.where));
		hb_fail(&err, "public_listener",
			"the runtime listens on %s, outside loopback, and was stopped; set "
			"runtime.env.EXECUTOR_HOST = 127.0.0.1",
			r.where);
		hb_supervisor_give_up(s, &err);
		return false;
	}
	json_object_set_new(s->checks, "listeners", json_string("ok"));
	*ready = r.ours;
	if (r.ours)
		return true;
	if (r.foreign)
		hb_fail(&err, "port_in_use", "port %u is taken by a process of uid %u", s->port, (unsigned)r.foreign_uid);
	else
		hb_fail(&err, "not_ready", "the runtime does not listen on 127.0.0.1:%u", s->port);
	check_failed(s, &err);
	s->http_failures++;
	return true;
}

int hb_supervisor_serves(struct hb_supervisor *s, struct hb_error *err)
{
	bool ready = false;

	if (!hb_supervisor_is_up(s) || !s->pid || !hb_supervisor_look(s, hb_monotonic_ms(), &ready))
		return hb_fail(err, "not_running", "the runtime is not running (%s); `hermesctl runtime start` starts it",
			       hb_phase_name(s->phase));
	if (ready)
		return 0;
	*err = s->last_check;
	return -1;
}

void hb_supervisor_ask(struct hb_supervisor *s, int64_t now)
{
	struct hb_error err;

	if (s->probe_busy)
		return;
	if (hb_supervisor_send_probe(s, &err) == 0)
		return;
	s->probe_due_ms = now + PROBE_STARTING_MS;
	json_object_set_new(s->checks, "mcp_tools", json_string(err.message));
	check_failed(s, &err);
	hb_supervisor_finish(s, &s->probing, &err);
}

/* A start that takes too long, the first as well as those after a crash. */
static bool too_late(struct hb_supervisor *s, int64_t now)
{
	if (s->phase != HB_STARTING && s->phase != HB_RUNNING)
		return false;
	if (now - s->started_ms < s->start_ms + s->sustain_ms)
		return false;
	if (s->starting) {
		hb_supervisor_give_up(s, &s->last_check);
	} else {
		hb_supervisor_note_failure(s, &s->last_check);
		hb_supervisor_end(s, HB_NEXT_RESTART);
	}
	return true;
}

void hb_supervisor_on_tick(struct hb_supervisor *s)
{
	int64_t now = hb_monotonic_ms(), pause = STARTING_TICK_MS;
	bool ready = false;

	if (!hb_supervisor_is_up(s) || (s->pid && !hb_supervisor_look(s, now, &ready)) || too_late(s, now))
		return;
	if (s->pid && ready && now >= s->probe_due_ms)
		hb_supervisor_ask(s, now);
	if (s->pid && !ready)
		end_if_hanging(s);
	if (!hb_supervisor_is_up(s))
		return;
	if (s->phase == HB_UNHEALTHY || (s->phase == HB_HEALTHY && s->suspected))
		pause = PROBE_STARTING_MS;
	else if (s->phase == HB_HEALTHY)
		pause = s->interval_ms < LISTENER_TICK_MS ? s->interval_ms : LISTENER_TICK_MS;
	if (!evtimer_pending(s->tick, NULL))
		hb_supervisor_set_tick(s, pause);
}
