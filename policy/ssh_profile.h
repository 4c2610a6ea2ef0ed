/*
 * SSH profiles as text: the strict readers of what stands in a profile's files. The ssh executor
 * and hermesctl read with the same code, so that what `ssh profile verify` accepts is what runs.
 *
 *   ssh/profiles/NAME/        0700
 *     profile.json            {version:2, host, port, user, authority, fingerprint, auth,
 * credential_revision} known_hosts             exactly one key, no marker identity | password as
 * `auth` says, never both ca                      optional, with an identity: the key of a user
 * certificate authority each file 0600; all of it owned by the ssh executor
 */
#ifndef HB_POLICY_SSH_PROFILE_H
#define HB_POLICY_SSH_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/digest.h"
#include "common/error.h"

#define HB_SSH_NAME_MAX 64
#define HB_SSH_PROFILE_JSON_MAX 8192
#define HB_SSH_KNOWN_HOSTS_MAX 16384 /* one key of 16,384 bits is 2.9 KB */
#define HB_SSH_IDENTITY_MAX 65536
#define HB_SSH_PASSWORD_MAX 1024

struct hb_ssh_profile {
	char host[254], user[65], authority[16], fingerprint[52], auth[12],
		credential_revision[HB_HEX256];
	int port;
	bool password; /* auth is "password", else "publickey" */
};

bool hb_ssh_profile_name(const char *text); /* ^[a-z0-9][a-z0-9_-]{0,63}$ */
bool hb_ssh_user_name(const char *text); /* never begins with a dash: it stands on a command line */

/* Code profile_invalid; the message names the field. */
int hb_ssh_profile_parse(const char *text, size_t len, struct hb_ssh_profile *out,
			 struct hb_error *err);

/* A public host key. */
struct hb_ssh_host_key {
	char type[32];        /* "ssh-ed25519" */
	char fingerprint[52]; /* "SHA256:" and 43 characters */
	char base64[4096];
};

/* The one key of a known_hosts file. Codes known_hosts_invalid, key_type_refused (DSA, security
 * keys, unknown). */
int hb_ssh_known_host(const char *text, size_t len, struct hb_ssh_host_key *out,
		      struct hb_error *err);
/* One line of ssh-keyscan: the name, then the key. False when it is none (a comment, another kind
 * of key). */
bool hb_ssh_scanned_key(const char *line, struct hb_ssh_host_key *out);

/* What ssh may negotiate for a pinned key of this type: its signature algorithms without SHA-1.
 * NULL: not accepted. */
const char *hb_ssh_key_algorithms(const char *type);

/* The fingerprint of a private key file in OpenSSH's format without a passphrase; `type` as above.
 * Nothing secret is copied. Codes: identity_format, identity_encrypted, key_type_refused. */
int hb_ssh_identity(const char *text, size_t len, char type[32], char fingerprint[52],
		    struct hb_error *err);

/* Both halves of an ed25519 key of that kind; sk as libsodium has it. */
int hb_ssh_ed25519(const char *text, size_t len, unsigned char pk[32], unsigned char sk[64],
		   struct hb_error *err);

#endif
