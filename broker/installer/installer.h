/* The state of the installer process. Only its own loop touches it; job workers get copies by fork.
 */
#ifndef HB_INSTALLER_INSTALLER_H
#define HB_INSTALLER_INSTALLER_H

#include <event2/event.h>
#include <jansson.h>

#include "broker/installer/backup_store.h"
#include "broker/installer/journal.h"
#include "broker/installer/store.h"
#include "broker/installer/supervise.h"
#include "common/digest.h"
#include "common/ledger.h"
#include "common/process.h"
#include "policy/gate.h"

struct hb_caller;
struct hb_jobs;

struct hb_installer {
	struct hb_process *process;
	struct hb_store store;
	struct hb_backup_store backups;
	int age_fd; /* to the worker that encrypts backups, or -1 */
	pid_t age_pid;
	struct hb_error age_trouble; /* why there is none although there should be */
	json_t *backup_check;        /* the last check or drill of a backup: {state, kind, backup, ...} */
	struct hb_ledger *ledger;
	struct hb_journal *journal;
	struct hb_supervisor *supervisor;
	struct hb_supervisor *trial; /* runs a release with a copy of a backup */
	struct hb_caller *caller;     /* calls of the payload's MCP server for the operator */
	struct hb_jobs *jobs;
	char settings[HB_HEX256]; /* of process->config */
	char *data_reach;          /* what of the data directory's surroundings may be touched */
	json_t *verify;           /* the last verification: {state, ok, ...} */
	json_t *staged;           /* the last staging: {state, image, ...} */
	json_t *quiesced;         /* {since, until, synced}: stopped for a snapshot; or NULL */
	struct event *resume;     /* when it ends by itself */
	struct event *watch;      /* of the checks that are made by themselves */
	char release_trouble[256]; /* what the last one found; "" */
	bool digest_differs;
	struct event *retry;      /* next try to start the payload the operator wants running */
	int tries;
	char trouble[256]; /* why it isn't running, when it should be; or "" */
	bool stopping;
};

extern const struct hb_route hb_installer_routes[];
extern const size_t hb_installer_route_count;

/* Key, host id, uids: loaded anew for each use, so that replaced files count at once. */
int hb_installer_gate(struct hb_installer *in, struct hb_gate *out, struct hb_error *err);
/* hermes.conf as it is on disk says the same [runtime] as this process was started with. Code
 * settings_stale. */
int hb_installer_settings_fresh(const struct hb_installer *in, struct hb_error *err);

/* Bring the payload to the operator's wish: at start-up and after a recovery. Tries again with
 * growing pauses. */
void hb_installer_reconcile(struct hb_installer *in);

/* status.c */
json_t *hb_installer_runtime(struct hb_installer *in);
json_t *hb_installer_health(struct hb_installer *in);

/* recover.c: with the journal, before anything else happens. */
int hb_installer_recover(struct hb_installer *in, struct hb_error *err);

#endif
