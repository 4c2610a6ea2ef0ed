/*
 * hermesctl docker run: options as people know them from docker(1), turned into the fields of the
 * schema. Nothing is judged here; what is refused is refused by the broker and the executor, with
 * their reasons.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/ctl/docker.h"
#include "common/buf.h"

#define COMMAND "docker run"

struct run_options {
	struct ctl_consent consent;
	const char *name, *user, *workdir, *network, *restart, *memory, *cpus, *pids, *timeout;
	const char *privileged, *writable, *detach, *remove, *pid, *ipc, *uts, *userns;
	const char **entrypoint, **environment, **mounts, **ports, **dns, **labels, **add, **drop,
		**devices, **security, **sysctls;
};

static int usage(const char *what)
{
	fprintf(stderr, "hermesctl " COMMAND ": %s; see hermesctl " COMMAND " --help\n", what);
	return -1;
}

static void set_list(json_t *request, const char *field, const char **values)
{
	json_t *list = json_array();

	for (size_t i = 0; values && values[i]; i++)
		json_array_append_new(list, json_string(values[i]));
	if (values)
		json_object_set(request, field, list);
	json_decref(list);
}

static int set_environment(json_t *request, const char **values)
{
	json_t *list = json_array();

	for (size_t i = 0; values && values[i]; i++) {
		const char *equals = strchr(values[i], '=');
		char *name;

		if (!equals) {
			json_decref(list);
			return usage("--env wants NAME=VALUE");
		}
		name = hb_asprintf("%.*s", (int)(equals - values[i]), values[i]);
		json_array_append_new(list,
				      json_pack("{s:s, s:s}", "name", name, "value", equals + 1));
		free(name);
	}
	json_object_set_new(request, "environment", list);
	return 0;
}

/* type=bind,source=/a,target=/b[,ro|rw] */
static int set_mounts(json_t *request, const char **values)
{
	json_t *list = json_array();
	int rc = 0;

	for (size_t i = 0; rc == 0 && values && values[i]; i++) {
		char *copy = hb_strdup(values[i]), *rest = copy, *part;
		json_t *mount = json_object();

		while (rc == 0 && (part = strsep(&rest, ","))) {
			char *equals = strchr(part, '=');

			if (strcmp(part, "ro") == 0 || strcmp(part, "rw") == 0) {
				json_object_set_new(mount, "read_only",
						    json_boolean(part[1] == 'o'));
			} else if (equals) {
				*equals++ = '\0';
				json_object_set_new(mount, part, json_string(equals));
			} else {
				rc = usage("--mount wants type=bind,source=DIR,target=DIR[,ro|rw]");
			}
		}
		json_array_append_new(list, mount);
		free(copy);
	}
	json_object_set_new(request, "mounts", list);
	return rc;
}

/* [ADDRESS:]HOST:CONTAINER[/udp]; an IPv6 address has colons of its own, so the numbers are taken
 * from the end. */
static int set_ports(json_t *request, const char **values)
{
	json_t *list = json_array();
	int rc = 0;

	for (size_t i = 0; rc == 0 && values && values[i]; i++) {
		char *copy = hb_strdup(values[i]), *slash = strchr(copy, '/'), *inside, *host;
		json_t *port = json_object();

		if (slash)
			*slash++ = '\0';
		inside = strrchr(copy, ':');
		if (inside)
			*inside++ = '\0';
		host = inside ? strrchr(copy, ':') : NULL;
		if (host) {
			*host++ = '\0';
			json_object_set_new(port, "host_ip", json_string(copy));
		}
		if (!inside || atoi(host ? host : copy) <= 0 || atoi(inside) <= 0)
			rc = usage("--port wants [ADDRESS:]HOST:CONTAINER[/udp]");
		json_object_set_new(port, "host_port", json_integer(atoi(host ? host : copy)));
		json_object_set_new(port, "container_port",
				    json_integer(inside ? atoi(inside) : 0));
		if (slash)
			json_object_set_new(port, "protocol", json_string(slash));
		json_array_append_new(list, port);
		free(copy);
	}
	json_object_set_new(request, "ports", list);
	return rc;
}

static void set_text(json_t *request, const char *field, const char *value)
{
	if (value)
		json_object_set_new(request, field, json_string(value));
}

/* NULL after usage was printed. */
static json_t *build(const struct run_options *o, const char *image, int argc, char **argv)
{
	json_t *request = json_pack("{s:s, s:s}", "action", "run", "image", image),
	       *command = json_array();

	for (int i = 0; i < argc; i++)
		json_array_append_new(command, json_string(argv[i]));
	json_object_set_new(request, "command", command);
	set_text(request, "name", o->name);
	set_text(request, "user", o->user);
	set_text(request, "workdir", o->workdir);
	set_text(request, "network", o->network);
	set_text(request, "restart_policy", o->restart);
	set_text(request, "pid_mode", o->pid);
	set_text(request, "ipc_mode", o->ipc);
	set_text(request, "uts_mode", o->uts);
	set_text(request, "userns_mode", o->userns);
	set_list(request, "entrypoint", o->entrypoint);
	set_list(request, "dns", o->dns);
	set_list(request, "labels", o->labels);
	set_list(request, "capabilities_add", o->add);
	set_list(request, "capabilities_drop", o->drop);
	set_list(request, "devices", o->devices);
	set_list(request, "security_opt", o->security);
	set_list(request, "sysctls", o->sysctls);
	if (o->privileged)
		json_object_set_new(request, "privileged", json_true());
	if (o->writable)
		json_object_set_new(request, "read_only_rootfs", json_false());
	if (o->detach)
		json_object_set_new(request, "detach", json_true());
	if (o->remove)
		json_object_set_new(request, "auto_remove", json_true());
	if (set_environment(request, o->environment) < 0 || set_mounts(request, o->mounts) < 0 ||
	    set_ports(request, o->ports) < 0) {
		json_decref(request);
		return NULL;
	}
	if (ctl_docker_number(COMMAND, "memory", o->memory, request, "memory_mb") < 0 ||
	    ctl_docker_number(COMMAND, "cpus", o->cpus, request, "cpus") < 0 ||
	    ctl_docker_number(COMMAND, "pids", o->pids, request, "pids_limit") < 0 ||
	    ctl_docker_number(COMMAND, "timeout", o->timeout, request, "timeout") < 0)
		return NULL;
	return request;
}

int ctl_cmd_docker_run(struct ctl *c, int argc, char **argv)
{
	struct run_options o = {0};
	const struct ctl_option options[] = {
		{"approve", NULL, "consent in advance; the approver still signs the exact digest",
		 &o.consent.approve, NULL},
		{"user-id", "ID", "the user in whose name it is asked", &o.consent.user, NULL},
		{"name", "NAME", "of the container", &o.name, NULL},
		{"entrypoint", "WORD", "instead of the image's; repeat for more words", NULL,
		 &o.entrypoint},
		{"user", "USER[:GROUP]", "who it runs as", &o.user, NULL},
		{"workdir", "DIR", "where it starts", &o.workdir, NULL},
		{"env", "NAME=VALUE", "environment (repeatable)", NULL, &o.environment},
		{"mount", "SPEC", "type=bind|volume|tmpfs,source=..,target=..[,ro|rw] (repeatable)",
		 NULL, &o.mounts},
		{"port", "SPEC", "[ADDRESS:]HOST:CONTAINER[/udp], on 127.0.0.1 (repeatable)", NULL,
		 &o.ports},
		{"network", "NAME", "default none", &o.network, NULL},
		{"dns", "ADDRESS", "name server (repeatable)", NULL, &o.dns},
		{"label", "NAME=VALUE", "(repeatable)", NULL, &o.labels},
		{"cap-add", "NAME", "give a capability (repeatable)", NULL, &o.add},
		{"cap-drop", "NAME", "take only these instead of ALL (repeatable)", NULL, &o.drop},
		{"device", "SPEC", "/dev/NAME[:/dev/NAME[:rwm]] (repeatable)", NULL, &o.devices},
		{"security-opt", "OPTION", "instead of no-new-privileges (repeatable)", NULL,
		 &o.security},
		{"sysctl", "NAME=VALUE", "(repeatable)", NULL, &o.sysctls},
		{"privileged", NULL, "with every right", &o.privileged, NULL},
		{"pid", "MODE", "default or host", &o.pid, NULL},
		{"ipc", "MODE", "default or host", &o.ipc, NULL},
		{"uts", "MODE", "default or host", &o.uts, NULL},
		{"userns", "MODE", "default or host", &o.userns, NULL},
		{"writable-root", NULL, "let it write to its root file system", &o.writable, NULL},
		{"detach", NULL, "don't wait for its end", &o.detach, NULL},
		{"rm", NULL, "remove it when it has ended", &o.remove, NULL},
		{"memory", "MIB", "default 512", &o.memory, NULL},
		{"cpus", "N", "default 1", &o.cpus, NULL},
		{"pids", "N", "most processes (default 256)", &o.pids, NULL},
		{"restart", "POLICY", "no, on-failure, unless-stopped or always", &o.restart, NULL},
		{"timeout", "SECONDS", "how long it may run (default 120)", &o.timeout, NULL},
	};
	struct hb_error err = {0};
	json_t *request;
	int words = ctl_parse(c, COMMAND, options, sizeof options / sizeof *options, argc, argv, 1,
			      1000);

	if (words < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0)
		return ctl_error(c, &err);
	request = build(&o, argv[0], words - 1, argv + 1);
	return request ? ctl_docker_ask(c, "docker", request, &o.consent) : CTL_USAGE;
}
