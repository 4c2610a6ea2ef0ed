/*
 * How the others are: each is asked for its health every few seconds, and GET /health answers from
 * what was heard.
 *
 * The approver's start time is watched as well. When it has restarted everything that awaits a
 * decision is submitted again: it normally remembers, then that changes nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define CHECK_SECONDS 5
#define CHECK_TIMEOUT_MS 3000
/* All processes start at once: in the beginning, one that isn't there yet is asked again at once, so that health doesn't
 * call it lost for seconds. */
#define STARTING_SECONDS 10
#define STARTING_PAUSE_US 50000

static const enum hb_peer peers[HB_SVC_COUNT] = {
	[HB_SVC_APPROVER] = HB_PEER_APPROVER,
	[HB_SVC_INSTALLER] = HB_PEER_INSTALLER,
	[HB_SVC_DOCKER] = HB_PEER_DOCKER,
	[HB_SVC_SSH] = HB_PEER_SSH,
};

static bool
starting(const struct hb_broker *b)
{
	return hb_now() - b->process->started_at < STARTING_SECONDS;
}

static void
ask_again(evutil_socket_t fd, short what, void *arg)
{
	hb_services_tick(arg);
}

static void
answered(int status, const json_t *body, const struct hb_error *err, void *arg)
{
	struct hb_service_state *s = arg;
	const char *error = status == 0 ? err->message : hb_json_text(body, "error", "");
	int64_t started = hb_json_int(json_object_get(body, "checks"), "started_at", 0);
	bool was_reachable = s->reachable;

	s->call = NULL;
	s->asked = true;
	s->reachable = status != 0;
	s->checked_at = hb_now();
	if (status != 0) {
		const json_t *audit = json_object_get(json_object_get(body, "checks"), "audit");
		const char *hash = hb_json_text(audit, "hash", "");

		if (hb_is_hex64(hash)) {
			s->head.seq = hb_json_int(audit, "seq", 0);
			memcpy(s->head.hash, hash, sizeof(s->head.hash));
		}
		if (s->peer == HB_PEER_APPROVER)
			hb_broker_heard(s->broker);
	}
	s->ok = status == 200 && strcmp(hb_json_text(body, "status", ""), "ok") == 0;
	memset(s->error, 0, sizeof(s->error));
	memccpy(s->error, error, 0, sizeof(s->error) - 1);
	if (!s->reachable) {
		if (was_reachable)
			hb_log(HB_LOG_WARN, "service_lost", "service", hb_peer_name(s->peer),
			       "error", s->error, NULL);
		if (starting(s->broker))
			event_base_once(s->broker->process->base, -1, EV_TIMEOUT, ask_again, s->broker,
					&(struct timeval){.tv_usec = STARTING_PAUSE_US});
		return;
	}
	if (s->peer == HB_PEER_APPROVER && s->started_at && started != s->started_at) {
		hb_log(HB_LOG_INFO, "approver_restarted", NULL);
		hb_store_resubmit(s->broker->store, NULL);
		hb_outbox_tick(s->broker);
	}
	s->started_at = started;
}

void
hb_services_init(struct hb_broker *b)
{
	for (int i = 0; i < HB_SVC_COUNT; i++) {
		b->services[i].peer = peers[i];
		b->services[i].broker = b;
	}
}

void
hb_services_tick(struct hb_broker *b)
{
	struct hb_call call = {.method = "GET",
			       .path = "/health",
			       .timeout_ms = CHECK_TIMEOUT_MS,
			       .on_done = answered};

	for (int i = 0; i < HB_SVC_COUNT; i++) {
		struct hb_service_state *s = &b->services[i];

		/* Known from the bounds; without a readable policy nothing is expected of anybody.
		 */
		s->expected = s->peer == HB_PEER_APPROVER ||
			      (b->policy_ok &&
			       hb_bounds_executor(b->policy.bounds, hb_peer_dir(s->peer)));
		if (!s->expected || s->call ||
		    (s->asked && (s->reachable || !starting(b)) &&
		     hb_now() - s->checked_at < CHECK_SECONDS))
			continue;
		call.server = s->peer;
		call.arg = s;
		s->call = hb_client_start(b->process->client, &call);
	}
}

json_t *
hb_broker_health(struct hb_broker *b)
{
	static const char *const names[] = {"runtime", "local", "docker", "ssh"};
	struct hb_error err;
	const char *error = NULL;
	char text[HB_ERROR_MESSAGE_MAX + 64];
	json_t *features = json_array(), *services = json_object(), *health, *checks;

	if (hb_broker_policy(b, &err) < 0 || hb_secret_watch(&b->control, &err) < 0 ||
	    hb_secret_watch(&b->approval, &err) < 0)
		error = err.message;
	if (!error && hb_broker_ready(b, &err) < 0 && strcmp(err.code, "paused") != 0)
		error = err.message;
	for (int i = 0; i < 4 && b->policy_ok; i++)
		if (b->policy.live.features & (1u << i))
			json_array_append_new(features, json_string(names[i]));
	for (int i = 0; i < HB_SVC_COUNT; i++) {
		const struct hb_service_state *s = &b->services[i];

		if (!s->expected)
			continue;
		json_object_set_new(services, hb_peer_dir(s->peer),
				    json_pack("{s:b, s:s, s:s}", "reachable", s->reachable,
					      "status",
					      !s->asked ? "unknown"
					      : s->ok	? "ok"
							: "error",
					      "error", s->error));
		if (s->asked && !s->reachable && !error) {
			snprintf(text, sizeof(text), "%s: %s", hb_peer_name(s->peer), s->error);
			error = text;
		}
	}
	health = hb_process_health(b->process, error);
	checks = json_object_get(health, "checks");
	json_object_set_new(checks, "mode", json_string("broker"));
	json_object_set_new(checks, "features", features);
	json_object_set_new(checks, "services", services);
	json_object_set_new(checks, "paused",
			    json_boolean((b->policy_ok && b->policy.live.paused) || !b->word_ok ||
					 b->word.paused));
	json_object_set_new(checks, "policy_generation",
			    json_integer(b->policy_ok ? b->policy.live.generation : 0));
	json_object_set_new(checks, "open_operations",
			    json_integer((json_int_t)hb_store_live(b->store)));
	return health;
}
