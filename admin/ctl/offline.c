/* What needs no running process: explain a request, check a grant, read and verify audit chains. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/audit.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/grant.h"
#include "common/json.h"
#include "common/server.h"
#include "policy/explain.h"

static int read_stdin(struct hb_buf *out, struct hb_error *err)
{
	char chunk[65536];
	ssize_t n;

	while ((n = read(STDIN_FILENO, chunk, sizeof chunk)) > 0) {
		hb_buf_add(out, chunk, (size_t)n);
		if (out->len > HB_BODY_MAX)
			return hb_fail(err, "too_large", "standard input is longer than %d bytes", HB_BODY_MAX);
	}
	return n < 0 ? hb_fail_errno(err, "unreadable", "standard input") : 0;
}

int ctl_cmd_explain(struct ctl *c, int argc, char **argv)
{
	const char *bounds_path = NULL;
	const struct ctl_option options[] = {{"bounds", "FILE", "also check these bounds", &bounds_path, NULL}};
	struct hb_bounds *bounds = NULL;
	struct hb_error err = {0};
	struct hb_buf text = HB_BUF_INIT;
	json_t *out = NULL;

	if (ctl_parse(c, "explain", options, 1, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if ((!bounds_path || hb_bounds_load(AT_FDCWD, bounds_path, &bounds, &err) == 0) && read_stdin(&text, &err) == 0)
		out = hb_explain(text.data ? text.data : "", text.len, bounds, &err);
	hb_buf_free(&text);
	hb_bounds_free(bounds);
	c->json = true; /* the answer is JSON in any case */
	if (!out) {
		ctl_error(c, &err);
		return CTL_FAILED; /* the contract of this command: an error is exit 1 */
	}
	return ctl_result(c, out, CTL_OK);
}

static int verify_grant(const char *key_path, const char *path, struct hb_grant *g, struct hb_error *err)
{
	struct hb_public_key key;
	struct hb_buf text = HB_BUF_INIT;
	json_t *envelope = NULL;
	int rc = -1;

	if (hb_public_key_load(AT_FDCWD, key_path, &key, err) < 0 || hb_fs_read(AT_FDCWD, path, HB_BODY_MAX, &text, err) < 0)
		goto out;
	envelope = hb_json_parse(text.data ? text.data : "", text.len, err);
	if (envelope)
		rc = hb_grant_open(envelope, &key, g, err);
out:
	json_decref(envelope);
	hb_buf_free(&text);
	return rc;
}

int ctl_cmd_grant_verify(struct ctl *c, int argc, char **argv)
{
	const char *key = NULL;
	const struct ctl_option options[] = {{"key", "FILE", "the approver's public key", &key, NULL}};
	struct hb_error err = {0};
	struct hb_grant g;
	char from[32], to[32];

	if (ctl_parse(c, "grant verify", options, 1, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	if (!key) {
		fprintf(stderr, "hermesctl grant verify: --key FILE is missing (the approver's public key, "
			"public/approver.pub in the state directory)\n");
		return CTL_USAGE;
	}
	if (verify_grant(key, argv[0], &g, &err) < 0) {
		ctl_error(c, &err);
		return CTL_FAILED;
	}
	if (!c->json) {
		ctl_time(g.issued_at, from, sizeof from);
		ctl_time(g.expires_at, to, sizeof to);
		printf("The signature is good (key %s).\n%s: %s %s by user %s\ndigest %s\nissued %s, expires %s\n"
		       "audience %s, generation %lld, grant %s\n", g.key_id, g.approved ? "approved" : "denied", g.feature,
		       g.action, g.user_ids[0], g.digest, from, to, g.audience, (long long)g.generation, g.grant_id);
	}
	return ctl_result(c, json_pack("{s:s,s:o}", "status", "ok", "grant", hb_grant_to_json(&g)), CTL_OK);
}

static const enum hb_peer audited[] = {HB_PEER_BROKER, HB_PEER_FETCHER, HB_PEER_INSTALLER, HB_PEER_DOCKER,
				       HB_PEER_SSH, HB_PEER_APPROVER, HB_PEER_ADMIN};

int ctl_cmd_audit_verify(struct ctl *c, int argc, char **argv)
{
	json_t *chains = json_object();
	struct hb_error err = {0};
	int code = CTL_OK;

	if (ctl_parse(c, "audit verify", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	for (size_t i = 0; i < sizeof audited / sizeof audited[0]; i++) {
		struct hb_audit_head head = {0};
		char path[64];
		json_t *entry;
		snprintf(path, sizeof path, "%s/audit.log", hb_peer_dir(audited[i]));
		if (hb_audit_verify(AT_FDCWD, path, &head, &err) == 0)
			entry = json_pack("{s:s,s:I,s:s}", "status", "ok", "records", (json_int_t)head.seq, "head", head.hash);
		else {
			code = CTL_FAILED;
			entry = json_pack("{s:s,s:s,s:s}", "status", "broken", "error", err.message, "code", err.code);
		}
		if (!c->json) {
			printf("%-10s %s", hb_peer_dir(audited[i]), hb_json_text(entry, "status", ""));
			if (*head.hash)
				printf("  %lld records, head %.16s", (long long)head.seq, head.hash);
			printf("%s%s\n", json_object_get(entry, "error") ? ": " : "", hb_json_text(entry, "error", ""));
		}
		json_object_set_new(chains, hb_peer_dir(audited[i]), entry);
	}
	return ctl_result(c, json_pack("{s:b,s:o}", "ok", code == CTL_OK, "chains", chains), code);
}

/* The last lines of one chain, oldest first in the terminal; read without the writer's lock. */
static json_t *audit_lines(const char *process, long limit, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	json_t *records = json_array();
	char path[64];
	char *save = NULL;

	snprintf(path, sizeof path, "%.30s/audit.log", process);
	if (hb_fs_read(AT_FDCWD, path, (size_t)1 << 30, &text, err) < 0) {
		json_decref(records);
		return NULL;
	}
	for (char *line = text.len ? strtok_r(text.data, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		json_t *record = json_loads(line, 0, NULL);
		if (record)
			json_array_append_new(records, record);
		if (json_array_size(records) > (size_t)limit)
			json_array_remove(records, 0);
	}
	hb_buf_free(&text);
	return records;
}

static void print_records(const json_t *records)
{
	json_t *r;
	size_t i;

	json_array_foreach(records, i, r) {
		char when[32], *detail = json_dumps(json_object_get(r, "detail"), JSON_COMPACT | JSON_ENSURE_ASCII);
		ctl_time(hb_json_int(r, "ts", 0), when, sizeof when);
		printf("%6lld  %s  %-20s %-9s %s\n", hb_json_int(r, "seq", 0), when, hb_json_text(r, "action", "?"),
		       hb_json_text(r, "status", "?"), detail ? detail : "");
		free(detail);
	}
}

int ctl_cmd_audit_show(struct ctl *c, int argc, char **argv)
{
	const char *process = NULL, *limit = NULL;
	const struct ctl_option options[] = {
		{"process", "NAME", "broker (default), approver, installer, fetcher, docker, ssh or admin", &process, NULL},
		{"limit", "N", "how many (default 20)", &limit, NULL},
	};
	struct hb_error err = {0};
	json_t *records = NULL;
	bool known = false;

	if (ctl_parse(c, "audit show", options, 2, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (!process)
		process = "broker";
	for (size_t i = 0; i < sizeof audited / sizeof audited[0]; i++)
		known = known || strcmp(process, hb_peer_dir(audited[i])) == 0;
	if (!known)
		hb_fail(&err, "usage", "no process \"%.30s\" keeps an audit log", process);
	else if (ctl_open(c, &err) == 0)
		records = audit_lines(process, limit && atol(limit) > 0 ? atol(limit) : 20, &err);
	if (!records)
		return ctl_error(c, &err);
	if (!c->json)
		print_records(records);
	return ctl_result(c, json_pack("{s:s,s:o}", "process", process, "records", records), CTL_OK);
}
