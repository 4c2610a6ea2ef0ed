/*
 * The runner where supervisord starts and stops the payload: the same worker to the supervisor (runner.h has its packets),
 * but instead of forking hermes-run it keeps a program entry for it and drives supervisord over its socket.
 *
 *   <runtime.supervisord_conf>   [program:hermes-runtime-<8 hex>], rewritten at each start
 *   installer/run-spec.json      what hermes-run reads (0600, root's)
 *   installer/run-status.json    what it says: the line of its status descriptor
 *
 * autostart and autorestart are off: when the payload is started again, and whether, is decided in one place for both
 * kinds of runner. What supervisord's signals to the process group don't reach is found by uid and HERMES_INSTANCE.
 */
#ifndef HB_INSTALLER_RUNNER_SUPERVISORD_H
#define HB_INSTALLER_RUNNER_SUPERVISORD_H

#include "broker/installer/runner.h"

/* In the forked child; never returns. */
void hb_runner_supervisord(const struct hb_runner_options *options, int fd) __attribute__((noreturn));

#endif
