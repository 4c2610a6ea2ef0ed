/*
 * The runner worker: a child of the installer, root with few capabilities, that starts the payload through hermes-run and
 * ends it. Nothing else of ours can. It is forked before the installer confines itself, since a confined process can make
 * neither mounts nor other users' processes.
 *
 * Packets are JSON over one SOCK_SEQPACKET pair. To the runner:
 *   {"cmd":"start","run":N,"spec":{..},"stop_timeout_ms":N}    {"cmd":"stop","run":N}
 * From it:
 *   {"event":"up","group":bool,"leftovers":N}                   once
 *   {"event":"started","run":N,"pid":N,"isolation":..,"own_proc":bool,"landlock":bool}
 *   {"event":"failed","run":N,"code":..,"error":..}             not started, nothing is running
 *   {"event":"ended","run":N,"how":"exit"|"signal"|"none","status":N,"killed":N}   the whole tree is gone
 *   {"event":"stuck","run":N}                                   processes outlive SIGKILL (uninterruptible)
 * When the other end closes, the payload is stopped in the same way and the runner exits.
 */
#ifndef HB_INSTALLER_RUNNER_H
#define HB_INSTALLER_RUNNER_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

#define HB_RUNTIME_LOG_DIR "installer"
#define HB_RUNTIME_LOG "runtime.log" /* what the payload prints; one older piece beside it as runtime.log.1 */
#define HB_RUNTIME_LOG_MAX (8u << 20)
#define HB_PACKET_MAX (192u << 10) /* below the default socket buffer */

struct hb_runner_options {
	char host_id[33];
	uid_t uid;           /* of the payload: its leftovers are looked for */
	int stop_timeout_ms; /* until the first start says another */
	int hermes_run_fd;   /* the program, opened early */
	const char *supervisord_socket; /* supervisord starts and stops it (runner_supervisord.h); NULL: we do */
	const char *supervisord_conf;   /* the file of its program entry */
};

/* Fork it; *fd is the installer's end (non-blocking). */
int hb_runner_fork(const struct hb_runner_options *options, int *fd, pid_t *pid, struct hb_error *err);

/* For both workers, in the child: no descriptor but 0, 1, 2 and `keep` survives, signals are those of a fresh process. */
void hb_worker_isolate(int keep, int keep_too);

#endif
