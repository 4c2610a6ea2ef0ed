/* The gate: everything must fit, each thing is looked at, and a grant opens it once. */
#include "tests/unit/test_util.h"

#include <sodium.h>
#include <sys/stat.h>

#include "common/ids.h"
#include "common/json.h"
#include "common/keyring.h"
#include "common/paths.h"
#include "policy/control.h"
#include "policy/gate.h"
#include "policy/operation.h"
#include "policy/summary.h"

#define ADMIN 10117
#define D "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HOST "0123456789abcdef0123456789abcdef"
#define OPERATION "fedcba9876543210fedcba9876543210"

static struct hb_gate gate;
static struct hb_signing_key *key;
static json_t *request;
static struct hb_grant grant;

static void put_policy(int generation, const char *features, const char *users, int quorum,
		       bool paused)
{
	char *text = hb_asprintf("{\"version\":1,\"generation\":%d,\"features\":[%s],\"users\":[%s]"
				 ",\"quorum\":{\"runtime\":%d,"
				 "\"local\":1,\"docker\":1,\"ssh\":1},\"paused\":%s}",
				 generation, features, users, quorum, paused ? "true" : "false");

	test_puts(HB_PATH_POLICY, text);
	ck_assert_int_eq(chmod(HB_PATH_POLICY, 0644), 0);
	ck_assert_int_eq(chown(HB_PATH_POLICY, ADMIN, ADMIN), 0);
	free(text);
}

static void put_bounds(const char *executors, const char *repositories)
{
	char *text = hb_asprintf("[users]\nallowed = 1, 2, 3\n[executors]\ndeployed = "
				 "%s\n[images]\nrepositories = %s\n",
				 executors, repositories);

	test_puts(HB_PATH_BOUNDS, text);
	free(text);
}

static void make_request(void)
{
	static const char text[] =
		"{\"action\":\"install\",\"image\":\"ghcr.io/a/b:v1@sha256:" D
		"\",\"platform\":\"linux/amd64\",\"timeout\":60,"
		"\"sealed\":{\"settings_sha256\":\"" D
		"\",\"current\":{\"manifest_digest\":\"\",\"image\":\"\"},\"resolved\":{"
		"\"index_digest\":\"" D "\",\"manifest_digest\":\"" D "\",\"config_digest\":\"" D
		"\",\"layers\":[{\"digest\":\"" D
		"\",\"size\":10,\"media_type\":\"application/"
		"vnd.oci.image.layer.v1.tar+gzip\",\"diff_id\":\"" D "\"}],"
		"\"total_size\":10,\"entrypoint\":[],\"command\":[\"run\"],\"working_dir\":\"\","
		"\"environment\":[],\"user\":\"\","
		"\"ports\":[],\"volumes\":[],\"version\":\"\"}}}";

	request = hb_json_parse(text, strlen(text), NULL);
	ck_assert_ptr_nonnull(request);
}

static void make_grant(void)
{
	struct hb_buf summary = HB_BUF_INIT;

	memset(&grant, 0, sizeof(grant));
	hb_random_hex(32, grant.grant_id);
	hb_random_hex(32, grant.capability);
	strcpy(grant.audience, HOST);
	strcpy(grant.operation_id, OPERATION);
	strcpy(grant.target, "installer");
	strcpy(grant.feature, "runtime");
	strcpy(grant.action, "install");
	ck_works(hb_operation_digest("runtime", request, grant.digest, err));
	ck_works(hb_summary("runtime", request, &summary, NULL, err));
	hb_summary_digest(&summary, grant.summary_digest);
	hb_buf_free(&summary);
	strcpy(grant.user_ids[0], "1");
	grant.user_count = 1;
	strcpy(grant.session, "s");
	grant.generation = 5;
	grant.approved = true;
	grant.issued_at = grant.not_before = hb_now();
	grant.expires_at = grant.issued_at + 120;
}

static void enter(void)
{
	test_enter();
	umask(022);
	ck_assert_int_ge(sodium_init(), 0);
	ck_assert_int_eq(mkdir(HB_PATH_CONF, 0755), 0);
	ck_assert_int_eq(mkdir("policy", 0755), 0);
	ck_assert_int_eq(mkdir("public", 0755), 0);
	ck_assert_int_eq(mkdir(HB_PATH_APPROVER_PUBLIC, 0755), 0);
	put_bounds("installer", "ghcr.io/a/b");
	put_policy(5, "\"runtime\"", "\"1\",\"2\"", 1, false);
	ck_works(hb_keys_create(AT_FDCWD, "signing", geteuid(), getegid(), HB_PATH_PUBLIC_KEY, err));
	ck_works(hb_signing_key_load(AT_FDCWD, "signing", geteuid(), &key, err));
	gate = (struct hb_gate){.target = "installer", .audience = HOST, .admin_uid = ADMIN};
	ck_works(hb_gate_load_keys(&gate, err));
	ck_works(hb_ledger_open("ledger.db", &gate.ledger, NULL, err));
	make_request();
	make_grant();
}

static void leave(void)
{
	hb_ledger_close(gate.ledger);
	hb_signing_key_free(key);
	json_decref(request);
	test_leave();
}

static void put_control(struct hb_control c, const struct hb_signing_key *by, const char *host)
{
	json_t *envelope;

	strcpy(c.by, "1");
	strcpy(c.channel, "telegram");
	envelope = hb_control_seal(&c, host, by, NULL);
	ck_assert_ptr_nonnull(envelope);
	ck_works(hb_control_write(envelope, err));
	json_decref(envelope);
}

/* Sign the grant as it is now and take it to the gate. */
static int pass(struct hb_error *err)
{
	struct hb_execute x = {.operation_id = OPERATION, .feature = "runtime", .request = request};
	struct hb_grant found = {0};
	int rc;

	x.envelope = hb_grant_seal(&grant, key, err);
	ck_assert_ptr_nonnull(x.envelope);
	rc = hb_gate_pass(&gate, &x, &found, err);
	json_decref(x.envelope);
	if (rc == 0)
		ck_assert_str_eq(found.grant_id, grant.grant_id);
	else
		ck_assert_str_eq(found.grant_id, "");
	return rc;
}

static json_t *ledger_row(void)
{
	return hb_ledger_find(gate.ledger, OPERATION, NULL);
}

/* Refused with this code, and nothing was burnt. */
static void refused(const char *code)
{
	ck_fails(pass(err), code);
	ck_assert_ptr_null(ledger_row());
}

START_TEST(test_opens_once)
{
	ck_works(pass(err));
	json_t *row = ledger_row();
	ck_assert_str_eq(hb_json_text(row, "state", ""), "executing");
	json_decref(row);
	ck_fails(pass(err), "grant_replayed");
	/* another grant for the same operation does not open it again either */
	hb_random_hex(32, grant.grant_id);
	ck_fails(pass(err), "grant_replayed");
}
END_TEST

START_TEST(test_check_burns_nothing)
{
	struct hb_execute x = {.operation_id = OPERATION, .feature = "runtime", .request = request};
	struct hb_grant found;

	x.envelope = hb_grant_seal(&grant, key, NULL);
	ck_works(hb_gate_check(&gate, &x, &found, err));
	ck_works(hb_gate_check(&gate, &x, &found, err));
	ck_assert_ptr_null(ledger_row());
	json_decref(x.envelope);
}
END_TEST

START_TEST(test_grant_must_fit)
{
	const struct hb_grant good = grant;

#define BENT(change, code) \
	do { \
		grant = good; \
		change; \
		refused(code); \
	} while (0)
	BENT(grant.approved = false, "grant_denied");
	BENT(grant.audience[0] = 'f', "grant_wrong_audience");
	BENT(strcpy(grant.target, "docker"), "grant_wrong_target");
	BENT(strcpy(grant.feature, "ssh"), "grant_wrong_operation");
	BENT(strcpy(grant.action, "upgrade"), "grant_wrong_operation");
	BENT(grant.operation_id[0] = '0', "grant_wrong_operation");
	BENT(grant.digest[0] ^= 1, "grant_digest_mismatch");
	BENT(grant.summary_digest[0] ^= 1, "grant_digest_mismatch");
	BENT(grant.generation = 4, "grant_old_generation");
	BENT(grant.not_before += 60, "grant_not_yet_valid");
	BENT((grant.issued_at -= 200, grant.not_before -= 200, grant.expires_at -= 200),
	     "grant_expired");
	grant = good;
	ck_works(pass(err));
}
END_TEST

START_TEST(test_signature_must_be_ours)
{
	struct hb_execute x = {.operation_id = OPERATION, .feature = "runtime", .request = request};
	struct hb_signing_key *other;
	struct hb_grant found;

	ck_works(hb_keys_create(AT_FDCWD, "signing2", geteuid(), getegid(), "public2", err));
	ck_works(hb_signing_key_load(AT_FDCWD, "signing2", geteuid(), &other, err));
	x.envelope = hb_grant_seal(&grant, other, NULL);
	ck_fails(hb_gate_pass(&gate, &x, &found, err), "grant_unknown_key");
	json_decref(x.envelope);
	x.envelope = hb_grant_seal(&grant, key, NULL);
	json_object_set_new(json_object_get(x.envelope, "grant"), "session", json_string("other"));
	ck_fails(hb_gate_pass(&gate, &x, &found, err), "grant_bad_signature");
	json_decref(x.envelope);
	hb_signing_key_free(other);
}
END_TEST

START_TEST(test_h45_changed_request_is_refused)
{
	json_t *resolved = json_object_get(json_object_get(request, "sealed"), "resolved");
	json_t *layer = json_array_get(json_object_get(resolved, "layers"), 0);

	json_object_set_new(request, "timeout", json_integer(61));
	refused("grant_digest_mismatch");
	json_object_set_new(request, "timeout", json_integer(60));
	json_object_set_new(
		layer, "diff_id",
		json_string("f"
			    "123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"));
	refused("grant_digest_mismatch");
	json_object_set_new(layer, "diff_id", json_string(D));
	json_array_append_new(json_object_get(resolved, "command"), json_string("--evil"));
	refused("grant_digest_mismatch");
	json_array_remove(json_object_get(resolved, "command"), 1);
	json_object_set_new(request, "extra", json_true());
	refused("unknown_field");
	json_object_del(request, "extra");
	ck_works(pass(err));
}
END_TEST

START_TEST(test_h45_changed_policy_is_refused)
{
	put_policy(6, "\"runtime\"", "\"1\"", 1, false);
	refused("grant_old_generation");
	/* the old policy file put back: this process remembers */
	put_policy(5, "\"runtime\"", "\"1\"", 1, false);
	refused("generation_went_back");
}
END_TEST

START_TEST(test_policy_now)
{
	put_policy(5, "\"docker\",\"ssh\"", "\"1\"", 1, false);
	refused("feature_disabled");
	put_policy(5, "\"runtime\"", "\"1\"", 1, true);
	refused("paused");
	put_policy(5, "\"runtime\"", "\"2\"", 1, false);
	refused("user_not_allowed");
	put_policy(5, "\"runtime\"", "\"1\"", 1, false);
	put_bounds("docker, ssh", "ghcr.io/a/b");
	refused("not_deployed");
	put_bounds("installer", "ghcr.io/a/other");
	refused("out_of_bounds");
	ck_assert_int_eq(unlink(HB_PATH_POLICY), 0);
	refused("policy_missing");
	put_policy(5, "\"runtime\"", "\"1\"", 1, false);
	put_bounds("installer", "ghcr.io/a/b");
	ck_assert_int_eq(chmod(HB_PATH_BOUNDS, 0666), 0);
	refused("loose_permissions");
	ck_assert_int_eq(unlink(HB_PATH_BOUNDS), 0);
	refused("bounds_missing");
	put_bounds("installer", "ghcr.io/a/b");
	ck_works(pass(err));
}
END_TEST

START_TEST(test_quorum)
{
	put_policy(5, "\"runtime\"", "\"1\",\"2\"", 2, false);
	refused("quorum_not_met");
	strcpy(grant.user_ids[1], "1");
	grant.user_count = 2;
	ck_assert_ptr_null(hb_grant_seal(&grant, key, NULL)); /* one person is not two */
	strcpy(grant.user_ids[1], "3"); /* in the bounds, not in the live policy */
	refused("user_not_allowed");
	strcpy(grant.user_ids[1], "2");
	ck_works(pass(err));
}
END_TEST

START_TEST(test_control_pause)
{
	struct hb_signing_key *other;

	put_control((struct hb_control){.sequence = 3, .paused = true}, key, HOST);
	refused("paused");
	/* anything but a good record of ours is a pause too */
	test_puts(HB_PATH_CONTROL, "{}");
	refused("control_unusable");
	test_puts(HB_PATH_CONTROL, "");
	refused("control_unusable");
	ck_works(hb_keys_create(AT_FDCWD, "signing2", geteuid(), getegid(), "public2", err));
	ck_works(hb_signing_key_load(AT_FDCWD, "signing2", geteuid(), &other, err));
	put_control((struct hb_control){.sequence = 9}, other, HOST);
	refused("control_unusable");
	hb_signing_key_free(other);
	put_control((struct hb_control){.sequence = 9}, key, "ffffffffffffffffffffffffffffffff");
	refused("control_unusable");
	put_control((struct hb_control){.sequence = 9}, key, HOST);
	ck_assert_int_eq(chmod(HB_PATH_CONTROL, 0666), 0);
	refused("control_unusable");
	ck_assert_int_eq(chmod(HB_PATH_CONTROL, 0644), 0);
	ck_works(pass(err));
}
END_TEST

START_TEST(test_control_signature_covers_the_record)
{
	struct hb_buf text = HB_BUF_INIT;
	char *at;

	put_control((struct hb_control){.sequence = 3, .paused = true}, key, HOST);
	ck_works(hb_fs_read(AT_FDCWD, HB_PATH_CONTROL, 4096, &text, err));
	at = strstr(text.data, "\"paused\":true");
	ck_assert_ptr_nonnull(at);
	memmove(at + 14, at + 13, strlen(at + 13) + 1);
	memcpy(at, "\"paused\":false", 14);
	test_puts(HB_PATH_CONTROL, text.data);
	hb_buf_free(&text);
	refused("control_unusable");
}
END_TEST

START_TEST(test_control_never_goes_back)
{
	put_control((struct hb_control){.sequence = 3, .paused = true}, key, HOST);
	refused("paused");
	put_control((struct hb_control){.sequence = 2}, key, HOST);
	refused("control_went_back");
	ck_assert_int_eq(unlink(HB_PATH_CONTROL), 0); /* nor is it forgotten */
	refused("control_went_back");
	put_control((struct hb_control){.sequence = 4}, key, HOST);
	ck_works(pass(err));
}
END_TEST

START_TEST(test_control_revokes)
{
	struct hb_control c = {.sequence = 1, .revoked_before = grant.issued_at};

	put_control(c, key, HOST);
	refused("grant_revoked");
	c = (struct hb_control){.sequence = 2, .revoked_before = grant.issued_at - 1, .revoked_count = 2};
	strcpy(c.revoked[0], "00000000000000000000000000000000");
	strcpy(c.revoked[1], OPERATION);
	put_control(c, key, HOST);
	refused("grant_revoked");
	c.sequence = 3;
	c.revoked_count = 1;
	put_control(c, key, HOST);
	ck_works(pass(err));
}
END_TEST

START_TEST(test_no_self_approval)
{
	static const char bounds[] =
		"[users]\nallowed = 1, 2, 3\n[executors]\ndeployed = installer\n[images]\n"
		"repositories = ghcr.io/a/b\n[quorum]\nno_self_approval = runtime\n";

	strcpy(grant.requested_by, "1");
	test_puts(HB_PATH_BOUNDS, bounds);
	refused("self_approval");
	put_bounds("installer", "ghcr.io/a/b");
	test_puts(HB_PATH_POLICY,
		  "{\"version\":1,\"generation\":5,\"features\":[\"runtime\"],\"users\":[\"1\",\"2\"],\"quorum\":"
		  "{\"runtime\":1,\"local\":1,\"docker\":1,\"ssh\":1},\"paused\":false,"
		  "\"no_self_approval\":[\"runtime\"]}");
	refused("self_approval");
	grant.requested_by[0] = 0; /* a grant that doesn't say who asked could be anybody's */
	refused("self_approval");
	strcpy(grant.requested_by, "2");
	ck_works(pass(err));
}
END_TEST

/* A rotation: the key before counts until the second its file names, and not at all when there is none. */
START_TEST(test_rotation)
{
	struct hb_signing_key *old = key;

	ck_assert_int_eq(rename(HB_PATH_PUBLIC_KEY, "public/old.pub"), 0);
	ck_works(hb_keys_create(AT_FDCWD, "signing2", geteuid(), getegid(), HB_PATH_PUBLIC_KEY, err));
	ck_works(hb_gate_load_keys(&gate, err));
	refused("grant_unknown_key");
	ck_works(hb_keyring_write_previous(AT_FDCWD, hb_signing_key_public(old), hb_now(), err));
	ck_works(hb_gate_load_keys(&gate, err));
	refused("grant_unknown_key");
	test_puts(HB_PATH_PREVIOUS_KEY, "hermes-previous-key-v1 nonsense\n");
	ck_fails(hb_gate_load_keys(&gate, err), "key_malformed");
	ck_works(hb_keyring_write_previous(AT_FDCWD, hb_signing_key_public(old), hb_now() + 100, err));
	ck_assert_int_eq(chmod(HB_PATH_PREVIOUS_KEY, 0666), 0);
	ck_fails(hb_gate_load_keys(&gate, err), "loose_permissions");
	ck_assert_int_eq(chmod(HB_PATH_PREVIOUS_KEY, 0644), 0);
	ck_works(hb_gate_load_keys(&gate, err));
	ck_assert_uint_eq(gate.keys.count, 2);
	ck_works(pass(err)); /* by the old one */
	ck_works(hb_signing_key_load(AT_FDCWD, "signing2", geteuid(), &key, err));
	ck_fails(pass(err), "grant_replayed"); /* the new one is believed as well: only the ledger stops it */
	hb_signing_key_free(old);
}
END_TEST

START_TEST(test_quorum_of_the_bounds)
{
	test_puts(HB_PATH_BOUNDS,
		  "[users]\nallowed = 1, 2\n[executors]\ndeployed = installer\n[images]\n"
		  "repositories = ghcr.io/a/b\n[quorum]\nruntime = 2\n");
	refused("policy_out_of_bounds");
	put_policy(5, "\"runtime\"", "\"1\",\"2\"", 2, false);
	refused("quorum_not_met");
}
END_TEST

START_TEST(test_only_its_own_features)
{
	gate.target = "docker";
	refused("grant_wrong_target");
}
END_TEST

static int judge_run(const char *command, struct hb_error *err)
{
	struct hb_execute x = {.operation_id = OPERATION, .feature = "docker"};
	struct hb_buf summary = HB_BUF_INIT;
	struct hb_grant found;
	json_t *asked = json_pack("{s:s, s:s, s:[s, s, s]}", "action", "run", "image", "sha256:" D,
				  "command", "sh", "-c", command);
	int rc;

	x.request = hb_operation_validate("docker", asked, err);
	ck_assert_ptr_nonnull(x.request);
	json_object_set_new(x.request, "resolved_image_id", json_string("sha256:" D));
	json_object_set_new(x.request, "resolved_network_id", json_string(D));
	strcpy(grant.target, "docker");
	strcpy(grant.feature, "docker");
	strcpy(grant.action, "run");
	ck_assert_int_eq(hb_operation_digest("docker", x.request, grant.digest, err), 0);
	ck_assert_int_eq(hb_summary("docker", x.request, &summary, NULL, err), 0);
	hb_summary_digest(&summary, grant.summary_digest);
	x.envelope = hb_grant_seal(&grant, key, err);
	rc = hb_gate_check(&gate, &x, &found, err);
	hb_buf_free(&summary);
	json_decref(x.envelope);
	json_decref(x.request);
	json_decref(asked);
	return rc;
}

START_TEST(test_floor_and_identities_once_more)
{
	static const char *const ids[] = {D};
	static const struct hb_floor_own own = {.network_ids = ids, .network_count = 1};

	put_bounds("docker", "ghcr.io/a/b");
	put_policy(5, "\"docker\"", "\"1\"", 1, false);
	gate.target = "docker";
	ck_works(judge_run("ls", err));
	/* approved and signed, and refused all the same */
	ck_fails(judge_run("rm -rf /", err), "floor_recursive_delete");
	gate.own = &own;
	ck_fails(judge_run("ls", err), "floor_own_network");
}
END_TEST

static int decode(const char *text, struct hb_error *err)
{
	struct hb_execute x;
	json_t *body = hb_json_parse(text, strlen(text), err);
	int rc;

	ck_assert_ptr_nonnull(body);
	rc = hb_execute_decode(body, &x, err);
	json_decref(body);
	return rc;
}

START_TEST(test_decode)
{
	ck_works(decode("{\"operation_id\":\"" OPERATION
			"\",\"feature\":\"runtime\",\"request\":{},\"envelope\":{}}",
			err));
	ck_fails(decode("{\"operation_id\":\"" OPERATION
			"\",\"feature\":\"runtime\",\"request\":{}}",
			err),
		 "missing_field");
	ck_fails(decode("{\"operation_id\":\"" OPERATION
			"\",\"feature\":\"runtime\",\"request\":{},\"envelope\":{},\"x\":1}",
			err),
		 "unknown_field");
	ck_fails(decode("{\"operation_id\":\"short\",\"feature\":\"runtime\",\"request\":{},"
			"\"envelope\":{}}",
			err),
		 "out_of_range");
	ck_fails(decode("{\"operation_id\":\"FEDCBA9876543210fedcba9876543210\",\"feature\":"
			"\"runtime\",\"request\":{},"
			"\"envelope\":{}}",
			err),
		 "bad_type");
	ck_fails(decode("{\"operation_id\":\"" OPERATION
			"\",\"feature\":\"sandbox\",\"request\":{},\"envelope\":{}}",
			err),
		 "unknown_feature");
	ck_fails(decode("{\"operation_id\":\"" OPERATION
			"\",\"feature\":\"runtime\",\"request\":[],\"envelope\":{}}",
			err),
		 "bad_type");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gate");
	TCase *t = tcase_create("gate");

	tcase_add_checked_fixture(t, enter, leave);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_opens_once);
	tcase_add_test(t, test_check_burns_nothing);
	tcase_add_test(t, test_grant_must_fit);
	tcase_add_test(t, test_signature_must_be_ours);
	tcase_add_test(t, test_h45_changed_request_is_refused);
	tcase_add_test(t, test_h45_changed_policy_is_refused);
	tcase_add_test(t, test_policy_now);
	tcase_add_test(t, test_quorum);
	tcase_add_test(t, test_quorum_of_the_bounds);
	tcase_add_test(t, test_control_pause);
	tcase_add_test(t, test_control_signature_covers_the_record);
	tcase_add_test(t, test_control_never_goes_back);
	tcase_add_test(t, test_control_revokes);
	tcase_add_test(t, test_no_self_approval);
	tcase_add_test(t, test_rotation);
	tcase_add_test(t, test_only_its_own_features);
	tcase_add_test(t, test_floor_and_identities_once_more);
	tcase_add_test(t, test_decode);
	suite_add_tcase(s, t);
	return test_run(s);
}
