/*
 * The payload's output: a pipe that the runner reads into installer/runtime.log (0600). At HB_RUNTIME_LOG_MAX the file
 * becomes runtime.log.1 and a new one begins, so that a payload that talks without end fills at most twice that.
 */
#ifndef HB_INSTALLER_RUNNER_LOG_H
#define HB_INSTALLER_RUNNER_LOG_H

#include <stdint.h>

#include "common/error.h"

struct hb_runtime_log {
	int dir_fd, file_fd, pipe_fd;
	uint64_t size;
};

int hb_runtime_log_open(struct hb_runtime_log *log, struct hb_error *err);
void hb_runtime_log_attach(struct hb_runtime_log *log, int pipe_fd); /* takes the descriptor */
int hb_runtime_log_fd(const struct hb_runtime_log *log);             /* to poll; -1 when nothing is attached */
void hb_runtime_log_read(struct hb_runtime_log *log);
void hb_runtime_log_detach(struct hb_runtime_log *log); /* reads what is left */

#endif
