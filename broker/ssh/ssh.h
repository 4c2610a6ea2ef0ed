/* The SSH executor's program description; main.c runs it. */
#ifndef HB_BROKER_SSH_SSH_H
#define HB_BROKER_SSH_SSH_H

#include "common/process.h"

extern const struct hb_program hb_ssh_program;

#endif
