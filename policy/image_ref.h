/*
 * repository[:tag]@sha256:<64 hex>: the only way an image may be named (distribution-spec grammar;
 * the digest is required, a tag alone is refused). "oci:DIR@sha256:..." names an OCI image layout
 * on this host. A name without a registry host is Docker Hub's: "alpine" is
 * docker.io/library/alpine.
 */
#ifndef HB_POLICY_IMAGE_REF_H
#define HB_POLICY_IMAGE_REF_H

#include <stdbool.h>

#include "common/digest.h"
#include "common/error.h"

struct hb_image_ref {
	bool layout;            /* oci: directory */
	char registry[256];     /* host[:port]; "" for a layout */
	char repository[256];   /* path within the registry; for a layout the absolute directory */
	char tag[129];          /* "" when absent */
	char digest[HB_HEX256]; /* 64 hex */
};

/* Codes: image_not_pinned, image_malformed, bad_digest. need_tag: a tag is required as well (not
 * for a layout, which has none). */
int hb_image_ref_parse(const char *text, bool need_tag, struct hb_image_ref *out,
		       struct hb_error *err);
/* registry/repository, the part that bounds compare. */
void hb_image_ref_name(const struct hb_image_ref *ref, char *out, size_t size);

/* "linux/amd64" of the running machine. */
const char *hb_host_platform(void);

#endif
