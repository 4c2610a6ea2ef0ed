/* SHA-256 by OpenSSL's EVP, and the strict parser for "sha256:<hex>". */
#include "common/digest.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"

struct hb_sha256 {
	EVP_MD_CTX *ctx;
};

static EVP_MD *sha256;
static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;

/* Fetched once: looking an algorithm up costs more than hashing a short record. */
static void
sha256_fetch(void)
{
	sha256 = EVP_MD_fetch(NULL, "SHA2-256", NULL);
	if (sha256 == NULL)
		abort();
}

struct hb_sha256 *
hb_sha256_new(void)
{
	struct hb_sha256 *h = hb_calloc(1, sizeof(*h));

	pthread_once(&sha256_once, sha256_fetch);
	h->ctx = EVP_MD_CTX_new();
	if (h->ctx == NULL)
		abort();
	hb_sha256_reset(h);
	return h;
}

void
hb_sha256_reset(struct hb_sha256 *h)
{
	if (EVP_DigestInit_ex2(h->ctx, sha256, NULL) != 1)
		abort();
}

void
hb_sha256_update(struct hb_sha256 *h, const void *data, size_t len)
{
	if (EVP_DigestUpdate(h->ctx, data, len) != 1)
		abort();
}

void
hb_sha256_final(struct hb_sha256 *h, unsigned char out[32])
{
	if (EVP_DigestFinal_ex(h->ctx, out, NULL) != 1)
		abort();
}

void
hb_sha256_free(struct hb_sha256 *h)
{
	if (h == NULL)
		return;
	EVP_MD_CTX_free(h->ctx);
	free(h);
}

void
hb_sha256_hex(const void *data, size_t len, char hex[HB_HEX256])
{
	unsigned char out[32];

	pthread_once(&sha256_once, sha256_fetch);
	if (EVP_Digest(data, len, out, NULL, sha256, NULL) != 1)
		abort();
	hb_hex(out, sizeof(out), hex);
}

void
hb_hex(const unsigned char *bytes, size_t len, char *hex)
{
	static const char digits[] = "0123456789abcdef";
	size_t i;

	for (i = 0; i < len; i++) {
		hex[2 * i] = digits[bytes[i] >> 4];
		hex[2 * i + 1] = digits[bytes[i] & 15];
	}
	hex[2 * len] = '\0';
}

bool
hb_is_hex64(const char *text)
{
	return text != NULL && strspn(text, "0123456789abcdef") == 64 && text[64] == '\0';
}

int
hb_digest_parse(const char *text, char hex[HB_HEX256], struct hb_error *err)
{
	static const char prefix[] = "sha256:";

	if (text != NULL && strncmp(text, prefix, sizeof(prefix) - 1) == 0 &&
	    hb_is_hex64(text + sizeof(prefix) - 1)) {
		memcpy(hex, text + sizeof(prefix) - 1, HB_HEX256);
		return 0;
	}
	return hb_fail(err, "bad_digest",
		       "\"%.80s\" is not a digest: it must be sha256: and 64 lower-case hex digits",
		       text != NULL ? text : "");
}
