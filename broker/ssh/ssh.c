/*
 * The SSH executor's door: it says how many profiles it found, and carries out nothing yet.
 *
 * A profile is a directory below ssh/profiles with a profile.json in it. They are counted at every
 * health request, and those that can't be read or whose name is not allowed are counted apart, so
 * that a mistake is seen early.
 */
#include "broker/ssh/ssh.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/paths.h"

#define PROFILE_NAME_MAX 64

struct ssh {
	struct hb_process *process;
};

struct profiles {
	int usable, broken;
	const char *error; /* of the directory itself */
};

/* ^[a-z0-9][a-z0-9_-]{0,63}$ */
static bool
name_ok(const char *name)
{
	size_t len = strlen(name);

	return len >= 1 && len <= PROFILE_NAME_MAX && name[0] != '_' && name[0] != '-' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

static struct profiles
profiles_count(void)
{
	struct profiles found = {0};
	struct dirent *de;
	DIR *dir = opendir(HB_PATH_SSH_PROFILES);

	if (dir == NULL) {
		if (errno != ENOENT) /* none were ever added */
			found.error = strerror(errno);
		return found;
	}
	while ((de = readdir(dir)) != NULL) {
		char path[300];
		struct stat st;

		if (de->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/profile.json", de->d_name);
		if (name_ok(de->d_name) &&
		    fstatat(dirfd(dir), path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0)
			found.usable++;
		else
			found.broken++;
	}
	closedir(dir);
	return found;
}

static void
health(struct hb_request *req, void *ctx)
{
	struct ssh *s = ctx;
	struct profiles found = profiles_count();
	json_t *answer = hb_process_health(s->process, NULL);
	json_t *checks = json_object_get(answer, "checks");

	json_object_set_new(checks, "deployed", json_false());
	json_object_set_new(checks, "ssh_profiles",
			    json_pack("{s:s, s:i, s:i, s:s*}", "path", HB_PATH_SSH_PROFILES,
				      "usable", found.usable, "broken", found.broken, "error",
				      found.error));
	hb_reply_json(req, 200, answer);
}

static void
not_deployed(struct hb_request *req, void *ctx)
{
	struct hb_error err;

	hb_fail(&err, "not_deployed",
		"SSH operations are not deployed in this version: nothing was done");
	hb_reply_error(req, 200, &err);
}

static const struct hb_route routes[] = {
	{HB_GET, "/health",
	 HB_PEER_BIT(HB_PEER_BROKER) | HB_PEER_BIT(HB_PEER_ADMIN) | HB_PEER_BIT(HB_PEER_LAUNCHER),
	 0, HB_ROUTE_NOBODY, health},
	{HB_POST, "/seal", HB_PEER_BIT(HB_PEER_BROKER), 0, 0, not_deployed},
	{HB_POST, "/execute", HB_PEER_BIT(HB_PEER_BROKER), 0, 0, not_deployed},
	{HB_POST, "/status", HB_PEER_BIT(HB_PEER_BROKER), 0, 0, not_deployed},
};

static void *
ssh_open(struct hb_process *p, struct hb_error *err)
{
	static struct ssh ssh;

	ssh.process = p;
	return &ssh;
}

static int
ssh_sandbox(struct hb_process *p, void *ctx, struct hb_sandbox *out, struct hb_error *err)
{
	static const struct hb_sandbox_path paths[] = {
		{"ssh", HB_FS_READ | HB_FS_WRITE}, /* its audit log and the profiles */
	};

	out->syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_UNIX | HB_SYS_EVENTS;
	out->paths = paths;
	out->path_count = sizeof(paths) / sizeof(paths[0]);
	return 0;
}

const struct hb_program hb_ssh_program = {
	.self = HB_PEER_SSH,
	.server = {.routes = routes, .route_count = sizeof(routes) / sizeof(routes[0])},
	.open = ssh_open,
	.sandbox = ssh_sandbox,
};
