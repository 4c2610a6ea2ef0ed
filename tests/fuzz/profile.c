/* What stands in an SSH profile, and what a host or ssh itself says: profile.json, known_hosts, lines of ssh-keyscan, a
 * private key, ssh's log. What is accepted ends up on a command line, so it must hold nothing that means more there. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "broker/ssh/log.h"
#include "policy/ssh_profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A word of ssh's command line: no option, no token or separator of any of its readers. */
static void plain_word(const char *text)
{
	if (!*text || *text == '-' || strpbrk(text, " \t\r\n\"'\\;&|<>$`%*?,@=/#(){}!"))
		abort();
	for (; *text; text++)
		if ((unsigned char)*text < 33 || (unsigned char)*text > 126)
			abort();
}

static void good_key(const struct hb_ssh_host_key *key)
{
	if (!hb_ssh_key_algorithms(key->type) || strlen(key->fingerprint) != 50 ||
	    strncmp(key->fingerprint, "SHA256:", 7) != 0 || !*key->base64 ||
	    strpbrk(key->base64, " \t\r\n#"))
		abort();
}

static void profile(const char *text, size_t len)
{
	struct hb_ssh_profile p;

	if (hb_ssh_profile_parse(text, len, &p, NULL) < 0)
		return;
	plain_word(p.host);
	plain_word(p.user);
	if (p.port < 1 || p.port > 65535 || strncmp(p.fingerprint, "SHA256:", 7) != 0)
		abort();
	if (strcmp(p.authority, "user") != 0 && strcmp(p.authority, "root") != 0 &&
	    strcmp(p.authority, "sudo-nopasswd") != 0)
		abort();
}

static void keys(const char *text, size_t len)
{
	struct hb_ssh_host_key key, again;
	unsigned char pk[32], sk[64];
	char type[32], print[52];
	const char *space;

	if (hb_ssh_known_host(text, len, &key, NULL) == 0) {
		good_key(&key);
		/* A pin is what a scan of that host would have given. */
		space = memchr(text, ' ', len);
		if (!space || !hb_ssh_scanned_key(text, &again) ||
		    strcmp(key.fingerprint, again.fingerprint) != 0)
			abort();
	} else if (hb_ssh_scanned_key(text, &again)) {
		good_key(&again);
	}
	if (hb_ssh_identity(text, len, type, print, NULL) == 0 && !hb_ssh_key_algorithms(type))
		abort();
	(void)hb_ssh_ed25519(text, len, pk, sk, NULL);
}

static void log_lines(const char *text, size_t len)
{
	struct hb_ssh_log all = {.len = 0}, bytes = {.len = 0};
	struct hb_error err;
	int code;

	hb_ssh_log_feed(&all, text, len);
	for (size_t i = 0; i < len; i++)
		hb_ssh_log_feed(&bytes, text + i, 1);
	if (strcmp(all.verdict, bytes.verdict) != 0 || all.sent != bytes.sent ||
	    strcmp(hb_ssh_log_far_side(&all), hb_ssh_log_far_side(&bytes)) != 0)
		abort();
	for (const char *p = all.detail; *p; p++)
		if ((unsigned char)*p < 32 || (unsigned char)*p > 126)
			abort();
	(void)hb_ssh_log_end(&all, 255, "ssh-ed25519", &code, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = 0;
	profile(text, size);
	keys(text, size);
	log_lines(text, size);
	free(text);
	return 0;
}
