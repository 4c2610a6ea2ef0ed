/* The workspace and the release of local commands (workspace.h). */
#include "broker/docker/workspace.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/docker/docker.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/json.h"
#include "policy/live.h"
#include "policy/text.h"

bool hb_local_bubblewrap(const struct hb_config *config)
{
	return strcmp(hb_config_text(config, "local.backend"), "bubblewrap") == 0;
}

int hb_workspace_path(struct hb_worker *w, char **out, struct hb_error *err)
{
	struct hb_docker *d = w->ctx;
	const struct hb_config *config = d->process->config;
	const char *path = hb_config_text(config, "local.workspace");
	uid_t owner = hb_local_bubblewrap(config) ? hb_peer_uid(HB_PEER_DOCKER) : HB_SANDBOX_UID;
	struct hb_error why;
	struct stat st;
	char *real;

	if (!*path || !*hb_config_text(config, "local.image"))
		return hb_fail(
			err, "local_not_configured",
			"local commands need local.workspace and local.image in hermes.conf");
	if (path[0] != '/' || hb_resolve_path(path, &real, &why) < 0)
		return hb_fail(err, "workspace_missing", "local.workspace: %s",
			       path[0] == '/' ? why.message : "it must be an absolute path");
	if (hb_own_check_dir(&d->own, real, err) < 0)
		goto failed;
	if (stat(real, &st) < 0 || !S_ISDIR(st.st_mode)) {
		hb_fail(err, "workspace_missing", "local.workspace is not a directory");
		goto failed;
	}
	if (st.st_uid != owner) {
		hb_fail(err, "workspace_owner",
			"the workspace belongs to uid %u and not to uid %u, which local commands "
			"run "
			"as: chown %u local.workspace",
			(unsigned)st.st_uid, (unsigned)owner, (unsigned)owner);
		goto failed;
	}
	*out = real;
	return 0;
failed:
	free(real);
	return -1;
}

/* What of hermes.conf decides how a command is kept apart. */
static int settings_digest(const struct hb_config *config, char hex[HB_HEX256],
			   struct hb_error *err)
{
	static const char *const texts[] = {"local.backend", "local.image", "local.release",
					    "local.workspace", "local.cgroup"};
	static const char *const numbers[] = {"local.memory_mb", "local.cpus", "local.pids_limit"};
	json_t *all = json_object();
	int rc;

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		json_object_set_new(all, texts[i], json_string(hb_config_text(config, texts[i])));
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		json_object_set_new(all, numbers[i],
				    json_integer(hb_config_int(config, numbers[i])));
	rc = hb_json_digest(all, hex, err);
	json_decref(all);
	return rc;
}

int hb_workspace_seal(struct hb_worker *w, const json_t *request,
		      char generation[HB_WORKSPACE_GENERATION], struct hb_error *err)
{
	struct hb_docker *d = w->ctx;
	struct hb_policy_view view;
	char settings[HB_HEX256], *path = NULL;
	struct stat st;
	int rc = -1;

	if (hb_local_bubblewrap(d->process->config) &&
	    strcmp(hb_json_text(request, "network", ""), "egress") == 0)
		return hb_fail(err, "sandbox_no_egress",
			       "bubblewrap could give a command only the network of the host "
			       "itself, loopback included; "
			       "network egress needs local.backend = docker");
	if (hb_workspace_path(w, &path, err) < 0)
		return -1;
	if (stat(path, &st) < 0) {
		hb_fail_errno(err, "workspace_missing", "local.workspace can't be looked at");
		goto out;
	}
	if (settings_digest(d->process->config, settings, err) < 0 ||
	    hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, err) < 0)
		goto out;
	snprintf(generation, HB_WORKSPACE_GENERATION, "g%lld.d%llx-%llx.s%.16s",
		 (long long)view.live.generation, (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino, settings);
	hb_policy_view_free(&view);
	rc = 0;
out:
	free(path);
	return rc;
}

/* --- the release of bubblewrap --- */

/* Whoever can write it decides what runs. */
static int trusted(int fd, const char *name, struct hb_error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return hb_fail_errno(err, "release_missing", "%s can't be looked at", name);
	if ((st.st_uid != 0 && st.st_uid != hb_peer_uid(HB_PEER_UNPACK)) || (st.st_mode & 022) != 0)
		return hb_fail(err, "loose_permissions",
			       "%s must belong to root (or the unpack worker) and be writable by "
			       "nobody else (it is uid %u, "
			       "mode %04o)",
			       name, (unsigned)st.st_uid, st.st_mode & 07777);
	return 0;
}

static int hash_file(int fd, char hex[HB_HEX256], struct hb_error *err)
{
	struct hb_sha256 *h = hb_sha256_new();
	unsigned char sum[32];
	char chunk[65536];
	ssize_t n;

	while ((n = read(fd, chunk, sizeof chunk)) > 0)
		hb_sha256_update(h, chunk, (size_t)n);
	hb_sha256_final(h, sum);
	hb_sha256_free(h);
	if (n < 0)
		return hb_fail_errno(err, "release_missing",
				     "the release's manifest.mtree can't be read");
	hb_hex(sum, sizeof sum, hex);
	return 0;
}

int hb_release_check(const struct hb_config *config, char hex[HB_HEX256], struct hb_error *err)
{
	const char *path = hb_config_text(config, "local.release");
	char pinned[HB_HEX256], found[HB_HEX256];
	int dir = -1, root = -1, manifest = -1, rc = -1;

	if (!*path)
		return hb_fail(err, "local_not_configured",
			       "local.backend = bubblewrap needs local.release");
	if (hb_digest_parse(hb_config_text(config, "local.image"), pinned, err) < 0)
		return hb_fail(err, "local_not_configured",
			       "with bubblewrap local.image must be sha256:HEX, the digest of the "
			       "release's manifest.mtree");
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0) {
		hb_fail_errno(err, "release_missing", "the release local.release can't be opened");
		goto out;
	}
	root = openat(dir, "rootfs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	manifest = openat(dir, "manifest.mtree", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (root < 0 || manifest < 0) {
		hb_fail_errno(err, "release_missing",
			      "the release local.release has no rootfs/ or no manifest.mtree");
		goto out;
	}
	if (trusted(dir, "local.release", err) < 0 ||
	    trusted(root, "local.release rootfs", err) < 0 ||
	    trusted(manifest, "local.release manifest.mtree", err) < 0 ||
	    hash_file(manifest, found, err) < 0)
		goto out;
	if (strcmp(found, pinned) != 0) {
		hb_fail(err, "release_differs",
			"the release has the tree digest %s and not the one that local.image pins",
			found);
		goto out;
	}
	memcpy(hex, pinned, HB_HEX256);
	rc = 0;
out:
	hb_close(&dir);
	hb_close(&root);
	hb_close(&manifest);
	return rc;
}
