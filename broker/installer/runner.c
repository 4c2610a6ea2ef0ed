/*
 * The runner's life: fork, end what an earlier one left, reduce itself, then one loop over the command pipe, the status
 * pipe of hermes-run, the payload's output and SIGCHLD.
 *
 *   IDLE --start--> SETTING_UP --exec--> RUNNING --stop or exit--> ENDING --no child left--> IDLE
 */
#include "broker/installer/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/installer/hermes_run.h"
#include "broker/installer/runner_log.h"
#include "broker/installer/runner_supervisord.h"
#include "broker/installer/runner_tree.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/sandbox.h"

#define SET_UP_MS 20000      /* mounts on a busy disk; hermes-run itself needs 20 ms */
#define ORPHAN_GRACE_MS 5000 /* for what outlives the main process */
#define KILL_AGAIN_MS 100
#define STUCK_MS 15000
#define LEFTOVER_GRACE_MS 5000

#define CAP(name) (1ULL << CAP_##name)
/* SYS_ADMIN and SYS_CHROOT: the payload's root; SETUID, SETGID, SETPCAP: becoming the payload and giving up the rest;
 * KILL: ending it; DAC_OVERRIDE: state or storage below directories that root does not own, and removing the control
 * group (its parent is 0555). */
#define RUNNER_CAPS \
	(CAP(SYS_ADMIN) | CAP(SYS_CHROOT) | CAP(SETUID) | CAP(SETGID) | CAP(SETPCAP) | CAP(KILL) | \
	 CAP(DAC_OVERRIDE))

enum state { IDLE, SETTING_UP, RUNNING, ENDING };

struct runner {
	struct hb_runner_options options;
	int command_fd, signal_fd, status_fd;
	struct hb_tree tree;
	struct hb_runtime_log log;
	enum state state;
	bool leaving; /* the installer is gone */

	json_int_t run;
	pid_t pid; /* of the main process; 0 once it is reaped */
	int exit_status;
	struct hb_buf status_text; /* from hermes-run */
	struct hb_error failure;   /* hermes-run's, or code "" */
	int64_t deadline;          /* of SETTING_UP, or when ENDING turns to SIGKILL */
	int64_t killing_since;     /* 0: not yet */
	bool stuck_told;
	int killed;
};

void hb_worker_isolate(int keep, int keep_too)
{
	int high = keep > keep_too ? keep : keep_too;
	sigset_t none;

	for (int fd = 3; fd < high; fd++)
		if (fd != keep && fd != keep_too)
			close(fd);
	close_range((unsigned)high + 1, ~0u, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	/* Whoever stops the service signals the whole group: the workers end when their pipe does. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
}

static void tell(struct runner *r, json_t *packet)
{
	char *text = json_dumps(packet, JSON_COMPACT);

	json_decref(packet);
	/* A full pipe means that the installer has stopped reading: waiting is right, it may not miss an end. */
	if (text && !r->leaving && send(r->command_fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		r->leaving = true;
	free(text);
}

static void tell_failed(struct runner *r, const struct hb_error *err)
{
	tell(r, json_pack("{s:s, s:I, s:s, s:s}", "event", "failed", "run", r->run, "code", err->code, "error",
			  err->message));
}

/* In the child: descriptors 3 (spec) and 4 (status), then hermes-run. */
static void exec_hermes_run(const struct runner *r, int spec, int status, int output, pid_t runner)
{
	char *const argv[] = {(char *)"hermes-run", (char *)"--spec-fd", (char *)"3", (char *)"--status-fd",
			      (char *)"4", NULL};
	char *const env[] = {NULL};
	int program = fcntl(r->options.hermes_run_fd, F_DUPFD_CLOEXEC, 10);
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != runner)
		_exit(1);
	hb_tree_enter(&r->tree);
	spec = fcntl(spec, F_DUPFD_CLOEXEC, 10);
	status = fcntl(status, F_DUPFD_CLOEXEC, 10);
	if (program < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0 || dup2(spec, 3) < 0 || dup2(status, 4) < 0)
		_exit(1);
	sigemptyset(&none);
	signal(SIGTERM, SIG_DFL); /* it can be stopped before hermes-run has come that far */
	sigprocmask(SIG_SETMASK, &none, NULL);
	execveat(program, "", argv, env, AT_EMPTY_PATH);
	_exit(1);
}

static int spec_file(const json_t *spec)
{
	char *text = json_dumps(spec, JSON_COMPACT);
	int fd = memfd_create("run-spec", MFD_CLOEXEC);
	size_t len = text ? strlen(text) : 0;

	if (fd >= 0 && (!text || write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) != 0))
		hb_close(&fd);
	free(text);
	return fd;
}

static void start(struct runner *r, const json_t *packet)
{
	int spec = -1, status[2] = {-1, -1}, output[2] = {-1, -1};
	pid_t self = getpid();
	struct hb_error err;

	r->run = hb_json_int(packet, "run", 0);
	if (r->state != IDLE) {
		hb_fail(&err, "busy", "the runner is still busy with another release");
		tell_failed(r, &err);
		return;
	}
	r->options.stop_timeout_ms = (int)hb_json_int(packet, "stop_timeout_ms", r->options.stop_timeout_ms);
	r->failure = (struct hb_error){0};
	r->killed = r->exit_status = 0;
	hb_buf_clear(&r->status_text);
	spec = spec_file(json_object_get(packet, "spec"));
	if (spec < 0 || pipe2(status, O_CLOEXEC) < 0 || pipe2(output, O_CLOEXEC) < 0) {
		hb_fail_errno(&err, "start_failed", "cannot make the pipes for hermes-run");
		tell_failed(r, &err);
		goto out;
	}
	r->pid = fork();
	if (r->pid == 0)
		exec_hermes_run(r, spec, status[1], output[1], self);
	if (r->pid < 0) {
		r->pid = 0;
		hb_fail_errno(&err, "start_failed", "cannot fork");
		tell_failed(r, &err);
		goto out;
	}
	fcntl(status[0], F_SETFL, O_NONBLOCK);
	r->status_fd = status[0];
	hb_runtime_log_attach(&r->log, output[0]);
	status[0] = output[0] = -1;
	r->state = SETTING_UP;
	r->deadline = hb_monotonic_ms() + SET_UP_MS;
out:
	hb_close(&spec);
	for (int i = 0; i < 2; i++) {
		hb_close(&status[i]);
		hb_close(&output[i]);
	}
}

static void begin_ending(struct runner *r, int grace_ms)
{
	if (r->state == IDLE || r->state == ENDING)
		return;
	r->state = ENDING;
	r->killing_since = 0;
	r->stuck_told = false;
	r->deadline = hb_monotonic_ms() + grace_ms;
	hb_tree_signal(&r->tree, SIGTERM);
}

static void stop(struct runner *r, json_int_t run)
{
	if (r->state == IDLE) {
		tell(r, json_pack("{s:s, s:I, s:s, s:i, s:i}", "event", "ended", "run", run, "how", "none", "status",
				  0, "killed", 0));
		return;
	}
	begin_ending(r, r->options.stop_timeout_ms);
}

/* hermes-run's lines; the end of the file with a "ready" and no "failed" is the payload's execve. */
static void set_up_done(struct runner *r)
{
	json_t *ready = NULL;
	char *save = NULL;

	hb_close(&r->status_fd);
	for (char *line = strtok_r(r->status_text.data ? r->status_text.data : (char[]){""}, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		json_t *object = hb_json_parse(line, strlen(line), NULL);
		const char *event = hb_json_text(object, "event", "");

		if (!strcmp(event, "failed"))
			hb_fail(&r->failure, hb_json_text(object, "code", "start_failed"), "%s",
				hb_json_text(object, "error", "hermes-run failed"));
		if (!strcmp(event, "ready")) {
			json_decref(ready);
			ready = json_incref(object);
		}
		json_decref(object);
	}
	if (!ready && !r->failure.code[0])
		hb_fail(&r->failure, "start_failed", "hermes-run ended while it set the runtime up");
	if (!r->failure.code[0] && r->state == SETTING_UP) {
		r->state = RUNNING;
		tell(r, json_pack("{s:s, s:I, s:I, s:s, s:b, s:b}", "event", "started", "run", r->run, "pid",
				  (json_int_t)r->pid, "isolation", hb_json_text(ready, "isolation", "?"), "own_proc",
				  hb_json_bool(ready, "own_proc", false), "landlock",
				  hb_json_bool(ready, "landlock", false)));
	}
	json_decref(ready);
}

static void read_status(struct runner *r)
{
	char piece[2048];
	ssize_t n = read(r->status_fd, piece, sizeof(piece));

	if (n > 0 && r->status_text.len < 16384)
		hb_buf_add(&r->status_text, piece, (size_t)n);
	else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		set_up_done(r);
}

/* The tree is gone. */
static void ended(struct runner *r)
{
	bool by_signal = WIFSIGNALED(r->exit_status);

	if (r->status_fd >= 0)
		read_status(r);
	hb_close(&r->status_fd);
	hb_runtime_log_detach(&r->log);
	hb_run_root_remove(); /* chroot mounts in the host's namespace, also when it fails half-way */
	r->state = IDLE;
	if (r->failure.code[0])
		tell_failed(r, &r->failure);
	else
		tell(r, json_pack("{s:s, s:I, s:s, s:i, s:i}", "event", "ended", "run", r->run, "how",
				  by_signal ? "signal" : "exit", "status",
				  by_signal ? WTERMSIG(r->exit_status) : WEXITSTATUS(r->exit_status), "killed",
				  r->killed));
}

/* As the subreaper we inherit every orphan: no child left means no descendant left. */
static void reap(struct runner *r)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != r->pid)
			continue;
		r->pid = 0;
		r->exit_status = status;
		if (r->state == SETTING_UP && r->status_fd >= 0)
			read_status(r); /* its reason, before the end is judged */
		begin_ending(r, ORPHAN_GRACE_MS);
	}
	if (pid < 0 && errno == ECHILD && r->state == ENDING)
		ended(r);
}

static void on_time(struct runner *r)
{
	int64_t now = hb_monotonic_ms();

	if (r->state == IDLE || r->state == RUNNING || now < r->deadline)
		return;
	if (r->state == SETTING_UP) {
		hb_fail(&r->failure, "start_failed", "setting the runtime up took more than %d s", SET_UP_MS / 1000);
		begin_ending(r, 0);
	}
	if (!r->killing_since)
		r->killing_since = now;
	r->killed += hb_tree_signal(&r->tree, SIGKILL);
	r->deadline = now + KILL_AGAIN_MS;
	if (now - r->killing_since > STUCK_MS && !r->stuck_told) {
		r->stuck_told = true;
		tell(r, json_pack("{s:s, s:I}", "event", "stuck", "run", r->run));
	}
}

static void read_command(struct runner *r)
{
	static char packet[HB_PACKET_MAX];
	ssize_t n = recv(r->command_fd, packet, sizeof(packet), MSG_DONTWAIT);
	json_t *object;
	const char *cmd;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		r->leaving = true;
		begin_ending(r, r->options.stop_timeout_ms);
		return;
	}
	object = hb_json_parse(packet, (size_t)n, NULL);
	cmd = hb_json_text(object, "cmd", "");
	if (!strcmp(cmd, "start"))
		start(r, object);
	else if (!strcmp(cmd, "stop"))
		stop(r, hb_json_int(object, "run", 0));
	json_decref(object);
}

static void loop(struct runner *r)
{
	while (!r->leaving || r->state != IDLE) {
		struct pollfd fds[] = {{.fd = r->leaving ? -1 : r->command_fd, .events = POLLIN},
				       {.fd = r->signal_fd, .events = POLLIN},
				       {.fd = r->status_fd, .events = POLLIN},
				       {.fd = hb_runtime_log_fd(&r->log), .events = POLLIN}};
		struct signalfd_siginfo info;
		int64_t wait = r->state == SETTING_UP || r->state == ENDING ? r->deadline - hb_monotonic_ms() : -1;

		if (r->state != IDLE && r->state != RUNNING && wait < 0)
			wait = 0;
		if (poll(fds, 4, (int)wait) < 0 && errno != EINTR)
			return;
		if (fds[3].revents)
			hb_runtime_log_read(&r->log);
		if (fds[2].revents)
			read_status(r);
		if (fds[1].revents)
			while (read(r->signal_fd, &info, sizeof(info)) == sizeof(info))
				;
		if (r->state != IDLE)
			reap(r);
		if (fds[0].revents)
			read_command(r);
		on_time(r);
	}
}

static int reduce(struct hb_error *err)
{
	/* No Landlock: a confined process can't mount. Seccomp: what not even hermes-run needs. */
	const struct hb_sandbox box = {.name = "runner", .deny_list = true, .syscalls = HB_SYS_MOUNT,
				       .keep_caps = RUNNER_CAPS, .max_files = 65536};

	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		return hb_fail_errno(err, "runner_failed", "cannot become a child subreaper");
	return hb_sandbox_apply(&box, false, NULL, err);
}

static void __attribute__((noreturn)) runner_main(const struct hb_runner_options *options, int fd)
{
	struct runner r = {.options = *options, .command_fd = fd, .signal_fd = -1, .status_fd = -1,
			   .tree.group_fd = -1};
	struct hb_error err;
	sigset_t child;
	int leftovers;

	hb_worker_isolate(fd, options->hermes_run_fd);
	prctl(PR_SET_NAME, "hermes-runner", 0, 0, 0);
	hb_tree_open(&r.tree, options->host_id);
	leftovers = hb_tree_end_leftovers(&r.tree, options->host_id, options->uid, LEFTOVER_GRACE_MS);
	hb_run_root_remove();
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	r.signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (r.signal_fd < 0 || hb_runtime_log_open(&r.log, &err) < 0 || reduce(&err) < 0) {
		tell_failed(&r, &err);
		_exit(71);
	}
	tell(&r, json_pack("{s:s, s:b, s:i}", "event", "up", "group", r.tree.group_fd >= 0, "leftovers", leftovers));
	loop(&r);
	hb_tree_close(&r.tree);
	_exit(0);
}

int hb_runner_fork(const struct hb_runner_options *options, int *fd, pid_t *pid, struct hb_error *err)
{
	int pair[2];
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return hb_fail_errno(err, "worker_failed", "cannot make the runner's pipe");
	child = fork();
	if (child == 0) {
		close(pair[0]);
		if (options->supervisord_socket)
			hb_runner_supervisord(options, pair[1]);
		runner_main(options, pair[1]);
	}
	close(pair[1]);
	if (child < 0) {
		close(pair[0]);
		return hb_fail_errno(err, "worker_failed", "cannot fork the runner");
	}
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	*fd = pair[0];
	*pid = child;
	return 0;
}
