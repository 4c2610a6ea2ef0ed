/*
 * Which entry of an index this machine may run (OCI image-spec, image-index.md). The result depends
 * on the set of entries, never on their order.
 */
#ifndef HB_FETCHER_PLATFORM_H
#define HB_FETCHER_PLATFORM_H

#include <jansson.h>
#include <stdbool.h>

#include "common/digest.h"
#include "common/error.h"

struct hb_platform {
	char os[16], arch[16];
	int level; /* highest variant that may run: amd64 1..4, arm 5..8, arm64 80.. (v8.1 = 81); 0:
		      no variants */
};

/* "linux/arm64", "linux/arm/v6". Without a variant: arm64 v8, arm v7, amd64 what `host_level` says.
 * Code: bad_platform. */
int hb_platform_parse(const char *text, struct hb_platform *out, struct hb_error *err);
/* x86-64 micro-architecture level (1..4) of this CPU; 1 elsewhere. */
int hb_platform_host_level(void);

/* Choose from the index's "manifests". `pin` is 64 hex or NULL: then just that entry, which must be
 * one this platform may run. Codes: platform_absent (names the platforms offered),
 * platform_mismatch, bad_digest, bad_manifest. */
int hb_platform_choose(const json_t *manifests, const struct hb_platform *want, const char *pin,
		       char hex[HB_HEX256], long long *size, struct hb_error *err);

/* Does an image whose config says os/arch/variant run here? Code: platform_mismatch. */
int hb_platform_check(const json_t *config, const struct hb_platform *want, struct hb_error *err);

#endif
