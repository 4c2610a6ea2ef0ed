/* Names and dates of reviews, for those who only remind (review.h). */
#include <fcntl.h>
#include <string.h>

#include "common/fields.h"
#include "common/fs.h"
#include "common/json.h"
#include "onboarding/review.h"
#include "onboarding/store.h"

#define FILE_MAX (1u << 20)
#define TEXT_MAX 32 /* of a kind */

static bool listed(const json_t *list, const char *kind, const char *name)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
		if (strcmp(hb_json_text(item, "kind", ""), kind) == 0 &&
		    strcmp(hb_json_text(item, "name", ""), name) == 0)
			return true;
	return false;
}

static void put(json_t *list, const char *kind, const char *name, const char *from)
{
	if (json_array_size(list) < HB_REVIEW_ITEMS_MAX && !listed(list, kind, name))
		json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "kind", kind, "name", name,
						      "from", from));
}

int hb_reviews_publish(const char *path, uid_t uid, gid_t gid, const json_t *items,
		       const struct hb_inventory *inv, const struct hb_named_key *keys,
		       size_t key_count, struct hb_error *err)
{
	json_t *list = json_array(), *all;
	struct hb_buf text = HB_BUF_INIT;
	const json_t *item;
	size_t i;
	int rc;

	json_array_foreach(items, i, item)
		if (hb_json_bool(item, "due", false))
			put(list, hb_json_text(item, "kind", ""), hb_json_text(item, "name", ""),
			    hb_json_text(item, "from", ""));
	/* What is not due yet will be without anybody writing this again. */
	for (i = 0; i < inv->count; i++)
		put(list, "overdue", inv->items[i].name, inv->items[i].review_by);
	for (i = 0; i < key_count; i++)
		if (keys[i].expires[0])
			put(list, "key_expired", keys[i].name, keys[i].expires);
	all = json_pack("{s:i, s:o}", "version", 1, "items", list);
	rc = hb_json_canonical(all, &text, err);
	hb_buf_addc(&text, '\n');
	if (rc == 0)
		rc = hb_fs_write_atomic(AT_FDCWD, path, text.data, text.len, 0600, uid, gid, err);
	json_decref(all);
	hb_buf_free(&text);
	return rc;
}

static int read_item(const json_t *item, int64_t now, json_t *due, struct hb_error *err)
{
	struct item {
		const char *kind, *name, *from;
	} r = {0};
	static const struct hb_field fields[] = {
		{"kind", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct item, kind), 1,
		 TEXT_MAX},
		{"name", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct item, name), 1,
		 HB_ONBOARDING_NAME_MAX},
		{"from", HB_FIELD_TEXT, HB_FIELD_REQUIRED, offsetof(struct item, from), 0, 10},
	};

	if (hb_fields_decode(item, fields, 3, &r, NULL) < 0 ||
	    strspn(r.kind, "abcdefghijklmnopqrstuvwxyz_") != strlen(r.kind) ||
	    hb_onboarding_name("name", r.name, NULL) < 0 ||
	    (r.from[0] && hb_onboarding_date("from", r.from, NULL) < 0))
		return hb_fail(err, "bad_reviews", "an item does not have the shape it must have");
	if (!r.from[0] || hb_onboarding_past(r.from, now))
		json_array_append_new(due, json_pack("{s:s, s:s}", "kind", r.kind, "name", r.name));
	return 0;
}

json_t *hb_reviews_read(const char *path, int64_t now, struct hb_error *err)
{
	json_t *all = NULL, *due, *items, *item;
	size_t i;

	if (hb_onboarding_load(path, FILE_MAX, &all, err) < 0)
		return NULL;
	due = json_array();
	items = json_object_get(all, "items");
	if (all && (hb_json_int(all, "version", 0) != 1 || !json_is_array(items) ||
		    json_object_size(all) != 2 || json_array_size(items) > HB_REVIEW_ITEMS_MAX)) {
		hb_fail(err, "bad_reviews", "%s does not have the shape it must have", path);
		goto bad;
	}
	json_array_foreach(items, i, item)
		if (read_item(item, now, due, err) < 0) {
			hb_fail_prefix(err, "%s", path);
			goto bad;
		}
	json_decref(all);
	return json_pack("{s:I, s:o}", "due", (json_int_t)json_array_size(due), "items", due);
bad:
	json_decref(all);
	json_decref(due);
	return NULL;
}
