/* Backups as the installer's loop sees them: what is sealed, listed and asked for. */
#ifndef HB_INSTALLER_BACKUP_ROUTES_H
#define HB_INSTALLER_BACKUP_ROUTES_H

#include <jansson.h>

#include "broker/installer/installer.h"
#include "common/server.h"

/* A loopback port that nobody has now, for drills; before confinement, since afterwards no inet
 * socket can be made. */
int hb_installer_spare_port(uint16_t *port, struct hb_error *err);

/* Refuse early what could not be carried out: no usable directory, nothing to encrypt with. */
int hb_backup_seal_backup(struct hb_installer *in, struct hb_error *err);
/* {backup_sha256, contents}: the identity of the bytes, from the record of their verification on
 * this host. Nothing is hashed here, in the loop; the job does, and refuses when they are others.
 * Codes: backup_missing, backup_encrypted, backup_unverified, record_broken, loose_permissions. */
json_t *hb_backup_seal_restore(struct hb_installer *in, const json_t *request,
			       struct hb_error *err);

void hb_backup_handle_list(struct hb_request *req, void *ctx);	 /* GET /backups */
void hb_backup_handle_verify(struct hb_request *req, void *ctx); /* POST /backups/verify {backup} */
void hb_backup_handle_drill(struct hb_request *req, void *ctx);	 /* POST /backups/drill {backup} */

#endif
