/* One certificate, encoded and signed (certificate.h). The signature is libsodium's. */
#include "broker/ssh/certificate.h"

#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/ssh/run.h"
#include "common/ids.h"

#define CERT_TYPE "ssh-ed25519-cert-v01@openssh.com"
#define SKEW_SECONDS 300 /* a far clock that is behind */
#define MARGIN_SECONDS \
	120 /* connecting, and a far clock that is ahead; the command itself isn't ended by it */
#define USER_CERTIFICATE 1

static void add_number(struct hb_buf *b, uint64_t value, int bytes)
{
	while (bytes-- > 0)
		hb_buf_addc(b, (char)(value >> (8 * bytes) & 0xff));
}

static void add_string(struct hb_buf *b, const void *data, size_t len)
{
	add_number(b, len, 4);
	hb_buf_add(b, data, len);
}

static void add_text(struct hb_buf *b, const char *text)
{
	add_string(b, text, strlen(text));
}

static void add_public(struct hb_buf *b, const unsigned char pk[32])
{
	struct hb_buf key = HB_BUF_INIT;

	add_text(&key, "ssh-ed25519");
	add_string(&key, pk, 32);
	add_string(b, key.data, key.len);
	hb_buf_free(&key);
}

/* "force-command", whose value is a string inside a string. */
static void add_options(struct hb_buf *b, const char *command)
{
	struct hb_buf value = HB_BUF_INIT, options = HB_BUF_INIT;

	add_text(&value, command);
	add_text(&options, "force-command");
	add_string(&options, value.data, value.len);
	add_string(b, options.data, options.len);
	hb_buf_free(&value);
	hb_buf_free(&options);
}

static void add_body(struct hb_buf *b, const struct hb_loaded *l, const char *command, int seconds,
		     const char *id, const unsigned char subject[32],
		     const unsigned char authority[32])
{
	struct hb_buf principals = HB_BUF_INIT;
	unsigned char nonce[32], serial[8];
	int64_t now = hb_now();

	randombytes_buf(nonce, sizeof(nonce));
	randombytes_buf(serial, sizeof(serial));
	add_text(b, CERT_TYPE);
	add_string(b, nonce, sizeof(nonce));
	add_string(b, subject, 32);
	hb_buf_add(b, serial, sizeof(serial));
	add_number(b, USER_CERTIFICATE, 4);
	add_text(b, id);
	add_text(&principals, l->profile.user);
	add_string(b, principals.data, principals.len);
	add_number(b, (uint64_t)(now - SKEW_SECONDS), 8);
	add_number(b, (uint64_t)(now + seconds + MARGIN_SECONDS), 8);
	add_options(b, command);
	add_text(b, ""); /* no extensions: no terminal, no forwarding of any kind */
	add_text(b, "");
	add_public(b, authority);
	hb_buf_free(&principals);
}

static int armour(const struct hb_buf *cert, const char *id, struct hb_error *err)
{
	size_t size = sodium_base64_ENCODED_LEN(cert->len, sodium_base64_VARIANT_ORIGINAL);
	struct hb_buf line = HB_BUF_INIT;
	char *text = hb_calloc(1, size);
	int fd;

	sodium_bin2base64(text, size, (const unsigned char *)cert->data, cert->len,
			  sodium_base64_VARIANT_ORIGINAL);
	hb_buf_printf(&line, CERT_TYPE " %s %s\n", text, id);
	fd = hb_memory_file("certificate", line.data, line.len, 0600, err);
	free(text);
	hb_buf_free(&line);
	return fd;
}

int hb_certificate_file(const struct hb_loaded *l, const char *command, int seconds,
			const char *operation_id, struct hb_error *err)
{
	unsigned char subject[32], authority[32], ignored[64], signature[64],
		*sk = sodium_malloc(64);
	struct hb_buf cert = HB_BUF_INIT, signed_by = HB_BUF_INIT;
	char id[80] = "hermes-broker ";
	int fd = -1;

	memccpy(id + strlen(id), operation_id, 0, 64);
	if (!sk ||
	    hb_ssh_ed25519(l->credential.text, l->credential.len, subject, ignored, err) < 0 ||
	    hb_ssh_ed25519(l->ca.text, l->ca.len, authority, sk, err) < 0) {
		hb_fail(err, "ca_unusable",
			"profile %s: certificates are made with ed25519 keys only, both `identity` "
			"and `ca`",
			l->name);
		goto out;
	}
	add_body(&cert, l, command, seconds, id, subject, authority);
	crypto_sign_detached(signature, NULL, (const unsigned char *)cert.data, cert.len, sk);
	add_text(&signed_by, "ssh-ed25519");
	add_string(&signed_by, signature, sizeof(signature));
	add_string(&cert, signed_by.data, signed_by.len);
	fd = armour(&cert, id, err);
out:
	sodium_memzero(ignored, sizeof(ignored));
	sodium_free(sk);
	hb_buf_free(&cert);
	hb_buf_free(&signed_by);
	return fd;
}
