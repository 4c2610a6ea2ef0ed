/*
 * What live policy and the runtime's health were: the last changes of each, in two small files of admin's own. Policy
 * that was changed by root on the host is noticed like that which was changed here. A convenience for people: nothing is
 * decided by it, and the audit chain stays the record.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "admin/admin.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/log.h"

#define POLICY_FILE "admin/policy-history.json"
#define HEALTH_FILE "admin/health-history.json"
#define KEEP_MAX 200
#define FILE_MAX (1 << 20) /* 200 policies of 64 users are under 400 KiB */

struct admin_history {
	json_t *policy, *health; /* newest first */
};

/* A file that can't be used is begun anew: it holds nothing that anything depends on. */
static json_t *load(const char *path)
{
	struct hb_buf text = HB_BUF_INIT;
	struct hb_error err = {0};
	json_t *file = NULL, *entries = NULL;

	if (hb_fs_read(AT_FDCWD, path, FILE_MAX, &text, &err) == 0 &&
	    (file = hb_json_parse(text.data, text.len, &err)))
		entries = json_object_get(file, "entries");
	entries = json_is_array(entries) ? json_incref(entries) : json_array();
	json_decref(file);
	hb_buf_free(&text);
	return entries;
}

static void add(const char *path, json_t *entries, json_t *entry)
{
	json_t *file;
	char *text;
	struct hb_error err = {0};

	json_array_insert_new(entries, 0, entry);
	while (json_array_size(entries) > KEEP_MAX)
		json_array_remove(entries, KEEP_MAX);
	file = json_pack("{s:i,s:O}", "version", 1, "entries", entries);
	text = json_dumps(file, JSON_COMPACT);
	json_decref(file);
	if (!text || hb_fs_write_atomic(AT_FDCWD, path, text, strlen(text), 0600, (uid_t)-1, (gid_t)-1, &err) < 0)
		hb_log(HB_LOG_WARN, "history_not_written", "path", path, "error", err.message, NULL);
	free(text);
}

struct admin_history *admin_history_open(void)
{
	struct admin_history *h = hb_calloc(1, sizeof *h);

	h->policy = load(POLICY_FILE);
	h->health = load(HEALTH_FILE);
	return h;
}

void admin_history_free(struct admin_history *h)
{
	if (!h)
		return;
	json_decref(h->policy);
	json_decref(h->health);
	free(h);
}

void admin_history_policy(struct admin_history *h, const struct hb_policy *live, const char *by)
{
	json_t *entry;

	if (hb_json_int(json_array_get(h->policy, 0), "generation", 0) == live->generation)
		return;
	entry = hb_policy_to_json(live);
	json_object_del(entry, "version");
	json_object_set_new(entry, "ts", json_integer(hb_now()));
	json_object_set_new(entry, "by", json_string(by));
	add(POLICY_FILE, h->policy, entry);
}

bool admin_history_health(struct admin_history *h, const json_t *runtime)
{
	const json_t *last = json_array_get(h->health, 0);
	const json_t *health = json_object_get(runtime, "health");
	const char *state = hb_json_text(json_object_get(runtime, "process"), "state", "unknown");
	const char *release = hb_json_text(runtime, "manifest_digest", "");
	bool ok = hb_json_bool(health, "ok", false);

	if (last && strcmp(hb_json_text(last, "state", ""), state) == 0 && hb_json_bool(last, "ok", false) == ok &&
	    strcmp(hb_json_text(last, "release", ""), release) == 0)
		return false;
	add(HEALTH_FILE, h->health,
	    json_pack("{s:I,s:s,s:b,s:s,s:s}", "ts", (json_int_t)hb_now(), "state", state, "ok", ok, "release", release,
		      "reason", ok ? "" : hb_json_text(health, "last_failure", "")));
	return true;
}

json_t *admin_history_health_list(const struct admin_history *h)
{
	return json_incref(h->health);
}

/* ---- differences ---- */

static bool holds(const json_t *list, const json_t *item)
{
	json_t *other;
	size_t i;

	json_array_foreach(list, i, other)
		if (json_equal(other, item))
			return true;
	return false;
}

static json_t *missing_in(const json_t *from, const json_t *other)
{
	json_t *out = json_array(), *item;
	size_t i;

	json_array_foreach(from, i, item)
		if (!holds(other, item))
			json_array_append(out, item);
	return out;
}

static json_t *difference(const char *field, const json_t *before, const json_t *after)
{
	if (json_is_array(after))
		return json_pack("{s:s,s:o,s:o}", "field", field, "added", missing_in(after, before), "removed",
				 missing_in(before, after));
	return json_pack("{s:s,s:O,s:O}", "field", field, "from", before, "to", after);
}

/* What differs from the one before it; nothing for the oldest. */
static json_t *differences(const json_t *before, const json_t *after)
{
	static const char *const fields[] = {"features", "users", "quorum", "paused"};
	json_t *out = json_array();

	for (size_t i = 0; before && i < sizeof fields / sizeof fields[0]; i++) {
		const json_t *a = json_object_get(before, fields[i]), *b = json_object_get(after, fields[i]);
		if (a && b && !json_equal(a, b))
			json_array_append_new(out, difference(fields[i], a, b));
	}
	return out;
}

static json_t *policy_history(const struct admin_history *h)
{
	json_t *out = json_array(), *entry;
	size_t i;

	json_array_foreach(h->policy, i, entry) {
		json_t *copy = json_copy(entry);
		json_object_set_new(copy, "differences", differences(json_array_get(h->policy, i + 1), entry));
		json_array_append_new(out, copy);
	}
	return out;
}

static json_t *bounds_json(const struct hb_bounds *b)
{
	const char *const *users;
	size_t n = hb_bounds_users(b, &users);
	json_t *allowed = json_array(), *quorum = json_object();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(allowed, json_string(users[i]));
	for (unsigned bit = 1; bit <= HB_FEATURE_SSH; bit <<= 1)
		json_object_set_new(quorum, hb_feature_name(bit),
				    json_integer(hb_bounds_quorum(b, hb_feature_name(bit))));
	return json_pack("{s:o,s:o}", "allowed_users", allowed, "quorum_minimum", quorum);
}

/* GET /admin/policy: what is in force, within what, and how it came to be. */
void admin_policy(struct hb_request *req, void *ctx)
{
	struct admin *a = ctx;
	struct hb_policy_view view = {0};
	struct hb_error err = {0};
	json_t *out = json_pack("{s:s,s:o,s:b}", "status", "ok", "history", policy_history(a->history),
				"widening_needs_grant",
				hb_config_bool(a->process->config, "admin.widening_needs_grant"));

	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, &err) < 0)
		json_object_set_new(out, "policy_error", json_string(err.message));
	else {
		json_object_set_new(out, "live", hb_policy_to_json(&view.live));
		json_object_set_new(out, "bounds", bounds_json(view.bounds));
		hb_policy_view_free(&view);
	}
	hb_reply_json(req, 200, out);
}
