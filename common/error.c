/*
 * Filling struct hb_error. The message is always valid UTF-8 on one line, whatever a file name or a
 * foreign reply put into it, so that it can go into JSON and into the log as it is.
 */
#include "common/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

/* Replace what is not plain one-line UTF-8 by '?', in place. A message cut in the middle of a
 * character ends before it. */
static void
make_plain(char *text)
{
	const char *in = text, *end = text + strlen(text), *start;
	char *out = text;
	uint32_t cp;

	while (in < end) {
		start = in;
		cp = hb_utf8_next(&in, end);
		if (cp == HB_UTF8_BAD || cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 ||
		    cp == 0x2029) {
			*out++ = cp == '\n' || cp == '\t' ? ' ' : '?';
			continue;
		}
		memmove(out, start, (size_t)(in - start));
		out += in - start;
	}
	*out = '\0';
}

/* vsnprintf truncation may leave half a character: drop it rather than show '?'. */
static void
drop_half_character(char *text)
{
	size_t len = strlen(text), back = 0;

	while (back < 4 && back < len && ((unsigned char)text[len - 1 - back] & 0xc0) == 0x80)
		back++;
	if (back < len && (unsigned char)text[len - 1 - back] >= 0xc0) {
		const char *p = text + len - 1 - back;

		if (hb_utf8_next(&p, text + len) == HB_UTF8_BAD)
			text[len - 1 - back] = '\0';
	}
}

int
hb_vfail(struct hb_error *err, const char *code, const char *fmt, va_list ap)
{
	char message[HB_ERROR_MESSAGE_MAX];
	int saved = errno;

	/* By way of a copy: an argument may be err->message itself. */
	if (err != NULL) {
		vsnprintf(message, sizeof(message), fmt, ap);
		drop_half_character(message);
		make_plain(message);
		memcpy(err->message, message, sizeof(message));
		if (code != err->code)
			snprintf(err->code, sizeof(err->code), "%s", code);
	}
	errno = saved;
	return -1;
}

int
(hb_fail)(struct hb_error *err, const char *code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	hb_vfail(err, code, fmt, ap);
	va_end(ap);
	return -1;
}

int
(hb_fail_errno)(struct hb_error *err, const char *code, const char *fmt, ...)
{
	char text[HB_ERROR_MESSAGE_MAX], reason[128];
	int saved = errno;
	va_list ap;

	if (err == NULL)
		return -1;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (saved == ENOSPC || saved == EDQUOT)
		code = "disk_full";
	/* The reason must survive a long path before it. */
	snprintf(reason, sizeof(reason), "%s", strerror(saved));
	hb_fail(err, code, "%.*s: %s", (int)(sizeof(text) - strlen(reason) - 3), text, reason);
	errno = saved;
	return -1;
}

int
(hb_fail_prefix)(struct hb_error *err, const char *fmt, ...)
{
	char prefix[HB_ERROR_MESSAGE_MAX];
	va_list ap;

	if (err == NULL)
		return -1;
	va_start(ap, fmt);
	vsnprintf(prefix, sizeof(prefix), fmt, ap);
	va_end(ap);
	return hb_fail(err, err->code, "%s: %s", prefix, err->message);
}
