/*
 * A new bot token, from admin or root. It is judged here, where it is kept: it must look like one, and not be the token of
 * a bot that the agents use themselves, since whoever reads an agent's updates could press Approve for it. Agents' tokens
 * are known by their SHA-256 only.
 */
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "approver/approver.h"
#include "approver/botapi.h"
#include "approver/telegram.h"
#include "common/digest.h"
#include "common/fields.h"
#include "common/log.h"
#include "common/paths.h"

#define TOKEN_MAX 256
#define AGENTS_FILE_MAX 16384 /* 250 bots of agents */

/* The path may be absolute: root chose it. */
static int
read_agents(const char *path, struct hb_buf *out, struct hb_error *err)
{
	int root = path[0] == '/' ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : AT_FDCWD;
	int rc = hb_fs_read(root, path[0] == '/' ? path + 1 : path, AGENTS_FILE_MAX, out, err);

	if (root >= 0)
		close(root);
	return rc < 0 ? hb_fail_prefix(err, "the agents' bot tokens can't be compared "
					    "(approver.agent_bot_sha256_file)")
		      : 0;
}

/* Nothing that is in the way of comparing lets a token through. */
static int
check_agents(struct hb_approver *a, const char *token, struct hb_error *err)
{
	const char *path = hb_config_text(a->process->config, "approver.agent_bot_sha256_file");
	struct hb_buf text = HB_BUF_INIT;
	char hex[HB_HEX256], *save = NULL;
	int rc = 0;

	if (!*path)
		return 0;
	if (read_agents(path, &text, err) < 0)
		return -1;
	hb_sha256_hex(token, strlen(token), hex);
	if (text.len == 0)
		rc = hb_fail(err, "agent_bots_unreadable", "%s is empty", path);
	for (char *line = text.len ? strtok_r(text.data, " \t\r\n", &save) : NULL; line && rc == 0;
	     line = strtok_r(NULL, " \t\r\n", &save)) {
		if (strlen(line) != 64 || line[strspn(line, "0123456789abcdef")])
			rc = hb_fail(err, "agent_bots_unreadable",
				     "%s must hold SHA-256 sums of 64 lower-case hex digits", path);
		else if (strcmp(line, hex) == 0)
			rc = hb_fail(err, "agents_own_bot",
				     "this is the token of an agent's own bot: make another bot for "
				     "approvals with @BotFather");
	}
	hb_buf_free(&text);
	return rc;
}

static int
record(struct hb_approver *a, const char *status, const char *what, struct hb_error *err)
{
	json_t *detail = json_pack("{s:s}", "what", what);
	int rc = hb_audit_append(a->process->audit, "bot_token", status, detail, err);

	json_decref(detail);
	return rc;
}

static int
set_token(struct hb_approver *a, const char *token, struct hb_error *err)
{
	char line[TOKEN_MAX + 2];
	int rc;

	if (!hb_bot_token_ok(token))
		return hb_fail(err, "bot_token_malformed",
			       "a bot token is digits, a colon and 20 or more letters, digits, _ or -");
	if (check_agents(a, token, err) < 0 || record(a, "intent", "set", err) < 0)
		return -1;
	snprintf(line, sizeof(line), "%s\n", token);
	rc = hb_fs_write_atomic(AT_FDCWD, HB_PATH_BOT_TOKEN, line, strlen(line), 0600, (uid_t)-1,
				(gid_t)-1, err);
	sodium_memzero(line, sizeof(line));
	record(a, rc < 0 ? "failed" : "ok", "set", NULL);
	return rc;
}

static int
clear_token(struct hb_approver *a, struct hb_error *err)
{
	if (record(a, "intent", "clear", err) < 0)
		return -1;
	if (unlink(HB_PATH_BOT_TOKEN) < 0 && access(HB_PATH_BOT_TOKEN, F_OK) == 0)
		return hb_fail_errno(err, "write_failed", "cannot remove %s", HB_PATH_BOT_TOKEN);
	if (hb_fs_sync_dir(AT_FDCWD, "approver", err) < 0)
		return -1;
	return record(a, "ok", "clear", err);
}

static void
answer(struct hb_approver *a, struct hb_request *req, bool configured, const struct hb_error *err)
{
	if (err) {
		hb_log(HB_LOG_WARN, "bot_token_refused", "code", err->code, "error", err->message, NULL);
		hb_refuse(req, err);
		return;
	}
	hb_telegram_tick(a->telegram); /* takes effect now, not at the next look */
	hb_reply_json(req, 200, json_pack("{s:s, s:b}", "status", "ok", "configured", configured));
}

void
hb_route_bot_token(struct hb_request *req, void *ctx)
{
	struct {
		const char *token;
	} in = {0};
	static const struct hb_field fields[] = {
		{"token", HB_FIELD_TEXT, HB_FIELD_REQUIRED, 0, 1, TOKEN_MAX}};
	struct hb_error err;
	int rc = hb_fields_decode(hb_request_json(req), fields, 1, &in, &err);

	if (rc == 0) {
		rc = set_token(ctx, in.token, &err);
		sodium_memzero((char *)in.token, strlen(in.token)); /* lives as long as the request */
	}
	answer(ctx, req, true, rc < 0 ? &err : NULL);
}

void
hb_route_bot_token_clear(struct hb_request *req, void *ctx)
{
	struct hb_error err;
	int rc = hb_fields_decode(hb_request_json(req), NULL, 0, NULL, &err);

	if (rc == 0)
		rc = clear_token(ctx, &err);
	answer(ctx, req, false, rc < 0 ? &err : NULL);
}
