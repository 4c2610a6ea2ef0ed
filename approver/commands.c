/*
 * What approvers write to the bot. A command counts from somebody on the present list, in the
 * private chat with that very person, written and not forwarded; everybody else gets no answer at
 * all, and a record. Commands can stop things; nothing can be approved by writing. Ending a pause
 * takes a second tap, on a button that only the one who asked for it can use, for a minute.
 */
#include <stdlib.h>
#include <string.h>

#include "approver/telegram_internal.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define RESUME_MS 60000

struct command {
	struct hb_telegram *t;
	const char *user, *argument; /* "" when there is none */
	const struct hb_update_mark *mark;
	struct hb_buf text;
	const char *token;
	bool stored; /* the update's number is on disk with the effect */
};

static void
help(struct command *c)
{
	hb_words_help(&c->text);
}

static void
pending(struct command *c)
{
	hb_words_pending(c->t->a, &c->text);
}

static void
status(struct command *c)
{
	hb_words_status(c->t->a, &c->text);
}

static void
history(struct command *c)
{
	hb_words_history(c->t->a, &c->text);
}

static bool
is_id(const char *text)
{
	return strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32;
}

static void
receipt(struct command *c)
{
	struct hb_error err;

	if (!is_id(c->argument))
		hb_buf_adds(&c->text,
			    "Which one? /receipt and the 32 digits of an operation; see /history.");
	else if (hb_words_receipt(c->t->a, c->argument, &c->text, &err) < 0)
		hb_buf_adds(&c->text, "There is no operation with this id here.");
}

static void
pause_all(struct command *c)
{
	struct hb_approver *a = c->t->a;
	struct hb_audit_head head;
	struct hb_error err;
	char note[128];

	if (hb_control_pause(a, c->user, "telegram", c->mark, &err) < 0) {
		hb_buf_printf(
			&c->text, "%s\n%.300s",
			a->control.paused
				? "PAUSED."
				: "NOT paused: it could not be stored. Stop the executors by hand.",
			err.message);
		c->stored = a->control.paused;
		return;
	}
	c->stored = true;
	head = hb_audit_head(a->process->audit);
	hb_buf_adds(&c->text, "PAUSED. Every executor refuses everything until it is resumed; what "
			      "runs already goes on. "
			      "To end it: /resume\n");
	hb_witness(&head, &c->text);
	snprintf(note, sizeof(note),
		 "PAUSED by user %s. Every executor refuses everything until it is resumed.",
		 c->user);
	hb_telegram_notice(c->t, c->user, note);
}

static void
resume(struct command *c)
{
	struct hb_resume *r = &c->t->resume;

	if (!c->t->a->control.paused) {
		hb_buf_adds(&c->text, c->t->a->policy_ok && c->t->a->policy.live.paused
					      ? "It is paused by the live policy, which is changed "
						"on the host: hermesctl "
						"policy set --resume"
					      : "Nothing is paused.");
		return;
	}
	memset(r, 0, sizeof(*r));
	hb_random_hex(HB_TAP_TOKEN_BYTES, r->token);
	memccpy(r->user, c->user, 0, sizeof(r->user) - 1);
	r->until_ms = hb_monotonic_ms() + RESUME_MS;
	c->token = r->token;
	hb_buf_printf(&c->text,
		      "Paused by user %s. Resume all operations? The button works for one minute, "
		      "and only for you.",
		      c->t->a->control.by);
}

static void
revoke(struct command *c)
{
	struct hb_approver *a = c->t->a;
	struct hb_error err = {0};
	size_t denied;
	int rc;

	if (strcmp(c->argument, "all") == 0) {
		rc = hb_control_revoke_all(a, c->user, "telegram", c->mark, &denied, &err);
		hb_buf_printf(
			&c->text,
			"Revoked: every approval that has not been used. Denied: %zu waiting.",
			denied);
	} else if (!is_id(c->argument)) {
		hb_buf_adds(
			&c->text,
			"Which one? /revoke and the 32 digits of an operation, or /revoke all.");
		return;
	} else {
		rc = hb_control_revoke(a, c->argument, c->user, "telegram", c->mark, &err);
		if (rc == 0)
			hb_buf_adds(&c->text, "Revoked. If it has begun already it goes on, and "
					      "its message will say so.");
		else if (strcmp(err.code, "unknown_operation") == 0)
			hb_buf_adds(&c->text, "There is no operation with this id here.");
	}
	if (rc < 0 && strcmp(err.code, "unknown_operation") != 0)
		hb_buf_printf(&c->text, "%s%.300s", c->text.len ? "\n" : "", err.message);
	c->stored = rc == 0;
	hb_grants_tick(a);
}

static const struct {
	const char *name;
	void (*run)(struct command *c);
	bool argument;
} commands[] = {
	{"/help", help, false},	      {"/start", help, false},	   {"/pending", pending, false},
	{"/status", status, false},   {"/history", history, false}, {"/receipt", receipt, true},
	{"/revoke", revoke, true},    {"/pause", pause_all, false}, {"/resume", resume, false},
};

/* "/name@bot  argument": the parts, or false when it's no command. */
static bool
split(char *text, char **name, char **argument)
{
	char *save = NULL, *at;

	*name = strtok_r(text, " \t\r\n", &save);
	*argument = *name ? strtok_r(NULL, " \t\r\n", &save) : NULL;
	if (!*name || **name != '/' || (*argument && strtok_r(NULL, " \t\r\n", &save)))
		return false;
	at = strchr(*name, '@');
	if (at)
		*at = 0;
	return true;
}

static void
run(struct command *c, const char *text)
{
	char copy[sizeof(((struct hb_said *)0)->text)];
	char *name, *argument;

	memcpy(copy, text, strlen(text) + 1);
	if (split(copy, &name, &argument))
		for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
			if (strcmp(commands[i].name, name) == 0 &&
			    (commands[i].argument || !argument)) {
				c->argument = argument ? argument : "";
				hb_log(HB_LOG_INFO, "command", "user", c->user, "command",
				       commands[i].name, NULL);
				commands[i].run(c);
				return;
			}
	hb_buf_adds(&c->text, "That is no command of mine; /help lists them.");
}

int
hb_command_take(struct hb_telegram *t, const struct hb_said *said,
		const struct hb_update_mark *mark)
{
	struct hb_approver *a = t->a;
	struct command c = {.t = t, .mark = mark, .text = HB_BUF_INIT};
	char user[24];

	snprintf(user, sizeof(user), "%lld", (long long)said->from_id);
	if (said->from_id <= 0 || !said->private_chat || said->chat_id != said->from_id ||
	    said->foreign || hb_approver_policy(a, NULL) < 0 ||
	    !hb_policy_user(&a->policy.live, user)) {
		hb_foreign_refused(t, said->from_id,
				   said->foreign ? "not_written_by_the_user" : "not_an_approver",
				   "");
		return 0;
	}
	c.user = user;
	run(&c, said->text);
	hb_reply_send(t, user, &c.text, c.token);
	return c.stored ? 1 : 0;
}

/* The second tap. As take_tap() in taps.c: 1 done with the offset, 0 not. */
int
hb_resume_tap(struct hb_telegram *t, const struct hb_tap *tap, const struct hb_update_mark *mark,
	      const char **answer)
{
	struct hb_resume r = t->resume;
	struct hb_approver *a = t->a;
	struct hb_error err;
	char user[24], note[128];

	snprintf(user, sizeof(user), "%lld", (long long)tap->from_id);
	if (tap->from_id <= 0 || !tap->private_chat || tap->chat_id != tap->from_id ||
	    hb_approver_policy(a, NULL) < 0 || !hb_policy_user(&a->policy.live, user)) {
		hb_foreign_refused(t, tap->from_id, "not_an_approver", "");
		*answer = "This button is not yours. It stays paused.";
		return 0;
	}
	if (!*r.token || strcmp(r.token, tap->data + 2) != 0 || strcmp(r.user, user) != 0 ||
	    r.message_id <= 0 || r.message_id != tap->message_id ||
	    hb_monotonic_ms() > r.until_ms) {
		hb_foreign_refused(t, tap->from_id, "resume_expired", "");
		*answer = "Expired. It stays paused; send /resume again.";
		return 0;
	}
	memset(&t->resume, 0, sizeof(t->resume));
	if (hb_control_resume(a, user, "telegram", mark, &err) < 0 && a->control.paused) {
		*answer = "It could not be resumed; see the approver's log.";
		return 0;
	}
	*answer = "Resumed.";
	snprintf(note, sizeof(note), "RESUMED by user %s.", user);
	hb_telegram_notice(t, "", note);
	return 1;
}
