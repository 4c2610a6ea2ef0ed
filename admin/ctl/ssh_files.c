/* A profile's files, written by root for the ssh executor (ssh_profile.h). */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ssh_profile.h"
#include "common/json.h"
#include "common/paths.h"

int ctl_ssh_write(int dir, const char *name, const void *data, size_t len, struct hb_error *err)
{
	return hb_fs_write_atomic(dir, name, data, len, 0600, hb_peer_uid(HB_PEER_SSH),
				  hb_peer_gid(HB_PEER_SSH), err);
}

int ctl_ssh_write_json(int dir, const struct hb_ssh_profile *p, struct hb_error *err)
{
	json_t *o = json_pack("{s:i, s:s, s:i, s:s, s:s, s:s, s:s, s:s}", "version", 2, "host",
			      p->host, "port", p->port, "user", p->user, "authority", p->authority,
			      "fingerprint", p->fingerprint, "auth", p->auth, "credential_revision",
			      p->credential_revision);
	struct hb_buf text = HB_BUF_INIT;
	struct hb_ssh_profile check;
	int rc = hb_json_canonical(o, &text, err);

	hb_buf_addc(&text, '\n');
	if (rc == 0)
		rc = hb_ssh_profile_parse(text.data, text.len, &check, err);
	if (rc == 0)
		rc = ctl_ssh_write(dir, "profile.json", text.data, text.len, err);
	json_decref(o);
	hb_buf_free(&text);
	return rc;
}

int ctl_ssh_write_key(int dir, const struct hb_ssh_profile *p, const struct hb_ssh_host_key *key,
		      struct hb_error *err)
{
	struct hb_buf line = HB_BUF_INIT;
	int rc;

	hb_buf_printf(&line, p->port == 22 ? "%s" : "[%s]:%d", p->host, p->port);
	hb_buf_printf(&line, " %s %s\n", key->type, key->base64);
	rc = ctl_ssh_write(dir, "known_hosts", line.data, line.len, err);
	hb_buf_free(&line);
	return rc;
}

int ctl_ssh_open(const char *name, struct hb_ssh_profile *p, struct hb_error *err)
{
	char path[128];
	struct hb_buf text = HB_BUF_INIT;
	int dir;

	if (!hb_ssh_profile_name(name))
		return hb_fail(
			err, "usage",
			"a profile's name has lower-case letters, digits, '_' and '-', at most 64");
	snprintf(path, sizeof path, HB_PATH_SSH_PROFILES "/%s", name);
	dir = hb_fs_open_beneath(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, err);
	if (dir < 0)
		return hb_fail(err, "not_found", "there is no profile %s", name);
	if (hb_fs_read(dir, "profile.json", HB_SSH_PROFILE_JSON_MAX, &text, err) < 0 ||
	    hb_ssh_profile_parse(text.data ? text.data : "", text.len, p, err) < 0)
		hb_close(&dir);
	hb_buf_free(&text);
	return dir;
}
