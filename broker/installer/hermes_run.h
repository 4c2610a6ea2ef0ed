/*
 * Inside of hermes-run, the program that turns a COMPLETE release into a running payload. One step a file:
 *
 *   hermes_run.c         arguments, the spec, which isolation, status line, execve
 *   hermes_run_check.c   what is refused: root, an incomplete release, a data directory that others can reach
 *   hermes_run_root.c    namespaces and chroot: a new root from binds, nothing written to the release
 *   hermes_run_direct.c  direct: paths and environment mapped into the unpacked tree
 *   hermes_run_find.c    argv[0] in the image's PATH, never leaving a root directory
 *   hermes_run_drop.c    everything is given up: groups, ids, capabilities, calls, descriptors
 */
#ifndef HB_INSTALLER_HERMES_RUN_H
#define HB_INSTALLER_HERMES_RUN_H

#include <limits.h>
#include <stdbool.h>

#include "broker/installer/supervise.h"
#include "common/error.h"

#define HB_RUN_ROOT "installer/root" /* where the new root is mounted, below the state directory; 0700 root */

/* What is executed in the end. */
struct hb_run_program {
	char path[PATH_MAX];
	char **argv, **env; /* NULL-terminated, owned */
};
void hb_run_program_free(struct hb_run_program *p);

/* --- checks; every message says what to do --- */
int hb_run_check_ids(const struct hb_run_spec *spec, struct hb_error *err);
int hb_run_check_release(const struct hb_run_spec *spec, struct hb_error *err);
int hb_run_check_data(const struct hb_run_spec *spec, struct hb_error *err);

/* --- a new root --- */
enum hb_run_root_kind { HB_ROOT_NAMESPACES, HB_ROOT_CHROOT };
/* Builds it and moves the calling process into it; `own_proc` tells whether /proc shows only the payload's processes.
 * CHROOT mounts in the host's namespace: hb_run_root_remove takes it away again. */
int hb_run_root_enter(const struct hb_run_spec *spec, enum hb_run_root_kind kind, bool *own_proc,
		      struct hb_error *err);
void hb_run_root_remove(void);

/* --- programs --- */
/* `root_fd` is "/" for everything, absolute links included. Returns an O_PATH descriptor and the path in that root.
 * Codes: command_not_found, bad_working_dir. */
int hb_run_find(int root_fd, const char *working_dir, const char *path_list, const char *name, char found[PATH_MAX],
		struct hb_error *err);
int hb_run_open_in_root(int root_fd, const char *path, int flags);
const char *hb_run_env(char *const *env, const char *name); /* value or NULL */
/* After hb_run_root_enter. */
int hb_run_program_in_root(const struct hb_run_spec *spec, struct hb_run_program *out, struct hb_error *err);
/* For direct; also changes into the working directory. */
int hb_run_program_direct(const struct hb_run_spec *spec, struct hb_run_program *out, struct hb_error *err);

/* --- giving up --- */
struct hb_run_drop {
	const struct hb_run_spec *spec;
	pid_t parent;         /* dies with it */
	bool confine_files;   /* direct: Landlock stands in for the mount namespace */
	int keep_fd;          /* status descriptor, closed by execve; -1 for none */
	bool landlocked;      /* out */
};
int hb_run_drop(struct hb_run_drop *drop, struct hb_error *err);

#endif
