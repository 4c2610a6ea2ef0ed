/*
 * One command from beginning to end: bubblewrap is started, held back until its limits are set,
 * watched, and ended when the worker lets go of the control socket. Killing the outer bubblewrap
 * ends the inner one (--die-with-parent), which is the first process of the pid namespace, and so
 * every process in it, whatever session it is in.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/docker/bubble.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/json.h"

#define STATUS_MAX 4096
#define BUILD_MS 10000 /* for bubblewrap to build the sandbox */

struct keeper {
	struct hb_bubble_job *job;
	int status, block; /* our ends: read, write */
	pid_t pid;
	int pidfd;
	struct hb_buf text; /* of the status pipe */
};

static void limit(int what, long long value)
{
	struct rlimit rl = {(rlim_t)value, (rlim_t)value};

	setrlimit(what, &rl);
}

/* Limits of each process; with a cgroup they are there as well, and the cgroup is what counts. */
static void limits(const struct hb_bubble_job *job)
{
	const struct hb_config *c = job->config;

	if (!job->cgroup[0])
		limit(RLIMIT_AS, hb_config_int(c, "local.memory_mb") * 1024 * 1024);
	limit(RLIMIT_CPU, job->seconds * hb_config_int(c, "local.cpus") + 1);
	limit(RLIMIT_CORE, 0);
}

/* The child that becomes bubblewrap. What it says about itself comes where the command's standard
 * error comes: it says something only when it fails, and then there is no command. */
static _Noreturn void become(struct hb_bubble_job *job, int args_fd, pid_t keeper)
{
	static char *const environment[] = {NULL};
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char procs[600], number[16], command[16384];
	const char *args[] = {"bwrap", "--args", number, "--", "/bin/sh", "-c", command, NULL};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != keeper)
		_exit(125);
	if (job->cgroup[0]) {
		int fd;

		snprintf(procs, sizeof procs, "%s/cgroup.procs", job->cgroup);
		fd = open(procs, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "0", 1) != 1)
			_exit(125);
	}
	snprintf(number, sizeof number, "%d", args_fd);
	snprintf(command, sizeof command, "%s", job->command);
	limits(job);
	setsid();
	umask(022);
	if (dup2(null, 0) < 0 || dup2(job->out, 1) < 0 || dup2(job->error, 2) < 0)
		_exit(125);
	execve(hb_bubble_program(), (char *const *)(uintptr_t)args, environment);
	_exit(126);
}

static void report(const struct hb_bubble_job *job, json_t *line)
{
	char *text = json_dumps(line, JSON_COMPACT);

	if (text && send(job->control, text, strlen(text), MSG_NOSIGNAL) < 0)
		exit(0); /* nobody listens any more */
	free(text);
	json_decref(line);
}

static int launch(struct keeper *k, struct hb_error *err)
{
	int status[2] = {-1, -1}, block[2] = {-1, -1}, args = -1, filter = -1, rc = -1;
	pid_t self = getpid();

	if (pipe2(status, O_CLOEXEC) < 0 || pipe2(block, O_CLOEXEC) < 0) {
		hb_fail_errno(err, "no_worker", "pipes can't be made");
		goto out;
	}
	filter = hb_bubble_filter(err);
	if (filter < 0)
		goto out;
	args = hb_bubble_args(k->job, &(struct hb_bubble_fds){status[1], block[0], filter}, err);
	if (args < 0)
		goto out;
	k->pid = fork();
	if (k->pid == 0) {
		fcntl(status[1], F_SETFD, 0);
		fcntl(block[0], F_SETFD, 0);
		become(k->job, args, self);
	}
	if (k->pid < 0) {
		hb_fail_errno(err, "no_worker", "bubblewrap can't be forked");
		goto out;
	}
	k->pidfd = (int)syscall(SYS_pidfd_open, k->pid, 0);
	k->status = status[0];
	k->block = block[1];
	status[0] = block[1] = -1;
	fcntl(k->status, F_SETFL, O_NONBLOCK);
	rc = 0;
out:
	hb_close(&args);
	hb_close(&filter);
	hb_close(&status[0]);
	hb_close(&status[1]);
	hb_close(&block[0]);
	hb_close(&block[1]);
	return rc;
}

static void read_status(struct keeper *k)
{
	char chunk[512];
	ssize_t n;

	while (k->status >= 0 && k->text.len < STATUS_MAX &&
	       (n = read(k->status, chunk, sizeof chunk)) > 0)
		hb_buf_add(&k->text, chunk, (size_t)n);
}

/* {"child-pid": N, ...} on a line, {"exit-code": N} on another. -1: not (yet) there. */
static long long status_value(const struct keeper *k, const char *name)
{
	char *quoted = hb_asprintf("\"%s\":", name),
	     *at = k->text.data ? strstr(k->text.data, quoted) : NULL;
	long long value = at ? strtoll(at + strlen(quoted), NULL, 10) : -1;

	free(quoted);
	return value;
}

/* Wait for bubblewrap: false when it ended, or the worker let go. *gone: the worker did. */
static bool watch(struct keeper *k, int timeout_ms, bool *gone)
{
	struct pollfd p[3] = {{.fd = k->pidfd, .events = POLLIN},
			      {.fd = k->job->control, .events = POLLIN},
			      {.fd = k->status, .events = POLLIN}};

	if (poll(p, 3, timeout_ms) < 0)
		return errno == EINTR;
	if (p[2].revents & POLLIN)
		read_status(k);
	else if (p[2].revents)
		hb_close(&k->status);
	/* The worker never writes: anything there is its end. */
	*gone = p[1].revents != 0;
	return !*gone && !p[0].revents;
}

/* Its limit of processes can only be set inside: outside it would count the executor's own. */
static void release(struct keeper *k)
{
	long long pid = status_value(k, "child-pid"),
		  pids = hb_config_int(k->job->config, "local.pids_limit") + 1;
	struct rlimit rl = {(rlim_t)pids, (rlim_t)pids};

	if (pid > 1 && prlimit((pid_t)pid, RLIMIT_NPROC, &rl, NULL) == 0 &&
	    write(k->block, "1", 1) == 1)
		hb_close(&k->block);
	else
		kill(k->pid, SIGKILL);
	hb_close(&k->block);
}

static void finish(struct keeper *k)
{
	int status;

	kill(k->pid, SIGKILL);
	while (waitpid(k->pid, &status, 0) < 0 && errno == EINTR)
		;
	hb_bubble_cgroup_end(k->job);
}

void hb_bubble_keep(struct hb_bubble_job *job)
{
	struct keeper k = {.job = job, .status = -1, .block = -1, .pidfd = -1};
	struct hb_error err;
	bool gone = false, released = false;
	long long code;

	if (!hb_bubble_program()) {
		hb_bubble_why(&err);
		report(job, hb_json_error(&err));
		return;
	}
	if (hb_bubble_cgroup_make(job, &err) < 0 || launch(&k, &err) < 0) {
		report(job, hb_json_error(&err));
		hb_bubble_cgroup_end(job);
		return;
	}
	/* Only bubblewrap holds the command's output from here on, so that its end is the end of
	 * the stream. */
	hb_close(&job->out);
	hb_close(&job->error);
	while (watch(&k, released ? -1 : BUILD_MS, &gone)) {
		if (!released && status_value(&k, "child-pid") > 0) {
			release(&k);
			released = true;
		}
	}
	read_status(&k);
	code = status_value(&k, "exit-code");
	finish(&k);
	if (gone)
		return;
	if (code >= 0) {
		report(job, json_pack("{s:I}", "exit", (json_int_t)code));
		return;
	}
	hb_bubble_why(&err);
	report(job, hb_json_error(&err));
}
