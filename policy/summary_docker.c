/* What a person is shown of a Docker operation: every field, and each way it reaches the host. */
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "policy/draw.h"
#include "policy/operation.h"
#include "policy/text.h"

static bool is(const json_t *request, const char *field, const char *value)
{
	return strcmp(hb_json_text(request, field, ""), value) == 0;
}

static bool holds(const json_t *list, const char *text)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
	{
		if (strcmp(json_string_value(item), text) == 0)
			return true;
	}
	return false;
}

static bool has(const json_t *request, const char *field)
{
	return json_array_size(json_object_get(request, field)) > 0;
}

static void draw_run(struct hb_page *p, const json_t *r)
{
	static const char *const environment[] = {"name", "value", NULL};
	static const char *const mounts[] = {"type", "source", "target", "read_only", NULL};
	static const char *const ports[] = {"host_ip", "host_port", "container_port", "protocol",
					    NULL};
	static const char *const first[] = {"image",   "name", "entrypoint",
					    "command", "user", "workdir"};
	static const char *const rest[] = {"network",
					   "dns",
					   "labels",
					   "capabilities_add",
					   "capabilities_drop",
					   "devices",
					   "security_opt",
					   "sysctls",
					   "privileged",
					   "pid_mode",
					   "ipc_mode",
					   "uts_mode",
					   "userns_mode",
					   "read_only_rootfs",
					   "detach",
					   "auto_remove",
					   "memory_mb",
					   "cpus",
					   "pids_limit",
					   "restart_policy"};

	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		hb_draw_field(p, r, first[i]);
		if (i == 0)
			hb_draw_sealed(p, "image id", hb_json_text(r, "resolved_image_id", NULL));
	}
	hb_draw_objects(p, "environment", json_object_get(r, "environment"), environment);
	hb_draw_objects(p, "mounts", json_object_get(r, "mounts"), mounts);
	hb_draw_objects(p, "ports", json_object_get(r, "ports"), ports);
	for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++) {
		hb_draw_field(p, r, rest[i]);
		if (i == 0)
			hb_draw_sealed(p, "network id",
				       hb_json_text(r, "resolved_network_id", NULL));
	}
}

static void mount_warnings(struct hb_page *p, const json_t *request)
{
	const json_t *mount;
	size_t i;

	json_array_foreach(json_object_get(request, "mounts"), i, mount)
	{
		bool writes = !hb_json_bool(mount, "read_only", true);
		char *source = hb_escaped(hb_json_text(mount, "source", ""));

		if (is(mount, "type", "bind"))
			hb_draw_warning(p, writes ? "host_path_written" : "host_path_read",
					"it may %s %s of this host and everything below it",
					writes ? "change" : "read", source);
		else if (is(mount, "type", "volume") && writes)
			hb_draw_warning(p, "volume_written", "it may change the volume %s", source);
		free(source);
	}
}

static void host_warnings(struct hb_page *p, const json_t *request)
{
	static const struct {
		const char *field, *code, *text;
	} modes[] = {
		{"pid_mode", "host_pid", "it sees and may signal every process of this host"},
		{"ipc_mode", "host_ipc", "it shares memory segments with this host"},
		{"uts_mode", "host_uts", "it shares the host name with this host"},
		{"userns_mode", "host_userns",
		 "its users are this host's users, without remapping"},
		{"network", "host_network",
		 "it uses this host's network as the host does, services on loopback included"},
	};

	if (hb_json_bool(request, "privileged", false))
		hb_draw_warning(p, "privileged", "privileged: it can take over this host");
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (is(request, modes[i].field, "host"))
			hb_draw_warning(p, modes[i].code, "%s", modes[i].text);
	}
	if (has(request, "devices"))
		hb_draw_warning(p, "devices", "it gets devices of this host");
	if (has(request, "capabilities_add"))
		hb_draw_warning(p, "capabilities_added",
				"it gets more rights than a container needs (capabilities_add)");
	if (!holds(json_object_get(request, "capabilities_drop"), "ALL"))
		hb_draw_warning(p, "capabilities_kept",
				"it keeps capabilities that are dropped by default");
	if (!holds(json_object_get(request, "security_opt"), "no-new-privileges"))
		hb_draw_warning(
			p, "new_privileges",
			"programs in it may gain privileges (no-new-privileges is not set)");
	if (json_array_size(json_object_get(request, "security_opt")) > 1)
		hb_draw_warning(p, "security_options",
				"its confinement is changed by security_opt");
	if (has(request, "sysctls"))
		hb_draw_warning(p, "kernel_settings",
				"it changes kernel settings of its namespaces");
}

static void run_warnings(struct hb_page *p, const json_t *request)
{
	const json_t *port;
	const char *user = hb_json_text(request, "user", "");
	size_t i;

	host_warnings(p, request);
	mount_warnings(p, request);
	if (!is(request, "network", "none") && !is(request, "network", "host"))
		hb_draw_warning(p, "network", "it can reach what its network can reach");
	json_array_foreach(json_object_get(request, "ports"), i, port)
	{
		const char *ip = hb_json_text(port, "host_ip", "");

		if (!hb_is_loopback_address(ip))
			hb_draw_warning(p, "port_published",
					"port %lld of this host is open to others (%s)",
					hb_json_int(port, "host_port", 0), ip);
	}
	if (user[0] == '\0')
		hb_draw_warning(p, "image_user",
				"it runs as the user that the image names, which may be root");
	else if (strcmp(user, "root") == 0 || strncmp(user, "root:", 5) == 0 ||
		 strspn(user, "0") == strcspn(user, ":"))
		hb_draw_warning(p, "root_inside", "it runs as root inside the container");
	if (!hb_json_bool(request, "read_only_rootfs", true))
		hb_draw_warning(p, "writable_root", "it may write to its root file system");
	if (!is(request, "restart_policy", "no"))
		hb_draw_warning(p, "restarts",
				"it is started again by itself, also when this host restarts");
	if (hb_json_bool(request, "detach", false))
		hb_draw_warning(p, "keeps_running",
				"it goes on running after the operation has ended");
}

static void container_warnings(struct hb_page *p, const json_t *request, const char *action)
{
	if (strcmp(action, "start") == 0)
		hb_draw_note(p, "the container is started with the settings it was made with");
	if (strcmp(action, "stop") == 0)
		hb_draw_warning(p, "container_stops", "what runs in the container is ended");
	if (strcmp(action, "restart") == 0)
		hb_draw_warning(p, "container_restarts",
				"what runs in the container is ended and started anew");
	if (strcmp(action, "inspect") == 0)
		hb_draw_warning(p, "shows_settings",
				"the answer holds its settings; values of its environment and what looks "
				"like a secret are left out, other secrets are not");
	if (strcmp(action, "logs") == 0)
		hb_draw_warning(
			p, "shows_logs",
			"the answer holds what the container printed, and so any secret in it");
	if (strcmp(action, "remove") != 0)
		return;
	hb_draw_warning(p, "container_removed",
			"the container and what was written inside it are deleted for good");
	if (hb_json_bool(request, "force", false))
		hb_draw_warning(p, "forced", "it is killed first when it runs");
	if (hb_json_bool(request, "remove_volumes", false))
		hb_draw_warning(p, "volumes_removed",
				"its anonymous volumes and the data in them are deleted for good");
}

static void draw_container(struct hb_page *p, const json_t *request)
{
	hb_draw_field(p, request, "container");
	hb_draw_sealed(p, "container name", hb_json_text(request, "resolved_name", NULL));
	for (const char *const *field =
		     (const char *const[]){"force", "remove_volumes", "tail", NULL};
	     *field; field++) {
		if (json_object_get(request, *field))
			hb_draw_field(p, request, *field);
	}
}

void hb_summary_docker(struct hb_page *p, const json_t *request)
{
	const char *action = hb_operation_action("docker", request);

	if (strcmp(action, "run") == 0) {
		draw_run(p, request);
		run_warnings(p, request);
	} else if (strcmp(action, "pull") == 0) {
		hb_draw_field(p, request, "image");
		hb_draw_note(p, "the engine downloads and keeps the image; nothing of it is run");
	} else if (strcmp(action, "list") == 0) {
		hb_draw_field(p, request, "all");
		hb_draw_note(p, "nothing is changed; the answer names the containers of this host");
	} else {
		draw_container(p, request);
		container_warnings(p, request, action);
	}
	hb_draw_int(p, "timeout", hb_operation_timeout("docker", request), "s");
}
