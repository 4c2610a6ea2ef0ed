/*
 * hermesctl ssh profile add, verify, set-password, remove: root on this host only.
 *
 * A host key is believed because a person has its fingerprint from somewhere else than this
 * connection, and types it: what the host shows is never offered to be copied. Passwords come from
 * the terminal only. A new profile is made beside the others under a name that is none, and gets
 * its own by one rename.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin/ctl/ssh_profile.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/paths.h"
#include "policy/text.h"

static int begin(struct ctl *c, struct hb_error *err)
{
	if (ctl_open(c, err) < 0)
		return -1;
	return geteuid() == 0 ? 0
			      : hb_fail(err, "not_root",
					"profiles belong to root's decisions: run it with sudo");
}

static const struct hb_ssh_host_key *find_key(const struct hb_ssh_host_key *keys, size_t count,
					      const char *fingerprint)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(keys[i].fingerprint, fingerprint) == 0)
			return &keys[i];
	return NULL;
}

/* The key that the person knows the fingerprint of, among those the host shows now. */
static int choose_key(struct ctl *c, const struct hb_ssh_profile *p, const char *given,
		      struct hb_ssh_host_key *out, struct hb_error *err)
{
	struct hb_ssh_host_key keys[CTL_SSH_KEYS_MAX];
	const struct hb_ssh_host_key *found;
	struct hb_secret typed = {0};
	struct hb_buf question = HB_BUF_INIT;
	size_t count;
	int rc = -1;

	if (ctl_ssh_scan(p->host, p->port, keys, &count, err) < 0)
		return -1;
	hb_buf_adds(&question, "The host shows keys of these types:");
	for (size_t i = 0; i < count; i++)
		hb_buf_printf(&question, " %s", keys[i].type);
	hb_buf_adds(&question, ".\nType the fingerprint (SHA256:...) of one that you have from "
			       "somewhere else, such as the host's own console:\n");
	if (!given && ctl_ssh_ask(c, question.data, false, &typed, err) < 0) {
		hb_fail_prefix(err, "the fingerprint of the host's key (or --fingerprint)");
		goto out;
	}
	found = find_key(keys, count, given ? given : typed.text);
	if (!found && !hb_is_fingerprint(given ? given : typed.text))
		hb_fail(err, "bad_fingerprint",
			"that is no fingerprint: SHA256: and 43 characters");
	else if (!found)
		hb_fail(err, "fingerprint_mismatch",
			"NO KEY OF THIS HOST HAS THAT FINGERPRINT. Nothing was changed. Either it "
			"was mistyped, or this is not the host that you mean");
	else {
		*out = *found;
		rc = 0;
	}
out:
	hb_secret_free(&typed);
	hb_buf_free(&question);
	return rc;
}

/* Typed twice. */
static int ask_password(struct ctl *c, struct hb_secret *out, struct hb_error *err)
{
	struct hb_secret again = {0};
	int rc;

	if (ctl_ssh_ask(c, "Password of the remote user:", true, out, err) < 0)
		return -1;
	rc = ctl_ssh_ask(c, "Again:", true, &again, err);
	if (rc == 0 && !hb_secret_equal(out, again.text))
		rc = hb_fail(err, "passwords_differ",
			     "the two were not the same; nothing was changed");
	hb_secret_free(&again);
	if (rc < 0)
		hb_secret_free(out);
	return rc;
}

/* A file that the operator named: found from where hermesctl was started, before it enters the
 * state directory. */
struct given {
	const char *path;
	int dir;
};

static int open_given(struct given *g, struct hb_error *err)
{
	const char *slash = g->path ? strrchr(g->path, '/') : NULL;
	char *parent;

	if (!g->path)
		return 0;
	parent = slash ? strndup(g->path, slash == g->path ? 1 : (size_t)(slash - g->path))
		       : hb_strdup(".");
	g->dir = parent ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	free(parent);
	return g->dir < 0 ? hb_fail_errno(err, "not_found", "%s can't be found", g->path) : 0;
}

/* Such a key, checked as the executor will. */
static int copy_key(int dir, const struct given *g, const char *name, struct hb_error *err)
{
	const char *slash = strrchr(g->path, '/');
	char type[32], fingerprint[52];
	struct hb_secret key;
	int rc;

	if (hb_secret_read(g->dir, slash ? slash + 1 : g->path, geteuid(), HB_SSH_IDENTITY_MAX,
			   &key, err) < 0)
		return hb_fail_prefix(err, "the key %s", g->path);
	rc = hb_ssh_identity(key.text, key.len, type, fingerprint, err);
	if (rc == 0) {
		/* hb_secret_read drops the newline at the end, which ssh insists on. */
		key.text[key.len] = '\n';
		rc = ctl_ssh_write(dir, name, key.text, key.len + 1, err);
	}
	hb_secret_free(&key);
	return rc;
}

/* A key of its own for this profile; *public is the line for the far side's authorized_keys. */
static int make_key(int dir, const char *path, const char *name, struct hb_buf *public,
		    struct hb_error *err)
{
	char comment[96], file[256];
	char *const argv[] = {(char *)"/usr/bin/ssh-keygen",
			      (char *)"-q",
			      (char *)"-t",
			      (char *)"ed25519",
			      (char *)"-N",
			      (char *)"",
			      (char *)"-C",
			      comment,
			      (char *)"-f",
			      file,
			      NULL};
	struct hb_buf ignored = HB_BUF_INIT;
	int rc;

	snprintf(comment, sizeof comment, "hermes-broker %s", name);
	snprintf(file, sizeof file, "%s/identity", path);
	rc = ctl_ssh_program(argv, geteuid(), &ignored, err);
	hb_buf_free(&ignored);
	if (rc < 0 || hb_fs_read(dir, "identity.pub", 4096, public, err) < 0)
		return -1;
	if (unlinkat(dir, "identity.pub", 0) < 0 ||
	    fchownat(dir, "identity", hb_peer_uid(HB_PEER_SSH), hb_peer_gid(HB_PEER_SSH),
		     AT_SYMLINK_NOFOLLOW) < 0)
		return hb_fail_errno(err, "profile_failed",
				     "the new key can't be given to the executor");
	return 0;
}

struct add {
	const char *host, *port, *user, *authority, *auth, *fingerprint;
	struct given identity, ca;
};

static int add_profile(const struct add *a, struct hb_ssh_profile *p, struct hb_error *err)
{
	char *end = NULL;
	long port = a->port ? strtol(a->port, &end, 10) : 22;

	if (!a->host || !hb_host_name(a->host))
		return hb_fail(err, "usage", "--host wants a host name or numeric address");
	if (!a->user || !hb_ssh_user_name(a->user))
		return hb_fail(err, "usage", "--user wants a login name: letters, digits and _.-");
	if ((a->port && (*end || *a->port < '0' || *a->port > '9')) || port < 1 || port > 65535)
		return hb_fail(err, "usage", "--port wants a number from 1 to 65535");
	snprintf(p->host, sizeof p->host, "%s", a->host);
	snprintf(p->user, sizeof p->user, "%s", a->user);
	snprintf(p->authority, sizeof p->authority, "%s",
		 a->authority                   ? a->authority
		 : strcmp(a->user, "root") == 0 ? "root"
						: "user");
	snprintf(p->auth, sizeof p->auth, "%s", a->auth ? a->auth : "publickey");
	p->password = strcmp(p->auth, "password") == 0;
	p->port = (int)port;
	if (p->password && (a->identity.path || a->ca.path))
		return hb_fail(err, "usage", "--identity and --ca belong to --auth publickey");
	hb_random_hex(32, p->credential_revision);
	return 0;
}

/* Everything of the profile into `dir`. */
static int fill(struct ctl *c, const struct add *a, const char *name, const char *path, int dir,
		struct hb_ssh_profile *p, struct hb_buf *public, struct hb_error *err)
{
	struct hb_ssh_host_key key;
	struct hb_secret password = {0};
	int rc;

	if (choose_key(c, p, a->fingerprint, &key, err) < 0)
		return -1;
	snprintf(p->fingerprint, sizeof p->fingerprint, "%s", key.fingerprint);
	if (ctl_ssh_write_json(dir, p, err) < 0 || ctl_ssh_write_key(dir, p, &key, err) < 0)
		return -1;
	if (p->password) {
		if (ask_password(c, &password, err) < 0)
			return -1;
		rc = ctl_ssh_write(dir, "password", password.text, password.len, err);
		hb_secret_free(&password);
		return rc;
	}
	rc = a->identity.path ? copy_key(dir, &a->identity, "identity", err)
			      : make_key(dir, path, name, public, err);
	return rc == 0 && a->ca.path ? copy_key(dir, &a->ca, "ca", err) : rc;
}

static int add(struct ctl *c, const struct add *a, const char *name, struct hb_buf *public,
	       struct hb_error *err)
{
	struct hb_ssh_profile p = {0};
	char path[160], final[128], random[17];
	int dir = -1, top = -1, rc = -1;
	struct stat st;

	if (!hb_ssh_profile_name(name))
		return hb_fail(
			err, "usage",
			"a profile's name has lower-case letters, digits, '_' and '-', at most 64");
	snprintf(final, sizeof final, HB_PATH_SSH_PROFILES "/%s", name);
	if (lstat(final, &st) == 0)
		return hb_fail(err, "exists", "there is a profile %s already; remove it first",
			       name);
	if (add_profile(a, &p, err) < 0)
		return -1;
	hb_random_hex(8, random);
	snprintf(path, sizeof path, HB_PATH_SSH_PROFILES "/.new-%s-%s", name, random);
	if (mkdir(path, 0700) < 0 ||
	    (dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0) {
		hb_fail_errno(err, "profile_failed", "%s can't be made", path);
		goto out;
	}
	if (fill(c, a, name, path, dir, &p, public, err) < 0)
		goto out;
	if (fchown(dir, hb_peer_uid(HB_PEER_SSH), hb_peer_gid(HB_PEER_SSH)) < 0 || fsync(dir) < 0 ||
	    renameat2(AT_FDCWD, path, AT_FDCWD, final, RENAME_NOREPLACE) < 0)
		hb_fail_errno(err, "profile_failed", "%s can't be put in place", final);
	else
		rc = hb_fs_sync_dir(AT_FDCWD, HB_PATH_SSH_PROFILES, err);
out:
	hb_close(&dir);
	if (rc < 0) {
		top = hb_fs_open_beneath(AT_FDCWD, HB_PATH_SSH_PROFILES, O_RDONLY | O_DIRECTORY, 0,
					 NULL);
		if (top >= 0)
			hb_fs_remove_tree(top, strrchr(path, '/') + 1, NULL);
		hb_close(&top);
	}
	return rc;
}

int ctl_cmd_ssh_profile_add(struct ctl *c, int argc, char **argv)
{
	struct add a = {.identity.dir = -1, .ca.dir = -1};
	const struct ctl_option options[] = {
		{"host", "HOST", "name or numeric address", &a.host, NULL},
		{"port", "N", "default 22", &a.port, NULL},
		{"user", "NAME", "login name there", &a.user, NULL},
		{"authority", "WORD", "what that user may do: user, root, sudo-nopasswd",
		 &a.authority, NULL},
		{"auth", "WORD", "publickey (default) or password (asked in the terminal)", &a.auth,
		 NULL},
		{"identity", "FILE", "this private key; without it a new one is made",
		 &a.identity.path, NULL},
		{"ca", "FILE", "user CA key: each run gets a certificate of its own", &a.ca.path,
		 NULL},
		{"fingerprint", "SHA256:..", "the independently verified one, instead of typing it",
		 &a.fingerprint, NULL},
	};
	struct hb_buf public = HB_BUF_INIT;
	struct hb_error err = {0};
	json_t *result;
	bool failed;

	if (ctl_parse(c, "ssh profile add", options, sizeof options / sizeof *options, argc, argv,
		      1, 1) < 0)
		return CTL_USAGE;
	failed = open_given(&a.identity, &err) < 0 || open_given(&a.ca, &err) < 0 ||
		 begin(c, &err) < 0 || add(c, &a, argv[0], &public, &err) < 0;
	hb_close(&a.identity.dir);
	hb_close(&a.ca.dir);
	if (failed) {
		hb_buf_free(&public);
		return ctl_error(c, &err);
	}
	if (!c->json) {
		printf("Profile %s is made.\n", argv[0]);
		if (public.len)
			printf("Add this line to ~/.ssh/authorized_keys of the user there:\n%s",
			       public.data);
	}
	result = json_pack("{s:s, s:s, s:s?}", "status", "ok", "profile", argv[0], "public_key",
			   public.data);
	hb_buf_free(&public);
	return ctl_result(c, result, CTL_OK);
}

/* Asks the host again. The same key: fine. Another one is pinned only with a fingerprint from a
 * person. */
static int verify(struct ctl *c, const char *name, const char *fingerprint, bool *changed,
		  struct hb_error *err)
{
	struct hb_ssh_host_key keys[CTL_SSH_KEYS_MAX], key;
	struct hb_ssh_profile p;
	size_t count;
	int dir = ctl_ssh_open(name, &p, err), rc = -1;

	if (dir < 0 || ctl_ssh_scan(p.host, p.port, keys, &count, err) < 0)
		goto out;
	if (find_key(keys, count, p.fingerprint)) {
		*changed = false;
		rc = 0;
		goto out;
	}
	ctl_note(c,
		 "THE PINNED KEY %s IS NOT AMONG THOSE THAT THE HOST SHOWS NOW. It was replaced, "
		 "or somebody stands in between.",
		 p.fingerprint);
	if (!fingerprint && (c->no_input || !isatty(STDIN_FILENO))) {
		hb_fail(err, "host_key_changed",
			"profile %s: the host shows other keys than the pinned one; nothing was "
			"changed",
			name);
		goto out;
	}
	if (choose_key(c, &p, fingerprint, &key, err) < 0)
		goto out;
	snprintf(p.fingerprint, sizeof p.fingerprint, "%s", key.fingerprint);
	/* In between the two differ, and the profile is refused. */
	if (ctl_ssh_write_key(dir, &p, &key, err) < 0 || ctl_ssh_write_json(dir, &p, err) < 0)
		goto out;
	*changed = true;
	rc = 0;
out:
	hb_close(&dir);
	return rc;
}

int ctl_cmd_ssh_profile_verify(struct ctl *c, int argc, char **argv)
{
	const char *fingerprint = NULL;
	const struct ctl_option options[] = {{"fingerprint", "SHA256:..",
					      "the independently verified one of the new key",
					      &fingerprint, NULL}};
	struct hb_error err = {0};
	bool changed = false;

	if (ctl_parse(c, "ssh profile verify", options, 1, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	if (begin(c, &err) < 0 || verify(c, argv[0], fingerprint, &changed, &err) < 0)
		return ctl_error(c, &err);
	if (!c->json)
		puts(changed ? "The new key is pinned." : "The host still has the pinned key.");
	return ctl_result(c, json_pack("{s:s, s:b}", "status", "ok", "changed", changed), CTL_OK);
}

int ctl_cmd_ssh_profile_set_password(struct ctl *c, int argc, char **argv)
{
	struct hb_ssh_profile p;
	struct hb_secret password = {0};
	struct hb_error err = {0};
	int dir = -1, rc = -1;

	if (ctl_parse(c, "ssh profile set-password", NULL, 0, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	if (begin(c, &err) < 0 || (dir = ctl_ssh_open(argv[0], &p, &err)) < 0)
		return ctl_error(c, &err);
	if (!p.password)
		hb_fail(&err, "usage", "profile %s logs in with a key", argv[0]);
	else if (ask_password(c, &password, &err) == 0) {
		hb_random_hex(32, p.credential_revision);
		rc = ctl_ssh_write(dir, "password", password.text, password.len, &err);
		if (rc == 0)
			rc = ctl_ssh_write_json(dir, &p, &err);
		hb_secret_free(&password);
	}
	hb_close(&dir);
	if (rc < 0)
		return ctl_error(c, &err);
	if (!c->json)
		puts("The new password is set; what was approved with the old one is refused.");
	return ctl_result(c, json_pack("{s:s}", "status", "ok"), CTL_OK);
}

static int remove_profile(struct ctl *c, const char *name, bool sure, struct hb_error *err)
{
	char question[128], path[128], gone[128];
	bool yes = sure;
	struct stat st;
	int top, rc;

	if (!hb_ssh_profile_name(name))
		return hb_fail(err, "usage", "that is no name of a profile");
	snprintf(path, sizeof path, HB_PATH_SSH_PROFILES "/%s", name);
	snprintf(gone, sizeof gone, HB_PATH_SSH_PROFILES "/.gone-%s", name);
	if (lstat(path, &st) < 0)
		return hb_fail(err, "not_found", "there is no profile %s", name);
	snprintf(question, sizeof question, "Remove profile %s with its credential?", name);
	if (!sure && ctl_confirm(c, question, &yes) < 0)
		return hb_fail(err, "no_terminal",
			       "there is no terminal to ask in; --yes removes it without asking");
	if (!yes)
		return hb_fail(err, "not_confirmed", "nothing was removed");
	top = hb_fs_open_beneath(AT_FDCWD, HB_PATH_SSH_PROFILES, O_RDONLY | O_DIRECTORY, 0, err);
	if (top < 0)
		return -1;
	/* At once for the executor, then file by file. */
	rc = hb_fs_remove_tree(top, strrchr(gone, '/') + 1, err);
	if (rc == 0 && rename(path, gone) < 0)
		rc = hb_fail_errno(err, "profile_failed", "%s can't be removed", path);
	if (rc == 0)
		rc = hb_fs_remove_tree(top, strrchr(gone, '/') + 1, err);
	hb_close(&top);
	return rc == 0 ? hb_fs_sync_dir(AT_FDCWD, HB_PATH_SSH_PROFILES, err) : -1;
}

int ctl_cmd_ssh_profile_remove(struct ctl *c, int argc, char **argv)
{
	const char *yes = NULL;
	const struct ctl_option options[] = {{"yes", NULL, "without asking", &yes, NULL}};
	struct hb_error err = {0};

	if (ctl_parse(c, "ssh profile remove", options, 1, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	if (begin(c, &err) < 0 || remove_profile(c, argv[0], yes != NULL, &err) < 0)
		return ctl_error(c, &err);
	if (!c->json)
		printf("Profile %s is removed.\n", argv[0]);
	return ctl_result(c, json_pack("{s:s}", "status", "ok"), CTL_OK);
}
