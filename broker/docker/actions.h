/* The actions on images and existing containers; run.h has the one that makes new ones. In a
 * worker, with everything re-resolved and compared. */
#ifndef HB_DOCKER_ACTIONS_H
#define HB_DOCKER_ACTIONS_H

#include "broker/docker/docker.h"

int hb_action_list(struct hb_worker *w, struct hb_engine *e, json_t **result, struct hb_error *err);
int hb_action_inspect(struct hb_worker *w, struct hb_engine *e, json_t **result,
		      struct hb_error *err);
int hb_action_logs(struct hb_worker *w, struct hb_engine *e, json_t **result, struct hb_error *err);
int hb_action_pull(struct hb_worker *w, struct hb_engine *e, json_t **result, struct hb_error *err);
/* start, stop, restart, remove */
int hb_action_change(struct hb_worker *w, struct hb_engine *e, json_t **result,
		     struct hb_error *err);

#endif
