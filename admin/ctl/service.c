/* The launcher from outside: is it running, start it, stop it, ask every process how it is. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/fs.h"
#include "common/json.h"

#define PID_FILE "run/launcher.pid"
#define UP_TIMEOUT_MS 60000

/* The launcher holds a lock on its pid file while it lives, so a stale number means nothing. */
int ctl_launcher_pid(struct ctl *c)
{
	char text[32] = "";
	int fd = open(PID_FILE, O_RDONLY | O_CLOEXEC), pid = 0;

	(void)c;
	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK && read(fd, text, sizeof text - 1) > 0)
		pid = atoi(text);
	close(fd);
	return pid;
}

/* Beside this program when installed, else where the build tree has it. */
static int launcher_path(char *out, size_t size, struct hb_error *err)
{
	static const char *const places[] = {"hermes-launcher", "../launcher/hermes-launcher",
					     "../libexec/hermes-broker/hermes-launcher",
					     "../lib/hermes-broker/hermes-launcher"};
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	if (n <= 0)
		return hb_fail_errno(err, "not_found", "can't find my own program");
	self[n] = 0;
	*strrchr(self, '/') = 0;
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		snprintf(out, size, "%s/%s", self, places[i]);
		if (access(out, X_OK) == 0)
			return 0;
	}
	return hb_fail(err, "not_found", "hermes-launcher is neither beside %s nor installed", self);
}

static void become_launcher(const char *path, int ready_fd)
{
	char ready[16];
	int null = open("/dev/null", O_RDWR), log;

	snprintf(ready, sizeof ready, "%d", ready_fd);
	log = open("log/launcher.log", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0640);
	setsid();
	dup2(null, 0);
	dup2(null, 1);
	dup2(log >= 0 ? log : null, 2);
	fcntl(ready_fd, F_SETFD, 0);
	execle(path, "hermes-launcher", "--state", ".", "--ready-fd", ready, (char *)NULL,
	       (char *[]){(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL});
	_exit(127);
}

/* All serve; what they say of each other may still be a moment old. What is really wrong stays wrong. */
static void settle(struct ctl *c)
{
	bool ok = false;

	for (int i = 0; i < 20 && !ok; i++) {
		json_decref(ctl_health(c, &ok));
		if (!ok)
			usleep(50000);
	}
}

int ctl_up(struct ctl *c, bool *was_running, struct hb_error *err)
{
	char path[PATH_MAX + 64], byte = 0;
	int pipes[2];
	pid_t pid;

	*was_running = ctl_launcher_pid(c) > 0;
	if (*was_running)
		return 0;
	if (geteuid() != 0)
		return hb_fail(err, "not_root", "starting the launcher needs root: run it with sudo");
	if (launcher_path(path, sizeof path, err) < 0)
		return -1;
	if (pipe2(pipes, O_CLOEXEC) < 0)
		return hb_fail_errno(err, "start_failed", "can't make a pipe");
	pid = fork();
	if (pid == 0)
		become_launcher(path, pipes[1]);
	close(pipes[1]);
	struct pollfd p = {.fd = pipes[0], .events = POLLIN};
	if (pid < 0 || poll(&p, 1, UP_TIMEOUT_MS) != 1 || read(pipes[0], &byte, 1) != 1 || byte != '1') {
		close(pipes[0]);
		if (pid > 0)
			kill(pid, SIGTERM);
		return hb_fail(err, "start_failed", "the launcher did not come up; its reason is in %s/log/", c->state);
	}
	close(pipes[0]);
	settle(c);
	return 0;
}

int ctl_down(struct ctl *c, bool *was_running, struct hb_error *err)
{
	int pid = ctl_launcher_pid(c), fd;
	int timeout = (int)hb_config_int(c->config, "runtime.stop_timeout") * 1000 + 30000;

	*was_running = pid > 0;
	if (!*was_running)
		return 0;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0 || ctl_launcher_pid(c) != pid || syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) < 0) {
		hb_close(&fd);
		return hb_fail_errno(err, "stop_failed", "can't signal the launcher (pid %d)", pid);
	}
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int rc = poll(&p, 1, timeout);
	close(fd);
	if (rc != 1)
		return hb_fail(err, "stop_failed", "the launcher (pid %d) did not end within %d s; see %s/log/", pid,
			       timeout / 1000, c->state);
	return 0;
}

int ctl_cmd_up(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	bool was;

	if (ctl_parse(c, "up", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || ctl_up(c, &was, &err) < 0)
		return ctl_error(c, &err);
	if (!c->json)
		puts(was ? "Already running." : "Started.");
	return ctl_result(c, json_pack("{s:s,s:b}", "status", "ok", "was_running", was), CTL_OK);
}

int ctl_cmd_down(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	bool was;

	if (ctl_parse(c, "down", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || ctl_down(c, &was, &err) < 0)
		return ctl_error(c, &err);
	if (!c->json)
		puts(was ? "Stopped." : "Was not running.");
	return ctl_result(c, json_pack("{s:s,s:b}", "status", "ok", "was_running", was), CTL_OK);
}

json_t *ctl_health(struct ctl *c, bool *all_ok)
{
	static const enum hb_peer servers[] = {HB_PEER_BROKER, HB_PEER_APPROVER, HB_PEER_INSTALLER, HB_PEER_FETCHER,
					       HB_PEER_DOCKER, HB_PEER_SSH, HB_PEER_ADMIN};
	json_t *all = json_object();

	*all_ok = true;
	for (size_t i = 0; i < sizeof servers / sizeof servers[0]; i++) {
		struct hb_error err = {0};
		json_t *h, *entry;
		h = ctl_call(c, servers[i], "GET", "/health", NULL, &err);
		entry = json_pack("{s:b,s:s}", "reachable", h != NULL, "status",
				  h ? hb_json_text(h, "status", "?") : "unreachable");
		if (!h || hb_json_text(h, "error", NULL))
			json_object_set_new(entry, "error", json_string(h ? hb_json_text(h, "error", "") : err.message));
		if (json_object_get(h, "checks"))
			json_object_set(entry, "checks", json_object_get(h, "checks"));
		*all_ok = *all_ok && h && strcmp(hb_json_text(h, "status", ""), "ok") == 0;
		json_object_set_new(all, hb_peer_dir(servers[i]), entry);
		json_decref(h);
	}
	return all;
}
