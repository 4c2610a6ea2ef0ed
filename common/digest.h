/*
 * SHA-256 (FIPS 180-4) and the one parser for digest strings.
 *
 * OpenSSL's implementation is used since it has the CPU's SHA instructions (about seven times
 * libsodium's portable code on the same machine), and every layer is hashed twice.
 */
#ifndef HB_COMMON_DIGEST_H
#define HB_COMMON_DIGEST_H

#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"

#define HB_HEX256 65 /* 64 digits and NUL */

struct hb_sha256; /* streaming state */

struct hb_sha256 *hb_sha256_new(void);
void hb_sha256_reset(struct hb_sha256 *h);
void hb_sha256_update(struct hb_sha256 *h, const void *data, size_t len);
void hb_sha256_final(struct hb_sha256 *h, unsigned char out[32]);
void hb_sha256_free(struct hb_sha256 *h);

void hb_sha256_hex(const void *data, size_t len, char hex[HB_HEX256]);
void hb_hex(const unsigned char *bytes, size_t len, char *hex /* 2*len+1 */);

/* "sha256:" and exactly 64 lower-case hex digits, nothing else (OCI image-spec, descriptor.md).
 * The hex part is copied out. Code: bad_digest; the offending text is shown escaped and cut. */
int hb_digest_parse(const char *text, char hex[HB_HEX256], struct hb_error *err);
bool hb_is_hex64(const char *text);

#endif
