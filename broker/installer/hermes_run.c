/*
 * hermes-run: executes the payload of a COMPLETE release as its own user, isolated as far as this host allows.
 *
 * Holds: root, only until it has become the payload. Never holds: keys, sockets, stores. Called by the runner worker
 * (spec and status on descriptors), by supervisord (spec in a file), or with --modes by a person who wants to know
 * what works here. What it must not run it refuses with one line: a code, and what to do.
 *
 * On the status descriptor: {"event":"ready","isolation":..,"own_proc":..,"landlock":..} and then the end of file, which
 * execve brings about; or {"event":"failed","code":..,"error":..}.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/installer/hermes_run.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/json.h"

#define SPEC_MAX (256u << 10)
#define EXIT_REFUSED 78
#define EXIT_USAGE 64

enum mode { MODE_NAMESPACES, MODE_CHROOT, MODE_DIRECT, MODE_COUNT };
static const char *const mode_names[MODE_COUNT] = {"namespaces", "chroot", "direct"};

static const char usage[] =
	"usage: hermes-run --spec-fd N [--status-fd N]   started by the installer\n"
	"       hermes-run --spec FILE [--status-file FILE]   started by supervisord\n"
	"       hermes-run --spec FILE --modes           say which isolation works here\n"
	"The working directory is the state directory.\n";

struct options {
	int spec_fd, status_fd;
	const char *spec_file;
	bool modes;
};

static int number(const char *text)
{
	char *end;
	long n = strtol(text, &end, 10);

	return *text && !*end && n >= 0 && n < 1024 ? (int)n : -1;
}

static int parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {{"spec-fd", required_argument, NULL, 'f'},
					      {"spec", required_argument, NULL, 's'},
					      {"status-fd", required_argument, NULL, 'r'},
					      {"status-file", required_argument, NULL, 'o'},
					      {"modes", no_argument, NULL, 'm'},
					      {"help", no_argument, NULL, 'h'},
					      {"version", no_argument, NULL, 'V'},
					      {NULL, 0, NULL, 0}};
	int c;

	*o = (struct options){.spec_fd = -1, .status_fd = -1};
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'f' && (o->spec_fd = number(optarg)) < 0)
			return -1;
		else if (c == 's')
			o->spec_file = optarg;
		else if (c == 'r' && (o->status_fd = number(optarg)) < 0)
			return -1;
		else if (c == 'o') {
			hb_close(&o->status_fd);
			o->status_fd = open(optarg, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
			if (o->status_fd < 0)
				return -1;
		} else if (c == 'm')
			o->modes = true;
		else if (c == 'h' || c == 'V') {
			fputs(c == 'h' ? usage : "hermes-run " HB_VERSION "\n", stdout);
			exit(0);
		} else if (c == '?')
			return -1;
	}
	return optind == argc && (o->spec_fd >= 0) != (o->spec_file != NULL) ? 0 : -1;
}

static int read_spec(const struct options *o, struct hb_run_spec *spec, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *object = NULL;
	char piece[4096];
	int fd = o->spec_fd, rc = -1;
	ssize_t n;

	if (o->spec_file) {
		fd = open(o->spec_file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0) {
			hb_fail_errno(err, "spec_missing", "the run spec %s", o->spec_file);
			goto out;
		}
		if (hb_fs_check_trusted(fd, o->spec_file, 0, err) < 0)
			goto out;
	}
	while ((n = read(fd, piece, sizeof(piece))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || text.len + (size_t)n > SPEC_MAX) {
			hb_fail(err, "bad_spec", "the run spec cannot be read or has more than %u bytes", SPEC_MAX);
			goto out;
		}
		hb_buf_add(&text, piece, (size_t)n);
	}
	object = hb_json_parse(text.data ? text.data : "", text.len, err);
	if (object)
		rc = hb_run_spec_from_json(object, spec, err);
out:
	hb_close(&fd);
	json_decref(object);
	hb_buf_free(&text);
	return rc;
}

static int enter(const struct hb_run_spec *spec, enum mode mode, bool *own_proc, struct hb_error *err)
{
	*own_proc = false;
	if (mode == MODE_DIRECT)
		return 0;
	return hb_run_root_enter(spec, mode == MODE_CHROOT ? HB_ROOT_CHROOT : HB_ROOT_NAMESPACES, own_proc, err);
}

/* Does it work here? A child really does it, so that the answer is not a guess about kernels. */
static bool mode_works(const struct hb_run_spec *spec, enum mode mode, struct hb_error *err)
{
	int pipes[2], status = -1;
	bool own_proc;
	ssize_t n;
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return hb_fail_errno(err, "fork_failed", "cannot make a pipe") == 0;
	pid = fork();
	if (pid == 0) {
		struct hb_error why = {0};

		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		status = enter(spec, mode, &own_proc, &why);
		n = write(pipes[1], &why, sizeof(why));
		_exit(status == 0 && n > 0 ? 0 : 1);
	}
	close(pipes[1]);
	if (pid < 0 || read(pipes[0], err, sizeof(*err)) != (ssize_t)sizeof(*err))
		hb_fail(err, "isolation_unavailable", "trying isolation %s failed", mode_names[mode]);
	close(pipes[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (mode == MODE_CHROOT)
		hb_run_root_remove();
	return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Only a host that forbids it leads to the next weaker isolation; a mistake in image or configuration must not. */
static bool is_forbidden(const struct hb_error *why)
{
	static const char *const codes[] = {"unshare_failed", "mount_failed", "pivot_failed", "chroot_failed",
					    "isolation_unavailable"};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (!strcmp(why->code, codes[i]))
			return true;
	return false;
}

static int choose(const struct hb_run_spec *spec, enum mode *out, struct hb_error *err)
{
	struct hb_error why;
	int mode = 0;

	for (; mode < MODE_COUNT; mode++)
		if (!strcmp(spec->isolation, mode_names[mode])) {
			*out = (enum mode)mode;
			return 0;
		}
	for (mode = MODE_NAMESPACES; mode < MODE_DIRECT; mode++) {
		if (mode_works(spec, (enum mode)mode, &why))
			break;
		if (!is_forbidden(&why))
			return hb_fail(err, why.code, "%s", why.message);
	}
	*out = (enum mode)mode;
	return 0;
}

static int print_modes(const struct hb_run_spec *spec)
{
	for (int mode = 0; mode < MODE_COUNT; mode++) {
		struct hb_error why;
		bool works = mode_works(spec, (enum mode)mode, &why);

		printf("%-10s  %s\n", mode_names[mode], works ? "works" : why.message);
	}
	return 0;
}

static void report(int fd, json_t *line)
{
	char *text = json_dumps(line, JSON_COMPACT);

	json_decref(line);
	if (text)
		dprintf(fd, "%s\n", text);
	free(text);
}

static int fail(const struct options *o, const struct hb_error *err)
{
	if (o->status_fd >= 0)
		report(o->status_fd, json_pack("{s:s, s:s, s:s}", "event", "failed", "code", err->code, "error",
					       err->message));
	else
		fprintf(stderr, "hermes-run: %s (%s)\n", err->message, err->code);
	return EXIT_REFUSED;
}

/* The last check is made as the payload itself: whatever the file system says, this uid must be able to write. */
static int check_as_payload(const struct hb_run_spec *spec, enum mode mode, struct hb_error *err)
{
	const char *data = mode == MODE_DIRECT ? spec->data_dir : spec->data_mount;

	if (access(data, R_OK | W_OK | X_OK) == 0)
		return 0;
	return hb_fail_errno(err, "data_unwritable",
			     "uid %u cannot write the data directory %s; every directory above it must let others "
			     "enter (chmod o+x)",
			     (unsigned)spec->uid, spec->data_dir);
}

static int become_payload(const struct hb_run_spec *spec, const struct options *o, pid_t parent, struct hb_error *err)
{
	struct hb_run_drop drop = {.spec = spec, .parent = parent, .keep_fd = o->status_fd};
	struct hb_run_program program = {0};
	enum mode mode = MODE_DIRECT;
	bool own_proc;
	int rc;

	if (choose(spec, &mode, err) < 0 || enter(spec, mode, &own_proc, err) < 0)
		return -1;
	rc = mode == MODE_DIRECT ? hb_run_program_direct(spec, &program, err)
				 : hb_run_program_in_root(spec, &program, err);
	drop.confine_files = mode == MODE_DIRECT;
	if (rc < 0 || hb_run_drop(&drop, err) < 0 || check_as_payload(spec, mode, err) < 0)
		goto out;
	if (o->status_fd >= 0)
		report(o->status_fd, json_pack("{s:s, s:s, s:b, s:b}", "event", "ready", "isolation",
					       mode_names[mode], "own_proc", own_proc, "landlock", drop.landlocked));
	execve(program.path, program.argv, program.env);
	hb_fail_errno(err, "exec_failed", "cannot execute %s", program.path);
out:
	hb_run_program_free(&program);
	return -1;
}

static int plain_start(struct hb_error *err)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	sigemptyset(&none);
	if (null < 0 || dup2(null, 0) < 0)
		return hb_fail_errno(err, "no_device", "cannot open /dev/null");
	close(null);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	return 0;
}

int main(int argc, char **argv)
{
	struct hb_error err = {0};
	struct hb_run_spec spec = {0};
	pid_t parent = getppid();
	struct options o;

	if (parse_options(argc, argv, &o) < 0) {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	if (o.status_fd >= 0)
		fcntl(o.status_fd, F_SETFD, FD_CLOEXEC);
	if (plain_start(&err) < 0 || read_spec(&o, &spec, &err) < 0 || hb_run_check_ids(&spec, &err) < 0 ||
	    hb_run_check_release(&spec, &err) < 0)
		return fail(&o, &err);
	if (o.modes)
		return print_modes(&spec);
	if (hb_run_check_data(&spec, &err) < 0 || become_payload(&spec, &o, parent, &err) < 0)
		return fail(&o, &err);
	return EXIT_REFUSED;
}
