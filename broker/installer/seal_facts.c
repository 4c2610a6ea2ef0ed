/*
 * What sealing finds out about this host besides identities (seal.h): whether there is room, how the
 * data is protected, what earlier restores have set aside.
 *
 * It runs in the loop, so whatever depends on the size of the data ends early: a shortage that is
 * seen is refused here, with numbers; one that isn't is refused by the job.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/installer/backup.h"
#include "broker/installer/backup_internal.h"
#include "broker/installer/data_swap.h"
#include "broker/installer/install.h"
#include "broker/installer/installer.h"
#include "broker/installer/seal.h"
#include "broker/installer/snapshot.h"
#include "broker/installer/spec.h"
#include "common/fs.h"
#include "common/json.h"

/* Some tens of milliseconds. */
#define LOOK_AT 10000
/* Blocks and directories, besides content. */
#define RESTORED_FILE_COST 4096ull

static char *data_of(const struct hb_installer *in)
{
	return hb_spec_absolute(hb_config_text(in->process->config, "runtime.data"));
}

static bool is(const char *action, const char *one)
{
	return strcmp(action, one) == 0;
}

/* Only a lack of room is told here: what else is wrong, the job says better. */
static int only_space(int rc, const struct hb_error *found, struct hb_error *err)
{
	if (rc == 0 || strcmp(found->code, "not_enough_space") != 0)
		return 0;
	*err = *found;
	return -1;
}

/* A backup's content beside the data. */
static int restore_room(const char *data, const json_t *contents, struct hb_error *err)
{
	char *reach = hb_data_reach(data);
	int fd = open(reach, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

	if (fd >= 0)
		rc = hb_backup_need_room(
			fd, data,
			(uint64_t)hb_json_int(contents, "bytes", 0) +
				(uint64_t)hb_json_int(contents, "files", 0) * RESTORED_FILE_COST +
				HB_BACKUP_RESERVE,
			"what is in the backup", err);
	hb_close(&fd);
	free(reach);
	return rc;
}

int hb_seal_room(struct hb_installer *in, const json_t *request, const struct hb_chain *c,
		 const json_t *more, struct hb_error *err)
{
	const char *action = hb_json_text(request, "action", "");
	const json_t *snapshot = json_object_get(more, "snapshot");
	struct hb_error found = {"", ""};
	char current[HB_HEX256];
	char *data = data_of(in);
	int rc = 0;

	if (hb_store_link(&in->store, "current", current, err) < 0) {
		free(data);
		return -1;
	}
	if (c && !hb_store_has(&in->store, c->manifest))
		rc = hb_install_space(&in->store, c, &found);
	/* Another release than the current one is begun with a copy of the data. */
	if (rc == 0 && (is(action, "rollback") || (c && !is(action, "stage") && current[0] &&
						   strcmp(current, c->manifest) != 0)))
		rc = hb_snapshot_space(data, true,
				       snapshot ? hb_json_text(snapshot, "id", "") : NULL, LOOK_AT,
				       &found);
	if (is(action, "backup"))
		rc = hb_backup_room(&in->backups, in->age_fd >= 0, data, LOOK_AT, &found);
	if (is(action, "restore"))
		rc = restore_room(data, json_object_get(more, "contents"), &found);
	free(data);
	return only_space(rc, &found, err);
}

json_t *hb_seal_protection(const struct hb_backup_store *backups, const char *current)
{
	json_t *list = hb_backup_list(backups, NULL), *out = json_object(), *backup;
	const json_t *drill, *latest = NULL, *of = NULL;
	size_t i;

	/* Newest first. */
	json_array_foreach(list, i, backup)
	{
		if (!hb_json_bool(backup, "recorded", false))
			continue;
		if (!json_object_get(out, "last_backup"))
			json_object_set_new(
				out, "last_backup",
				json_pack("{s:O, s:O, s:O}", "name", json_object_get(backup, "name"),
					  "created_at", json_object_get(backup, "created_at"),
					  "last_verified",
					  json_object_get(backup, "last_verified")));
		drill = json_object_get(backup, "drill");
		if (drill && (!latest || hb_json_int(drill, "at", 0) > hb_json_int(latest, "at", 0))) {
			latest = drill;
			of = backup;
		}
	}
	if (latest)
		json_object_set_new(
			out, "last_drill",
			json_pack("{s:O, s:I, s:b, s:b}", "backup", json_object_get(of, "name"), "at",
				  (json_int_t)hb_json_int(latest, "at", 0), "ok",
				  hb_json_bool(latest, "ok", false), "of_current",
				  strcmp(hb_json_text(latest, "release", ""), current) == 0));
	json_decref(list);
	return out;
}

json_t *hb_seal_prune(const struct hb_config *config)
{
	char *data = hb_spec_absolute(hb_config_text(config, "runtime.data"));
	json_t *out = hb_data_aside_old(data);

	free(data);
	return out;
}
