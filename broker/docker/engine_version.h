/*
 * Which version of the engine's API is spoken: the highest that both sides know.
 *
 * Ours are 1.40 (non-recursive binds; waiting for the next exit) to 1.52. An engine whose range has
 * nothing in common with it is refused with both ranges named (Docker Engine API, "Versioned API
 * and SDK").
 */
#ifndef HB_DOCKER_ENGINE_VERSION_H
#define HB_DOCKER_ENGINE_VERSION_H

#include "common/error.h"

#define HB_ENGINE_API_MIN 40
#define HB_ENGINE_API_MAX 52

/* "1.41" and "1.12" of GET /version: the minor number to speak, or -1 with code engine_version
 * (engine_bad_reply when they aren't versions). least may be NULL: engines before 1.25 don't tell.
 */
int hb_engine_version_choose(const char *highest, const char *least, struct hb_error *err);

#endif
