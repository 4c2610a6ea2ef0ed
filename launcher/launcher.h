/*
 * The embedded process manager: the parts that launcher/ shares.
 *
 * table.c says which processes there are, spawn.c starts one, logfile.c keeps what it says,
 * supervise.c is the loop that starts, restarts and stops them.
 */
#ifndef HB_LAUNCHER_LAUNCHER_H
#define HB_LAUNCHER_LAUNCHER_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/config.h"
#include "common/error.h"
#include "common/peers.h"

struct hb_service {
	enum hb_peer peer;
	const char *build_dir; /* where the build tree has it, seen from the launcher's directory */
	uint64_t caps;         /* left in its bounding and permitted sets */
	int death_signal;      /* when the launcher itself dies */
	bool end_group;        /* what it leaves behind when it dies is ended at once */
	bool stops_first;      /* has work of its own to end, with the runtime's time limit */
};

extern const struct hb_service hb_services[];
extern const size_t hb_service_count;
extern const uint64_t hb_service_caps_any; /* all that any of them needs */

/* Where the programs lie: `libexec`, or found beside the launcher when NULL. */
struct hb_programs {
	const char *libexec;
	char own_dir[4096];
};
int hb_programs_init(struct hb_programs *p, const char *libexec, struct hb_error *err);
/* The opened program, judged by descriptor; -1 with err (program_missing, program_permissions). */
int hb_programs_open(const struct hb_programs *p, const struct hb_service *s, struct hb_error *err);

struct hb_spawn {
	const struct hb_service *service;
	const struct hb_config *config;
	int program_fd;
	int error_fd; /* its standard output and error */
	int ready_fd; /* becomes descriptor 3 */
};
/* The new process, in a session of its own; -1 with err. Descriptors stay the caller's. */
pid_t hb_spawn(const struct hb_spawn *what, struct hb_error *err);

/* A log file fed from a pipe, cut into two of limited size: NAME.log and NAME.log.1. */
struct hb_logfile;
int hb_logfile_open(struct event_base *base, const char *name, struct hb_logfile **out,
		    struct hb_error *err);
int hb_logfile_pipe(struct hb_logfile *l,
		    struct hb_error *err); /* a new write end, for one process */
void hb_logfile_free(struct hb_logfile *l);

struct hb_supervise {
	const struct hb_config *config;
	struct hb_programs programs;
	bool foreground;   /* children share our standard error */
	int ready_fd;      /* '1' is written when all are ready; -1: none */
};
/* Run until SIGTERM or SIGINT; every process has ended when it returns. Exit code. */
int hb_supervise(const struct hb_supervise *options);

#endif
