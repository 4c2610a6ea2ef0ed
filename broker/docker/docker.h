/* The state of the docker executor. Only its own loop touches it; workers get copies by fork. */
#ifndef HB_BROKER_DOCKER_DOCKER_H
#define HB_BROKER_DOCKER_DOCKER_H

#include <event2/event.h>
#include <stdbool.h>

#include "broker/docker/engine.h"
#include "broker/docker/own.h"
#include "common/process.h"
#include "policy/executor.h"

/* Labels of containers that we make; a client can't set any that begins so. */
#define HB_LABEL "hermes-broker."
#define HB_LABEL_HOST HB_LABEL "host" /* host id: several installations may share an engine */
#define HB_LABEL_OPERATION HB_LABEL "operation" /* operation id */
#define HB_LABEL_KIND HB_LABEL "kind"           /* sandbox, attached, detached */

struct hb_docker {
	struct hb_process *process;
	struct hb_executor *executor;
	struct hb_own own;
	int api_minor;                  /* negotiated last; 0: not yet */
	char release[32];               /* of the engine */
	struct hb_error engine_trouble; /* of the last worker that met the engine; code "" when all
					   was well */
	int runner_fd;                  /* bubblewrap's runner, or -1 */
	pid_t runner_pid;
	struct event *runner_event;
	struct event *sweep; /* next look for what a crash left */
	bool swept;          /* nothing was left, last time */
};

extern const struct hb_program hb_docker_program;
#define HB_DOCKER_ROUTES 5
extern const struct hb_route hb_docker_routes[HB_DOCKER_ROUTES];

/* health.c */
json_t *hb_docker_health(struct hb_docker *d);

/* In a worker: the engine as the executor knows it, and what is ours as it is now (noted to the
 * executor). */
int hb_docker_engine(struct hb_worker *w, struct hb_engine *e, struct hb_error *err);
int hb_docker_look(struct hb_worker *w, struct hb_engine *e, struct hb_error *err);
/* Tell the executor what was learned of the engine: err NULL, or why it could not be used. */
void hb_docker_note_engine(struct hb_worker *w, const struct hb_engine *e,
			   const struct hb_error *err);

/* The work of an approved operation (work.c). */
int hb_docker_work(struct hb_worker *w, json_t **result, struct hb_error *err);

/* sweep.c: containers of ours that no operation waits for any more; now, and from then on every few
 * seconds. */
void hb_docker_sweep(struct hb_docker *d);

#endif
