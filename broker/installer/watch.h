/*
 * What is looked at by itself, every runtime.health_interval seconds, besides the supervisor's own checks of listeners,
 * HTTP and MCP tools: is the release that is current still the one that was activated, whole, and the one that hermes.conf
 * names. A change is logged and recorded once; GET /runtime shows the present answer in health.checks.
 */
#ifndef HB_INSTALLER_WATCH_H
#define HB_INSTALLER_WATCH_H

#include "broker/installer/installer.h"

int hb_watch_start(struct hb_installer *in, struct hb_error *err);
/* What is wrong now, or "": the link, the release's marker and the tree digest against what was activated. */
void hb_watch_release(const struct hb_installer *in, const json_t *activation, char out[256]);
/* Does what is active have the index digest that hermes.conf names? */
bool hb_watch_is_configured(const struct hb_installer *in, const json_t *activation);

#endif
