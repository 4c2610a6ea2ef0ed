/*
 * The Docker executor's door: it says what it found of Docker, and carries out nothing yet.
 *
 * The health answer is looked up at every request, by a connection to the socket as the process
 * that would use it.
 */
#include "broker/docker/docker.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>


struct docker {
	struct hb_process *process;
};

/* NULL when the socket answers, else why it does not. */
static const char *
socket_problem(const char *path)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct stat st;
	int fd, rc;

	if (strlen(path) >= sizeof(sun.sun_path))
		return "the path is too long for a socket";
	if (stat(path, &st) != 0)
		return errno == ENOENT ? "there is no such file" : strerror(errno);
	if (!S_ISSOCK(st.st_mode))
		return "it is not a socket";
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return strerror(errno);
	memcpy(sun.sun_path, path, strlen(path) + 1);
	rc = connect(fd, (struct sockaddr *)&sun, sizeof(sun));
	if (rc != 0 && errno == ECONNREFUSED) {
		close(fd);
		return "nothing listens on it";
	}
	rc = rc != 0 ? errno : 0;
	close(fd);
	return rc != 0 ? strerror(rc) : NULL;
}

static void
health(struct hb_request *req, void *ctx)
{
	struct docker *d = ctx;
	const char *path = hb_config_text(d->process->config, "docker.socket");
	const char *problem = socket_problem(path);
	json_t *answer = hb_process_health(d->process, NULL);
	json_t *checks = json_object_get(answer, "checks");

	json_object_set_new(checks, "deployed", json_false());
	json_object_set_new(checks, "docker_socket",
			    json_pack("{s:s, s:b, s:s*}", "path", path, "reachable",
				      problem == NULL, "error", problem));
	hb_reply_json(req, 200, answer);
}

static void
not_deployed(struct hb_request *req, void *ctx)
{
	struct hb_error err;

	hb_fail(&err, "not_deployed",
		"Docker and local operations are not deployed in this version: nothing was done");
	hb_reply_error(req, 200, &err);
}

static const struct hb_route routes[] = {
	{HB_GET, "/health",
	 HB_PEER_BIT(HB_PEER_BROKER) | HB_PEER_BIT(HB_PEER_ADMIN) | HB_PEER_BIT(HB_PEER_LAUNCHER),
	 0, HB_ROUTE_NOBODY, health},
	{HB_POST, "/seal", HB_PEER_BIT(HB_PEER_BROKER), 0, 0, not_deployed},
	{HB_POST, "/execute", HB_PEER_BIT(HB_PEER_BROKER), 0, 0, not_deployed},
	{HB_POST, "/status", HB_PEER_BIT(HB_PEER_BROKER), 0, 0, not_deployed},
};

static void *
docker_open(struct hb_process *p, struct hb_error *err)
{
	static struct docker docker;

	docker.process = p;
	return &docker;
}

static int
docker_sandbox(struct hb_process *p, void *ctx, struct hb_sandbox *out, struct hb_error *err)
{
	static const struct hb_sandbox_path paths[] = {
		{"docker", HB_FS_READ | HB_FS_WRITE}, /* its audit log */
	};

	out->syscalls = HB_SYS_BASE | HB_SYS_FILES | HB_SYS_UNIX | HB_SYS_EVENTS;
	out->paths = paths;
	out->path_count = sizeof(paths) / sizeof(paths[0]);
	return 0;
}

const struct hb_program hb_docker_program = {
	.self = HB_PEER_DOCKER,
	.server = {.routes = routes, .route_count = sizeof(routes) / sizeof(routes[0])},
	.open = docker_open,
	.sandbox = docker_sandbox,
};
