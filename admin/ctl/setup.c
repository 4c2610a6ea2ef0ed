/*
 * The state directory: made once, completed when something is missing, never overwritten. Every directory and file of
 * common/paths.h with its owner and mode stands in one table here.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/keys.h"
#include "common/paths.h"
#include "onboarding/guardrail.h"
#include "policy/image_ref.h"
#include "policy/live.h"

#define ROOT HB_PEER_LAUNCHER

/* run/ directories are entered by their server's callers; everything else of a process is its own. */
static const struct {
	const char *path;
	mode_t mode;
	enum hb_peer owner;
	bool callers;
} directories[] = {
	{HB_PATH_CONF, 0755, ROOT, false},
	{"public", 0755, ROOT, false},
	{"public/approver", 0755, HB_PEER_APPROVER, false},
	{"public/retired", 0755, ROOT, false},
	{"log", 0755, ROOT, false},
	{"run", 0755, ROOT, false},
	{"clients", 0755, ROOT, false},
	{"policy", 0755, HB_PEER_ADMIN, false},
	{"run/broker", 0750, HB_PEER_BROKER, true},
	{"run/fetcher", 0750, HB_PEER_FETCHER, true},
	{"run/installer", 0750, HB_PEER_INSTALLER, true},
	{"run/docker", 0750, HB_PEER_DOCKER, true},
	{"run/ssh", 0750, HB_PEER_SSH, true},
	{"run/approver", 0750, HB_PEER_APPROVER, true},
	{"run/admin", 0750, HB_PEER_ADMIN, true},
	{"broker", 0700, HB_PEER_BROKER, false},
	{"fetcher", 0700, HB_PEER_FETCHER, false},
	{"installer", 0700, HB_PEER_INSTALLER, false},
	{"docker", 0700, HB_PEER_DOCKER, false},
	{"ssh", 0700, HB_PEER_SSH, false},
	{"ssh/profiles", 0700, HB_PEER_SSH, false},
	{"approver", 0700, HB_PEER_APPROVER, false},
	{"admin", 0700, HB_PEER_ADMIN, false},
	{"probe", 0700, HB_PEER_PROBE, false},
	{"probe/keys", 0700, HB_PEER_PROBE, false},
	{"onboarding", 0700, ROOT, false},
};

bool ctl_layout(size_t i, struct ctl_layout_entry *out)
{
	if (i >= sizeof directories / sizeof directories[0])
		return false;
	out->path = directories[i].path;
	out->uid = hb_peer_uid(directories[i].owner);
	out->gid = directories[i].callers ? hb_peer_callers_gid(directories[i].owner) : hb_peer_gid(directories[i].owner);
	out->mode = directories[i].mode;
	return true;
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static int make_directories(int *changed, struct hb_error *err)
{
	struct ctl_layout_entry e;

	for (size_t i = 0; ctl_layout(i, &e); i++) {
		*changed += !exists(e.path);
		if (hb_fs_mkdirs(AT_FDCWD, e.path, e.mode, e.uid, e.gid, err) < 0)
			return -1;
	}
	return 0;
}

/* 256 random bits in hex; written only when missing. */
static int make_secret(const char *path, enum hb_peer owner, int *changed, struct hb_error *err)
{
	char hex[66];
	int rc;

	if (exists(path))
		return 0;
	hb_random_hex(32, hex);
	strcat(hex, "\n");
	rc = hb_fs_write_atomic(AT_FDCWD, path, hex, 65, 0600, hb_peer_uid(owner), hb_peer_gid(owner), err);
	sodium_memzero(hex, sizeof hex);
	*changed += rc == 0;
	return rc;
}

/* The same secret for a second reader, as a file of its own. */
static int copy_secret(const char *from, enum hb_peer from_owner, const char *to, mode_t mode, uid_t uid, gid_t gid,
		       int *changed, struct hb_error *err)
{
	struct hb_secret s;
	int rc;

	if (exists(to))
		return 0;
	if (hb_secret_read(AT_FDCWD, from, hb_peer_uid(from_owner), 512, &s, err) < 0)
		return -1;
	rc = hb_fs_write_atomic(AT_FDCWD, to, s.text, s.len, mode, uid, gid, err);
	hb_secret_free(&s);
	*changed += rc == 0;
	return rc;
}

/* What a client reads; the broker's group may write it, so that a rotation arrives, and not read it. */
static int deliverable(const char *path, uid_t uid, struct hb_error *err)
{
	gid_t gid = hb_peer_gid(HB_PEER_BROKER);
	int fd = hb_fs_open_beneath(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0, err);
	struct stat st;
	int rc = 0;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
		rc = hb_fail(err, "state", "%s must be a regular file with one name: remove it", path);
	else if ((st.st_uid != uid || st.st_gid != gid || (st.st_mode & 07777) != 0620) &&
		 (fchown(fd, uid, gid) < 0 || fchmod(fd, 0620) < 0))
		rc = hb_fail_errno(err, "state", "can't set owner and mode of %s", path);
	hb_close(&fd);
	return rc;
}

static int client_secrets(const struct hb_config *config, int *changed, struct hb_error *err)
{
	gid_t broker = hb_peer_gid(HB_PEER_BROKER);
	const char **uids;
	size_t n = hb_config_list(config, "broker.client_uids", &uids);

	for (size_t i = 0; i < n; i++) {
		unsigned long uid = strtoul(uids[i], NULL, 10);
		char path[64];
		snprintf(path, sizeof path, "clients/%lu", uid);
		if (hb_fs_mkdirs(AT_FDCWD, path, 0710, (uid_t)uid, broker, err) < 0)
			return -1;
		snprintf(path, sizeof path, "clients/%lu/control-secret", uid);
		if (copy_secret(HB_PATH_CONTROL_SECRET, HB_PEER_BROKER, path, 0620, (uid_t)uid, broker, changed, err) < 0 ||
		    deliverable(path, (uid_t)uid, err) < 0)
			return -1;
	}
	return 0;
}

static int make_secrets(const struct hb_config *config, int *changed, struct hb_error *err)
{
	char id[34];

	if (!exists(HB_PATH_HOST_ID)) {
		hb_random_hex(16, id);
		strcat(id, "\n");
		if (hb_fs_write_atomic(AT_FDCWD, HB_PATH_HOST_ID, id, 33, 0644, 0, 0, err) < 0)
			return -1;
		++*changed;
	}
	if (make_secret(HB_PATH_CONTROL_SECRET, HB_PEER_BROKER, changed, err) < 0 ||
	    make_secret(HB_PATH_APPROVER_APPROVAL_SECRET, HB_PEER_APPROVER, changed, err) < 0 ||
	    copy_secret(HB_PATH_APPROVER_APPROVAL_SECRET, HB_PEER_APPROVER, HB_PATH_BROKER_APPROVAL_SECRET, 0600,
			hb_peer_uid(HB_PEER_BROKER), hb_peer_gid(HB_PEER_BROKER), changed, err) < 0 ||
	    make_secret(HB_PATH_ADMIN_KEY, HB_PEER_ADMIN, changed, err) < 0 ||
	    make_secret(HB_PATH_SCRAPE_KEY, HB_PEER_ADMIN, changed, err) < 0 ||
	    make_secret(HB_PATH_SSH_INTEGRITY, HB_PEER_SSH, changed, err) < 0 ||
	    client_secrets(config, changed, err) < 0)
		return -1;
	if (!exists(HB_PATH_SIGNING_KEY)) {
		if (hb_keys_create(AT_FDCWD, HB_PATH_SIGNING_KEY, hb_peer_uid(HB_PEER_APPROVER),
				   hb_peer_gid(HB_PEER_APPROVER), HB_PATH_PUBLIC_KEY, err) < 0)
			return -1;
		++*changed;
	}
	return 0;
}

static int make_storage(const struct hb_config *config, int *changed, struct hb_error *err)
{
	const char *storage = hb_config_text(config, "runtime.storage"), *data = hb_config_text(config, "runtime.data");
	char path[512];

	if (storage[0] != '/')
		return hb_fail(err, "bad_storage", "runtime.storage must be an absolute path, not \"%s\"", storage);
	if (data[0] != '/' || strlen(data) < 2 || data[strlen(data) - 1] == '/')
		return hb_fail(err, "bad_data", "runtime.data must be an absolute path without a slash at its end, not \"%s\"",
			       data);
	*changed += !exists(storage);
	/* The data directory itself is made by the installer; what it stands in must be there before it is confined. */
	snprintf(path, sizeof path, "%.*s", (int)(strrchr(data, '/') - data), data);
	if (*path && !exists(path) && hb_fs_mkdirs(AT_FDCWD, path, 0755, 0, 0, err) < 0)
		return -1;
	snprintf(path, sizeof path, "%s/releases", storage);
	if (hb_fs_mkdirs(AT_FDCWD, storage, 0755, 0, 0, err) < 0 || hb_fs_mkdirs(AT_FDCWD, path, 0755, 0, 0, err) < 0)
		return -1;
	snprintf(path, sizeof path, "%s/blobs", storage);
	if (hb_fs_mkdirs(AT_FDCWD, path, 0755, hb_peer_uid(HB_PEER_FETCHER), hb_peer_gid(HB_PEER_FETCHER), err) < 0)
		return -1;
	snprintf(path, sizeof path, "%s/blobs/sha256", storage);
	return hb_fs_mkdirs(AT_FDCWD, path, 0755, hb_peer_uid(HB_PEER_FETCHER), hb_peer_gid(HB_PEER_FETCHER), err);
}

/* hermes.conf with everything at its value; an existing one is kept unless settings are given. */
static int write_config(const struct ctl_setup *s, struct hb_config **config, int *changed, struct hb_error *err)
{
	const char *overrides[64];
	char image[1024], mirror[1024], insecure[512];
	struct hb_image_ref ref;
	struct hb_buf text = HB_BUF_INIT, old = HB_BUF_INIT;
	size_t n = 0;
	int rc = -1;

	if (s->image) {
		if (hb_image_ref_parse(s->image, true, &ref, err) < 0)
			return -1;
		snprintf(image, sizeof image, "runtime.image=%s", s->image);
		overrides[n++] = image;
		overrides[n++] = "runtime.platform_digest=";
	}
	if (s->insecure_registry) {
		snprintf(insecure, sizeof insecure, "fetcher.insecure_registries=%s", s->insecure_registry);
		overrides[n++] = insecure;
	}
	for (size_t i = 0; s->settings && s->settings[i]; i++) {
		if (n >= 60)
			return hb_fail(err, "usage", "too many --set options (at most 57)");
		overrides[n++] = s->settings[i];
	}
	if (exists(HB_PATH_CONFIG))
		rc = hb_config_load(AT_FDCWD, HB_PATH_CONFIG, overrides, n, config, err);
	else
		rc = hb_config_defaults(overrides, n, config, err);
	if (rc == 0 && s->mirror) {
		rc = hb_image_ref_parse(hb_config_text(*config, "runtime.image"), true, &ref, err);
		snprintf(mirror, sizeof mirror, "fetcher.mirrors=%s=%s", ref.registry, s->mirror);
		overrides[n++] = mirror;
		hb_config_free(*config);
		*config = NULL;
		if (rc == 0)
			rc = exists(HB_PATH_CONFIG)
				     ? hb_config_load(AT_FDCWD, HB_PATH_CONFIG, overrides, n, config, err)
				     : hb_config_defaults(overrides, n, config, err);
	}
	if (rc < 0)
		return -1;
	hb_config_print(*config, &text);
	if (exists(HB_PATH_CONFIG) && (n == 0 || (hb_fs_read(AT_FDCWD, HB_PATH_CONFIG, 1 << 20, &old, NULL) == 0 &&
						  old.len == text.len && memcmp(old.data, text.data, text.len) == 0)))
		rc = 0;
	else {
		rc = hb_fs_write_atomic(AT_FDCWD, HB_PATH_CONFIG, text.data, text.len, 0644, 0, 0, err);
		++*changed;
	}
	hb_buf_free(&text);
	hb_buf_free(&old);
	return rc;
}

/* One more item in a list of bounds.conf, the rest of the file as it was. */
static int extend_list(const char *section, const char *key, const char *item, int *changed, struct hb_error *err)
{
	struct hb_buf old = HB_BUF_INIT, text = HB_BUF_INIT;
	char header[32], name[40];
	const char *line = NULL, *next, *end;
	int rc = -1;

	snprintf(header, sizeof header, "[%s]", section);
	snprintf(name, sizeof name, "\n%s", key);
	if (hb_fs_read(AT_FDCWD, HB_PATH_BOUNDS, 1 << 20, &old, err) < 0)
		return -1;
	line = old.len ? strstr(old.data, header) : NULL;
	next = line ? strstr(line, "\n[") : NULL;
	line = line ? strstr(line, name) : NULL;
	end = line && (!next || line < next) ? strchr(line + 1, '\n') : NULL;
	if (!end) {
		hb_fail(err, "out_of_bounds", "bounds.conf has no line `%s = ...` below [%s]: add %s there", key, section,
			item);
		goto out;
	}
	hb_buf_add(&text, old.data, (size_t)(end - old.data));
	hb_buf_printf(&text, end[-1] == '=' || end[-2] == '=' ? " %s" : ", %s", item);
	hb_buf_adds(&text, end);
	rc = hb_fs_write_atomic(AT_FDCWD, HB_PATH_BOUNDS, text.data, text.len, 0644, 0, 0, err);
	*changed += rc == 0;
out:
	hb_buf_free(&old);
	hb_buf_free(&text);
	return rc;
}

/* Root named another image on this host: its repository joins the bounds. */
static int extend_bounds(const char *name, int *changed, struct hb_error *err)
{
	struct hb_bounds *b = NULL;
	bool there;

	if (hb_bounds_load(AT_FDCWD, HB_PATH_BOUNDS, &b, err) < 0)
		return -1;
	there = hb_bounds_repository(b, name);
	hb_bounds_free(b);
	return there ? 0 : extend_list("images", "repositories", name, changed, err);
}

int ctl_bounds_add_user(const char *user, int *changed, struct hb_error *err)
{
	return extend_list("users", "allowed", user, changed, err);
}

/* The first bounds: this image's repository, the local console, and the users named. */
static int write_bounds(const struct ctl_setup *s, const struct hb_config *config, int *changed, struct hb_error *err)
{
	struct hb_image_ref ref;
	struct hb_buf text = HB_BUF_INIT;
	char name[600];
	int rc;

	if (hb_image_ref_parse(hb_config_text(config, "runtime.image"), true, &ref, err) < 0)
		return -1;
	hb_image_ref_name(&ref, name, sizeof name);
	if (exists(HB_PATH_BOUNDS))
		return s->image ? extend_bounds(name, changed, err) : 0;
	hb_buf_adds(&text,
		    "# What can't be widened from a phone or a web page: changed only here, by root.\n"
		    "# See bounds.conf(5).\n\n"
		    "[users]\n"
		    "# User ids that may ever be approvers. 0 is root at this host's console.\n"
		    "allowed = 0");
	for (size_t i = 0; s->users && s->users[i]; i++)
		hb_buf_printf(&text, ", %s", s->users[i]);
	hb_buf_printf(&text,
		      "\n\n[executors]\ndeployed = installer, docker, ssh\n\n"
		      "[images]\n# registry/repository; a last component \"all\" is any name below.\n"
		      "repositories = %s\n\n"
		      "[docker]\nprivileged = no\nhost_namespaces = no\ndevices = no\ncapabilities = no\n"
		      "published_addresses = no\nsecurity_opt = no\nsysctls = no\nbind_roots =\n\n"
		      "[quorum]\nruntime = 1\nlocal = 1\ndocker = 1\nssh = 1\n", name);
	rc = hb_fs_write_atomic(AT_FDCWD, HB_PATH_BOUNDS, text.data, text.len, 0644, 0, 0, err);
	*changed += rc == 0;
	hb_buf_free(&text);
	return rc;
}

static int first_policy(struct hb_policy *p, const struct hb_bounds *b, void *arg, struct hb_error *err)
{
	const char **users = arg;

	(void)b;
	(void)err;
	p->features = HB_FEATURE_RUNTIME;
	p->user_count = 0;
	snprintf(p->users[p->user_count++], sizeof p->users[0], "0");
	for (size_t i = 0; users && users[i] && p->user_count < HB_POLICY_USERS_MAX; i++)
		snprintf(p->users[p->user_count++], sizeof p->users[0], "%s", users[i]);
	return 0;
}

int ctl_setup_state(struct ctl *c, const struct ctl_setup *s, int *changed, struct hb_error *err)
{
	*changed = 0;
	if (geteuid() != 0)
		return hb_fail(err, "not_root", "setting up %s needs root: run it with sudo", c->state);
	umask(022);
	*changed += !exists(c->state);
	if (hb_fs_mkdirs(AT_FDCWD, c->state, 0755, 0, 0, err) < 0)
		return -1;
	if (chdir(c->state) < 0)
		return hb_fail_errno(err, "state", "can't enter %s", c->state);
	if (hb_fs_mkdirs(AT_FDCWD, HB_PATH_CONF, 0755, 0, 0, err) < 0 || write_config(s, &c->config, changed, err) < 0)
		return -1;
	hb_peers_init((uid_t)hb_config_int(c->config, "identities.base_uid"));
	if (make_directories(changed, err) < 0 || make_secrets(c->config, changed, err) < 0 ||
	    make_storage(c->config, changed, err) < 0 || write_bounds(s, c->config, changed, err) < 0 ||
	    hb_guardrails_ship(changed, err) < 0)
		return -1;
	if (!exists(HB_PATH_POLICY)) {
		if (hb_policy_update(hb_peer_uid(HB_PEER_ADMIN), true, first_policy, s->users, NULL, err) < 0)
			return -1;
		++*changed;
	}
	return 0;
}

int ctl_cmd_setup(struct ctl *c, int argc, char **argv)
{
	struct ctl_setup s = {0};
	const struct ctl_option options[] = {
		{"image", "REF", "repository:tag@sha256:... to install", &s.image, NULL},
		{"registry-mirror", "URL", "where to look for it first", &s.mirror, NULL},
		{"insecure-registry", "HOST:PORT", "loopback registry that speaks plain http", &s.insecure_registry, NULL},
		{"set", "SECTION.KEY=VALUE", "a setting of hermes.conf (repeatable)", NULL, &s.settings},
		{"user", "ID", "a further user id that may approve (repeatable)", NULL, &s.users},
	};
	struct hb_error err = {0};
	int changed = 0;

	if (ctl_parse(c, "setup", options, 5, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_setup_state(c, &s, &changed, &err) < 0)
		return ctl_error(c, &err);
	if (!c->json)
		printf(changed ? "%s is set up (%d things made or changed).\n" : "%s was set up already.\n", c->state,
		       changed);
	return ctl_result(c, json_pack("{s:s,s:i}", "status", "ok", "changed", changed), CTL_OK);
}
