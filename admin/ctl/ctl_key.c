/*
 * hermesctl runtime key ...: named API keys of the runtime, for the prober. Typed in a terminal, or
 * from a pipe when that is said with --stdin; never an argument, never in the environment, never
 * printed, not even in part.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "admin/ctl/ctl_onboarding.h"
#include "admin/ctl/ssh_profile.h"
#include "common/ids.h"
#include "common/json.h"
#include "onboarding/keys.h"
#include "onboarding/store.h"

int ctl_onboarding_open(struct ctl *c, int *lock, struct hb_error *err)
{
	if (ctl_open(c, err) < 0)
		return -1;
	if (geteuid() != 0)
		return hb_fail(err, "not_root", "this is for root: run it with sudo");
	if (hb_fs_mkdirs(AT_FDCWD, HB_ONBOARDING_DIR, 0700, 0, 0, err) < 0 ||
	    hb_fs_mkdirs(AT_FDCWD, "probe", 0700, hb_peer_uid(HB_PEER_PROBE),
			 hb_peer_gid(HB_PEER_PROBE), err) < 0 ||
	    hb_fs_mkdirs(AT_FDCWD, HB_KEYS_DIR, 0700, hb_peer_uid(HB_PEER_PROBE),
			 hb_peer_gid(HB_PEER_PROBE), err) < 0)
		return -1;
	return lock ? hb_onboarding_lock(lock, err) : 0;
}

int ctl_onboarding_owner(struct ctl *c, const char *owner, struct hb_error *err)
{
	const char *admin = hb_config_text(c->config, "onboarding.infrastructure_admin");
	const char *person = hb_config_text(c->config, "onboarding.connections_owner");

	if (hb_onboarding_name("onboarding.infrastructure_admin", admin, err) < 0 ||
	    hb_onboarding_name("onboarding.connections_owner", person, err) < 0 ||
	    hb_onboarding_name("owner", owner, err) < 0)
		return -1;
	if (strcmp(owner, admin) != 0 && strcmp(owner, person) != 0)
		return hb_fail(err, "unknown_owner",
			       "owner must be %s or %s (onboarding.infrastructure_admin and "
			       "onboarding.connections_owner in "
			       "conf/hermes.conf)",
			       admin, person);
	return 0;
}

/* Straight into locked memory; one newline at its end is dropped. */
static int from_stdin(struct hb_secret *out, struct hb_error *err)
{
	size_t len = 0;
	ssize_t n = 0;
	char *text;

	if (sodium_init() < 0 || !(text = sodium_malloc(HB_KEY_TEXT_MAX + 2)))
		return hb_fail(err, "no_memory", "no protected memory for the key");
	while (len < HB_KEY_TEXT_MAX + 1 &&
	       ((n = read(STDIN_FILENO, text + len, HB_KEY_TEXT_MAX + 1 - len)) > 0 ||
		(n < 0 && errno == EINTR)))
		len += n > 0 ? (size_t)n : 0;
	if (n < 0 || len > HB_KEY_TEXT_MAX) {
		sodium_free(text);
		return hb_fail(err, "bad_key",
			       "standard input can't be read, or holds more than %d bytes",
			       HB_KEY_TEXT_MAX);
	}
	if (len > 0 && text[len - 1] == '\n')
		len--;
	text[len] = '\0';
	*out = (struct hb_secret){text, len};
	return 0;
}

int ctl_cmd_runtime_key_set(struct ctl *c, int argc, char **argv)
{
	struct hb_named_key_set s = {0};
	const char *piped = NULL;
	const struct ctl_option options[] = {
		{"purpose", "TEXT", "what it is for", &s.purpose, NULL},
		{"owner", "NAME", "whose it is (default: onboarding.infrastructure_admin)",
		 &s.owner, NULL},
		{"expires", "DATE", "last day it is meant for, YYYY-MM-DD", &s.expires, NULL},
		{"stdin", NULL, "read the key from a pipe instead of the terminal", &piped, NULL},
	};
	struct hb_secret key = {0};
	struct hb_error err = {0};
	bool replaced = false;
	int lock = -1, rc = -1;

	if (ctl_parse(c, "runtime key set", options, 4, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	s.name = argv[0];
	/* Judged before the key is asked for. */
	if (hb_onboarding_name("the name of a key", s.name, &err) < 0 ||
	    ctl_onboarding_open(c, NULL, &err) < 0 ||
	    (s.owner && ctl_onboarding_owner(c, s.owner, &err) < 0))
		return ctl_error(c, &err);
	if ((piped ? from_stdin(&key, &err)
		   : ctl_ssh_ask(c, "API key (not shown):", true, &key, &err)) < 0) {
		if (strcmp(err.code, "no_terminal") == 0)
			hb_fail_prefix(&err, "to read the key from a pipe say --stdin");
		return ctl_error(c, &err);
	}
	if (hb_onboarding_lock(&lock, &err) == 0)
		rc = hb_named_key_set(
			&s, &key, hb_config_text(c->config, "onboarding.infrastructure_admin"),
			hb_peer_uid(HB_PEER_PROBE), hb_peer_gid(HB_PEER_PROBE), &replaced, &err);
	hb_secret_free(&key);
	if (rc == 0)
		rc = ctl_reviews_publish(c, &err);
	hb_close(&lock);
	if (rc < 0)
		return ctl_error(c, &err);
	if (!c->json)
		printf("Key %s is %s.\n", s.name, replaced ? "replaced" : "stored");
	return ctl_result(
		c,
		json_pack("{s:s, s:s, s:b}", "status", "ok", "name", s.name, "replaced", replaced),
		CTL_OK);
}

static json_t *key_json(const struct hb_named_key *k)
{
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:s, s:b, s:s}", "name", k->name, "purpose",
			 k->purpose, "owner", k->owner, "created", (json_int_t)k->created,
			 "last_used", (json_int_t)k->last_used, "expires", k->expires, "usable",
			 k->present, "trouble", k->trouble);
}

static void print_key(const struct hb_named_key *k)
{
	char created[32], used[32];

	ctl_time(k->created, created, sizeof created);
	ctl_time(k->last_used, used, sizeof used);
	printf("%-24s owner %-12s created %-20s last used %-20s expires %-11s ", k->name,
	       k->owner[0] ? k->owner : "-", created, used, k->expires[0] ? k->expires : "-");
	ctl_print_text(k->purpose);
	putchar('\n');
	if (k->trouble[0])
		printf("  %s\n", k->trouble);
}

int ctl_cmd_runtime_key_list(struct ctl *c, int argc, char **argv)
{
	struct hb_named_key *keys;
	struct hb_error err = {0};
	json_t *list = NULL;
	int count;

	if (ctl_parse(c, "runtime key list", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_onboarding_open(c, NULL, &err) < 0)
		return ctl_error(c, &err);
	keys = hb_calloc(2 * HB_NAMED_KEYS_MAX, sizeof *keys);
	count = hb_named_keys_list(hb_peer_uid(HB_PEER_PROBE), keys, 2 * HB_NAMED_KEYS_MAX, &err);
	if (count >= 0)
		list = json_array();
	for (int i = 0; i < count; i++) {
		json_array_append_new(list, key_json(&keys[i]));
		if (!c->json)
			print_key(&keys[i]);
	}
	free(keys);
	if (count < 0)
		return ctl_error(c, &err);
	if (!c->json && count == 0)
		puts("No key is stored. Store one with: hermesctl runtime key set NAME");
	return ctl_result(c, json_pack("{s:o}", "keys", list), CTL_OK);
}

int ctl_cmd_runtime_key_remove(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	int lock = -1, rc;

	if (ctl_parse(c, "runtime key remove", NULL, 0, argc, argv, 1, 1) < 0)
		return CTL_USAGE;
	rc = ctl_onboarding_open(c, &lock, &err);
	if (rc == 0)
		rc = hb_named_key_remove(argv[0], &err);
	if (rc == 0)
		rc = ctl_reviews_publish(c, &err);
	hb_close(&lock);
	if (rc < 0)
		return ctl_error(c, &err);
	if (!c->json)
		printf("Key %s is removed here. It still counts in the runtime until it is revoked "
		       "there.\n",
		       argv[0]);
	return ctl_result(c, json_pack("{s:s, s:s}", "status", "ok", "name", argv[0]), CTL_OK);
}

/* Keys that can't be used, and those that outlived what they were for. */
void ctl_doctor_keys(struct ctl_findings *f)
{
	struct hb_named_key *keys = hb_calloc(2 * HB_NAMED_KEYS_MAX, sizeof *keys);
	struct hb_error err = {0};
	char what[128], found[256];
	int count = hb_named_keys_list(hb_peer_uid(HB_PEER_PROBE), keys, 2 * HB_NAMED_KEYS_MAX,
				       &err),
	    good = 0;

	if (count < 0)
		ctl_finding(f, "runtime keys", err.message, "mend the file that it names");
	for (int i = 0; i < count; i++) {
		const struct hb_named_key *k = &keys[i];

		snprintf(what, sizeof what, "runtime key %s", k->name);
		snprintf(found, sizeof found, "it was for until %s%s%.150s", k->expires,
			 k->purpose[0] ? ": " : "", k->purpose);
		if (k->trouble[0])
			ctl_finding(f, what, k->trouble,
				    "hermesctl runtime key set, or runtime key remove");
		else if (hb_onboarding_past(k->expires, hb_now()))
			ctl_finding(f, what, found,
				    "revoke it in the runtime, then: hermesctl runtime key remove");
		else
			good++;
	}
	snprintf(found, sizeof found, "%d in use", good);
	if (count >= 0)
		ctl_finding(f, "runtime keys", found, NULL);
	free(keys);
}
