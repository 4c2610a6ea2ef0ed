/*
 * hermesctl inventory show, add, edit, remove, check: the accounts that are connected to the
 * runtime. Everything is judged before it is stored and no value that was refused is repeated.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/ctl_onboarding.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "onboarding/inventory.h"
#include "onboarding/inventory_check.h"
#include "onboarding/store.h"

#define REVIEW_DAYS 90 /* until the first review, when no day is given */

struct given {
	const char *service, *identity, *owner, *query, *review_by, *no_scopes;
	const char **scopes;
};

#define GIVEN_OPTIONS(g)                                                                           \
	{"service", "NAME", "what kind of account: the first part of its tools' paths",            \
	 &(g).service, NULL},                                                                      \
		{"identity", "TEXT", "which account there, such as an address", &(g).identity,     \
		 NULL},                                                                            \
		{"owner", "NAME", "whose it is (default: onboarding.connections_owner)",           \
		 &(g).owner, NULL},                                                                \
		{"scope", "TEXT", "what it may do there (repeatable)", NULL, &(g).scopes},         \
		{"query", "CODE", "harmless code for the tool execute that returns something",     \
		 &(g).query, NULL},                                                                \
	{                                                                                          \
		"review-by", "DATE", "day by which somebody looks at it again, YYYY-MM-DD",        \
			&(g).review_by, NULL                                                       \
	}

/* Those fields that were given. */
static int apply(struct ctl *c, const struct given *g, struct hb_connection *to,
		 struct hb_error *err)
{
	const struct {
		enum hb_connection_field field;
		const char *value;
	} fields[] = {{HB_C_SERVICE, g->service},
		      {HB_C_IDENTITY, g->identity},
		      {HB_C_OWNER, g->owner},
		      {HB_C_QUERY, g->query},
		      {HB_C_REVIEW_BY, g->review_by}};

	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
		if (fields[i].value &&
		    hb_connection_set(to, fields[i].field, fields[i].value, err) < 0)
			return -1;
	if (g->scopes || g->no_scopes)
		hb_connection_clear_scopes(to);
	for (size_t i = 0; g->scopes && g->scopes[i]; i++)
		if (hb_connection_add_scope(to, g->scopes[i], err) < 0)
			return -1;
	return g->owner ? ctl_onboarding_owner(c, g->owner, err) : 0;
}

/* Record, write, record, and tell admin and approver. */
static int store(struct ctl *c, struct hb_inventory *inv, const char *action, const char *name,
		 struct hb_error *err)
{
	if (hb_onboarding_audit(action, "intent", name, NULL, err) < 0)
		return -1;
	if (hb_inventory_save(inv, err) < 0) {
		(void)hb_onboarding_audit(action, "failed", name, NULL, NULL);
		return -1;
	}
	return hb_onboarding_audit(action, "ok", name, NULL, err) < 0 ? -1
								      : ctl_reviews_publish(c, err);
}

static int done(struct ctl *c, int rc, const char *name, const char *what,
		const struct hb_error *err)
{
	if (rc < 0)
		return ctl_error(c, err);
	if (!c->json)
		printf("Connection %s is %s.\n", name, what);
	return ctl_result(c, json_pack("{s:s, s:s}", "status", "ok", "name", name), CTL_OK);
}

int ctl_cmd_inventory_add(struct ctl *c, int argc, char **argv)
{
	struct given g = {0};
	const struct ctl_option options[] = {GIVEN_OPTIONS(g)};
	struct hb_inventory inv = {0};
	struct hb_connection new = {0};
	struct hb_error err = {0};
	int lock = -1, rc = -1;

	if (ctl_parse(c, "inventory add", options, sizeof options / sizeof options[0], argc, argv,
		      1, 1) < 0)
		return CTL_USAGE;
	hb_onboarding_date_of(hb_now() + REVIEW_DAYS * 86400LL, new.review_by);
	if (hb_connection_set(&new, HB_C_NAME, argv[0], &err) < 0 ||
	    ctl_onboarding_open(c, &lock, &err) < 0)
		goto out;
	if (!g.owner)
		g.owner = hb_config_text(c->config, "onboarding.connections_owner");
	if (apply(c, &g, &new, &err) < 0 || hb_connection_complete(&new, &err) < 0 ||
	    hb_inventory_load(&inv, &err) < 0 || hb_inventory_add(&inv, &new, &err) < 0)
		goto out;
	rc = store(c, &inv, "inventory_add", new.name, &err);
out:
	hb_close(&lock);
	hb_inventory_free(&inv);
	free(g.scopes);
	rc = done(c, rc, new.name, "in the inventory", &err);
	hb_connection_free(&new);
	return rc;
}

static int not_there(struct hb_error *err)
{
	return hb_fail(err, "not_found",
		       "there is no connection of this name: hermesctl inventory show");
}

int ctl_cmd_inventory_edit(struct ctl *c, int argc, char **argv)
{
	struct given g = {0};
	const struct ctl_option options[] = {
		GIVEN_OPTIONS(g),
		{"no-scopes", NULL, "it may do nothing there any more", &g.no_scopes, NULL}};
	struct hb_inventory inv = {0};
	struct hb_connection *it;
	struct hb_error err = {0};
	int lock = -1, rc = -1;

	if (ctl_parse(c, "inventory edit", options, sizeof options / sizeof options[0], argc, argv,
		      1, 1) < 0)
		return CTL_USAGE;
	if (ctl_onboarding_open(c, &lock, &err) < 0 || hb_inventory_load(&inv, &err) < 0)
		goto out;
	if (!(it = hb_inventory_find(&inv, argv[0]))) {
		not_there(&err);
		goto out;
	}
	if (apply(c, &g, it, &err) < 0)
		goto out;
	if (g.service || g.identity || g.query || g.scopes || g.no_scopes)
		hb_connection_unvalidate(it);
	rc = store(c, &inv, "inventory_edit", it->name, &err);
out:
	hb_close(&lock);
	hb_inventory_free(&inv);
	free(g.scopes);
	return done(c, rc, argv[0], "changed", &err);
}

int ctl_cmd_inventory_remove(struct ctl *c, int argc, char **argv)
{
	struct hb_inventory inv = {0};
	struct hb_connection *it;
	struct hb_error err = {0};
	int lock = -1, rc = -1;

	if (ctl_parse(c, "inventory remove", NULL, 0, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	if (ctl_onboarding_open(c, &lock, &err) == 0 && hb_inventory_load(&inv, &err) == 0) {
		if ((it = hb_inventory_find(&inv, argv[0]))) {
			hb_inventory_drop(&inv, it);
			rc = store(c, &inv, "inventory_remove", argv[0], &err);
		} else
			not_there(&err);
	}
	hb_close(&lock);
	hb_inventory_free(&inv);
	return done(c, rc, argv[0], "no longer in the inventory", &err);
}

static void print_line(const char *label, const char *value)
{
	printf("  %-14s ", label);
	ctl_print_text(value);
	putchar('\n');
}

static void print_connection(const struct hb_connection *it)
{
	struct hb_buf scopes = HB_BUF_INIT;
	char when[32], text[128];

	for (size_t i = 0; i < it->scope_count; i++)
		hb_buf_printf(&scopes, "%s%s", i ? " " : "", it->scopes[i]);
	printf("%s\n", it->name);
	print_line("service", it->service);
	print_line("identity", it->identity);
	print_line("owner", it->owner);
	print_line("scopes", scopes.data ? scopes.data : "-");
	print_line("query", it->query);
	ctl_time(it->last_validated, when, sizeof when);
	print_line("last validated", when);
	if (it->result != HB_NEVER_CHECKED) {
		ctl_time(it->checked_at, when, sizeof when);
		snprintf(text, sizeof text, "%s, %s%s%s", when, hb_validation_name(it->result),
			 it->reason[0] ? ": " : "", it->reason);
		print_line("last check", text);
	}
	snprintf(text, sizeof text, "%s%s", it->review_by,
		 hb_onboarding_past(it->review_by, hb_now()) ? ", overdue" : "");
	print_line("review by", text);
	hb_buf_free(&scopes);
}

struct hb_inventory_owners ctl_onboarding_owners(struct ctl *c)
{
	return (struct hb_inventory_owners){
		hb_config_text(c->config, "onboarding.infrastructure_admin"),
		hb_config_text(c->config, "onboarding.connections_owner")};
}

int ctl_cmd_inventory_show(struct ctl *c, int argc, char **argv)
{
	struct hb_inventory inv = {0};
	struct hb_inventory_owners owners;
	struct hb_connection *one = NULL;
	struct hb_error err = {0};
	int wanted = ctl_parse(c, "inventory show", NULL, 0, argc, argv, 0, 1);
	json_t *report;

	if (wanted < 0)
		return CTL_USAGE;
	if (ctl_onboarding_open(c, NULL, &err) < 0 || hb_inventory_load(&inv, &err) < 0)
		return ctl_error(c, &err);
	if (wanted == 1 && !(one = hb_inventory_find(&inv, argv[0]))) {
		not_there(&err);
		hb_inventory_free(&inv);
		return ctl_error(c, &err);
	}
	owners = ctl_onboarding_owners(c);
	if (!c->json) {
		printf("Owners     %s (infrastructure), %s (connections)\n", owners.admin,
		       owners.person);
		printf("Gateway    ");
		ctl_print_text(inv.gateway[0] ? inv.gateway
					      : "not seen yet: hermesctl inventory check");
		putchar('\n');
		for (size_t i = 0; i < inv.count; i++)
			if (!one || one == &inv.items[i])
				print_connection(&inv.items[i]);
		if (inv.count == 0)
			puts("No connection is written down. Add one with: hermesctl inventory add "
			     "NAME --service ...");
	}
	report = one ? json_pack("{s:o}", "connection", hb_connection_to_json(one))
		     : hb_inventory_report(&inv, &owners, hb_now());
	hb_inventory_free(&inv);
	return ctl_result(c, report, CTL_OK);
}

/* --- check --- */

static bool is_wanted(const char *name, int count, char **names)
{
	for (int i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return count == 0;
}

/* The MCP address as the runtime shows it; nothing is changed when it can't be asked. */
static void note_gateway(struct ctl *c)
{
	struct hb_error err = {0};
	json_t *runtime = ctl_call(c, HB_PEER_INSTALLER, "GET", "/runtime", NULL, &err);
	const char *address = hb_json_text(runtime, "mcp_address", "");
	struct hb_inventory inv = {0};
	int lock = -1;

	if (*address && strlen(address) <= HB_GATEWAY_MAX && hb_onboarding_lock(&lock, &err) == 0 &&
	    hb_inventory_load(&inv, &err) == 0) {
		bool changed = strcmp(inv.gateway, address) != 0;

		snprintf(inv.gateway, sizeof inv.gateway, "%s", address);
		inv.gateway_seen = hb_now();
		if (changed)
			(void)store(c, &inv, "inventory_gateway", NULL, &err);
		else
			(void)hb_inventory_save(&inv, &err);
	}
	hb_close(&lock);
	hb_inventory_free(&inv);
	json_decref(runtime);
}

/* 1 passed, 0 did not, -1 nothing could be asked. */
static int check_one(struct ctl *c, const struct hb_mcp_options *o, const struct hb_connection *it,
		     json_t *list, struct hb_error *err)
{
	static const struct hb_check_calls live = {hb_mcp_execute, hb_mcp_resume};
	enum hb_validation result;
	char reason[HB_ERROR_CODE_MAX];
	bool recorded;

	if (hb_connection_try(&live, o, it, &result, reason, err) < 0 ||
	    hb_connection_record_result(it, result, reason, hb_now(), &recorded, err) < 0)
		return -1;
	if (!recorded)
		snprintf(reason, sizeof reason, "changed_meanwhile");
	json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b}", "name", it->name, "result",
					      hb_validation_name(result), "reason", reason,
					      "recorded", recorded));
	if (!c->json)
		printf("%-7s %s%s%s\n", recorded ? hb_validation_name(result) : "-", it->name,
		       reason[0] ? ": " : "", reason);
	return recorded && result == HB_CHECK_OK;
}

static int check_all(struct ctl *c, const struct hb_mcp_options *o, int count, char **names,
		     json_t *list, int *passed, struct hb_error *err)
{
	struct hb_inventory inv = {0};
	int rc = hb_inventory_load(&inv, err);

	for (int i = 0; rc == 0 && i < count; i++)
		if (!hb_inventory_find(&inv, names[i]))
			rc = not_there(err);
	for (size_t i = 0; rc == 0 && i < inv.count; i++) {
		if (!is_wanted(inv.items[i].name, count, names))
			continue;
		rc = check_one(c, o, &inv.items[i], list, err);
		*passed += rc > 0;
		rc = rc < 0 ? -1 : 0;
	}
	hb_inventory_free(&inv);
	return rc;
}

int ctl_cmd_inventory_check(struct ctl *c, int argc, char **argv)
{
	const char *key = NULL, *timeout = NULL;
	const struct ctl_option options[] = {
		{"key", "NAME", "the key of `runtime key` to ask with", &key, NULL},
		{"timeout", "SECONDS", "for each connection, 1 to 300 (default 30)", &timeout,
		 NULL}};
	struct hb_mcp_options o = {0};
	struct hb_error err = {0};
	json_t *list;
	int count = ctl_parse(c, "inventory check", options, 2, argc, argv, 0, HB_CONNECTIONS_MAX),
	    passed = 0, rc, lock = -1;
	long seconds = timeout ? strtol(timeout, NULL, 10) : 30;

	if (count < 0)
		return CTL_USAGE;
	if (!key || seconds < 1 || seconds > 300) {
		hb_fail(&err, "usage",
			!key ? "name the key to ask with: --key NAME"
			     : "--timeout must be 1 to 300 seconds");
		return ctl_error(c, &err);
	}
	if (ctl_onboarding_open(c, NULL, &err) < 0)
		return ctl_error(c, &err);
	o.key = key;
	o.timeout_ms = (int)seconds * 1000;
	list = json_array();
	note_gateway(c);
	rc = check_all(c, &o, count, argv, list, &passed, &err);
	if (hb_onboarding_lock(&lock, NULL) == 0)
		(void)ctl_reviews_publish(c, NULL);
	hb_close(&lock);
	if (rc < 0) {
		json_decref(list);
		return ctl_error(c, &err);
	}
	if (!c->json)
		printf("%d of %zu passed\n", passed, json_array_size(list));
	rc = (size_t)passed == json_array_size(list) ? CTL_OK : CTL_FAILED;
	return ctl_result(c, json_pack("{s:b, s:o}", "ok", rc == CTL_OK, "connections", list), rc);
}
