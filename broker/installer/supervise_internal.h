/* Inside of the supervisor: supervise.c (interface, starting and ending), supervise_check.c (listeners, probe, deadlines),
 * supervise_io.c (workers), supervise_state.c (what is remembered and shown). */
#ifndef HB_INSTALLER_SUPERVISE_INTERNAL_H
#define HB_INSTALLER_SUPERVISE_INTERNAL_H

#include <event2/event.h>

#include "broker/installer/listeners.h"
#include "broker/installer/supervise.h"

#define HB_RESTARTS_MAX 1000 /* as many as runtime.restart_budget may say */

enum hb_phase {
	HB_STOPPED,
	HB_STARTING,  /* no check has passed yet */
	HB_RUNNING,   /* all checks pass, but not for health_sustain seconds */
	HB_HEALTHY,
	HB_UNHEALTHY, /* it was healthy; a check fails now */
	HB_STOPPING,
	HB_BACKOFF,   /* it ended by itself and is started again after a pause */
	HB_GAVE_UP
};

/* What comes when the tree that is being ended is gone. */
enum hb_next { HB_NEXT_STOP, HB_NEXT_START, HB_NEXT_RESTART, HB_NEXT_GIVE_UP };

struct hb_waiter {
	hb_supervisor_done done;
	void *arg;
	struct hb_waiter *next;
	int ok;
	struct hb_error err;
};

struct hb_restarts {
	int64_t at_ms[HB_RESTARTS_MAX];
	size_t count; /* within the window, oldest first */
};

struct hb_supervisor {
	struct hb_process *process;
	void (*changed)(void *arg);
	void *changed_arg;

	int runner_fd, probe_fd;
	pid_t runner_pid, probe_pid;
	struct event *runner_event, *probe_event, *tick, *pause, *finish;
	struct hb_listeners *listeners;

	/* configuration */
	char instance[33]; /* marks its processes and its control group: the host id, or one made of it for a trial */
	bool trial, supervisord; /* supervisord: it starts and stops the payload for the runner */
	uid_t runtime_uid;
	uint16_t port;
	int64_t start_ms, sustain_ms, interval_ms, stop_ms, window_ms;
	size_t budget;

	enum hb_phase phase;
	bool desired, have_spec, runner_up, waiting, runner_busy, stop_sent, probe_busy;
	enum hb_next next;
	struct hb_run_spec spec;
	json_int_t run; /* number of the present start: what is said about another one is old */
	pid_t pid;
	int64_t started_at, started_ms, good_since_ms, healthy_since, probe_due_ms;
	char shown_address[301]; /* the MCP server's own name for itself; "": it shows none */
	char isolation[16];
	bool own_proc, landlocked, group;
	int http_failures;
	bool suspected; /* a UDP socket outside loopback that is not judged yet */
	struct hb_restarts restarts;

	json_t *checks, *tools;    /* of the last probe */
	struct hb_error last_check; /* why it isn't ready yet; code "" when it is */
	json_t *last_failure, *last_exit;

	struct hb_waiter *starting; /* at most one */
	struct hb_waiter *stopping, *probing, *finished;
};

/* --- supervise.c --- */
void hb_supervisor_set_phase(struct hb_supervisor *s, enum hb_phase phase);
/* The start or the running payload failed for good: stop it, tell, remember. */
void hb_supervisor_give_up(struct hb_supervisor *s, const struct hb_error *why);
void hb_supervisor_note_failure(struct hb_supervisor *s, const struct hb_error *why);
/* End the tree; `next` says what then. */
void hb_supervisor_end(struct hb_supervisor *s, enum hb_next next);
/* Tell everybody on the list, soon; err NULL: all is well. */
void hb_supervisor_finish(struct hb_supervisor *s, struct hb_waiter **list, const struct hb_error *err);
bool hb_supervisor_is_up(const struct hb_supervisor *s);
void hb_supervisor_on_event(struct hb_supervisor *s, const json_t *event);

/* --- supervise_check.c --- */
/* False when the payload is being ended for what it listens on; `ready`: it holds its port. */
bool hb_supervisor_look(struct hb_supervisor *s, int64_t now, bool *ready);
void hb_supervisor_ask(struct hb_supervisor *s, int64_t now);
void hb_supervisor_on_answer(struct hb_supervisor *s, const json_t *answer);
void hb_supervisor_on_tick(struct hb_supervisor *s);

/* --- supervise_io.c --- */
int hb_supervisor_fork(struct hb_supervisor *s, struct hb_error *err);
int hb_supervisor_listen(struct hb_supervisor *s, struct hb_error *err);
int hb_supervisor_send_start(struct hb_supervisor *s, struct hb_error *err);
void hb_supervisor_send_stop(struct hb_supervisor *s);
int hb_supervisor_send_probe(struct hb_supervisor *s, struct hb_error *err);
void hb_supervisor_close_workers(struct hb_supervisor *s);
void hb_supervisor_set_tick(struct hb_supervisor *s, int64_t ms);

/* --- supervise_state.c --- */
const char *hb_phase_name(enum hb_phase phase);
void hb_supervisor_remember_failure(struct hb_supervisor *s, const struct hb_error *why);
void hb_supervisor_remember_exit(struct hb_supervisor *s, const json_t *event, struct hb_error *why);
void hb_supervisor_forget_checks(struct hb_supervisor *s);
/* Notes a restart; the pause before it in milliseconds, or -1 when the budget is used up. */
int64_t hb_restarts_note(struct hb_restarts *r, size_t budget, int64_t window_ms, int64_t now_ms);
size_t hb_restarts_count(const struct hb_restarts *r, int64_t window_ms, int64_t now_ms);

#endif
