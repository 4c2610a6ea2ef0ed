/* Grant verifications a second on one core: envelope parsed, signature checked, every field compared. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/grant.h"
#include "common/ids.h"
#include "common/json.h"

static void die(const struct hb_error *err)
{
	fprintf(stderr, "%s (%s)\n", err->message, err->code);
	exit(1);
}

static struct hb_grant sample(void)
{
	struct hb_grant g = {.target = "installer", .feature = "runtime", .action = "install", .user_count = 1,
			     .user_ids = {"0"}, .session = "bench", .generation = 1, .approved = true};

	hb_random_hex(32, g.grant_id);
	hb_random_hex(16, g.audience);
	hb_random_hex(32, g.capability);
	hb_random_hex(16, g.operation_id);
	hb_random_hex(32, g.digest);
	hb_random_hex(32, g.summary_digest);
	g.issued_at = g.not_before = hb_now();
	g.expires_at = g.issued_at + 3600;
	return g;
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? atol(argv[1]) : 20000;
	char dir[] = "grants-bench-XXXXXX", *text;
	struct hb_signing_key *key;
	struct hb_error err = {0};
	struct hb_grant g = sample(), back;
	struct hb_grant_expect expect;
	int64_t began;
	double seconds;

	if (sodium_init() < 0 || !mkdtemp(dir) || chdir(dir) < 0)
		return 1;
	if (hb_keys_create(-100, "key", getuid(), getgid(), "pub", &err) < 0 ||
	    hb_signing_key_load(-100, "key", getuid(), &key, &err) < 0)
		die(&err);
	unlink("key");
	unlink("pub");
	if (chdir("..") == 0)
		rmdir(dir);
	json_t *envelope = hb_grant_seal(&g, key, &err);
	if (!envelope)
		die(&err);
	text = json_dumps(envelope, JSON_COMPACT);
	json_decref(envelope);
	expect = (struct hb_grant_expect){.audience = g.audience, .target = g.target, .feature = g.feature,
					  .action = g.action, .operation_id = g.operation_id, .digest = g.digest,
					  .summary_digest = g.summary_digest, .generation = 1, .now = hb_now()};
	began = hb_monotonic_ms();
	for (long i = 0; i < count; i++) {
		json_t *parsed = hb_json_parse(text, strlen(text), &err);
		if (!parsed || hb_grant_open(parsed, hb_signing_key_public(key), &back, &err) < 0 ||
		    hb_grant_check(&back, &expect, &err) < 0)
			die(&err);
		json_decref(parsed);
	}
	seconds = (double)(hb_monotonic_ms() - began) / 1000;
	printf("{\"verifications\":%ld,\"seconds\":%.3f,\"per_second\":%.0f}\n", count, seconds, (double)count / seconds);
	free(text);
	hb_signing_key_free(key);
	return 0;
}
