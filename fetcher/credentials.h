/*
 * fetcher/credentials.json (0600, owned by the fetcher's uid or root):
 *   {"registries": {"ghcr.io": {"username": "..", "password": "..", "realm_hosts":
 * ["auth.example.com"]}}} Keys are host[:port] as in image names. A missing file means anonymous; a
 * loose one is refused.
 */
#ifndef HB_FETCHER_CREDENTIALS_H
#define HB_FETCHER_CREDENTIALS_H

#include <stddef.h>
#include <sys/types.h>

#include "common/error.h"

#define HB_REALM_HOSTS_MAX 8

struct hb_credential {
	char registry[280];
	char *basic; /* "user:password" in base64, ready for the header; sodium_malloc'ed */
	char realm_hosts[HB_REALM_HOSTS_MAX][280];
	const char *realm_list[HB_REALM_HOSTS_MAX + 1]; /* NULL-terminated, into realm_hosts */
};

struct hb_credentials {
	struct hb_credential *entries;
	size_t count;
};

/* Codes: secret_permissions, bad_credentials (never quotes the file). */
int hb_credentials_load(int dirfd, const char *path, uid_t owner, struct hb_credentials *out,
			struct hb_error *err);
void hb_credentials_free(struct hb_credentials *c);
const struct hb_credential *hb_credentials_find(const struct hb_credentials *c,
						const char *hostport);

#endif
