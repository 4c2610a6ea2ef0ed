/*
 * hermes-launcher: starts, restarts and stops the other processes where no service manager does.
 *
 * Runs as root and keeps of root only what the processes it starts may have. Opens no key, no
 * secret, no socket, and is called by nobody. One launcher a state directory: run/launcher.pid is
 * locked while it runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/log.h"
#include "common/paths.h"
#include "common/process.h"
#include "launcher/launcher.h"

#define PID_FILE "run/launcher.pid"
#define OWN_LOG "log/launcher.log"
#define START_MS 30000 /* how long the starting terminal waits for the first "all ready" */

struct arguments {
	const char *state, *libexec;
	bool foreground;
	int ready_fd;
};

static const char usage[] =
	"usage: hermes-launcher --state DIR [--foreground] [--libexec DIR] [--ready-fd N]\n\n"
	"  --state DIR    the state directory (made by hermesctl setup)\n"
	"  --foreground   stay in this terminal; logs go to standard error (else to log/ in the "
	"state)\n"
	"  --libexec DIR  where the programs lie (else beside this one)\n"
	"  --ready-fd N   write one byte '1' to this descriptor once every process is ready\n"
	"  --help, --version\n";

/* Returns -1 to go on, else the exit code. */
static int
arguments(struct arguments *a, int argc, char **argv)
{
	static const struct option options[] = {
		{"state", required_argument, NULL, 's'},
		{"foreground", no_argument, NULL, 'f'},
		{"libexec", required_argument, NULL, 'l'},
		{"ready-fd", required_argument, NULL, 'r'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	char *end;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's') {
			a->state = optarg;
		} else if (c == 'f') {
			a->foreground = true;
		} else if (c == 'l') {
			a->libexec = optarg;
		} else if (c == 'r') {
			a->ready_fd = (int)strtol(optarg, &end, 10);
			if (*end != '\0' || a->ready_fd < 3 ||
			    fcntl(a->ready_fd, F_SETFD, FD_CLOEXEC) != 0) {
				fprintf(stderr, "--ready-fd wants the number of an open descriptor "
						"above 2\n");
				return EX_USAGE;
			}
		} else if (c == 'h') {
			fputs(usage, stdout);
			return 0;
		} else if (c == 'v') {
			puts("hermes-launcher " HB_VERSION);
			return 0;
		} else {
			break;
		}
	}
	if (c != -1 || a->state == NULL || optind != argc) {
		fputs(usage, stderr);
		return EX_USAGE;
	}
	return -1;
}

/* Who can rename what lies in the state directory would choose what the processes read. */
static int
state_enter(const char *state, struct hb_error *err)
{
	struct stat st;
	int fd, rc;

	if (geteuid() != 0)
		return hb_fail(
			err, "wrong_identity",
			"hermes-launcher must run as root: it starts each process under a uid "
			"of its own");
	if (chdir(state) != 0 || stat(".", &st) != 0)
		return hb_fail_errno(err, "state_missing", "cannot enter the state directory %s",
				     state);
	if (st.st_uid != 0 || (st.st_mode & 022) != 0 || (st.st_mode & 01) == 0)
		return hb_fail(err, "state_permissions",
			       "%s must belong to root, be writable by nobody else and enterable "
			       "by all: chown root %s && chmod 0755 %s",
			       state, state, state);
	fd = hb_fs_open_beneath(AT_FDCWD, HB_PATH_CONFIG, O_RDONLY, 0, err);
	if (fd < 0)
		return -1;
	rc = hb_fs_check_trusted(fd, HB_PATH_CONFIG, 0, err);
	hb_close(&fd);
	return rc;
}

static int
lock_take(int *lock, struct hb_error *err)
{
	*lock = hb_fs_open_beneath(AT_FDCWD, PID_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0644, err);
	if (*lock < 0)
		return -1;
	if (flock(*lock, LOCK_EX | LOCK_NB) != 0)
		return hb_fail(err, "already_running",
			       "another hermes-launcher runs on this state (%s)", PID_FILE);
	return 0;
}

static int
lock_write(int lock, struct hb_error *err)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%d\n", (int)getpid());

	if (ftruncate(lock, 0) != 0 || pwrite(lock, text, (size_t)len, 0) != len)
		return hb_fail_errno(err, "state_unwritable", "cannot write %s", PID_FILE);
	return 0;
}

/* In the terminal's process: wait until the one in the background says that all is ready. */
static int
wait_ready(int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	char byte = 0;

	if (poll(&pfd, 1, START_MS) > 0 && read(fd, &byte, 1) == 1 && byte == '1')
		return 0;
	fprintf(stderr,
		"hermes-launcher: not every process is ready; %s and the files beside it say why\n",
		OWN_LOG);
	return EX_OSERR;
}

/* Returns 0 in the background; the terminal's process exits in here. */
static int
background(struct hb_supervise *options, struct hb_error *err)
{
	int ends[2], log, null, code;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return hb_fail_errno(err, "spawn_failed", "cannot create a pipe");
	log = hb_fs_open_beneath(AT_FDCWD, OWN_LOG, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640,
				 err);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (log < 0 || null < 0)
		return -1;
	switch (fork()) {
	case -1:
		return hb_fail_errno(err, "spawn_failed", "cannot go to the background");
	case 0:
		break;
	default:
		close(ends[1]);
		code = wait_ready(ends[0]);
		if (code == 0 && options->ready_fd >= 0 && write(options->ready_fd, "1", 1) != 1)
			code = EX_OSERR;
		_exit(code);
	}
	setsid();
	close(ends[0]);
	hb_close(&options->ready_fd);
	options->ready_fd = ends[1];
	if (dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		return hb_fail_errno(err, "spawn_failed", "cannot redirect to %s", OWN_LOG);
	hb_close(&log);
	hb_close(&null);
	return 0;
}

/* What the launcher itself gives up, and with it everything it starts. */
static int
confine(const struct hb_config *config, struct hb_error *err)
{
	bool degraded_ok = strcmp(hb_config_text(config, "sandbox.mode"), "degraded") == 0;
	struct hb_sandbox box = {
		.name = "hermes-launcher",
		.syscalls = HB_SYS_MOUNT, /* the payload's mount namespace is made below us */
		.deny_list = true,
		.keep_caps = hb_service_caps_any,
		.max_files = 1048576, /* each process lowers its own; the payload may want many */
	};

	return hb_sandbox_apply(&box, degraded_ok, NULL, err);
}

static int
run(const struct arguments *a, int *lock, struct hb_config **config, struct hb_error *err)
{
	struct hb_supervise options = {.foreground = a->foreground, .ready_fd = a->ready_fd};

	if (state_enter(a->state, err) != 0)
		return EX_NOPERM;
	if (hb_config_load(AT_FDCWD, HB_PATH_CONFIG, NULL, 0, config, err) != 0 ||
	    hb_process_peers(*config, err) != 0)
		return EX_CONFIG;
	if (hb_programs_init(&options.programs, a->libexec, err) != 0 || lock_take(lock, err) != 0)
		return EX_OSERR;
	options.config = *config;
	if (!a->foreground && background(&options, err) != 0)
		return EX_OSERR;
	if (lock_write(*lock, err) != 0 || confine(*config, err) != 0)
		return EX_OSERR;
	return hb_supervise(&options);
}

int
main(int argc, char **argv)
{
	struct arguments a = {.ready_fd = -1};
	struct hb_config *config = NULL;
	struct hb_error err = {.code = ""};
	char libexec[4096];
	int lock = -1, code = arguments(&a, argc, argv);

	if (code >= 0)
		return code;
	hb_log_open("hermes-launcher", HB_LOG_INFO);
	umask(022); /* the pid file and logs; each process has 077 */
	/* Before the working directory changes. */
	if (a.libexec != NULL && (a.libexec = realpath(a.libexec, libexec)) == NULL) {
		fprintf(stderr,
			"hermes-launcher: cannot use the directory given by --libexec: %s\n",
			strerror(errno));
		return EX_USAGE;
	}
	code = run(&a, &lock, &config, &err);
	if (err.code[0] != '\0')
		hb_log(HB_LOG_ERROR, "cannot_start", "code", err.code, "msg", err.message, NULL);
	hb_config_free(config);
	hb_close(&lock);
	return code;
}
