/*
 * SSH keys as far as they must be known by: type and fingerprint (ssh_profile.h).
 *
 * A public key is base64 of "string type, ..." with lengths of four bytes, big-endian (RFC
 * 4253, 6.6); its fingerprint is the SHA-256 of those bytes. A private key in OpenSSH's own format
 * carries the public one in clear in front (file PROTOCOL.key of OpenSSH): it is all that is looked
 * at here, and ssh itself refuses a file whose two halves differ.
 */
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "policy/ssh_profile.h"

#define PEM_BEGIN "-----BEGIN OPENSSH PRIVATE KEY-----\n"
#define PEM_END "-----END OPENSSH PRIVATE KEY-----"
#define MAGIC "openssh-key-v1" /* with its NUL */

/* Security keys need a helper program that is not allowed to run; DSA is not accepted any more. */
static const struct {
	const char *type, *algorithms;
} types[] = {
	{"ssh-ed25519", "ssh-ed25519"},
	{"ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256"},
	{"ecdsa-sha2-nistp384", "ecdsa-sha2-nistp384"},
	{"ecdsa-sha2-nistp521", "ecdsa-sha2-nistp521"},
	{"ssh-rsa", "rsa-sha2-512,rsa-sha2-256"},
};

const char *hb_ssh_key_algorithms(const char *type)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(types[i].type, type) == 0)
			return types[i].algorithms;
	return NULL;
}

struct reader {
	const unsigned char *at;
	size_t left;
};

/* A "string" of RFC 4251, 5: false when it isn't all there. */
static bool take_string(struct reader *r, const unsigned char **data, size_t *len)
{
	uint32_t n;

	if (r->left < 4)
		return false;
	n = (uint32_t)r->at[0] << 24 | (uint32_t)r->at[1] << 16 | (uint32_t)r->at[2] << 8 |
	    r->at[3];
	if (n > r->left - 4)
		return false;
	*data = r->at + 4;
	*len = n;
	r->at += 4 + n;
	r->left -= 4 + n;
	return true;
}

static bool skip_strings(struct reader *r, int count)
{
	const unsigned char *data;
	size_t len;

	for (int i = 0; i < count; i++)
		if (!take_string(r, &data, &len))
			return false;
	return true;
}

static void fingerprint_of(const unsigned char *blob, size_t len, char out[52])
{
	unsigned char hash[32];
	char text[64];

	crypto_hash_sha256(hash, blob, len);
	sodium_bin2base64(text, sizeof(text), hash, sizeof(hash),
			  sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
	snprintf(out, 52, "SHA256:%.43s", text);
}

/* The type inside a public key's bytes; false when it is none of ours. */
static bool type_of(const unsigned char *blob, size_t len, char type[32])
{
	struct reader r = {blob, len};
	const unsigned char *data;
	size_t n;

	if (!take_string(&r, &data, &n) || n >= 32 || memchr(data, 0, n))
		return false;
	memcpy(type, data, n);
	type[n] = '\0';
	return r.left > 0;
}

/* "TYPE BASE64", the end of a line of known_hosts. */
static bool read_key(const char *text, size_t len, struct hb_ssh_host_key *out)
{
	unsigned char blob[sizeof(out->base64)];
	const char *space = memchr(text, ' ', len);
	size_t type_len = space ? (size_t)(space - text) : 0, n, key_len;
	char type[32];

	if (!space || type_len == 0 || type_len >= sizeof(out->type))
		return false;
	key_len = len - type_len - 1;
	if (key_len == 0 || key_len >= sizeof(out->base64) ||
	    sodium_base642bin(blob, sizeof(blob), space + 1, key_len, NULL, &n, NULL,
			      sodium_base64_VARIANT_ORIGINAL) != 0)
		return false;
	/* What is written before the key is for people; what counts is what the key says of itself.
	 */
	if (!type_of(blob, n, type) || strlen(type) != type_len ||
	    memcmp(type, text, type_len) != 0)
		return false;
	memset(out, 0, sizeof(*out));
	memcpy(out->type, type, sizeof(type));
	memcpy(out->base64, space + 1, key_len);
	fingerprint_of(blob, n, out->fingerprint);
	return true;
}

static int bad(struct hb_error *err, const char *why)
{
	return hb_fail(err, "known_hosts_invalid",
		       "known_hosts must hold exactly one line \"HOST TYPE KEY\": %s", why);
}

int hb_ssh_known_host(const char *text, size_t len, struct hb_ssh_host_key *out,
		      struct hb_error *err)
{
	struct hb_ssh_host_key key;
	size_t name;

	if (len == 0)
		return bad(err, "it is empty");
	if (memchr(text, '\0', len))
		return bad(err, "it has a NUL byte");
	if (text[len - 1] == '\n')
		len--;
	if (memchr(text, '\n', len) || memchr(text, '\r', len))
		return bad(err, "it has more than one line");
	if (text[0] == '@' || text[0] == '#')
		return bad(err, "markers and comments are not accepted");
	for (name = 0; name < len && text[name] != ' '; name++)
		;
	if (name == 0 || name == len || !read_key(text + name + 1, len - name - 1, &key))
		return bad(err, "the key can't be read");
	if (!hb_ssh_key_algorithms(key.type))
		return hb_fail(
			err, "key_type_refused",
			"host keys of type %s are not accepted; pin one of ed25519, ECDSA or RSA",
			key.type);
	*out = key;
	return 0;
}

bool hb_ssh_scanned_key(const char *line, struct hb_ssh_host_key *out)
{
	const char *space = strchr(line, ' ');
	size_t len = strcspn(line, "\r\n");

	if (line[0] == '#' || line[0] == '@' || !space || space > line + len)
		return false;
	return read_key(space + 1, len - (size_t)(space + 1 - line), out) &&
	       hb_ssh_key_algorithms(out->type);
}

static int bad_identity(struct hb_error *err)
{
	return hb_fail(err, "identity_format",
		       "the identity is not a private key in OpenSSH's own format; "
		       "`ssh-keygen -p -N '' -f FILE` rewrites older ones");
}

/* The clear front of the file: cipher, kdf, kdf options, number of keys, public key. Its bytes are
 * decoded into protected memory, since the private half follows. */
static int read_front(const unsigned char *bytes, size_t len, char type[32], char fingerprint[52],
		      struct hb_error *err)
{
	struct reader r = {bytes, len};
	const unsigned char *cipher, *blob;
	size_t cipher_len, blob_len;
	char found[32];

	if (len < sizeof(MAGIC) || memcmp(bytes, MAGIC, sizeof(MAGIC)) != 0)
		return bad_identity(err);
	r.at += sizeof(MAGIC);
	r.left -= sizeof(MAGIC);
	if (!take_string(&r, &cipher, &cipher_len) || !skip_strings(&r, 2) || r.left < 4 ||
	    memcmp(r.at, "\0\0\0\1", 4) != 0)
		return bad_identity(err);
	r.at += 4;
	r.left -= 4;
	if (!take_string(&r, &blob, &blob_len) || !type_of(blob, blob_len, found))
		return bad_identity(err);
	if (cipher_len != 4 || memcmp(cipher, "none", 4) != 0)
		return hb_fail(
			err, "identity_encrypted",
			"the identity has a passphrase, and nobody is there to type it: make a "
			"key for this host alone (ssh-keygen -N '')");
	if (!hb_ssh_key_algorithms(found))
		return hb_fail(err, "key_type_refused",
			       "identities of type %s are not accepted; use ed25519, ECDSA or RSA",
			       found);
	memcpy(type, found, 32);
	fingerprint_of(blob, blob_len, fingerprint);
	return 0;
}

/* The bytes between the armour, in protected memory. */
static unsigned char *decode(const char *text, size_t len, size_t *n, struct hb_error *err)
{
	size_t head = strlen(PEM_BEGIN);
	const char *end;
	unsigned char *bytes;

	if (sodium_init() < 0) {
		hb_fail(err, "internal", "the crypto library can't be used");
		return NULL;
	}
	end = len > head && memcmp(text, PEM_BEGIN, head) == 0
		      ? memmem(text + head, len - head, PEM_END, strlen(PEM_END))
		      : NULL;
	if (!end) {
		bad_identity(err);
		return NULL;
	}
	bytes = sodium_malloc(len);
	if (!bytes) {
		hb_fail(err, "no_memory", "no protected memory for the identity");
		return NULL;
	}
	if (sodium_base642bin(bytes, len, text + head, (size_t)(end - text) - head, "\n", n, NULL,
			      sodium_base64_VARIANT_ORIGINAL) == 0)
		return bytes;
	sodium_free(bytes);
	bad_identity(err);
	return NULL;
}

int hb_ssh_identity(const char *text, size_t len, char type[32], char fingerprint[52],
		    struct hb_error *err)
{
	size_t n;
	unsigned char *bytes = decode(text, len, &n, err);
	int rc = bytes ? read_front(bytes, n, type, fingerprint, err) : -1;

	sodium_free(bytes);
	return rc;
}

/* The private half: two equal numbers, the type, the public key, the secret one (which repeats the
 * public one). */
static bool read_pair(const unsigned char *bytes, size_t len, unsigned char pk[32],
		      unsigned char sk[64])
{
	struct reader r = {bytes + sizeof(MAGIC), len - sizeof(MAGIC)}, inner;
	const unsigned char *part, *public, *secret;
	size_t n, public_len, secret_len;

	if (!skip_strings(&r, 3) || r.left < 4)
		return false;
	r.at += 4;
	r.left -= 4;
	if (!skip_strings(&r, 1) || !take_string(&r, &part, &n) || n < 8 ||
	    memcmp(part, part + 4, 4) != 0)
		return false;
	inner = (struct reader){part + 8, n - 8};
	if (!take_string(&inner, &part, &n) || n != 11 || memcmp(part, "ssh-ed25519", 11) != 0 ||
	    !take_string(&inner, &public, &public_len) || public_len != 32 ||
	    !take_string(&inner, &secret, &secret_len) || secret_len != 64 ||
	    memcmp(secret + 32, public, 32) != 0)
		return false;
	memcpy(pk, public, 32);
	memcpy(sk, secret, 64);
	return true;
}

int hb_ssh_ed25519(const char *text, size_t len, unsigned char pk[32], unsigned char sk[64],
		   struct hb_error *err)
{
	char type[32], fingerprint[52];
	size_t n;
	unsigned char *bytes = decode(text, len, &n, err);
	int rc = bytes ? read_front(bytes, n, type, fingerprint, err) : -1;

	if (rc == 0 && (strcmp(type, "ssh-ed25519") != 0 || !read_pair(bytes, n, pk, sk)))
		rc = hb_fail(err, "key_type_refused", "the key must be an ed25519 key, and whole");
	sodium_free(bytes);
	return rc;
}
