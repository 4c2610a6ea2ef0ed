/*
 * The bot token and the control secret. Both go one way: a token is handed on to the approver, which judges and keeps it;
 * a control secret is made by the broker, which delivers it to its clients. Neither is stored, recorded or ever readable
 * here. Both end everything that was asked before: the policy generation is raised.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "admin/admin.h"
#include "common/fields.h"
#include "common/json.h"

#define HANDOVER_TIMEOUT_MS 10000
#define TOKEN_MAX 256

struct handover {
	struct admin *admin;
	struct hb_request *req; /* NULL once the caller has gone */
	const char *action;
	bool token;             /* whether the answer speaks of a bot token */
};

/* <digits>:<20 or more of A-Z a-z 0-9 _ ->; so no mask, placeholder or blank passes. */
static bool token_well_formed(const char *token)
{
	size_t digits = strspn(token, "0123456789");
	const char *rest = token + digits + 1;

	if (digits == 0 || token[digits] != ':')
		return false;
	return strlen(rest) >= 20 &&
	       rest[strspn(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")] == 0;
}

static void refused(struct handover *h, int status, const struct hb_error *err)
{
	json_t *detail = json_pack("{s:s,s:s}", "code", err->code, "error", err->message);

	hb_audit_append(h->admin->process->audit, h->action, status == 422 ? "refused" : "failed", detail, NULL);
	json_decref(detail);
	if (h->req)
		hb_reply_error(h->req, status, err);
	free(h);
}

static void succeeded(struct handover *h, const json_t *body)
{
	struct admin *a = h->admin;
	struct hb_policy after;
	struct hb_error err = {0};
	json_t *answer, *detail;

	/* Done is done: also if the generation could not be raised, which is said. */
	if (hb_policy_raise(hb_peer_uid(HB_PEER_ADMIN), &after, &err) < 0) {
		hb_fail_prefix(&err, "%s was changed, but earlier approvals could not be ended", h->action);
		refused(h, 503, &err);
		return;
	}
	detail = json_pack("{s:I}", "generation", (json_int_t)after.generation);
	hb_audit_append(a->process->audit, h->action, "ok", detail, NULL);
	json_decref(detail);
	answer = admin_changed(a, &after);
	if (h->token) {
		json_object_set_new(answer, "token", json_null());
		json_object_set_new(answer, "bot_token_configured",
				    json_boolean(hb_json_bool(body, "configured", false)));
	} else
		json_object_set_new(answer, "clients", json_integer(hb_json_int(body, "clients", 0)));
	if (h->req)
		hb_reply_json(h->req, 200, answer);
	else
		json_decref(answer);
	free(h);
}

static void answered(int status, const json_t *body, const struct hb_error *why, void *arg)
{
	struct handover *h = arg;
	struct hb_error err = {0};

	if (status == 0) {
		err = *why;
		if (strcmp(err.code, "timeout") == 0)
			hb_fail_prefix(&err, "it isn't known whether it was taken");
		refused(h, 503, &err);
	} else if (hb_reply_failed(status, body, &err) < 0)
		refused(h, status == 200 ? 422 : 503, &err);
	else
		succeeded(h, body);
}

static void gone(void *arg)
{
	((struct handover *)arg)->req = NULL;
}

/* Steals body. */
static void hand_over(struct admin *a, struct hb_request *req, const char *action, enum hb_peer to, const char *path,
		      json_t *body)
{
	struct handover *h;
	struct hb_error err = {0};

	if (hb_audit_append(a->process->audit, action, "intent", NULL, &err) < 0) {
		json_decref(body);
		hb_reply_error(req, 503, &err);
		return;
	}
	h = hb_calloc(1, sizeof *h);
	h->admin = a;
	h->req = req;
	h->action = action;
	h->token = to == HB_PEER_APPROVER;
	hb_request_on_close(req, gone, h);
	hb_client_start(a->process->client, &(struct hb_call){.server = to, .method = "POST", .path = path, .body = body,
							      .timeout_ms = HANDOVER_TIMEOUT_MS, .on_done = answered,
							      .arg = h});
	json_decref(body);
}

void admin_put_bot_token(struct hb_request *req, void *ctx)
{
	struct {
		const char *token;
	} in = {0};
	static const struct hb_field fields[] = {{"token", HB_FIELD_TEXT, HB_FIELD_REQUIRED, 0, 1, TOKEN_MAX}};
	struct admin *a = ctx;
	struct hb_error err = {0};
	json_t *body = NULL;

	if (hb_fields_decode(hb_request_json(req), fields, 1, &in, &err) < 0) {
		hb_reply_error(req, 422, &err);
		return;
	}
	if (token_well_formed(in.token))
		body = json_pack("{s:s}", "token", in.token);
	sodium_memzero((char *)in.token, strlen(in.token)); /* it lives as long as the request otherwise */
	if (body) {
		hand_over(ctx, req, "bot_token", HB_PEER_APPROVER, "/bot-token", body);
		return;
	}
	hb_audit_append(a->process->audit, "bot_token", "refused", NULL, NULL);
	admin_refuse(req, 422, "bot_token_malformed",
		     "a bot token is digits, a colon and 20 or more letters, digits, _ or -; to remove the one "
		     "that is set use POST /admin/bot-token/clear");
}

static bool empty_body(struct hb_request *req)
{
	if (json_object_size(hb_request_json(req)) == 0)
		return true;
	admin_refuse(req, 422, "unknown_field", "this takes an empty object or no body");
	return false;
}

void admin_clear_bot_token(struct hb_request *req, void *ctx)
{
	if (empty_body(req))
		hand_over(ctx, req, "bot_token_clear", HB_PEER_APPROVER, "/bot-token/clear", json_object());
}

void admin_rotate_control_secret(struct hb_request *req, void *ctx)
{
	if (empty_body(req))
		hand_over(ctx, req, "control_secret", HB_PEER_BROKER, "/control-secret", json_object());
}
