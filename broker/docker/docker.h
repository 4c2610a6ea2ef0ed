/* The Docker executor's program description; main.c runs it. */
#ifndef HB_BROKER_DOCKER_DOCKER_H
#define HB_BROKER_DOCKER_DOCKER_H

#include "common/process.h"

extern const struct hb_program hb_docker_program;

#endif
