/* What a person sees: notes, progress bars, sizes, times; and the one JSON object of --json. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/buf.h"
#include "common/ids.h"
#include "common/json.h"

#define BAR_WIDTH 28

static const struct {
	const char *code;
	int exit;
} exits[] = {
	{"denied", CTL_DENIED},
	{"expired", CTL_EXPIRED},
	{"cancelled", CTL_EXPIRED},
	{"revoked", CTL_EXPIRED},
	{"outcome_unknown", CTL_UNKNOWN},
	{"unreachable", CTL_UNREACHABLE},
	{"timeout", CTL_UNREACHABLE},
	{"wrong_peer", CTL_UNREACHABLE},
	{"bad_reply", CTL_UNREACHABLE},
	{"executor_unreachable", CTL_UNREACHABLE},
	{"approver_unreachable", CTL_UNREACHABLE},
	{"not_running", CTL_UNREACHABLE},
	{"not_found", CTL_NOT_FOUND},
	{"unknown_operation", CTL_NOT_FOUND},
	{"usage", CTL_USAGE},
};

int ctl_exit_for(const char *code)
{
	for (size_t i = 0; i < sizeof exits / sizeof exits[0]; i++)
		if (strcmp(exits[i].code, code) == 0)
			return exits[i].exit;
	return CTL_REFUSED;
}

/* The bytes of a text that comes from elsewhere must not move the cursor: controls are drawn. */
static void print_escaped(FILE *out, const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p == '\n' || (*p >= 32 && *p != 127 && !(*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)))
			fputc(*p, out);
		else if (*p == 0xc2)
			fprintf(out, "\\u{%02X}", *++p);
		else
			fprintf(out, "\\x%02x", *p);
	}
}

void ctl_print_text(const char *text)
{
	print_escaped(stdout, text);
}

void ctl_note(struct ctl *c, const char *fmt, ...)
{
	va_list ap;
	char *text = NULL;

	(void)c;
	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) >= 0) {
		print_escaped(stderr, text);
		fputc('\n', stderr);
		free(text);
	}
	va_end(ap);
}

static void print_json(json_t *object)
{
	json_dumpf(object, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
	fputc('\n', stdout);
}

int ctl_error(struct ctl *c, const struct hb_error *err)
{
	if (c->json) {
		json_t *object = hb_json_error(err);
		print_json(object);
		json_decref(object);
	} else
		ctl_note(c, "hermesctl: %s (%s)", err->message, err->code);
	return ctl_exit_for(err->code);
}

int ctl_result(struct ctl *c, json_t *object, int code)
{
	if (c->json)
		print_json(object);
	json_decref(object);
	return code;
}

void ctl_time(long long t, char *out, size_t size)
{
	time_t when = (time_t)t;
	struct tm tm;

	if (t <= 0 || !localtime_r(&when, &tm))
		snprintf(out, size, "-");
	else
		strftime(out, size, "%Y-%m-%d %H:%M:%S", &tm);
}

void ctl_bytes(double n, char *out, size_t size)
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
	size_t u = 0;

	while (n >= 1000 && u < 4) {
		n /= 1000;
		u++;
	}
	snprintf(out, size, u ? "%.1f %s" : "%.0f %s", n, units[u]);
}

static char shown_phase[48];
static int64_t phase_began, last_drawn;

static void draw_bar(const char *phase, double done, double total, bool bytes)
{
	char left[32] = "", right[32] = "", bar[BAR_WIDTH + 1];
	double part = total > 0 ? fmin(done / total, 1) : 0;

	for (int i = 0; i < BAR_WIDTH; i++)
		bar[i] = i < (int)(part * BAR_WIDTH) ? '#' : '.';
	bar[BAR_WIDTH] = 0;
	if (bytes) {
		ctl_bytes(done, left, sizeof left);
		ctl_bytes(total, right, sizeof right);
	} else {
		snprintf(left, sizeof left, "%.0f", done);
		snprintf(right, sizeof right, "%.0f", total);
	}
	fprintf(stderr, "\r\033[K%-12s [%s] %3.0f%%  %s of %s", phase, bar, part * 100, left, right);
}

void ctl_progress(struct ctl *c, const json_t *progress)
{
	const char *phase = hb_json_text(progress, "phase", "");
	double done = (double)hb_json_int(progress, "done", 0), total = (double)hb_json_int(progress, "total", 0);
	bool changed = strcmp(phase, shown_phase) != 0;

	if (c->json || !*phase)
		return;
	if (changed) {
		if (c->screen && *shown_phase)
			fputc('\n', stderr);
		snprintf(shown_phase, sizeof shown_phase, "%s", phase);
		phase_began = hb_monotonic_ms();
		if (!c->screen)
			ctl_note(c, "  %s", phase);
	}
	if (!c->screen || (!changed && hb_monotonic_ms() - last_drawn < 100 && done < total))
		return;
	last_drawn = hb_monotonic_ms();
	if (total > 0)
		draw_bar(phase, done, total, strcmp(hb_json_text(progress, "unit", "bytes"), "bytes") == 0);
	else
		fprintf(stderr, "\r\033[K%-12s %llds", phase, (long long)(hb_monotonic_ms() - phase_began) / 1000);
	fflush(stderr);
}

void ctl_progress_end(struct ctl *c)
{
	if (c->screen && !c->json && *shown_phase)
		fputc('\n', stderr);
	shown_phase[0] = 0;
}

/* Only a whole word is an answer; the end of the terminal's input is a no. What was typed before the question stood there
 * answers nothing. */
int ctl_confirm(struct ctl *c, const char *question, bool *yes)
{
	char line[64];
	FILE *tty;

	if (c->no_input || !isatty(STDIN_FILENO) || !(tty = fopen("/dev/tty", "r+e")))
		return -1;
	*yes = false;
	tcflush(fileno(tty), TCIFLUSH);
	for (;;) {
		fprintf(tty, "%s [yes/no] ", question);
		fflush(tty);
		if (!fgets(line, sizeof line, tty))
			break;
		*yes = strcmp(line, "yes\n") == 0 || strcmp(line, "y\n") == 0;
		if (*yes || strcmp(line, "no\n") == 0 || strcmp(line, "n\n") == 0)
			break;
	}
	fclose(tty);
	return 0;
}
