/*
 * The job worker: a fork of the confined installer that does the slow part of one operation
 * (fetching, unpacking, verifying, waiting for the payload) with plain blocking code, while the
 * installer's loop goes on answering.
 *
 * It holds no ledger, no audit log, no supervisor and no server socket: for those it asks the
 * installer over a socket pair, one JSON line each way, and waits. At the end it says how it went,
 * once.
 *
 *   worker -> installer
 * {"event":"progress","phase":..,"done":N,"total":N,"unit":..,"files_done":N,"files_total":N}
 *                        {"event":"done","result":{..}}  or  {"event":"done","error":..,"code":..}
 *                        {"ask":"step","step":..,"more":{..}}  {"ask":"stop"}
 * {"ask":"start","spec":{..}}  {"ask":"running"} installer -> worker  {"ok":true, ...} or
 * {"error":..,"code":..}
 */
#ifndef HB_INSTALLER_WORK_H
#define HB_INSTALLER_WORK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/installer/backup_store.h"
#include "broker/installer/store.h"
#include "common/buf.h"
#include "common/config.h"
#include "common/error.h"

struct hb_work {
	int fd; /* to the installer */
	struct hb_buf in;
	const struct hb_store *store;
	const struct hb_config *config;
	const char *settings;     /* SHA-256 of the settings in `config` */
	const json_t *request;    /* sealed; NULL for verify and recover */
	const char *operation_id; /* "" for verify */
	const json_t *old;        /* recover: the state to put back, or NULL */
	const struct hb_backup_store *backups;
	int age_fd;               /* to the worker that encrypts backups, or -1 */
	const char *host_id;
	uid_t runtime_uid;
	bool degraded_ok;
	int64_t reported_ms; /* when progress was last sent */
};

struct hb_progress {
	const char *phase, *unit;
	uint64_t done, total, files_done, files_total;
};
/* At most some four a second reach the installer; the first of a phase and the last always do. */
void hb_work_progress(struct hb_work *w, const struct hb_progress *p);

/* Ask and wait. `question` is stolen; the answer is a new reference (NULL when not wanted). */
int hb_work_ask(struct hb_work *w, json_t *question, json_t **answer, struct hb_error *err);
int hb_work_step(struct hb_work *w, const char *step, json_t *more /* stolen */,
		 struct hb_error *err);

/* Have the runtime stopped, or started with an activation's spec until it is healthy; each is a phase
 * that is told. */
int hb_work_stop_runtime(struct hb_work *w, struct hb_error *err);
int hb_work_start_runtime(struct hb_work *w, const json_t *activation, struct hb_error *err);

/* The kinds of work; each returns 0 with a result object, or -1. */
int hb_work_operation(struct hb_work *w, json_t **result,
		      struct hb_error *err); /* install, start, stop, restart */
int hb_work_verify(struct hb_work *w, json_t **result, struct hb_error *err);
int hb_work_recover(struct hb_work *w, json_t **result, struct hb_error *err);

/* Run one of them and report; never returns. */
void hb_work_main(struct hb_work *w, int (*work)(struct hb_work *, json_t **, struct hb_error *))
	__attribute__((noreturn));

#endif
