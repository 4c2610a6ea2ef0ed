/*
 * One command from beginning to end: bubblewrap is started, held back until its limits are set,
 * watched, and ended when the worker lets go of the control socket.
 *
 * The inner bubblewrap is the first process of the pid namespace: its end is that of every process
 * in it, whatever session it is in. It asks to die with the outer one only when the sandbox is
 * built, so until then that alone would leave it behind, to go on unwatched. Hence two things: the
 * keeper inherits what the outer one leaves and kills it too; and the shell in the sandbox starts
 * the command only when the keeper, still there after that point, tells it to.
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/docker/bubble.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/json.h"

#define STATUS_MAX 4096
#define CHILDREN_MAX 4096
#define GATE 9 /* the shell's descriptor; one digit is what every shell takes */
#define BUILD_MS 10000 /* for bubblewrap to build the sandbox */

struct keeper {
	struct hb_bubble_job *job;
	int status, block; /* our ends: read, write */
	int gate;          /* our end: "ready" from the shell, "go" to it */
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

/* Waits for the word, and becomes the command's own shell. At the keeper's end there is no word. */
static const char gate_script[] =
	"echo ready >&9 && read -r word <&9 && [ \"$word\" = go ] || exit 125; "
	"exec 9>&-; exec /bin/sh -c \"$1\"";

/* The child that becomes bubblewrap. What it says about itself comes where the command's standard
 * error comes: it says something only when it fails, and then there is no command. */
static _Noreturn void become(struct hb_bubble_job *job, int args_fd, pid_t keeper)
{
	static char *const environment[] = {NULL};
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char procs[600], number[16], command[16384];
	const char *args[] = {"bwrap", "--args",    number, "--",    "/bin/sh",
			      "-c",    gate_script, "sh",   command, NULL};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != keeper)
		_exit(125);
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
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

/* The shell's end gets its number before anything else can have it. */
static int make_gate(int gate[2])
{
	int fd;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate) < 0)
		return -1;
	if (gate[1] == GATE)
		return 0;
	fd = fcntl(gate[1], F_DUPFD_CLOEXEC, GATE);
	hb_close(&gate[1]);
	gate[1] = fd;
	return fd == GATE ? 0 : -1;
}

static int launch(struct keeper *k, struct hb_error *err)
{
	int status[2] = {-1, -1}, block[2] = {-1, -1}, gate[2] = {-1, -1}, args = -1, filter = -1,
	    rc = -1;
	pid_t self = getpid();

	/* What a process of ours leaves behind comes to us and not to the host's first process. */
	if (make_gate(gate) < 0 || pipe2(status, O_CLOEXEC) < 0 || pipe2(block, O_CLOEXEC) < 0 ||
	    prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
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
		fcntl(gate[1], F_SETFD, 0);
		become(k->job, args, self);
	}
	if (k->pid < 0) {
		hb_fail_errno(err, "no_worker", "bubblewrap can't be forked");
		goto out;
	}
	k->pidfd = (int)syscall(SYS_pidfd_open, k->pid, 0);
	k->status = status[0];
	k->block = block[1];
	k->gate = gate[0];
	status[0] = block[1] = gate[0] = -1;
	fcntl(k->status, F_SETFL, O_NONBLOCK);
	rc = 0;
out:
	hb_close(&args);
	hb_close(&filter);
	hb_close(&status[0]);
	hb_close(&status[1]);
	hb_close(&block[0]);
	hb_close(&block[1]);
	hb_close(&gate[0]);
	hb_close(&gate[1]);
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

/* The shell is there: what it is in will die with bubblewrap. */
static void open_gate(struct keeper *k)
{
	char word[16];

	if (read(k->gate, word, sizeof word) > 0 && send(k->gate, "go\n", 3, MSG_NOSIGNAL) < 0)
		kill(k->pid, SIGKILL);
	hb_close(&k->gate);
}

/* Wait for bubblewrap: false when it ended, or the worker let go. *gone: the worker did. */
static bool watch(struct keeper *k, int timeout_ms, bool *gone)
{
	struct pollfd p[4] = {{.fd = k->pidfd, .events = POLLIN},
			      {.fd = k->job->control, .events = POLLIN},
			      {.fd = k->status, .events = POLLIN},
			      {.fd = k->gate, .events = POLLIN}};

	if (poll(p, 4, timeout_ms) < 0)
		return errno == EINTR;
	if (p[2].revents & POLLIN)
		read_status(k);
	else if (p[2].revents)
		hb_close(&k->status);
	/* The worker never writes: anything there is its end. */
	*gone = p[1].revents != 0;
	if (p[3].revents && !*gone)
		open_gate(k);
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

static void kill_children(void)
{
	char path[64], list[CHILDREN_MAX + 1], *at = list, *end;
	int fd;
	ssize_t n;

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd >= 0 ? read(fd, list, CHILDREN_MAX) : 0;
	hb_close(&fd);
	list[n > 0 ? n : 0] = '\0';
	for (long pid; (pid = strtol(at, &end, 10)) > 0; at = end)
		kill((pid_t)pid, SIGKILL);
}

/* Everything below: what one leaves behind at its end is a child by the time it can be waited for.
 */
static void finish(struct keeper *k)
{
	hb_close(&k->gate);
	kill(k->pid, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		kill_children();
	hb_bubble_cgroup_end(k->job);
}

void hb_bubble_keep(struct hb_bubble_job *job)
{
	struct keeper k = {.job = job, .status = -1, .block = -1, .gate = -1, .pidfd = -1};
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
