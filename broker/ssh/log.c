/* Reading ssh's log (log.h). The texts are those of OpenSSH 7.4 to 10, one table. */
#include "broker/ssh/log.h"

#include <string.h>

enum where { BEGINS, HOLDS };

/* Lines that say why there is no session, from the most telling to the least. */
static const struct {
	enum where where;
	const char *text, *code;
} reasons[] = {
	{HOLDS, "REMOTE HOST IDENTIFICATION HAS CHANGED", "host_key_changed"},
	{HOLDS, "no matching host key type found", "pin_missing"},
	{HOLDS, "host key is known for",
	 "pin_missing"}, /* "No ED25519 host key is known for pinned and you ..." */
	{HOLDS, "is not known by any other names", "pin_missing"},
	{HOLDS, "Host key verification failed", "host_key_changed"},
	{HOLDS, "incorrect signature",
	 "host_key_changed"}, /* it shows the pinned key and can't sign with it */
	{HOLDS, "Permission denied (", "auth_failed"},
	{HOLDS, "Too many authentication failures", "auth_failed"},
	{HOLDS, "No more authentication methods", "auth_failed"},
	{HOLDS, "Could not resolve hostname", "unreachable"},
	{BEGINS, "ssh: connect to host", "unreachable"},
	{BEGINS, "kex_exchange_identification:", "unreachable"},
	{BEGINS, "ssh_exchange_identification:", "unreachable"},
	{HOLDS, "Connection timed out during banner exchange", "unreachable"},
	{BEGINS, "banner exchange:", "unreachable"},
	{BEGINS, "hermes: ", "ssh_failed"},
};

static void copy(char *to, size_t size, const char *from)
{
	size_t n = strlen(from);

	if (n >= size)
		n = size - 1;
	for (size_t i = 0; i < n; i++)
		to[i] = from[i] >= ' ' && from[i] < 127 ? from[i] : '?';
	to[n] = '\0';
}

static bool begins(const char *line, const char *text)
{
	return strncmp(line, text, strlen(text)) == 0;
}

/* The alarm is drawn in a frame of '@', and its text is what counts. */
static bool is_frame(const char *line)
{
	return line[0] == '@';
}

static void read_debug(struct hb_ssh_log *log, const char *line)
{
	/* Fixed beginnings only: the command itself stands, escaped, in one of these lines. */
	log->connected = log->connected || begins(line, "debug1: Connection established.");
	log->sent = log->sent || begins(line, "debug1: Sending command:");
	if (!begins(line, "debug1: client_input_channel_req:"))
		return;
	log->exit_seen = log->exit_seen || strstr(line, " rtype exit-status ") != NULL;
	log->signal_seen = log->signal_seen || strstr(line, " rtype exit-signal ") != NULL;
}

static void read_line(struct hb_ssh_log *log, const char *line)
{
	if (begins(line, "debug")) {
		read_debug(log, line);
		return;
	}
	if (begins(line, "Authenticated to ")) {
		log->authenticated = true;
		return;
	}
	for (size_t i = 0; !log->verdict[0] && i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		if (reasons[i].where == BEGINS ? !begins(line, reasons[i].text)
					       : !strstr(line, reasons[i].text))
			continue;
		copy(log->verdict, sizeof(log->verdict), reasons[i].code);
		copy(log->detail, sizeof(log->detail), line);
	}
	if (line[0] && !is_frame(line))
		copy(log->last, sizeof(log->last), line);
}

void hb_ssh_log_feed(struct hb_ssh_log *log, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (data[i] == '\n') {
			while (log->len > 0 && log->line[log->len - 1] == '\r')
				log->len--;
			log->line[log->len] = '\0';
			read_line(log, log->line);
			log->len = 0;
			log->cut = false;
		} else if (data[i] == '\0' || log->len + 1 >= sizeof(log->line)) {
			log->cut = true;
		} else if (!log->cut) {
			log->line[log->len++] = data[i];
		}
	}
}

const char *hb_ssh_log_far_side(const struct hb_ssh_log *log)
{
	if (log->exit_seen || log->signal_seen)
		return "finished";
	return log->sent ? "may_run" : "not_started";
}

static int refused(const struct hb_ssh_log *log, const char *key_type, struct hb_error *err)
{
	if (strcmp(log->verdict, "host_key_changed") == 0)
		return hb_fail(
			err, "host_key_changed",
			"THE HOST SHOWS ANOTHER %s KEY THAN THE PINNED ONE: it was replaced, or "
			"somebody stands in between. Nothing was sent. Find out which before you "
			"run `hermesctl ssh profile verify`",
			key_type);
	if (strcmp(log->verdict, "pin_missing") == 0)
		return hb_fail(
			err, "pin_missing",
			"the host does not offer the pinned type of key (%s); nothing was sent. "
			"ssh says: "
			"%s. Pin a key of a type that it offers: hermesctl ssh profile verify",
			key_type, log->detail);
	if (strcmp(log->verdict, "auth_failed") == 0)
		return hb_fail(
			err, "auth_failed",
			"the host did not accept the credential; nothing was started. ssh says: %s",
			log->detail);
	if (strcmp(log->verdict, "unreachable") == 0)
		return hb_fail(err, "unreachable",
			       "the host can't be reached; nothing was started. ssh says: %s",
			       log->detail);
	if (!log->authenticated && log->verdict[0] == '\0' && log->connected)
		return hb_fail(err, "unreachable",
			       "the host ended the connection before the login; nothing was "
			       "started. ssh says: %s",
			       log->last[0] ? log->last : "nothing");
	return hb_fail(err, "ssh_failed",
		       "ssh failed before the command was sent; nothing was started. It says: %s",
		       log->verdict[0] ? log->detail
		       : log->last[0]  ? log->last
				       : "nothing");
}

int hb_ssh_log_end(const struct hb_ssh_log *log, int status, const char *key_type, int *returncode,
		   struct hb_error *err)
{
	if (log->exit_seen && status >= 0) {
		*returncode = status;
		return 0;
	}
	if (log->signal_seen)
		return hb_fail(err, "remote_signal",
			       "the command was ended by a signal on the far side");
	if (!log->sent)
		return refused(log, key_type, err);
	return hb_fail(err, "connection_lost",
		       "the connection broke after the command was sent; it may still be running "
		       "on the far side, or may have ended. ssh says: %s",
		       log->last[0] ? log->last : "nothing");
}
