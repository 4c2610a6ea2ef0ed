/*
 * hermesctl acceptance: does the runtime's page load without an error on the console? Asked of a
 * headless Chromium over its debugging pipe (Chrome DevTools Protocol: Target, Page, Runtime, Log,
 * Network, Fetch), which runs as nobody, in its own sandbox, with a profile that is removed
 * afterwards. Where the health check sends a token, requests to the runtime get it as well, one by
 * one: it is in no argument, and no other host is ever sent it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "admin/ctl/acceptance.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "policy/text.h"

#define NOBODY 65534
#define LOAD_MS 45000 /* until the page says that it is loaded */
#define QUIET_MS 2000 /* for what it does after that */
#define MESSAGE_MAX (16u << 20)
#define SHOWN_MAX 300
#define TOKEN_MAX 4096

struct browser {
	const char *session;      /* of the page, once there is one */
	char origin[48];          /* "http://127.0.0.1:PORT/" */
	struct hb_secret token;   /* len 0: none */
	pid_t pid;
	int to, from; /* messages end with a NUL */
	struct hb_buf in;
	char profile[64];
	int next_id;
};

struct page {
	bool loaded;
	int status; /* HTTP status of the document */
	int errors, elsewhere; /* elsewhere: what other hosts did not give */
	char first[SHOWN_MAX]; /* of the errors */
};

static const char *
find_browser(const struct ctl_acceptance *a)
{
	static const char *const places[] = {"/usr/bin/chromium", "/usr/bin/chromium-browser",
					     "/usr/bin/google-chrome"};

	if (a->browser)
		return a->browser;
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
		if (access(places[i], X_OK) == 0)
			return places[i];
	return NULL;
}

static _Noreturn void
become(const char *program, const char *profile, int in, int out)
{
	char home[80], data[96];
	int a = fcntl(in, F_DUPFD, 10), b = fcntl(out, F_DUPFD, 10), null = open("/dev/null", O_RDWR);

	snprintf(home, sizeof home, "HOME=%s", profile);
	snprintf(data, sizeof data, "--user-data-dir=%s/profile", profile);
	setpgid(0, 0);
	if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) < 0 || chdir("/") < 0)
		_exit(126);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The browser reads descriptor 3 and writes descriptor 4. */
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
	    dup2(a, 3) < 0 || dup2(b, 4) < 0)
		_exit(126);
	close_range(5, ~0U, 0);
	execle(program, program, "--headless", "--remote-debugging-pipe", "--disable-gpu",
	       "--disable-quic", "--no-first-run", "--disable-background-networking",
	       "--disable-component-update", "--disable-sync", "--disable-extensions",
	       "--no-proxy-server", data, "about:blank", (char *)NULL,
	       (char *[]){home, (char *)"PATH=/usr/bin:/bin", (char *)"LANG=C.UTF-8", NULL});
	_exit(127);
}

static int
start(struct browser *b, const char *program, struct hb_error *err)
{
	int to[2] = {-1, -1}, from[2] = {-1, -1};

	snprintf(b->profile, sizeof b->profile, "/tmp/hermes-acceptance-XXXXXX");
	if (!mkdtemp(b->profile))
		return hb_fail_errno(err, "no_browser", "no directory for the browser");
	if (chown(b->profile, NOBODY, NOBODY) < 0 || pipe2(to, O_CLOEXEC) < 0 ||
	    pipe2(from, O_CLOEXEC) < 0)
		return hb_fail_errno(err, "no_browser", "the browser can't be started");
	b->pid = fork();
	if (b->pid == 0)
		become(program, b->profile, to[0], from[1]);
	hb_close(&to[0]);
	hb_close(&from[1]);
	b->to = to[1];
	b->from = from[0];
	return b->pid > 0 ? 0 : hb_fail_errno(err, "no_browser", "the browser can't be forked");
}

static void
stop(struct browser *b)
{
	struct hb_error ignored;
	int tmp;

	hb_close(&b->to);
	hb_close(&b->from);
	if (b->pid > 0) {
		kill(-b->pid, SIGKILL);
		kill(b->pid, SIGKILL);
		while (waitpid(b->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (b->profile[0] && tmp >= 0)
		hb_fs_remove_tree(tmp, b->profile + sizeof "/tmp/" - 1, &ignored);
	hb_close(&tmp);
	hb_buf_free(&b->in);
	if (b->token.len)
		hb_secret_free(&b->token);
}

static int
say(struct browser *b, const char *session, const char *method, json_t *params)
{
	json_t *message = json_pack("{s:i, s:s, s:o, s:s*}", "id", ++b->next_id, "method", method,
				    "params", params ? params : json_object(), "sessionId", session);
	char *text = json_dumps(message, JSON_COMPACT);
	size_t len = text ? strlen(text) + 1 : 0;
	bool sent = len > 0 && write(b->to, text, len) == (ssize_t)len;

	/* It may have held the token. */
	if (text)
		explicit_bzero(text, len);
	free(text);
	json_decref(message);
	return sent ? b->next_id : -1;
}

/* The next message; NULL when none came in time (*quiet) or the browser ended. */
static json_t *
hear(struct browser *b, int64_t deadline, bool *quiet)
{
	char chunk[65536];
	ssize_t n;

	*quiet = false;
	for (;;) {
		char *end = b->in.len ? memchr(b->in.data, 0, b->in.len) : NULL;
		struct pollfd p = {.fd = b->from, .events = POLLIN};
		int64_t left = deadline - hb_monotonic_ms();

		if (end) {
			size_t len = (size_t)(end - b->in.data);
			json_t *message = hb_json_parse_foreign(b->in.data, len, NULL);
			size_t rest = b->in.len - len - 1;
			struct hb_buf other = HB_BUF_INIT;

			hb_buf_add(&other, end + 1, rest);
			hb_buf_free(&b->in);
			b->in = other;
			return message ? message : json_object();
		}
		*quiet = left <= 0 || poll(&p, 1, (int)left) == 0;
		if (*quiet)
			return NULL;
		n = read(b->from, chunk, sizeof chunk);
		if (n <= 0 || b->in.len + (size_t)n > MESSAGE_MAX)
			return NULL;
		hb_buf_add(&b->in, chunk, (size_t)n);
	}
}

/* The answer's `member`, copied; false: none came. */
static bool
answer_to(struct browser *b, int id, const char *member, char *out, size_t size)
{
	int64_t deadline = hb_monotonic_ms() + LOAD_MS;
	bool quiet, found = false;
	json_t *m;

	while (!found && id > 0 && (m = hear(b, deadline, &quiet))) {
		if (hb_json_int(m, "id", 0) == id) {
			snprintf(out, size, "%s",
				 hb_json_text(json_object_get(m, "result"), member, ""));
			json_decref(m);
			return *out != '\0';
		}
		json_decref(m);
	}
	return false;
}

static void
note_error(struct page *p, const char *text)
{
	if (p->errors++ == 0)
		snprintf(p->first, sizeof p->first, "%s", text);
}

/* What a console call was given first: a text, or what an object looks like. */
static const char *
first_argument(const json_t *params)
{
	const json_t *arg = json_array_get(json_object_get(params, "args"), 0);
	const json_t *value = json_object_get(arg, "value");

	return json_is_string(value) ? json_string_value(value)
				     : hb_json_text(arg, "description", "an error");
}

/* An error of the log: what another host doesn't give to this one says nothing about the page. */
static void
take_log(const struct browser *b, struct page *p, const json_t *entry)
{
	const char *url = hb_json_text(entry, "url", "");

	if (strcmp(hb_json_text(entry, "level", ""), "error") != 0)
		return;
	if (strcmp(hb_json_text(entry, "source", ""), "network") == 0 && *url &&
	    strncmp(url, b->origin, strlen(b->origin)) != 0)
		p->elsewhere++;
	else
		note_error(p, hb_json_text(entry, "text", "an error"));
}

static void
take(const struct browser *b, struct page *p, const json_t *m)
{
	const char *method = hb_json_text(m, "method", "");
	const json_t *params = json_object_get(m, "params"), *inner;
	const char *type = hb_json_text(params, "type", "");

	if (strcmp(method, "Page.loadEventFired") == 0) {
		p->loaded = true;
	} else if (strcmp(method, "Runtime.exceptionThrown") == 0) {
		inner = json_object_get(params, "exceptionDetails");
		note_error(p, hb_json_text(json_object_get(inner, "exception"), "description",
					   hb_json_text(inner, "text", "an exception")));
	} else if (strcmp(method, "Runtime.consoleAPICalled") == 0) {
		if (strcmp(type, "error") == 0 || strcmp(type, "assert") == 0)
			note_error(p, first_argument(params));
	} else if (strcmp(method, "Log.entryAdded") == 0) {
		take_log(b, p, json_object_get(params, "entry"));
	} else if (strcmp(method, "Network.responseReceived") == 0 && strcmp(type, "Document") == 0) {
		p->status = (int)hb_json_int(json_object_get(params, "response"), "status", 0);
	}
}

/* Each request waits for us: to the runtime with the token, to others as it is. */
static void
let_go(struct browser *b, const json_t *params)
{
	const json_t *request = json_object_get(params, "request"), *value;
	json_t *answer = json_pack("{s:s}", "requestId", hb_json_text(params, "requestId", "")),
	       *headers = json_array();
	const char *name;

	if (strncmp(hb_json_text(request, "url", ""), b->origin, strlen(b->origin)) == 0) {
		json_object_foreach((json_t *)json_object_get(request, "headers"), name, value)
			json_array_append_new(headers, json_pack("{s:s, s:O}", "name", name, "value",
								 value));
		json_array_append_new(headers, json_pack("{s:s, s:o}", "name", "Authorization",
							 "value", json_sprintf("Bearer %s",
									       b->token.text)));
		json_object_set(answer, "headers", headers);
	}
	json_decref(headers);
	say(b, b->session, "Fetch.continueRequest", answer);
}

/* As the prober is given it: 0600, the runtime's or root's. A relative path is below the state
 * directory. */
static int
read_token(struct browser *b, const struct ctl_acceptance *a, struct hb_error *err)
{
	const char *path = hb_config_text(a->c->config, "runtime.health_token_file"),
		   *slash = strrchr(path, '/');
	char *parent;
	int dir, rc;

	if (!*path)
		return 0;
	if (*path != '/')
		return hb_secret_read(AT_FDCWD, path, hb_peer_uid(HB_PEER_RUNTIME), TOKEN_MAX,
				      &b->token, err);
	parent = hb_asprintf("%.*s", slash == path ? 1 : (int)(slash - path), path);
	dir = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	rc = dir < 0 ? hb_fail_errno(err, "secret_missing", "%s", path)
		     : hb_secret_read(dir, slash + 1, hb_peer_uid(HB_PEER_RUNTIME), TOKEN_MAX,
				      &b->token, err);
	hb_close(&dir);
	free(parent);
	return rc;
}

static int
visit(struct browser *b, const char *url, struct page *p, struct hb_error *err)
{
	static const char *const domains[] = {"Runtime.enable", "Log.enable", "Page.enable",
					      "Network.enable"};
	char target[128] = "", session[128] = "";
	int64_t deadline;
	bool quiet = false;
	json_t *m;

	if (!answer_to(b, say(b, NULL, "Target.createTarget", json_pack("{s:s}", "url", "about:blank")),
		       "targetId", target, sizeof target) ||
	    !answer_to(b,
		       say(b, NULL, "Target.attachToTarget",
			   json_pack("{s:s, s:b}", "targetId", target, "flatten", 1)),
		       "sessionId", session, sizeof session))
		return hb_fail(err, "no_browser",
			       "the browser ends at once or does not answer: as nobody it needs user "
			       "namespaces for its own sandbox");
	b->session = session;
	for (size_t i = 0; i < sizeof domains / sizeof domains[0]; i++)
		say(b, session, domains[i], NULL);
	if (b->token.len)
		say(b, session, "Fetch.enable", NULL);
	say(b, session, "Page.navigate", json_pack("{s:s}", "url", url));
	deadline = hb_monotonic_ms() + LOAD_MS;
	while ((m = hear(b, deadline, &quiet))) {
		bool was = p->loaded;

		if (strcmp(hb_json_text(m, "method", ""), "Fetch.requestPaused") == 0)
			let_go(b, json_object_get(m, "params"));
		else
			take(b, p, m);
		json_decref(m);
		if (p->loaded && !was)
			deadline = hb_monotonic_ms() + QUIET_MS;
	}
	if (!quiet)
		return hb_fail(err, "no_browser", "the browser ended while it showed %s", url);
	return 0;
}

static void
judge(struct ctl_acceptance *a, const char *url, const struct page *p)
{
	char shown[SHOWN_MAX];

	hb_show(p->first, shown, sizeof shown);
	if (p->status == 401)
		ctl_accept(a, "pages", CTL_NOT_RUN, "%s asks for a sign-in (401): open it by hand",
			   url);
	else if (!p->loaded)
		ctl_accept(a, "pages", CTL_FAIL, "%s is not loaded after %d s", url,
			   LOAD_MS / 1000);
	else if (p->status != 200)
		ctl_accept(a, "pages", CTL_FAIL, "%s answers %d", url, p->status);
	else if (p->errors)
		ctl_accept(a, "pages", CTL_FAIL, "%s: %d errors on the console, the first: %s", url,
			   p->errors, shown);
	else if (p->elsewhere)
		ctl_accept(a, "pages", CTL_PASS,
			   "%s loads without an error of its own; %d things from other hosts could "
			   "not be loaded", url, p->elsewhere);
	else
		ctl_accept(a, "pages", CTL_PASS, "%s loads without an error on the console", url);
}

void
ctl_accept_pages(struct ctl_acceptance *a)
{
	const char *program = find_browser(a);
	struct browser b = {.to = -1, .from = -1, .in = HB_BUF_INIT};
	struct page page = {0};
	struct hb_error err = {0};
	const char *url = b.origin;

	snprintf(b.origin, sizeof b.origin, "http://127.0.0.1:%lld/",
		 hb_config_int(a->c->config, "runtime.port"));
	if (!hb_json_bool(json_object_get(a->runtime, "health"), "ok", false)) {
		ctl_accept(a, "pages", CTL_NOT_RUN, "the runtime is not healthy");
		return;
	}
	if (!program) {
		ctl_accept(a, "pages", CTL_NOT_RUN,
			   "Chromium is not installed: apt-get install chromium");
		return;
	}
	signal(SIGPIPE, SIG_IGN);
	if (read_token(&b, a, &err) < 0 || start(&b, program, &err) < 0 || visit(&b, url, &page, &err) < 0)
		ctl_accept(a, "pages", CTL_NOT_RUN, "%s", err.message);
	else
		judge(a, url, &page);
	stop(&b);
}
