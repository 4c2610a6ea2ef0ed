/*
 * hermesctl audit ...: read the chains, check them, and compare them with what others kept: the checkpoint that the
 * approver signed, and the witness line of a message on a phone. A chain that was cut together with its head file is
 * noticed by either.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/audit.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/paths.h"
#include "common/server.h"
#include "common/signed.h"

static const enum hb_peer audited[] = {HB_PEER_BROKER, HB_PEER_FETCHER, HB_PEER_INSTALLER, HB_PEER_DOCKER,
				       HB_PEER_SSH, HB_PEER_APPROVER, HB_PEER_ADMIN};
#define AUDITED (sizeof audited / sizeof audited[0])

/* hermesctl's own chain, about keys and inventory: kept by no process, and by none sent to the approver. */
#define OWN_CHAIN "onboarding"

/* The process with this name, or HB_PEER_COUNT. */
static enum hb_peer process_named(const char *name, size_t len)
{
	for (size_t i = 0; i < AUDITED; i++)
		if (strlen(hb_peer_dir(audited[i])) == len && strncmp(name, hb_peer_dir(audited[i]), len) == 0)
			return audited[i];
	return HB_PEER_COUNT;
}

/* ---- one place of one chain, as somebody else kept it ---- */

struct place {
	enum hb_peer process;
	long long seq;
	char hash[65]; /* whole, or its first digits */
};

struct look {
	const struct place *place;
	long long last;
	bool there, same;
};

static int look_at(const struct hb_audit_head *at, const char *line, size_t len, void *arg)
{
	struct look *l = arg;

	(void)line;
	(void)len;
	l->last = at->seq;
	if (at->seq < l->place->seq)
		return 0;
	l->there = true;
	l->same = strncmp(at->hash, l->place->hash, strlen(l->place->hash)) == 0;
	return 1;
}

/* In one of the chains that were set aside after they had been found cut or changed? */
static bool set_aside(const struct place *p)
{
	char dir[32], path[320];
	bool found = false;
	struct dirent *e;
	DIR *d;

	snprintf(dir, sizeof dir, "%s", hb_peer_dir(p->process));
	d = opendir(dir);
	while (d && !found && (e = readdir(d))) {
		struct look l = {.place = p};
		size_t len = strlen(e->d_name);
		if (strncmp(e->d_name, "audit.log.aside-", 16) != 0 || (len > 5 && strcmp(e->d_name + len - 5, ".head") == 0))
			continue;
		snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
		hb_audit_scan(AT_FDCWD, path, look_at, &l, NULL);
		found = l.there && l.same;
	}
	if (d)
		closedir(d);
	return found;
}

/* What became of a place: "ok", "set_aside", "cut" or "replaced"; *text says it to a person. */
static const char *judge(const struct place *p, char *text, size_t size)
{
	struct look l = {.place = p};
	struct hb_error err = {0};
	const char *name = hb_peer_dir(p->process);
	char path[64];

	snprintf(path, sizeof path, "%s/audit.log", name);
	int rc = hb_audit_scan(AT_FDCWD, path, look_at, &l, &err);
	if (l.there && l.same) {
		snprintf(text, size, "record %lld of %s is in its chain", p->seq, name);
		return "ok";
	}
	if (set_aside(p)) {
		snprintf(text, size, "record %lld of %s is in a chain that was set aside (hermesctl audit acknowledge)", p->seq,
			 name);
		return "set_aside";
	}
	if (l.there) {
		snprintf(text, size, "record %lld of %s is another one now: the chain was REPLACED", p->seq, name);
		return "replaced";
	}
	snprintf(text, size, "record %lld of %s is gone: the chain was CUT and ends with record %lld%s%s", p->seq, name, l.last,
		 rc < 0 ? "; " : "", rc < 0 ? err.message : "");
	return "cut";
}

static void report(struct ctl *c, json_t *list, const struct place *p, const char *from, int *code)
{
	char text[1024];
	const char *word = judge(p, text, sizeof text);

	if (strcmp(word, "ok") != 0 && strcmp(word, "set_aside") != 0)
		*code = CTL_FAILED;
	if (!c->json)
		printf("%-10s %s: %s\n", from, word, text);
	json_array_append_new(list, json_pack("{s:s,s:s,s:I,s:s,s:s}", "from", from, "process", hb_peer_dir(p->process), "seq",
					      (json_int_t)p->seq, "status", word, "text", text));
}

/* "NAME SEQ HEX", HEX at least eight digits, anywhere behind the word "Witness:"; -1 when there is none. */
static int check_witness(struct ctl *c, const char *text, json_t *list, int *code, struct hb_error *err)
{
	int found = 0;

	for (const char *at = strstr(text, "Witness:"); at; at = strstr(at, "Witness:")) {
		at += strlen("Witness:");
		for (;;) {
			struct place p = {0};
			size_t n;
			char *end;

			at += strspn(at, " ,");
			n = strspn(at, "abcdefghijklmnopqrstuvwxyz");
			p.process = process_named(at, n);
			if (p.process == HB_PEER_COUNT || at[n] != ' ')
				break;
			p.seq = strtoll(at + n, &end, 10);
			if (*end != ' ' || p.seq < 1)
				break;
			n = strspn(end + 1, "0123456789abcdef");
			if (n < 8 || n > 64)
				break;
			memcpy(p.hash, end + 1, n);
			at = end + 1 + n;
			report(c, list, &p, "witness", code);
			found++;
		}
	}
	if (!found)
		return hb_fail(err, "usage", "the text has no line like \"Witness: approver 12 0123456789ab\"");
	return 0;
}

/* Whatever the newest checkpoint names must still be there. A host without one yet is well. */
static void check_checkpoint(struct ctl *c, json_t *list, int *code)
{
	struct hb_buf text = HB_BUF_INIT;
	struct hb_keyring keys;
	struct hb_error err = {0};
	json_t *envelope = NULL, *record = NULL, *head;
	const char *name;

	if (hb_fs_read(AT_FDCWD, HB_PATH_CHECKPOINT, 65536, &text, &err) < 0 && strcmp(err.code, "not_found") == 0) {
		if (!c->json)
			puts("checkpoint none yet");
		hb_buf_free(&text);
		return;
	}
	if (text.len > 0 && hb_keyring_load(AT_FDCWD, hb_now(), &keys, &err) == 0) {
		hb_keyring_add_retired(AT_FDCWD, &keys);
		envelope = hb_json_parse(text.data, text.len, &err);
		record = envelope ? hb_signed_open(HB_KIND_CHECKPOINT, NULL, envelope, &keys, &err) : NULL;
	}
	if (!record) {
		*code = CTL_FAILED;
		if (!c->json)
			printf("checkpoint broken: %s\n", err.message);
		json_array_append_new(list, json_pack("{s:s,s:s,s:s}", "from", "checkpoint", "status", "broken", "text", err.message));
	}
	json_object_foreach (json_object_get(record, "heads"), name, head) {
		struct place p = {.process = process_named(name, strlen(name)), .seq = hb_json_int(head, "seq", 0)};
		if (p.process == HB_PEER_COUNT || p.seq < 1)
			continue;
		snprintf(p.hash, sizeof p.hash, "%s", hb_json_text(head, "hash", "?"));
		report(c, list, &p, "checkpoint", code);
	}
	json_decref(envelope);
	hb_buf_free(&text);
}

static void verify_chain(struct ctl *c, const char *dir, json_t *chains, int *code)
{
	struct hb_audit_head head = {0};
	struct hb_error err = {0};
	char path[64];
	json_t *entry;

	snprintf(path, sizeof path, "%s/audit.log", dir);
	if (hb_audit_verify(AT_FDCWD, path, &head, &err) == 0)
		entry = json_pack("{s:s,s:I,s:s}", "status", "ok", "records", (json_int_t)head.seq, "head", head.hash);
	else {
		*code = CTL_FAILED;
		entry = json_pack("{s:s,s:s,s:s}", "status", "broken", "error", err.message, "code", err.code);
	}
	if (!c->json) {
		printf("%-10s %s", dir, hb_json_text(entry, "status", ""));
		if (*head.hash)
			printf("  %lld records, head %.16s", (long long)head.seq, head.hash);
		printf("%s%s\n", json_object_get(entry, "error") ? ": " : "", hb_json_text(entry, "error", ""));
	}
	json_object_set_new(chains, dir, entry);
}

static json_t *verify_chains(struct ctl *c, int *code)
{
	json_t *chains = json_object();

	for (size_t i = 0; i < AUDITED; i++)
		verify_chain(c, hb_peer_dir(audited[i]), chains, code);
	if (access(OWN_CHAIN "/audit.log", F_OK) == 0 || access(OWN_CHAIN "/audit.log.head", F_OK) == 0)
		verify_chain(c, OWN_CHAIN, chains, code);
	return chains;
}

static int all_of_stdin(struct hb_buf *out, struct hb_error *err)
{
	char chunk[4096];
	ssize_t n;

	while ((n = read(STDIN_FILENO, chunk, sizeof chunk)) > 0) {
		hb_buf_add(out, chunk, (size_t)n);
		if (out->len > HB_BODY_MAX)
			return hb_fail(err, "too_large", "standard input is longer than %d bytes", HB_BODY_MAX);
	}
	return n < 0 ? hb_fail_errno(err, "unreadable", "standard input") : 0;
}

int ctl_cmd_audit_verify(struct ctl *c, int argc, char **argv)
{
	const char *witness = NULL;
	const struct ctl_option options[] = {
		{"witness", "TEXT", "a message of the approver, or its Witness line; - reads standard input", &witness, NULL}};
	struct hb_buf text = HB_BUF_INIT;
	struct hb_error err = {0};
	json_t *list = json_array(), *chains = NULL;
	int code = CTL_OK;

	if (ctl_parse(c, "audit verify", options, 1, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (witness && strcmp(witness, "-") != 0)
		hb_buf_adds(&text, witness);
	if ((witness && strcmp(witness, "-") == 0 && all_of_stdin(&text, &err) < 0) || ctl_open(c, &err) < 0)
		goto failed;
	chains = verify_chains(c, &code);
	check_checkpoint(c, list, &code);
	if (witness && check_witness(c, text.data ? text.data : "", list, &code, &err) < 0)
		goto failed;
	hb_buf_free(&text);
	return ctl_result(c, json_pack("{s:b,s:o,s:o}", "ok", code == CTL_OK, "chains", chains, "kept", list), code);
failed:
	hb_buf_free(&text);
	json_decref(list);
	json_decref(chains);
	return ctl_error(c, &err);
}

int ctl_cmd_audit_acknowledge(struct ctl *c, int argc, char **argv)
{
	const char *process = NULL, *reason = NULL;
	const struct ctl_option options[] = {
		{"process", "NAME", "whose chain: broker, approver, installer, fetcher, docker, ssh, admin or onboarding", &process, NULL},
		{"reason", "TEXT", "what was found out; it stands in the first record of the new chain", &reason, NULL},
	};
	struct hb_error err = {0};
	enum hb_peer p;
	char path[64];
	bool own;

	if (ctl_parse(c, "audit acknowledge", options, 2, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	p = process ? process_named(process, strlen(process)) : HB_PEER_COUNT;
	own = process && strcmp(process, OWN_CHAIN) == 0;
	if ((p == HB_PEER_COUNT && !own) || !reason || !*reason) {
		fprintf(stderr, "hermesctl audit acknowledge: --process NAME (of one that keeps a chain) and --reason TEXT are "
			"needed\n");
		return CTL_USAGE;
	}
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	snprintf(path, sizeof path, "%s/audit.log", own ? OWN_CHAIN : hb_peer_dir(p));
	if (hb_audit_verify(AT_FDCWD, path, NULL, &err) == 0)
		hb_fail(&err, "audit_intact", "the chain of %s is whole: there is nothing to acknowledge", process);
	else if (geteuid() != 0)
		hb_fail(&err, "not_root", "only root sets a chain aside: run it with sudo");
	else if (hb_audit_acknowledge(path, own ? OWN_CHAIN : hb_peer_name(p), reason, &err) == 0) {
		if (!c->json)
			printf("The old chain is kept beside it; a new one begins and says so. Once everything runs again:\n"
			       "hermesctl audit checkpoint --accept\n");
		return ctl_result(c, json_pack("{s:s,s:s}", "status", "ok", "process", process), CTL_OK);
	}
	return ctl_error(c, &err);
}

int ctl_cmd_audit_checkpoint(struct ctl *c, int argc, char **argv)
{
	const char *accept = NULL;
	const struct ctl_option options[] = {
		{"accept", NULL, "a chain that is shorter than the approver remembers is explained", &accept, NULL}};
	struct hb_error err = {0};
	json_t *heads = json_object(), *body, *answer;

	if (ctl_parse(c, "audit checkpoint", options, 1, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	for (size_t i = 0; i < AUDITED; i++) {
		struct hb_audit_head head;
		char path[64];
		if (audited[i] == HB_PEER_APPROVER)
			continue;
		snprintf(path, sizeof path, "%s/audit.log", hb_peer_dir(audited[i]));
		if (access(path, F_OK) != 0)
			continue; /* it never ran */
		if (hb_audit_verify(AT_FDCWD, path, &head, &err) < 0)
			return ctl_error(c, &err);
		json_object_set_new(heads, hb_peer_dir(audited[i]),
				    json_pack("{s:I,s:s,s:I}", "seq", (json_int_t)head.seq, "hash", head.hash, "at",
					      (json_int_t)hb_now()));
	}
	body = json_pack("{s:o,s:b}", "heads", heads, "accept", accept != NULL);
	answer = ctl_call(c, HB_PEER_APPROVER, "POST", "/console/checkpoint", body, &err);
	json_decref(body);
	if (!answer)
		return ctl_error(c, &err);
	if (!c->json)
		puts("The approver has signed a checkpoint of every chain.");
	return ctl_result(c, answer, CTL_OK);
}

/* ---- reading ---- */

/* The last lines of one chain, oldest first; read without the writer's lock. */
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
		{"process", "NAME", "broker (default), approver, installer, fetcher, docker, ssh, admin or onboarding", &process, NULL},
		{"limit", "N", "how many (default 20)", &limit, NULL},
	};
	struct hb_error err = {0};
	json_t *records = NULL;

	if (ctl_parse(c, "audit show", options, 2, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (!process)
		process = "broker";
	if (process_named(process, strlen(process)) == HB_PEER_COUNT && strcmp(process, OWN_CHAIN) != 0)
		hb_fail(&err, "usage", "no process \"%.30s\" keeps an audit log", process);
	else if (ctl_open(c, &err) == 0)
		records = audit_lines(process, limit && atol(limit) > 0 ? atol(limit) : 20, &err);
	if (!records)
		return ctl_error(c, &err);
	if (!c->json)
		print_records(records);
	return ctl_result(c, json_pack("{s:s,s:o}", "process", process, "records", records), CTL_OK);
}
