/*
 * Supervision of the payload: one desired state, one process tree, and the answer to "is it really healthy".
 *
 * The supervisor lives in the installer's event loop and drives two workers that were forked before the installer
 * confined itself: the runner (starts and ends the payload through hermes-run) and the probe (HTTP and MCP checks,
 * loopback only, no files). A payload that ends is restarted with growing delay; after `restart_budget` restarts within
 * `restart_window` seconds it is given up until somebody asks again. Any listener of the payload's uid outside
 * loopback stops it (public_listener). If a worker dies, the program ends with HB_EXIT_WORKER_LOST so that it is started
 * again as a whole; the runner ends the payload when its pipe to the installer closes.
 */
#ifndef HB_INSTALLER_SUPERVISE_H
#define HB_INSTALLER_SUPERVISE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/process.h"

#define HB_EXIT_WORKER_LOST 75

/* Everything that is needed to run one release, fixed when it was activated. Serialised as JSON for hermes-run. */
struct hb_run_spec {
	char *rootfs;           /* absolute path of releases/<hex>/rootfs */
	char *manifest_digest;  /* hex */
	char *isolation;        /* auto, namespaces, chroot, direct */
	char *data_dir;         /* absolute, on the host */
	char *data_mount;       /* where the image expects it: /data */
	char *working_dir;      /* in the image */
	char **argv;            /* entrypoint and command, NULL-terminated */
	char **env;             /* NAME=VALUE, NULL-terminated: image's, then overrides */
	uid_t uid;
	gid_t gid;
};
void hb_run_spec_free(struct hb_run_spec *spec);
json_t *hb_run_spec_to_json(const struct hb_run_spec *spec);
int hb_run_spec_from_json(const json_t *object, struct hb_run_spec *out, struct hb_error *err);

struct hb_supervisor;

/* Before confinement: forks runner and probe. */
int hb_supervisor_new(struct hb_process *process, struct hb_supervisor **out, struct hb_error *err);
/* Another one beside it, for a trial run on `port`: with workers of its own and without the configured MCP key. */
int hb_supervisor_new_trial(struct hb_process *process, uint16_t port, struct hb_supervisor **out, struct hb_error *err);
uint16_t hb_supervisor_port(const struct hb_supervisor *s);
/* Once confined: begins to listen to the workers. `changed` is called after each change of state (may be NULL). */
int hb_supervisor_run(struct hb_supervisor *s, void (*changed)(void *arg), void *arg, struct hb_error *err);
/* Waits until the runner has ended whatever an earlier one left running; before the loop runs. Codes
 * worker_failed, stop_failed. */
int hb_supervisor_wait_up(struct hb_supervisor *s, struct hb_error *err);
void hb_supervisor_free(struct hb_supervisor *s);

typedef void (*hb_supervisor_done)(int ok, const struct hb_error *err, void *arg);

/* Start this release (stopping another first) and report once: ok when it has been healthy for `health.sustain` seconds,
 * else the error that says what failed (exited, port_in_use, not_ready, mcp_failed, tools_differ, public_listener). On
 * failure the payload is stopped. The spec is copied. */
void hb_supervisor_start(struct hb_supervisor *s, const struct hb_run_spec *spec, hb_supervisor_done done, void *arg);
/* End the whole tree: SIGTERM, deadline, SIGKILL. Stopped already is success. */
void hb_supervisor_stop(struct hb_supervisor *s, hb_supervisor_done done, void *arg);
/* Run all checks now. */
void hb_supervisor_probe(struct hb_supervisor *s, hb_supervisor_done done, void *arg);

/* Is it the payload, and nobody else, that listens on the port now? Codes not_running, port_in_use, not_ready. */
int hb_supervisor_serves(struct hb_supervisor *s, struct hb_error *err);

bool hb_supervisor_is_running(const struct hb_supervisor *s);
/* The members "process", "health", "isolation", "supervisor", "desired", "address" of GET /runtime; new reference. */
json_t *hb_supervisor_status(const struct hb_supervisor *s);

#endif
