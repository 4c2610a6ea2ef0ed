/*
 * The control secret: made here, and brought to each client as the file that it reads.
 *
 * A client's copy belongs to the client; our group may write it and not read it (mode 0620), so that what lies there can't
 * be taken back by whoever captures the broker. It is overwritten in place, since clients in containers may hold the file
 * itself. The broker's own file is the truth: it is replaced first, and at every start the copies are made again from it,
 * so a crash in between heals.
 */
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/broker.h"
#include "common/ids.h"
#include "common/log.h"
#include "common/paths.h"

/* Judged by descriptor: the directory is the client's, who may have put anything there. */
static int
check_copy(int fd, const char *path, uid_t client, struct hb_error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return hb_fail_errno(err, "secret_undelivered", "cannot look at %s", path);
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_uid != client ||
	    st.st_gid != getegid() || (st.st_mode & 057) != 0)
		return hb_fail(err, "secret_undelivered",
			       "%s must be a file of uid %u and group %u with mode 0620: run "
			       "hermesctl setup",
			       path, (unsigned)client, (unsigned)getegid());
	return 0;
}

static int
deliver_to(const char *uid, const struct hb_secret *s, struct hb_error *err)
{
	char path[64];
	int fd, rc = -1;

	snprintf(path, sizeof(path), "clients/%.12s/control-secret", uid);
	fd = hb_fs_open_beneath(AT_FDCWD, path, O_WRONLY | O_NONBLOCK | O_CLOEXEC, 0, err);
	if (fd < 0) {
		hb_fail_prefix(err, "the control secret was not delivered (run hermesctl setup)");
		return -1;
	}
	if (check_copy(fd, path, (uid_t)strtoul(uid, NULL, 10), err) < 0)
		goto out;
	if (pwrite(fd, s->text, s->len, 0) != (ssize_t)s->len ||
	    ftruncate(fd, (off_t)s->len) < 0 || fsync(fd) < 0)
		hb_fail_errno(err, "secret_undelivered", "cannot write %s", path);
	else
		rc = 0;
out:
	hb_close(&fd);
	return rc;
}

int
hb_secret_deliver(struct hb_broker *b)
{
	const char **uids;
	size_t n = hb_config_list(b->process->config, "broker.client_uids", &uids);
	struct hb_error err;
	int delivered = 0;

	for (size_t i = 0; b->control.loaded && i < n; i++) {
		if (deliver_to(uids[i], &b->control.secret, &err) == 0)
			delivered++;
		else
			hb_log(HB_LOG_WARN, "secret_undelivered", "uid", uids[i], "error",
			       err.message, NULL);
	}
	return delivered;
}

static int
replace(struct hb_broker *b, struct hb_error *err)
{
	char hex[66];
	int rc;

	hb_random_hex(32, hex);
	strcat(hex, "\n");
	rc = hb_fs_write_atomic(AT_FDCWD, HB_PATH_CONTROL_SECRET, hex, 65, 0600, (uid_t)-1,
				(gid_t)-1, err);
	sodium_memzero(hex, sizeof(hex));
	return rc < 0 ? rc : hb_secret_watch(&b->control, err);
}

/* POST /control-secret: from admin or root. The new secret is in nobody's answer. */
void
hb_route_rotate(struct hb_request *req, void *ctx)
{
	struct hb_broker *b = ctx;
	const char **uids;
	size_t n = hb_config_list(b->process->config, "broker.client_uids", &uids);
	struct hb_error err;
	json_t *detail;
	int delivered;

	if (json_object_size(hb_request_json(req)) > 0) {
		hb_fail(&err, "unknown_field", "/control-secret takes an empty object");
		hb_refuse(req, &err);
		return;
	}
	if (hb_audit_append(b->process->audit, "control_secret", "intent", NULL, &err) < 0 ||
	    replace(b, &err) < 0) {
		hb_refuse(req, &err);
		return;
	}
	delivered = hb_secret_deliver(b);
	detail = json_pack("{s:i, s:i}", "clients", (int)n, "delivered", delivered);
	hb_audit_append(b->process->audit, "control_secret", "ok", detail, NULL);
	json_decref(detail);
	hb_log(HB_LOG_INFO, "control_secret_rotated", NULL);
	hb_reply_json(req, 200,
		      json_pack("{s:s, s:i, s:i}", "status", "ok", "clients", (int)n, "delivered",
				delivered));
}
