/* hermesctl admin ...: whether the admin endpoint is served, where, and to which pages. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/bind_address.h"
#include "common/buf.h"
#include "common/fs.h"
#include "common/json.h"

#define RESTART_TRIES 150 /* of 100 ms */

/* Who serves the socket; 0: nobody. */
static pid_t serving_pid(enum hb_peer server)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct ucred peer = {0};
	socklen_t len = sizeof peer;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof sa.sun_path, "%s", hb_peer_socket(server));
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != hb_peer_uid(server))
		peer.pid = 0;
	hb_close(&fd);
	return peer.pid;
}

/* Whoever started it starts it again, and it reads its configuration anew. */
static int restart_admin(struct hb_error *err)
{
	pid_t before = serving_pid(HB_PEER_ADMIN), now = 0;
	int fd = before > 0 ? (int)syscall(SYS_pidfd_open, before, 0) : -1;

	if (before <= 0)
		return 0; /* nothing runs: it is read at the next start */
	if (fd < 0 || serving_pid(HB_PEER_ADMIN) != before || syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) < 0) {
		hb_close(&fd);
		return hb_fail_errno(err, "stop_failed", "can't restart hermes-admin (pid %d)", before);
	}
	close(fd);
	for (int i = 0; i < RESTART_TRIES; i++) {
		usleep(100000);
		now = serving_pid(HB_PEER_ADMIN);
		if (now > 0 && now != before)
			return 0;
	}
	return hb_fail(err, "start_failed", "hermes-admin does not come back: its reason is in log/ or its journal");
}

/* settings: NULL-terminated. */
static int configure(struct ctl *c, const char **settings, const char *done)
{
	struct ctl_setup setup = {.settings = settings};
	struct hb_error err = {0};
	int changed;

	if (ctl_setup_state(c, &setup, &changed, &err) < 0 || restart_admin(&err) < 0)
		return ctl_error(c, &err);
	if (!c->json)
		puts(done);
	return ctl_result(c, json_pack("{s:s,s:b}", "status", "ok", "changed", changed > 0), CTL_OK);
}

int ctl_cmd_admin_enable(struct ctl *c, int argc, char **argv)
{
	const char *settings[] = {"admin.enabled=yes", NULL};

	if (ctl_parse(c, "admin enable", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	return configure(c, settings, "The admin endpoint is served.");
}

int ctl_cmd_admin_disable(struct ctl *c, int argc, char **argv)
{
	const char *settings[] = {"admin.enabled=no", NULL};

	if (ctl_parse(c, "admin disable", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	return configure(c, settings, "The admin endpoint listens no more; this command line still works.");
}

/* scheme://host[:port], as a browser sends it: nothing behind it, no wildcard. */
static int check_origin(const char *origin, struct hb_error *err)
{
	const char *host = strncmp(origin, "http://", 7) == 0    ? origin + 7
			   : strncmp(origin, "https://", 8) == 0 ? origin + 8
								 : NULL;
	size_t len = host ? strlen(host) : 0;

	if (host && strchr(host, '*'))
		return hb_fail(err, "usage", "an origin is one exact address, never a wildcard");
	if (!host || len == 0 || len > 200 ||
	    strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789.-:[]") != len)
		return hb_fail(err, "usage",
			       "an origin is http:// or https://, a host in lower case and perhaps a port, with no path "
			       "or slash behind it: http://127.0.0.1:8787");
	return 0;
}

static void add_origin(const struct hb_config *config, const char *origin, struct hb_buf *out)
{
	const char **items;
	size_t n = hb_config_list(config, "admin.allowed_origins", &items);
	bool there = false;

	hb_buf_adds(out, "admin.allowed_origins=");
	for (size_t i = 0; i < n; i++) {
		hb_buf_printf(out, "%s%s", i ? ", " : "", items[i]);
		there = there || strcmp(items[i], origin) == 0;
	}
	if (!there)
		hb_buf_printf(out, "%s%s", n ? ", " : "", origin);
}

/* admin browser ORIGIN [PRIVATE_IP]: pages of that origin may use the endpoint; and it also listens on that address. */
int ctl_cmd_admin_browser(struct ctl *c, int argc, char **argv)
{
	struct hb_buf origins = HB_BUF_INIT;
	struct hb_bind_address at;
	struct hb_error err = {0};
	const char *settings[3] = {NULL}, *listen;
	char text[128], private[160];
	int code, n = ctl_parse(c, "admin browser", NULL, 0, argc, argv, 1, 2);

	if (n < 0)
		return CTL_USAGE;
	if (check_origin(argv[0], &err) < 0 || ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	add_origin(c->config, argv[0], &origins);
	settings[0] = origins.data;
	if (n == 2) {
		listen = strrchr(hb_config_text(c->config, "admin.listen"), ':');
		snprintf(text, sizeof text, strchr(argv[1], ':') ? "[%.70s]%s" : "%.70s%s", argv[1], listen ? listen : "");
		if (hb_bind_address_parse("the private address", text, true, &at, &err) < 0 ||
		    (at.loopback && hb_fail(&err, "usage", "%s is loopback, where it listens anyway", at.host) < 0)) {
			hb_buf_free(&origins);
			return ctl_error(c, &err);
		}
		snprintf(private, sizeof private, "admin.listen_private=%s", text);
		settings[1] = private;
	}
	hb_config_free(c->config);
	c->config = NULL;
	code = configure(c, settings, "Pages of this origin may use the admin endpoint with the admin key.");
	hb_buf_free(&origins);
	return code;
}

int ctl_cmd_admin_status(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0}, ignored = {0};
	const char **origins;
	json_t *health, *list;
	bool enabled;
	size_t n;

	if (ctl_parse(c, "admin status", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	enabled = hb_config_bool(c->config, "admin.enabled");
	health = ctl_call(c, HB_PEER_ADMIN, "GET", "/health", NULL, &ignored);
	n = hb_config_list(c->config, "admin.allowed_origins", &origins);
	list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_string(origins[i]));
	if (!c->json) {
		printf("Endpoint   %s\n", enabled ? "enabled" : "disabled");
		printf("Address    http://%s\n", hb_config_text(c->config, "admin.listen"));
		if (*hb_config_text(c->config, "admin.listen_private"))
			printf("           http://%s\n", hb_config_text(c->config, "admin.listen_private"));
		for (size_t i = 0; i < n; i++)
			printf("%s%s\n", i ? "           " : "Pages of   ", origins[i]);
		printf("Process    %s\n", health ? hb_json_text(health, "status", "?") : "not running");
	}
	return ctl_result(c, json_pack("{s:b,s:s,s:s,s:o,s:s}", "enabled", enabled, "listen",
				       hb_config_text(c->config, "admin.listen"), "listen_private",
				       hb_config_text(c->config, "admin.listen_private"), "allowed_origins", list, "process",
				       health ? hb_json_text(health, "status", "?") : "unreachable"),
			  health || !enabled ? CTL_OK : CTL_UNREACHABLE);
}
