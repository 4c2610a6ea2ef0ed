/*
 * GET /admin/status: what every service says of itself, asked at once and put together when the last has answered or
 * given up. The "security" block is tried, not asserted: can this process open what it must never have?
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "admin/admin.h"
#include "common/buf.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/paths.h"
#include "onboarding/review.h"

#define HEALTH_TIMEOUT_MS 3000

static const enum hb_peer services[] = {HB_PEER_APPROVER, HB_PEER_DOCKER, HB_PEER_SSH, HB_PEER_BROKER,
					HB_PEER_INSTALLER, HB_PEER_FETCHER};
#define SERVICE_COUNT (sizeof services / sizeof services[0])

struct gather {
	size_t waiting;
	json_t *services;
	json_t *runtime;
	admin_gathered done;
	void *arg;
};

struct one {
	struct gather *gather;
	enum hb_peer server;
};

int admin_self_check(struct admin *a, struct hb_error *err)
{
	struct hb_secret key;
	struct hb_policy_view view = {0};

	(void)a;
	if (hb_secret_read(AT_FDCWD, HB_PATH_ADMIN_KEY, hb_peer_uid(HB_PEER_ADMIN), 512, &key, err) < 0)
		return -1;
	hb_secret_free(&key);
	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, err) < 0)
		return -1;
	hb_policy_view_free(&view);
	return 0;
}

void admin_health(struct hb_request *req, void *ctx)
{
	struct admin *a = ctx;
	struct hb_error err = {0};
	bool well = admin_self_check(a, &err) == 0;

	hb_reply_json(req, 200, hb_process_health(a->process, well ? NULL : err.message));
}

static bool can_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool can_connect(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd;
	bool ok;

	if (strlen(path) >= sizeof sa.sun_path)
		return false;
	memcpy(sa.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ok = fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0;
	if (fd >= 0)
		close(fd);
	return ok;
}

json_t *admin_security(struct admin *a)
{
	return json_pack("{s:b,s:b,s:b,s:b}", "signing_key_mounted", can_open(HB_PATH_SIGNING_KEY), "docker_socket_mounted",
			 can_connect(hb_config_text(a->process->config, "docker.socket")),
			 "ssh_private_credentials_mounted", can_open(HB_PATH_SSH_PROFILES), "bot_token_readback",
			 can_open(HB_PATH_BOT_TOKEN));
}

static json_t *string_list(const char *const *items, size_t n)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_string(items[i]));
	return list;
}

/* What policy says; unreadable policy means nothing is enabled, and the answer says why. */
static void add_policy(json_t *answer)
{
	struct hb_policy_view view = {0};
	struct hb_error err = {0};
	json_t *live;
	const char *const *users;
	size_t n;

	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, &err) < 0) {
		json_object_update_new(answer, json_pack("{s:[],s:[],s:[],s:i,s:s}", "features", "users", "allowed_users",
							 "policy_generation", 0, "policy_error", err.message));
		return;
	}
	live = hb_policy_to_json(&view.live);
	n = hb_bounds_users(view.bounds, &users);
	json_object_set(answer, "features", json_object_get(live, "features"));
	json_object_set(answer, "users", json_object_get(live, "users"));
	json_object_set(answer, "paused", json_object_get(live, "paused"));
	json_object_set(answer, "quorum", json_object_get(live, "quorum"));
	json_object_set_new(answer, "allowed_users", string_list(users, n));
	json_object_set_new(answer, "policy_generation", json_integer(view.live.generation));
	json_decref(live);
	hb_policy_view_free(&view);
}

static void one_less(struct gather *g)
{
	if (--g->waiting > 0)
		return;
	g->done(g->services, g->runtime, g->arg);
	json_decref(g->services);
	json_decref(g->runtime);
	free(g);
}

static void service_answered(int status, const json_t *body, const struct hb_error *err, void *arg)
{
	struct one *one = arg;
	struct gather *g = one->gather;
	const char *state = status == 200 ? hb_json_text(body, "status", "error") : "unreachable";
	json_t *entry = json_pack("{s:b,s:s}", "reachable", status == 200, "status", state);
	const char *why = status == 200 ? hb_json_text(body, "error", NULL) : err ? err->message : "no usable answer";

	if (why)
		json_object_set_new(entry, "error", json_string(why));
	if (json_object_get(body, "checks"))
		json_object_set(entry, "checks", json_object_get(body, "checks"));
	json_object_set_new(g->services, hb_peer_dir(one->server), entry);
	free(one);
	one_less(g);
}

static void runtime_answered(int status, const json_t *body, const struct hb_error *err, void *arg)
{
	struct gather *g = arg;

	(void)err;
	if (status == 200)
		g->runtime = json_incref((json_t *)body);
	one_less(g);
}

void admin_gather(struct admin *a, admin_gathered done, void *arg)
{
	struct gather *g = hb_calloc(1, sizeof *g);
	struct hb_call call = {.method = "GET", .path = "/health", .timeout_ms = HEALTH_TIMEOUT_MS};

	g->services = json_object();
	g->done = done;
	g->arg = arg;
	g->waiting = SERVICE_COUNT + 1;
	for (size_t i = 0; i < SERVICE_COUNT; i++) {
		struct one *one = hb_calloc(1, sizeof *one);
		one->gather = g;
		one->server = services[i];
		call.server = services[i];
		call.on_done = service_answered;
		call.arg = one;
		hb_client_start(a->process->client, &call);
	}
	call.server = HB_PEER_INSTALLER;
	call.path = "/runtime";
	call.on_done = runtime_answered;
	call.arg = g;
	hb_client_start(a->process->client, &call);
}

struct asked {
	struct admin *admin;
	struct hb_request *req; /* NULL once the caller has gone */
};

/* Kinds and names of what is due, from the file that hermesctl writes for us. */
static json_t *reviews(void)
{
	struct hb_error err = {0};
	json_t *due = hb_reviews_read(HB_REVIEWS_ADMIN, hb_now(), &err);

	return due ? due : json_pack("{s:i, s:[], s:s}", "due", 0, "items", "error", err.message);
}

static void gathered(json_t *all, json_t *runtime, void *arg)
{
	struct asked *asked = arg;
	const json_t *approver = json_object_get(json_object_get(all, "approver"), "checks");
	json_t *profiles = json_object_get(json_object_get(json_object_get(all, "ssh"), "checks"), "profiles");
	const struct hb_config *config = asked->admin->process->config;
	json_t *body;

	if (asked->req) {
		body = json_pack("{s:s,s:b,s:b,s:O,s:o,s:b}", "version", HB_VERSION, "bot_token_configured",
				 hb_json_bool(approver, "bot_configured", false), "admin_key_configured", 1, "services",
				 all, "security", admin_security(asked->admin), "widening_needs_grant",
				 hb_config_bool(config, "admin.widening_needs_grant"));
		json_object_set_new(body, "ssh_profiles", json_is_array(profiles) ? json_incref(profiles) : json_array());
		json_object_set(body, "runtime", runtime ? runtime : json_null());
		json_object_set_new(body, "reviews", reviews());
		add_policy(body);
		hb_reply_json(asked->req, 200, body);
	}
	free(asked);
}

static void caller_gone(void *arg)
{
	((struct asked *)arg)->req = NULL;
}

void admin_status(struct hb_request *req, void *ctx)
{
	struct asked *asked = hb_calloc(1, sizeof *asked);

	asked->admin = ctx;
	asked->req = req;
	hb_request_on_close(req, caller_gone, asked);
	admin_gather(ctx, gathered, asked);
}
