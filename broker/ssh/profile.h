/*
 * A profile as it is on disk now, read by descriptor and judged whole: nothing that is loose,
 * linked, foreign or not exactly as policy/ssh_profile.h says is used. What is returned is a copy;
 * sealing describes it, and a run hands exactly these bytes to ssh, so that no later edit of the
 * files can come in between.
 */
#ifndef HB_SSH_PROFILE_H
#define HB_SSH_PROFILE_H

#include <jansson.h>

#include "common/fs.h"
#include "policy/ssh_profile.h"

struct hb_loaded {
	char name[HB_SSH_NAME_MAX + 1];
	struct hb_ssh_profile profile;
	struct hb_ssh_host_key key;
	char known_hosts_sha256[HB_HEX256];
	struct hb_secret credential; /* the identity's bytes, or the password */
	char identity_type[32], identity_fingerprint[52], identity_sha256[HB_HEX256];
	struct hb_secret ca; /* text NULL: none */
	char ca_fingerprint[52];
};

/* Codes: profile_unknown, profile_permissions (says the chmod or chown that mends it),
 * profile_invalid, known_hosts_invalid, fingerprint_mismatch, key_type_refused, identity_format,
 * identity_encrypted. */
int hb_loaded_open(const char *name, struct hb_loaded *out, struct hb_error *err);
void hb_loaded_close(struct hb_loaded *l); /* wipes */

/* The object `sealed_profile`. A password is known by a tag keyed with ssh/integrity-secret:
 * whoever sees the tag can't try passwords on it. Codes of hb_secret_read for that file. */
json_t *hb_loaded_seal(const struct hb_loaded *l, struct hb_error *err);

/* Code profile_changed; the message names the fields that differ. */
int hb_sealed_equal(const json_t *approved, const json_t *now, struct hb_error *err);

/* *usable: [{name, auth, host, port, user, authority, fingerprint}], sorted; *broken: [{name, code,
 * error}]. New references. -1: the directory itself can't be used. */
int hb_profiles_list(json_t **usable, json_t **broken, struct hb_error *err);

#endif
