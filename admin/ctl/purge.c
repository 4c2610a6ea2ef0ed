/*
 * hermesctl purge: the end of an installation. Stops everything and removes the state directory with its keys, tokens,
 * profiles, ledgers and records. What the runtime made for its user (its data directory, backups) stays, and so do the
 * releases on disk; where they are is said.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/ssh_profile.h"
#include "common/buf.h"
#include "common/fs.h"

#define WORD "purge-execution"

static const char *const kept_keys[] = {"runtime.data", "runtime.storage", "runtime.backup_dir"};
#define KEPT (sizeof kept_keys / sizeof kept_keys[0])

/* Nothing that is kept may lie in what is removed. */
static int check_kept(struct ctl *c, const char *state, struct hb_error *err)
{
	size_t len = strlen(state);

	for (size_t i = 0; i < KEPT; i++) {
		const char *path = hb_config_text(c->config, kept_keys[i]);
		char real[PATH_MAX];
		if (!*path || !realpath(path, real))
			continue;
		if (strncmp(real, state, len) == 0 && (real[len] == '/' || real[len] == 0))
			return hb_fail(err, "data_inside",
				       "%s (%s) lies inside the state directory: move it out first", kept_keys[i], path);
	}
	return 0;
}

/* Backups lie in the state directory unless they are configured to lie elsewhere. */
static int check_backups(struct hb_error *err)
{
	DIR *d = opendir("installer/backups");
	struct dirent *e;
	bool any = false;

	while (d && (e = readdir(d)))
		any = any || e->d_name[0] != '.';
	if (d)
		closedir(d);
	return any ? hb_fail(err, "data_inside", "installer/backups in the state directory holds backups: move them out "
			     "first") : 0;
}

static int confirmed(struct ctl *c, struct hb_error *err)
{
	struct hb_secret typed = {0};
	char question[PATH_MAX + 160];
	bool right;

	snprintf(question, sizeof question,
		 "This ends everything and removes %s: keys, bot token, SSH profiles, records.\nType %s to go on:",
		 c->state, WORD);
	if (ctl_ssh_ask(c, question, false, &typed, err) < 0)
		return -1;
	right = strcmp(typed.text, WORD) == 0;
	hb_secret_free(&typed);
	return right ? 0 : hb_fail(err, "not_confirmed", "that is not %s: nothing was changed", WORD);
}

int ctl_cmd_purge(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	char state[PATH_MAX], *name;
	bool was_running;
	int parent;

	if (ctl_parse(c, "purge", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	if (geteuid() != 0 || !realpath(".", state) || strcmp(state, "/") == 0) {
		hb_fail(&err, "not_root", "this is for root: run it with sudo");
		return ctl_error(c, &err);
	}
	if (check_kept(c, state, &err) < 0 || check_backups(&err) < 0 || confirmed(c, &err) < 0 || ctl_down(c, &was_running, &err) < 0)
		return ctl_error(c, &err);
	name = strrchr(state, '/');
	parent = open("..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0 || hb_fs_remove_tree(parent, name + 1, &err) < 0) {
		if (parent < 0)
			hb_fail_errno(&err, "remove_failed", "can't remove %s", state);
		hb_close(&parent);
		return ctl_error(c, &err);
	}
	hb_close(&parent);
	if (!c->json) {
		printf("Removed %s.\nKept:\n", state);
		for (size_t i = 0; i < KEPT; i++)
			if (*hb_config_text(c->config, kept_keys[i]))
				printf("  %s (%s)\n", hb_config_text(c->config, kept_keys[i]), kept_keys[i]);
	}
	return ctl_result(c, json_pack("{s:s,s:s}", "status", "ok", "removed", state), CTL_OK);
}
