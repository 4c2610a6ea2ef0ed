/* Standing still for a snapshot (quiesce.h). */
#include "broker/installer/quiesce.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "broker/installer/job.h"
#include "broker/installer/work.h"
#include "common/buf.h"
#include "common/fields.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define MARK_PATH "installer/quiesced.json"
#define MARK_MAX 4096

static int audit(struct hb_installer *in, const char *what, const char *status, const char *phase,
		 struct hb_error *err)
{
	json_t *detail = json_pack("{s:s}", "phase", phase);
	int rc = hb_audit_append(in->process->audit, what, status, detail, err);

	json_decref(detail);
	return rc;
}

static int end(struct hb_installer *in, struct hb_error *err)
{
	if (unlink(MARK_PATH) < 0 && errno != ENOENT)
		return hb_fail_errno(err, "state_failed", "%s can't be removed", MARK_PATH);
	if (hb_fs_sync_dir(AT_FDCWD, "installer", err) < 0)
		return -1;
	json_decref(in->quiesced);
	in->quiesced = NULL;
	if (in->resume)
		evtimer_del(in->resume);
	return 0;
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
	struct hb_installer *in = arg;
	const struct timeval again = {5, 0};
	struct hb_error err;

	if (audit(in, "runtime.resume", "ok", "by itself", &err) < 0 || end(in, &err) < 0) {
		hb_log(HB_LOG_ERROR, "resume_failed", "code", err.code, "msg", err.message, NULL);
		evtimer_add(in->resume, &again);
		return;
	}
	hb_log(HB_LOG_WARN, "resumed_by_itself", NULL);
	hb_installer_reconcile(in);
}

static int arm(struct hb_installer *in, int64_t seconds, struct hb_error *err)
{
	const struct timeval pause = {seconds > 0 ? seconds : 0, 0};

	if (!in->resume)
		in->resume = evtimer_new(in->process->base, on_time, in);
	if (!in->resume || evtimer_add(in->resume, &pause) < 0)
		return hb_fail(err, "event_failed", "the timer can't be set");
	return 0;
}

int hb_quiesce_load(struct hb_installer *in, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	int64_t now = hb_now(), since, until, rest;
	json_t *mark = NULL;

	if (faccessat(AT_FDCWD, MARK_PATH, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return 0;
	if (hb_fs_read(AT_FDCWD, MARK_PATH, MARK_MAX, &text, NULL) == 0)
		mark = hb_json_parse(text.data ? text.data : "", text.len, NULL);
	hb_buf_free(&text);
	since = hb_json_int(mark, "since", 0);
	until = hb_json_int(mark, "until", 0);
	/* A clock that was set back (a machine started from its snapshot) must not make it longer. */
	rest = until - now < until - since ? until - now : until - since;
	json_decref(mark);
	if (rest <= 0)
		return end(in, err);
	hb_log(HB_LOG_WARN, "quiesced", "msg", "the runtime stays stopped until it is resumed", NULL);
	in->quiesced = json_pack("{s:I, s:I, s:b}", "since", (json_int_t)since, "until",
				 (json_int_t)until, "synced", 1);
	return arm(in, rest, err);
}

int hb_quiesce_refuse(const struct hb_installer *in, struct hb_error *err)
{
	char when[21];

	hb_time_rfc3339(hb_json_int(in->quiesced, "until", 0), when);
	return hb_fail(err, "quiesced",
		       "the runtime is stopped for a snapshot until %s; `hermesctl runtime resume` "
		       "ends that",
		       when);
}

/* --- the work --- */

static int sync_around(const char *path, struct hb_error *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : hb_fail_errno(err, "sync_failed", "%s", path);
	if (syncfs(fd) < 0)
		rc = hb_fail_errno(err, "sync_failed", "%s", path);
	close(fd);
	return rc;
}

static int work_quiesce(struct hb_work *w, json_t **result, struct hb_error *err)
{
	(void)result;
	if (hb_work_ask(w, json_pack("{s:s}", "ask", "stop"), NULL, err) < 0 ||
	    sync_around(hb_json_text(w->request, "data", ""), err) < 0 ||
	    sync_around("installer", err) < 0)
		return -1;
	return syncfs(w->store->fd) == 0 ? 0 : hb_fail_errno(err, "sync_failed", "the store");
}

static void on_quiesced(struct hb_installer *in, const json_t *request, json_t *result,
			const struct hb_error *err)
{
	struct hb_error why;

	(void)request;
	json_decref(result);
	if (!err && in->quiesced) {
		json_object_set_new(in->quiesced, "synced", json_true());
		return; /* no record: from here on nothing is written */
	}
	if (err)
		hb_log(HB_LOG_ERROR, "quiesce_failed", "code", err->code, "msg", err->message, NULL);
	if (audit(in, "runtime.quiesce", "failed", "outcome", &why) < 0 || end(in, &why) < 0)
		hb_log(HB_LOG_ERROR, "quiesce_failed", "code", why.code, "msg", why.message, NULL);
}

static const struct hb_task quiesce_task = {"quiesce", work_quiesce, on_quiesced};

static int begin(struct hb_installer *in, long long seconds, struct hb_error *err)
{
	int64_t now = hb_now();
	struct hb_buf text = HB_BUF_INIT;
	json_t *mark;
	int rc;

	if (in->quiesced)
		return hb_quiesce_refuse(in, err);
	if (in->stopping || !hb_job_none(in))
		return hb_fail(err, "busy",
			       "an operation is under way; try again when it has ended");
	if (audit(in, "runtime.quiesce", "ok", "intent", err) < 0)
		return -1;
	mark = json_pack("{s:I, s:I}", "since", (json_int_t)now, "until",
			 (json_int_t)(now + seconds));
	rc = hb_json_canonical(mark, &text, err);
	if (rc == 0)
		rc = hb_fs_write_atomic(AT_FDCWD, MARK_PATH, text.data, text.len, 0600, 0, 0, err);
	hb_buf_free(&text);
	if (rc < 0) {
		json_decref(mark);
		return -1;
	}
	json_object_set_new(mark, "synced", json_false());
	in->quiesced = mark;
	if (arm(in, seconds, err) < 0 ||
	    hb_job_task(in, &quiesce_task, json_pack("{s:s}", "data", in->data_reach), err) < 0) {
		(void)end(in, NULL);
		return -1;
	}
	return 0;
}

void hb_quiesce_handle(struct hb_request *req, void *ctx)
{
	struct quiesce_body {
		long long seconds;
	} body = {HB_QUIESCE_SECONDS};
	static const struct hb_field fields[] = {
		{"seconds", HB_FIELD_INT, 0, offsetof(struct quiesce_body, seconds), 1,
		 HB_QUIESCE_SECONDS_MAX},
	};
	struct hb_installer *in = ctx;
	struct hb_error err;

	if (hb_fields_decode(hb_request_json(req), fields, 1, &body, &err) < 0 ||
	    begin(in, body.seconds, &err) < 0)
		hb_reply_error(req, 200, &err);
	else
		hb_reply_json(req, 200,
			      json_pack("{s:s, s:O}", "status", "accepted", "until",
					json_object_get(in->quiesced, "until")));
}

void hb_resume_handle(struct hb_request *req, void *ctx)
{
	struct hb_installer *in = ctx;
	struct hb_error err;
	int rc = hb_fields_decode(hb_request_json(req), NULL, 0, NULL, &err);

	if (rc == 0 && !in->quiesced)
		rc = hb_fail(&err, "not_quiesced", "the runtime isn't stopped for a snapshot");
	if (rc == 0 && !hb_job_none(in))
		rc = hb_fail(&err, "busy", "it is still being stopped; try again");
	if (rc == 0)
		rc = audit(in, "runtime.resume", "ok", "asked", &err);
	if (rc == 0)
		rc = end(in, &err);
	if (rc < 0) {
		hb_reply_error(req, 200, &err);
		return;
	}
	hb_installer_reconcile(in);
	hb_reply_json(req, 200, json_pack("{s:s}", "status", "ok"));
}
