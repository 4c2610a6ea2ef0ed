/*
 * Driving supervisord (runner_supervisord.h): one loop over the command pipe and a clock that asks for the state.
 *
 *   IDLE --start--> STARTING --pid, "ready"--> RUNNING --stop or exit--> ENDING --not running--> IDLE
 */
#include "broker/installer/runner_supervisord.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/hermes_run.h"
#include "broker/installer/runner_tree.h"
#include "broker/installer/supervisord_rpc.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/sandbox.h"

#define SPEC_PATH "installer/run-spec.json"
#define STATUS_PATH "installer/run-status.json"
#define STATUS_MAX 16384
#define POLL_MS 200
#define SET_UP_MS 20000
#define ORPHAN_GRACE_MS 1000 /* what the group's signals did not reach had the whole stop_timeout already */
#define LEFTOVER_GRACE_MS 5000
#define STUCK_MS 15000
#define LOG_TAIL 8192

#define CAP(name) (1ULL << CAP_##name)
/* KILL and SYS_PTRACE: ending what left the process group, known by its environment. DAC_OVERRIDE: the state below
 * directories that root does not own. SYS_ADMIN: taking a chroot's mounts away. All else is hermes-run's, which is
 * supervisord's child. */
#define RUNNER_CAPS (CAP(KILL) | CAP(SYS_PTRACE) | CAP(DAC_OVERRIDE) | CAP(SYS_ADMIN))

/* http://supervisord.org/subprocess.html#process-states */
enum { STOPPED = 0, STARTING = 10, RUNNING = 20, BACKOFF = 30, STOPPING = 40, EXITED = 100, FATAL = 200 };

enum state { S_IDLE, S_STARTING, S_RUNNING, S_ENDING };

struct driver {
	struct hb_runner_options options;
	int command_fd;
	struct hb_tree tree; /* without a group: only for what is left over */
	char name[40], program[PATH_MAX], here[PATH_MAX];
	enum state state;
	bool leaving, stuck_told;
	json_int_t run;
	int64_t deadline;
	struct hb_buf answer;
};

static void tell(struct driver *d, json_t *packet)
{
	char *text = json_dumps(packet, JSON_COMPACT);

	json_decref(packet);
	if (text && !d->leaving && send(d->command_fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		d->leaving = true;
	free(text);
}

static void tell_failed(struct driver *d, const struct hb_error *err)
{
	d->state = S_IDLE;
	tell(d, json_pack("{s:s, s:I, s:s, s:s}", "event", "failed", "run", d->run, "code", err->code, "error",
			  err->message));
}

/* --- supervisord --- */

static int call(struct driver *d, const char *method, bool named, const char *more, struct hb_error *err)
{
	char params[256];

	snprintf(params, sizeof(params), "%s%s%s%s", named ? "<param><value><string>" : "", named ? d->name : "",
		 named ? "</string></value></param>" : "", more);
	return hb_supervisord_call(d->options.supervisord_socket, method, params, &d->answer, err);
}

#define NO_WAIT "<param><value><boolean>0</boolean></value></param>"
#define WAIT "<param><value><boolean>1</boolean></value></param>"

/* Its state, or -1; d->answer holds the whole description. BAD_NAME: it doesn't know the program, so nothing runs. */
static int state_of(struct driver *d, struct hb_error *err)
{
	int rc = call(d, "supervisor.getProcessInfo", true, "", err);

	if (rc == HB_SUPERVISORD_BAD_NAME)
		return STOPPED;
	return rc == 0 ? (int)hb_supervisord_number(d->answer.data, "state") : -1;
}

/* Words of its configuration file can hold neither its comment and expansion characters nor the shell's. */
static bool is_plain(const char *path)
{
	return path[strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+@:,=-")] == '\0';
}

static int write_entry(struct driver *d, struct hb_error *err)
{
	int seconds = (d->options.stop_timeout_ms + 999) / 1000, dir, rc;
	const char *conf = d->options.supervisord_conf, *slash = strrchr(conf, '/');
	char *text, parent[PATH_MAX];

	snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - conf) + 1 : 1, slash ? conf : ".");
	dir = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return hb_fail_errno(err, "supervisord_failed", "%s, where runtime.supervisord_conf lies", parent);
	if (!is_plain(d->program) || !is_plain(d->here)) {
		close(dir);
		return hb_fail(err, "bad_path", "supervisord's configuration can't hold the path %s or %s", d->program,
			       d->here);
	}
	text = hb_asprintf("; Written by hermes-installer at each start of the runtime; changes are lost.\n"
			   "[program:%s]\n"
			   "command=%s --spec %s/" SPEC_PATH " --status-file %s/" STATUS_PATH "\n"
			   "directory=%s\n"
			   "autostart=false\nautorestart=false\nstartsecs=0\nstartretries=0\nexitcodes=0,130\n"
			   "stopsignal=TERM\nstopwaitsecs=%d\nstopasgroup=true\nkillasgroup=true\n"
			   "redirect_stderr=true\nstdout_logfile=%s/" HB_RUNTIME_LOG_DIR "/" HB_RUNTIME_LOG "\n"
			   "stdout_logfile_maxbytes=%uMB\nstdout_logfile_backups=1\n",
			   d->name, d->program, d->here, d->here, d->here, seconds > 0 ? seconds : 1, d->here,
			   HB_RUNTIME_LOG_MAX >> 20);
	rc = hb_fs_write_atomic(dir, slash ? slash + 1 : conf, text, strlen(text), 0644, 0, 0, err);
	free(text);
	close(dir);
	return rc < 0 ? hb_fail_prefix(err, "runtime.supervisord_conf") : 0;
}

/* The entry is new at each start: an older one of the same name is taken out first. */
static int load_entry(struct driver *d, struct hb_error *err)
{
	int rc;

	if (call(d, "supervisor.reloadConfig", false, "", err) != 0)
		return -1;
	rc = call(d, "supervisor.removeProcessGroup", true, "", err);
	if (rc != 0 && rc != HB_SUPERVISORD_BAD_NAME)
		return -1;
	rc = call(d, "supervisor.addProcessGroup", true, "", err);
	if (rc == HB_SUPERVISORD_BAD_NAME)
		return hb_fail(err, "supervisord_failed",
			       "supervisord doesn't read %s; add it to files= of its [include] section, or set "
			       "runtime.supervisord_conf", d->options.supervisord_conf);
	return rc == 0 || rc == HB_SUPERVISORD_ALREADY_ADDED ? 0 : -1;
}

/* --- hermes-run's own words --- */

/* 1: ready, 0: nothing yet, -1: it failed. */
static int read_status(json_t **ready, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	char *save = NULL, *line;
	int found = 0;

	if (hb_fs_read(AT_FDCWD, STATUS_PATH, STATUS_MAX, &text, NULL) == 0)
		hb_buf_addc(&text, '\0');
	for (line = text.len ? strtok_r(text.data, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		json_t *object = hb_json_parse(line, strlen(line), NULL);
		const char *event = hb_json_text(object, "event", "");

		if (!strcmp(event, "failed"))
			found = hb_fail(err, hb_json_text(object, "code", "start_failed"), "%s",
					hb_json_text(object, "error", "hermes-run failed"));
		if (!strcmp(event, "ready") && found == 0) {
			json_decref(*ready);
			*ready = json_incref(object);
			found = 1;
		}
		json_decref(object);
	}
	hb_buf_free(&text);
	return found;
}

/* --- starting and ending --- */

static int write_spec(const json_t *spec, struct hb_error *err)
{
	char *text = json_dumps(spec, JSON_COMPACT);
	int rc;

	if (!text)
		return hb_fail(err, "bad_spec", "the run spec can't be written");
	rc = hb_fs_write_atomic(AT_FDCWD, SPEC_PATH, text, strlen(text), 0600, 0, 0, err);
	free(text);
	if (rc == 0)
		rc = hb_fs_write_atomic(AT_FDCWD, STATUS_PATH, "", 0, 0600, 0, 0, err);
	return rc;
}

static void start(struct driver *d, const json_t *packet)
{
	struct hb_error err;

	d->run = hb_json_int(packet, "run", 0);
	d->options.stop_timeout_ms = (int)hb_json_int(packet, "stop_timeout_ms", d->options.stop_timeout_ms);
	if (d->state != S_IDLE)
		hb_fail(&err, "busy", "the runner is still busy with another release");
	else if (write_spec(json_object_get(packet, "spec"), &err) == 0 && write_entry(d, &err) == 0 &&
		 load_entry(d, &err) == 0 && call(d, "supervisor.startProcess", true, NO_WAIT, &err) == 0) {
		d->state = S_STARTING;
		d->deadline = hb_monotonic_ms() + SET_UP_MS;
		return;
	}
	if (d->state == S_IDLE)
		tell_failed(d, &err);
	else
		tell(d, json_pack("{s:s, s:I, s:s, s:s}", "event", "failed", "run", d->run, "code", err.code, "error",
				  err.message));
}

static void begin_ending(struct driver *d)
{
	struct hb_error err;

	if (d->state == S_IDLE || d->state == S_ENDING)
		return;
	d->state = S_ENDING;
	d->stuck_told = false;
	d->deadline = hb_monotonic_ms() + d->options.stop_timeout_ms + STUCK_MS;
	/* Not running any more: the next look at its state finds that. */
	(void)call(d, "supervisor.stopProcess", true, NO_WAIT, &err);
}

/* It tells which signal it was only in its log. */
static int signal_of(struct driver *d)
{
	struct hb_buf text = HB_BUF_INIT;
	char wanted[80], name[16] = "";
	const char *at, *last = NULL;
	int sig = 0;

	snprintf(wanted, sizeof(wanted), "%s (terminated by SIG", d->name);
	if (call(d, "supervisor.readLog", false,
		 "<param><value><int>-8192</int></value></param><param><value><int>0</int></value></param>", NULL) == 0 &&
	    hb_supervisord_text(d->answer.data, &text)) {
		hb_buf_addc(&text, '\0');
		for (at = text.data; (at = strstr(at, wanted)); at++)
			last = at;
	}
	if (last && sscanf(last + strlen(wanted), "%15[A-Z0-9]", name) == 1)
		for (sig = NSIG - 1; sig > 0; sig--)
			if (sigabbrev_np(sig) && !strcmp(sigabbrev_np(sig), name))
				break;
	hb_buf_free(&text);
	return sig;
}

/* Nothing runs any more: its whole tree, then the news. */
static void ended(struct driver *d, int state)
{
	long status = hb_supervisord_number(d->answer.data, "exitstatus");
	char text[32] = "", why[200] = "";
	bool failed = false;
	struct hb_error err = {0};
	json_t *ready = NULL;
	int killed, sig = 0;

	if (state == FATAL || state == BACKOFF) {
		hb_supervisord_member(d->answer.data, "spawnerr", why, sizeof(why));
		failed = true;
	}
	/* exitstatus is -1 for a signal, and so is what can't be read: the text tells them apart. */
	hb_supervisord_member(d->answer.data, "exitstatus", text, sizeof(text));
	if (!strcmp(text, "-1"))
		sig = signal_of(d);
	killed = hb_tree_end_leftovers(&d->tree, d->options.host_id, d->options.uid, ORPHAN_GRACE_MS);
	hb_run_root_remove();
	if (failed)
		hb_fail(&err, "start_failed", "supervisord can't start hermes-run: %s", why);
	else if (d->state == S_STARTING && read_status(&ready, &err) == 0)
		hb_fail(&err, "start_failed", "hermes-run ended while it set the runtime up");
	else if (d->state != S_STARTING)
		read_status(&ready, NULL);
	json_decref(ready);
	if (err.code[0]) {
		tell_failed(d, &err);
		return;
	}
	d->state = S_IDLE;
	tell(d, json_pack("{s:s, s:I, s:s, s:i, s:i}", "event", "ended", "run", d->run, "how",
			  !strcmp(text, "-1") ? "signal" : "exit", "status", !strcmp(text, "-1") ? sig : (int)status,
			  "killed", killed));
}

static void is_up(struct driver *d)
{
	struct hb_error err;
	json_t *ready = NULL;

	if (read_status(&ready, &err) > 0) {
		d->state = S_RUNNING;
		tell(d, json_pack("{s:s, s:I, s:I, s:s, s:b, s:b}", "event", "started", "run", d->run, "pid",
				  (json_int_t)hb_supervisord_number(d->answer.data, "pid"), "isolation",
				  hb_json_text(ready, "isolation", "?"), "own_proc", hb_json_bool(ready, "own_proc", false),
				  "landlock", hb_json_bool(ready, "landlock", false)));
	} else if (hb_monotonic_ms() > d->deadline)
		begin_ending(d);
	json_decref(ready);
}

/* What supervisord says now. While it doesn't answer nothing is known, and nothing is told. */
static void look(struct driver *d)
{
	struct hb_error err;
	int state = state_of(d, &err);

	if (state < 0)
		return;
	if (state != STARTING && state != RUNNING && state != STOPPING) {
		ended(d, state);
		return;
	}
	if (d->state == S_STARTING && state == RUNNING)
		is_up(d);
	if (d->state == S_ENDING && hb_monotonic_ms() > d->deadline && !d->stuck_told) {
		d->stuck_told = true;
		tell(d, json_pack("{s:s, s:I}", "event", "stuck", "run", d->run));
	}
}

static void read_command(struct driver *d)
{
	static char packet[HB_PACKET_MAX];
	ssize_t n = recv(d->command_fd, packet, sizeof(packet), MSG_DONTWAIT);
	json_t *object;
	const char *cmd;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		d->leaving = true;
		begin_ending(d);
		return;
	}
	object = hb_json_parse(packet, (size_t)n, NULL);
	cmd = hb_json_text(object, "cmd", "");
	if (!strcmp(cmd, "start"))
		start(d, object);
	else if (!strcmp(cmd, "stop") && d->state == S_IDLE)
		tell(d, json_pack("{s:s, s:I, s:s, s:i, s:i}", "event", "ended", "run", hb_json_int(object, "run", 0), "how",
				  "none", "status", 0, "killed", 0));
	else if (!strcmp(cmd, "stop"))
		begin_ending(d);
	json_decref(object);
}

static void loop(struct driver *d)
{
	int64_t give_up = 0;

	while (!d->leaving || d->state != S_IDLE) {
		struct pollfd p = {.fd = d->leaving ? -1 : d->command_fd, .events = POLLIN};

		if (poll(&p, 1, d->state == S_IDLE ? -1 : POLL_MS) < 0 && errno != EINTR)
			return;
		if (p.revents)
			read_command(d);
		if (d->state != S_IDLE)
			look(d);
		/* Without an installer and without an answer there is nothing left to wait for. */
		if (d->leaving && give_up == 0)
			give_up = hb_monotonic_ms() + d->options.stop_timeout_ms + STUCK_MS;
		if (d->leaving && hb_monotonic_ms() > give_up)
			return;
	}
}

/* Of an earlier life: stopped first, whoever started it. */
static int end_earlier(struct driver *d)
{
	int64_t deadline = hb_monotonic_ms() + d->options.stop_timeout_ms + LEFTOVER_GRACE_MS;
	struct hb_error err;
	int state = state_of(d, &err), found = 0;

	if (state == STARTING || state == RUNNING || state == STOPPING) {
		found = 1;
		(void)call(d, "supervisor.stopProcess", true, NO_WAIT, &err);
	}
	while ((state == STARTING || state == RUNNING || state == STOPPING) && hb_monotonic_ms() < deadline) {
		poll(NULL, 0, POLL_MS);
		state = state_of(d, &err);
	}
	return found + hb_tree_end_leftovers(&d->tree, d->options.host_id, d->options.uid, LEFTOVER_GRACE_MS);
}

void hb_runner_supervisord(const struct hb_runner_options *options, int fd)
{
	struct driver d = {.options = *options, .command_fd = fd, .tree.group_fd = -1};
	const struct hb_sandbox box = {.name = "runner", .deny_list = true, .syscalls = HB_SYS_MOUNT,
				       .keep_caps = RUNNER_CAPS};
	char link[40];
	struct hb_error err;
	ssize_t n;
	int leftovers;

	hb_worker_isolate(fd, options->hermes_run_fd);
	prctl(PR_SET_NAME, "hermes-runner", 0, 0, 0);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", options->hermes_run_fd);
	n = readlink(link, d.program, sizeof(d.program) - 1);
	d.program[n > 0 ? n : 0] = '\0';
	snprintf(d.name, sizeof(d.name), "hermes-runtime-%.8s", options->host_id);
	(void)mkdir(HB_RUNTIME_LOG_DIR, 0700); /* there already, but in tests */
	if (!getcwd(d.here, sizeof(d.here)) || hb_sandbox_apply(&box, false, NULL, &err) < 0) {
		hb_fail_prefix(&err, "the runner");
		tell_failed(&d, &err);
		_exit(71);
	}
	leftovers = end_earlier(&d);
	hb_run_root_remove();
	tell(&d, json_pack("{s:s, s:b, s:i}", "event", "up", "group", 0, "leftovers", leftovers));
	loop(&d);
	_exit(0);
}
