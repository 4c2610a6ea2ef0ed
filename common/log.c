/*
 * logfmt on standard error. A record is built whole and written by one write(2), so that records of
 * processes sharing a pipe don't mix. Everything outside printable ASCII is escaped: a log is read
 * in terminals, and what it quotes comes from outside.
 */
#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/ids.h"
#include "common/utf8.h"

static const char *log_process = "hermes";
static enum hb_log_level log_least = HB_LOG_INFO;

void
hb_log_open(const char *process, enum hb_log_level least)
{
	log_process = process;
	log_least = least;
}

static void
add_value(struct hb_buf *b, const char *value)
{
	const char *p = value, *end = value + strlen(value);
	uint32_t cp;

	/* Bare when it can't be misread, quoted otherwise. */
	if (*value != '\0' && strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					    "0123456789-_.:/@+,") == (size_t)(end - value)) {
		hb_buf_adds(b, value);
		return;
	}
	hb_buf_addc(b, '"');
	while (p < end) {
		const char *at = p;

		cp = hb_utf8_next(&p, end);
		if (cp == HB_UTF8_BAD)
			hb_buf_printf(b, "\\x%02x", (unsigned char)*at);
		else if (cp == '"' || cp == '\\')
			hb_buf_printf(b, "\\%c", (int)cp);
		else if (cp == '\n')
			hb_buf_adds(b, "\\n");
		else if (cp == '\t')
			hb_buf_adds(b, "\\t");
		else if (cp < 0x20 || cp >= 0x7f)
			hb_buf_printf(b, "\\u{%x}", cp);
		else
			hb_buf_addc(b, (char)cp);
	}
	hb_buf_addc(b, '"');
}

void
hb_log(enum hb_log_level level, const char *event, ...)
{
	static const char *const words[] = {"error", "warn", "info", "debug"};
	struct hb_buf b = HB_BUF_INIT;
	const char *key, *value;
	char now[21];
	va_list ap;
	size_t done = 0;

	if (level > log_least)
		return;
	hb_time_rfc3339(hb_now(), now);
	hb_buf_printf(&b, "ts=%s level=%s process=%s event=%s", now, words[level], log_process,
		      event);
	va_start(ap, event);
	while ((key = va_arg(ap, const char *)) != NULL) {
		value = va_arg(ap, const char *);
		hb_buf_printf(&b, " %s=", key);
		add_value(&b, value != NULL ? value : "");
	}
	va_end(ap);
	hb_buf_addc(&b, '\n');
	/* A log that can't be written stops nobody; a short write is finished. */
	while (done < b.len) {
		ssize_t n = write(STDERR_FILENO, b.data + done, b.len - done);

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	hb_buf_free(&b);
}
