/*
 * Staging: fetching and unpacking a release ahead of time. Nobody is asked, since nothing that runs
 * is changed; what may be staged is what an operation might install: features, bounds and
 * configuration say the same, and only so many releases may lie on disk.
 */
#ifndef HB_INSTALLER_STAGE_H
#define HB_INSTALLER_STAGE_H

#include <jansson.h>

#include "broker/installer/installer.h"
#include "common/server.h"

/* POST /stage {image, platform?, platform_digest?} -> {status: accepted}; how it goes appears in
 * GET /runtime as `staged`. Also code busy. */
void hb_stage_handle(struct hb_request *req, void *ctx);
/* {state: running|done|failed, image, progress?, ...} or JSON null. */
json_t *hb_stage_status(const struct hb_installer *in);

/* POST /probe: all checks of the running payload now; answers {status: ok} when they pass. */
void hb_probe_now(struct hb_installer *in, struct hb_request *req);

#endif
