/* What the supervisor remembers and shows: phases, restarts within the window, the last failure and exit. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/installer/supervise_internal.h"
#include "common/ids.h"
#include "common/json.h"

#define PAUSE_MAX_MS 30000
#define CLEAN_STOP 130 /* what the payload answers SIGTERM with */

const char *hb_phase_name(enum hb_phase phase)
{
	static const char *const names[] = {"stopped", "starting", "running", "healthy", "unhealthy",
					    "stopping", "backoff", "gave_up"};

	return names[phase];
}

static void drop_old(struct hb_restarts *r, int64_t window_ms, int64_t now_ms)
{
	size_t old = 0;

	while (old < r->count && now_ms - r->at_ms[old] >= window_ms)
		old++;
	memmove(r->at_ms, r->at_ms + old, (r->count - old) * sizeof(r->at_ms[0]));
	r->count -= old;
}

size_t hb_restarts_count(const struct hb_restarts *r, int64_t window_ms, int64_t now_ms)
{
	size_t recent = 0;

	for (size_t i = 0; i < r->count; i++)
		recent += now_ms - r->at_ms[i] < window_ms;
	return recent;
}

/* 1, 2, 4 ... 30 s by the number of restarts in the window: a payload that was quiet for a whole window starts over. */
int64_t hb_restarts_note(struct hb_restarts *r, size_t budget, int64_t window_ms, int64_t now_ms)
{
	int64_t pause;

	drop_old(r, window_ms, now_ms);
	if (r->count >= budget || r->count >= HB_RESTARTS_MAX)
		return -1;
	pause = r->count < 5 ? 1000 << r->count : PAUSE_MAX_MS;
	r->at_ms[r->count++] = now_ms;
	return pause;
}

/* Kept until the next failure, whatever succeeds in between: it is what somebody asks for an hour later. */
void hb_supervisor_remember_failure(struct hb_supervisor *s, const struct hb_error *why)
{
	json_decref(s->last_failure);
	s->last_failure = json_pack("{s:I, s:s, s:s}", "at", (json_int_t)hb_now(), "code", why->code, "error",
				    why->message);
}

void hb_supervisor_remember_exit(struct hb_supervisor *s, const json_t *event, struct hb_error *why)
{
	const char *how = hb_json_text(event, "how", "exit");
	int status = (int)hb_json_int(event, "status", 0);
	bool by_signal = !strcmp(how, "signal");

	json_decref(s->last_exit);
	s->last_exit = json_pack("{s:s, s:i, s:I, s:b, s:I}", "how", how, "status", status, "at", (json_int_t)hb_now(),
				 "clean", !by_signal && (status == 0 || status == CLEAN_STOP), "killed",
				 (json_int_t)hb_json_int(event, "killed", 0));
	if (by_signal)
		hb_fail(why, "exited", "the runtime was ended by signal %d (%s); its output is in installer/runtime.log",
			status, sigabbrev_np(status) ? sigabbrev_np(status) : "?");
	else
		hb_fail(why, "exited", "the runtime exited by itself with status %d; its output is in "
				       "installer/runtime.log", status);
}

void hb_supervisor_forget_checks(struct hb_supervisor *s)
{
	json_decref(s->checks);
	json_decref(s->tools);
	s->checks = json_pack("{s:s, s:s, s:s, s:s}", "http", "not checked", "mcp_challenge", "not checked", "mcp_tools",
			      "not checked", "listeners", "not checked");
	s->tools = json_array();
	s->good_since_ms = s->healthy_since = 0;
	s->http_failures = 0;
	s->suspected = false;
	hb_fail(&s->last_check, "not_ready", "the runtime does not listen on 127.0.0.1:%u yet", s->port);
}

static json_t *process_status(const struct hb_supervisor *s)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:O?, s:O?}", "state", hb_phase_name(s->phase), "pid", (json_int_t)s->pid,
			 "started_at", (json_int_t)(s->pid ? s->started_at : 0), "restarts",
			 (json_int_t)hb_restarts_count(&s->restarts, s->window_ms, hb_monotonic_ms()), "last_exit",
			 s->last_exit, "last_failure", s->last_failure);
}

json_t *hb_supervisor_status(const struct hb_supervisor *s)
{
	const char *isolation = s->isolation[0] ? s->isolation : s->have_spec ? s->spec.isolation : "";
	json_t *health = json_pack("{s:b, s:I, s:O, s:O, s:O?}", "ok", s->phase == HB_HEALTHY, "since",
				   (json_int_t)s->healthy_since, "checks", s->checks, "tools", s->tools, "last_failure",
				   s->last_failure);
	json_t *out = json_pack("{s:o, s:o, s:s, s:s, s:s}", "process", process_status(s), "health", health,
				"isolation", isolation, "supervisor",
				s->supervisord ? "supervisord" : "embedded", "desired",
				s->desired ? "running" : "stopped");
	const char *path = hb_config_text(s->process->config, "runtime.mcp_path");
	char address[40];

	snprintf(address, sizeof(address), "http://127.0.0.1:%u", s->port);
	json_object_set_new(out, "address", json_string(address));
	json_object_set_new(out, "mcp_address", s->shown_address[0] ? json_string(s->shown_address)
						: path[0]	    ? json_sprintf("%s%s", address, path)
								    : json_string(""));
	json_object_set_new(out, "isolation_detail",
			    json_pack("{s:b, s:b, s:b}", "own_proc", s->own_proc, "landlock", s->landlocked,
				      "control_group", s->group));
	return out;
}
