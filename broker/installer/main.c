/*
 * hermes-installer: the executor of runtime operations.
 *
 * Holds: the approver's public key, the runtime store, the data directory of the payload, its
 * ledger, journal and audit log. Must never hold: a network socket, the signing key, a bot token, a
 * Docker socket. Called by: the broker
 * (/seal, /execute, /status); the broker, admin and the operator (/health, /runtime, /releases).
 * Calls: the fetcher.
 *
 * Root, because the payload, the unpack worker and the store belong to three different users, with
 * the capabilities below and no others. Runner and probe are forked before it confines itself,
 * unpack and job workers afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/activate.h"
#include "broker/installer/age.h"
#include "broker/installer/backup_routes.h"
#include "broker/installer/caller.h"
#include "broker/installer/installer.h"
#include "broker/installer/job.h"
#include "broker/installer/quiesce.h"
#include "broker/installer/snapshot.h"
#include "broker/installer/spec.h"
#include "broker/installer/watch.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/log.h"
#include "common/paths.h"

/*
 * What of the data this process may reach: the directory that holds the data directory, which must
 * exist before confinement (one that exists is left as it is), since the data directory may be
 * made, lost and put back meanwhile. When that would be the state directory or one above it, the
 * data directory alone.
 */
static int open_data(struct hb_installer *in, struct hb_error *err)
{
	char *data = hb_spec_absolute(hb_config_text(in->process->config, "runtime.data"));
	char *copy = hb_strdup(data), *parent = dirname(copy);
	struct hb_error missing;
	struct stat st;
	int rc = 0;

	if (stat(parent, &st) < 0)
		rc = hb_fs_mkdirs(AT_FDCWD, parent, 0755, 0, 0, err);
	else if (!S_ISDIR(st.st_mode))
		rc = hb_fail(err, "data_unusable",
			     "%s, which should hold runtime.data, is not a directory", parent);
	free(copy);
	in->data_reach = hb_data_reach(data);
	if (rc == 0 && strcmp(in->data_reach, data) == 0) {
		/* Not there although it was: the payload isn't started, and health says why. */
		if (hb_data_check(data, true, hb_peer_uid(HB_PEER_RUNTIME), &missing) < 0)
			hb_log(HB_LOG_ERROR, "data_missing", "msg", missing.message, NULL);
	}
	free(data);
	return rc;
}

/* Without it everything but backups works. */
static void fork_age(struct hb_installer *in)
{
	if (hb_age_fork(in->process->config, hb_peer_uid(HB_PEER_UNPACK),
			hb_peer_gid(HB_PEER_UNPACK), &in->age_fd, &in->age_pid,
			&in->age_trouble) < 0)
		hb_log(HB_LOG_ERROR, "backups_not_encrypted", "code", in->age_trouble.code, "msg",
		       in->age_trouble.message, NULL);
}

static void open_backups(struct hb_installer *in)
{
	const struct hb_config *c = in->process->config;
	char *data = hb_spec_absolute(hb_config_text(c, "runtime.data"));

	hb_backup_store_open(hb_config_text(c, "runtime.backup_dir"), data, in->store.path,
			     &in->backups);
	free(data);
	if (in->backups.fd < 0)
		hb_log(HB_LOG_ERROR, "backups_unusable", "code", in->backups.trouble.code, "msg",
		       in->backups.trouble.message, NULL);
}

static void installer_close(void *ctx)
{
	struct hb_installer *in = ctx;

	hb_jobs_free(in->jobs);
	if (in->retry)
		event_free(in->retry);
	hb_caller_free(in->caller);
	if (in->trial)
		hb_supervisor_free(in->trial);
	if (in->supervisor)
		hb_supervisor_free(in->supervisor);
	hb_ledger_close(in->ledger);
	hb_journal_close(in->journal);
	hb_store_close(&in->store);
	if (in->resume)
		event_free(in->resume);
	if (in->watch)
		event_free(in->watch);
	hb_backup_store_close(&in->backups);
	hb_close(&in->age_fd);
	json_decref(in->verify);
	json_decref(in->backup_check);
	json_decref(in->staged);
	json_decref(in->quiesced);
	free(in->data_reach);
	free(in);
}

static void *installer_open(struct hb_process *p, struct hb_error *err)
{
	struct hb_installer *in = hb_calloc(1, sizeof *in);
	uint16_t spare;

	in->process = p;
	in->store.fd = in->store.releases_fd = in->store.blobs_fd = -1;
	in->backups.fd = in->age_fd = -1;
	in->jobs = hb_jobs_new();
	/* The workers first: they must hold none of what is opened below. */
	fork_age(in);
	if (hb_supervisor_new(p, &in->supervisor, err) < 0 ||
	    hb_installer_spare_port(&spare, err) < 0 ||
	    hb_supervisor_new_trial(p, spare, &in->trial, err) < 0 ||
	    hb_caller_new(p, hb_supervisor_port(in->supervisor), &in->caller, err) < 0 ||
	    hb_config_runtime_digest(p->config, in->settings, err) < 0 ||
	    hb_store_open(hb_config_text(p->config, "runtime.storage"), hb_peer_uid(HB_PEER_UNPACK),
			  hb_peer_uid(HB_PEER_FETCHER), &in->store, err) < 0 ||
	    open_data(in, err) < 0) {
		installer_close(in);
		return NULL;
	}
	open_backups(in);
	if (hb_installer_recover(in, err) < 0) {
		installer_close(in);
		return NULL;
	}
	return in;
}

static int installer_sandbox(struct hb_process *p, void *ctx, struct hb_sandbox *out,
			     struct hb_error *err)
{
	static struct hb_sandbox_path paths[] = {
		{NULL, HB_FS_READ | HB_FS_WRITE},                  /* storage */
		{NULL, HB_FS_READ | HB_FS_WRITE | HB_FS_OPTIONAL}, /* data: open_data */
		{NULL, HB_FS_READ | HB_FS_WRITE | HB_FS_OPTIONAL}, /* backups */
		{"installer", HB_FS_READ | HB_FS_WRITE},
		{"run", HB_FS_READ | HB_FS_WRITE},
		{"probe", HB_FS_READ | HB_FS_OPTIONAL}, /* named keys, for the prober */
		{"policy", HB_FS_READ},
		{"public", HB_FS_READ},
		{HB_PATH_CONF, HB_FS_READ},
		{"/dev/null", HB_FS_READ | HB_FS_WRITE}, /* standard descriptors of workers */
		{"/proc", HB_FS_READ}, /* the sandbox of workers, and the payload's listeners */
	};
	struct hb_installer *in = ctx;

	paths[0].path = in->store.path;
	paths[1].path = in->data_reach;
	/* One that can't be used isn't reached either. */
	paths[2].path = in->backups.fd >= 0 ? in->backups.path : "installer";
	*out = (struct hb_sandbox){
		.name = "hermes-installer",
		.syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_OWNERS | HB_SYS_UNIX | HB_SYS_FORK |
			    HB_SYS_IDENTITY | HB_SYS_EVENTS,
		.paths = paths,
		.path_count = sizeof paths / sizeof *paths,
		/* CHOWN: staging to the unpack worker, data to the payload. DAC_OVERRIDE, FOWNER:
		 * trees that belong to the worker. SETUID, SETGID: becoming the worker. KILL:
		 * ending workers that have become somebody else. */
		.keep_caps = 1ull << CAP_CHOWN | 1ull << CAP_DAC_OVERRIDE | 1ull << CAP_FOWNER |
			     1ull << CAP_SETUID | 1ull << CAP_SETGID | 1ull << CAP_KILL,
	};
	return 0;
}

static int installer_run(struct hb_process *p, void *ctx, struct hb_error *err)
{
	struct hb_installer *in = ctx;

	if (hb_supervisor_run(in->supervisor, NULL, NULL, err) < 0 ||
	    hb_supervisor_run(in->trial, NULL, NULL, err) < 0 ||
	    hb_caller_listen(in->caller, in->supervisor, err) < 0 || hb_quiesce_load(in, err) < 0 ||
	    hb_watch_start(in, err) < 0)
		return -1;
	hb_installer_reconcile(in);
	return 0;
}

static void on_stopped(int ok, const struct hb_error *err, void *arg)
{
	struct hb_installer *in = arg;

	if (!ok)
		hb_log(HB_LOG_ERROR, "stop_failed", "code", err->code, "msg", err->message, NULL);
	hb_process_exit(in->process, 0);
}

/* An operation under way is ended as by a crash: the journal puts things right at the next start.
 */
static void installer_stop(struct hb_process *p, void *ctx)
{
	struct hb_installer *in = ctx;

	if (in->stopping)
		return;
	in->stopping = true;
	hb_jobs_free(in->jobs);
	in->jobs = hb_jobs_new();
	hb_supervisor_stop(in->supervisor, on_stopped, in);
}

int main(int argc, char **argv)
{
	const struct hb_program program = {
		.self = HB_PEER_INSTALLER,
		.usage = "Installs, starts and stops the runtime, each time with a grant that a "
			 "person signed.\n",
		.server = {.routes = hb_installer_routes, .route_count = hb_installer_route_count},
		.open = installer_open,
		.sandbox = installer_sandbox,
		.run = installer_run,
		.stop = installer_stop,
		.close = installer_close,
	};

	return hb_process_main(&program, argc, argv);
}
