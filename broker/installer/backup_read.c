/* The job worker's side of the backup reader: fork it, listen, let it go on (backup_archive.h). */
#include "broker/installer/backup_archive.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fields.h"
#include "common/fs.h"
#include "common/json.h"

struct hb_backup_reader {
	pid_t pid;
	int sock;
};

static int reader_died(struct hb_backup_reader *r, struct hb_error *err)
{
	int status = 0;

	if (r->pid > 0 && waitpid(r->pid, &status, 0) == r->pid) {
		r->pid = -1;
		if (WIFSIGNALED(status))
			return hb_fail(err, "worker_died",
				       "the backup reader was ended by signal %d (%s)",
				       WTERMSIG(status), strsignal(WTERMSIG(status)));
	}
	return hb_fail(err, "worker_died", "the backup reader ended without a word");
}

/* The next packet, a JSON object; an error that the child reports is ours. */
static json_t *receive(struct hb_backup_reader *r, struct hb_error *err)
{
	static char packet[HB_BACKUP_PACKET_MAX];
	json_t *o;
	ssize_t n;

	do
		n = recv(r->sock, packet, sizeof packet, 0);
	while (n < 0 && errno == EINTR);
	o = n > 0 ? hb_json_parse(packet, (size_t)n, NULL) : NULL;
	if (!o) {
		reader_died(r, err);
		return NULL;
	}
	if (json_object_get(o, "error")) {
		hb_fail(err, hb_json_text(o, "code", "bad_backup"), "%s",
			hb_json_text(o, "error", ""));
		json_decref(o);
		return NULL;
	}
	return o;
}

/* What the child says is decoded as strictly as anything from outside: it has read the archive. */
static int check_head(const json_t *head, struct hb_error *err)
{
	struct {
		const char *text;
		long long number;
	} unused;
	static const struct hb_field fields[] = {
		{"host_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED, 0, 0, 64},
		{"operation_id", HB_FIELD_TEXT, HB_FIELD_REQUIRED, 0, 0, 64},
		{"release", HB_FIELD_TEXT, HB_FIELD_REQUIRED, 0, 0, 64},
		{"image", HB_FIELD_TEXT, HB_FIELD_REQUIRED, 0, 0, 512},
		{"created_at", HB_FIELD_INT, HB_FIELD_REQUIRED, sizeof(char *), 0, HB_JSON_INT_MAX},
		{"files", HB_FIELD_INT, HB_FIELD_REQUIRED, sizeof(char *), 0, HB_JSON_INT_MAX},
		{"directories", HB_FIELD_INT, HB_FIELD_REQUIRED, sizeof(char *), 0,
		 HB_JSON_INT_MAX},
		{"links", HB_FIELD_INT, HB_FIELD_REQUIRED, sizeof(char *), 0, HB_JSON_INT_MAX},
		{"bytes", HB_FIELD_INT, HB_FIELD_REQUIRED, sizeof(char *), 0, HB_JSON_INT_MAX},
		{"left_out", HB_FIELD_INT, HB_FIELD_REQUIRED, sizeof(char *), 0, HB_JSON_INT_MAX},
		{"sqlite_bytes", HB_FIELD_INT, HB_FIELD_REQUIRED, sizeof(char *), 0,
		 HB_JSON_INT_MAX},
	};

	if (hb_fields_decode(head, fields, sizeof fields / sizeof *fields, &unused, err) < 0)
		return hb_fail_prefix(err, "the backup reader's answer");
	return 0;
}

int hb_backup_reader_start(const struct hb_backup_read *what, struct hb_backup_reader **out,
			   json_t **head, struct hb_error *err)
{
	struct hb_backup_reader *r;
	json_t *first;
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return hb_fail_errno(err, "io_failed", "the backup reader can't be started");
	pid = fork();
	if (pid == 0)
		hb_backup_reader_child(pair[1], what);
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return hb_fail_errno(err, "io_failed", "the backup reader can't be started");
	}
	r = hb_calloc(1, sizeof *r);
	r->pid = pid;
	r->sock = pair[0];
	first = receive(r, err);
	if (!first || check_head(json_object_get(first, "head"), err) < 0) {
		json_decref(first);
		hb_backup_reader_free(r);
		return -1;
	}
	*head = json_incref(json_object_get(first, "head"));
	json_decref(first);
	*out = r;
	return 0;
}

int hb_backup_reader_run(struct hb_backup_reader *r, hb_backup_progress progress, void *arg,
			 json_t **databases, struct hb_error *err)
{
	json_t *packet, *list;

	if (send(r->sock, "g", 1, MSG_NOSIGNAL) != 1)
		return reader_died(r, err);
	while ((packet = receive(r, err))) {
		list = json_object_get(packet, "databases");
		if (json_is_array(list)) {
			*databases = json_incref(list);
			json_decref(packet);
			return 0;
		}
		if (progress)
			progress((uint64_t)hb_json_int(packet, "bytes", 0),
				 (uint64_t)hb_json_int(packet, "files", 0), arg);
		json_decref(packet);
	}
	return -1;
}

void hb_backup_reader_free(struct hb_backup_reader *r)
{
	if (!r)
		return;
	hb_close(&r->sock);
	if (r->pid > 0) {
		kill(r->pid, SIGKILL);
		while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
			continue;
	}
	free(r);
}
