/*
 * The sandbox of local commands: the directory they may write, and with bubblewrap the release they
 * run in.
 *
 * The workspace has a generation: a text made of the generation of the policy, the identity of the
 * directory and the settings of the sandbox. It is sealed into each operation, so that a change of
 * any of them between consent and use is noticed.
 */
#ifndef HB_DOCKER_WORKSPACE_H
#define HB_DOCKER_WORKSPACE_H

#include <jansson.h>
#include <stdbool.h>

#include "common/config.h"
#include "common/digest.h"
#include "policy/executor.h"

#define HB_WORKSPACE "/workspace" /* where commands see it */
#define HB_SANDBOX_UID 10002      /* and gid: nobody on the host */
#define HB_SANDBOX_USER "10002:10002"
#define HB_WORKSPACE_GENERATION 129

bool hb_local_bubblewrap(const struct hb_config *config);

/* The real path of the workspace; the caller frees it. Codes: local_not_configured,
 * workspace_missing, workspace_owner, floor_bind. */
int hb_workspace_path(struct hb_worker *w, char **out, struct hb_error *err);
/* Everything that can be told in advance, and the generation. Codes also: sandbox_no_egress. */
int hb_workspace_seal(struct hb_worker *w, const json_t *request,
		      char generation[HB_WORKSPACE_GENERATION], struct hb_error *err);

/* The release of the bubblewrap backend is the pinned one: its manifest has the digest local.image,
 * and only root (or the unpack worker) can write it. Codes: local_not_configured, release_missing,
 * release_differs, loose_permissions. */
int hb_release_check(const struct hb_config *config, char hex[HB_HEX256], struct hb_error *err);

#endif
