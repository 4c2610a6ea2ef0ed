/* What needs no running process: explain a request, check a grant. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/files.h"
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

int ctl_open_parent(const char *path, const char **name, struct hb_error *err)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : hb_strdup(".");
	int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	*name = slash ? slash + 1 : path;
	if (fd < 0)
		hb_fail_errno(err, "not_found", "can't enter %s", dir);
	free(dir);
	return fd;
}

int ctl_load_public_key(const char *path, struct hb_public_key *key, struct hb_error *err)
{
	const char *name;
	int fd = ctl_open_parent(path, &name, err), rc;

	if (fd < 0)
		return -1;
	rc = hb_public_key_load(fd, name, key, err);
	hb_close(&fd);
	return rc;
}

static int read_file(const char *path, struct hb_buf *out, struct hb_error *err)
{
	const char *name;
	int fd = ctl_open_parent(path, &name, err), rc;

	if (fd < 0)
		return -1;
	rc = hb_fs_read(fd, name, HB_BODY_MAX, out, err);
	hb_close(&fd);
	return rc;
}

static int verify_grant(const char *key_path, const char *path, struct hb_grant *g, struct hb_error *err)
{
	struct hb_public_key key;
	struct hb_buf text = HB_BUF_INIT;
	json_t *envelope = NULL;
	int rc = -1;

	if (ctl_load_public_key(key_path, &key, err) < 0 || read_file(path, &text, err) < 0)
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
