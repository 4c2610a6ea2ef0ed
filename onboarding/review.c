/* See review.h. */
#include "onboarding/review.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/json.h"

#define DAY 86400

/* --- scopes --- */

/* Looked for in the words of a scope, in this order: the strongest first. */
static const struct {
	const char *part;
	enum hb_scope_power power;
} powers[] = {
	{"admin", HB_SCOPE_ADMIN},
	{"moderat", HB_SCOPE_ADMIN},
	{"manage_", HB_SCOPE_ADMIN},
	{"ban_members", HB_SCOPE_ADMIN},
	{"kick_members", HB_SCOPE_ADMIN},
	{"roles", HB_SCOPE_ADMIN},
	{"webhook", HB_SCOPE_ADMIN},
	{"settings", HB_SCOPE_ADMIN},
	{"full_access", HB_SCOPE_ADMIN},
	{"mail.google.com", HB_SCOPE_ADMIN},
	{"readonly", HB_SCOPE_READ},
	{"read_only", HB_SCOPE_READ},
	{"freebusy", HB_SCOPE_READ},
	{"metadata", HB_SCOPE_READ},
	{"write", HB_SCOPE_WRITE},
	{"send", HB_SCOPE_WRITE},
	{"modify", HB_SCOPE_WRITE},
	{"compose", HB_SCOPE_WRITE},
	{"insert", HB_SCOPE_WRITE},
	{"update", HB_SCOPE_WRITE},
	{"create", HB_SCOPE_WRITE},
	{"delete", HB_SCOPE_WRITE},
	{"edit", HB_SCOPE_WRITE},
	{"post", HB_SCOPE_WRITE},
	{"share", HB_SCOPE_WRITE},
	{"read", HB_SCOPE_READ},
	{"history", HB_SCOPE_READ},
	{"list", HB_SCOPE_READ},
	{"search", HB_SCOPE_READ},
	{"view", HB_SCOPE_READ},
	{"openid", HB_SCOPE_READ},
	{"profile", HB_SCOPE_READ},
	{"email", HB_SCOPE_READ},
	{"googleapis.com/auth/", HB_SCOPE_WRITE}, /* without .readonly it is both */
};

enum hb_scope_power hb_scope_power(const char *scope)
{
	char lower[HB_SCOPE_MAX + 1];
	size_t n = 0;

	for (; scope[n] && n < HB_SCOPE_MAX; n++)
		lower[n] = scope[n] == '-' ? '_' : (char)tolower((unsigned char)scope[n]);
	lower[n] = '\0';
	for (size_t i = 0; i < sizeof powers / sizeof powers[0]; i++)
		if (strstr(lower, powers[i].part))
			return powers[i].power;
	return HB_SCOPE_UNKNOWN;
}

/* The first segment of a guardrail's connection is the service. */
static bool speaks_about(const struct hb_guardrail *g, const char *service)
{
	size_t len = strcspn(g->connection, ".");

	return strlen(service) == len && strncmp(g->connection, service, len) == 0;
}

static const char *const chat[] = {"discord", "slack", "telegram", "mattermost", "matrix", "teams"};

static bool is_chat(const char *service)
{
	for (size_t i = 0; i < sizeof chat / sizeof chat[0]; i++)
		if (strncmp(service, chat[i], strlen(chat[i])) == 0)
			return true;
	return false;
}

/* --- items --- */

__attribute__((format(printf, 6, 7))) static void add(json_t *items, const char *kind,
						      const char *name, bool due, const char *from,
						      const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (json_array_size(items) < HB_REVIEW_ITEMS_MAX)
		json_array_append_new(items,
				      json_pack("{s:s, s:s, s:s, s:b, s:s}", "kind", kind, "name",
						name, "text", text, "due", due, "from", from));
}

static void look_at_scopes(json_t *items, const struct hb_connection *c,
			   const struct hb_guardrails *all)
{
	size_t files = 0, writes = 0;

	for (size_t i = 0; i < all->count; i++) {
		if (!speaks_about(&all->files[i], c->service))
			continue;
		files++;
		for (size_t k = 0; k < all->files[i].rule_count; k++)
			writes += all->files[i].rules[k].verdict == HB_VERDICT_APPROVAL;
	}
	if (!files) {
		add(items, "guardrails", c->name, true, "",
		    "no guardrails speak about its service, so nothing of it is allowed");
		return;
	}
	for (size_t i = 0; i < c->scope_count; i++) {
		enum hb_scope_power power = hb_scope_power(c->scopes[i]);

		if (power == HB_SCOPE_ADMIN)
			add(items, "scopes", c->name, true, "",
			    "%s lets it administer, which no guardrail lets through", c->scopes[i]);
		else if (power == HB_SCOPE_WRITE && !writes)
			add(items, "scopes", c->name, true, "",
			    "%s lets it write, and its guardrails let nothing but reads through",
			    c->scopes[i]);
	}
}

static void look_at_connection(json_t *items, const struct hb_connection *c,
			       const struct hb_guardrails *guardrails,
			       const struct hb_inventory_owners *owners, int64_t now)
{
	if (hb_onboarding_past(c->review_by, now))
		add(items, "overdue", c->name, true, c->review_by, "was to be reviewed by %s",
		    c->review_by);
	if (c->result == HB_CHECK_FAILED || c->result == HB_CHECK_PAUSED)
		add(items, "check", c->name, true, "", "its last check %s: %s",
		    c->result == HB_CHECK_FAILED ? "failed" : "paused", c->reason);
	if (c->result == HB_NEVER_CHECKED)
		add(items, "unvalidated", c->name, false, "",
		    "it was never checked: hermesctl inventory check");
	if (strcmp(c->owner, owners->admin) != 0 && strcmp(c->owner, owners->person) != 0)
		add(items, "owner", c->name, true, "", "its owner %s is neither %s nor %s",
		    c->owner, owners->admin, owners->person);
	if (guardrails)
		look_at_scopes(items, c, guardrails);
	if (is_chat(c->service))
		add(items, "bot", c->name, false, "",
		    "look at what the bot may do in %s: roles, channels, webhooks", c->service);
}

static void look_at_key(json_t *items, const struct hb_named_key *k, int64_t now)
{
	int64_t used = k->last_used > k->created ? k->last_used : k->created;
	char day[11];

	hb_onboarding_date_of(used, day);
	if (k->trouble[0])
		add(items, "key", k->name, true, "",
		    "it can't be used as it is: hermesctl runtime key list");
	else if (hb_onboarding_past(k->expires, now))
		add(items, "key_expired", k->name, true, k->expires,
		    "was meant until %s: revoke it in the runtime and remove it", k->expires);
	else if (now - used > (int64_t)HB_KEY_UNUSED_DAYS * DAY)
		add(items, "key_unused", k->name, true, "", "%s %s",
		    k->last_used ? "last used on" : "not used since it was stored on", day);
}

json_t *hb_review_items(const struct hb_inventory *inv, const struct hb_named_key *keys,
			size_t key_count, const struct hb_guardrails *guardrails,
			const struct hb_inventory_owners *owners, int64_t now)
{
	json_t *all = json_array(), *sorted = json_array(), *item;
	size_t i;

	for (i = 0; i < inv->count; i++)
		look_at_connection(all, &inv->items[i], guardrails, owners, now);
	for (i = 0; i < key_count; i++)
		look_at_key(all, &keys[i], now);
	for (int due = 1; due >= 0; due--)
		json_array_foreach(all, i, item)
			if (hb_json_bool(item, "due", false) == (due == 1))
				json_array_append(sorted, item);
	json_decref(all);
	return sorted;
}

size_t hb_review_count_due(const json_t *items)
{
	const json_t *item;
	size_t i, due = 0;

	json_array_foreach(items, i, item)
		due += hb_json_bool(item, "due", false);
	return due;
}
