/* The audit view: our own records, and how long every chain is. Other processes' records are theirs alone; what can be
 * compared here is their heads, with those in the approver's last signed checkpoint. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "admin/admin.h"
#include "common/json.h"
#include "common/paths.h"

#define LIMIT_MAX 200
#define LIMIT_DEFAULT 50
#define FILTERED_MAX 5000 /* records looked through for a filter: about 2 MiB */
#define CHECKPOINT_MAX 65536

static bool wanted(const json_t *record, const char *action, const char *status)
{
	return (!action || strcmp(action, hb_json_text(record, "action", "")) == 0) &&
	       (!status || strcmp(status, hb_json_text(record, "status", "")) == 0);
}

/* A bare array, newest first, of {ts, action, status, detail, seq}. */
void admin_audit(struct hb_request *req, void *ctx)
{
	struct admin *a = ctx;
	const char *text = hb_request_query(req, "limit"), *action = hb_request_query(req, "action");
	const char *status = hb_request_query(req, "status");
	char *end = NULL;
	long limit = text ? strtol(text, &end, 10) : LIMIT_DEFAULT;
	struct hb_error err = {0};
	json_t *records, *out, *r;
	size_t i;

	if (text && (*end || end == text || limit < 1 || limit > LIMIT_MAX)) {
		admin_refuse(req, 422, "out_of_range", "limit must be 1 to 200");
		return;
	}
	records = hb_audit_tail(a->process->audit, action || status ? FILTERED_MAX : (int)limit, &err);
	if (!records) {
		hb_reply_error(req, 503, &err);
		return;
	}
	out = json_array();
	json_array_foreach(records, i, r)
		if (wanted(r, action, status) && json_array_size(out) < (size_t)limit)
			json_array_append_new(out, json_pack("{s:O,s:O,s:O,s:O?,s:O}", "ts", json_object_get(r, "ts"),
							     "action", json_object_get(r, "action"), "status",
							     json_object_get(r, "status"), "detail",
							     json_object_get(r, "detail"), "seq",
							     json_object_get(r, "seq")));
	json_decref(records);
	hb_reply_json(req, 200, out);
}

struct asked {
	struct admin *admin;
	struct hb_request *req;
};

static json_t *own_chain(struct admin *a)
{
	struct hb_audit_head head = {0};
	struct hb_error err = {0};
	bool ok = hb_audit_verify(AT_FDCWD, HB_PATH_AUDIT("admin"), &head, &err) == 0;

	if (!ok)
		head = hb_audit_head(a->process->audit);
	return json_pack("{s:I,s:s,s:s,s:s}", "seq", (json_int_t)head.seq, "hash", head.hash, "state",
			 ok ? "verified" : err.code, "error", ok ? "" : err.message);
}

/* Who reads it checks the signature with `hermesctl audit verify`; here it is shown beside what the processes say. */
static json_t *checkpoint(void)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *envelope = NULL, *record = NULL;

	if (hb_fs_read(AT_FDCWD, HB_PATH_CHECKPOINT, CHECKPOINT_MAX, &text, NULL) == 0)
		envelope = hb_json_parse(text.data, text.len, NULL);
	if (json_is_object(json_object_get(envelope, "record")))
		record = json_incref(json_object_get(envelope, "record"));
	json_decref(envelope);
	hb_buf_free(&text);
	return record ? record : json_null();
}

static void chains_gathered(json_t *services, json_t *runtime, void *arg)
{
	struct asked *asked = arg;
	json_t *chains = json_object(), *service;
	const char *name;

	(void)runtime;
	json_object_set_new(chains, "admin", own_chain(asked->admin));
	json_object_foreach(services, name, service) {
		json_t *head = json_object_get(json_object_get(service, "checks"), "audit");
		json_t *entry = json_is_object(head) ? json_copy(head) : json_object();
		json_object_set_new(entry, "state", json_string(json_is_object(head) ? "reported" : "unreachable"));
		json_object_set_new(chains, name, entry);
	}
	if (asked->req)
		hb_reply_json(asked->req, 200, json_pack("{s:s,s:o,s:o}", "status", "ok", "chains", chains, "checkpoint",
							 checkpoint()));
	else
		json_decref(chains);
	free(asked);
}

static void gone(void *arg)
{
	((struct asked *)arg)->req = NULL;
}

void admin_audit_chain(struct hb_request *req, void *ctx)
{
	struct asked *asked = hb_calloc(1, sizeof *asked);

	asked->admin = ctx;
	asked->req = req;
	hb_request_on_close(req, gone, asked);
	admin_gather(ctx, chains_gathered, asked);
}
