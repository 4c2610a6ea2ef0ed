/* The supervisor's ends of the two worker pipes, its secrets and its clock. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/installer/probe.h"
#include "broker/installer/runner.h"
#include "broker/installer/supervise_internal.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"
#include "onboarding/keys.h"

/* For all questions together; less when they are asked often, but never so little that a busy host looks like a fault. */
#define PROBE_TIMEOUT_MAX_MS 10000
#define PROBE_TIMEOUT_MIN_MS 3000
#define SECRET_MAX 4096
#define UP_MARGIN_MS 30000 /* besides the time that the payload has to stop */

/* hermes-run lies beside the program that runs now, in the build tree as when installed. */
static int open_hermes_run(struct hb_error *err)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof("hermes-run"));
	char *slash;
	int fd;

	path[n < 0 ? 0 : n] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return hb_fail_errno(err, "proc_missing", "cannot read /proc/self/exe; is /proc mounted?");
	memcpy(slash + 1, "hermes-run", sizeof("hermes-run"));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? hb_fail_errno(err, "hermes_run_missing", "cannot open %s", path) : fd;
}

int hb_supervisor_fork(struct hb_supervisor *s, struct hb_error *err)
{
	const struct hb_config *c = s->process->config;
	struct hb_runner_options runner = {.uid = s->runtime_uid, .stop_timeout_ms = (int)s->stop_ms};
	struct hb_probe_options probe = {.uid = hb_peer_uid(HB_PEER_PROBE), .gid = hb_peer_gid(HB_PEER_PROBE),
					 .port = s->port,
					 .degraded_ok = !strcmp(hb_config_text(c, "sandbox.mode"), "degraded")};
	int rc = -1;

	snprintf(runner.host_id, sizeof(runner.host_id), "%s", s->instance);
	/* A trial is nothing for supervisord: it lives for a minute. */
	if (s->supervisord) {
		runner.supervisord_socket = hb_config_text(c, "runtime.supervisord_socket");
		runner.supervisord_conf = hb_config_text(c, "runtime.supervisord_conf");
	}
	runner.hermes_run_fd = open_hermes_run(err);
	if (runner.hermes_run_fd < 0)
		return -1;
	if (hb_runner_fork(&runner, &s->runner_fd, &s->runner_pid, err) == 0)
		rc = hb_probe_fork(&probe, &s->probe_fd, &s->probe_pid, err);
	hb_close(&runner.hermes_run_fd);
	return rc;
}

static void worker_lost(struct hb_supervisor *s, const char *which)
{
	hb_log(HB_LOG_ERROR, "worker_lost", "worker", which, NULL);
	event_del(s->runner_event);
	event_del(s->probe_event);
	hb_process_exit(s->process, HB_EXIT_WORKER_LOST);
}

static json_t *receive(int fd, bool *lost)
{
	static char packet[HB_PACKET_MAX];
	ssize_t n = recv(fd, packet, sizeof(packet), MSG_DONTWAIT);

	*lost = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
	return n > 0 ? hb_json_parse(packet, (size_t)n, NULL) : NULL;
}

int hb_supervisor_wait_up(struct hb_supervisor *s, struct hb_error *err)
{
	int64_t deadline = hb_monotonic_ms() + s->stop_ms + UP_MARGIN_MS;
	struct pollfd p = {.fd = s->runner_fd, .events = POLLIN};
	bool lost = false;

	while (!s->runner_up && !lost && hb_monotonic_ms() < deadline && poll(&p, 1, 500) >= 0) {
		json_t *event = p.revents ? receive(s->runner_fd, &lost) : NULL;

		if (event)
			hb_supervisor_on_event(s, event);
		json_decref(event);
	}
	if (s->runner_up)
		return 0;
	return lost ? hb_fail(err, "worker_failed", "the runner ended while it was starting")
		    : hb_fail(err, "stop_failed",
			      "what an earlier runner left running can't be ended");
}

static void on_runner(evutil_socket_t fd, short what, void *arg)
{
	struct hb_supervisor *s = arg;
	bool lost;
	json_t *event = receive(fd, &lost);

	if (event)
		hb_supervisor_on_event(s, event);
	json_decref(event);
	if (lost)
		worker_lost(s, "runner");
}

static void on_probe(evutil_socket_t fd, short what, void *arg)
{
	struct hb_supervisor *s = arg;
	bool lost;
	json_t *answer = receive(fd, &lost);

	if (answer)
		hb_supervisor_on_answer(s, answer);
	json_decref(answer);
	if (lost)
		worker_lost(s, "probe");
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	hb_supervisor_on_tick(arg);
}

int hb_supervisor_listen(struct hb_supervisor *s, struct hb_error *err)
{
	struct event_base *base = s->process->base;

	s->runner_event = event_new(base, s->runner_fd, EV_READ | EV_PERSIST, on_runner, s);
	s->probe_event = event_new(base, s->probe_fd, EV_READ | EV_PERSIST, on_probe, s);
	s->tick = evtimer_new(base, on_tick, s);
	if (!s->runner_event || !s->probe_event || !s->tick || event_add(s->runner_event, NULL) < 0 ||
	    event_add(s->probe_event, NULL) < 0)
		return hb_fail(err, "event_failed", "cannot listen to the workers");
	return 0;
}

void hb_supervisor_set_tick(struct hb_supervisor *s, int64_t ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	evtimer_add(s->tick, &tv);
}

static int send_packet(int fd, const void *data, size_t len)
{
	ssize_t n;

	do
		n = send(fd, data, len, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)len ? 0 : -1;
}

static int send_json(int fd, json_t *packet)
{
	char *text = json_dumps(packet, JSON_COMPACT);
	int rc = text ? send_packet(fd, text, strlen(text)) : -1;

	json_decref(packet);
	free(text);
	return rc;
}

int hb_supervisor_send_start(struct hb_supervisor *s, struct hb_error *err)
{
	json_t *spec = hb_run_spec_to_json(&s->spec), *packet;
	char *marker = hb_asprintf("HERMES_INSTANCE=%s", s->instance), *text;
	int rc = 0;

	/* By this a later runner knows what is ours, where there is no control group. */
	json_array_append_new(json_object_get(spec, "env"), json_string(marker));
	free(marker);
	packet = json_pack("{s:s, s:I, s:o, s:I}", "cmd", "start", "run", s->run, "spec", spec, "stop_timeout_ms",
			   (json_int_t)s->stop_ms);
	text = json_dumps(packet, JSON_COMPACT);
	json_decref(packet);
	if (!text || strlen(text) > HB_PACKET_MAX)
		rc = hb_fail(err, "bad_spec", "command and environment of the image have more than %u bytes", HB_PACKET_MAX);
	else if (send_packet(s->runner_fd, text, strlen(text)) < 0)
		worker_lost(s, "runner");
	free(text);
	return rc;
}

void hb_supervisor_send_stop(struct hb_supervisor *s)
{
	if (s->stop_sent)
		return;
	s->stop_sent = true;
	if (send_json(s->runner_fd, json_pack("{s:s, s:I}", "cmd", "stop", "run", s->run)) < 0)
		worker_lost(s, "runner");
}

/* "" when none is configured. A relative path is below the state directory. */
static int read_secret(const struct hb_supervisor *s, const char *key, struct hb_secret *out, struct hb_error *err)
{
	const char *path = hb_config_text(s->process->config, key), *slash = strrchr(path, '/');
	char parent[PATH_MAX];
	int dir, rc;

	*out = (struct hb_secret){0};
	if (!path[0])
		return 0;
	if (path[0] != '/')
		rc = hb_secret_read(AT_FDCWD, path, s->runtime_uid, SECRET_MAX, out, err);
	else {
		snprintf(parent, sizeof(parent), "%.*s", slash == path ? 1 : (int)(slash - path), path);
		dir = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
		rc = dir < 0 ? hb_fail_errno(err, "secret_missing", "%s", path)
			     : hb_secret_read(dir, slash + 1, s->runtime_uid, SECRET_MAX, out, err);
		hb_close(&dir);
	}
	return rc < 0 ? hb_fail_prefix(err, "%s", key) : 0;
}

/* The one of `hermesctl runtime key` that runtime.mcp_key names, or the file that runtime.mcp_key_file names. */
static int read_mcp_key(const struct hb_supervisor *s, struct hb_secret *out, struct hb_error *err)
{
	const char *name = hb_config_text(s->process->config, "runtime.mcp_key");

	if (!name[0])
		return read_secret(s, "runtime.mcp_key_file", out, err);
	if (hb_config_text(s->process->config, "runtime.mcp_key_file")[0])
		return hb_fail(err, "config_invalid", "set runtime.mcp_key or runtime.mcp_key_file, not both");
	if (hb_named_key_read(name, hb_peer_uid(HB_PEER_PROBE), out, err) < 0)
		return hb_fail_prefix(err, "runtime.mcp_key");
	hb_named_key_used(name);
	return 0;
}

static json_t *question(const struct hb_supervisor *s)
{
	const struct hb_config *c = s->process->config;
	json_t *tools = json_array();
	const char **items;
	size_t count = hb_config_list(c, "runtime.mcp_tools", &items);
	int64_t timeout = s->interval_ms < PROBE_TIMEOUT_MAX_MS ? s->interval_ms : PROBE_TIMEOUT_MAX_MS;

	for (size_t i = 0; i < count; i++)
		json_array_append_new(tools, json_string(items[i]));
	return json_pack("{s:I, s:s, s:I, s:s, s:s, s:o, s:I}", "run", s->run, "health_path",
			 hb_config_text(c, "runtime.health_path"), "health_status",
			 (json_int_t)hb_config_int(c, "runtime.health_status"), "health_body",
			 hb_config_text(c, "runtime.health_body"), "mcp_path", hb_config_text(c, "runtime.mcp_path"),
			 "mcp_tools", tools, "timeout_ms",
			 (json_int_t)(timeout > PROBE_TIMEOUT_MIN_MS ? timeout : PROBE_TIMEOUT_MIN_MS));
}

int hb_supervisor_send_probe(struct hb_supervisor *s, struct hb_error *err)
{
	struct hb_secret key = {0}, token = {0};
	struct hb_buf packet = HB_BUF_INIT;
	json_t *object = NULL;
	char *text = NULL;
	int rc = -1;

	/* The key may be younger than the data of a trial. */
	if ((!s->trial && read_mcp_key(s, &key, err) < 0) ||
	    read_secret(s, "runtime.health_token_file", &token, err) < 0)
		goto out;
	object = question(s);
	text = json_dumps(object, JSON_COMPACT);
	hb_buf_adds(&packet, text);
	hb_buf_addc(&packet, '\0');
	hb_buf_add(&packet, key.text ? key.text : "", key.len);
	hb_buf_addc(&packet, '\0');
	hb_buf_add(&packet, token.text ? token.text : "", token.len);
	hb_buf_addc(&packet, '\0');
	if (send_packet(s->probe_fd, packet.data, packet.len) < 0) {
		hb_fail_errno(err, "worker_failed", "cannot ask the probe");
		goto out;
	}
	s->probe_busy = true;
	rc = 0;
out:
	if (packet.data)
		explicit_bzero(packet.data, packet.cap);
	hb_buf_free(&packet);
	hb_secret_free(&key);
	hb_secret_free(&token);
	json_decref(object);
	free(text);
	return rc;
}

/* The runner stops the payload once its pipe ends; it is waited for, so that nothing outlives us unseen. */
void hb_supervisor_close_workers(struct hb_supervisor *s)
{
	int64_t deadline = hb_monotonic_ms() + s->stop_ms + 5000;
	struct pollfd p = {.fd = s->runner_fd, .events = POLLIN};
	char packet[1024];

	hb_close(&s->probe_fd);
	if (s->probe_pid > 0 && kill(s->probe_pid, SIGKILL) == 0) /* it may be waiting for an answer */
		waitpid(s->probe_pid, NULL, 0);
	if (s->runner_fd >= 0)
		shutdown(s->runner_fd, SHUT_WR);
	while (s->runner_fd >= 0 && hb_monotonic_ms() < deadline && poll(&p, 1, 1000) >= 0)
		if (p.revents && recv(s->runner_fd, packet, sizeof(packet), MSG_DONTWAIT) <= 0)
			break;
	hb_close(&s->runner_fd);
	if (s->runner_pid > 0)
		waitpid(s->runner_pid, NULL, WNOHANG);
}
