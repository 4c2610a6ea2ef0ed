/* The caller worker: confinement, one line after the other, a session for each key (caller.h). */
#include "broker/installer/caller.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/installer/probe_mcp.h"
#include "broker/installer/runner.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/sandbox.h"
#include "onboarding/mcp_call.h"

#define SESSIONS 8
#define LINE_MAX_BYTES (1u << 20) /* a question holds at most one body of the installer's server \
				   */

struct kept {
	char name[HB_MCP_NAME_MAX];
	unsigned char digest[crypto_generichash_BYTES]; /* of the key: another one begins a session
							   of its own */
	struct hb_mcp_session session;
	uint64_t used;
};

struct hb_caller_sessions {
	struct kept slots[SESSIONS];
	uint64_t now;
};

struct hb_caller_sessions *hb_caller_sessions_new(void)
{
	return hb_calloc(1, sizeof(struct hb_caller_sessions));
}

static struct hb_mcp_session *session_for(struct hb_caller_sessions *all, const char *name,
					  const struct hb_secret *key)
{
	unsigned char digest[crypto_generichash_BYTES];
	struct kept *oldest = &all->slots[0];

	crypto_generichash(digest, sizeof(digest), (const unsigned char *)key->text, key->len, NULL,
			   0);
	all->now++;
	for (size_t i = 0; i < SESSIONS; i++) {
		struct kept *k = &all->slots[i];

		if (!strcmp(k->name, name) && !memcmp(k->digest, digest, sizeof(digest))) {
			k->used = all->now;
			return &k->session;
		}
		if (k->used < oldest->used)
			oldest = k;
	}
	*oldest = (struct kept){.used = all->now};
	snprintf(oldest->name, sizeof(oldest->name), "%s", name);
	memcpy(oldest->digest, digest, sizeof(digest));
	return &oldest->session;
}

/* --- what must not leave --- */

static json_t *redact_text(const char *text, size_t len, const char *secret)
{
	struct hb_buf out = HB_BUF_INIT;
	const char *end = text + len, *found;
	json_t *value;

	while (secret[0] && (found = memmem(text, (size_t)(end - text), secret, strlen(secret)))) {
		hb_buf_add(&out, text, (size_t)(found - text));
		hb_buf_adds(&out, "[key]");
		text = found + strlen(secret);
	}
	hb_buf_add(&out, text, (size_t)(end - text));
	value = json_stringn(out.data ? out.data : "", out.len);
	hb_buf_free(&out);
	return value ? value : json_string("");
}

json_t *hb_caller_redact(const json_t *value, const char *secret)
{
	json_t *out, *item, *name;
	const char *key;
	size_t i;

	if (json_is_string(value))
		return redact_text(json_string_value(value), json_string_length(value), secret);
	if (json_is_array(value)) {
		out = json_array();
		json_array_foreach(value, i, item)
			json_array_append_new(out, hb_caller_redact(item, secret));
		return out;
	}
	if (!json_is_object(value))
		return json_incref((json_t *)(uintptr_t)value);
	out = json_object();
	json_object_foreach((json_t *)(uintptr_t)value, key, item) {
		name = redact_text(key, strlen(key), secret);
		json_object_set_new(out, json_string_value(name), hb_caller_redact(item, secret));
		json_decref(name);
	}
	return out;
}

/* --- one call --- */

static json_t *ask(const struct hb_mcp_server *server, const json_t *question, struct hb_error *err)
{
	const char *tool = hb_json_text(question, "tool", "");
	struct hb_mcp_result r = {0};
	json_t *result, *clean, *answer = NULL;

	if (!tool[0]) {
		result = hb_mcp_tools(server, err);
		answer = result ? json_pack("{s:o}", "tools", hb_caller_redact(result, server->key))
				: NULL;
		json_decref(result);
		return answer;
	}
	result = hb_mcp_call(server, tool, json_object_get(question, "arguments"), err);
	if (!result)
		return NULL;
	clean = hb_caller_redact(result, server->key);
	json_decref(result);
	if (hb_mcp_result_read(clean, &r, err) == 0)
		answer = hb_mcp_result_to_json(&r);
	hb_mcp_result_free(&r);
	json_decref(clean);
	return answer;
}

/* The runtime chose parts of the text. */
static json_t *failed(const struct hb_error *err, const char *secret)
{
	json_t *plain = hb_json_error(err), *clean = hb_caller_redact(plain, secret);

	json_decref(plain);
	return clean;
}

json_t *hb_caller_run(const struct hb_caller_options *o, struct hb_caller_sessions *sessions,
		      const json_t *question)
{
	const char *name = hb_json_text(question, "key", "");
	char path[sizeof(HB_MCP_KEYS) + HB_MCP_NAME_MAX + 1], title[HB_MCP_NAME_MAX + 8];
	struct hb_secret key = {0};
	struct hb_error err = {0};
	json_t *answer = NULL;

	snprintf(path, sizeof(path), "%s/%s", HB_MCP_KEYS, name);
	snprintf(title, sizeof(title), "key %s", name);
	if (hb_mcp_key_name_check(name, &err) == 0 &&
	    hb_secret_read(AT_FDCWD, path, o->uid, HB_MCP_KEY_MAX, &key, &err) == 0) {
		const struct hb_mcp_server server = {
			.port = o->port,
			.path = o->mcp_path,
			.key = key.text,
			.key_name = title,
			.session = session_for(sessions, name, &key),
			.deadline_ms = hb_monotonic_ms() +
				       hb_json_int(question, "timeout_ms", HB_MCP_TIMEOUT_MS),
			.reply_max = (size_t)hb_json_int(question, "reply_max",
							 HB_MCP_REPLY_BYTES)};

		answer = ask(&server, question, &err);
	}
	if (!answer)
		answer = failed(&err, key.text ? key.text : "");
	hb_secret_free(&key);
	json_object_set(answer, "id", json_object_get(question, "id"));
	return answer;
}

/* --- the process --- */

static int confine(const struct hb_caller_options *o, struct hb_error *err)
{
	const uint16_t ports[] = {o->port, 0};
	const struct hb_sandbox_path paths[] = {{HB_MCP_KEYS, HB_FS_READ | HB_FS_OPTIONAL}};
	const struct hb_sandbox box = {.name = "caller",
				       .syscalls = HB_SYS_BASE | HB_SYS_INET | HB_SYS_FILES,
				       .paths = paths,
				       .path_count = 1,
				       .tcp_connect = ports,
				       .max_files = 16};

	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return hb_fail_errno(err, "drop_failed",
					     "the caller cannot empty its bounding set");
	if (setgroups(0, NULL) < 0 || setresgid(o->gid, o->gid, o->gid) < 0 ||
	    setresuid(o->uid, o->uid, o->uid) < 0 || setuid(0) == 0)
		return hb_fail_errno(err, "drop_failed", "the caller cannot become uid %u",
				     (unsigned)o->uid);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* after the change of ids, which forgets it */
	return hb_sandbox_apply(&box, o->degraded_ok, NULL, err);
}

static int write_line(int fd, json_t *answer)
{
	char *text = json_dumps(answer, JSON_COMPACT);
	struct hb_buf line = HB_BUF_INIT;
	size_t at = 0;
	ssize_t n = text ? 0 : -1;

	if (text) {
		hb_buf_adds(&line, text);
		hb_buf_addc(&line, '\n');
	}
	free(text);
	while (n >= 0 && at < line.len) {
		n = send(fd, line.data + at, line.len - at, MSG_NOSIGNAL);
		if (n > 0)
			at += (size_t)n;
		else if (n < 0 && errno == EINTR)
			n = 0;
	}
	hb_buf_free(&line);
	return n < 0 ? -1 : 0;
}

static void __attribute__((noreturn)) caller_main(const struct hb_caller_options *o, int fd)
{
	struct hb_caller_sessions *sessions = hb_caller_sessions_new();
	char *line = NULL;
	size_t size = 0;
	struct hb_error err;
	FILE *in;

	hb_worker_isolate(fd, fd);
	prctl(PR_SET_NAME, "hermes-caller", 0, 0, 0);
	if (confine(o, &err) < 0) {
		dprintf(2, "hermes-caller: %s\n", err.message);
		_exit(71);
	}
	in = fdopen(fd, "r");
	for (ssize_t n; in && (n = getline(&line, &size, in)) > 0;) {
		json_t *question = (size_t)n < LINE_MAX_BYTES
					   ? hb_json_parse(line, (size_t)n - 1, NULL)
					   : NULL,
		       *answer;

		if (!question)
			break;
		answer = hb_caller_run(o, sessions, question);
		json_decref(question);
		if (write_line(fd, answer) < 0)
			break;
		json_decref(answer);
	}
	_exit(0);
}

int hb_caller_fork(const struct hb_caller_options *options, int *fd, pid_t *pid,
		   struct hb_error *err)
{
	int pair[2];
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return hb_fail_errno(err, "worker_failed", "cannot make the caller's pipe");
	child = fork();
	if (child == 0) {
		close(pair[0]);
		caller_main(options, pair[1]);
	}
	close(pair[1]);
	if (child < 0) {
		close(pair[0]);
		return hb_fail_errno(err, "worker_failed", "cannot fork the caller");
	}
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	*fd = pair[0];
	*pid = child;
	return 0;
}
