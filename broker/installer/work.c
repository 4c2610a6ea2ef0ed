/* The job worker: talking to the installer, and the operations made of the pieces of the other
 * files (work.h). */
#include "broker/installer/work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/installer/activate.h"
#include "broker/installer/backup.h"
#include "broker/installer/data_swap.h"
#include "broker/installer/install.h"
#include "broker/installer/lifecycle.h"
#include "broker/installer/seal.h"
#include "broker/installer/snapshot.h"
#include "broker/installer/spec.h"
#include "broker/installer/verify.h"
#include "common/ids.h"
#include "common/json.h"

#define LINE_MAX (1u << 20)
#define PROGRESS_MS 250

static int send_line(struct hb_work *w, const json_t *line, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	size_t done = 0;
	ssize_t n = 0;

	if (hb_json_canonical(line, &text, err) < 0) {
		hb_buf_free(&text);
		return -1;
	}
	hb_buf_addc(&text, '\n');
	while (done < text.len) {
		n = write(w->fd, text.data + done, text.len - done);
		if (n < 0 && errno != EINTR)
			break;
		done += n > 0 ? (size_t)n : 0;
	}
	hb_buf_free(&text);
	return n < 0 ? hb_fail_errno(err, "installer_gone", "the installer doesn't listen any more")
		     : 0;
}

static json_t *receive_line(struct hb_work *w, struct hb_error *err)
{
	char chunk[4096];
	const char *end;
	json_t *line;
	ssize_t n;
	size_t used;

	while (!(end = w->in.len ? memchr(w->in.data, '\n', w->in.len) : NULL)) {
		n = read(w->fd, chunk, sizeof chunk);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || w->in.len > LINE_MAX) {
			hb_fail(err, "installer_gone", "the installer has ended");
			return NULL;
		}
		hb_buf_add(&w->in, chunk, (size_t)n);
	}
	used = (size_t)(end - w->in.data);
	line = hb_json_parse(w->in.data, used, err);
	memmove(w->in.data, w->in.data + used + 1, w->in.len - used - 1);
	w->in.len -= used + 1;
	return line;
}

int hb_work_ask(struct hb_work *w, json_t *question, json_t **answer, struct hb_error *err)
{
	json_t *reply = NULL;
	int rc = send_line(w, question, err);

	json_decref(question);
	if (rc == 0)
		reply = receive_line(w, err);
	if (!reply)
		return -1;
	if (json_object_get(reply, "error")) {
		rc = hb_fail(err, hb_json_text(reply, "code", "failed"), "%s",
			     hb_json_text(reply, "error", ""));
		json_decref(reply);
		return rc;
	}
	if (answer)
		*answer = reply;
	else
		json_decref(reply);
	return 0;
}

int hb_work_step(struct hb_work *w, const char *step, json_t *more, struct hb_error *err)
{
	return hb_work_ask(w,
			   json_pack("{s:s, s:s, s:o}", "ask", "step", "step", step, "more",
				     more ? more : json_object()),
			   NULL, err);
}

void hb_work_progress(struct hb_work *w, const struct hb_progress *p)
{
	int64_t now = hb_monotonic_ms();
	json_t *line;

	if (p->done && p->done < p->total && now - w->reported_ms < PROGRESS_MS)
		return;
	w->reported_ms = now;
	line = json_pack("{s:s, s:s, s:I, s:I, s:s, s:I, s:I}", "event", "progress", "phase",
			 p->phase, "done", (json_int_t)p->done, "total", (json_int_t)p->total,
			 "unit", p->unit, "files_done", (json_int_t)p->files_done, "files_total",
			 (json_int_t)p->files_total);
	(void)send_line(w, line, NULL); /* a lost installer is noticed by the next question */
	json_decref(line);
}

static void enter_phase(struct hb_work *w, const char *name)
{
	hb_work_progress(w, &(struct hb_progress){.phase = name, .unit = ""});
}

int hb_work_stop_runtime(struct hb_work *w, struct hb_error *err)
{
	enter_phase(w, "stop");
	return hb_work_ask(w, json_pack("{s:s}", "ask", "stop"), NULL, err);
}

int hb_work_start_runtime(struct hb_work *w, const json_t *activation, struct hb_error *err)
{
	enter_phase(w, "start");
	return hb_work_ask(w,
			   json_pack("{s:s, s:O}", "ask", "start", "spec",
				     json_object_get(activation, "spec")),
			   NULL, err);
}

void hb_work_main(struct hb_work *w, int (*work)(struct hb_work *, json_t **, struct hb_error *))
{
	struct hb_error err = {"", ""};
	json_t *result = NULL, *line;

	if (work(w, &result, &err) == 0)
		line = json_pack("{s:s, s:o}", "event", "done", "result",
				 result ? result : json_object());
	else
		line = json_pack("{s:s, s:s, s:s}", "event", "done", "error", err.message, "code",
				 err.code);
	(void)send_line(w, line, NULL);
	_exit(0);
}

/*
 * Safe to act on: the gate has found the grant good for exactly this request. What the request
 * names is looked up again here, and any difference from what was sealed ends the operation before
 * it has changed anything.
 */
static int recheck(struct hb_work *w, char current[HB_HEX256], struct hb_error *err)
{
	const json_t *sealed = json_object_get(w->request, "sealed");
	const json_t *before = json_object_get(sealed, "current");
	const char *was = hb_json_text(before, "manifest_digest", "?");
	json_t *now;
	int same;

	if (strcmp(hb_json_text(sealed, "settings_sha256", ""), w->settings) != 0)
		return hb_fail(err, "settings_changed",
			       "[runtime] of hermes.conf changed after this operation was "
			       "prepared; prepare it again");
	if (hb_store_link(w->store, "current", current, err) < 0)
		return -1;
	if (strcmp(was, current) != 0)
		return hb_fail(err, "release_changed",
			       "the current release is %s, but %s was when this operation was "
			       "prepared; prepare it "
			       "again",
			       current[0] ? current : "none", was[0] ? was : "none");
	now = hb_seal_current(w->store, w->config, err);
	if (!now)
		return -1;
	if (!json_object_get(before, "details"))
		json_object_del(now, "details");
	same = json_equal(now, before);
	json_decref(now);
	return same ? 0
		    : hb_fail(err, "sealed_changed",
			      "the current release isn't what was shown when this operation was "
			      "prepared; prepare it again");
}

static json_t *report(const char *output, const char *manifest)
{
	return json_pack("{s:s, s:s}", "output", output, "manifest_digest", manifest);
}

static int work_stop(struct hb_work *w, const char *current, json_t **result, struct hb_error *err)
{
	/* The wish first: whatever happens next, the payload isn't started again. */
	if (hb_desired_set(false, err) < 0 ||
	    hb_work_stop_runtime(w, err) < 0)
		return -1;
	*result = report("The runtime is stopped.", current);
	return 0;
}

static int is_running(struct hb_work *w, bool *running, struct hb_error *err)
{
	json_t *answer;

	if (hb_work_ask(w, json_pack("{s:s}", "ask", "running"), &answer, err) < 0)
		return -1;
	*running = hb_json_bool(answer, "running", false);
	json_decref(answer);
	return 0;
}

/* start and restart: the present release with the present settings. */
static int work_start_again(struct hb_work *w, const char *current, bool restart,
			    json_t **result, struct hb_error *err)
{
	json_t *marker = hb_store_marker(w->store, current, err), *next = NULL;
	bool running, same;
	int rc = -1;

	if (!marker)
		return -1;
	next = hb_activation_make(w, marker, err);
	if (!next || is_running(w, &running, err) < 0)
		goto out;
	same = hb_activation_is(next);
	if (running && same && !restart) {
		rc = hb_desired_set(true, err);
		if (rc == 0)
			*result = report("The runtime was running already; nothing was changed.",
					 current);
		goto out;
	}
	if (hb_activate(w, next, err) < 0)
		goto out;
	*result = report(restart ? "The runtime was restarted and is healthy."
				 : "The runtime was started and is healthy.",
			 current);
	rc = 0;
out:
	json_decref(marker);
	json_decref(next);
	return rc;
}

static int work_install(struct hb_work *w, const char *current, json_t **result,
			struct hb_error *err)
{
	struct hb_installed made = {0};
	json_t *next = NULL;
	struct hb_buf text = HB_BUF_INIT;
	bool running;
	int rc = -1;

	if (hb_install_release(w, &made, err) < 0 || is_running(w, &running, err) < 0)
		goto out;
	next = hb_activation_make(w, made.marker, err);
	if (!next)
		goto out;
	if (made.reused && running && hb_activation_is(next) &&
	    strcmp(current, made.manifest) == 0) {
		hb_buf_printf(&text,
			      "Release %s is already installed and healthy; its tree is as "
			      "recorded. Nothing "
			      "was changed.",
			      made.manifest);
	} else {
		if (hb_activate(w, next, err) < 0)
			goto out;
		hb_buf_printf(
			&text, "Release %s is %s and healthy.\nTree digest: %s\n", made.manifest,
			made.reused ? "activated (it was on disk already, verified)" : "installed",
			hb_json_text(made.marker, "tree_digest", ""));
	}
	*result = report(text.data, made.manifest);
	json_object_set(*result, "tree_digest", json_object_get(made.marker, "tree_digest"));
	json_object_set_new(*result, "reused", json_boolean(made.reused));
	rc = 0;
out:
	hb_installed_free(&made);
	json_decref(next);
	hb_buf_free(&text);
	return rc;
}

typedef int operation(struct hb_work *w, const char *current, json_t **result, struct hb_error *err);

static int work_restart(struct hb_work *w, const char *current, json_t **result,
			struct hb_error *err)
{
	return work_start_again(w, current, true, result, err);
}

static int work_start(struct hb_work *w, const char *current, json_t **result, struct hb_error *err)
{
	return work_start_again(w, current, false, result, err);
}

int hb_work_operation(struct hb_work *w, json_t **result, struct hb_error *err)
{
	static const struct {
		const char *action;
		operation *run;
		bool bare; /* also when nothing is installed */
	} operations[] = {
		{"install", work_install, true},    {"upgrade", hb_work_upgrade, false},
		{"rollback", hb_work_rollback, false}, {"start", work_start, false},
		{"stop", work_stop, false},         {"restart", work_restart, false},
		{"remove", hb_work_remove, true},   {"prune", hb_work_prune, true},
		{"stage", hb_work_staged, true},    {"backup", hb_work_backup, true},
		{"restore", hb_work_restore, true},
	};
	const char *action = hb_json_text(w->request, "action", "");
	char current[HB_HEX256] = "";

	if (recheck(w, current, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
		if (strcmp(action, operations[i].action) != 0)
			continue;
		if (current[0] == '\0' && !operations[i].bare)
			return hb_fail(err, "not_installed", "no release is installed");
		return operations[i].run(w, current, result, err);
	}
	return hb_fail(err, "not_available", "the installer doesn't know how to %s", action);
}

struct verify_progress {
	struct hb_work *w;
	uint64_t files, bytes;
};

static void on_verified(uint64_t files, uint64_t bytes, void *arg)
{
	struct verify_progress *p = arg;
	struct hb_progress progress = {.phase = "verify",
				       .unit = "bytes",
				       .done = bytes,
				       .total = p->bytes,
				       .files_done = files,
				       .files_total = p->files};

	hb_work_progress(p->w, &progress);
}

int hb_verify_release(struct hb_work *w, int fd, const json_t *marker, struct hb_verify_result *out,
		      struct hb_error *err)
{
	struct verify_progress p = {.w = w,
				    .files = (uint64_t)hb_json_int(marker, "files", 0),
				    .bytes = (uint64_t)hb_json_int(marker, "bytes", 0)};

	return hb_tree_verify(fd, hb_json_text(marker, "tree_digest", ""), w->store->unpack_uid,
			      on_verified, &p, out, err);
}

int hb_work_verify(struct hb_work *w, json_t **result, struct hb_error *err)
{
	struct hb_verify_result v = {0};
	char current[HB_HEX256];
	json_t *marker;
	int fd, rc;

	if (hb_store_link(w->store, "current", current, err) < 0)
		return -1;
	if (current[0] == '\0')
		return hb_fail(err, "not_installed", "no release is installed");
	marker = hb_store_marker(w->store, current, err);
	fd = marker ? hb_store_release_open(w->store, current, err) : -1;
	rc = fd >= 0 ? hb_verify_release(w, fd, marker, &v, err) : -1;
	if (rc == 0)
		*result = json_pack("{s:b, s:s, s:s, s:I, s:I, s:I, s:o}", "ok", v.ok,
				    "manifest_digest", current, "tree_digest", v.tree_digest,
				    "files", (json_int_t)v.files, "bytes", (json_int_t)v.bytes,
				    "difference_count", (json_int_t)v.difference_count,
				    "differences", v.differences ? v.differences : json_array());
	json_decref(marker);
	if (fd >= 0)
		close(fd);
	return rc;
}

int hb_work_recover(struct hb_work *w, json_t **result, struct hb_error *err)
{
	char *data = hb_spec_absolute(hb_config_text(w->config, "runtime.data"));
	struct hb_error trouble = {"", ""};
	int rc;

	/* Leftovers first: a full disk is a likely reason for being here. What undoing needs isn't
	 * among them. */
	rc = w->old ? 0 : hb_data_clean(data, err);
	(void)hb_snapshot_clean(data, NULL);
	free(data);
	if (rc < 0 || hb_backup_store_clean(w->backups, err) < 0 ||
	    hb_store_clean(w->store, err) < 0 || (w->old && hb_undo(w, w->old, &trouble, err) < 0))
		return -1;
	*result = json_pack("{s:s}", "trouble", trouble.message);
	return 0;
}
