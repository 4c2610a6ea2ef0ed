/*
 * Standing still for a snapshot of the machine or its disk: the payload is stopped cleanly, what is
 * on disk is synced, and a durable mark keeps it stopped, also over a restart. It begins again when
 * somebody says so, or by itself after the time that was given: a snapshot tool that dies must not
 * leave the service down, and neither must a machine that is started from the snapshot.
 *
 * Only root on this host may; nobody is asked, since nothing is changed.
 *
 *   installer/quiesced.json   {"since":N,"until":N}
 */
#ifndef HB_INSTALLER_QUIESCE_H
#define HB_INSTALLER_QUIESCE_H

#include "broker/installer/installer.h"
#include "common/server.h"

#define HB_QUIESCE_SECONDS 300
#define HB_QUIESCE_SECONDS_MAX 86400

/* At start-up: what was so before is so again, unless its time is over. */
int hb_quiesce_load(struct hb_installer *in, struct hb_error *err);
/* Code quiesced, and until when. */
int hb_quiesce_refuse(const struct hb_installer *in, struct hb_error *err);

/* POST /quiesce {seconds?} -> {status: accepted, until}; GET /runtime says `quiesced` with
 * synced: true once it is so. Codes: busy, quiesced. */
void hb_quiesce_handle(struct hb_request *req, void *ctx);
/* POST /resume {} */
void hb_resume_handle(struct hb_request *req, void *ctx);

#endif
