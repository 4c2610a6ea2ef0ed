/*
 * What is due to be looked at, from the inventory, the keys and the guardrails.
 *
 * An item is {"kind":..,"name":..,"text":..,"due":true|false,"from":"YYYY-MM-DD"|""}; those that
 * aren't due are to be looked at when somebody reviews anyway. Kinds: overdue      a connection
 * whose review date has passed        check        its last check did not pass scopes       it may
 * do more than its guardrails let through   guardrails   no guardrails speak about its service
 *   owner        its owner is none of the two                     unvalidated  it was never checked
 *   key_expired  a key outlived what it was for                   key_unused   nobody used it for
 * HB_KEY_UNUSED_DAYS days key          a key that can't be used                         bot a chat
 * bot: its permissions there
 *
 * Admin and approver see kinds and names alone, from files of their own (due.c): whose accounts
 * those are and what they may do stays with root.
 */
#ifndef HB_ONBOARDING_REVIEW_H
#define HB_ONBOARDING_REVIEW_H

#include "onboarding/guardrail.h"
#include "onboarding/inventory.h"

#define HB_REVIEWS_ADMIN "admin/reviews.json"
#define HB_REVIEWS_APPROVER "approver/reviews.json"
#define HB_REVIEW_ITEMS_MAX 2000

/* guardrails NULL: nothing is said about scopes. New reference to the array, sorted: due ones
 * first. */
json_t *hb_review_items(const struct hb_inventory *inv, const struct hb_named_key *keys,
			size_t key_count, const struct hb_guardrails *guardrails,
			const struct hb_inventory_owners *owners, int64_t now);
size_t hb_review_count_due(const json_t *items);

/* What a scope lets its holder do, as far as its name says. */
enum hb_scope_power { HB_SCOPE_UNKNOWN, HB_SCOPE_READ, HB_SCOPE_WRITE, HB_SCOPE_ADMIN };
enum hb_scope_power hb_scope_power(const char *scope);

/* --- due.c: for admin and approver --- */

/*
 * {"version":1,"items":[{"kind":..,"name":..,"from":"YYYY-MM-DD"}, ..]}: what is due, and from when
 * on what will be. Written by root for the process that owns the directory, 0600.
 */
int hb_reviews_publish(const char *path, uid_t uid, gid_t gid, const json_t *items,
		       const struct hb_inventory *inv, const struct hb_named_key *keys,
		       size_t key_count, struct hb_error *err);
/* As that process: {"due":N,"items":[{"kind","name"}]} as of now; new reference. Missing file: due
 * 0. */
json_t *hb_reviews_read(const char *path, int64_t now, struct hb_error *err);

#endif
