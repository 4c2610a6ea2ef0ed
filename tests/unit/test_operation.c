/* The schemas: exact fields, limits, defaults; the sealed form and the digest. */
#include "tests/unit/test_util.h"

#include "common/json.h"
#include "policy/operation.h"

#define D "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define E "e123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define PIN "@sha256:" D

static json_t *parse(const char *text)
{
	struct hb_error err = {"", ""};
	json_t *value = hb_json_parse(text, strlen(text), &err);

	ck_assert_msg(value != NULL, "%s: %s", text, err.message);
	return value;
}

/* 0 and the canonical form in *out (free it; out may be NULL), or -1 */
static int validate(const char *feature, const char *request, char **out, struct hb_error *err)
{
	json_t *asked = parse(request);
	json_t *valid = hb_operation_validate(feature, asked, err);

	json_decref(asked);
	if (!valid)
		return -1;
	if (out) {
		struct hb_buf text = HB_BUF_INIT;

		ck_assert_int_eq(hb_json_canonical(valid, &text, NULL), 0);
		*out = hb_buf_take(&text);
	}
	/* Validation is idempotent: a validated form is its own validated form. */
	json_t *again = hb_operation_validate(feature, valid, err);
	ck_assert_msg(again != NULL && json_equal(valid, again), "not stable: %s", request);
	json_decref(again);
	json_decref(valid);
	return 0;
}

static void takes(const char *feature, const char *request)
{
	ck_works(validate(feature, request, NULL, err));
}

static void becomes(const char *feature, const char *request, const char *want)
{
	char *got = NULL;

	ck_works(validate(feature, request, &got, err));
	ck_assert_str_eq(got, want);
	free(got);
}

static void refuses(const char *feature, const char *request, const char *code)
{
	struct hb_error err = {"", ""};

	ck_assert_msg(validate(feature, request, NULL, &err) < 0, "taken: %s", request);
	ck_assert_msg(strcmp(err.code, code) == 0, "%s: %s (%s), wanted %s", request, err.code,
		      err.message, code);
}

/* `format` with one %s, filled with n times c. */
static char *with_text(const char *format, const char *c, size_t n)
{
	struct hb_buf text = HB_BUF_INIT;
	const char *at = strstr(format, "%s");

	hb_buf_add(&text, format, (size_t)(at - format));
	for (size_t i = 0; i < n; i++)
		hb_buf_adds(&text, c);
	hb_buf_adds(&text, at + 2);
	return hb_buf_take(&text);
}

START_TEST(test_features_and_actions)
{
	ck_assert_str_eq(hb_feature_canonical("sandbox"), "local");
	ck_assert_str_eq(hb_feature_canonical("runtime"), "runtime");
	ck_assert_ptr_null(hb_feature_canonical("Runtime"));
	refuses("other", "{}", "unknown_feature");
	refuses("runtime", "{}", "missing_field");
	refuses("runtime", "{\"action\":\"explode\"}", "bad_action");
	refuses("runtime", "{\"action\":1}", "bad_action");
	refuses("docker", "{\"action\":\"exec\",\"container\":\"web\"}", "bad_action");
	refuses("docker", "{\"Action\":\"list\"}", "missing_field");
	refuses("local", "{\"command\":\"ls\",\"action\":\"command\"}", "unknown_field");
}
END_TEST

START_TEST(test_local)
{
	char *text;

	becomes("local", "{\"command\":\"ls\"}",
		"{\"command\":\"ls\",\"net_raw\":false,\"network\":\"none\",\"timeout\":120,"
		"\"workdir\":\"/workspace\"}");
	takes("sandbox",
	      "{\"command\":\"a\\nb\\tc\\r\",\"workdir\":\"/workspace/a-b_c.d\",\"timeout\":900,"
	      "\"network\":\"egress\",\"net_raw\":true}");
	refuses("local", "{}", "missing_field");
	refuses("local", "{\"command\":\"\"}", "out_of_range");
	refuses("local", "{\"command\":1}", "bad_type");
	refuses("local", "{\"command\":null}", "bad_type");
	refuses("local", "{\"command\":\"a\",\"timeout\":0}", "out_of_range");
	refuses("local", "{\"command\":\"a\",\"timeout\":901}", "out_of_range");
	refuses("local", "{\"command\":\"a\",\"timeout\":\"9\"}", "bad_type");
	refuses("local", "{\"command\":\"a\",\"timeout\":true}", "bad_type");
	refuses("local", "{\"command\":\"a\",\"network\":\"host\"}", "bad_network");
	refuses("local", "{\"command\":\"a\",\"net_raw\":1}", "bad_type");
	refuses("local", "{\"command\":\"a\",\"env\":{}}", "unknown_field");
	refuses("local", "{\"command\":\"a\\u0007\"}", "out_of_range");
	refuses("local", "{\"command\":\"a\\u007f\"}", "out_of_range");
	for (int over = 0; over < 2; over++) {
		/* code points, not bytes */
		text = with_text("{\"command\":\"%s\"}", "\xf0\x9f\x98\x80", 4000 + (size_t)over);
		if (over)
			refuses("local", text, "out_of_range");
		else
			takes("local", text);
		free(text);
	}
}
END_TEST

START_TEST(test_local_workdir)
{
	static const char *const bad[] = {"/",
					  "/workspaces",
					  "/workspace/",
					  "/workspace/../etc",
					  "/workspace//a",
					  "/workspace/./a",
					  "workspace",
					  "/etc",
					  "/workspace/a b",
					  "/workspace/caf\xc3\xa9",
					  "/workspace/a$b"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *text = hb_asprintf("{\"command\":\"a\",\"workdir\":\"%s\"}", bad[i]);

		refuses("local", text, "bad_workdir");
		free(text);
	}
	char *text = with_text("{\"command\":\"a\",\"workdir\":\"/workspace/%s\"}", "a", 245);
	takes("local", text);
	free(text);
	text = with_text("{\"command\":\"a\",\"workdir\":\"/workspace/%s\"}", "a", 246);
	refuses("local", text, "out_of_range");
	free(text);
}
END_TEST

START_TEST(test_ssh)
{
	becomes("ssh", "{\"profile\":\"db-1_a\",\"command\":\"id\"}",
		"{\"command\":\"id\",\"profile\":\"db-1_a\",\"timeout\":120}");
	refuses("ssh", "{\"profile\":\"db\"}", "command_or_argv");
	refuses("ssh", "{\"profile\":\"db\",\"command\":\"id\",\"argv\":[\"id\"]}",
		"command_or_argv");
	refuses("ssh", "{\"command\":\"id\"}", "missing_field");
	refuses("ssh", "{\"profile\":\"db\",\"argv\":[]}", "out_of_range");
	refuses("ssh", "{\"profile\":\"db\",\"argv\":[1]}", "bad_type");
	refuses("ssh", "{\"profile\":\"db\",\"command\":\"id\",\"host\":\"x\"}", "unknown_field");
}
END_TEST

START_TEST(test_h41_a_profile_is_never_an_option)
{
	static const char *const bad[] = {"-oProxyCommand=touch /tmp/x",
					  "[-oProxyCommand=x]",
					  "-F/tmp/cfg",
					  "a b",
					  "a;b",
					  "a`b`",
					  "a%h",
					  "A",
					  "_a",
					  "..",
					  "a/b",
					  "a\\nb"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *text = hb_asprintf("{\"profile\":\"%s\",\"command\":\"id\"}", bad[i]);

		refuses("ssh", text, "bad_profile");
		free(text);
	}
}
END_TEST

#define PROFILE(host, user) \
	"{\"profile\":\"db\",\"command\":\"id\",\"timeout\":120,\"sealed_profile\":{\"host\":" \
	"\"" host "\",\"port\":22,\"user\":\"" user \
	"\",\"authority\":\"user\",\"fingerprint\":\"SHA256:" \
	"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"," \
	"\"auth\":\"password\",\"credential_revision\":\"" D "\",\"known_hosts_sha256\":\"" D \
	"\",\"credential_tag\":\"" D "\"}}"

static int check_sealed(const char *feature, const char *request, struct hb_error *err)
{
	json_t *sealed = parse(request);
	int rc = hb_operation_check_sealed(feature, sealed, err);

	json_decref(sealed);
	return rc;
}

START_TEST(test_h41_sealed_host_and_user_have_a_strict_form)
{
	ck_works(check_sealed("ssh", PROFILE("db.example.org", "deploy"), err));
	ck_works(check_sealed("ssh", PROFILE("192.0.2.1", "deploy"), err));
	ck_works(check_sealed("ssh", PROFILE("2001:db8::1", "d"), err));
	ck_fails(check_sealed("ssh", PROFILE("-oProxyCommand=touch", "deploy"), err), "bad_host");
	ck_fails(check_sealed("ssh", PROFILE("[-oProxyCommand=touch]", "deploy"), err), "bad_host");
	ck_fails(check_sealed("ssh", PROFILE("a b", "deploy"), err), "bad_host");
	ck_fails(check_sealed("ssh", PROFILE("a;b", "deploy"), err), "bad_host");
	ck_fails(check_sealed("ssh", PROFILE("a\\nb", "deploy"), err), "bad_host");
	ck_fails(check_sealed("ssh", PROFILE("%h", "deploy"), err), "bad_host");
	ck_fails(check_sealed("ssh", PROFILE("db", "-oProxyCommand=x"), err), "bad_user");
	ck_fails(check_sealed("ssh", PROFILE("db", "-F/tmp/cfg"), err), "bad_user");
	ck_fails(check_sealed("ssh", PROFILE("db", "a b"), err), "bad_user");
	ck_fails(check_sealed("ssh", PROFILE("db", "a@b"), err), "bad_user");
}
END_TEST

START_TEST(test_h42_argv_is_kept_word_by_word)
{
	static const char words[] = "[\"printf\",\"a b\",\"\",\"x;touch "
				    "/tmp/x\",\"$(id)\",\"*\",\"'\",\"two\\nlines\",\"-n\"]";
	char *text = hb_asprintf("{\"argv\":%s,\"profile\":\"db\",\"timeout\":120}", words);
	char *long_words;

	becomes("ssh", text, text);
	free(text);
	refuses("ssh", "{\"profile\":\"db\",\"argv\":[\"\",\"x\"]}", "bad_argv");
	refuses("ssh", "{\"profile\":\"db\",\"argv\":[\"a\",\"b\\u0001\"]}", "out_of_range");
	long_words = with_text("{\"profile\":\"db\",\"argv\":[\"a\",\"%s\"]}", "x", 3999);
	takes("ssh", long_words);
	free(long_words);
	long_words = with_text("{\"profile\":\"db\",\"argv\":[\"a\",\"%s\"]}", "x", 4000);
	refuses("ssh", long_words, "out_of_range");
	free(long_words);
}
END_TEST

START_TEST(test_docker_simple_actions)
{
	becomes("docker", "{\"action\":\"list\"}",
		"{\"action\":\"list\",\"all\":false,\"timeout\":120}");
	becomes("docker", "{\"action\":\"logs\",\"container\":\"web.1\"}",
		"{\"action\":\"logs\",\"container\":\"web.1\",\"tail\":200,\"timeout\":120}");
	becomes("docker", "{\"action\":\"remove\",\"container\":\"web\"}",
		"{\"action\":\"remove\",\"container\":\"web\",\"force\":false,\"remove_volumes\":"
		"false,\"timeout\":120}");
	takes("docker", "{\"action\":\"stop\",\"container\":\"0123456789ab\"}");
	refuses("docker", "{\"action\":\"stop\"}", "missing_field");
	refuses("docker", "{\"action\":\"stop\",\"container\":\"-a\"}", "bad_container");
	refuses("docker", "{\"action\":\"stop\",\"container\":\"a/b\"}", "bad_container");
	refuses("docker", "{\"action\":\"stop\",\"container\":\"web\",\"force\":true}",
		"unknown_field");
	refuses("docker", "{\"action\":\"logs\",\"container\":\"web\",\"tail\":0}", "out_of_range");
	refuses("docker", "{\"action\":\"logs\",\"container\":\"web\",\"tail\":2001}",
		"out_of_range");
	takes("docker", "{\"action\":\"pull\",\"image\":\"ghcr.io/a/b" PIN "\"}");
	refuses("docker", "{\"action\":\"pull\",\"image\":\"ghcr.io/a/b:latest\"}",
		"image_not_pinned");
	refuses("docker", "{\"action\":\"pull\",\"image\":\"ghcr.io/a/b:v1" PIN "\"}",
		"image_malformed");
	refuses("docker", "{\"action\":\"pull\",\"image\":\"oci:/srv/x" PIN "\"}",
		"image_malformed");
	refuses("docker", "{\"action\":\"pull\",\"image\":\"sha256:" D "\"}", "image_not_pinned");
}
END_TEST

#define RUN(fields) "{\"action\":\"run\",\"image\":\"alpine" PIN "\"" fields "}"

START_TEST(test_docker_run_defaults)
{
	becomes("docker", RUN(""),
		"{\"action\":\"run\",\"auto_remove\":false,\"capabilities_add\":[],\"capabilities_"
		"drop\":[\"ALL\"],"
		"\"command\":[],\"cpus\":1,\"detach\":false,\"devices\":[],\"dns\":[],"
		"\"entrypoint\":[],\"environment\":[],"
		"\"image\":\"alpine" PIN
		"\",\"ipc_mode\":\"default\",\"labels\":[],\"memory_mb\":512,\"mounts\":[],"
		"\"network\":\"none\",\"pid_mode\":\"default\",\"pids_limit\":256,\"ports\":[],"
		"\"privileged\":false,"
		"\"read_only_rootfs\":true,\"restart_policy\":\"no\",\"security_opt\":[\"no-new-"
		"privileges\"],\"sysctls\":[],"
		"\"timeout\":120,\"userns_mode\":\"default\",\"uts_mode\":\"default\"}");
	takes("docker", "{\"action\":\"run\",\"image\":\"sha256:" D "\"}");
	takes("docker",
	      RUN(",\"name\":\"w\",\"user\":\"1000:1000\",\"workdir\":\"/"
		  "srv\",\"dns\":[\"9.9.9.9\",\"::1\"],"
		  "\"environment\":[{\"name\":\"A\",\"value\":\" \"}],\"labels\":[\"a.b/c=\"],"
		  "\"devices\":[\"/dev/fuse:/dev/fuse:r\"],\"sysctls\":[\"net.x=1\"]"));
}
END_TEST

START_TEST(test_docker_run_limits)
{
	static const struct {
		const char *fields, *code;
	} bad[] = {
		{"\"memory_mb\":15", "out_of_range"},
		{"\"memory_mb\":32769", "out_of_range"},
		{"\"cpus\":0", "out_of_range"},
		{"\"cpus\":33", "out_of_range"},
		{"\"pids_limit\":15", "out_of_range"},
		{"\"pids_limit\":8193", "out_of_range"},
		{"\"restart_policy\":\"never\"", "bad_restart_policy"},
		{"\"pid_mode\":\"container:x\"", "bad_pid_mode"},
		{"\"network\":\"container:x\"", "bad_network"},
		{"\"name\":\"\"", "out_of_range"},
		{"\"user\":\"-x\"", "bad_user"},
		{"\"user\":\"a:\"", "bad_user"},
		{"\"workdir\":\"srv\"", "bad_workdir"},
		{"\"dns\":[\"ns.example.org\"]", "bad_dns"},
		{"\"labels\":[\"=x\"]", "bad_labels"},
		{"\"capabilities_add\":[\"net_admin\"]", "bad_capabilities_add"},
		{"\"devices\":[\"/etc/shadow\"]", "bad_devices"},
		{"\"devices\":[\"/dev/../etc/x\"]", "bad_devices"},
		{"\"devices\":[\"/dev/x:/dev/x:q\"]", "bad_devices"},
		{"\"environment\":[{\"name\":\"A\",\"secret_ref\":\"x\"}]", "unknown_field"},
		{"\"environment\":[{\"name\":\"A\",\"value\":\"\"}]", "out_of_range"},
		{"\"environment\":[{\"name\":\"1A\",\"value\":\"x\"}]", "bad_name"},
		{"\"environment\":[{\"name\":\"A\",\"value\":\"x\"},{\"name\":\"A\",\"value\":"
		 "\"y\"}]",
		 "repeated_value"},
		{"\"environment\":{\"A\":\"x\"}", "bad_type"},
		{"\"ports\":[{\"host_port\":0,\"container_port\":1}]", "out_of_range"},
		{"\"ports\":[{\"host_port\":1,\"container_port\":65536}]", "out_of_range"},
		{"\"ports\":[{\"host_port\":1,\"container_port\":1,\"protocol\":\"sctp\"}]",
		 "bad_protocol"},
		{"\"ports\":[{\"host_ip\":\"localhost\",\"host_port\":1,\"container_port\":1}]",
		 "bad_host_ip"},
		{"\"mounts\":[{\"type\":\"bind\",\"target\":\"/x\"}]", "missing_field"},
		{"\"mounts\":[{\"type\":\"tmpfs\",\"source\":\"/a\",\"target\":\"/x\"}]",
		 "bad_mount"},
		{"\"mounts\":[{\"type\":\"npipe\",\"source\":\"/a\",\"target\":\"/x\"}]",
		 "bad_type"},
		{"\"mounts\":[{\"type\":\"volume\",\"source\":\"/a\",\"target\":\"/x\"}]",
		 "bad_mount"},
		{"\"mounts\":[{\"type\":\"bind\",\"source\":\"a\",\"target\":\"/x\"}]",
		 "bad_mount"},
		{"\"mounts\":[{\"type\":\"bind\",\"source\":\"/a\",\"target\":\"/\"}]",
		 "bad_mount"},
		{"\"mounts\":[{\"type\":\"tmpfs\",\"target\":\"/"
		 "x\"},{\"type\":\"tmpfs\",\"target\":\"/x\"}]",
		 "repeated_value"},
		{"\"auto_remove\":true,\"restart_policy\":\"always\"", "conflicting_fields"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *text = hb_asprintf(RUN(",%s"), bad[i].fields);

		refuses("docker", text, bad[i].code);
		free(text);
	}
}
END_TEST

START_TEST(test_docker_list_lengths)
{
	char *text = with_text(RUN(",\"command\":[\"a\"%s]"), ",\"a\"", 31);

	takes("docker", text);
	free(text);
	text = with_text(RUN(",\"command\":[\"a\"%s]"), ",\"a\"", 32);
	refuses("docker", text, "out_of_range");
	free(text);
	text = with_text(RUN(",\"command\":[\"%s\"]"), "\xc3\xa9", 512);
	takes("docker", text);
	free(text);
	text = with_text(RUN(",\"command\":[\"%s\"]"), "a", 513);
	refuses("docker", text, "out_of_range");
	free(text);
}
END_TEST

START_TEST(test_mounts_are_read_only_unless_asked)
{
	json_t *asked = parse(
		RUN(",\"mounts\":[{\"type\":\"bind\",\"source\":\"/a\",\"target\":\"/a\"},"
		    "{\"type\":\"volume\",\"source\":\"v\",\"target\":\"/b\",\"read_only\":false},"
		    "{\"type\":\"tmpfs\",\"target\":\"/c\"}]"));
	json_t *valid = hb_operation_validate("docker", asked, NULL),
	       *mounts = json_object_get(valid, "mounts");

	ck_assert(hb_json_bool(json_array_get(mounts, 0), "read_only", false));
	ck_assert(!hb_json_bool(json_array_get(mounts, 1), "read_only", true));
	ck_assert(!hb_json_bool(json_array_get(mounts, 2), "read_only", true));
	json_decref(valid);
	json_decref(asked);
}
END_TEST

START_TEST(test_h33_only_permitted_fields)
{
	static const char *const ways[] = {
		"\"HostConfig\":{\"Binds\":[\"/:/x\"]}",
		"\"Binds\":[\"/:/x\"]",
		"\"Mounts\":[]",
		"\"Volumes\":{}",
		"\"volumes_from\":[\"x\"]",
		"\"VolumesFrom\":[\"x\"]",
		"\"Privileged\":true",
		"\"PRIVILEGED\":true",
		"\"device_cgroup_rules\":[\"a\"]",
		"\"runtime\":\"x\"",
		"\"cgroup_parent\":\"/\"",
		"\"cgroupns_mode\":\"host\"",
		"\"tmpfs\":{}",
		"\"env_file\":\"x\"",
		"\"privileged \":true",
	};
	static const char *const nested[] = {
		"\"mounts\":[{\"type\":\"volume\",\"source\":\"v\",\"target\":\"/"
		"x\",\"driver_opts\":{\"o\":\"bind\"}}]",
		"\"mounts\":[{\"type\":\"bind\",\"source\":\"/a\",\"target\":\"/"
		"x\",\"propagation\":\"shared\"}]",
		"\"ports\":[{\"host_port\":1,\"container_port\":1,\"HostIp\":\"0.0.0.0\"}]",
	};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		char *text = hb_asprintf(RUN(",%s"), ways[i]);

		refuses("docker", text, "unknown_field");
		free(text);
	}
	for (size_t i = 0; i < sizeof(nested) / sizeof(nested[0]); i++) {
		char *text = hb_asprintf(RUN(",%s"), nested[i]);

		refuses("docker", text, "unknown_field");
		free(text);
	}
	/* the same key twice never gets as far as a schema */
	const char *twice = RUN(",\"privileged\":false,\"privileged\":true");
	struct hb_error err = {"", ""};
	ck_assert_ptr_null(hb_json_parse(twice, strlen(twice), &err));
	ck_assert_str_eq(err.code, "duplicate_key");
}
END_TEST

START_TEST(test_h38_bind_source_is_a_plain_path)
{
	static const char *const bad[] = {"/srv/app/../x", "/srv/app/./x", "/srv//app", "/srv/app/",
					  "srv/app",       "~/app",        ""};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *text = hb_asprintf(RUN(",\"mounts\":[{\"type\":\"bind\",\"source\":\"%s\","
					     "\"target\":\"/x\"}]"),
					 bad[i]);

		refuses("docker", text, bad[i][0] ? "bad_mount" : "out_of_range");
		free(text);
	}
}
END_TEST

START_TEST(test_runtime)
{
	char *got = NULL;

	becomes("runtime",
		"{\"action\":\"install\",\"image\":\"ghcr.io/a/b:v1" PIN
		"\",\"platform\":\"linux/arm64\"}",
		"{\"action\":\"install\",\"image\":\"ghcr.io/a/b:v1" PIN
		"\",\"platform\":\"linux/arm64\",\"timeout\":3600}");
	ck_works(validate("runtime", "{\"action\":\"upgrade\",\"image\":\"a" PIN "\"}", &got, err));
	ck_assert_ptr_nonnull(strstr(got, "\"platform\":\"linux/"));
	free(got);
	becomes("runtime", "{\"action\":\"rollback\"}",
		"{\"action\":\"rollback\",\"data\":\"keep\",\"timeout\":3600}");
	becomes("runtime", "{\"action\":\"restart\"}", "{\"action\":\"restart\",\"timeout\":120}");
	takes("runtime",
	      "{\"action\":\"rollback\",\"release\":\"" D "\",\"data\":\"restore\",\"timeout\":1}");
	takes("runtime", "{\"action\":\"restore\",\"backup\":\"a.tar.zst\"}");
	refuses("runtime", "{\"action\":\"install\"}", "missing_field");
	refuses("runtime", "{\"action\":\"install\",\"image\":\"a:v1\"}", "image_not_pinned");
	refuses("runtime", "{\"action\":\"install\",\"image\":\"a@sha256:x\"}", "bad_digest");
	refuses("runtime",
		"{\"action\":\"install\",\"image\":\"a" PIN "\",\"platform\":\"linux/riscv64\"}",
		"bad_platform");
	refuses("runtime",
		"{\"action\":\"install\",\"image\":\"a" PIN "\",\"platform_digest\":\"" D "\"}",
		"bad_digest");
	refuses("runtime", "{\"action\":\"install\",\"image\":\"a" PIN "\",\"timeout\":3601}",
		"out_of_range");
	refuses("runtime", "{\"action\":\"install\",\"image\":\"a" PIN "\",\"release\":\"" D "\"}",
		"unknown_field");
	refuses("runtime", "{\"action\":\"start\",\"image\":\"a" PIN "\"}", "unknown_field");
	refuses("runtime", "{\"action\":\"rollback\",\"release\":\"sha256:" D "\"}",
		"out_of_range");
	refuses("runtime", "{\"action\":\"rollback\",\"data\":\"drop\"}", "bad_data");
	refuses("runtime", "{\"action\":\"restore\"}", "missing_field");
	refuses("runtime", "{\"action\":\"restore\",\"backup\":\"../x\"}", "bad_backup");
	refuses("runtime", "{\"action\":\"restore\",\"backup\":\"/x\"}", "bad_backup");
	refuses("runtime", "{\"action\":\"restore\",\"backup\":\".x\"}", "bad_backup");
}
END_TEST

/* --- sealed --- */

#define CURRENT \
	"\"settings_sha256\":\"" D "\",\"current\":{\"manifest_digest\":\"\",\"image\":\"\"}"
#define CONTENTS(release) \
	"\"contents\":{\"created_at\":1,\"files\":2,\"bytes\":3,\"host_id\":\"h\",\"release\":\"" release \
	"\",\"image\":\"i\"}"
#define LAYER \
	"{\"digest\":\"" D "\",\"size\":10,\"media_type\":\"application/" \
			   "vnd.oci.image.layer.v1.tar+gzip\",\"diff_id\":\"" E "\"}"
#define RESOLVED(index, manifest, layers, total) \
	"\"resolved\":{\"index_digest\":\"" index "\",\"manifest_digest\":\"" manifest \
	"\",\"config_digest\":\"" E "\",\"layers\":[" layers "],\"total_size\":" total \
	",\"entrypoint\":[],\"command\":[\"a\",\"\"],\"working_dir\":\"\"," \
	"\"environment\":[\"A\"],\"user\":\"\",\"ports\":[],\"volumes\":[],\"version\":\"\"}"
#define INSTALL(extra, sealed) \
	"{\"action\":\"install\",\"image\":\"a" PIN \
	"\",\"platform\":\"linux/amd64\",\"timeout\":60" extra ",\"sealed\":{" sealed "}}"

START_TEST(test_sealed_install)
{
	static const char good[] = INSTALL("", CURRENT "," RESOLVED(D, E, LAYER, "10"));

	ck_works(check_sealed("runtime", good, err));
	ck_works(check_sealed("runtime",
			      INSTALL(",\"platform_digest\":\"sha256:" E "\"",
				      CURRENT "," RESOLVED(D, E, LAYER, "11")),
			      err));
	ck_fails(check_sealed("runtime", INSTALL("", CURRENT), err), "missing_field");
	ck_fails(check_sealed("runtime", INSTALL("", RESOLVED(D, E, LAYER, "10")), err),
		 "missing_field");
	ck_fails(check_sealed("runtime", INSTALL("", CURRENT "," RESOLVED(E, E, LAYER, "10")), err),
		 "sealed_mismatch");
	ck_fails(check_sealed("runtime",
			      INSTALL(",\"platform_digest\":\"sha256:" D "\"",
				      CURRENT "," RESOLVED(D, E, LAYER, "10")),
			      err),
		 "sealed_mismatch");
	ck_fails(check_sealed("runtime",
			      INSTALL("", CURRENT "," RESOLVED(D, E, LAYER "," LAYER, "10")), err),
		 "sealed_mismatch");
	ck_fails(check_sealed("runtime", INSTALL("", CURRENT "," RESOLVED(D, E, "", "10")), err),
		 "out_of_range");
	ck_fails(check_sealed("runtime",
			      INSTALL("", CURRENT ",\"more\":1," RESOLVED(D, E, LAYER, "10")), err),
		 "unknown_field");
	ck_fails(check_sealed("runtime",
			      INSTALL("", CURRENT "," RESOLVED(D, "sha256:" E, LAYER, "10")), err),
		 "out_of_range");
	ck_fails(check_sealed("runtime",
			      "{\"action\":\"install\",\"image\":\"a" PIN
			      "\",\"platform\":\"linux/amd64\","
			      "\"timeout\":60}",
			      err),
		 "not_sealed");
	/* every default must be there */
	ck_fails(check_sealed("runtime",
			      "{\"action\":\"install\",\"image\":\"a" PIN
			      "\",\"platform\":\"linux/amd64\","
			      "\"sealed\":{" CURRENT "," RESOLVED(D, E, LAYER, "10") "}}",
			      err),
		 "not_sealed");
}
END_TEST

#define DETAILS \
	"{\"config_digest\":\"" D "\",\"layers\":[\"" D "\"],\"entrypoint\":[],\"command\":[\"x\"]," \
	"\"working_dir\":\"/\",\"environment\":[],\"user\":\"\",\"ports\":[],\"volumes\":[]," \
	"\"version\":\"1\"}"
#define TARGET "\"target\":{\"image\":\"a\",\"details\":" DETAILS "}"
#define SNAPSHOT "\"snapshot\":{\"id\":\"ab\",\"taken_at\":1,\"files\":2,\"bytes\":3}"

START_TEST(test_sealed_without_resolved)
{
	static const char *const plain[] = {"start", "stop", "restart", "backup", "remove"};

	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		char *text = hb_asprintf(
			"{\"action\":\"%s\",\"timeout\":9,\"sealed\":{" CURRENT "}}", plain[i]);

		ck_works(check_sealed("runtime", text, err));
		free(text);
		text = hb_asprintf("{\"action\":\"%s\",\"timeout\":9,\"sealed\":{" CURRENT
				   "," RESOLVED(D, E, LAYER, "10") "}}",
				   plain[i]);
		ck_fails(check_sealed("runtime", text, err), "unknown_field");
		free(text);
	}
	ck_works(check_sealed("runtime",
			      "{\"action\":\"prune\",\"timeout\":9,\"sealed\":{" CURRENT
			      ",\"set_aside\":[\"/a\"],\"undo\":\"/b\"}}",
			      err));
	ck_fails(check_sealed("runtime", "{\"action\":\"prune\",\"timeout\":9,\"sealed\":{" CURRENT "}}",
			      err),
		 "missing_field");
	ck_works(check_sealed(
		"runtime",
		"{\"action\":\"rollback\",\"data\":\"keep\",\"timeout\":9,\"sealed\":{" CURRENT
		",\"release\":\"" D "\"," TARGET "}}",
		err));
	ck_works(check_sealed(
		"runtime",
		"{\"action\":\"rollback\",\"data\":\"restore\",\"timeout\":9,\"sealed\":{" CURRENT
		",\"release\":\"" D "\"," TARGET "," SNAPSHOT "}}",
		err));
	/* Which copy the data goes back to is part of it, and only then. */
	ck_fails(check_sealed(
			 "runtime",
			 "{\"action\":\"rollback\",\"data\":\"restore\",\"timeout\":9,\"sealed\":{" CURRENT
			 ",\"release\":\"" D "\"," TARGET "}}",
			 err),
		 "sealed_mismatch");
	ck_fails(check_sealed(
			 "runtime",
			 "{\"action\":\"rollback\",\"data\":\"keep\",\"timeout\":9,\"sealed\":{" CURRENT
			 ",\"release\":\"" D "\"," TARGET "," SNAPSHOT "}}",
			 err),
		 "sealed_mismatch");
	ck_fails(check_sealed("runtime",
			      "{\"action\":\"rollback\",\"data\":\"keep\",\"timeout\":9,\"sealed\":"
			      "{" CURRENT "}}",
			      err),
		 "missing_field");
	ck_fails(check_sealed("runtime",
			      "{\"action\":\"rollback\",\"data\":\"keep\",\"release\":\"" E
			      "\",\"timeout\":9,"
			      "\"sealed\":{" CURRENT ",\"release\":\"" D "\"," TARGET "}}",
			      err),
		 "sealed_mismatch");
	ck_works(check_sealed(
		"runtime",
		"{\"action\":\"restore\",\"backup\":\"b\",\"timeout\":9,\"sealed\":{" CURRENT
		",\"backup_sha256\":\"" D "\"," CONTENTS("") "}}",
		err));
	ck_fails(check_sealed(
			 "runtime",
			 "{\"action\":\"restore\",\"backup\":\"b\",\"timeout\":9,\"sealed\":{" CURRENT
			 ",\"backup_sha256\":\"" D "\"," CONTENTS("x") "}}",
			 err),
		 "bad_digest");
	ck_fails(check_sealed(
			 "runtime",
			 "{\"action\":\"restore\",\"backup\":\"b\",\"timeout\":9,\"sealed\":{" CURRENT
			 ",\"backup_sha256\":\"" D "\"}}",
			 err),
		 "missing_field");
	ck_fails(check_sealed(
			 "runtime",
			 "{\"action\":\"start\",\"timeout\":9,\"sealed\":{\"settings_sha256\":\"" D
			 "\",\"current\":{\"manifest_digest\":\"\",\"image\":\"a\"}}}",
			 err),
		 "sealed_mismatch");
	ck_fails(check_sealed(
			 "runtime",
			 "{\"action\":\"start\",\"timeout\":9,\"sealed\":{\"settings_sha256\":\"" D
			 "\",\"current\":{\"manifest_digest\":\"x\",\"image\":\"a\"}}}",
			 err),
		 "bad_digest");
}
END_TEST

START_TEST(test_sealed_docker_names_by_id)
{
	ck_works(check_sealed("docker",
			      "{\"action\":\"stop\",\"container\":\"" D
			      "\",\"resolved_name\":\"web\","
			      "\"timeout\":9}",
			      err));
	ck_fails(
		check_sealed("docker",
			     "{\"action\":\"stop\",\"container\":\"web\",\"resolved_name\":\"web\","
			     "\"timeout\":9}",
			     err),
		"not_sealed");
	ck_fails(check_sealed("docker",
			      "{\"action\":\"stop\",\"container\":\"" D "\",\"timeout\":9}", err),
		 "not_sealed");
	ck_works(check_sealed("docker", "{\"action\":\"list\",\"all\":true,\"timeout\":9}", err));
	ck_fails(check_sealed("docker", "{\"action\":\"list\",\"timeout\":9}", err), "not_sealed");
}
END_TEST

START_TEST(test_forms)
{
	json_t *sealed = parse("{\"action\":\"stop\",\"container\":\"" D
			       "\",\"resolved_name\":\"web\",\"timeout\":9}");
	json_t *plain = hb_operation_unsealed("docker", sealed);

	ck_assert_int_eq(hb_operation_is_sealed("docker", sealed), 1);
	ck_assert_int_eq(hb_operation_is_sealed("docker", plain), 0);
	ck_assert_ptr_null(json_object_get(plain, "resolved_name"));
	ck_assert_ptr_nonnull(json_object_get(sealed, "resolved_name"));
	ck_assert_str_eq(hb_operation_action("docker", sealed), "stop");
	ck_assert_int_eq(hb_operation_timeout("docker", sealed), 9);
	json_decref(plain);
	json_decref(sealed);
	plain = parse("{\"command\":\"ls\"}");
	ck_assert_str_eq(hb_operation_action("local", plain), "command");
	ck_assert_str_eq(hb_operation_action("other", plain), "");
	ck_assert_ptr_null(hb_operation_unsealed("other", plain));
	json_decref(plain);
}
END_TEST

START_TEST(test_digest)
{
	/* sha256 of {"feature":"local","request":{"a":1,"b":"x"}} */
	static const char canonical[] = "{\"feature\":\"local\",\"request\":{\"a\":1,\"b\":\"x\"}}";
	json_t *request = parse("{\"b\":\"x\",\"a\":1}"), *other = parse("{\"b\":\"x\",\"a\":2}");
	char hex[HB_HEX256], want[HB_HEX256];

	hb_sha256_hex(canonical, strlen(canonical), want);
	ck_works(hb_operation_digest("local", request, hex, err));
	ck_assert_str_eq(hex, want);
	/* one name for one feature */
	ck_works(hb_operation_digest("sandbox", request, hex, err));
	ck_assert_str_eq(hex, want);
	ck_works(hb_operation_digest("ssh", request, hex, err));
	ck_assert_str_ne(hex, want);
	ck_works(hb_operation_digest("local", other, hex, err));
	ck_assert_str_ne(hex, want);
	ck_fails(hb_operation_digest("other", request, hex, err), "unknown_feature");
	json_decref(request);
	json_decref(other);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("operation");
	TCase *t = test_case("operation");

	tcase_add_test(t, test_features_and_actions);
	tcase_add_test(t, test_local);
	tcase_add_test(t, test_local_workdir);
	tcase_add_test(t, test_ssh);
	tcase_add_test(t, test_h41_a_profile_is_never_an_option);
	tcase_add_test(t, test_h41_sealed_host_and_user_have_a_strict_form);
	tcase_add_test(t, test_h42_argv_is_kept_word_by_word);
	tcase_add_test(t, test_docker_simple_actions);
	tcase_add_test(t, test_docker_run_defaults);
	tcase_add_test(t, test_docker_run_limits);
	tcase_add_test(t, test_docker_list_lengths);
	tcase_add_test(t, test_mounts_are_read_only_unless_asked);
	tcase_add_test(t, test_h33_only_permitted_fields);
	tcase_add_test(t, test_h38_bind_source_is_a_plain_path);
	tcase_add_test(t, test_runtime);
	tcase_add_test(t, test_sealed_install);
	tcase_add_test(t, test_sealed_without_resolved);
	tcase_add_test(t, test_sealed_docker_names_by_id);
	tcase_add_test(t, test_forms);
	tcase_add_test(t, test_digest);
	suite_add_tcase(s, t);
	return test_run(s);
}
