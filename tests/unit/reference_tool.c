/*
 * The C side of tests/integration/test_reference.py: does with the library what the second
 * implementation does in Python. Works in the current directory.
 *
 *   reference_tool canonical       a base64 line in, "ok <digest> <base64 of the canonical form>" or "refused" out
 *   reference_tool keys            makes signing.key and public.key
 *   reference_tool seal            a grant (JSON) on standard input, its envelope out
 *   reference_tool open            an envelope on standard input: "ok" or the error's code
 *   reference_tool audit-write N   appends N records to audit.log
 *   reference_tool audit-verify    "ok <seq> <hash>" or the error's code
 */
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "common/audit.h"
#include "common/grant.h"
#include "common/json.h"
#include "common/keys.h"

#define BASE64 sodium_base64_VARIANT_ORIGINAL

static int
fail(const struct hb_error *err)
{
	printf("%s\n", err->code);
	fprintf(stderr, "%s\n", err->message);
	return 1;
}

static void
canonical_line(const char *base64, size_t len)
{
	struct hb_buf out = HB_BUF_INIT;
	unsigned char *data = malloc(len + 1);
	char *encoded, hex[65];
	size_t data_len, room;
	json_t *value;

	if (data == NULL ||
	    sodium_base642bin(data, len + 1, base64, len, "\n", &data_len, NULL, BASE64) != 0)
		abort();
	value = hb_json_parse((const char *)data, data_len, NULL);
	if (value != NULL && hb_json_canonical(value, &out, NULL) == 0 &&
	    hb_json_digest(value, hex, NULL) == 0) {
		room = sodium_base64_encoded_len(out.len, BASE64);
		encoded = malloc(room);
		if (encoded == NULL)
			abort();
		printf("ok %s %s\n", hex,
		       sodium_bin2base64(encoded, room, (unsigned char *)out.data, out.len,
					 BASE64));
		free(encoded);
	} else {
		puts("refused");
	}
	json_decref(value);
	hb_buf_free(&out);
	free(data);
}

static int
canonical(void)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t n;

	while ((n = getline(&line, &room, stdin)) > 0)
		canonical_line(line, (size_t)n);
	free(line);
	return 0;
}

static json_t *
read_object(struct hb_error *err)
{
	struct hb_buf in = HB_BUF_INIT;
	char chunk[4096];
	json_t *value;
	size_t n;

	while ((n = fread(chunk, 1, sizeof(chunk), stdin)) > 0)
		hb_buf_add(&in, chunk, n);
	value = hb_json_parse(in.data != NULL ? in.data : "", in.len, err);
	hb_buf_free(&in);
	return value;
}

static int
seal(struct hb_error *err)
{
	struct hb_signing_key *key = NULL;
	json_t *object = read_object(err), *envelope = NULL;
	struct hb_grant g;

	if (object != NULL && hb_grant_from_json(object, &g, err) == 0 &&
	    hb_signing_key_load(AT_FDCWD, "signing.key", geteuid(), &key, err) == 0)
		envelope = hb_grant_seal(&g, key, err);
	if (envelope != NULL)
		json_dumpf(envelope, stdout, 0);
	hb_signing_key_free(key);
	json_decref(object);
	json_decref(envelope);
	return envelope != NULL ? 0 : fail(err);
}

static int
open_envelope(struct hb_error *err)
{
	struct hb_public_key key;
	struct hb_grant g;
	json_t *envelope = read_object(err);
	int rc = -1;

	if (envelope != NULL && hb_public_key_load(AT_FDCWD, "public.key", &key, err) == 0)
		rc = hb_grant_open(envelope, &key, &g, err);
	json_decref(envelope);
	if (rc != 0)
		return fail(err);
	puts("ok");
	return 0;
}

static int
audit_write(int count, struct hb_error *err)
{
	struct hb_audit *a = NULL;
	json_t *detail;
	int i, rc = 0;

	if (hb_audit_open("audit.log", "hermes-reference", &a, err) != 0)
		return fail(err);
	for (i = 0; i < count && rc == 0; i++) {
		detail = json_pack("{s:i, s:s, s:[n,b]}", "\xf0\x9f\x98\x80", i, "\xef\xac\xb3",
				   "\x01\n\"", "list", 1);
		rc = hb_audit_append(a, "reference", "ok", detail, err);
		json_decref(detail);
	}
	hb_audit_close(a);
	return rc == 0 ? 0 : fail(err);
}

static int
audit_verify(struct hb_error *err)
{
	struct hb_audit_head head;

	if (hb_audit_verify(AT_FDCWD, "audit.log", &head, err) != 0)
		return fail(err);
	printf("ok %lld %s\n", (long long)head.seq, head.hash);
	return 0;
}

int
main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	struct hb_error err = {"", ""};

	if (strcmp(verb, "canonical") == 0)
		return canonical();
	if (strcmp(verb, "keys") == 0)
		return hb_keys_create(AT_FDCWD, "signing.key", geteuid(), getegid(), "public.key",
				      &err) == 0
			       ? 0
			       : fail(&err);
	if (strcmp(verb, "seal") == 0)
		return seal(&err);
	if (strcmp(verb, "open") == 0)
		return open_envelope(&err);
	if (strcmp(verb, "audit-write") == 0 && argc == 3)
		return audit_write(atoi(argv[2]), &err);
	if (strcmp(verb, "audit-verify") == 0)
		return audit_verify(&err);
	return 2;
}
