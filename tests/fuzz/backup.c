/* What of a backup comes from outside: its manifest, and the record beside it. A manifest that is taken prints to one that
 * is taken and prints the same; none of its entries is outside the data, and each parent comes before. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "broker/installer/backup_manifest.h"
#include "broker/installer/backup_store.h"
#include "common/json.h"

#define MOUNT "/data"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entries(const struct hb_backup_manifest *m)
{
	for (size_t i = 0; i < m->count; i++) {
		const struct hb_backup_entry *e = &m->entries[i];

		if (e->path[0] == '/' || strncmp(e->path, "../", 3) == 0 || strstr(e->path, "/../") ||
		    strcmp(e->path, "..") == 0 || (e->mode & ~0777u) != 0 || (i > 0 && e->parent >= i) ||
		    (i > 0 && m->entries[e->parent].type != HB_BACKUP_DIRECTORY) ||
		    (hb_backup_restored_mode(e) & ~e->mode) != 0)
			abort();
		if (e->type == HB_BACKUP_LINK && e->target[0] == '/' &&
		    strncmp(e->target, MOUNT, sizeof MOUNT - 1) != 0)
			abort();
		(void)hb_backup_is_database(m, i);
	}
	(void)hb_backup_manifest_sqlite_bytes(m);
}

static void manifest(const char *text, size_t len)
{
	struct hb_backup_manifest m = {0}, again = {0};
	struct hb_buf one = HB_BUF_INIT, two = HB_BUF_INIT;

	if (hb_backup_manifest_parse(text, len, MOUNT, &m, NULL) < 0)
		return;
	check_entries(&m);
	if (hb_backup_manifest_print(&m, &one, NULL) < 0 ||
	    hb_backup_manifest_parse(one.data, one.len, MOUNT, &again, NULL) < 0 ||
	    hb_backup_manifest_print(&again, &two, NULL) < 0 || one.len != two.len ||
	    memcmp(one.data, two.data, one.len) != 0)
		abort();
	hb_backup_manifest_free(&m);
	hb_backup_manifest_free(&again);
	hb_buf_free(&one);
	hb_buf_free(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *record = hb_json_parse((const char *)data, size, NULL);

	manifest((const char *)data, size);
	if (record)
		(void)hb_backup_record_check(record, hb_json_text(record, "name", ""), NULL);
	json_decref(record);
	return 0;
}
