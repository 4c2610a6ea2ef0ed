/*
 * Named API keys for the runtime, for the prober and nobody else.
 *
 *   probe/keys/NAME          hermes-probe 0600  the key; read for one question and handed to the
 * probe worker onboarding/keys.json     root 0600          what is known of them:
 * {"version":1,"generation":N,"keys":[..]} installer/key-use.json   root 0600          {"NAME":
 * seconds}: when the installer last read it, to the hour
 *
 * The description never holds the key nor any part of it. Setting writes the key first, removing
 * ends it first, so that a crash in between leaves a key without a description (which `key list`
 * shows) and never the other way round unnoticed. Changes are serialised by hb_onboarding_lock
 * (store.h).
 */
#ifndef HB_ONBOARDING_KEYS_H
#define HB_ONBOARDING_KEYS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/fs.h"

#define HB_KEYS_DIR "probe/keys"
#define HB_KEYS_FILE "onboarding/keys.json"
#define HB_KEYS_USE_FILE "installer/key-use.json"
#define HB_NAMED_KEYS_MAX 64
#define HB_KEY_TEXT_MAX 4096   /* bytes of a key */
#define HB_KEY_PURPOSE_MAX 200 /* code points */
#define HB_KEY_USE_STEP                                                                            \
	3600 /* a newer use is written down only when the one on disk is older by this */
#define HB_KEY_UNUSED_DAYS 30 /* after which a key counts as unused */
#define HB_ONBOARDING_NAME_MAX 64

struct hb_named_key {
	char name[HB_ONBOARDING_NAME_MAX], owner[HB_ONBOARDING_NAME_MAX];
	char purpose[HB_KEY_PURPOSE_MAX * 4 + 1];
	int64_t created, last_used; /* last_used 0: never */
	char expires[11];	    /* "YYYY-MM-DD", the last day; "" : none */
	bool present;		    /* there is a key file that can be used */
	bool described;
	char trouble[200]; /* why the file can't be used, "" */
};

/* Lower-case letters, digits and single '-' between them, 1..63; begins with a letter. Also for
 * owners and connections. Code bad_name; the name is not repeated. */
int hb_onboarding_name(const char *field, const char *name, struct hb_error *err);

/* Strict "YYYY-MM-DD", a day that exists, 2000..2199. Code bad_date. */
int hb_onboarding_date(const char *field, const char *date, struct hb_error *err);
/* Seconds of the first moment after that day (UTC). */
int64_t hb_onboarding_date_end(const char *date);
void hb_onboarding_date_of(int64_t t, char out[11]);

/* For whoever asks the prober: working directory is the state. Codes: bad_name, key_unknown, and
 * those of hb_secret_read. */
int hb_named_key_read(const char *name, uid_t probe_uid, struct hb_secret *out,
		      struct hb_error *err);
/* Note that it was used. Best effort: a full disk must not stop a health check. */
void hb_named_key_used(const char *name);

/* What is known, sorted by name; keys without description and descriptions without key are there
 * too. Count, or -1. */
int hb_named_keys_list(uid_t probe_uid, struct hb_named_key *out, size_t max, struct hb_error *err);

/* Under the lock. `set` keeps purpose, owner and expiry of an existing one where those given are
 * NULL. Codes: too_many_keys, bad_key, looks_like_credential (in purpose or name) ... */
struct hb_named_key_set {
	const char *name, *purpose, *owner, *expires;
};
int hb_named_key_set(const struct hb_named_key_set *s, const struct hb_secret *key,
		     const char *default_owner, uid_t probe_uid, gid_t probe_gid, bool *replaced,
		     struct hb_error *err);
/* Code not_found. */
int hb_named_key_remove(const char *name, struct hb_error *err);

/* Is the day behind us? */
bool hb_onboarding_past(const char *date, int64_t now);

#endif
