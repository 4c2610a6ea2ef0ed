/* Serialising container-create (create.h). */
#include "broker/docker/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/docker/docker.h"
#include "broker/docker/workspace.h"
#include "common/buf.h"
#include "common/json.h"

#define MIB (1024LL * 1024)
#define TMPFS_BYTES \
	(64 * MIB) /* it counts as memory of the container; the memory limit holds anyway */
#define RETRIES 5  /* of restart_policy on-failure */

static json_t *split_pairs(const json_t *list)
{
	json_t *out = json_object();
	const json_t *item;
	size_t i;

	json_array_foreach (list, i, item) {
		char *name = hb_strdup(json_string_value(item)), *value = strchr(name, '=');

		*value++ = '\0';
		json_object_set_new(out, name, json_string(value));
		free(name);
	}
	return out;
}

static json_t *labels_of(const json_t *request, const struct hb_create_labels *labels)
{
	json_t *out = split_pairs(json_object_get(request, "labels"));

	json_object_set_new(out, HB_LABEL_HOST, json_string(labels->host_id));
	json_object_set_new(out, HB_LABEL_OPERATION, json_string(labels->operation_id));
	json_object_set_new(out, HB_LABEL_KIND, json_string(labels->kind));
	return out;
}

static json_t *environment(const json_t *list)
{
	json_t *out = json_array();
	const json_t *item;
	size_t i;

	json_array_foreach (list, i, item) {
		char *text = hb_asprintf("%s=%s", hb_json_text(item, "name", ""),
					 hb_json_text(item, "value", ""));

		json_array_append_new(out, json_string(text));
		free(text);
	}
	return out;
}

static json_t *tmpfs(const char *target)
{
	return json_pack("{s:s, s:s, s:{s:I, s:i}}", "Type", "tmpfs", "Target", target,
			 "TmpfsOptions", "SizeBytes", (json_int_t)TMPFS_BYTES, "Mode", 01777);
}

/* Not recursive when it is only to be read: what is mounted below would stay writable. */
static json_t *bind_mount(const char *source, const char *target, bool read_only)
{
	return json_pack("{s:s, s:s, s:s, s:b, s:{s:s, s:b}}", "Type", "bind", "Source", source,
			 "Target", target, "ReadOnly", read_only, "BindOptions", "Propagation",
			 "rprivate", "NonRecursive", read_only);
}

static json_t *mounts(const json_t *list)
{
	json_t *out = json_array();
	const json_t *m;
	size_t i;

	json_array_foreach (list, i, m) {
		const char *type = hb_json_text(m, "type", ""),
			   *target = hb_json_text(m, "target", "");
		const char *source = hb_json_text(m, "source", "");
		bool read_only = hb_json_bool(m, "read_only", true);

		if (strcmp(type, "tmpfs") == 0)
			json_array_append_new(out, tmpfs(target));
		else if (strcmp(type, "bind") == 0)
			json_array_append_new(out, bind_mount(source, target, read_only));
		else
			json_array_append_new(out, json_pack("{s:s, s:s, s:s, s:b}", "Type",
							     "volume", "Source", source, "Target",
							     target, "ReadOnly", read_only));
	}
	return out;
}

static json_t *devices(const json_t *list)
{
	json_t *out = json_array();
	const json_t *item;
	size_t i;

	json_array_foreach (list, i, item) {
		char *host = hb_strdup(json_string_value(item)), *inside = strchr(host, ':'),
		     *rights = NULL;

		if (inside) {
			*inside++ = '\0';
			rights = strchr(inside, ':');
		}
		if (rights)
			*rights++ = '\0';
		json_array_append_new(out, json_pack("{s:s, s:s, s:s}", "PathOnHost", host,
						     "PathInContainer", inside ? inside : host,
						     "CgroupPermissions", rights ? rights : "rwm"));
		free(host);
	}
	return out;
}

static void ports(const json_t *list, json_t **exposed, json_t **bindings)
{
	const json_t *p;
	size_t i;

	*exposed = json_object();
	*bindings = json_object();
	json_array_foreach (list, i, p) {
		char name[32], host[16];
		json_t *at;

		snprintf(name, sizeof name, "%lld/%s", hb_json_int(p, "container_port", 0),
			 hb_json_text(p, "protocol", "tcp"));
		snprintf(host, sizeof host, "%lld", hb_json_int(p, "host_port", 0));
		json_object_set_new(*exposed, name, json_object());
		at = json_object_get(*bindings, name);
		if (!at) {
			at = json_array();
			json_object_set_new(*bindings, name, at);
		}
		json_array_append_new(at, json_pack("{s:s, s:s}", "HostIp",
						    hb_json_text(p, "host_ip", "127.0.0.1"),
						    "HostPort", host));
	}
}

/* The three of every engine have fixed meanings and go by name; any other goes by the id that was
 * sealed. */
static const char *network_mode(const json_t *request)
{
	const char *name = hb_json_text(request, "network", "none");

	if (strcmp(name, "none") == 0 || strcmp(name, "host") == 0 || strcmp(name, "bridge") == 0)
		return name;
	return hb_json_text(request, "resolved_network_id", "none");
}

static const char *mode(const json_t *request, const char *field, const char *otherwise)
{
	return strcmp(hb_json_text(request, field, ""), "host") == 0 ? "host" : otherwise;
}

static json_t *limits(long long memory_mb, long long cpus, long long pids)
{
	/* MemorySwap equal to Memory: no swap beyond it. */
	return json_pack("{s:I, s:I, s:I, s:I}", "Memory", (json_int_t)(memory_mb * MIB),
			 "MemorySwap", (json_int_t)(memory_mb * MIB), "NanoCpus",
			 (json_int_t)(cpus * 1000000000LL), "PidsLimit", (json_int_t)pids);
}

static json_t *host_config(const json_t *r, json_t *bindings)
{
	const char *restart = hb_json_text(r, "restart_policy", "no");
	json_t *host = limits(hb_json_int(r, "memory_mb", 512), hb_json_int(r, "cpus", 1),
			      hb_json_int(r, "pids_limit", 256));

	json_object_set_new(host, "NetworkMode", json_string(network_mode(r)));
	json_object_set_new(host, "PortBindings", bindings);
	json_object_set_new(host, "PublishAllPorts", json_false());
	json_object_set_new(host, "Mounts", mounts(json_object_get(r, "mounts")));
	json_object_set_new(host, "Devices", devices(json_object_get(r, "devices")));
	json_object_set_new(host, "Sysctls", split_pairs(json_object_get(r, "sysctls")));
	json_object_set(host, "Dns", json_object_get(r, "dns"));
	json_object_set(host, "CapAdd", json_object_get(r, "capabilities_add"));
	json_object_set(host, "CapDrop", json_object_get(r, "capabilities_drop"));
	json_object_set(host, "SecurityOpt", json_object_get(r, "security_opt"));
	json_object_set(host, "Privileged", json_object_get(r, "privileged"));
	json_object_set(host, "ReadonlyRootfs", json_object_get(r, "read_only_rootfs"));
	json_object_set(host, "AutoRemove", json_object_get(r, "auto_remove"));
	json_object_set_new(host, "PidMode", json_string(mode(r, "pid_mode", "")));
	json_object_set_new(host, "IpcMode", json_string(mode(r, "ipc_mode", "private")));
	json_object_set_new(host, "UTSMode", json_string(mode(r, "uts_mode", "")));
	json_object_set_new(host, "UsernsMode", json_string(mode(r, "userns_mode", "")));
	json_object_set_new(host, "RestartPolicy",
			    json_pack("{s:s, s:i}", "Name", restart, "MaximumRetryCount",
				      strcmp(restart, "on-failure") == 0 ? RETRIES : 0));
	return host;
}

static void set_unless_empty(json_t *body, const char *name, json_t *list)
{
	/* Empty means the image's own. */
	if (json_array_size(list) > 0)
		json_object_set(body, name, list);
}

json_t *hb_create_run(const json_t *r, const struct hb_create_labels *labels)
{
	json_t *exposed, *bindings, *body;

	ports(json_object_get(r, "ports"), &exposed, &bindings);
	body = json_pack("{s:s, s:o, s:o, s:o, s:b, s:b, s:b, s:b, s:o}", "Image",
			 hb_json_text(r, "resolved_image_id", ""), "Env",
			 environment(json_object_get(r, "environment")), "Labels",
			 labels_of(r, labels), "ExposedPorts", exposed, "Tty", 0, "OpenStdin", 0,
			 "AttachStdout", 1, "AttachStderr", 1, "HostConfig",
			 host_config(r, bindings));
	set_unless_empty(body, "Entrypoint", json_object_get(r, "entrypoint"));
	set_unless_empty(body, "Cmd", json_object_get(r, "command"));
	if (json_object_get(r, "user"))
		json_object_set(body, "User", json_object_get(r, "user"));
	if (json_object_get(r, "workdir"))
		json_object_set(body, "WorkingDir", json_object_get(r, "workdir"));
	return body;
}

json_t *hb_create_local(const json_t *r, const struct hb_config *config, const char *workspace,
			const struct hb_create_labels *labels)
{
	bool egress = strcmp(hb_json_text(r, "network", "none"), "egress") == 0;
	json_t *host = limits(hb_config_int(config, "local.memory_mb"),
			      hb_config_int(config, "local.cpus"),
			      hb_config_int(config, "local.pids_limit"));

	json_object_set_new(host, "NetworkMode", json_string(egress ? "bridge" : "none"));
	json_object_set_new(
		host, "Mounts",
		json_pack("[o, o]", bind_mount(workspace, HB_WORKSPACE, false), tmpfs("/tmp")));
	json_object_set_new(host, "CapDrop", json_pack("[s]", "ALL"));
	json_object_set_new(host, "CapAdd",
			    hb_json_bool(r, "net_raw", false) ? json_pack("[s]", "NET_RAW")
							      : json_array());
	json_object_set_new(host, "SecurityOpt", json_pack("[s]", "no-new-privileges"));
	json_object_set_new(host, "Privileged", json_false());
	json_object_set_new(host, "ReadonlyRootfs", json_true());
	json_object_set_new(host, "IpcMode", json_string("private"));
	/* Output is taken as it comes; a log file on the host would grow without end. */
	json_object_set_new(host, "LogConfig", json_pack("{s:s}", "Type", "none"));
	json_object_set_new(host, "RestartPolicy", json_pack("{s:s}", "Name", "no"));
	return json_pack("{s:s, s:s, s:s, s:[s, s], s:[s], s:[s, s], s:o, s:b, s:b, s:b, s:b, "
			 "s:{s:[s]}, s:o}",
			 "Image", hb_json_text(r, "resolved_image_id", ""), "User", HB_SANDBOX_USER,
			 "WorkingDir", hb_json_text(r, "workdir", HB_WORKSPACE), "Entrypoint",
			 "/bin/sh", "-c", "Cmd", hb_json_text(r, "command", ""), "Env", "HOME=/tmp",
			 "TMPDIR=/tmp", "Labels", labels_of(r, labels), "Tty", 0, "OpenStdin", 0,
			 "AttachStdout", 1, "AttachStderr", 1, "Healthcheck", "Test", "NONE",
			 "HostConfig", host);
}
