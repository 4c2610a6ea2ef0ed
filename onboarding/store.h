/*
 * The files of onboarding in the state directory: root's, 0600, strict canonical JSON, one lock,
 * one audit chain.
 *
 *   onboarding/                root 0700
 *   onboarding/lock            held while anything is changed
 *   onboarding/audit.log       chain of its own: who set, removed, edited what, by name only
 *   onboarding/inventory.json  the connections (inventory.h)
 *   onboarding/keys.json       descriptions of keys (keys.h)
 *   onboarding/acceptance.json  the report of the last `hermesctl acceptance run`
 *   admin/reviews.json, approver/reviews.json   names and dates for those two (due.h)
 *
 * The working directory is the state directory.
 */
#ifndef HB_ONBOARDING_STORE_H
#define HB_ONBOARDING_STORE_H

#include <jansson.h>
#include <stddef.h>

#include "common/error.h"

#define HB_ONBOARDING_DIR "onboarding"
#define HB_ONBOARDING_LOCK "onboarding/lock"
#define HB_ONBOARDING_AUDIT "onboarding/audit.log"
#define HB_ACCEPTANCE_RECORD "onboarding/acceptance.json"

/* Exclusive; waits for another hermesctl. Released by hb_close on *fd. */
int hb_onboarding_lock(int *fd, struct hb_error *err);

/* Root's file, nobody else's: regular, one name, 0600, at most max bytes. Missing: *out NULL and 0.
 * Codes: loose_permissions, bad_json, ... The text of the file is never in a message. */
int hb_onboarding_load(const char *path, size_t max, json_t **out, struct hb_error *err);
/* Canonical, atomic, 0600. */
int hb_onboarding_save(const char *path, const json_t *value, struct hb_error *err);

/* One record, opened and closed under the lock: status "intent" before, "ok" after, "failed".
 * `name` may be NULL; detail is stolen and may be NULL. */
int hb_onboarding_audit(const char *action, const char *status, const char *name, json_t *detail,
			struct hb_error *err);

#endif
