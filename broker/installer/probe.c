/* The probe worker: confinement, the packets, and the three questions in their order. */
#include "broker/installer/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/installer/probe_http.h"
#include "broker/installer/probe_mcp.h"
#include "broker/installer/runner.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/sandbox.h"

#define TIMEOUT_MS 10000

/*
 * runtime.health_body is a piece of the expected answer. Written as members of a JSON object ("status":"ok") it is
 * compared as JSON, so that blanks don't matter and a page that happens to quote it doesn't count.
 */
static bool body_matches(const struct hb_probe_reply *reply, const char *wanted)
{
	struct hb_buf wrapped = HB_BUF_INIT;
	json_t *pattern, *answer, *value;
	const char *key;
	bool ok = true;

	if (!wanted[0])
		return true;
	hb_buf_printf(&wrapped, "{%s}", wanted);
	pattern = hb_json_parse_foreign(wrapped.data, wrapped.len, NULL);
	hb_buf_free(&wrapped);
	if (!pattern)
		return reply->body.data && strstr(reply->body.data, wanted);
	answer = strcasestr(reply->type, "json")
			 ? hb_json_parse_foreign(reply->body.data ? reply->body.data : "", reply->body.len, NULL)
			 : NULL;
	ok = json_is_object(answer);
	json_object_foreach(pattern, key, value)
		ok = ok && json_equal(value, json_object_get(answer, key));
	json_decref(pattern);
	json_decref(answer);
	return ok;
}

static int check_health(uint16_t port, const json_t *q, const char *token, int64_t deadline, struct hb_error *err)
{
	struct hb_probe_call call = {.port = port, .method = "GET", .path = hb_json_text(q, "health_path", "/"),
				     .bearer = token, .deadline_ms = deadline};
	int wanted = (int)hb_json_int(q, "health_status", 200), rc = -1;
	struct hb_probe_reply reply;

	if (hb_probe_http(&call, &reply, err) < 0)
		goto out;
	if (reply.status != wanted)
		hb_fail(err, "not_ready", "GET %s answers %d instead of %d", call.path, reply.status, wanted);
	else if (!body_matches(&reply, hb_json_text(q, "health_body", "")))
		hb_fail(err, "not_ready", "GET %s answers %d, but not with %s", call.path, reply.status,
			hb_json_text(q, "health_body", ""));
	else
		rc = 0;
out:
	hb_probe_reply_free(&reply);
	return rc;
}

static bool has_name(const json_t *names, const char *name)
{
	const json_t *item;
	size_t i;

	json_array_foreach(names, i, item)
		if (!strcmp(json_string_value(item), name))
			return true;
	return false;
}

static void add_names(struct hb_buf *out, const char *title, const json_t *names, const json_t *others)
{
	const json_t *item;
	bool first = true;
	size_t i;

	json_array_foreach(names, i, item) {
		char *text;

		if (has_name(others, json_string_value(item)))
			continue;
		text = json_dumps(item, JSON_ENCODE_ANY | JSON_ENSURE_ASCII); /* the server chose it: escaped */
		hb_buf_printf(out, "%s%s%.80s", first ? (out->len ? "; " : "") : ", ", first ? title : "",
			      text ? text : "?");
		first = false;
		free(text);
	}
}

static int compare_tools(const json_t *wanted, const json_t *found, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	int rc = 0;

	add_names(&text, "missing: ", wanted, found);
	add_names(&text, "not expected: ", found, wanted);
	if (text.len)
		rc = hb_fail(err, "tools_differ", "the runtime's MCP tools differ from runtime.mcp_tools; %.300s", text.data);
	hb_buf_free(&text);
	return rc;
}

static void set_check(json_t *checks, const char *name, int rc, const struct hb_error *err)
{
	json_object_set_new(checks, name, json_string(rc == 0 ? "ok" : err->message));
}

json_t *hb_probe_run(uint16_t port, struct hb_mcp_session *session, const json_t *question, const char *key,
		     const char *token)
{
	json_t *checks = json_pack("{s:s, s:s, s:s}", "http", "not checked", "mcp_challenge", "not checked", "mcp_tools",
				   key[0] ? "not checked" : "not configured");
	int64_t deadline = hb_monotonic_ms() + hb_json_int(question, "timeout_ms", TIMEOUT_MS);
	const char *path = hb_json_text(question, "mcp_path", "/mcp");
	char address[HB_MCP_ADDRESS_MAX + 1] = "";
	struct hb_error err = {0};
	json_t *tools = NULL;
	int rc = check_health(port, question, token, deadline, &err);

	set_check(checks, "http", rc, &err);
	if (rc < 0)
		snprintf(err.code, sizeof(err.code), "not_ready");
	if (rc == 0) {
		rc = hb_mcp_challenge(port, path, deadline, address, &err);
		set_check(checks, "mcp_challenge", rc, &err);
		if (rc < 0)
			snprintf(err.code, sizeof(err.code), "mcp_failed");
	}
	if (rc == 0 && key[0]) {
		const struct hb_mcp_server server = {.port = port, .path = path, .key = key,
						     .key_name = "key in runtime.mcp_key_file", .session = session,
						     .deadline_ms = deadline};

		tools = hb_mcp_tools(&server, &err);
		if (!tools) {
			snprintf(err.code, sizeof(err.code), "mcp_failed");
			rc = -1;
		} else {
			rc = compare_tools(json_object_get(question, "mcp_tools"), tools, &err);
		}
		set_check(checks, "mcp_tools", rc, &err);
	}
	return json_pack("{s:I, s:o, s:o, s:s, s:s, s:s}", "run", (json_int_t)hb_json_int(question, "run", 0), "checks",
			 checks, "tools", tools ? tools : json_null(), "address", address, "code", rc == 0 ? "" : err.code, "error",
			 rc == 0 ? "" : err.message);
}

/* JSON, NUL, key, NUL, token, NUL. */
static int split(char *packet, size_t len, const char **key, const char **token)
{
	char *end = memchr(packet, '\0', len), *second;

	if (!end || packet[len - 1])
		return -1;
	*key = end + 1;
	second = *key < packet + len ? memchr(*key, '\0', (size_t)(packet + len - *key)) : NULL;
	if (!second || second + 1 >= packet + len)
		return -1;
	*token = second + 1;
	return 0;
}

static int confine(const struct hb_probe_options *o, struct hb_error *err)
{
	const uint16_t ports[] = {o->port, 0};
	const struct hb_sandbox box = {.name = "probe", .syscalls = HB_SYS_BASE | HB_SYS_INET, .tcp_connect = ports,
				       .max_files = 16};

	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return hb_fail_errno(err, "drop_failed", "the probe cannot empty its bounding set");
	if (setgroups(0, NULL) < 0 || setresgid(o->gid, o->gid, o->gid) < 0 || setresuid(o->uid, o->uid, o->uid) < 0 ||
	    setuid(0) == 0)
		return hb_fail_errno(err, "drop_failed", "the probe cannot become uid %u", (unsigned)o->uid);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* after the change of ids, which forgets it */
	return hb_sandbox_apply(&box, o->degraded_ok, NULL, err);
}

static void __attribute__((noreturn)) probe_main(const struct hb_probe_options *o, int fd)
{
	static char packet[HB_PACKET_MAX];
	struct hb_mcp_session session = {0};
	struct hb_error err;
	ssize_t n;

	hb_worker_isolate(fd, fd);
	prctl(PR_SET_NAME, "hermes-probe", 0, 0, 0);
	if (confine(o, &err) < 0) {
		dprintf(2, "hermes-probe: %s\n", err.message);
		_exit(71);
	}
	while ((n = recv(fd, packet, sizeof(packet), 0)) > 0 || (n < 0 && errno == EINTR)) {
		const char *key, *token;
		json_t *question, *answer;
		char *text;

		if (n <= 0 || split(packet, (size_t)n, &key, &token) < 0)
			continue;
		question = hb_json_parse(packet, strlen(packet), NULL);
		answer = hb_probe_run(o->port, &session, question, key, token);
		explicit_bzero(packet, (size_t)n);
		text = json_dumps(answer, JSON_COMPACT);
		if (!text || send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
			_exit(0);
		free(text);
		json_decref(question);
		json_decref(answer);
	}
	_exit(0);
}

int hb_probe_fork(const struct hb_probe_options *options, int *fd, pid_t *pid, struct hb_error *err)
{
	int pair[2];
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return hb_fail_errno(err, "worker_failed", "cannot make the probe's pipe");
	child = fork();
	if (child == 0) {
		close(pair[0]);
		probe_main(options, pair[1]);
	}
	close(pair[1]);
	if (child < 0) {
		close(pair[0]);
		return hb_fail_errno(err, "worker_failed", "cannot fork the probe");
	}
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	*fd = pair[0];
	*pid = child;
	return 0;
}
