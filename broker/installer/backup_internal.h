/* Shared by backup.c (making) and backup_check.c (reading back). */
#ifndef HB_INSTALLER_BACKUP_INTERNAL_H
#define HB_INSTALLER_BACKUP_INTERNAL_H

#include "broker/installer/backup.h"
#include "broker/installer/backup_archive.h"

/* Besides the content: the manifest, records, tar headers, what the payload writes meanwhile. */
#define HB_BACKUP_RESERVE (8ull << 20)

/* arg of the two: progress of one phase is told to the installer. */
struct hb_backup_phase {
	struct hb_work *w;
	const char *name;
	uint64_t bytes, files; /* in all; 0: not known */
};
void hb_backup_on_progress(uint64_t bytes, uint64_t files, void *arg);
void hb_backup_on_hashed(uint64_t done, void *arg);

/* Code not_enough_space. `where` and `what` are for the message. */
int hb_backup_need_room(int fd, const char *where, uint64_t need, const char *what,
			struct hb_error *err);

/* Read it whole in a scratch directory among the backups; only the databases are written there, for
 * their check. head and databases are new objects, set on success only. */
int hb_backup_check_archive(struct hb_work *w, int archive_fd, json_t **head, json_t **databases,
			    struct hb_error *err);
json_t *hb_backup_record_make(const char *name, const json_t *head, const json_t *databases,
			      const char *sha256, uint64_t size);

#endif
