/* What may be told of a container (redact.h). */
#include "broker/docker/redact.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/json.h"

#define HIDDEN "<redacted>"

static bool looks_secret(const char *name)
{
	static const char *const words[] = {"secret",     "token",   "passw",   "pwd",
					    "apikey",     "api_key", "api-key", "private",
					    "credential", "auth",    "cookie",  "session"};
	char lower[128] = "";

	for (size_t i = 0; name[i] && i < sizeof lower - 1; i++)
		lower[i] = (char)tolower((unsigned char)name[i]);
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strstr(lower, words[i]))
			return true;
	return false;
}

/* scheme://user:password@host */
static bool has_password(const char *text)
{
	const char *at = strstr(text, "://"), *sign = at ? strchr(at, '@') : NULL;

	return sign && memchr(at + 3, ':', (size_t)(sign - at - 3)) != NULL;
}

static json_t *hide_words(const json_t *list)
{
	json_t *out = json_array();
	const json_t *item;
	bool next = false; /* behind --password */
	size_t i;

	json_array_foreach (list, i, item) {
		const char *text = json_is_string(item) ? json_string_value(item) : "";
		const char *equals = strchr(text, '=');
		char *name = hb_strdup(text), *shown;

		if (equals)
			name[equals - text] = '\0';
		if (next || has_password(text))
			shown = hb_strdup(HIDDEN);
		else if (equals && looks_secret(name))
			shown = hb_asprintf("%s=" HIDDEN, name);
		else
			shown = hb_strdup(text);
		next = text[0] == '-' && !equals && looks_secret(text);
		json_array_append_new(out, json_string(shown));
		free(name);
		free(shown);
	}
	return out;
}

static json_t *names_of_environment(const json_t *list)
{
	json_t *out = json_array();
	const json_t *item;
	size_t i;

	json_array_foreach (list, i, item) {
		char *text = hb_strdup(json_is_string(item) ? json_string_value(item) : ""), *shown;

		text[strcspn(text, "=")] = '\0';
		shown = hb_asprintf("%s=" HIDDEN, text);
		json_array_append_new(out, json_string(shown));
		free(text);
		free(shown);
	}
	return out;
}

static json_t *hide_labels(const json_t *labels)
{
	json_t *out = json_object();
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)labels, name, value) {
		const char *text = json_is_string(value) ? json_string_value(value) : "";

		json_object_set_new(
			out, name,
			json_string(looks_secret(name) || has_password(text) ? HIDDEN : text));
	}
	return out;
}

static void copy(json_t *out, const json_t *from, const char *const *names)
{
	for (; *names; names++)
		if (json_object_get(from, *names))
			json_object_set(out, *names, json_object_get(from, *names));
}

static json_t *mounts_of(const json_t *list)
{
	static const char *const names[] = {"Type", "Name", "Source", "Destination", "RW", NULL};
	json_t *out = json_array(), *one;
	const json_t *item;
	size_t i;

	json_array_foreach (list, i, item) {
		one = json_object();
		copy(one, item, names);
		json_array_append_new(out, one);
	}
	return out;
}

static json_t *networks_of(const json_t *settings)
{
	static const char *const names[] = {"NetworkID", "IPAddress", "GlobalIPv6Address", NULL};
	json_t *out = json_object(), *net;
	const char *name;

	json_object_foreach (json_object_get(settings, "Networks"), name, net) {
		json_t *one = json_object();

		copy(one, net, names);
		json_object_set_new(out, name, one);
	}
	return out;
}

json_t *hb_redact_inspect(const json_t *c)
{
	static const char *const top[] = {"Id",           "Name", "Created", "Image",
					  "RestartCount", "Path", NULL};
	static const char *const state[] = {"Status",     "Running", "Paused",   "Restarting",
					    "OOMKilled",  "Dead",    "ExitCode", "StartedAt",
					    "FinishedAt", NULL};
	static const char *const config[] = {"Image", "User",      "WorkingDir",
					     "Tty",   "OpenStdin", NULL};
	static const char *const host[] = {
		"NetworkMode",  "Privileged",     "CapAdd",     "CapDrop",
		"SecurityOpt",  "ReadonlyRootfs", "PidMode",    "IpcMode",
		"UTSMode",      "UsernsMode",     "Memory",     "NanoCpus",
		"PidsLimit",    "RestartPolicy",  "AutoRemove", "Devices",
		"PortBindings", "Sysctls",        NULL};
	const json_t *conf = json_object_get(c, "Config"),
		     *net = json_object_get(c, "NetworkSettings");
	json_t *out = json_object(), *part;

	copy(out, c, top);
	json_object_set_new(out, "Args", hide_words(json_object_get(c, "Args")));
	part = json_object();
	copy(part, json_object_get(c, "State"), state);
	json_object_set_new(out, "State", part);
	part = json_object();
	copy(part, conf, config);
	json_object_set_new(part, "Env", names_of_environment(json_object_get(conf, "Env")));
	json_object_set_new(part, "Labels", hide_labels(json_object_get(conf, "Labels")));
	json_object_set_new(part, "Entrypoint", hide_words(json_object_get(conf, "Entrypoint")));
	json_object_set_new(part, "Cmd", hide_words(json_object_get(conf, "Cmd")));
	json_object_set_new(out, "Config", part);
	part = json_object();
	copy(part, json_object_get(c, "HostConfig"), host);
	json_object_set_new(out, "HostConfig", part);
	json_object_set_new(out, "Mounts", mounts_of(json_object_get(c, "Mounts")));
	json_object_set_new(out, "Networks", networks_of(net));
	if (json_object_get(net, "Ports"))
		json_object_set(out, "Ports", json_object_get(net, "Ports"));
	return out;
}

json_t *hb_redact_row(const json_t *row)
{
	const json_t *first = json_array_get(json_object_get(row, "Names"), 0);
	const char *name = json_is_string(first) ? json_string_value(first) : "";
	json_t *networks = json_array(), *net;
	const char *key;

	json_object_foreach (json_object_get(json_object_get(row, "NetworkSettings"), "Networks"),
			     key, net)
		json_array_append_new(networks, json_string(key));
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:o}", "id",
			 hb_json_text(row, "Id", ""), "name", *name == '/' ? name + 1 : name,
			 "image", hb_json_text(row, "Image", ""), "image_id",
			 hb_json_text(row, "ImageID", ""), "state", hb_json_text(row, "State", ""),
			 "status", hb_json_text(row, "Status", ""), "created",
			 (json_int_t)hb_json_int(row, "Created", 0), "networks", networks);
}
