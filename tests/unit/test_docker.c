/* What the docker executor serialises and reads, without an engine. */
#include "tests/unit/test_util.h"

#include "broker/docker/create.h"
#include "broker/docker/engine.h"
#include "broker/docker/engine_version.h"
#include "broker/docker/output.h"
#include "broker/docker/redact.h"
#include "common/json.h"
#include "policy/operation.h"

#define IMAGE "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define NETWORK "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

/* --- versions (H36) --- */

START_TEST(test_h36_version_windows)
{
	ck_assert_int_eq(hb_engine_version_choose("1.43", "1.24", NULL), 43);
	ck_assert_int_eq(hb_engine_version_choose("1.52", "1.44", NULL), 52);
	ck_assert_int_eq(hb_engine_version_choose("1.70", "1.44", NULL), HB_ENGINE_API_MAX);
	ck_assert_int_eq(hb_engine_version_choose("1.40", NULL, NULL), 40);
	ck_fails(hb_engine_version_choose("1.70", "1.60", err), "engine_version");
	ck_fails(hb_engine_version_choose("1.39", "1.12", err), "engine_version");
}
END_TEST

START_TEST(test_h36_refusal_names_both_ranges)
{
	struct hb_error err;

	ck_assert_int_lt(hb_engine_version_choose("1.70", "1.60", &err), 0);
	ck_assert_ptr_nonnull(strstr(err.message, "1.60 to 1.70"));
	ck_assert_ptr_nonnull(strstr(err.message, "1.40 to 1.52"));
}
END_TEST

START_TEST(test_versions_that_are_none)
{
	static const char *const bad[] = {"",     "1",       "1.",    "2.41", "1.4x",
					  "1.-1", "1.99999", "01.41", " 1.41"};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ck_fails(hb_engine_version_choose(bad[i], NULL, err), "engine_bad_reply");
	ck_fails(hb_engine_version_choose("1.41", "1.50", err), "engine_bad_reply");
}
END_TEST

/* --- frames (H37) --- */

static int feed(struct hb_frames *f, const void *data, size_t len, size_t step, struct hb_output *o,
		struct hb_error *err)
{
	for (size_t at = 0; at < len; at += step) {
		if (hb_frames_feed(f, (const char *)data + at, len - at < step ? len - at : step,
				   hb_output_sink, o, err) < 0)
			return -1;
	}
	return 0;
}

static const char two[] = "\1\0\0\0\0\0\0\3out"
			  "\1\0\0\0\0\0\0\0"
			  "\2\0\0\0\0\0\0\4err\n"
			  "\1\0\0\0\0\0\0\1!";

START_TEST(test_h37_header_split_over_reads)
{
	for (size_t step = 1; step < sizeof two; step++) {
		struct hb_frames f = {0};
		struct hb_output o = {0};
		json_t *result = json_object();

		ck_works(feed(&f, two, sizeof two - 1, step, &o, err));
		ck_assert(hb_frames_whole(&f));
		hb_output_result(&o, result);
		ck_assert_str_eq(hb_json_text(result, "output", ""), "outerr\n!");
		ck_assert_str_eq(hb_json_text(result, "stderr", ""), "err\n");
		ck_assert_int_eq(hb_json_int(result, "stdout_bytes", 0), 4);
		ck_assert_int_eq(hb_json_int(result, "stderr_bytes", 0), 4);
		json_decref(result);
		hb_output_free(&o);
	}
}
END_TEST

START_TEST(test_h37_cut_stream_is_noticed)
{
	/* everywhere but between two frames: after 0, 11, 19, 31 and all bytes */
	for (size_t len = 0; len < sizeof two; len++) {
		struct hb_frames f = {0};
		struct hb_output o = {0};
		bool between = len == 0 || len == 11 || len == 19 || len == 31 ||
			       len == sizeof two - 1;

		ck_works(feed(&f, two, len, 64, &o, err));
		ck_assert_int_eq(hb_frames_whole(&f), between);
		hb_output_free(&o);
	}
}
END_TEST

START_TEST(test_h37_longest_frame_allocates_nothing)
{
	struct hb_frames f = {0};
	struct hb_output o = {0};
	char chunk[65536];

	memset(chunk, 'x', sizeof chunk);
	ck_works(feed(&f, "\1\0\0\0\xff\xff\xff\xff", 8, 8, &o, err));
	for (int i = 0; i < 100; i++)
		ck_works(feed(&f, chunk, sizeof chunk, sizeof chunk, &o, err));
	ck_assert_uint_eq(o.both.total, 100u * sizeof chunk);
	ck_assert_uint_eq(f.left, 0xffffffffu - 100u * (uint32_t)sizeof chunk);
	ck_assert(!hb_frames_whole(&f));
	hb_output_free(&o);
}
END_TEST

START_TEST(test_h37_frame_of_the_engines_own_trouble)
{
	struct hb_frames f = {0};
	struct hb_output o = {0};
	struct hb_error err = {"", ""};

	ck_assert_int_lt(feed(&f,
			      "\3\0\0\0\0\0\0\5oh\n"
			      "no",
			      13, 1, &o, &err),
			 0);
	ck_assert_str_eq(err.code, "engine_error");
	ck_assert_ptr_nonnull(strstr(err.message, "oh?no"));
	ck_assert_uint_eq(o.both.total, 0);
	hb_output_free(&o);
}
END_TEST

START_TEST(test_h37_unknown_frames_are_refused)
{
	static const char *const bad[] = {"\4\0\0\0\0\0\0\1x", "\1\1\0\0\0\0\0\1x", "HTTP/1.1",
					  "\xff\0\0\0\0\0\0\0"};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct hb_frames f = {0};
		struct hb_output o = {0};

		ck_fails(feed(&f, bad[i], 8, 3, &o, err), "bad_frame");
		hb_output_free(&o);
	}
}
END_TEST

START_TEST(test_h37_terminal_stream_has_no_frames)
{
	struct hb_frames f = {.plain = true};
	struct hb_output o = {0};

	ck_works(feed(&f, "\1\0\0\0\0\0\0\1", 8, 3, &o, err));
	ck_assert_uint_eq(o.stdout_bytes, 8);
	ck_assert(hb_frames_whole(&f));
	hb_output_free(&o);
}
END_TEST

/* --- container-create (H33) --- */

static json_t *sealed(const char *request)
{
	struct hb_error err = {"", ""};
	json_t *given = json_loads(request, 0, NULL), *out;

	ck_assert_ptr_nonnull(given);
	out = hb_operation_validate("docker", given, &err);
	ck_assert_msg(out != NULL, "%s: %s", err.code, err.message);
	json_object_set_new(out, "resolved_image_id", json_string(IMAGE));
	json_object_set_new(out, "resolved_network_id", json_string(NETWORK));
	json_decref(given);
	return out;
}

static const struct hb_create_labels labels = {"host1", "op1", "attached"};

static json_t *created(const char *request)
{
	json_t *r = sealed(request), *body = hb_create_run(r, &labels);

	ck_assert_ptr_nonnull(body);
	json_decref(r);
	return body;
}

static void only(const json_t *object, const char *const *names, size_t count)
{
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)object, name, value) {
		bool known = false;

		for (size_t i = 0; i < count; i++)
			known = known || strcmp(names[i], name) == 0;
		ck_assert_msg(known, "field %s is set", name);
	}
}

/* Every way to the host that container-create has and that isn't a field of the schema stays unset,
 * whatever is asked. */
START_TEST(test_h33_only_listed_fields_are_ever_sent)
{
	static const char *const top[] = {
		"Image",     "Env",          "Labels",       "ExposedPorts", "Tty",
		"OpenStdin", "AttachStdout", "AttachStderr", "HostConfig",   "Entrypoint",
		"Cmd",       "User",         "WorkingDir"};
	static const char *const host[] = {"Memory",          "MemorySwap",  "NanoCpus",
					   "PidsLimit",       "NetworkMode", "PortBindings",
					   "PublishAllPorts", "Mounts",      "Devices",
					   "Sysctls",         "Dns",         "CapAdd",
					   "CapDrop",         "SecurityOpt", "Privileged",
					   "ReadonlyRootfs",  "AutoRemove",  "PidMode",
					   "IpcMode",         "UTSMode",     "UsernsMode",
					   "RestartPolicy"};
	json_t *body = created(
		"{\"action\":\"run\",\"image\":\"" IMAGE
		"\",\"name\":\"n\",\"entrypoint\":[\"/e\"],\"command\":[\"a\"],"
		"\"user\":\"1:2\",\"workdir\":\"/"
		"w\",\"environment\":[{\"name\":\"A\",\"value\":\"b=c\"}],"
		"\"mounts\":[{\"type\":\"bind\",\"source\":\"/s\",\"target\":\"/"
		"t\"},{\"type\":\"tmpfs\",\"target\":\"/x\"},"
		"{\"type\":\"volume\",\"source\":\"v\",\"target\":\"/"
		"v\"}],\"ports\":[{\"host_port\":1,\"container_port\":2}],"
		"\"network\":\"mine\",\"dns\":[\"1.1.1.1\"],\"labels\":[\"k=v\"],\"capabilities_"
		"add\":[\"NET_RAW\"],"
		"\"devices\":[\"/dev/null:/dev/"
		"n:r\"],\"sysctls\":[\"net.x=1\"],\"privileged\":true,\"pid_mode\":\"host\","
		"\"ipc_mode\":\"host\",\"uts_mode\":\"host\",\"userns_mode\":\"host\",\"restart_"
		"policy\":\"on-failure\"}");
	const json_t *config = json_object_get(body, "HostConfig");

	only(body, top, sizeof top / sizeof *top);
	only(config, host, sizeof host / sizeof *host);
	ck_assert_str_eq(hb_json_text(body, "Image", ""), IMAGE);
	ck_assert_str_eq(hb_json_text(config, "NetworkMode", ""), NETWORK);
	ck_assert_str_eq(hb_json_text(config, "PidMode", ""), "host");
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(body, "Env"), 0)),
			 "A=b=c");
	ck_assert_ptr_null(json_object_get(config, "Binds"));
	ck_assert_ptr_null(json_object_get(config, "VolumesFrom"));
	json_decref(body);
}
END_TEST

START_TEST(test_h33_mounts_are_what_was_approved)
{
	json_t *body = created(
		"{\"action\":\"run\",\"image\":\"" IMAGE "\",\"mounts\":["
		"{\"type\":\"bind\",\"source\":\"/s\",\"target\":\"/t\"},"
		"{\"type\":\"bind\",\"source\":\"/w\",\"target\":\"/u\",\"read_only\":false},"
		"{\"type\":\"volume\",\"source\":\"v\",\"target\":\"/v\"},"
		"{\"type\":\"tmpfs\",\"target\":\"/x\"}]}");
	const json_t *list = json_object_get(json_object_get(body, "HostConfig"), "Mounts"), *m;

	ck_assert_uint_eq(json_array_size(list), 4);
	m = json_array_get(list, 0);
	ck_assert_str_eq(hb_json_text(m, "Source", ""), "/s");
	ck_assert(hb_json_bool(m, "ReadOnly", false));
	/* What is mounted below a directory would stay writable. */
	ck_assert(hb_json_bool(json_object_get(m, "BindOptions"), "NonRecursive", false));
	ck_assert_str_eq(hb_json_text(json_object_get(m, "BindOptions"), "Propagation", ""),
			 "rprivate");
	ck_assert(!hb_json_bool(json_array_get(list, 1), "ReadOnly", true));
	ck_assert(hb_json_bool(json_array_get(list, 2), "ReadOnly", false));
	ck_assert_ptr_null(json_object_get(json_array_get(list, 2), "VolumeOptions"));
	ck_assert_ptr_null(json_object_get(json_array_get(list, 3), "Source"));
	json_decref(body);
}
END_TEST

START_TEST(test_defaults_are_the_safe_side)
{
	json_t *body = created("{\"action\":\"run\",\"image\":\"" IMAGE "\"}");
	const json_t *host = json_object_get(body, "HostConfig");

	ck_assert_str_eq(hb_json_text(host, "NetworkMode", ""), "none");
	ck_assert(hb_json_bool(host, "ReadonlyRootfs", false));
	ck_assert(!hb_json_bool(host, "Privileged", true));
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(host, "CapDrop"), 0)),
			 "ALL");
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(host, "SecurityOpt"), 0)),
			 "no-new-privileges");
	ck_assert_uint_eq(json_array_size(json_object_get(host, "CapAdd")), 0);
	ck_assert_str_eq(hb_json_text(host, "IpcMode", ""), "private");
	ck_assert_int_eq(hb_json_int(host, "Memory", 0), 512LL << 20);
	ck_assert_int_eq(hb_json_int(host, "MemorySwap", 0), 512LL << 20);
	ck_assert_int_eq(hb_json_int(host, "PidsLimit", 0), 256);
	ck_assert_ptr_null(json_object_get(body, "User"));
	ck_assert_ptr_null(json_object_get(body, "Entrypoint"));
	json_decref(body);
}
END_TEST

START_TEST(test_ports_stay_on_their_address)
{
	json_t *body = created("{\"action\":\"run\",\"image\":\"" IMAGE
			       "\",\"ports\":[{\"host_port\":8080,\"container_port\":80},"
			       "{\"host_ip\":\"127.0.0.2\",\"host_port\":81,\"container_port\":80,"
			       "\"protocol\":\"tcp\"},"
			       "{\"host_port\":53,\"container_port\":53,\"protocol\":\"udp\"}]}");
	const json_t *ports = json_object_get(json_object_get(body, "HostConfig"), "PortBindings");
	const json_t *web = json_object_get(ports, "80/tcp");

	ck_assert_uint_eq(json_object_size(ports), 2);
	ck_assert_uint_eq(json_array_size(web), 2);
	ck_assert_str_eq(hb_json_text(json_array_get(web, 0), "HostIp", ""), "127.0.0.1");
	ck_assert_str_eq(hb_json_text(json_array_get(web, 0), "HostPort", ""), "8080");
	ck_assert_str_eq(hb_json_text(json_array_get(web, 1), "HostIp", ""), "127.0.0.2");
	json_decref(body);
}
END_TEST

START_TEST(test_local_keeps_its_promises)
{
	const char *overrides[] = {"local.memory_mb=64", "local.pids_limit=32"};
	struct hb_config *config;
	json_t *r = json_pack("{s:s, s:s, s:s, s:b, s:s}", "command", "id", "workdir",
			      "/workspace/a", "network", "none", "net_raw", 0, "resolved_image_id",
			      IMAGE),
	       *body;
	const json_t *host;

	ck_works(hb_config_defaults(overrides, 2, &config, err));
	body = hb_create_local(r, config, "/srv/work", &labels);
	host = json_object_get(body, "HostConfig");
	ck_assert_str_eq(hb_json_text(body, "User", ""), "10002:10002");
	ck_assert_str_eq(hb_json_text(body, "WorkingDir", ""), "/workspace/a");
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(body, "Cmd"), 0)), "id");
	ck_assert(hb_json_bool(host, "ReadonlyRootfs", false));
	ck_assert_str_eq(hb_json_text(host, "NetworkMode", ""), "none");
	ck_assert_uint_eq(json_array_size(json_object_get(host, "CapAdd")), 0);
	ck_assert_uint_eq(json_array_size(json_object_get(host, "Mounts")), 2);
	ck_assert_int_eq(hb_json_int(host, "Memory", 0), 64LL << 20);
	ck_assert_int_eq(hb_json_int(host, "PidsLimit", 0), 32);
	ck_assert_str_eq(hb_json_text(json_object_get(host, "LogConfig"), "Type", ""), "none");
	json_decref(body);
	json_object_set_new(r, "network", json_string("egress"));
	json_object_set_new(r, "net_raw", json_true());
	body = hb_create_local(r, config, "/srv/work", &labels);
	host = json_object_get(body, "HostConfig");
	ck_assert_str_eq(hb_json_text(host, "NetworkMode", ""), "bridge");
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(host, "CapAdd"), 0)),
			 "NET_RAW");
	json_decref(body);
	json_decref(r);
	hb_config_free(config);
}
END_TEST

/* --- what is told --- */

START_TEST(test_inspect_tells_no_secrets)
{
	static const char text[] =
		"{\"Id\":\"x\",\"Args\":[\"--password\",\"hunter2\",\"--token=abc\",\"https://"
		"u:pw@h/\",\"plain\"],"
		"\"Config\":{\"Env\":[\"KEY=s3cret\",\"EMPTY\"],\"Cmd\":[\"--api-key=zz\"],"
		"\"Labels\":{\"auth.token\":\"tt\",\"color\":\"red\",\"url\":\"http://"
		"a:b@c\"},\"Hidden\":\"h\"},"
		"\"HostConfig\":{\"Privileged\":true,\"Unknown\":1},\"State\":{\"Running\":true},"
		"\"Mounts\":[{\"Type\":\"bind\",\"Source\":\"/s\",\"Secret\":\"q\"}]}";
	static const char *const secrets[] = {"hunter2", "abc", "u:pw",   "s3cret",  "zz",
					      "\"tt\"",  "a:b", "Hidden", "Unknown", "\"q\""};
	json_t *in = json_loads(text, 0, NULL), *out = hb_redact_inspect(in);
	char *shown = json_dumps(out, JSON_COMPACT);

	for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
		ck_assert_msg(strstr(shown, secrets[i]) == NULL, "%s is told: %s", secrets[i],
			      shown);
	ck_assert_ptr_nonnull(strstr(shown, "KEY=<redacted>"));
	ck_assert_ptr_nonnull(strstr(shown, "\"plain\""));
	ck_assert_ptr_nonnull(strstr(shown, "\"red\""));
	ck_assert_ptr_nonnull(strstr(shown, "\"Privileged\":true"));
	free(shown);
	json_decref(in);
	json_decref(out);
}
END_TEST

START_TEST(test_h34_names_cannot_leave_their_place_in_a_path)
{
	char *escaped = hb_engine_escape("../x?y=%2e&a/b#\n\xc3\xa4", "");

	ck_assert_str_eq(escaped, "..%2Fx%3Fy%3D%252e%26a%2Fb%23%0A%C3%A4");
	free(escaped);
	escaped = hb_engine_escape("host:5000/a/b@sha256:00", "/:@");
	ck_assert_str_eq(escaped, "host:5000/a/b@sha256:00");
	free(escaped);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("docker");
	TCase *t = test_case("docker");

	tcase_add_test(t, test_h36_version_windows);
	tcase_add_test(t, test_h36_refusal_names_both_ranges);
	tcase_add_test(t, test_versions_that_are_none);
	tcase_add_test(t, test_h37_header_split_over_reads);
	tcase_add_test(t, test_h37_cut_stream_is_noticed);
	tcase_add_test(t, test_h37_longest_frame_allocates_nothing);
	tcase_add_test(t, test_h37_frame_of_the_engines_own_trouble);
	tcase_add_test(t, test_h37_unknown_frames_are_refused);
	tcase_add_test(t, test_h37_terminal_stream_has_no_frames);
	tcase_add_test(t, test_h33_only_listed_fields_are_ever_sent);
	tcase_add_test(t, test_h33_mounts_are_what_was_approved);
	tcase_add_test(t, test_defaults_are_the_safe_side);
	tcase_add_test(t, test_ports_stay_on_their_address);
	tcase_add_test(t, test_local_keeps_its_promises);
	tcase_add_test(t, test_inspect_tells_no_secrets);
	tcase_add_test(t, test_h34_names_cannot_leave_their_place_in_a_path);
	suite_add_tcase(s, t);
	return test_run(s);
}
