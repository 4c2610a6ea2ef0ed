/* How the docker executor is. Nothing is waited for: the socket is dialled, the rest is what
 * workers met last. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/docker/docker.h"
#include "broker/docker/engine_version.h"
#include "broker/docker/workspace.h"
#include "common/fs.h"
#include "policy/live.h"

/* NULL when somebody listens, else why not. */
static const char *socket_problem(const char *path)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct stat st;
	int fd, error = 0;

	if (strlen(path) >= sizeof sun.sun_path)
		return "the path is too long for a socket";
	if (stat(path, &st) < 0)
		return errno == ENOENT ? "there is no such file" : strerror(errno);
	if (!S_ISSOCK(st.st_mode))
		return "it is not a socket";
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return strerror(errno);
	memcpy(sun.sun_path, path, strlen(path) + 1);
	if (connect(fd, (struct sockaddr *)&sun, sizeof sun) < 0)
		error = errno;
	hb_close(&fd);
	if (error == ECONNREFUSED)
		return "nothing listens on it";
	return error != 0 ? strerror(error) : NULL;
}

/* Whether an operation that is switched on needs the engine. */
static bool engine_wanted(struct hb_docker *d, bool *policy_ok, struct hb_error *err)
{
	struct hb_policy_view view;
	bool wanted;

	*policy_ok = hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, err) == 0;
	if (!*policy_ok)
		return false;
	wanted = hb_bounds_executor(view.bounds, "docker") &&
		 ((view.live.features & HB_FEATURE_DOCKER) ||
		  ((view.live.features & HB_FEATURE_LOCAL) &&
		   !hb_local_bubblewrap(d->process->config)));
	hb_policy_view_free(&view);
	return wanted;
}

json_t *hb_docker_health(struct hb_docker *d)
{
	const struct hb_config *config = d->process->config;
	const char *path = hb_config_text(config, "docker.socket"), *problem = socket_problem(path);
	struct hb_error err = {"", ""};
	struct hb_gate gate;
	bool policy_ok, wanted = engine_wanted(d, &policy_ok, &err), key = true;
	char text[HB_ERROR_MESSAGE_MAX] = "", api[8] = "";
	json_t *answer, *checks;

	if (policy_ok && hb_executor_gate(d->executor, &gate, &err) < 0)
		key = false;
	else if (policy_ok)
		policy_ok = hb_gate_policy_fresh(&gate, &err) == 0;
	if (!policy_ok || !key)
		snprintf(text, sizeof text, "%s", err.message);
	else if (wanted && problem)
		snprintf(text, sizeof text, "the Docker engine can't be reached at %.200s: %s",
			 path, problem);
	else if (wanted && d->engine_trouble.code[0])
		snprintf(text, sizeof text, "%.500s", d->engine_trouble.message);
	if (d->api_minor)
		snprintf(api, sizeof api, "1.%d", d->api_minor);
	answer = hb_process_health(d->process, text[0] ? text : NULL);
	checks = json_object_get(answer, "checks");
	json_object_set_new(checks, "deployed", json_true());
	json_object_set_new(checks, "docker_socket",
			    json_pack("{s:s, s:b, s:s*}", "path", path, "reachable",
				      problem == NULL, "error", problem));
	json_object_set_new(checks, "engine",
			    json_pack("{s:s, s:s}", "api", api, "release", d->release));
	json_object_set_new(checks, "local",
			    json_pack("{s:s, s:b}", "backend",
				      hb_config_text(config, "local.backend"), "configured",
				      *hb_config_text(config, "local.workspace") != '\0'));
	json_object_set_new(checks, "operations", hb_executor_counts(d->executor));
	json_object_set_new(checks, "swept", json_boolean(d->swept));
	return answer;
}
