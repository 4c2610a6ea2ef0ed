/*
 * A user certificate for one run (OpenSSH's PROTOCOL.certkeys): for the profile's identity, signed
 * by the profile's `ca`, good for the login name alone, for the minutes the run may take, and with
 * force-command set to the approved command, so that even a stolen copy can do nothing else.
 */
#ifndef HB_SSH_CERTIFICATE_H
#define HB_SSH_CERTIFICATE_H

#include "broker/ssh/profile.h"

/* A sealed memory file. Code ca_unusable: only ed25519 authorities and identities are signed with.
 */
int hb_certificate_file(const struct hb_loaded *l, const char *command, int seconds,
			const char *operation_id, struct hb_error *err);

#endif
