/*
 * hermesctl acceptance run --disposable: the same criteria in an instance of its own, beside the
 * real one and without touching it: other users, other directories, other ports, its own approver,
 * which this command line speaks for. It gets the configuration, the named key, the token files that
 * the configuration names, and a copy of the newest backup, and is removed at the end.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "admin/ctl/acceptance.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/paths.h"

#define UID_STEP 1000 /* to the users of the other instance */

struct scratch {
	char top[64];   /* /var/tmp/hermes-acceptance-XXXXXX */
	char state[80]; /* below it */
	int dir;        /* the state directory, open */
	char *backup;   /* name of the copy; NULL: none */
	uid_t base;
};

static int
free_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = -1;

	if (fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 &&
	    getsockname(fd, (struct sockaddr *)&at, &len) == 0)
		port = ntohs(at.sin_port);
	hb_close(&fd);
	return port;
}

static volatile sig_atomic_t running; /* pid of the command that is waited for */
static volatile sig_atomic_t ended;   /* we were told to: only what clears away is begun any more */

/* Whoever ends this ends the command that runs; what was made is still cleared away. */
static void
pass_on(int number)
{
	ended = 1;
	if (running > 0)
		kill((pid_t)running, number == SIGINT ? SIGTERM : number);
}

static void
clear_away_when_ended(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction act = {.sa_handler = pass_on};

	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		sigaction(numbers[i], &act, NULL);
}

/* hermesctl itself with these arguments after --state; its exit code, -1 when it did not run.
 * quiet: nothing of what it prints on standard output is of interest. */
static int
again(const struct ctl_acceptance *a, const struct scratch *s, bool quiet, const char *const *args)
{
	const char *argv[80] = {"hermesctl", "--state", s->state, "--no-input"};
	int n = 4, status = -1;
	pid_t pid;

	if (ended && strcmp(args[0], "down") != 0)
		return -1;
	if (a->c->json && !quiet)
		argv[n++] = "--json";
	for (; *args && n < 79; args++)
		argv[n++] = *args;
	fflush(stdout);
	pid = fork();
	running = pid;
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		setpgid(0, 0); /* what the terminal sends comes through us */
		dup2(null, 0);
		if (quiet)
			dup2(a->c->json ? null : 2, 1);
		execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			break;
	running = 0;
	return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define AGAIN(a, s, quiet, ...) again(a, s, quiet, (const char *const[]){__VA_ARGS__, NULL})

/* A file of the real state for the same process of the other. Its text is never anywhere else. */
static int
hand_over(const struct scratch *s, const char *path, enum hb_peer owner, struct hb_error *err)
{
	struct hb_secret secret;
	uid_t from = hb_peer_uid(owner), to = owner == HB_PEER_LAUNCHER ? 0 : from + UID_STEP;
	int rc = hb_secret_read(AT_FDCWD, path, from, HB_KEY_TEXT_MAX, &secret, err);

	if (rc == 0) {
		rc = hb_fs_write_atomic(s->dir, path, secret.text, secret.len, 0600, to, to, err);
		hb_secret_free(&secret);
	}
	return rc;
}

static int
copy_bytes(const char *from, const char *to, struct hb_error *err)
{
	int in = open(from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC),
	    out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	ssize_t n = -1;

	if (in >= 0 && out >= 0)
		while ((n = copy_file_range(in, NULL, out, NULL, 1 << 30, 0)) > 0)
			;
	hb_close(&in);
	hb_close(&out);
	return n == 0 ? 0 : hb_fail_errno(err, "copy_failed", "the backup can't be copied to %s", to);
}

/* The newest backup, if there is one that needs no identity to be read. */
static int
copy_backup(struct ctl_acceptance *a, struct scratch *s, struct hb_error *err)
{
	const char *dir = hb_config_text(a->c->config, "runtime.backup_dir");
	char *from, *to;
	char *name = ctl_newest_backup(a->c, err);
	const char *end = name ? strrchr(name, '.') : NULL;
	int rc;

	if (!name && strcmp(err->code, "not_found") != 0)
		return -1;
	*err = (struct hb_error){0};
	if (!name || (end && strcmp(end, ".age") == 0)) {
		ctl_note(a->c, "%s, so the instance begins empty and knows no key of the real one.",
			 name ? "The newest backup is encrypted"
			      : "There is no backup yet (hermesctl runtime backup)");
		free(name);
		return 0;
	}
	from = hb_asprintf("%s/%s", *dir ? dir : "installer/backups", name);
	to = hb_asprintf("%s/backups/%s", s->top, name);
	rc = copy_bytes(from, to, err);
	free(from);
	free(to);
	s->backup = name;
	return rc;
}

static int
make_directories(struct scratch *s, struct hb_error *err)
{
	static const struct {
		const char *name;
		mode_t mode;
	} dirs[] = {{"", 0755}, {"/state", 0755}, {"/state/" HB_PATH_CONF, 0755},
		    {"/backups", 0700}, {"/data", 0755}};

	for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
		char *path = hb_asprintf("%s%s", s->top, dirs[i].name);
		int rc = i == 0 ? chmod(path, dirs[i].mode) : mkdir(path, dirs[i].mode);

		free(path);
		if (rc < 0)
			return hb_fail_errno(err, "no_scratch", "%s can't be made", s->top);
	}
	s->dir = open(s->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return s->dir >= 0 ? 0 : hb_fail_errno(err, "no_scratch", "%s can't be opened", s->state);
}

/* The configuration and the bounds as they are here; setup changes what must differ. */
static int
copy_conf(const struct scratch *s, struct hb_error *err)
{
	static const char *const files[] = {HB_PATH_CONFIG, HB_PATH_BOUNDS};

	for (size_t i = 0; i < 2; i++) {
		struct hb_buf text = HB_BUF_INIT;
		int rc = hb_fs_read(AT_FDCWD, files[i], 1 << 20, &text, err);

		if (rc == 0)
			rc = hb_fs_write_atomic(s->dir, files[i], text.data, text.len, 0644, 0, 0, err);
		hb_buf_free(&text);
		if (rc < 0)
			return -1;
	}
	return 0;
}

/* A token file in the data directory: that of the other instance. */
static char *
token_file(const struct ctl_acceptance *a, const struct scratch *s, const char *key)
{
	const char *file = hb_config_text(a->c->config, key),
		   *data = hb_config_text(a->c->config, "runtime.data");
	size_t len = strlen(data);

	if (strncmp(file, data, len) == 0 && file[len] == '/')
		return hb_asprintf("%s=%s/data/executor%s", key, s->top, file + len);
	return hb_asprintf("%s=%s", key, file);
}

static int
set_up(struct ctl_acceptance *a, struct scratch *s, struct hb_error *err)
{
	char *set[7];
	int rc;

	set[0] = hb_asprintf("identities.base_uid=%u", s->base);
	set[1] = hb_asprintf("runtime.port=%d", free_port());
	set[2] = hb_asprintf("runtime.storage=%s/storage", s->top);
	set[3] = hb_asprintf("runtime.data=%s/data/executor", s->top);
	set[4] = hb_asprintf("runtime.backup_dir=%s/backups", s->top);
	set[5] = token_file(a, s, "runtime.health_token_file");
	set[6] = token_file(a, s, "runtime.mcp_key_file");
	rc = AGAIN(a, s, true, "setup", "--set", set[0], "--set", set[1], "--set", set[2], "--set",
		   set[3], "--set", set[4], "--set", set[5], "--set", set[6], "--set", "admin.enabled=no", "--set",
		   "broker.listen_tcp=", "--set", "broker.client_uids=", "--set",
		   "runtime.supervisor=embedded");
	for (int i = 0; i < 7; i++)
		free(set[i]);
	return rc == 0 ? 0 : hb_fail(err, "no_scratch", "the instance can't be set up (exit %d)", rc);
}

static int
hand_over_all(struct ctl_acceptance *a, struct scratch *s, struct hb_error *err)
{
	static const char *const keys[] = {"runtime.health_token_file", "runtime.mcp_key_file"};
	char path[HB_ONBOARDING_NAME_MAX + sizeof HB_KEYS_DIR + 1];

	for (size_t i = 0; i < 2; i++) {
		const char *file = hb_config_text(a->c->config, keys[i]);

		/* An absolute one is read where it is. */
		if (*file && *file != '/' && hand_over(s, file, HB_PEER_LAUNCHER, err) < 0)
			return -1;
	}
	snprintf(path, sizeof path, HB_KEYS_DIR "/%s", a->key);
	return a->key[0] ? hand_over(s, path, HB_PEER_PROBE, err) : 0;
}

/* Its runtime, with the data of the backup if there is one. */
static int
bring_up(struct ctl_acceptance *a, struct scratch *s, struct hb_error *err)
{
	int rc = AGAIN(a, s, true, "up");

	if (rc == 0)
		rc = AGAIN(a, s, true, "runtime", "install", "--approve");
	if (rc == 0 && s->backup)
		rc = AGAIN(a, s, true, "runtime", "restore", "--approve", s->backup);
	return rc == 0 ? 0
		       : hb_fail(err, "no_scratch", "the instance's runtime does not come up (exit %d); "
						    "what it says stands above", rc);
}

static int
check(struct ctl_acceptance *a, struct scratch *s)
{
	const char *args[12] = {"acceptance", "run", "--approve"};
	int n = 3;

	if (!a->look)
		args[n++] = "--repull";
	else
		args[n++] = "--look";
	if (a->key[0]) {
		args[n++] = "--key";
		args[n++] = a->key;
	}
	if (a->browser) {
		args[n++] = "--browser";
		args[n++] = a->browser;
	}
	return again(a, s, false, args);
}

static void
clear_away(struct ctl_acceptance *a, struct scratch *s)
{
	struct hb_error err;
	char *name = s->top + sizeof "/var/tmp/" - 1;
	int dir = open("/var/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (s->dir >= 0 && faccessat(s->dir, "run", F_OK, 0) == 0 && AGAIN(a, s, true, "down") != 0)
		ctl_note(a->c, "The instance in %s could not be stopped and is left there.", s->top);
	else if (dir < 0 || hb_fs_remove_tree(dir, name, &err) < 0)
		ctl_note(a->c, "%s could not be removed whole.", s->top);
	hb_close(&dir);
}

int
ctl_accept_disposable(struct ctl_acceptance *a)
{
	struct scratch s = {.base = (uid_t)hb_config_int(a->c->config, "identities.base_uid") + UID_STEP,
			    .dir = -1};
	struct hb_error err = {0};
	int code = -1;

	clear_away_when_ended();
	snprintf(s.top, sizeof s.top, "/var/tmp/hermes-acceptance-XXXXXX");
	if (!mkdtemp(s.top)) {
		hb_fail_errno(&err, "no_scratch", "no directory in /var/tmp");
		return ctl_error(a->c, &err);
	}
	snprintf(s.state, sizeof s.state, "%s/state", s.top);
	if (make_directories(&s, &err) == 0 && copy_backup(a, &s, &err) == 0 &&
	    copy_conf(&s, &err) == 0 && set_up(a, &s, &err) == 0 && hand_over_all(a, &s, &err) == 0 &&
	    bring_up(a, &s, &err) == 0)
		code = check(a, &s);
	clear_away(a, &s);
	free(s.backup);
	hb_close(&s.dir);
	if (err.code[0])
		return ctl_error(a->c, &err);
	return code >= 0 ? code : CTL_FAILED;
}
