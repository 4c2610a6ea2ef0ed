/* Entering the state directory, and calls to the servers. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/client.h"
#include "common/fs.h"
#include "common/json.h"
#include "common/paths.h"

#define CALL_TIMEOUT_MS 40000 /* sealing may ask a registry, which has 30 s on the client side */

int ctl_open(struct ctl *c, struct hb_error *err)
{
	if (chdir(c->state) < 0)
		return hb_fail(err, "not_found",
			       "no state directory at %s (%s): run `hermesctl setup` or `./manage.sh quickstart`, "
			       "or name it with --state DIR", c->state, strerror(errno));
	if (hb_config_load(AT_FDCWD, HB_PATH_CONFIG, NULL, 0, &c->config, err) < 0)
		return -1;
	hb_peers_init((uid_t)hb_config_int(c->config, "identities.base_uid"));
	return 0;
}

/* Root reads the broker's own copy; another allowed client has one of its own. */
static int control_secret(struct hb_secret *out, struct hb_error *err)
{
	char path[64];

	if (geteuid() == 0)
		return hb_secret_read(AT_FDCWD, HB_PATH_CONTROL_SECRET, hb_peer_uid(HB_PEER_BROKER), 512, out, err);
	snprintf(path, sizeof path, "clients/%u/control-secret", (unsigned)geteuid());
	return hb_secret_read_delivered(AT_FDCWD, path, geteuid(), hb_peer_gid(HB_PEER_BROKER), 512, out, err);
}

/* A description of an operation or of a process may hold an "error" of its own: that is an answer, not a refusal. */
static bool is_description(const json_t *answer)
{
	return json_object_get(answer, "checks") || json_object_get(answer, "operation_id");
}

json_t *ctl_call(struct ctl *c, enum hb_peer server, const char *method, const char *path, const json_t *body,
		 struct hb_error *err)
{
	struct hb_call call = {.server = server, .method = method, .path = path, .body = body,
			       .timeout_ms = CALL_TIMEOUT_MS};
	struct hb_secret secret = {0};
	json_t *answer = NULL;
	int status = 0;

	if (server == HB_PEER_BROKER && strcmp(method, "POST") == 0) {
		if (control_secret(&secret, err) < 0)
			return NULL;
		call.header_name = "X-Broker-Secret";
		call.header_value = secret.text;
	}
	if (server == HB_PEER_BROKER)
		call.socket = c->socket;
	answer = hb_client_call_sync(&call, &status, err);
	hb_secret_free(&secret);
	if (answer && !is_description(answer) && hb_reply_failed(status, answer, err) < 0) {
		json_decref(answer);
		return NULL;
	}
	return answer;
}
