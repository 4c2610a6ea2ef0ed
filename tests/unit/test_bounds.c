/* bounds.conf: strict, closed when anything is wrong, and compared exactly. */
#include "tests/unit/test_util.h"

#include <sys/stat.h>

#include "common/json.h"
#include "policy/bounds.h"
#include "policy/floor.h"
#include "policy/operation.h"

#define D "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define PIN "@sha256:" D

static const char good[] = "# comment\n"
			   "[users]\n"
			   "allowed = 0, 123,456\n"
			   "[executors]\n"
			   "deployed = installer, docker\n"
			   "[images]\n"
			   "repositories = ghcr.io/owner/name, 127.0.0.1:5000/all, "
			   "oci:/srv/images/all, docker.io/library/alpine\n"
			   "[docker]\n"
			   "privileged = no\n"
			   "devices = yes\n"
			   "bind_roots = /srv/app, /data\n"
			   "[quorum]\n"
			   "docker = 2\n";

static struct hb_bounds *load(const char *text)
{
	struct hb_bounds *b = NULL;

	test_puts("bounds.conf", text);
	ck_assert_int_eq(chmod("bounds.conf", 0644), 0);
	ck_works(hb_bounds_load(AT_FDCWD, "bounds.conf", &b, err));
	return b;
}

START_TEST(test_values)
{
	struct hb_bounds *b = load(good);
	const char *const *items;

	ck_assert(hb_bounds_user(b, "123"));
	ck_assert(hb_bounds_user(b, "0"));
	ck_assert(!hb_bounds_user(b, "12"));
	ck_assert(!hb_bounds_user(b, "1234"));
	ck_assert(!hb_bounds_user(b, ""));
	ck_assert_uint_eq(hb_bounds_users(b, &items), 3);
	ck_assert_str_eq(items[2], "456");
	ck_assert(hb_bounds_executor(b, "docker"));
	ck_assert(!hb_bounds_executor(b, "ssh"));
	ck_assert(hb_bounds_docker_field(b, "devices"));
	ck_assert(!hb_bounds_docker_field(b, "privileged"));
	ck_assert(!hb_bounds_docker_field(b, "capabilities"));
	ck_assert(!hb_bounds_docker_field(b, "made_up"));
	ck_assert_uint_eq(hb_bounds_bind_roots(b, &items), 2);
	ck_assert_str_eq(items[0], "/srv/app");
	ck_assert_int_eq(hb_bounds_quorum(b, "docker"), 2);
	ck_assert_int_eq(hb_bounds_quorum(b, "runtime"), 1);
	hb_bounds_free(b);
}
END_TEST

START_TEST(test_repositories)
{
	struct hb_bounds *b = load(good);

	ck_assert(hb_bounds_repository(b, "ghcr.io/owner/name"));
	ck_assert(!hb_bounds_repository(b, "ghcr.io/owner/name2"));
	ck_assert(!hb_bounds_repository(b, "ghcr.io/owner/name/below"));
	ck_assert(!hb_bounds_repository(b, "ghcr.io/owner"));
	ck_assert(hb_bounds_repository(b, "127.0.0.1:5000/any/thing"));
	ck_assert(!hb_bounds_repository(b, "127.0.0.1:5000/"));
	ck_assert(!hb_bounds_repository(b, "127.0.0.1:50001/any"));
	ck_assert(hb_bounds_repository(b, "oci:/srv/images/app"));
	ck_assert(!hb_bounds_repository(b, "oci:/srv/images-evil/app"));
	hb_bounds_free(b);
}
END_TEST

START_TEST(test_nothing_given_allows_nothing)
{
	struct hb_bounds *b = load("\n# empty\n");
	const char *const *items;

	ck_assert_uint_eq(hb_bounds_users(b, &items), 0);
	ck_assert(!hb_bounds_user(b, "0"));
	ck_assert(!hb_bounds_executor(b, "installer"));
	ck_assert(!hb_bounds_repository(b, "docker.io/library/alpine"));
	ck_assert(!hb_bounds_docker_field(b, "privileged"));
	ck_assert_uint_eq(hb_bounds_bind_roots(b, &items), 0);
	hb_bounds_free(b);
	hb_bounds_free(load("[users]\nallowed =\n"));
}
END_TEST

START_TEST(test_malformed)
{
	static const char *const bad[] = {
		"allowed = 1\n",
		"[users]\nallowed = 1\nallowed = 2\n",
		"[users]\nallowed = 1\n[users]\nallowed = 2\n",
		"[users]\nallowed = 1, 1\n",
		"[users]\nallowed = *\n",
		"[users]\nallowed = @name\n",
		"[users]\nallowed = -100123\n",
		"[users]\nallowed = 007\n",
		"[users]\nallowed = 1,,2\n",
		"[users]\nallowed = 1,\n",
		"[users]\nallowed = 1 ; all of them\n",
		"[users]\nallowed = 1\n 2\n",
		"[users]\nother = 1\n",
		"[unknown]\nallowed = 1\n",
		"[users\nallowed = 1\n",
		"[users]\nallowed\n",
		"[executors]\ndeployed = installer root\n",
		"[images]\nrepositories = all\n",
		"[images]\nrepositories = alpine\n",
		"[images]\nrepositories = ghcr.io/a/b:tag\n",
		"[images]\nrepositories = ghcr.io/../b\n",
		"[images]\nrepositories = *\n",
		"[docker]\nprivileged = true\n",
		"[docker]\nPrivileged = yes\n",
		"[docker]\nbind_roots = /\n",
		"[docker]\nbind_roots = /srv/\n",
		"[docker]\nbind_roots = srv\n",
		"[quorum]\nruntime = 0\n",
		"[quorum]\nruntime = 17\n",
		"[quorum]\nruntime = -1\n",
		"[quorum]\nother = 1\n",
	};
	struct hb_bounds *b = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct hb_error err = {"", ""};

		test_puts("bounds.conf", bad[i]);
		ck_assert_int_eq(chmod("bounds.conf", 0644), 0);
		ck_assert_msg(hb_bounds_load(AT_FDCWD, "bounds.conf", &b, &err) < 0, "taken: %s",
			      bad[i]);
		ck_assert_msg(strcmp(err.code, "bounds_malformed") == 0, "%s: %s %s", bad[i],
			      err.code, err.message);
		ck_assert_msg(strstr(err.message, "bounds.conf:") != NULL, "no place named: %s",
			      err.message);
		ck_assert_ptr_null(b);
	}
	test_write("bounds.conf", "[users]\nallowed = 1\0, 2\n", 25);
	ck_fails(hb_bounds_load(AT_FDCWD, "bounds.conf", &b, err), "bounds_malformed");
}
END_TEST

START_TEST(test_h44_missing_or_loose_is_nobody)
{
	struct hb_bounds *b = NULL;

	ck_fails(hb_bounds_load(AT_FDCWD, "bounds.conf", &b, err), "bounds_missing");
	test_puts("bounds.conf", good);
	for (int mode = 0; mode < 2; mode++) {
		ck_assert_int_eq(chmod("bounds.conf", mode ? 0664 : 0646), 0);
		ck_fails(hb_bounds_load(AT_FDCWD, "bounds.conf", &b, err), "loose_permissions");
	}
	ck_assert_int_eq(chmod("bounds.conf", 0644), 0);
	ck_assert_int_eq(chown("bounds.conf", 10117, 0), 0);
	ck_fails(hb_bounds_load(AT_FDCWD, "bounds.conf", &b, err), "loose_permissions");
	ck_assert_int_eq(rename("bounds.conf", "elsewhere"), 0);
	ck_assert_int_eq(chown("elsewhere", 0, 0), 0);
	ck_assert_int_eq(symlink("elsewhere", "bounds.conf"), 0);
	ck_fails(hb_bounds_load(AT_FDCWD, "bounds.conf", &b, err), "unsafe_path");
	ck_assert_int_eq(unlink("bounds.conf"), 0);
	ck_assert_int_eq(mkfifo("bounds.conf", 0644), 0);
	ck_fails(hb_bounds_load(AT_FDCWD, "bounds.conf", &b, err), "policy_unreadable");
}
END_TEST

/* --- requests against the bounds --- */

static int judge(const char *bounds, const char *feature, const char *request, struct hb_error *err)
{
	struct hb_bounds *b = load(bounds);
	json_t *asked = hb_json_parse(request, strlen(request), err), *valid;
	int rc = -1;

	ck_assert_ptr_nonnull(asked);
	valid = hb_operation_validate(feature, asked, err);
	ck_assert_msg(valid != NULL, "%s: %s", request, err->message);
	rc = hb_bounds_check(b, feature, valid, err);
	json_decref(valid);
	json_decref(asked);
	hb_bounds_free(b);
	return rc;
}

static int judge_run(const char *bounds, const char *fields, struct hb_error *err)
{
	char *request = hb_asprintf("{\"action\":\"run\",\"image\":\"alpine%s\"%s%s}", PIN,
				    fields[0] ? "," : "", fields);
	int rc = judge(bounds, "docker", request, err);

	free(request);
	return rc;
}

START_TEST(test_executor_and_repository)
{
	ck_works(judge(good, "runtime", "{\"action\":\"start\"}", err));
	ck_works(judge(good, "runtime",
		       "{\"action\":\"install\",\"image\":\"ghcr.io/owner/name:v1" PIN "\"}", err));
	ck_fails(judge(good, "runtime",
		       "{\"action\":\"install\",\"image\":\"ghcr.io/owner/other:v1" PIN "\"}", err),
		 "out_of_bounds");
	ck_fails(judge(good, "ssh", "{\"profile\":\"a\",\"command\":\"id\"}", err), "not_deployed");
	ck_works(judge(good, "docker", "{\"action\":\"pull\",\"image\":\"alpine" PIN "\"}", err));
	ck_fails(judge(good, "docker", "{\"action\":\"pull\",\"image\":\"busybox" PIN "\"}", err),
		 "out_of_bounds");
	ck_works(judge(good, "local", "{\"command\":\"ls\"}", err));
}
END_TEST

START_TEST(test_h33_every_way_to_the_host_is_bounded)
{
	static const struct {
		const char *fields, *bound;
	} ways[] = {
		{"\"privileged\":true", "privileged"},
		{"\"pid_mode\":\"host\"", "host_namespaces"},
		{"\"ipc_mode\":\"host\"", "host_namespaces"},
		{"\"uts_mode\":\"host\"", "host_namespaces"},
		{"\"userns_mode\":\"host\"", "host_namespaces"},
		{"\"network\":\"host\"", "host_namespaces"},
		{"\"devices\":[\"/dev/fuse\"]", "devices"},
		{"\"capabilities_add\":[\"NET_ADMIN\"]", "capabilities"},
		{"\"capabilities_drop\":[]", "capabilities"},
		{"\"capabilities_drop\":[\"NET_RAW\"]", "capabilities"},
		{"\"ports\":[{\"host_ip\":\"0.0.0.0\",\"host_port\":80,\"container_port\":80}]",
		 "published_addresses"},
		{"\"ports\":[{\"host_ip\":\"::\",\"host_port\":80,\"container_port\":80}]",
		 "published_addresses"},
		{"\"security_opt\":[\"no-new-privileges\",\"seccomp=unconfined\"]", "security_opt"},
		{"\"security_opt\":[]", "security_opt"},
		{"\"sysctls\":[\"net.ipv4.ip_forward=1\"]", "sysctls"},
		{"\"mounts\":[{\"type\":\"bind\",\"source\":\"/home\",\"target\":\"/x\"}]", NULL},
	};
	static const char base[] = "[executors]\ndeployed = docker\n[images]\nrepositories = "
				   "docker.io/library/alpine\n";

	ck_works(judge_run(base, "", err));
	ck_works(judge_run(base, "\"ports\":[{\"host_port\":80,\"container_port\":80}]", err));
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		ck_fails(judge_run(base, ways[i].fields, err), "out_of_bounds");
		char *open = ways[i].bound
				     ? hb_asprintf("%s[docker]\n%s = yes\n", base, ways[i].bound)
				     : hb_asprintf("%s[docker]\nbind_roots = /home\n", base);
		ck_works(judge_run(open, ways[i].fields, err));
		free(open);
	}
}
END_TEST

START_TEST(test_h38_bind_root_is_compared_by_component)
{
#define BIND(source) "\"mounts\":[{\"type\":\"bind\",\"source\":\"" source "\",\"target\":\"/x\"}]"
	ck_works(judge_run(good, BIND("/srv/app"), err));
	ck_works(judge_run(good, BIND("/srv/app/below"), err));
	ck_fails(judge_run(good, BIND("/srv/app-evil"), err), "out_of_bounds");
	ck_fails(judge_run(good, BIND("/srv"), err), "out_of_bounds");
	ck_works(judge_run(good,
			   "\"mounts\":[{\"type\":\"volume\",\"source\":\"v\",\"target\":\"/x\"}]",
			   err));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bounds");
	TCase *t = test_case("bounds");

	tcase_add_test(t, test_values);
	tcase_add_test(t, test_repositories);
	tcase_add_test(t, test_nothing_given_allows_nothing);
	tcase_add_test(t, test_malformed);
	tcase_add_test(t, test_h44_missing_or_loose_is_nobody);
	tcase_add_test(t, test_executor_and_repository);
	tcase_add_test(t, test_h33_every_way_to_the_host_is_bounded);
	tcase_add_test(t, test_h38_bind_root_is_compared_by_component);
	suite_add_tcase(s, t);
	return test_run(s);
}
