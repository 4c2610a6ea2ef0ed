/* Live policy: loaded strictly within the bounds, changed durably, generation only upwards. */
#include "tests/unit/test_util.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "common/json.h"
#include "common/paths.h"
#include "policy/live.h"

#define ADMIN 10117

static const char bounds_text[] = "[users]\nallowed = 0, 123, 456\n[quorum]\ndocker = 2\n";
static const char policy_text[] =
	"{\"version\":1,\"generation\":7,\"features\":[\"runtime\",\"ssh\"],\"users\":[\"123\","
	"\"0\"],"
	"\"quorum\":{\"runtime\":1,\"local\":1,\"docker\":2,\"ssh\":3},\"paused\":false}\n";

static void enter(void)
{
	test_enter();
	umask(022);
	ck_assert_int_eq(mkdir(HB_PATH_CONF, 0755), 0);
	test_puts(HB_PATH_BOUNDS, bounds_text);
	ck_assert_int_eq(mkdir("policy", 0755), 0);
	ck_assert_int_eq(chown("policy", ADMIN, ADMIN), 0);
}

static void put(const char *text)
{
	test_puts(HB_PATH_POLICY, text);
	ck_assert_int_eq(chmod(HB_PATH_POLICY, 0644), 0);
	ck_assert_int_eq(chown(HB_PATH_POLICY, ADMIN, ADMIN), 0);
}

static int load(struct hb_policy *p, struct hb_error *err)
{
	struct hb_policy_view v;

	if (hb_policy_view_load(ADMIN, &v, err) < 0)
		return -1;
	*p = v.live;
	hb_policy_view_free(&v);
	return 0;
}

START_TEST(test_values)
{
	struct hb_policy p;

	put(policy_text);
	ck_works(load(&p, err));
	ck_assert_int_eq(p.generation, 7);
	ck_assert_uint_eq(p.features, HB_FEATURE_RUNTIME | HB_FEATURE_SSH);
	ck_assert(hb_policy_user(&p, "123"));
	ck_assert(!hb_policy_user(&p, "456"));
	ck_assert(!hb_policy_user(&p, ""));
	ck_assert_int_eq(p.quorum[2], 2);
	ck_assert_int_eq(p.quorum[3], 3);
	ck_works(hb_policy_permits(&p, "runtime", "123", err));
	ck_works(hb_policy_permits(&p, "ssh", NULL, err));
	ck_fails(hb_policy_permits(&p, "docker", "123", err), "feature_disabled");
	ck_fails(hb_policy_permits(&p, "nonsense", "123", err), "feature_disabled");
	ck_fails(hb_policy_permits(&p, "runtime", "456", err), "user_not_allowed");
	p.paused = true;
	ck_fails(hb_policy_permits(&p, "runtime", "123", err), "paused");
}
END_TEST

START_TEST(test_features)
{
	ck_assert_uint_eq(hb_feature_bit("sandbox"), HB_FEATURE_LOCAL);
	ck_assert_uint_eq(hb_feature_bit(""), 0);
	ck_assert_uint_eq(hb_feature_bit("Runtime"), 0);
	ck_assert_str_eq(hb_feature_name(HB_FEATURE_DOCKER), "docker");
	ck_assert_ptr_null(hb_feature_name(3));
	ck_assert_str_eq(hb_feature_target("runtime"), "installer");
	ck_assert_str_eq(hb_feature_target("sandbox"), "docker");
	ck_assert_str_eq(hb_feature_target("ssh"), "ssh");
	ck_assert_ptr_null(hb_feature_target("x"));
}
END_TEST

START_TEST(test_h44_malformed_is_nobody)
{
	static const struct {
		const char *from, *to;
	} faults[] = {
		{"\"version\":1", "\"version\":2"},
		{"\"generation\":7", "\"generation\":0"},
		{"\"generation\":7", "\"generation\":-1"},
		{"\"generation\":7", "\"generation\":7.5"},
		{"\"generation\":7,", ""},
		{"\"runtime\",\"ssh\"", "\"runtime\",\"all\""},
		{"\"runtime\",\"ssh\"", "\"sandbox\""},
		{"\"runtime\",\"ssh\"", "\"ssh\",\"ssh\""},
		{"\"123\",\"0\"", "\"*\""},
		{"\"123\",\"0\"", "123"},
		{"\"123\",\"0\"", "\"123\",\"123\""},
		{"\"123\",\"0\"", "\"0123\""},
		{"\"123\",\"0\"", "\"-100\""},
		{"[\"123\",\"0\"]", "null"},
		{"\"ssh\":3", "\"ssh\":0"},
		{"\"ssh\":3", "\"ssh\":17"},
		{"\"ssh\":3", "\"other\":3"},
		{",\"ssh\":3", ""},
		{"\"paused\":false", "\"paused\":0"},
		{",\"paused\":false", ""},
		{"\"paused\":false", "\"paused\":false,\"admin\":true"},
		{"\"paused\":false", "\"paused\":true,\"paused\":false"},
		{"false}", "false"},
	};
	struct hb_policy p = {.generation = 99};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		const char *at = strstr(policy_text, faults[i].from);
		char *text;

		ck_assert_ptr_nonnull(at);
		text = hb_asprintf("%.*s%s%s", (int)(at - policy_text), policy_text, faults[i].to,
				   at + strlen(faults[i].from));
		put(text);
		ck_fails(load(&p, err), "policy_malformed");
		free(text);
	}
	put("");
	ck_fails(load(&p, err), "policy_malformed");
	ck_assert_int_eq(p.generation, 99);
}
END_TEST

START_TEST(test_h44_missing_or_loose_is_nobody)
{
	struct hb_policy p;

	ck_fails(load(&p, err), "policy_missing");
	put(policy_text);
	ck_assert_int_eq(chmod(HB_PATH_POLICY, 0664), 0);
	ck_fails(load(&p, err), "loose_permissions");
	ck_assert_int_eq(chmod(HB_PATH_POLICY, 0644), 0);
	ck_assert_int_eq(chown(HB_PATH_POLICY, 10110, 10110), 0);
	ck_fails(load(&p, err), "loose_permissions");
	ck_assert_int_eq(chown(HB_PATH_POLICY, 0, 0), 0);
	ck_works(load(&p, err));
	ck_assert_int_eq(unlink(HB_PATH_BOUNDS), 0);
	ck_fails(load(&p, err), "bounds_missing");
}
END_TEST

START_TEST(test_live_policy_may_only_narrow)
{
	struct hb_policy p;

	put(policy_text);
	test_puts(HB_PATH_BOUNDS, "[users]\nallowed = 123\n");
	ck_fails(load(&p, err), "policy_out_of_bounds");
	test_puts(HB_PATH_BOUNDS, "[users]\nallowed = 0, 123\n[quorum]\nruntime = 2\n");
	ck_fails(load(&p, err), "policy_out_of_bounds");
	test_puts(HB_PATH_BOUNDS, "[users]\nallowed = 0, 123\n[quorum]\nssh = 3\n");
	ck_works(load(&p, err));
}
END_TEST

/* --- changing --- */

struct order {
	unsigned features;
	const char *user;
	bool paused, refuse, wild;
};

static int change(struct hb_policy *p, const struct hb_bounds *b, void *arg, struct hb_error *err)
{
	const struct order *o = arg;

	ck_assert_ptr_nonnull(b);
	if (o->refuse)
		return hb_fail(err, "my_reason", "no");
	p->features = o->features;
	p->paused = o->paused;
	p->user_count = 0;
	if (o->user)
		strcpy(p->users[p->user_count++], o->user);
	if (o->wild)
		p->quorum[0] = 0;
	p->generation = 1; /* has no effect: generations are not the caller's business */
	return 0;
}

static void expect_text(const char *path, const char *want)
{
	char *text = test_read(path, NULL);
	struct stat st;

	ck_assert_str_eq(text, want);
	free(text);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_uid, ADMIN);
	ck_assert_uint_eq(st.st_mode & 07777, 0644);
}

START_TEST(test_update)
{
	struct order o = {.features = HB_FEATURE_RUNTIME | HB_FEATURE_LOCAL, .user = "123"};
	struct hb_policy p = {0};

	ck_fails(hb_policy_update(ADMIN, false, change, &o, &p, err), "policy_missing");
	ck_assert_int_eq(hb_policy_update(ADMIN, true, change, &o, &p, NULL), 1);
	ck_assert_int_eq(p.generation, 1);
	ck_assert_int_eq(p.quorum[2], 2); /* begins at what the bounds ask for */
	expect_text(HB_PATH_POLICY_FEATURES, "runtime,local\n");
	expect_text(HB_PATH_POLICY_USERS, "123\n");
	expect_text(HB_PATH_POLICY_GENERATION, "1\n");

	ck_assert_int_eq(hb_policy_update(ADMIN, false, change, &o, &p, NULL), 0);
	ck_assert_int_eq(p.generation, 1);
	o.user = "456";
	ck_assert_int_eq(hb_policy_update(ADMIN, false, change, &o, &p, NULL), 1);
	ck_assert_int_eq(p.generation, 2);
	ck_works(load(&p, err));
	ck_assert_int_eq(p.generation, 2);
	ck_assert(hb_policy_user(&p, "456"));
	ck_assert(!hb_policy_user(&p, "123"));
	expect_text(HB_PATH_POLICY_GENERATION, "2\n");
	o.features = 0;
	o.user = NULL;
	ck_assert_int_eq(hb_policy_update(ADMIN, false, change, &o, &p, NULL), 1);
	expect_text(HB_PATH_POLICY_FEATURES, "\n");
	expect_text(HB_PATH_POLICY_USERS, "\n");
}
END_TEST

START_TEST(test_refused_update_changes_nothing)
{
	struct order o = {.features = HB_FEATURE_RUNTIME, .user = "123"};
	struct hb_policy p = {0};
	char *before, *after;

	ck_assert_int_eq(hb_policy_update(ADMIN, true, change, &o, NULL, NULL), 1);
	before = test_read(HB_PATH_POLICY, NULL);
	o.refuse = true;
	ck_fails(hb_policy_update(ADMIN, false, change, &o, &p, err), "my_reason");
	o.refuse = false;
	o.user = "789";
	ck_fails(hb_policy_update(ADMIN, false, change, &o, &p, err), "policy_out_of_bounds");
	o.user = "123";
	o.wild = true;
	ck_fails(hb_policy_update(ADMIN, false, change, &o, &p, err), "policy_malformed");
	ck_assert_int_eq(p.generation, 0);
	after = test_read(HB_PATH_POLICY, NULL);
	ck_assert_str_eq(before, after);
	free(before);
	free(after);
}
END_TEST

START_TEST(test_update_mends_a_policy_outside_the_bounds)
{
	struct order o = {.features = HB_FEATURE_RUNTIME, .user = "123"};
	struct hb_policy p;

	ck_assert_int_eq(hb_policy_update(ADMIN, true, change, &o, NULL, NULL), 1);
	test_puts(HB_PATH_BOUNDS, "[users]\nallowed = 456\n[quorum]\ndocker = 2\n");
	ck_fails(load(&p, err), "policy_out_of_bounds");
	o.user = "456";
	ck_assert_int_eq(hb_policy_update(ADMIN, false, change, &o, NULL, NULL), 1);
	ck_works(load(&p, err));
	ck_assert_int_eq(p.generation, 2);
}
END_TEST

START_TEST(test_generation_goes_on_when_the_file_was_lost)
{
	struct order o = {.features = HB_FEATURE_RUNTIME, .user = "123"};
	struct hb_policy p;

	ck_assert_int_eq(hb_policy_update(ADMIN, true, change, &o, NULL, NULL), 1);
	o.user = "456";
	ck_assert_int_eq(hb_policy_update(ADMIN, true, change, &o, NULL, NULL), 1);
	ck_assert_int_eq(unlink(HB_PATH_POLICY), 0);
	ck_assert_int_eq(hb_policy_update(ADMIN, true, change, &o, &p, NULL), 1);
	ck_assert_int_eq(p.generation, 3);
	/* A malformed policy is never taken for a missing one. */
	put("{}");
	ck_fails(hb_policy_update(ADMIN, true, change, &o, &p, err), "policy_malformed");
}
END_TEST

START_TEST(test_an_old_file_put_back_is_counted_past)
{
	struct order o = {.features = HB_FEATURE_RUNTIME, .user = "123"};
	struct hb_policy p;
	char *old;

	ck_assert_int_eq(hb_policy_update(ADMIN, true, change, &o, NULL, NULL), 1);
	old = test_read(HB_PATH_POLICY, NULL);
	o.user = "456";
	ck_assert_int_eq(hb_policy_update(ADMIN, false, change, &o, &p, NULL), 1);
	ck_assert_int_eq(p.generation, 2);
	put(old);
	free(old);
	/* Also when nothing else changes: whoever saw 2 refuses everything under 1. */
	o.user = "123";
	ck_assert_int_eq(hb_policy_update(ADMIN, false, change, &o, &p, NULL), 1);
	ck_assert_int_eq(p.generation, 3);
	ck_assert_int_eq(hb_policy_update(ADMIN, false, change, &o, &p, NULL), 0);
	ck_assert_int_eq(p.generation, 3);
	expect_text(HB_PATH_POLICY_GENERATION, "3\n");
}
END_TEST

static int flip(struct hb_policy *p, const struct hb_bounds *b, void *arg, struct hb_error *err)
{
	(void)b;
	(void)arg;
	(void)err;
	p->paused = !p->paused;
	return 0;
}

START_TEST(test_concurrent_updates_lose_none)
{
	struct order o = {.features = HB_FEATURE_RUNTIME, .user = "123"};
	struct hb_policy p;

	ck_assert_int_eq(hb_policy_update(ADMIN, true, change, &o, NULL, NULL), 1);
	for (int child = 0; child < 4; child++) {
		pid_t pid = fork();

		ck_assert_int_ge(pid, 0);
		if (pid == 0) {
			for (int i = 0; i < 5; i++) {
				if (hb_policy_update(ADMIN, false, flip, NULL, NULL, NULL) != 1)
					_exit(1);
			}
			_exit(0);
		}
	}
	for (int child = 0; child < 4; child++) {
		int status;

		ck_assert_int_gt(wait(&status), 0);
		ck_assert_int_eq(status, 0);
	}
	ck_works(load(&p, err));
	ck_assert_int_eq(p.generation, 21);
}
END_TEST

START_TEST(test_changes_are_noticed)
{
	struct hb_policy_stamp stamp = {0};
	struct order o = {.features = HB_FEATURE_RUNTIME, .user = "123"};

	ck_assert(hb_policy_changed(&stamp)); /* bounds.conf is there */
	ck_assert(!hb_policy_changed(&stamp));
	ck_assert_int_eq(hb_policy_update(ADMIN, true, change, &o, NULL, NULL), 1);
	ck_assert(hb_policy_changed(&stamp));
	ck_assert(!hb_policy_changed(&stamp));
	ck_assert_int_eq(unlink(HB_PATH_BOUNDS), 0);
	ck_assert(hb_policy_changed(&stamp));
	ck_assert(!hb_policy_changed(&stamp));
}
END_TEST

START_TEST(test_raise_changes_only_the_generation)
{
	struct hb_policy before, after, again;

	put(policy_text);
	ck_works(load(&before, err));
	ck_works(hb_policy_raise(ADMIN, &after, err));
	ck_works(load(&again, err));
	ck_assert_int_eq(after.generation, before.generation + 1);
	ck_assert_int_eq(again.generation, after.generation);
	ck_assert_uint_eq(again.features, before.features);
	ck_assert_uint_eq(again.user_count, before.user_count);
	ck_assert_int_eq(unlink(HB_PATH_POLICY), 0);
	ck_fails(hb_policy_raise(ADMIN, &after, err), "policy_missing");
}
END_TEST

/* The policy itself can be widened by a grant whatever is on, but is no feature of a policy. */
START_TEST(test_policy_is_a_feature_apart)
{
	struct hb_policy_view v;
	struct hb_policy p;

	ck_assert_str_eq(hb_feature_target("policy"), "admin");
	put(policy_text);
	ck_works(hb_policy_view_load(ADMIN, &v, err));
	v.live.features = 0;
	ck_works(hb_policy_permits(&v.live, "policy", "123", err));
	ck_fails(hb_policy_permits(&v.live, "policy", "456", err), "user_not_allowed");
	ck_assert_int_eq(hb_policy_quorum(&v.live, v.bounds, "policy"), 3); /* as ssh, the strictest */
	ck_assert_int_eq(hb_policy_quorum(&v.live, v.bounds, "docker"), 2);
	v.live.paused = true;
	ck_fails(hb_policy_permits(&v.live, "policy", "123", err), "paused");
	hb_policy_view_free(&v);
	put("{\"version\":1,\"generation\":7,\"features\":[\"policy\"],\"users\":[\"123\"],"
	    "\"quorum\":{\"runtime\":1,\"local\":1,\"docker\":2,\"ssh\":3},\"paused\":false}");
	ck_fails(load(&p, err), "policy_malformed");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("live");
	TCase *t = tcase_create("live");

	tcase_add_checked_fixture(t, enter, test_leave);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_values);
	tcase_add_test(t, test_features);
	tcase_add_test(t, test_h44_malformed_is_nobody);
	tcase_add_test(t, test_h44_missing_or_loose_is_nobody);
	tcase_add_test(t, test_live_policy_may_only_narrow);
	tcase_add_test(t, test_update);
	tcase_add_test(t, test_refused_update_changes_nothing);
	tcase_add_test(t, test_update_mends_a_policy_outside_the_bounds);
	tcase_add_test(t, test_generation_goes_on_when_the_file_was_lost);
	tcase_add_test(t, test_an_old_file_put_back_is_counted_past);
	tcase_add_test(t, test_concurrent_updates_lose_none);
	tcase_add_test(t, test_changes_are_noticed);
	tcase_add_test(t, test_raise_changes_only_the_generation);
	tcase_add_test(t, test_policy_is_a_feature_apart);
	suite_add_tcase(s, t);
	return test_run(s);
}
