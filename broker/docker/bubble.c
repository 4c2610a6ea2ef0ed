/* A worker's side of a sandboxed command (bubble.h). */
#include "broker/docker/bubble.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/docker/output.h"
#include "broker/docker/seal.h"
#include "broker/docker/workspace.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "policy/text.h"

#define SLICE_MS 200
#define DRAIN_MS 2000
#define END_MS 10000
#define CHECK_SECONDS 10

struct bubble {
	int out, error, control; /* our ends; -1 once at their end */
	struct hb_output output;
	json_t *report; /* what the keeper said */
};

static int hand_over(struct hb_worker *w, const char *text, const int fds[3], struct hb_error *err)
{
	union {
		char space[CMSG_SPACE(3 * sizeof(int))];
		struct cmsghdr align;
	} control = {.space = ""};
	struct iovec iov = {(char *)(uintptr_t)text, strlen(text)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(3 * sizeof(int));
	memcpy(CMSG_DATA(c), fds, 3 * sizeof(int));
	if (w->keep_fd < 0 || sendmsg(w->keep_fd, &msg, MSG_NOSIGNAL) < 0)
		return hb_fail_errno(err, "sandbox_unavailable",
				     "the runner of local commands is gone: restart hermes-docker");
	return 0;
}

static int begin(struct hb_worker *w, json_t *message, struct bubble *b, struct hb_error *err)
{
	int out[2] = {-1, -1}, error[2] = {-1, -1}, control[2] = {-1, -1}, rc = -1;
	char *text = json_dumps(message, JSON_COMPACT);

	json_decref(message);
	if (pipe2(out, O_CLOEXEC) < 0 || pipe2(error, O_CLOEXEC) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0) {
		hb_fail_errno(err, "no_worker", "pipes can't be made");
		goto out;
	}
	rc = hand_over(w, text, (const int[]){out[1], error[1], control[1]}, err);
	b->out = out[0];
	b->error = error[0];
	b->control = control[0];
	out[0] = error[0] = control[0] = -1;
out:
	free(text);
	for (int i = 0; i < 2; i++) {
		hb_close(&out[i]);
		hb_close(&error[i]);
		hb_close(&control[i]);
	}
	return rc;
}

static void take(int *fd, enum hb_frame_stream stream, struct hb_output *o)
{
	char chunk[65536];
	ssize_t n = read(*fd, chunk, sizeof chunk);

	if (n > 0)
		hb_output_sink(stream, chunk, (size_t)n, o);
	else if (n == 0 || errno != EINTR)
		hb_close(fd);
}

static void take_report(struct bubble *b)
{
	char text[4096];
	ssize_t n = recv(b->control, text, sizeof text, 0);

	if (n > 0)
		b->report = hb_json_parse(text, (size_t)n, NULL);
	hb_close(&b->control);
}

/* One round of waiting. */
static void turn(struct bubble *b, int ms)
{
	struct pollfd p[3] = {{.fd = b->out, .events = POLLIN},
			      {.fd = b->error, .events = POLLIN},
			      {.fd = b->control, .events = POLLIN}};

	if (poll(p, 3, ms) <= 0)
		return;
	if (p[0].revents)
		take(&b->out, HB_FRAME_STDOUT, &b->output);
	if (p[1].revents)
		take(&b->error, HB_FRAME_STDERR, &b->output);
	if (p[2].revents)
		take_report(b);
}

/* Everybody who could write is gone when both streams are at their end. */
static bool drain(struct bubble *b, int64_t ms)
{
	int64_t deadline = hb_monotonic_ms() + ms;

	while ((b->out >= 0 || b->error >= 0) && hb_monotonic_ms() < deadline)
		turn(b, SLICE_MS);
	return b->out < 0 && b->error < 0;
}

static void end(struct bubble *b)
{
	hb_close(&b->out);
	hb_close(&b->error);
	hb_close(&b->control);
	hb_output_free(&b->output);
	json_decref(b->report);
}

/* What the keeper said, as an outcome: 0 with *code, or -1. */
static int judge(const struct bubble *b, int *code, struct hb_error *err)
{
	if (json_object_get(b->report, "error")) {
		/* Nothing was run, so what came as standard error is bubblewrap's own. */
		bool ignored;
		char *said = hb_tail_text(&b->output.error, 160, &ignored), shown[161];

		hb_show(said, shown, sizeof shown);
		free(said);
		return hb_fail(err, hb_json_text(b->report, "code", "sandbox_unavailable"),
			       "%.320s%s%s%s", hb_json_text(b->report, "error", ""),
			       *shown ? " (bwrap said: " : "", shown, *shown ? ")" : "");
	}
	if (!json_object_get(b->report, "exit"))
		return hb_fail(err, "exit_unknown",
			       "the keeper of this command ended without saying how it went");
	*code = (int)hb_json_int(b->report, "exit", 1);
	return 0;
}

static int time_is_up(struct bubble *b, json_t *result, struct hb_error *err)
{
	bool stopping = hb_worker_stopping();
	const char *why = stopping ? "the executor was stopped"
				   : "the operation took longer than its timeout";
	const char *code = stopping ? "interrupted" : "timeout";

	hb_close(&b->control); /* the keeper ends everything */
	json_object_set_new(result, "returncode", json_integer(stopping ? 1 : 124));
	json_object_set_new(result, "timed_out", json_boolean(!stopping));
	if (drain(b, END_MS))
		return hb_fail(err, code, "%s; what ran was ended with every process of it", why);
	return hb_fail(err, code, "%s; it was killed, and its end could not be seen", why);
}

int hb_bubble_check(struct hb_worker *w, struct hb_error *err)
{
	struct bubble b = {.out = -1, .error = -1, .control = -1};
	int64_t deadline = hb_monotonic_ms() + CHECK_SECONDS * 1000;
	int code = 1, rc = -1;

	if (begin(w, json_pack("{s:s, s:i}", "command", ":", "seconds", CHECK_SECONDS), &b, err) <
	    0)
		goto out;
	while (b.control >= 0 && hb_monotonic_ms() < deadline)
		turn(&b, SLICE_MS);
	drain(&b, DRAIN_MS);
	rc = judge(&b, &code, err);
	if (rc == 0 && code != 0)
		rc = hb_fail(err, "sandbox_unavailable",
			     "the release's /bin/sh does not work in the sandbox (exit %d)", code);
out:
	end(&b);
	return rc;
}

int hb_bubble_work(struct hb_worker *w, json_t **result, struct hb_error *err)
{
	struct bubble b = {.out = -1, .error = -1, .control = -1};
	const json_t *r = w->request;
	int code = 0, rc = -1;

	if (hb_seal_again(w, NULL, "local", r, err) < 0 ||
	    begin(w,
		  json_pack("{s:O, s:O, s:O, s:O}", "command", json_object_get(r, "command"),
			    "workdir", json_object_get(r, "workdir"), "net_raw",
			    json_object_get(r, "net_raw"), "seconds",
			    json_object_get(r, "timeout")),
		  &b, err) < 0)
		goto out;
	*result = json_object();
	hb_worker_progress(w, "running", 0, 0, "");
	while (b.control >= 0 && hb_monotonic_ms() < w->deadline_ms && !hb_worker_stopping())
		turn(&b, SLICE_MS);
	if (b.control >= 0) {
		rc = time_is_up(&b, *result, err);
	} else {
		b.output.incomplete = !drain(&b, DRAIN_MS);
		rc = judge(&b, &code, err);
		w->unknown = rc < 0 && strcmp(err->code, "exit_unknown") == 0;
		if (rc == 0)
			json_object_set_new(*result, "returncode", json_integer(code));
	}
	hb_output_result(&b.output, *result);
out:
	end(&b);
	return rc;
}
