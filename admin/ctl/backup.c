/*
 * hermesctl runtime backup|restore and backup list|verify|drill|decrypt.
 *
 * Decrypting is done here, by root at a terminal with the identity file in hand: no process of ours
 * ever holds what decrypts a backup.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/json.h"

#define POLL_US 150000
#define AGE_SUFFIX ".age"

static json_t *get_backups(struct ctl *c, struct hb_error *err)
{
	return ctl_call(c, HB_PEER_BROKER, "GET", "/backups", NULL, err);
}

/* Ask for a check and wait for it; *check is how it went. */
static int run_check(struct ctl *c, const char *kind, const char *name, json_t **check,
		     struct hb_error *err)
{
	json_t *body = json_pack("{s:s}", "backup", name), *answer, *now;
	char path[32];

	snprintf(path, sizeof path, "/backups/%s", kind);
	answer = ctl_call(c, HB_PEER_BROKER, "POST", path, body, err);
	json_decref(body);
	while (answer) {
		json_decref(answer);
		answer = get_backups(c, err);
		now = json_object_get(answer, "check");
		if (!answer || strcmp(hb_json_text(now, "state", ""), "running") != 0)
			break;
		usleep(POLL_US);
	}
	if (!answer)
		return -1;
	*check = json_incref(json_object_get(answer, "check"));
	json_decref(answer);
	return 0;
}

static int operate(struct ctl *c, json_t *request, const char *user, bool approve)
{
	struct ctl_operate op = {
		.feature = "runtime", .request = request, .user = user, .approve = approve};
	struct hb_error err = {0};
	json_t *final = NULL;
	int code = ctl_operate(c, &op, &final, &err);

	if (code < 0)
		return ctl_error(c, &err);
	ctl_print_outcome(c, final);
	return ctl_result(c, final, code);
}

int ctl_cmd_runtime_backup(struct ctl *c, int argc, char **argv)
{
	const char *approve = NULL, *user = NULL;
	const struct ctl_option options[] = {
		{"approve", NULL, "consent in advance; the approver still signs the exact digest",
		 &approve, NULL},
		{"user", "ID", "the user in whose name it is asked", &user, NULL},
	};
	struct hb_error err = {0};

	if (ctl_parse(c, "runtime backup", options, 2, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	return operate(c, json_pack("{s:s}", "action", "backup"), user, approve != NULL);
}

/* Restoring wants a verification on this host first; asked for when there is none. */
static int ensure_verified(struct ctl *c, const char *name, struct hb_error *err)
{
	json_t *answer = get_backups(c, err), *item, *check = NULL;
	bool there = false, verified = false;
	int rc = 0;
	size_t i;

	if (!answer)
		return -1;
	json_array_foreach(json_object_get(answer, "backups"), i, item) {
		if (strcmp(hb_json_text(item, "name", ""), name) != 0)
			continue;
		there = true;
		verified = hb_json_bool(item, "recorded", false) &&
			   hb_json_int(item, "last_verified", 0) > 0;
	}
	if (there && !verified) {
		ctl_note(c, "Verifying %s first.", name);
		rc = run_check(c, "verify", name, &check, err);
		if (rc == 0 && !hb_json_bool(check, "ok", false))
			rc = hb_fail(err, hb_json_text(check, "code", "bad_backup"), "%s",
				     hb_json_text(check, "error", "the backup is not good"));
	}
	json_decref(check);
	json_decref(answer);
	return rc; /* one that isn't there is refused, with the better text, when it is sealed */
}

int ctl_cmd_runtime_restore(struct ctl *c, int argc, char **argv)
{
	const char *approve = NULL, *user = NULL;
	const struct ctl_option options[] = {
		{"approve", NULL, "consent in advance; the approver still signs the exact digest",
		 &approve, NULL},
		{"user", "ID", "the user in whose name it is asked", &user, NULL},
	};
	struct hb_error err = {0};

	if (ctl_parse(c, "runtime restore", options, 2, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || ensure_verified(c, argv[0], &err) < 0)
		return ctl_error(c, &err);
	return operate(c, json_pack("{s:s, s:s}", "action", "restore", "backup", argv[0]), user,
		       approve != NULL);
}

/* --- looking and checking --- */

static void print_backup(const json_t *b)
{
	const json_t *drill = json_object_get(b, "drill");
	char size[32], made[32], verified[32], tried[32];

	ctl_bytes((double)hb_json_int(b, "size", 0), size, sizeof size);
	ctl_time(hb_json_int(b, "created_at", 0), made, sizeof made);
	ctl_time(hb_json_int(b, "last_verified", 0), verified, sizeof verified);
	ctl_time(hb_json_int(drill, "at", 0), tried, sizeof tried);
	ctl_print_text(hb_json_text(b, "name", "?"));
	printf("\n  made %s, %s, %lld files, release %.12s%s\n", made, size,
	       hb_json_int(b, "files", 0), hb_json_text(b, "release", "-"),
	       hb_json_bool(b, "encrypted", false) ? ", encrypted" : "");
	printf("  last verified %s",
	       hb_json_int(b, "last_verified", 0) ? verified : "never on this host");
	if (drill)
		printf(", drill %s %s", tried, hb_json_bool(drill, "ok", false) ? "ok" : "FAILED");
	putchar('\n');
}

int ctl_cmd_backup_list(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *answer, *item;
	size_t i;

	if (ctl_parse(c, "backup list", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || !(answer = get_backups(c, &err)))
		return ctl_error(c, &err);
	if (!c->json) {
		json_array_foreach(json_object_get(answer, "backups"), i, item)
			print_backup(item);
		if (json_array_size(json_object_get(answer, "backups")) == 0) {
			printf("No backup is in ");
			ctl_print_text(hb_json_text(answer, "directory", "the backup directory"));
			puts(".");
		}
		json_array_foreach(json_object_get(answer, "set_aside"), i, item) {
			printf("Set aside by a restore, yours to remove: ");
			ctl_print_text(json_is_string(item) ? json_string_value(item) : "?");
			putchar('\n');
		}
	}
	return ctl_result(c, answer, CTL_OK);
}

static void print_check(const json_t *check)
{
	const json_t *record = json_object_get(check, "record"),
		     *drill = json_object_get(check, "drill");
	json_t *db;
	size_t i;

	if (*hb_json_text(check, "error", "")) {
		ctl_print_text(hb_json_text(check, "error", ""));
		printf(" (%s)\n", hb_json_text(check, "code", "no code"));
		return;
	}
	print_backup(record);
	json_array_foreach(json_object_get(record, "databases"), i, db) {
		printf("  database ");
		ctl_print_text(hb_json_text(db, "path", "?"));
		printf(": %s, %lld pages, %lld rows\n", hb_json_text(db, "state", "?"),
		       hb_json_int(db, "pages", 0), hb_json_int(db, "rows", 0));
	}
	if (drill) {
		printf("  ");
		ctl_print_text(hb_json_text(
			drill, hb_json_bool(drill, "ok", false) ? "proves" : "error", ""));
		putchar('\n');
	}
}

static int check_command(struct ctl *c, const char *kind, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *check = NULL;
	char name[32];
	bool ok;

	snprintf(name, sizeof name, "backup %s", kind);
	if (ctl_parse(c, name, NULL, 0, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || run_check(c, kind, argv[0], &check, &err) < 0)
		return ctl_error(c, &err);
	ok = hb_json_bool(check, "ok", false);
	if (!c->json)
		print_check(check);
	return ctl_result(c, check, ok ? CTL_OK : CTL_FAILED);
}

int ctl_cmd_backup_verify(struct ctl *c, int argc, char **argv)
{
	return check_command(c, "verify", argc, argv);
}

int ctl_cmd_backup_drill(struct ctl *c, int argc, char **argv)
{
	return check_command(c, "drill", argc, argv);
}

/* --- decrypting --- */

/* age reads the file and writes to `out`; its questions and complaints are for the terminal. */
static int run_age(const char *identity, int in, int out, struct hb_error *err)
{
	char *const env[] = {(char *)(uintptr_t) "PATH=/usr/local/bin:/usr/bin:/bin", NULL};
	char *const argv[] = {(char *)(uintptr_t) "age", (char *)(uintptr_t) "--decrypt",
			      (char *)(uintptr_t) "-i", (char *)(uintptr_t)identity, NULL};
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		if (dup2(in, 0) < 0 || dup2(out, 1) < 0)
			_exit(126);
		execvpe("age", argv, env);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return hb_fail(err, "age_missing",
			       "there is no program age; run: apt-get install age");
	return hb_fail(err, "age_failed", "age did not decrypt it");
}

static int decrypt(int dir, const char *name, const char *identity, char *plain,
		   struct hb_error *err)
{
	char temporary[300];
	int in = -1, out = -1, rc = -1;

	snprintf(plain, 256, "%.*s", (int)(strlen(name) - strlen(AGE_SUFFIX)), name);
	snprintf(temporary, sizeof temporary, ".new-%s", plain);
	in = hb_fs_open_beneath(dir, name, O_RDONLY | O_CLOEXEC, 0, err);
	if (in < 0)
		return -1;
	unlinkat(dir, temporary, 0);
	out = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		hb_fail_errno(err, "write_failed", "the decrypted backup can't be made");
	else if (run_age(identity, in, out, err) == 0) {
		if (fsync(out) < 0 || renameat2(dir, temporary, dir, plain, RENAME_NOREPLACE) < 0 ||
		    fsync(dir) < 0)
			hb_fail_errno(err, "write_failed", "%s can't be put in its place", plain);
		else
			rc = 0;
	}
	if (rc < 0)
		unlinkat(dir, temporary, 0);
	hb_close(&in);
	hb_close(&out);
	return rc;
}

int ctl_cmd_backup_decrypt(struct ctl *c, int argc, char **argv)
{
	const char *identity = NULL, *where;
	const struct ctl_option options[] = {{"identity", "FILE",
					      "the age identity that the backup was encrypted to",
					      &identity, NULL}};
	struct hb_error err = {0};
	char plain[256], *full = NULL;
	size_t len;
	int dir = -1, rc = -1;

	if (ctl_parse(c, "backup decrypt", options, 1, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	len = strlen(argv[0]);
	if (!identity || strchr(argv[0], '/') || len > 250 || len <= strlen(AGE_SUFFIX) ||
	    strcmp(argv[0] + len - strlen(AGE_SUFFIX), AGE_SUFFIX) != 0) {
		hb_fail(&err, "usage",
			"name a file of `hermesctl backup list` that ends in .age, and --identity "
			"FILE");
		return ctl_error(c, &err);
	}
	full = realpath(identity, NULL); /* before the working directory changes */
	if (!full)
		hb_fail_errno(&err, "not_found", "the identity file %s", identity);
	if (full && ctl_open(c, &err) == 0) {
		where = hb_config_text(c->config, "runtime.backup_dir");
		dir = open(where[0] ? where : "installer/backups",
			   O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = dir < 0 ? hb_fail_errno(&err, "not_found",
					     "the backup directory can't be opened; run it with "
					     "sudo")
			     : decrypt(dir, argv[0], full, plain, &err);
	}
	hb_close(&dir);
	free(full);
	if (rc < 0)
		return ctl_error(c, &err);
	ctl_note(c, "%s is there in clear now; remove it when it is restored.", plain);
	return ctl_result(c, json_pack("{s:s, s:s}", "status", "ok", "backup", plain), CTL_OK);
}
