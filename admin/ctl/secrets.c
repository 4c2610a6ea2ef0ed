/*
 * hermesctl bot token ..., admin key ..., secrets rotate: secrets are typed in a terminal or made here, never given as an
 * argument, never printed except the admin key, and that on a terminal only. All take effect without a restart.
 */
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/ssh_profile.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/paths.h"
#include "policy/live.h"

static int open_as_root(struct ctl *c, struct hb_error *err)
{
	if (ctl_open(c, err) < 0)
		return -1;
	return geteuid() == 0 ? 0 : hb_fail(err, "not_root", "this is for root: run it with sudo");
}

/* Through admin, which records it and ends what was asked before; when admin isn't running, to the process itself. */
static json_t *hand_over(struct ctl *c, const char *method, const char *admin_path, enum hb_peer keeper,
			 const char *path, const json_t *body, struct hb_error *err)
{
	json_t *answer = ctl_call(c, HB_PEER_ADMIN, method, admin_path, body, err);
	struct hb_policy after;

	if (answer || strcmp(err->code, "unreachable") != 0)
		return answer;
	answer = ctl_call(c, keeper, "POST", path, body, err);
	if (!answer)
		return NULL;
	if (hb_policy_raise(hb_peer_uid(HB_PEER_ADMIN), &after, err) < 0) {
		json_decref(answer);
		return NULL;
	}
	json_object_set_new(answer, "policy_generation", json_integer(after.generation));
	return answer;
}

static int told(struct ctl *c, json_t *answer, const char *text, const struct hb_error *err)
{
	if (!answer) {
		if (strcmp(err->code, "unreachable") == 0)
			ctl_note(c, "The processes must run for this: ./manage.sh up");
		return ctl_error(c, err);
	}
	if (!c->json)
		puts(text);
	return ctl_result(c, answer, CTL_OK);
}

int ctl_cmd_bot_token_set(struct ctl *c, int argc, char **argv)
{
	struct hb_secret token = {0};
	struct hb_error err = {0};
	json_t *body, *answer;

	if (ctl_parse(c, "bot token set", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (open_as_root(c, &err) < 0)
		return ctl_error(c, &err);
	ctl_note(c, "Make a bot with @BotFather that nothing else uses, and give its token here.");
	if (ctl_ssh_ask(c, "Bot token (not shown):", true, &token, &err) < 0)
		return ctl_error(c, &err);
	body = json_pack("{s:s}", "token", token.text);
	hb_secret_free(&token);
	answer = body ? hand_over(c, "PUT", "/admin/bot-token", HB_PEER_APPROVER, "/bot-token", body, &err)
		      : (hb_fail(&err, "bot_token_malformed", "what was typed is not text"), NULL);
	if (body)
		sodium_memzero((char *)json_string_value(json_object_get(body, "token")),
			       json_string_length(json_object_get(body, "token")));
	json_decref(body);
	return told(c, answer, "The bot token is set. Approvers must have written to the bot once; see `manage.sh status`.",
		    &err);
}

int ctl_cmd_bot_token_clear(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *body, *answer;

	if (ctl_parse(c, "bot token clear", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (open_as_root(c, &err) < 0)
		return ctl_error(c, &err);
	body = json_object();
	answer = hand_over(c, "POST", "/admin/bot-token/clear", HB_PEER_APPROVER, "/bot-token/clear", body, &err);
	json_decref(body);
	return told(c, answer, "The bot token is removed: nobody is asked by Telegram any more.", &err);
}

static int write_secret(const char *path, enum hb_peer owner, const char *hex, struct hb_error *err)
{
	return hb_fs_write_atomic(AT_FDCWD, path, hex, 65, 0600, hb_peer_uid(owner), hb_peer_gid(owner), err);
}

/* The same new value for each of the files. */
static int renew(const char *const paths[2], const enum hb_peer owners[2], struct hb_error *err)
{
	char hex[66];
	int rc = 0;

	hb_random_hex(32, hex);
	strcat(hex, "\n");
	for (int i = 0; i < 2 && paths[i] && rc == 0; i++)
		rc = write_secret(paths[i], owners[i], hex, err);
	sodium_memzero(hex, sizeof hex);
	return rc;
}

static const struct {
	const char *name, *paths[2], *text;
	enum hb_peer owners[2];
} files[] = {
	{"approval", {HB_PATH_APPROVER_APPROVAL_SECRET, HB_PATH_BROKER_APPROVAL_SECRET},
	 "Broker and approver share a new secret.", {HB_PEER_APPROVER, HB_PEER_BROKER}},
	{"admin-key", {HB_PATH_ADMIN_KEY, NULL},
	 "The admin key is new; pages that are open must connect again. Show it with: admin key show",
	 {HB_PEER_ADMIN, HB_PEER_ADMIN}},
	{"scrape-key", {HB_PATH_SCRAPE_KEY, NULL}, "The key of /metrics is new: it is in admin/scrape-key.",
	 {HB_PEER_ADMIN, HB_PEER_ADMIN}},
};

static int rotate(struct ctl *c, const char *what)
{
	struct hb_error err = {0};
	json_t *body, *answer;

	if (open_as_root(c, &err) < 0)
		return ctl_error(c, &err);
	if (strcmp(what, "control") == 0) {
		body = json_object();
		answer = hand_over(c, "POST", "/admin/rotate-control-secret", HB_PEER_BROKER, "/control-secret", body, &err);
		json_decref(body);
		return told(c, answer, "The control secret is new, and delivered to its clients.", &err);
	}
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		if (strcmp(files[i].name, what) != 0)
			continue;
		if (renew(files[i].paths, files[i].owners, &err) < 0)
			return ctl_error(c, &err);
		return told(c, json_pack("{s:s,s:s}", "status", "ok", "rotated", what), files[i].text, &err);
	}
	hb_fail(&err, "usage", "secrets that can be rotated: control, approval, admin-key, scrape-key");
	return ctl_error(c, &err);
}

int ctl_cmd_secrets_rotate(struct ctl *c, int argc, char **argv)
{
	if (ctl_parse(c, "secrets rotate", NULL, 0, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	return rotate(c, argv[0]);
}

int ctl_cmd_admin_key_rotate(struct ctl *c, int argc, char **argv)
{
	if (ctl_parse(c, "admin key rotate", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	return rotate(c, "admin-key");
}

/* To a person's eyes, not into a file or a pipe where it would stay. */
int ctl_cmd_admin_key_show(struct ctl *c, int argc, char **argv)
{
	struct hb_secret key = {0};
	struct hb_error err = {0};

	if (ctl_parse(c, "admin key show", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (open_as_root(c, &err) < 0)
		return ctl_error(c, &err);
	if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO) || c->json) {
		hb_fail(&err, "no_terminal", "the admin key is shown in a terminal only");
		return ctl_error(c, &err);
	}
	if (hb_secret_read(AT_FDCWD, HB_PATH_ADMIN_KEY, hb_peer_uid(HB_PEER_ADMIN), 512, &key, &err) < 0)
		return ctl_error(c, &err);
	puts(key.text);
	hb_secret_free(&key);
	return CTL_OK;
}
