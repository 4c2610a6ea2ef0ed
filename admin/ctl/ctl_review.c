/*
 * hermesctl review: what is due to be looked at. Root sees all of it; admin and approver get kinds,
 * names and dates, each in a file of its own, whenever something changed here.
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
#include "onboarding/review.h"
#include "onboarding/store.h"
#include "policy/live.h"

struct known {
	struct hb_inventory inventory;
	struct hb_named_key *keys;
	int key_count;
};

static void forget(struct known *k)
{
	hb_inventory_free(&k->inventory);
	free(k->keys);
}

/* The items, or NULL; *k is to be forgotten in any case. */
static json_t *collect(struct ctl *c, struct known *k, struct hb_error *err)
{
	struct hb_inventory_owners owners = ctl_onboarding_owners(c);
	struct hb_guardrails guardrails = {0};
	struct hb_error why = {0};
	json_t *items;
	bool known;

	*k = (struct known){.keys = hb_calloc(2 * HB_NAMED_KEYS_MAX, sizeof *k->keys)};
	if (hb_inventory_load(&k->inventory, err) < 0)
		return NULL;
	k->key_count =
		hb_named_keys_list(hb_peer_uid(HB_PEER_PROBE), k->keys, 2 * HB_NAMED_KEYS_MAX, err);
	if (k->key_count < 0)
		return NULL;
	known = hb_guardrails_load(&guardrails, &why) == 0;
	items = hb_review_items(&k->inventory, k->keys, (size_t)k->key_count,
				known ? &guardrails : NULL, &owners, hb_now());
	/* Without them nothing is said about scopes, which must not look as if all were well. */
	if (!known)
		json_array_insert_new(items, 0,
				      json_pack("{s:s, s:s, s:s, s:b, s:s}", "kind", "guardrails",
						"name", "guardrails", "text", why.message, "due", 1,
						"from", ""));
	hb_guardrails_free(&guardrails);
	return items;
}

int ctl_reviews_publish(struct ctl *c, struct hb_error *err)
{
	static const struct {
		const char *path;
		enum hb_peer reader;
	} files[] = {{HB_REVIEWS_ADMIN, HB_PEER_ADMIN}, {HB_REVIEWS_APPROVER, HB_PEER_APPROVER}};
	struct known k;
	json_t *items = collect(c, &k, err);
	int rc = items ? 0 : -1;

	for (size_t i = 0; rc == 0 && i < 2; i++)
		rc = hb_reviews_publish(files[i].path, hb_peer_uid(files[i].reader),
					hb_peer_gid(files[i].reader), items, &k.inventory, k.keys,
					(size_t)k.key_count, err);
	json_decref(items);
	forget(&k);
	return rc;
}

json_t *ctl_reviews_due(struct ctl *c)
{
	struct hb_error err = {0};
	json_t *items, *due;
	struct known k;

	if (geteuid() != 0 || access(HB_ONBOARDING_DIR, F_OK) < 0)
		return NULL;
	items = collect(c, &k, &err);
	forget(&k);
	due = items ? json_pack("{s:I}", "due", (json_int_t)hb_review_count_due(items))
		    : json_pack("{s:s, s:s}", "error", err.message, "code", err.code);
	json_decref(items);
	return due;
}

/* Live policy is nothing that is ever due; a review looks at it all the same. */
static json_t *policy_item(struct hb_error *err)
{
	struct hb_policy_view view = {0};
	struct hb_buf text = HB_BUF_INIT;
	json_t *item;

	if (hb_policy_view_load(hb_peer_uid(HB_PEER_ADMIN), &view, err) < 0)
		return json_pack("{s:s, s:s, s:s, s:b, s:s}", "kind", "policy", "name",
				 "live-policy", "text", err->message, "due", 1, "from", "");
	hb_buf_printf(&text, "%zu may approve; enabled:", view.live.user_count);
	for (unsigned bit = 1; bit <= HB_FEATURE_SSH; bit <<= 1)
		if (view.live.features & bit)
			hb_buf_printf(&text, " %s", hb_feature_name(bit));
	hb_policy_view_free(&view);
	item = json_pack("{s:s, s:s, s:s, s:b, s:s}", "kind", "policy", "name", "live-policy",
			 "text", text.data, "due", 0, "from", "");
	hb_buf_free(&text);
	return item;
}

static void print_items(const json_t *items, bool due, const char *title)
{
	bool first = true;
	const json_t *item;
	size_t i;

	json_array_foreach(items, i, item) {
		if (hb_json_bool(item, "due", false) != due)
			continue;
		if (first)
			puts(title);
		first = false;
		printf("  %-12s %-24s ", hb_json_text(item, "kind", ""),
		       hb_json_text(item, "name", ""));
		ctl_print_text(hb_json_text(item, "text", ""));
		putchar('\n');
	}
}

int ctl_cmd_review(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	json_t *items = NULL;
	struct known k = {0};
	size_t due;
	int lock = -1;

	if (ctl_parse(c, "review", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_onboarding_open(c, &lock, &err) == 0 && ctl_reviews_publish(c, &err) == 0)
		items = collect(c, &k, &err);
	forget(&k);
	hb_close(&lock);
	if (!items)
		return ctl_error(c, &err);
	json_array_append_new(items, policy_item(&err));
	due = hb_review_count_due(items);
	if (!c->json) {
		print_items(items, true, "Due");
		print_items(items, false, "To look at");
		printf("%zu due\n", due);
	}
	return ctl_result(c, json_pack("{s:I, s:o}", "due", (json_int_t)due, "items", items),
			  due ? CTL_FAILED : CTL_OK);
}
