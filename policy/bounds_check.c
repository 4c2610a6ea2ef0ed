/*
 * A request against the bounds: which executors exist, which repositories, which Docker fields
 * reach the host. What is off here can't be approved by anyone; it is turned on in bounds.conf by
 * root, on the host.
 */
#include <stdio.h>
#include <string.h>

#include "common/json.h"
#include "policy/floor.h"
#include "policy/image_ref.h"
#include "policy/live.h"
#include "policy/operation.h"
#include "policy/text.h"

static int check_repository(const struct hb_bounds *b, const json_t *request, struct hb_error *err)
{
	const char *image = hb_json_text(request, "image", NULL);
	struct hb_image_ref ref;
	char name[600], shown[161];

	/* An image id of this host's engine names no repository: it is here already. */
	if (!image || hb_is_digest(image))
		return 0;
	if (hb_image_ref_parse(image, false, &ref, err) < 0)
		return -1;
	hb_image_ref_name(&ref, name, sizeof(name));
	if (hb_bounds_repository(b, name))
		return 0;
	hb_show(name, shown, sizeof(shown));
	return hb_fail(
		err, "out_of_bounds",
		"images from '%s' are not allowed; root can add it to [images] repositories in "
		"bounds.conf",
		shown);
}

static int need(const struct hb_bounds *b, const char *field, const char *what,
		struct hb_error *err)
{
	if (hb_bounds_docker_field(b, field))
		return 0;
	return hb_fail(err, "out_of_bounds",
		       "%s: not allowed; root can set [docker] %s = yes in bounds.conf", what,
		       field);
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

static bool host_namespace(const json_t *request)
{
	static const char *const fields[] = {"pid_mode", "ipc_mode", "uts_mode", "userns_mode",
					     "network"};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (strcmp(hb_json_text(request, fields[i], ""), "host") == 0)
			return true;
	}
	return false;
}

static bool published(const json_t *request)
{
	const json_t *port;
	size_t i;

	json_array_foreach(json_object_get(request, "ports"), i, port)
	{
		if (!hb_is_loopback_address(hb_json_text(port, "host_ip", "")))
			return true;
	}
	return false;
}

static int check_binds(const struct hb_bounds *b, const json_t *request, struct hb_error *err)
{
	const char *const *roots;
	size_t count = hb_bounds_bind_roots(b, &roots), i;
	const json_t *mount;
	char shown[161];

	json_array_foreach(json_object_get(request, "mounts"), i, mount)
	{
		const char *source = hb_json_text(mount, "source", "");
		bool allowed = strcmp(hb_json_text(mount, "type", ""), "bind") != 0;

		for (size_t j = 0; j < count && !allowed; j++)
			allowed = hb_path_within(source, roots[j]);
		if (allowed)
			continue;
		hb_show(source, shown, sizeof(shown));
		return hb_fail(
			err, "out_of_bounds",
			"the bind of '%s' is below no allowed directory; root can add one to "
			"[docker] bind_roots in bounds.conf",
			shown);
	}
	return 0;
}

static int check_run(const struct hb_bounds *b, const json_t *r, struct hb_error *err)
{
	const json_t *drop = json_object_get(r, "capabilities_drop");
	const json_t *security = json_object_get(r, "security_opt");
	/* Asking for less confinement than the default is asking for more rights. */
	bool weaker = !holds(security, "no-new-privileges") || json_array_size(security) > 1;
	const struct {
		bool asked;
		const char *field, *what;
	} rules[] = {
		{hb_json_bool(r, "privileged", false), "privileged", "privileged"},
		{host_namespace(r), "host_namespaces", "a namespace of the host"},
		{has(r, "devices"), "devices", "devices"},
		{has(r, "capabilities_add"), "capabilities", "capabilities_add"},
		{!holds(drop, "ALL"), "capabilities", "capabilities_drop without ALL"},
		{published(r), "published_addresses", "a port on an address other than loopback"},
		{weaker, "security_opt", "security_opt other than no-new-privileges"},
		{has(r, "sysctls"), "sysctls", "sysctls"},
	};

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		if (rules[i].asked && need(b, rules[i].field, rules[i].what, err) < 0)
			return -1;
	}
	return check_binds(b, r, err);
}

/* A policy may name only approvers that the bounds allow. */
static int check_users(const struct hb_bounds *b, const json_t *request, struct hb_error *err)
{
	const json_t *user;
	size_t i;

	json_array_foreach(json_object_get(request, "users"), i, user)
	{
		if (!hb_bounds_user(b, json_string_value(user)))
			return hb_fail(err, "out_of_bounds",
				       "user %s is not in [users] allowed of bounds.conf",
				       json_string_value(user));
	}
	return 0;
}

int hb_bounds_check(const struct hb_bounds *b, const char *feature, const json_t *request,
		    struct hb_error *err)
{
	const char *target = hb_feature_target(feature);

	if (!target)
		return hb_fail(err, "unknown_feature",
			       "an operation of an unknown feature can't be judged");
	if (!hb_bounds_executor(b, target))
		return hb_fail(err, "not_deployed",
			       "the %s executor is not deployed on this host; root can add it to "
			       "[executors] deployed in bounds.conf",
			       target);
	if (strcmp(target, "admin") == 0)
		return check_users(b, request, err);
	if (check_repository(b, request, err) < 0)
		return -1;
	if (strcmp(hb_operation_action(feature, request), "run") == 0)
		return check_run(b, request, err);
	return 0;
}
