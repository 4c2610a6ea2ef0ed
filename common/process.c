/*
 * The common start of the long-running programs; process.h says in which order and why there is
 * one.
 *
 * Nothing from outside is read before the sandbox is in force: the socket listens earlier, so that
 * callers queue instead of failing, but the loop that accepts them starts last.
 */
#include "common/process.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/ids.h"
#include "common/log.h"
#include "common/paths.h"

#define GROUPS_MAX 64
#define EXTRA_UIDS_MAX 32 /* what the table of peers takes for a role */

struct start {
	const struct hb_program *program;
	struct hb_process p;
	const char *state;
	int ready_fd;
	void *ctx;
	bool stopping;
	struct event *signals[2];
};

/* ---- arguments ---- */

static void
usage(const struct hb_program *program, FILE *out)
{
	fprintf(out, "usage: %s --state DIR [--ready-fd N]\n\n"
		"  --state DIR    the state directory (made by hermesctl setup)\n"
		"  --ready-fd N   write one byte '1' to this descriptor once serving\n"
		"  --help, --version\n%s%s",
		hb_peer_name(program->self), program->usage != NULL ? "\n" : "",
		program->usage != NULL ? program->usage : "");
}

/* Returns -1 to go on, else the exit code. */
static int
arguments(struct start *s, int argc, char **argv)
{
	static const struct option options[] = {
		{"state", required_argument, NULL, 's'},
		{"ready-fd", required_argument, NULL, 'r'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	char *end;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 's':
			s->state = optarg;
			break;
		case 'r':
			s->ready_fd = (int)strtol(optarg, &end, 10);
			if (*end != '\0' || s->ready_fd < 3 ||
			    fcntl(s->ready_fd, F_SETFD, FD_CLOEXEC) != 0) {
				fprintf(stderr, "--ready-fd wants the number of an open descriptor "
						"above 2\n");
				return EX_USAGE;
			}
			break;
		case 'h':
			usage(s->program, stdout);
			return 0;
		case 'v':
			printf("%s %s\n", hb_peer_name(s->program->self), HB_VERSION);
			return 0;
		default:
			usage(s->program, stderr);
			return EX_USAGE;
		}
	}
	if (s->state == NULL || optind != argc) {
		usage(s->program, stderr);
		return EX_USAGE;
	}
	return -1;
}

/* Only 0, 1, 2 and the ready descriptor are ours; what else is open came by a mistake. */
static void
close_others(int ready_fd)
{
	if (ready_fd > 3)
		close_range(3, (unsigned)ready_fd - 1, 0);
	close_range(ready_fd >= 3 ? (unsigned)ready_fd + 1 : 3, ~0U, 0);
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			_exit(EX_OSERR);
}

/* ---- configuration and identity ---- */

/* "UID" or "UID=anything" each. */
static int
uids_allow(const struct hb_config *config, const char *key, enum hb_peer role, struct hb_error *err)
{
	uid_t uids[EXTRA_UIDS_MAX], base = (uid_t)hb_config_int(config, "identities.base_uid");
	const char **items;
	size_t count = hb_config_list(config, key, &items);

	if (count > EXTRA_UIDS_MAX)
		return hb_fail(err, "config_value", "%s names more than %d users", key,
			       EXTRA_UIDS_MAX);
	for (size_t i = 0; i < count; i++) {
		char *end;
		unsigned long uid;

		errno = 0;
		uid = strtoul(items[i], &end, 10);
		if (items[i][0] < '0' || items[i][0] > '9' || errno != 0 || uid >= (uid_t)-1 ||
		    (*end != '\0' && *end != '='))
			return hb_fail(err, "config_value", "%s: %s is not a numeric uid", key,
				       items[i]);
		/* One of our own processes with a second role would join what is kept apart. */
		if (uid >= base && uid <= hb_peer_uid(HB_PEER_RUNTIME))
			return hb_fail(err, "config_value",
				       "%s: uid %lu belongs to one of the processes themselves",
				       key, uid);
		uids[i] = (uid_t)uid;
	}
	hb_peers_allow(role, uids, count);
	return 0;
}

int
hb_process_peers(const struct hb_config *config, struct hb_error *err)
{
	hb_peers_init((uid_t)hb_config_int(config, "identities.base_uid"));
	if (uids_allow(config, "broker.client_uids", HB_PEER_CLIENT, err) != 0)
		return -1;
	return uids_allow(config, "approver.console_approvers", HB_PEER_CONSOLE, err);
}

size_t
hb_process_groups(const struct hb_config *config, enum hb_peer p, gid_t *groups, size_t max)
{
	size_t count = hb_peer_groups(p, groups, max);
	struct stat st;

	if (p == HB_PEER_DOCKER && count < max &&
	    stat(hb_config_text(config, "docker.socket"), &st) == 0 && S_ISSOCK(st.st_mode) &&
	    st.st_gid != 0)
		groups[count++] = st.st_gid;
	return count;
}

static int
identity_check(const struct hb_process *p, struct hb_error *err)
{
	const char *name = hb_peer_name(p->self);
	uid_t uid = hb_peer_uid(p->self), r, e, s;
	gid_t gid = hb_peer_gid(p->self), rg, eg, sg, have[GROUPS_MAX], may[GROUPS_MAX];
	size_t may_count = hb_process_groups(p->config, p->self, may, GROUPS_MAX);
	int count = getgroups(GROUPS_MAX, have);

	if (getresuid(&r, &e, &s) != 0 || r != uid || e != uid || s != uid)
		return hb_fail(err, "wrong_identity",
			       "%s must run as uid %u and nothing else (it is %u/%u/%u): start it "
			       "by hermes-launcher or its unit",
			       name, uid, r, e, s);
	if (getresgid(&rg, &eg, &sg) != 0 || rg != gid || eg != gid || sg != gid)
		return hb_fail(err, "wrong_identity", "%s must run as gid %u (it is %u/%u/%u)",
			       name, gid, rg, eg, sg);
	if (count < 0)
		return hb_fail(err, "wrong_identity", "%s is in more than %d groups", name,
			       GROUPS_MAX);
	for (int i = 0; i < count; i++) {
		bool known = have[i] == gid;

		for (size_t j = 0; j < may_count; j++)
			known = known || have[i] == may[j];
		if (!known)
			return hb_fail(err, "wrong_identity",
				       "%s must not be in group %u: start it without further "
				       "groups",
				       name, have[i]);
	}
	return 0;
}

static int
directory_check(const char *path, uid_t owner, mode_t mode, struct hb_error *err)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return hb_fail_errno(err, "state_incomplete",
				     "cannot use %s in the state directory: run hermesctl setup",
				     path);
	if (!S_ISDIR(st.st_mode) || st.st_uid != owner || (st.st_mode & 07777 & ~mode) != 0)
		return hb_fail(err, "state_permissions",
			       "%s must be a directory of uid %u with mode %04o (it is uid %u, "
			       "%04o): run hermesctl setup, or chown %u %s && chmod %o %s",
			       path, owner, mode, st.st_uid, st.st_mode & 07777, owner, path, mode,
			       path);
	return 0;
}

static int
host_id_read(struct hb_process *p, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	/* Grants for another host would count here for whoever can change it. */
	int rc = hb_fs_read_trusted(AT_FDCWD, HB_PATH_HOST_ID, geteuid(), 64, &text, err);

	if (rc != 0)
		return hb_fail_prefix(err, "the identity of this host (made by hermesctl setup)");
	if (text.len == 33 && text.data[32] == '\n' && strspn(text.data, "0123456789abcdef") == 32)
		memcpy(p->host_id, text.data, 32);
	else
		rc = hb_fail(err, "config_value", "%s must hold 32 hex digits and a newline",
			     HB_PATH_HOST_ID);
	hb_buf_free(&text);
	return rc;
}

static void
log_level(const struct hb_process *p)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	const char *wanted = hb_config_text(p->config, "log.level");

	for (int i = 0; i < 4; i++)
		if (strcmp(wanted, names[i]) == 0)
			hb_log_open(hb_peer_name(p->self), (enum hb_log_level)i);
}

/* Steps up to the first open of something secret. Returns an exit code, 0 to go on. */
static int
settle(struct start *s, struct hb_error *err)
{
	struct hb_process *p = &s->p;
	const char *dir = hb_peer_dir(p->self);
	char path[64];

	if (chdir(s->state) != 0) {
		hb_fail_errno(err, "state_missing", "cannot enter the state directory %s",
			      s->state);
		return EX_NOPERM;
	}
	if (hb_config_load(AT_FDCWD, HB_PATH_CONFIG, NULL, 0, &p->config, err) != 0 ||
	    hb_process_peers(p->config, err) != 0)
		return EX_CONFIG;
	log_level(p);
	if (identity_check(p, err) != 0)
		return EX_NOPERM;
	if (host_id_read(p, err) != 0)
		return EX_CONFIG;
	snprintf(path, sizeof(path), "run/%s", dir);
	if (directory_check(path, hb_peer_uid(p->self), 0750, err) != 0 ||
	    directory_check(dir, hb_peer_uid(p->self), 0700, err) != 0)
		return EX_NOPERM;
	snprintf(path, sizeof(path), "%s/audit.log", dir);
	if (hb_audit_open(path, hb_peer_name(p->self), &p->audit, err) != 0)
		return EX_CONFIG;
	return 0;
}

/* ---- serving ---- */

static void
log_refused(const char *why, uid_t uid, const char *path, void *ctx)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", (int)uid);
	hb_log(HB_LOG_WARN, "refused", "why", why, "uid", number, "path", path, NULL);
}

static void
on_signal(evutil_socket_t fd, short what, void *arg)
{
	struct start *s = arg;

	if (s->program->stop != NULL && !s->stopping) {
		s->stopping = true;
		s->program->stop(&s->p, s->ctx);
		return;
	}
	hb_process_exit(&s->p, 0); /* nothing to finish, or asked twice */
}

static int
serve_prepare(struct start *s, struct hb_error *err)
{
	struct hb_server_options options = s->program->server;
	static const int numbers[] = {SIGTERM, SIGINT};

	options.ctx = s->ctx;
	if (options.on_refused == NULL)
		options.on_refused = log_refused;
	for (int i = 0; i < 2; i++) {
		s->signals[i] = evsignal_new(s->p.base, numbers[i], on_signal, s);
		if (s->signals[i] == NULL || event_add(s->signals[i], NULL) != 0)
			return hb_fail(err, "internal", "cannot watch signals");
	}
	if (hb_server_new(s->p.base, &options, &s->p.server, err) != 0)
		return -1;
	return hb_server_listen_unix(s->p.server, hb_peer_socket(s->p.self), err);
}

static int
confine(struct start *s, struct hb_error *err)
{
	bool degraded_ok = strcmp(hb_config_text(s->p.config, "sandbox.mode"), "degraded") == 0;
	struct hb_sandbox box = {0};

	if (s->program->sandbox(&s->p, s->ctx, &box, err) != 0)
		return -1;
	if (box.name == NULL)
		box.name = hb_peer_name(s->p.self);
	if (hb_sandbox_apply(&box, degraded_ok, &s->p.sandbox, err) != 0)
		return -1;
	if (s->p.sandbox.degraded)
		hb_log(HB_LOG_WARN, "sandbox_degraded", "msg",
		       "running with less confinement than declared", NULL);
	return 0;
}

/* Security material that is missing or loose is told apart from "cannot start": nobody should
 * restart that. */
static int
code_of(const struct hb_error *err)
{
	static const char *const material[] = {"secret_", "key_",    "bad_key", "config_",
					       "policy_", "bounds_", "loose_",	"state_"};

	for (size_t i = 0; i < sizeof(material) / sizeof(material[0]); i++)
		if (strncmp(err->code, material[i], strlen(material[i])) == 0)
			return EX_CONFIG;
	return EX_OSERR;
}

static int
run(struct start *s, struct hb_error *err)
{
	struct hb_process *p = &s->p;

	p->base = event_base_new();
	if (p->base == NULL) {
		hb_fail(err, "internal", "cannot create an event loop");
		return EX_OSERR;
	}
	p->client = hb_client_new(p->base);
	s->ctx = s->program->open(p, err);
	if (s->ctx == NULL)
		return code_of(err);
	if (serve_prepare(s, err) != 0)
		return EX_OSERR;
	if (s->program->listen != NULL && s->program->listen(p, s->ctx, err) != 0)
		return code_of(err);
	if (confine(s, err) != 0)
		return EX_OSERR;
	if (s->program->run != NULL && s->program->run(p, s->ctx, err) != 0)
		return code_of(err);
	if (s->ready_fd >= 0 && write(s->ready_fd, "1", 1) != 1)
		hb_log(HB_LOG_WARN, "ready_unread", NULL);
	hb_close(&s->ready_fd);
	hb_log(HB_LOG_INFO, "ready", "version", HB_VERSION, NULL);
	err->code[0] = '\0'; /* what went wrong so far was dealt with */
	if (event_base_dispatch(p->base) < 0) {
		hb_fail(err, "internal", "the event loop failed");
		return EX_OSERR;
	}
	return p->exit_code;
}

static void
release(struct start *s)
{
	struct hb_process *p = &s->p;

	hb_server_free(p->server);
	hb_client_free(p->client);
	if (s->ctx != NULL && s->program->close != NULL)
		s->program->close(s->ctx);
	for (int i = 0; i < 2; i++)
		if (s->signals[i] != NULL)
			event_free(s->signals[i]);
	if (p->base != NULL)
		event_base_free(p->base);
	if (p->audit != NULL)
		hb_audit_close(p->audit);
	hb_config_free(p->config);
}

int
hb_process_main(const struct hb_program *program, int argc, char **argv)
{
	struct start s = {.program = program, .ready_fd = -1, .p = {.self = program->self}};
	struct hb_error err = {.code = ""};
	int code = arguments(&s, argc, argv);

	if (code >= 0)
		return code;
	hb_log_open(hb_peer_name(program->self), HB_LOG_INFO);
	close_others(s.ready_fd);
	umask(077);
	signal(SIGPIPE, SIG_IGN);
	s.p.started_at = hb_now();
	code = settle(&s, &err);
	if (code == 0)
		code = run(&s, &err);
	if (err.code[0] != '\0')
		hb_log(HB_LOG_ERROR, "cannot_start", "code", err.code, "msg", err.message, NULL);
	release(&s);
	return code;
}

void
hb_process_exit(struct hb_process *p, int code)
{
	p->exit_code = code;
	event_base_loopbreak(p->base);
}

json_t *
hb_process_health(struct hb_process *p, const char *error)
{
	const struct hb_sandbox_report *box = &p->sandbox;
	char caps[24];
	json_t *sandbox, *checks, *health;

	snprintf(caps, sizeof(caps), "%llx", (unsigned long long)box->caps_permitted);
	sandbox = json_pack("{s:i, s:b, s:b, s:b, s:s}", "landlock_abi", box->landlock_abi,
			    "seccomp", box->seccomp, "no_new_privs", box->no_new_privs, "degraded",
			    box->degraded, "caps_permitted", caps);
	checks = json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:o}", "process", hb_peer_name(p->self),
			   "version", HB_VERSION, "pid", (int)getpid(), "uid", (int)geteuid(),
			   "started_at", (json_int_t)p->started_at, "uptime",
			   (json_int_t)(hb_now() - p->started_at), "sandbox", sandbox);
	if (p->audit != NULL) {
		struct hb_audit_head head = hb_audit_head(p->audit);

		/* For the approver's checkpoints. */
		json_object_set_new(
			checks, "audit",
			json_pack("{s:I, s:s}", "seq", (json_int_t)head.seq, "hash", head.hash));
	}
	health =
		json_pack("{s:s, s:o}", "status", error != NULL ? "error" : "ok", "checks", checks);
	if (error != NULL)
		json_object_set_new(health, "error", json_string(error));
	return health;
}
