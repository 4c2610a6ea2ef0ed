/*
 * What no command may do, whoever approves: delete / recursively, make file systems, write to block
 * devices, shut the machine down, fork without end, open / to everyone, reach for the container
 * engine's socket.
 *
 * Each simple command is looked at with its prefixes taken off (sudo, env, timeout ...), and so is
 * each text that would be run as a command in turn (sh -c, eval, $(...)). Nothing is expanded, so
 * there are ways around this; it is a net under the person who approves, not the rule that keeps a
 * host safe.
 */
#include "policy/floor_command.h"

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "policy/text.h"
#include "policy/words.h"

#define NESTING_MAX 8
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int check_text(const struct hb_floor_look *l, const char *text);

int hb_floor_refuse(const struct hb_floor_look *l, const char *rule, const char *what)
{
	return hb_fail(l->err, rule, "the floor refuses this command whoever approves it: %s",
		       what);
}

bool hb_floor_one_of(const char *const *names, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(names[i], name) == 0)
			return true;
	}
	return false;
}

const char *hb_floor_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* --- commands that run other commands --- */

static const struct {
	const char *name;
	const char *with_argument; /* option letters that take the next word */
	size_t positionals;        /* words of its own before the command */
} prefixes[] = {
	{"sudo", "ugpCrtTUDRh", 0}, {"doas", "uC", 0},
	{"env", "uC", 0},           {"nohup", "", 0},
	{"nice", "n", 0},           {"ionice", "cnpPu", 0},
	{"time", "fo", 0},          {"timeout", "sk", 1},
	{"stdbuf", "ioe", 0},       {"setsid", "", 0},
	{"chroot", "", 1},          {"chrt", "TPD", 1},
	{"taskset", "", 1},         {"exec", "a", 0},
	{"command", "", 0},         {"builtin", "", 0},
	{"xargs", "adEILnPs", 0},   {"busybox", "", 0},
	{"toybox", "", 0},          {"strace", "abeEIoOpPsSuUX", 0},
	{"unshare", "SGR", 0},      {"nsenter", "tSG", 0},
	{"flock", "wE", 1},         {"systemd-run", "pEtu", 0},
	{"systemd-inhibit", "", 0}, {"watch", "n", 0},
	{"runuser", "ugG", 0},      {"setpriv", "", 0},
	{"cgexec", "g", 0},         {"parallel", "jI", 0},
};

/* These take a text to run behind an option that holds a 'c'. */
static const char *const text_runners[] = {"sh",      "bash",   "dash", "ash",     "zsh",
					   "ksh",     "mksh",   "fish", "busybox", "su",
					   "runuser", "script", "flock"};

static int check_prefixed(const struct hb_floor_look *l, const char *const *args, size_t n,
			  const char *with_argument, size_t positionals)
{
	size_t i = 0;

	while (i < n && args[i][0] == '-') {
		const char *option = args[i++];
		size_t len = strlen(option);

		if (strcmp(option, "--") == 0)
			break;
		if (option[1] == '-') {
			/* A long option may or may not take the next word: read it both ways. */
			if (!strchr(option, '=') && i + 1 < n &&
			    hb_floor_words(l, args + i + 1, n - i - 1) < 0)
				return -1;
		} else if (len == 2 && strchr(with_argument, option[1]) && i < n) {
			i++;
		}
	}
	i += positionals;
	return i < n ? hb_floor_words(l, args + i, n - i) : 0;
}

static int check_joined(const struct hb_floor_look *l, const char *const *args, size_t n)
{
	struct hb_buf text = HB_BUF_INIT;
	int rc;

	hb_buf_adds(&text, "");
	for (size_t i = 0; i < n; i++)
		hb_buf_printf(&text, "%s%s", i > 0 ? " " : "", args[i]);
	rc = check_text(l, text.data);
	hb_buf_free(&text);
	return rc;
}

/* sh -c TEXT, su USER -c TEXT, env -S TEXT, eval WORDS, ssh HOST WORDS */
static int check_text_runner(const struct hb_floor_look *l, const char *name,
			     const char *const *args, size_t n)
{
	bool shell = hb_floor_one_of(text_runners, COUNT(text_runners), name);

	if (strcmp(name, "eval") == 0)
		return check_joined(l, args, n);
	if (strcmp(name, "ssh") == 0 && n > 1)
		return check_joined(&(struct hb_floor_look){NULL, l->depth, l->err}, args + 1,
				    n - 1);
	for (size_t i = 0; i + 1 < n; i++) {
		bool text = (shell && args[i][0] == '-' && args[i][1] != '-' &&
			     strchr(args[i], 'c')) ||
			    (shell && strcmp(args[i], "--command") == 0) ||
			    (strcmp(name, "env") == 0 && strcmp(args[i], "-S") == 0);

		/* Options may still stand between "-c" and its text. */
		for (size_t j = i + 1; text && j < n; j++) {
			if (args[j][0] != '-')
				return check_text(l, args[j]);
		}
	}
	return 0;
}

static bool is_assignment(const char *word)
{
	size_t name = strspn(word, HB_SET_ALNUM "_");

	return name > 0 && !strchr(HB_SET_DIGIT, word[0]) &&
	       (word[name] == '=' || strncmp(word + name, "+=", 2) == 0);
}

int hb_floor_words(const struct hb_floor_look *l, const char *const *w, size_t n)
{
	static const char *const reserved[] = {"!",    "{",        "}",     "if",    "then",
					       "elif", "else",     "do",    "while", "until",
					       "time", "function", "coproc"};
	struct hb_floor_look deeper = {l->workdir, l->depth + 1, l->err};

	while (n > 0 && (hb_floor_one_of(reserved, COUNT(reserved), w[0]) || is_assignment(w[0]))) {
		w++;
		n--;
	}
	if (n == 0)
		return 0;
	if (l->depth > NESTING_MAX)
		return hb_floor_refuse(l, "floor_nesting",
				       "commands are nested too deeply to be read");

	const char *name = hb_floor_base_name(w[0]);
	if (hb_floor_rule(&deeper, name, w + 1, n - 1) < 0)
		return -1;
	if (check_text_runner(&deeper, name, w + 1, n - 1) < 0)
		return -1;
	for (size_t i = 0; i < COUNT(prefixes); i++) {
		if (strcmp(prefixes[i].name, name) == 0)
			return check_prefixed(&deeper, w + 1, n - 1, prefixes[i].with_argument,
					      prefixes[i].positionals);
	}
	return 0;
}

/* --- whole texts --- */

static int check_mentions(const struct hb_floor_look *l, const char *text)
{
	static const char *const sockets[] = {"docker.sock", "containerd.sock", "podman.sock"};

	for (size_t i = 0; i < COUNT(sockets); i++) {
		if (strstr(text, sockets[i]))
			return hb_floor_refuse(l, "floor_docker_socket",
					       "it mentions the socket of the container engine");
	}
	return 0;
}

/* name() { name | name & }: the function's own name on both sides of | or & */
static bool is_fork_bomb(const struct hb_words *w)
{
	for (size_t i = 0; i + 2 < w->count; i++) {
		const struct hb_token *t = &w->tokens[i];

		if (t->op || (!(hb_token_is(t + 1, "(") && hb_token_is(t + 2, ")")) &&
			      strcmp(t->text, "function") != 0))
			continue;
		const char *name = strcmp(t->text, "function") == 0 ? t[1].text : t->text;
		for (size_t j = i + 2; j + 2 < w->count; j++) {
			const struct hb_token *b = &w->tokens[j];

			if (!b[0].op && !b[2].op && strcmp(b[0].text, name) == 0 &&
			    strcmp(b[2].text, name) == 0 &&
			    (hb_token_is(b + 1, "|") || hb_token_is(b + 1, "|&") ||
			     hb_token_is(b + 1, "&")))
				return true;
		}
	}
	return false;
}

static int check_redirect(const struct hb_floor_look *l, const struct hb_token *op,
			  const struct hb_token *file)
{
	if (check_mentions(l, file->text) < 0)
		return -1;
	if (!strchr(op->text, '>'))
		return 0;
	if (hb_floor_is_device(l, file->text))
		return hb_floor_refuse(l, "floor_raw_device", "it writes to a block device");
	if (strstr(file->text, "/proc/sysrq-trigger"))
		return hb_floor_refuse(l, "floor_shutdown", "it stops or restarts the machine");
	return 0;
}

static int check_tokens(const struct hb_floor_look *l, const struct hb_words *w)
{
	const char **words = hb_calloc(w->count + 1, sizeof(*words));
	size_t n = 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < w->count; i++) {
		const struct hb_token *t = &w->tokens[i];

		if (!t->op) {
			rc = check_mentions(l, t->text);
			words[n++] = t->text;
		} else if (hb_token_redirects(t)) {
			if (i + 1 < w->count && !t[1].op)
				rc = check_redirect(l, t, &w->tokens[++i]);
		} else {
			rc = hb_floor_words(l, words, n);
			n = 0;
		}
	}
	if (rc == 0)
		rc = hb_floor_words(l, words, n);
	free(words);
	return rc;
}

static int check_text(const struct hb_floor_look *l, const char *text)
{
	struct hb_floor_look deeper = {l->workdir, l->depth + 1, l->err};
	struct hb_words w;
	int rc = -1;

	if (l->depth > NESTING_MAX)
		return hb_floor_refuse(l, "floor_nesting",
				       "commands are nested too deeply to be read");
	if (check_mentions(l, text) < 0)
		return -1;
	hb_words_read(text, &w);
	if (is_fork_bomb(&w)) {
		hb_floor_refuse(l, "floor_fork_bomb", "it is a fork bomb");
		goto out;
	}
	if (check_tokens(l, &w) < 0)
		goto out;
	for (size_t i = 0; i < w.nested_count; i++) {
		if (check_text(&deeper, w.nested[i]) < 0)
			goto out;
	}
	rc = 0;
out:
	hb_words_free(&w);
	return rc;
}

int hb_floor_command(const char *text, const char *workdir, struct hb_error *err)
{
	struct hb_floor_look l = {.workdir = workdir, .err = err};

	return check_text(&l, text);
}

int hb_floor_argv(const char *const *argv, size_t count, const char *workdir, struct hb_error *err)
{
	struct hb_floor_look l = {.workdir = workdir, .err = err};

	for (size_t i = 0; i < count; i++) {
		if (check_mentions(&l, argv[i]) < 0)
			return -1;
	}
	return hb_floor_words(&l, argv, count);
}
