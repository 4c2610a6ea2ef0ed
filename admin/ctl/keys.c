/*
 * hermesctl keys ...: the approver's signing key. A key is made here, by root, and written once, for the approver to
 * read; it is never read here.
 *
 * A rotation puts the new public key in place first and the new signing key second. Told to honour, what the old key
 * has signed counts until the last of it would have expired; told to revoke, it counts for nothing from the same
 * instant. The old public key is kept for reading old receipts. The approver notices and goes on with the new one.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin/ctl/ctl.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"
#include "common/keyring.h"
#include "common/paths.h"

#define NEXT_SIGNING HB_PATH_SIGNING_KEY ".next"
#define NEXT_PUBLIC HB_PATH_PUBLIC_KEY ".next"
#define HONOUR_SLACK 30  /* seconds beyond the longest life of a grant */
#define SWITCH_TRIES 100 /* of a tenth of a second: the approver looks once a second */

static int need_root(struct hb_error *err)
{
	return geteuid() == 0 ? 0 : hb_fail(err, "not_root", "keys are made by root: run it with sudo");
}

int ctl_cmd_keys_init(struct ctl *c, int argc, char **argv)
{
	struct hb_error err = {0};
	struct hb_public_key key;

	if (ctl_parse(c, "keys init", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || need_root(&err) < 0 ||
	    hb_keys_create(AT_FDCWD, HB_PATH_SIGNING_KEY, hb_peer_uid(HB_PEER_APPROVER), hb_peer_gid(HB_PEER_APPROVER),
			   HB_PATH_PUBLIC_KEY, &err) < 0 ||
	    hb_public_key_load(AT_FDCWD, HB_PATH_PUBLIC_KEY, &key, &err) < 0)
		return ctl_error(c, &err);
	if (!c->json)
		printf("Key %s was made.\n", key.id);
	return ctl_result(c, json_pack("{s:s,s:s}", "status", "ok", "key_id", key.id), CTL_OK);
}

/* The key the approver signs with at this moment, or "". */
static void signing_now(struct ctl *c, char id[17])
{
	struct hb_error ignored = {0};
	json_t *health = ctl_call(c, HB_PEER_APPROVER, "GET", "/health", NULL, &ignored);

	snprintf(id, 17, "%s", hb_json_text(json_object_get(health, "checks"), "key_id", ""));
	json_decref(health);
}

int ctl_cmd_keys_show(struct ctl *c, int argc, char **argv)
{
	struct hb_keyring ring, all;
	struct hb_error err = {0};
	json_t *retired = json_array(), *out;
	char now[17], until[32];

	if (ctl_parse(c, "keys show", NULL, 0, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (ctl_open(c, &err) < 0 || hb_keyring_load(AT_FDCWD, hb_now(), &ring, &err) < 0)
		return ctl_error(c, &err);
	all = ring;
	hb_keyring_add_retired(AT_FDCWD, &all);
	for (size_t i = ring.count; i < all.count; i++)
		json_array_append_new(retired, json_string(all.keys[i].id));
	signing_now(c, now);
	out = json_pack("{s:s,s:s,s:s,s:s,s:I,s:o}", "status", "ok", "key_id", ring.keys[0].id, "approver_signs_with", now,
			"previous", ring.count > 1 ? ring.keys[1].id : "", "previous_until", (json_int_t)ring.previous_until,
			"retired", retired);
	if (!c->json) {
		ctl_time(ring.previous_until, until, sizeof until);
		printf("key        %s\nsigns now  %s\n", ring.keys[0].id, *now ? now : "(the approver is not running)");
		if (ring.count > 1)
			printf("previous   %s, counts until %s\n", ring.keys[1].id, until);
		for (size_t i = ring.count; i < all.count; i++)
			printf("retired    %s\n", all.keys[i].id);
	}
	return ctl_result(c, out, *now && strcmp(now, ring.keys[0].id) != 0 ? CTL_FAILED : CTL_OK);
}

/* The old public key as a file of its own, under its id. */
static int retire(const struct hb_public_key *old, struct hb_error *err)
{
	struct hb_buf text = HB_BUF_INIT;
	char path[96];
	int rc;

	snprintf(path, sizeof path, "%s/%s.pub", HB_PATH_RETIRED_KEYS, old->id);
	rc = hb_fs_mkdirs(AT_FDCWD, HB_PATH_RETIRED_KEYS, 0755, 0, 0, err);
	if (rc == 0)
		rc = hb_fs_read(AT_FDCWD, HB_PATH_PUBLIC_KEY, 256, &text, err);
	if (rc == 0)
		rc = hb_fs_write_atomic(AT_FDCWD, path, text.data, text.len, 0644, 0, 0, err);
	hb_buf_free(&text);
	return rc;
}

static int put_in_place(const char *from, const char *to, const char *dir, struct hb_error *err)
{
	if (rename(from, to) < 0)
		return hb_fail_errno(err, "key_unwritable", "can't put %s in place", to);
	return hb_fs_sync_dir(AT_FDCWD, dir, err);
}

static int rotate(struct ctl *c, bool honour, struct hb_public_key *old, struct hb_public_key *fresh, struct hb_error *err)
{
	long long life = hb_config_int(c->config, "broker.grant_life");

	if (hb_public_key_load(AT_FDCWD, HB_PATH_PUBLIC_KEY, old, err) < 0)
		return -1;
	/* Left by a rotation that was interrupted before anything counted. */
	unlink(NEXT_SIGNING);
	unlink(NEXT_PUBLIC);
	if (hb_keys_create(AT_FDCWD, NEXT_SIGNING, hb_peer_uid(HB_PEER_APPROVER), hb_peer_gid(HB_PEER_APPROVER), NEXT_PUBLIC,
			   err) < 0 ||
	    hb_public_key_load(AT_FDCWD, NEXT_PUBLIC, fresh, err) < 0 || retire(old, err) < 0)
		return -1;
	if (honour) {
		if (hb_keyring_write_previous(AT_FDCWD, old, hb_now() + life + HONOUR_SLACK, err) < 0)
			return -1;
	} else if (unlink(HB_PATH_PREVIOUS_KEY) == 0 && hb_fs_sync_dir(AT_FDCWD, "public", err) < 0) {
		return -1;
	}
	if (put_in_place(NEXT_PUBLIC, HB_PATH_PUBLIC_KEY, "public", err) < 0)
		return -1;
	return put_in_place(NEXT_SIGNING, HB_PATH_SIGNING_KEY, "approver", err);
}

int ctl_cmd_keys_rotate(struct ctl *c, int argc, char **argv)
{
	const char *honour = NULL, *revoke = NULL;
	const struct ctl_option options[] = {
		{"honour", NULL, "grants signed by the old key count until they expire", &honour, NULL},
		{"revoke", NULL, "they count for nothing from now on", &revoke, NULL},
	};
	struct hb_public_key old, fresh;
	struct hb_error err = {0};
	char now[17] = "";

	if (ctl_parse(c, "keys rotate", options, 2, argc, argv, 0, 0) < 0)
		return CTL_USAGE;
	if (!honour == !revoke) {
		fprintf(stderr, "hermesctl keys rotate: say --honour or --revoke: what becomes of grants that the old key "
			"has signed?\n");
		return CTL_USAGE;
	}
	umask(022);
	if (ctl_open(c, &err) < 0 || need_root(&err) < 0 || rotate(c, honour != NULL, &old, &fresh, &err) < 0)
		return ctl_error(c, &err);
	signing_now(c, now);
	for (int i = 0; *now && strcmp(now, fresh.id) != 0 && i < SWITCH_TRIES; i++) {
		usleep(100000);
		signing_now(c, now);
	}
	if (*now && strcmp(now, fresh.id) != 0) {
		hb_fail(&err, "key_not_taken", "the keys are in place, but the approver goes on with key %s; see its health", now);
		return ctl_error(c, &err);
	}
	if (!c->json)
		printf("Key %s takes the place of %s; its grants are %s.%s\n", fresh.id, old.id,
		       honour ? "honoured until they expire" : "revoked", *now ? "" : " The approver is not running.");
	return ctl_result(c, json_pack("{s:s,s:s,s:s,s:b}", "status", "ok", "key_id", fresh.id, "previous", old.id, "honoured",
				       honour != NULL), CTL_OK);
}
