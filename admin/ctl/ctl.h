/*
 * hermesctl: the operator's command line. One file a group of commands, one table in main.c.
 *
 * Results go to standard output (with --json exactly one JSON object), everything else to standard error.
 */
#ifndef HB_ADMIN_CTL_H
#define HB_ADMIN_CTL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/config.h"
#include "common/error.h"
#include "common/peers.h"

/* Exit codes; documented in docs/PROTOCOL.md and hermesctl(1). */
enum ctl_exit {
	CTL_OK = 0,
	CTL_FAILED = 1,
	CTL_USAGE = 2,
	CTL_REFUSED = 3,
	CTL_DENIED = 4,
	CTL_EXPIRED = 5,
	CTL_UNREACHABLE = 6,
	CTL_UNKNOWN = 7,
	CTL_NOT_FOUND = 8
};

struct ctl {
	const char *state;    /* state directory as given */
	const char *socket;   /* the broker's socket instead of the state's own */
	const char *program;  /* argv[0] */
	bool json, no_input;
	bool screen;          /* standard error is a terminal: bars and colours */
	struct hb_config *config; /* after ctl_open */
};

/* One option of a command; `--name VALUE` or `--name=VALUE`, flags without a value. */
struct ctl_option {
	const char *name;
	const char *value_name; /* NULL: a flag */
	const char *help;
	const char **value;     /* set to the text, or to "" for a flag */
	const char ***values;   /* repeatable: NULL-terminated, allocated; else NULL */
};

struct ctl_command {
	const char *name;       /* "runtime install" */
	const char *arguments;  /* "[OPTIONS] ID" */
	const char *help;       /* one line */
	int (*run)(struct ctl *c, int argc, char **argv);
};

extern const struct ctl_command ctl_commands[];
extern const size_t ctl_command_count;

/* Parse options into their places; leaves the positional arguments in argv[0..return). -1: usage was printed. --help
 * prints the command's help and exits 0. */
int ctl_parse(struct ctl *c, const char *command, const struct ctl_option *options, size_t count, int argc,
	      char **argv, int least, int most);

/* Enter the state directory and read its configuration (ctl->config, ctl paths are relative from then on). */
int ctl_open(struct ctl *c, struct hb_error *err);

/* Print the error (text, or JSON on standard output) and return the exit code for it. */
int ctl_error(struct ctl *c, const struct hb_error *err);
int ctl_exit_for(const char *code);
/* Print the object with --json and return code; else nothing. Steals object. */
int ctl_result(struct ctl *c, json_t *object, int code);

/* A call to one of our servers; the broker's POSTs carry the control secret. A refusal in the body becomes err. */
json_t *ctl_call(struct ctl *c, enum hb_peer server, const char *method, const char *path, const json_t *body,
		 struct hb_error *err);

/* Prepare, show, get the decision (terminal, --approve, or wait for the phone), follow, report. Steals request. */
struct ctl_operate {
	const char *feature;
	json_t *request;
	const char *user;  /* NULL: the first live-policy user this console may decide for, else the first */
	bool approve;      /* consent in advance */
};
int ctl_operate(struct ctl *c, const struct ctl_operate *op, json_t **final, struct hb_error *err);
/* Follow an operation to its end; *final is its last description. Returns an exit code, -1 with err. */
int ctl_follow(struct ctl *c, const char *operation_id, json_t **final, struct hb_error *err);
/* One line or a few about how it ended, on standard output. */
void ctl_print_outcome(struct ctl *c, const json_t *operation);
int ctl_outcome_exit(const json_t *operation);

/* The operation as the approver itself shows it (never the broker's text): {operation_id, digest, summary, ...}. */
json_t *ctl_console_pending(struct ctl *c, const char *operation_id, struct hb_error *err);
/* Send a decision on exactly what `pending` showed. */
int ctl_console_decide(struct ctl *c, const json_t *pending, const char *decision, struct hb_error *err);
/* Show it, ask (unless `approve`), decide. */
int ctl_console_ask(struct ctl *c, const char *operation_id, bool approve, struct hb_error *err);

/* Ask on the terminal; -1 when there is none or --no-input. */
int ctl_confirm(struct ctl *c, const char *question, bool *yes);

/* Terminal pieces (output.c). */
void ctl_note(struct ctl *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ctl_progress(struct ctl *c, const json_t *progress);
void ctl_progress_end(struct ctl *c);
void ctl_time(long long t, char *out, size_t size);   /* local time, or "-" */
void ctl_bytes(double n, char *out, size_t size);     /* "53.1 MB" */
void ctl_print_text(const char *text);                /* escaped: never lets a terminal sequence through */

/* setup.c: make or complete the state directory. `changed` counts what was made. */
struct ctl_setup {
	const char *image;           /* NULL: the configured default */
	const char *mirror, *insecure_registry;
	const char **settings;       /* section.key=value, NULL-terminated; or NULL */
	const char **users;          /* further user ids; or NULL */
};
int ctl_setup_state(struct ctl *c, const struct ctl_setup *s, int *changed, struct hb_error *err);

/* Root at the host lets a further user be an approver at all. */
int ctl_bounds_add_user(const char *user, int *changed, struct hb_error *err);

/* The i-th directory of the state with the owner and mode it must have; false past the end. */
struct ctl_layout_entry {
	const char *path;
	uid_t uid;
	gid_t gid;
	mode_t mode;
};
bool ctl_layout(size_t i, struct ctl_layout_entry *out);

/* What the confined installer may keep at most: chown, dac_override, dac_read_search, fowner, fsetid, kill, setgid,
 * setuid (its unpack worker drops to another uid). */
#define CTL_INSTALLER_CAPS 0xffULL

/* service.c: is the launcher running, start it, stop it. */
int ctl_launcher_pid(struct ctl *c);
int ctl_up(struct ctl *c, bool *was_running, struct hb_error *err);
int ctl_down(struct ctl *c, bool *was_running, struct hb_error *err);
/* {name: {reachable, status, error?, checks}} of every process; *all_ok when each is reachable and ok. */
json_t *ctl_health(struct ctl *c, bool *all_ok);

#define CTL_COMMAND(name) int name(struct ctl *c, int argc, char **argv)
void ctl_print_runtime(const json_t *runtime); /* runtime.c */

CTL_COMMAND(ctl_cmd_setup);
CTL_COMMAND(ctl_cmd_quickstart);
CTL_COMMAND(ctl_cmd_up);
CTL_COMMAND(ctl_cmd_down);
CTL_COMMAND(ctl_cmd_status);
CTL_COMMAND(ctl_cmd_doctor);
CTL_COMMAND(ctl_cmd_runtime_install);
CTL_COMMAND(ctl_cmd_runtime_start);
CTL_COMMAND(ctl_cmd_runtime_stop);
CTL_COMMAND(ctl_cmd_runtime_restart);
CTL_COMMAND(ctl_cmd_runtime_upgrade);
CTL_COMMAND(ctl_cmd_runtime_rollback);
CTL_COMMAND(ctl_cmd_runtime_remove);
CTL_COMMAND(ctl_cmd_runtime_prune);
CTL_COMMAND(ctl_cmd_runtime_stage);
CTL_COMMAND(ctl_cmd_runtime_check);
CTL_COMMAND(ctl_cmd_runtime_quiesce);
CTL_COMMAND(ctl_cmd_runtime_resume);
CTL_COMMAND(ctl_cmd_runtime_status);
CTL_COMMAND(ctl_cmd_runtime_verify);
CTL_COMMAND(ctl_cmd_runtime_releases);
CTL_COMMAND(ctl_cmd_docker_list);
CTL_COMMAND(ctl_cmd_docker_pull);
CTL_COMMAND(ctl_cmd_docker_run);
CTL_COMMAND(ctl_cmd_docker_start);
CTL_COMMAND(ctl_cmd_docker_stop);
CTL_COMMAND(ctl_cmd_docker_restart);
CTL_COMMAND(ctl_cmd_docker_remove);
CTL_COMMAND(ctl_cmd_docker_logs);
CTL_COMMAND(ctl_cmd_docker_inspect);
CTL_COMMAND(ctl_cmd_sandbox_run);
CTL_COMMAND(ctl_cmd_ssh_run);
CTL_COMMAND(ctl_cmd_ssh_profile_list);
CTL_COMMAND(ctl_cmd_ssh_profile_add);
CTL_COMMAND(ctl_cmd_ssh_profile_verify);
CTL_COMMAND(ctl_cmd_ssh_profile_set_password);
CTL_COMMAND(ctl_cmd_ssh_profile_remove);
CTL_COMMAND(ctl_cmd_runtime_backup);
CTL_COMMAND(ctl_cmd_runtime_restore);
CTL_COMMAND(ctl_cmd_backup_list);
CTL_COMMAND(ctl_cmd_backup_verify);
CTL_COMMAND(ctl_cmd_backup_drill);
CTL_COMMAND(ctl_cmd_backup_decrypt);
CTL_COMMAND(ctl_cmd_operations_list);
CTL_COMMAND(ctl_cmd_operations_show);
CTL_COMMAND(ctl_cmd_operations_watch);
CTL_COMMAND(ctl_cmd_operations_cancel);
CTL_COMMAND(ctl_cmd_pending);
CTL_COMMAND(ctl_cmd_approve);
CTL_COMMAND(ctl_cmd_deny);
CTL_COMMAND(ctl_cmd_explain);
CTL_COMMAND(ctl_cmd_policy_show);
CTL_COMMAND(ctl_cmd_policy_set);
CTL_COMMAND(ctl_cmd_grant_verify);
CTL_COMMAND(ctl_cmd_audit_show);
CTL_COMMAND(ctl_cmd_audit_verify);
CTL_COMMAND(ctl_cmd_audit_acknowledge);
CTL_COMMAND(ctl_cmd_audit_checkpoint);
CTL_COMMAND(ctl_cmd_receipt_export);
CTL_COMMAND(ctl_cmd_receipt_show);
CTL_COMMAND(ctl_cmd_receipt_verify);
CTL_COMMAND(ctl_cmd_keys_init);
CTL_COMMAND(ctl_cmd_keys_rotate);
CTL_COMMAND(ctl_cmd_keys_show);
CTL_COMMAND(ctl_cmd_pause);
CTL_COMMAND(ctl_cmd_resume);
CTL_COMMAND(ctl_cmd_revoke);
CTL_COMMAND(ctl_cmd_users_list);
CTL_COMMAND(ctl_cmd_users_set);
CTL_COMMAND(ctl_cmd_users_add);
CTL_COMMAND(ctl_cmd_users_remove);
CTL_COMMAND(ctl_cmd_features_enable);
CTL_COMMAND(ctl_cmd_features_disable);
CTL_COMMAND(ctl_cmd_bot_token_set);
CTL_COMMAND(ctl_cmd_bot_token_clear);
CTL_COMMAND(ctl_cmd_secrets_rotate);
CTL_COMMAND(ctl_cmd_admin_key_show);
CTL_COMMAND(ctl_cmd_admin_key_rotate);
CTL_COMMAND(ctl_cmd_admin_enable);
CTL_COMMAND(ctl_cmd_admin_disable);
CTL_COMMAND(ctl_cmd_admin_status);
CTL_COMMAND(ctl_cmd_admin_browser);
CTL_COMMAND(ctl_cmd_runtime_key_set);
CTL_COMMAND(ctl_cmd_runtime_key_list);
CTL_COMMAND(ctl_cmd_runtime_key_remove);
CTL_COMMAND(ctl_cmd_inventory_show);
CTL_COMMAND(ctl_cmd_inventory_add);
CTL_COMMAND(ctl_cmd_inventory_edit);
CTL_COMMAND(ctl_cmd_inventory_remove);
CTL_COMMAND(ctl_cmd_inventory_import);
CTL_COMMAND(ctl_cmd_inventory_export);
CTL_COMMAND(ctl_cmd_inventory_check);
CTL_COMMAND(ctl_cmd_review);
CTL_COMMAND(ctl_cmd_guardrails_list);
CTL_COMMAND(ctl_cmd_guardrails_show);
CTL_COMMAND(ctl_cmd_guardrails_check);
CTL_COMMAND(ctl_cmd_guardrails_diff);
CTL_COMMAND(ctl_cmd_acceptance_run);
CTL_COMMAND(ctl_cmd_acceptance_show);
CTL_COMMAND(ctl_cmd_purge);
CTL_COMMAND(ctl_cmd_images_lock);
CTL_COMMAND(ctl_cmd_images_verify);

#endif
