/*
 * The supervisor without the rest of the installer: commands as JSON lines on standard input, answers as JSON lines on
 * standard output. The working directory is the state directory; arguments are configuration overrides, the first one
 * the host id.
 *
 *   {"cmd":"start","spec":{..}}  {"cmd":"stop"}  {"cmd":"probe"}  {"cmd":"status"}  {"cmd":"quit"}
 *   -> {"done":"start","ok":bool,"code":..,"error":..}, {"status":{..}}, {"state":..} after each change
 *
 * It does not confine itself: that the workers need nothing from it afterwards is tested through the installer.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/installer/supervise.h"
#include "common/json.h"
#include "common/log.h"

static struct hb_process process;
static struct hb_supervisor *supervisor;
static char input[262144];
static size_t filled;

static void print(json_t *line)
{
	char *text = json_dumps(line, JSON_COMPACT);

	puts(text);
	fflush(stdout);
	free(text);
	json_decref(line);
}

static void done(int ok, const struct hb_error *err, void *arg)
{
	print(json_pack("{s:s, s:b, s:s, s:s}", "done", (const char *)arg, "ok", ok, "code", ok ? "" : err->code, "error",
			ok ? "" : err->message));
}

static void changed(void *arg)
{
	json_t *status = hb_supervisor_status(supervisor);

	print(json_pack("{s:O}", "state", json_object_get(json_object_get(status, "process"), "state")));
	json_decref(status);
}

static void command(const char *text, size_t len)
{
	struct hb_run_spec spec;
	struct hb_error err;
	json_t *line = hb_json_parse(text, len, &err);
	const char *cmd = hb_json_text(line, "cmd", "");

	if (!strcmp(cmd, "start")) {
		if (hb_run_spec_from_json(json_object_get(line, "spec"), &spec, &err) < 0) {
			done(0, &err, (void *)(uintptr_t) "start");
		} else {
			hb_supervisor_start(supervisor, &spec, done, (void *)(uintptr_t) "start");
			hb_run_spec_free(&spec);
		}
	} else if (!strcmp(cmd, "stop"))
		hb_supervisor_stop(supervisor, done, (void *)(uintptr_t) "stop");
	else if (!strcmp(cmd, "probe"))
		hb_supervisor_probe(supervisor, done, (void *)(uintptr_t) "probe");
	else if (!strcmp(cmd, "status"))
		print(json_pack("{s:o}", "status", hb_supervisor_status(supervisor)));
	else if (!strcmp(cmd, "quit"))
		event_base_loopbreak(process.base);
	json_decref(line);
}

static void on_input(evutil_socket_t fd, short what, void *arg)
{
	ssize_t n = read(fd, input + filled, sizeof(input) - filled);
	char *end;

	if (n <= 0) {
		event_base_loopbreak(process.base);
		return;
	}
	filled += (size_t)n;
	while ((end = memchr(input, '\n', filled))) {
		size_t len = (size_t)(end - input);

		command(input, len);
		memmove(input, end + 1, filled - len - 1);
		filled -= len + 1;
	}
}

int main(int argc, char **argv)
{
	struct hb_error err;
	struct event *reader;

	if (argc < 2)
		return 64;
	hb_log_open("supervise-driver", HB_LOG_DEBUG);
	snprintf(process.host_id, sizeof(process.host_id), "%s", argv[1]);
	process.base = event_base_new();
	if (hb_config_defaults((const char *const *)argv + 2, (size_t)argc - 2, &process.config, &err) < 0)
		goto fail;
	hb_peers_init((uid_t)hb_config_int(process.config, "identities.base_uid"));
	if (hb_supervisor_new(&process, &supervisor, &err) < 0 || hb_supervisor_run(supervisor, changed, NULL, &err) < 0)
		goto fail;
	reader = event_new(process.base, 0, EV_READ | EV_PERSIST, on_input, NULL);
	event_add(reader, NULL);
	event_base_dispatch(process.base);
	event_free(reader);
	hb_supervisor_free(supervisor);
	event_base_free(process.base);
	hb_config_free(process.config);
	return process.exit_code;
fail:
	fprintf(stderr, "%s: %s\n", err.code, err.message);
	return 71;
}
