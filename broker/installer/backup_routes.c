/* Sealing, listing and asking for checks of backups (backup_routes.h). */
#include "broker/installer/backup_routes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/data_swap.h"
#include "broker/installer/job.h"
#include "broker/installer/spec.h"
#include "common/fields.h"
#include "common/json.h"

int hb_installer_spare_port(uint16_t *port, struct hb_error *err)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = 0;

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		rc = hb_fail_errno(err, "no_port", "no spare port on 127.0.0.1");
	else
		*port = ntohs(a.sin_port);
	if (fd >= 0)
		close(fd);
	return rc;
}

int hb_backup_seal_backup(struct hb_installer *in, struct hb_error *err)
{
	if (hb_backup_store_check(&in->backups, err) < 0)
		return -1;
	if (in->age_trouble.code[0])
		return hb_fail(err, in->age_trouble.code, "%s", in->age_trouble.message);
	return 0;
}

static json_t *sealed_from(const json_t *record)
{
	static const char *const contents[] = {"created_at", "files",	"bytes",
					       "host_id",    "release", "image"};
	json_t *out = json_pack("{s:O, s:{}}", "backup_sha256", json_object_get(record, "sha256"),
				"contents");

	for (size_t i = 0; i < sizeof contents / sizeof *contents; i++)
		json_object_set(json_object_get(out, "contents"), contents[i],
				json_object_get(record, contents[i]));
	return out;
}

json_t *hb_backup_seal_restore(struct hb_installer *in, const json_t *request, struct hb_error *err)
{
	const char *name = hb_json_text(request, "backup", "");
	json_t *record = NULL, *out = NULL;
	struct stat st;
	int fd;

	fd = hb_backup_open(&in->backups, name, err);
	if (fd < 0)
		return NULL;
	if (hb_backup_is_encrypted(name)) {
		hb_fail(err, "backup_encrypted",
			"%s is encrypted; run: hermesctl backup decrypt %s --identity FILE", name,
			name);
		goto out;
	}
	record = hb_backup_record_load(&in->backups, name, err);
	if (!record)
		goto out;
	if (fstat(fd, &st) < 0 || st.st_size != hb_json_int(record, "size", -1) ||
	    hb_json_int(record, "last_verified", 0) == 0)
		hb_fail(err, "backup_unverified",
			"backup %s was not found good on this host as it is now; run: hermesctl "
			"backup verify %s",
			name, name);
	else
		out = sealed_from(record);
out:
	close(fd);
	json_decref(record);
	return out;
}

void hb_backup_handle_list(struct hb_request *req, void *ctx)
{
	struct hb_installer *in = ctx;
	struct hb_error err;
	json_t *list = hb_backup_list(&in->backups, &err);
	char *data;

	if (!list) {
		hb_reply_error(req, 200, &err);
		return;
	}
	data = hb_spec_absolute(hb_config_text(in->process->config, "runtime.data"));
	hb_reply_json(req, 200,
		      json_pack("{s:s, s:s, s:o, s:o, s:O}", "status", "ok", "directory",
				in->backups.path, "backups", list, "set_aside", hb_data_aside(data),
				"check", in->backup_check ? in->backup_check : json_null()));
	free(data);
}

static void handle_check(struct hb_request *req, struct hb_installer *in, const char *kind)
{
	struct check_body {
		const char *backup;
	} body = {0};
	static const struct hb_field fields[] = {
		{"backup", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct check_body, backup), 1,
		 255},
	};
	struct hb_error err;
	int fd = -1;

	if (hb_fields_decode(hb_request_json(req), fields, 1, &body, &err) == 0)
		fd = hb_backup_open(&in->backups, body.backup, &err);
	if (fd >= 0) {
		close(fd);
		if (hb_job_check_backup(in, kind, body.backup, &err) == 0) {
			hb_reply_json(req, 200, json_pack("{s:s}", "status", "accepted"));
			return;
		}
	}
	hb_reply_error(req, 200, &err);
}

void hb_backup_handle_verify(struct hb_request *req, void *ctx)
{
	handle_check(req, ctx, "verify");
}

void hb_backup_handle_drill(struct hb_request *req, void *ctx)
{
	handle_check(req, ctx, "drill");
}
