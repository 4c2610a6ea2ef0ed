/*
 * An approved command, in a worker: the profile read again and compared with what was approved, its
 * bytes put into sealed memory files, a session of the starter asked to run ssh on exactly these,
 * its output kept in bounds.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/ssh/certificate.h"
#include "broker/ssh/log.h"
#include "broker/ssh/profile.h"
#include "broker/ssh/quote.h"
#include "broker/ssh/run.h"
#include "broker/ssh/ssh.h"
#include "common/digest.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/tail.h"
#include "policy/operation.h"

#define CONNECT_SECONDS 30
#define END_MS 12000 /* for a session to end ssh and say so */
#define TELL_MS 500

enum { WHY_ITSELF, WHY_TIME, WHY_STOPPING };

struct run {
	struct hb_worker *w;
	struct hb_loaded profile;
	struct hb_buf command;
	int fds[HB_RUN_FDS];         /* the session's ends */
	int session, output, log_fd; /* ours */
	struct hb_tail tail;
	struct hb_sha256 *sha;
	struct hb_ssh_log log;
	int why;
	bool reported, started;
	int exit_status;
	int64_t told_ms;
};

/* --- before --- */

static int check_profile(struct run *r, struct hb_error *err)
{
	const char *name = hb_json_text(r->w->request, "profile", "");
	json_t *now;
	int rc;

	if (hb_loaded_open(name, &r->profile, err) < 0)
		return hb_fail(err, "profile_changed", "the profile can't be used any more: %s",
			       err->message);
	now = hb_loaded_seal(&r->profile, err);
	rc = now ? hb_sealed_equal(json_object_get(r->w->request, "sealed_profile"), now, err) : -1;
	json_decref(now);
	return rc;
}

static int make_files(struct run *r, struct hb_error *err)
{
	struct hb_buf pin = HB_BUF_INIT;
	int pipes[2][2] = {{-1, -1}, {-1, -1}}, pair[2] = {-1, -1};

	hb_buf_printf(&pin, HB_HOST_ALIAS " %s %s\n", r->profile.key.type, r->profile.key.base64);
	r->fds[HB_RUN_KNOWN_HOSTS] = hb_memory_file("known_hosts", pin.data, pin.len, 0600, err);
	hb_buf_free(&pin);
	r->fds[HB_RUN_CREDENTIAL] = hb_memory_file("credential", r->profile.credential.text,
						   r->profile.credential.len, 0600, err);
	if (r->fds[HB_RUN_KNOWN_HOSTS] < 0 || r->fds[HB_RUN_CREDENTIAL] < 0)
		return -1;
	if (pipe2(pipes[0], O_CLOEXEC) < 0 || pipe2(pipes[1], O_CLOEXEC) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		hb_fail_errno(err, "no_worker", "the pipes of a run can't be made");
	r->output = pipes[0][0];
	r->fds[HB_RUN_OUTPUT] = pipes[0][1];
	r->log_fd = pipes[1][0];
	r->fds[HB_RUN_LOG] = pipes[1][1];
	r->session = pair[0];
	r->fds[HB_RUN_SESSION] = pair[1];
	return pair[0] < 0 ? -1 : 0;
}

static int make_command(struct run *r, struct hb_error *err)
{
	const json_t *argv = json_object_get(r->w->request, "argv");

	if (argv)
		return hb_quote_argv(argv, &r->command, err);
	hb_buf_adds(&r->command, hb_json_text(r->w->request, "command", ""));
	return 0;
}

static int start(struct run *r, struct hb_error *err)
{
	const struct hb_ssh_profile *p = &r->profile.profile;
	int64_t seconds = (r->w->deadline_ms - hb_monotonic_ms()) / 1000;
	struct hb_run_order order = {.host = p->host,
				     .port = p->port,
				     .user = p->user,
				     .auth = p->auth,
				     .key_type = r->profile.key.type,
				     .command = r->command.data};
	int rc;

	order.connect_timeout = seconds < 1                 ? 1
				: seconds < CONNECT_SECONDS ? seconds
							    : CONNECT_SECONDS;
	if (r->profile.ca.text) {
		order.certificate = true;
		r->fds[HB_RUN_CERTIFICATE] = hb_certificate_file(
			&r->profile, r->command.data, hb_operation_timeout("ssh", r->w->request),
			r->w->operation_id, err);
		if (r->fds[HB_RUN_CERTIFICATE] < 0)
			return -1;
	}
	rc = hb_run_send(r->w->keep_fd, &order, r->fds, err);
	for (size_t i = 0; i < HB_RUN_FDS; i++)
		hb_close(&r->fds[i]);
	hb_secret_free(&r->profile.credential);
	hb_secret_free(&r->profile.ca);
	r->started = rc == 0;
	return rc;
}

/* --- while it runs --- */

/* False at its end. */
static bool read_output(struct run *r)
{
	char piece[32768];
	ssize_t n = read(r->output, piece, sizeof(piece));

	if (n > 0) {
		hb_tail_add(&r->tail, piece, (size_t)n);
		hb_sha256_update(r->sha, piece, (size_t)n);
	}
	return n > 0 || (n < 0 && errno == EINTR);
}

static bool read_log(struct run *r)
{
	char piece[4096];
	ssize_t n = read(r->log_fd, piece, sizeof(piece));

	if (n > 0)
		hb_ssh_log_feed(&r->log, piece, (size_t)n);
	return n > 0 || (n < 0 && errno == EINTR);
}

static void read_session(struct run *r)
{
	char text[256];
	struct hb_error ignored;
	ssize_t n = recv(r->session, text, sizeof(text), 0);
	json_t *end;

	if (n < 0 && errno == EINTR)
		return;
	end = n > 0 ? hb_json_parse(text, (size_t)n, &ignored) : NULL;
	if (end) {
		r->reported = true;
		r->exit_status = (int)hb_json_int(end, "exit", -1);
	}
	json_decref(end);
	hb_close(&r->session);
}

static void tell(struct run *r)
{
	int64_t now = hb_monotonic_ms();

	if (now - r->told_ms < TELL_MS)
		return;
	r->told_ms = now;
	hb_worker_progress(r->w,
			   r->log.sent        ? "run"
			   : r->log.connected ? "login"
					      : "connect",
			   (int64_t)r->tail.total, 0, "bytes");
}

/* Until the session has said how it ended and both pipes are empty; a session that is told to stop
 * and doesn't end is left alone, and what it holds with it. */
static void follow(struct run *r)
{
	int64_t limit = r->w->deadline_ms;

	while (r->session >= 0 || r->output >= 0 || r->log_fd >= 0) {
		struct pollfd fds[] = {{.fd = r->session, .events = POLLIN},
				       {.fd = r->output, .events = POLLIN},
				       {.fd = r->log_fd, .events = POLLIN}};
		int64_t wait = limit - hb_monotonic_ms();

		if (r->session >= 0 && !r->why && (wait <= 0 || hb_worker_stopping())) {
			r->why = hb_worker_stopping() ? WHY_STOPPING : WHY_TIME;
			limit = hb_monotonic_ms() + END_MS;
			(void)!send(r->session, "stop", 4, MSG_NOSIGNAL);
			continue;
		}
		if (wait <= 0)
			return;
		if (poll(fds, 3, wait > TELL_MS ? TELL_MS : (int)wait) < 0)
			continue;
		if (fds[1].revents && !read_output(r))
			hb_close(&r->output);
		if (fds[2].revents && !read_log(r))
			hb_close(&r->log_fd);
		if (fds[0].revents) {
			read_session(r);
			/* Everything that could write is gone: what is in the pipes is there
			 * already. */
			limit = hb_monotonic_ms() + END_MS;
		}
		tell(r);
	}
}

/* --- after --- */

static json_t *describe(struct run *r, int returncode)
{
	unsigned char hash[32];
	char hex[HB_HEX256];
	bool truncated;
	char *text = hb_tail_text(&r->tail, 0, &truncated);
	json_t *out;

	hb_sha256_final(r->sha, hash);
	hb_hex(hash, sizeof(hash), hex);
	out = json_pack("{s:s, s:b, s:i, s:b, s:I, s:s, s:s}", "output", text, "truncated",
			truncated, "returncode", returncode, "timed_out", r->why == WHY_TIME,
			"output_bytes", (json_int_t)r->tail.total, "output_bytes_sha256", hex,
			"far_side", hb_ssh_log_far_side(&r->log));
	free(text);
	return out;
}

/* Ended by us: what can be said truthfully depends on how far it had come. */
static int ended_by_us(struct run *r, struct hb_error *err)
{
	const char *code = r->why == WHY_TIME ? "timeout" : "interrupted";
	const char *what = r->why == WHY_TIME ? "the time was over" : "the executor was stopped";
	const char *far = hb_ssh_log_far_side(&r->log);

	if (strcmp(far, "not_started") == 0)
		return hb_fail(err, code,
			       "%s %s; ssh was ended and nothing was started on the far side", what,
			       r->log.connected ? "during the login"
						: "before there was a connection");
	if (strcmp(far, "may_run") == 0)
		return hb_fail(err, code,
			       "%s; the connection was cut and every process here was ended, but "
			       "the command may still be running on the far side",
			       what);
	return hb_fail(err, code, "%s just after the command had ended on the far side", what);
}

static int judge(struct run *r, json_t **result, struct hb_error *err)
{
	int returncode = 255, rc;

	if (r->why) {
		rc = ended_by_us(r, err);
		returncode = r->why == WHY_TIME ? 124 : 1;
		r->w->unknown = r->why == WHY_STOPPING &&
				strcmp(hb_ssh_log_far_side(&r->log), "not_started") != 0;
	} else if (!r->reported) {
		r->w->unknown = r->started && strcmp(hb_ssh_log_far_side(&r->log), "finished") != 0;
		rc = hb_fail(err, "session_died",
			     "the process that held ssh ended without a word; what the command did "
			     "is not known, and it may still be running on the far side");
	} else {
		rc = hb_ssh_log_end(&r->log, r->exit_status, r->profile.key.type, &returncode, err);
		r->w->unknown = rc < 0 && strcmp(err->code, "connection_lost") == 0;
	}
	*result = describe(r, returncode);
	return rc;
}

/*
 * Safe to act on: the gate has found the grant good for exactly this request and has burnt it. The
 * profile is read once more, from the bytes that are then used, and any difference from what was
 * sealed ends the run before ssh is started.
 */
int hb_ssh_work(struct hb_worker *w, json_t **result, struct hb_error *err)
{
	struct run r = {.w = w,
			.fds = {-1, -1, -1, -1, -1, -1},
			.session = -1,
			.output = -1,
			.log_fd = -1,
			.exit_status = -1};
	int rc = -1;

	r.sha = hb_sha256_new();
	if (check_profile(&r, err) < 0 || make_command(&r, err) < 0 || make_files(&r, err) < 0 ||
	    start(&r, err) < 0)
		goto out;
	follow(&r);
	rc = judge(&r, result, err);
out:
	for (size_t i = 0; i < HB_RUN_FDS; i++)
		hb_close(&r.fds[i]);
	hb_close(&r.session);
	hb_close(&r.output);
	hb_close(&r.log_fd);
	hb_loaded_close(&r.profile);
	hb_buf_free(&r.command);
	hb_tail_free(&r.tail);
	hb_sha256_free(r.sha);
	return rc;
}
