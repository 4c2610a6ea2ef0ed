/*
 * hermesctl receipt ...: one file that says what was asked, what was shown, who decided and what came of it, and that
 * can be checked anywhere by whoever has the approver's public key.
 *
 *   request, feature     -> its digest is in the grant
 *   summary              -> its digest is in the grant: the exact bytes that were shown
 *   envelope             the grant, signed at the decision
 *   state, result        what the executor reported, output included
 *   attestation          signed by the approver: decision, outcome, and both places in its audit chain
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/files.h"
#include "common/audit.h"
#include "common/buf.h"
#include "common/fields.h"
#include "common/fs.h"
#include "common/grant.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/paths.h"
#include "common/signed.h"
#include "policy/operation.h"
#include "policy/summary.h"

#define RECEIPT_MAX (1 << 20)

static bool is_id(const char *text)
{
	return strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32;
}

static json_t *fetch(struct ctl *c, const char *id, struct hb_error *err)
{
	char path[128];
	json_t *receipt, *attestation;

	snprintf(path, sizeof path, "/receipts/%s", id);
	receipt = ctl_call(c, HB_PEER_BROKER, "GET", path, NULL, err);
	if (!receipt)
		return NULL;
	snprintf(path, sizeof path, "/console/receipt?operation_id=%s", id);
	attestation = ctl_call(c, HB_PEER_APPROVER, "GET", path, NULL, err);
	if (!attestation) {
		json_decref(receipt);
		return NULL;
	}
	json_object_set_new(receipt, "v", json_integer(1));
	json_object_set_new(receipt, "kind", json_string("hermes-receipt"));
	json_object_set_new(receipt, "attestation", attestation);
	return receipt;
}

/* A file (path as given, before the state directory is entered) or the operation itself. */
static json_t *get(struct ctl *c, const char *what, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	char chunk[65536];
	json_t *receipt;
	int fd = is_id(what) ? -1 : open(what, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = 0;

	if (fd < 0 && !is_id(what)) {
		hb_fail_errno(err, "not_found", "can't open %s", what);
		return NULL;
	}
	if (fd < 0)
		return ctl_open(c, err) == 0 ? fetch(c, what, err) : NULL;
	while (text.len <= RECEIPT_MAX && (n = read(fd, chunk, sizeof chunk)) > 0)
		hb_buf_add(&text, chunk, (size_t)n);
	if (n < 0)
		hb_fail_errno(err, "unreadable", "reading %s", what);
	else if (text.len > RECEIPT_MAX)
		hb_fail(err, "too_large", "%s is larger than a receipt can be", what);
	receipt = n >= 0 && text.len <= RECEIPT_MAX ? hb_json_parse(text.data ? text.data : "", text.len, err) : NULL;
	hb_close(&fd);
	hb_buf_free(&text);
	return receipt;
}

struct parts {
	long long v;
	const char *kind, *operation_id, *state, *feature, *target, *summary;
	json_t *request, *envelope, *attestation, *result;
};

#define TEXT(name, max)                                                                                     \
	{                                                                                                   \
#name, HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct parts, name), 1, max                       \
	}
#define OBJECT(name, flags)                                                                                 \
	{                                                                                                   \
#name, HB_FIELD_OBJECT, flags, offsetof(struct parts, name), 0, 0                                   \
	}
static const struct hb_field parts_fields[] = {
	{"v", HB_FIELD_INT, HB_FIELD_REQUIRED, offsetof(struct parts, v), 1, 1},
	TEXT(kind, 32), TEXT(operation_id, 32), TEXT(state, 32), TEXT(feature, 16), TEXT(target, 24), TEXT(summary, 8192),
	OBJECT(request, HB_FIELD_REQUIRED), OBJECT(envelope, HB_FIELD_REQUIRED), OBJECT(attestation, HB_FIELD_REQUIRED),
	OBJECT(result, 0),
};

static int wrong(struct hb_error *err, const char *what)
{
	return hb_fail(err, "receipt_wrong", "the receipt contradicts itself: %s", what);
}

/* What the grant says is what the receipt shows. */
static int check_grant(const struct parts *p, const struct hb_grant *g, struct hb_error *err)
{
	char digest[HB_HEX256], summary_digest[HB_HEX256];

	if (hb_operation_digest(p->feature, p->request, digest, err) < 0)
		return -1;
	hb_sha256_hex(p->summary, strlen(p->summary), summary_digest);
	if (strcmp(g->operation_id, p->operation_id) != 0 || strcmp(g->feature, p->feature) != 0 ||
	    strcmp(g->target, p->target) != 0)
		return wrong(err, "the grant is for another operation");
	if (strcmp(digest, g->digest) != 0)
		return wrong(err, "the request is not the one that was approved");
	if (strcmp(summary_digest, g->summary_digest) != 0)
		return wrong(err, "the summary is not the text that was shown");
	return 0;
}

static bool same_text(const json_t *a, const char *key, const char *wanted)
{
	return strcmp(hb_json_text(a, key, ""), wanted) == 0;
}

/* What the approver attests is what the grant says, and what the result says. */
static int check_attestation(const struct parts *p, const struct hb_grant *g, const json_t *a, struct hb_error *err)
{
	const json_t *outcome = json_object_get(a, "outcome"), *by = json_object_get(a, "decided_by");
	const char *output = hb_json_text(p->result, "output", "");
	char sha[HB_HEX256];

	if (!same_text(a, "operation_id", g->operation_id) || !same_text(a, "grant_id", g->grant_id) ||
	    !same_text(a, "digest", g->digest) || !same_text(a, "summary_digest", g->summary_digest) ||
	    !same_text(a, "decision", g->approved ? "approved" : "denied"))
		return wrong(err, "the approver attests another decision");
	if (json_array_size(by) != g->user_count)
		return wrong(err, "the approver attests other people");
	for (size_t i = 0; i < g->user_count; i++)
		if (strcmp(g->user_ids[i], json_is_string(json_array_get(by, i)) ? json_string_value(json_array_get(by, i)) : "") != 0)
			return wrong(err, "the approver attests other people");
	if (!g->approved)
		return strcmp(p->state, "denied") == 0 && json_object_size(outcome) == 0 ? 0 : wrong(err, "it was denied");
	if (!same_text(outcome, "state", p->state))
		return wrong(err, "the approver attests another outcome, or was not told of it yet");
	if (!p->result)
		return 0;
	if (!same_text(outcome, "output_sha256", hb_json_text(p->result, "output_sha256", "?")) ||
	    hb_json_int(outcome, "returncode", -1) != hb_json_int(p->result, "returncode", -2))
		return wrong(err, "the result is not the one that the approver was told");
	hb_sha256_hex(output, strlen(output), sha);
	if (!hb_json_bool(p->result, "truncated", true) && !same_text(outcome, "output_sha256", sha))
		return wrong(err, "the output is not the one whose hash was told");
	return 0;
}

static int find_place(const struct hb_audit_head *at, const char *line, size_t len, void *arg)
{
	json_t *wanted = arg;

	(void)line;
	(void)len;
	if (at->seq < hb_json_int(wanted, "seq", 0))
		return 0;
	json_object_set_new(wanted, "found", json_boolean(same_text(wanted, "hash", at->hash)));
	return 1;
}

/* On the host itself: both records are in the approver's chain. 1 they are, 0 there is no chain here, -1. */
static int check_chain(const json_t *attestation, struct hb_error *err)
{
	static const char *const names[] = {"decision_record", "outcome_record"};

	if (access(HB_PATH_AUDIT("approver"), R_OK) != 0)
		return 0;
	for (int i = 0; i < 2; i++) {
		json_t *wanted = json_copy(json_object_get(attestation, names[i]));
		bool ok;

		if (json_object_size(wanted) > 0)
			hb_audit_scan(AT_FDCWD, HB_PATH_AUDIT("approver"), find_place, wanted, NULL);
		ok = json_object_size(wanted) == 0 || hb_json_bool(wanted, "found", false);
		json_decref(wanted);
		if (!ok)
			return hb_fail(err, "receipt_not_in_chain", "the %s it names is not in the approver's audit chain", names[i]);
	}
	return 1;
}

struct verdict {
	struct parts p;
	struct hb_grant grant;
	json_t *attestation;
	bool same_summary; /* this release would show the same text */
	int chain;
};

static int check(const json_t *receipt, const struct hb_keyring *keys, bool here, struct verdict *v, struct hb_error *err)
{
	struct hb_buf again = HB_BUF_INIT;
	json_t *result = json_object_get(receipt, "result");
	json_t *copy = json_copy((json_t *)(uintptr_t)receipt);
	int rc;

	if (json_is_null(result))
		json_object_del(copy, "result");
	/* Borrowed from `receipt`, which the copy only shares. */
	rc = hb_fields_decode(copy, parts_fields, sizeof parts_fields / sizeof parts_fields[0], &v->p, err);
	json_decref(copy);
	if (rc < 0)
		return -1;
	if (strcmp(v->p.kind, "hermes-receipt") != 0)
		return hb_fail(err, "receipt_wrong", "this is no receipt");
	if (hb_grant_open_ring(v->p.envelope, keys, &v->grant, err) < 0 || check_grant(&v->p, &v->grant, err) < 0)
		return -1;
	v->attestation = hb_signed_open(HB_KIND_RECEIPT, v->grant.audience, v->p.attestation, keys, err);
	if (!v->attestation || check_attestation(&v->p, &v->grant, v->attestation, err) < 0)
		return -1;
	v->same_summary = hb_summary(v->p.feature, v->p.request, &again, NULL, NULL) == 0 &&
			  strcmp(again.data, v->p.summary) == 0;
	hb_buf_free(&again);
	v->chain = here ? check_chain(v->attestation, err) : 0;
	return v->chain < 0 ? -1 : 0;
}

/* --key FILE, or every key that this host ever signed with. */
static int load_keys(struct ctl *c, const char *key, struct hb_keyring *keys, struct hb_error *err)
{
	memset(keys, 0, sizeof *keys);
	if (key) {
		keys->count = 1;
		return ctl_load_public_key(key, &keys->keys[0], err);
	}
	if (!c->config && ctl_open(c, err) < 0)
		return -1;
	if (hb_keyring_load(AT_FDCWD, hb_now(), keys, err) < 0)
		return -1;
	hb_keyring_add_retired(AT_FDCWD, keys);
	return 0;
}

int ctl_cmd_receipt_verify(struct ctl *c, int argc, char **argv)
{
	const char *key = NULL;
	const struct ctl_option options[] = {{"key", "FILE", "the approver's public key (default: this host's)", &key, NULL}};
	struct verdict v = {0};
	struct hb_keyring keys;
	struct hb_error err = {0};
	json_t *receipt, *out;

	if (ctl_parse(c, "receipt verify", options, 1, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	receipt = key && is_id(argv[0]) ? NULL : get(c, argv[0], &err);
	if (key && is_id(argv[0]))
		hb_fail(&err, "usage", "--key goes with a file");
	if (!receipt || load_keys(c, key, &keys, &err) < 0 || check(receipt, &keys, !key, &v, &err) < 0) {
		json_decref(receipt);
		ctl_error(c, &err);
		return CTL_FAILED;
	}
	if (!c->json) {
		printf("The receipt is good: %s %s was %s by user %s (key %s) and ended as %s.\n", v.grant.feature, v.grant.action,
		       v.grant.approved ? "approved" : "denied", v.grant.user_ids[0], v.grant.key_id, v.p.state);
		puts(v.chain ? "Its records are in the approver's audit chain." : "No audit chain was compared.");
		if (!v.same_summary)
			puts("This release would show the operation with other words; the text in it is the one that was shown.");
	}
	out = json_pack("{s:s,s:s,s:s,s:b,s:b}", "status", "ok", "operation_id", v.p.operation_id, "state", v.p.state,
			"in_chain", v.chain, "same_summary", v.same_summary);
	json_decref(receipt);
	return ctl_result(c, out, CTL_OK);
}

int ctl_cmd_receipt_export(struct ctl *c, int argc, char **argv)
{
	const char *out = NULL;
	const struct ctl_option options[] = {{"out", "FILE", "where to (default: standard output); never overwrites", &out, NULL}};
	struct hb_error err = {0};
	json_t *receipt = NULL;
	char *text = NULL;
	int fd = STDOUT_FILENO, code = CTL_OK, cwd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (ctl_parse(c, "receipt export", options, 1, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	/* Before the state directory is entered, so that a relative name means what was typed. */
	if (out && (fd = open(out, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)) < 0) {
		hb_fail_errno(&err, "unwritable", "can't create %s", out);
		return ctl_error(c, &err);
	}
	if (!is_id(argv[0]))
		hb_fail(&err, "not_found", "an operation id is 32 hex digits; see `hermesctl operations list`");
	else if (ctl_open(c, &err) == 0)
		receipt = fetch(c, argv[0], &err);
	text = receipt ? json_dumps(receipt, JSON_SORT_KEYS | JSON_INDENT(1)) : NULL;
	if (text && (dprintf(fd, "%s\n", text) < 0 || (out && fsync(fd) < 0))) {
		hb_fail_errno(&err, "unwritable", "writing the receipt");
		free(text);
		text = NULL;
	}
	if (!text)
		code = ctl_error(c, &err);
	if (out) {
		close(fd);
		if (!text)
			unlinkat(cwd, out, 0); /* the empty file of ours */
		hb_close(&cwd);
	}
	free(text);
	json_decref(receipt);
	return code;
}

int ctl_cmd_receipt_show(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *receipt, *grant, *a, *by;
	char when[32];
	size_t i;

	if (ctl_parse(c, "receipt show", NULL, 0, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	receipt = get(c, argv[0], &err);
	if (!receipt)
		return ctl_error(c, &err);
	if (!c->json) {
		grant = json_object_get(json_object_get(receipt, "envelope"), "grant");
		a = json_object_get(json_object_get(receipt, "attestation"), "record");
		ctl_time(hb_json_int(a, "decided_at", 0), when, sizeof when);
		ctl_print_text(hb_json_text(receipt, "summary", ""));
		printf("\noperation  ");
		ctl_print_text(hb_json_text(receipt, "operation_id", "?"));
		printf("\ndigest     ");
		ctl_print_text(hb_json_text(grant, "digest", "?"));
		printf("\ndecision   ");
		ctl_print_text(hb_json_text(a, "decision", "?"));
		printf(" at %s by ", when);
		json_array_foreach (json_object_get(a, "decided_by"), i, by)
			ctl_print_text(json_is_string(by) ? json_string_value(by) : "?");
		printf("\nstate      ");
		ctl_print_text(hb_json_text(receipt, "state", "?"));
		printf("\nrecords    %lld and %lld of the approver's chain\n(not checked: hermesctl receipt verify)\n",
		       hb_json_int(json_object_get(a, "decision_record"), "seq", 0),
		       hb_json_int(json_object_get(a, "outcome_record"), "seq", 0));
	}
	return ctl_result(c, receipt, CTL_OK);
}
