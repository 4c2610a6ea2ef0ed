/* Shared by docker.c and docker_run.c. */
#ifndef HB_ADMIN_CTL_DOCKER_H
#define HB_ADMIN_CTL_DOCKER_H

#include <jansson.h>

#include "admin/ctl/ctl.h"

struct ctl_consent {
	const char *approve, *user;
};

/* text NULL: nothing is set. -1: usage was printed and the request is gone. */
int ctl_docker_number(const char *command, const char *name, const char *text, json_t *request,
		      const char *field);
/* Ask, follow, report; steals request. */
int ctl_docker_ask(struct ctl *c, const char *feature, json_t *request,
		   const struct ctl_consent *consent);

#endif
