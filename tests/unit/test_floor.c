/* The floor: what is refused whoever approves, in its many spellings, and what must not be taken
 * for it. */
#include "tests/unit/test_util.h"

#include "common/json.h"
#include "policy/floor.h"
#include "policy/floor_command.h"
#include "policy/operation.h"
#include "policy/words.h"

#define D "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct sample {
	const char *rule, *command;
};

static const struct sample refused[] = {
	{"floor_recursive_delete", "rm -rf /"},
	{"floor_recursive_delete", "rm -r -f /"},
	{"floor_recursive_delete", "rm -fr --no-preserve-root /"},
	{"floor_recursive_delete", "rm --recursive --force /"},
	{"floor_recursive_delete", "rm --recurs /"},
	{"floor_recursive_delete", "rm / -rf"},
	{"floor_recursive_delete", "rm -rf -- /"},
	{"floor_recursive_delete", "rm -Rf //"},
	{"floor_recursive_delete", "rm -rf /."},
	{"floor_recursive_delete", "rm -rf /*"},
	{"floor_recursive_delete", "rm -rf /.[!.]*"},
	{"floor_recursive_delete", "rm -rf /usr/.."},
	{"floor_recursive_delete", "rm -rf ../.."},
	{"floor_recursive_delete", "rm -rf a /"},
	{"floor_recursive_delete", "r\\m -rf '/'"},
	{"floor_recursive_delete", "\"rm\" -r\"f\" \"/\""},
	{"floor_recursive_delete", "$'\\x72m' -rf $'\\057'"},
	{"floor_recursive_delete", "/bin/rm -rf /"},
	{"floor_recursive_delete", "rm \\\n  -rf \\\n  /"},
	{"floor_recursive_delete", "true;rm -rf /;"},
	{"floor_recursive_delete", "true&&rm -rf /"},
	{"floor_recursive_delete", "false || rm -rf / >/dev/null 2>&1 &"},
	{"floor_recursive_delete", "echo hi\nrm -rf /"},
	{"floor_recursive_delete", "(rm -rf /)"},
	{"floor_recursive_delete", "{ rm -rf /; }"},
	{"floor_recursive_delete", "if true; then rm -rf /; fi"},
	{"floor_recursive_delete", "for i in 1; do rm -rf /; done"},
	{"floor_recursive_delete", "! rm -rf /"},
	{"floor_recursive_delete", "A=1 B=2 rm -rf /"},
	{"floor_recursive_delete", "sudo rm -rf /"},
	{"floor_recursive_delete", "sudo -n -u root rm -rf /"},
	{"floor_recursive_delete", "sudo --user root rm -rf /"},
	{"floor_recursive_delete", "sudo --user=root -- rm -rf /"},
	{"floor_recursive_delete", "env -i PATH=/bin rm -rf /"},
	{"floor_recursive_delete", "env -S 'rm -rf /'"},
	{"floor_recursive_delete", "nohup nice -n 5 timeout 10 rm -rf /"},
	{"floor_recursive_delete", "timeout -s KILL 10 rm -rf /"},
	{"floor_recursive_delete", "busybox rm -rf /"},
	{"floor_recursive_delete", "sh -c 'rm -rf /'"},
	{"floor_recursive_delete", "bash -lc \"cd /; rm -rf /\""},
	{"floor_recursive_delete", "sh -c 'sh -c \"rm -rf /\"'"},
	{"floor_recursive_delete", "su root -c 'rm -rf /'"},
	{"floor_recursive_delete", "eval rm -rf /"},
	{"floor_recursive_delete", "eval 'rm -rf' /"},
	{"floor_recursive_delete", "echo $(rm -rf /)"},
	{"floor_recursive_delete", "echo \"`rm -rf /`\""},
	{"floor_recursive_delete", "x=$(echo $(rm -rf /))"},
	{"floor_recursive_delete", "ssh other rm -rf /"},
	{"floor_recursive_delete", "xargs rm -rf / < list"},
	{"floor_recursive_delete", "find / -delete"},
	{"floor_recursive_delete", "find / -xdev -type f -delete"},
	{"floor_recursive_delete", "find / -exec rm -rf {} +"},
	{"floor_recursive_delete", "find . -exec rm -rf / \\;"},
	{"floor_mkfs", "mkfs /dev/sda1"},
	{"floor_mkfs", "mkfs.ext4 -F /dev/sda1"},
	{"floor_mkfs", "/sbin/mke2fs disk.img"},
	{"floor_mkfs", "sudo mkswap /dev/sdb"},
	{"floor_raw_device", "dd if=/dev/zero of=/dev/sda bs=1M"},
	{"floor_raw_device", "dd of=/dev/../dev/nvme0n1 if=x"},
	{"floor_raw_device", "cat x > /dev/sda"},
	{"floor_raw_device", "cat x >>/dev/vda1"},
	{"floor_raw_device", ": >| /dev/mapper/root"},
	{"floor_raw_device", "echo | tee -a /dev/mmcblk0"},
	{"floor_raw_device", "cp image.raw /dev/disk/by-id/x"},
	{"floor_raw_device", "shred /dev/xvda"},
	{"floor_raw_device", "wipefs -a /dev/md0"},
	{"floor_raw_device", "echo 1 > /dev/mem"},
	{"floor_shutdown", "shutdown -h now"},
	{"floor_shutdown", "reboot"},
	{"floor_shutdown", "/sbin/poweroff -f"},
	{"floor_shutdown", "halt"},
	{"floor_shutdown", "init 0"},
	{"floor_shutdown", "telinit 6"},
	{"floor_shutdown", "systemctl --force reboot"},
	{"floor_shutdown", "systemctl isolate poweroff.target"},
	{"floor_shutdown", "echo b > /proc/sysrq-trigger"},
	{"floor_fork_bomb", ":(){ :|:& };:"},
	{"floor_fork_bomb", ":() { : | : & } ; :"},
	{"floor_fork_bomb", "bomb() { bomb | bomb & }; bomb"},
	{"floor_fork_bomb", "function f { f | f & }; f"},
	{"floor_fork_bomb", "bash -c ':(){ :|:& };:'"},
	{"floor_chmod_root", "chmod 777 /"},
	{"floor_chmod_root", "chmod -R 0777 /"},
	{"floor_chmod_root", "chmod -R a+rwx /"},
	{"floor_chmod_root", "chmod 1777 //"},
	{"floor_docker_socket", "curl --unix-socket /var/run/docker.sock http://x/containers/json"},
	{"floor_docker_socket", "S=/run/docker.sock"},
	{"floor_docker_socket", "ls -l /run/dock\"er.so\"ck"},
	{"floor_docker_socket", "cat < /run/dock''er.sock"},
	{"floor_docker_socket", "# /var/run/docker.sock"},
};

static const char *const allowed[] = {
	"ls -la /",
	"rm -rf ./build /tmp/x node_modules",
	"rm -f /",
	"rm -rf /workspace/*",
	"rm -rf ..",
	"rm -rf ''",
	"rm -r -- -rf",
	"echo 'rm -rf /'",
	"echo rm -rf /",
	"grep -r reboot /var/log",
	"man shutdown",
	"git commit -m 'mkfs; reboot'",
	"dd if=/dev/sda of=disk.img",
	"cat /dev/sda1 > image",
	"echo x > /dev/null",
	"cat x > /dev/stdout 2>/dev/stderr",
	"head -c 16 /dev/urandom",
	"cp /etc/mdadm.conf /dev/shm/mdadm.conf",
	"chmod 777 /tmp/x",
	"chmod 755 /",
	"chmod -R u+rwx .",
	"find / -name '*.tmp' -delete",
	"find . -delete",
	"systemctl restart reboot-notifier",
	"systemctl status app",
	"init 3",
	"f() { g | h & }; f",
	"docker ps",
	"cat docker-socket.md",
	"# rm -rf /",
	"echo '$(rm -rf /)'",
	"sudo -u rm ls -rf /",
	"",
	"'unfinished",
	"$(",
	"echo `",
	"a=\\",
};

START_TEST(test_refused_commands)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct hb_error err = {"", ""};

		ck_assert_msg(hb_floor_command(refused[i].command, "/workspace/a", &err) < 0,
			      "let through: %s", refused[i].command);
		ck_assert_msg(strcmp(err.code, refused[i].rule) == 0, "%s: %s", refused[i].command,
			      err.code);
	}
}
END_TEST

START_TEST(test_allowed_commands)
{
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		struct hb_error err = {"", ""};

		ck_assert_msg(hb_floor_command(allowed[i], "/workspace/a", &err) == 0,
			      "refused: %s: %s %s", allowed[i], err.code, err.message);
	}
}
END_TEST

START_TEST(test_nesting_has_an_end)
{
	struct hb_buf text = HB_BUF_INIT;

	for (int i = 0; i < 500; i++)
		hb_buf_adds(&text, "sudo --opt ");
	hb_buf_adds(&text, "ls");
	ck_fails(hb_floor_command(text.data, NULL, err), "floor_nesting");
	hb_buf_clear(&text);
	for (int i = 0; i < 300; i++)
		hb_buf_adds(&text, "$(");
	ck_fails(hb_floor_command(text.data, NULL, err), "floor_nesting");
	hb_buf_free(&text);
}
END_TEST

START_TEST(test_words)
{
	struct hb_words w;

	hb_words_read("a 'b c'\"d $x\"\\ e|f>>g # h\n$'\\t\\x41'", &w);
	ck_assert_uint_eq(w.count, 8);
	ck_assert_str_eq(w.tokens[0].text, "a");
	ck_assert_str_eq(w.tokens[1].text, "b cd $x e");
	ck_assert(hb_token_is(&w.tokens[2], "|"));
	ck_assert_str_eq(w.tokens[3].text, "f");
	ck_assert(hb_token_redirects(&w.tokens[4]));
	ck_assert_str_eq(w.tokens[5].text, "g");
	ck_assert(hb_token_is(&w.tokens[6], "\n"));
	ck_assert_str_eq(w.tokens[7].text, "\tA");
	hb_words_free(&w);
	hb_words_read("x$(a \")\" b)y", &w);
	ck_assert_uint_eq(w.count, 1);
	ck_assert_uint_eq(w.nested_count, 1);
	ck_assert_str_eq(w.nested[0], "a \")\" b");
	hb_words_free(&w);
}
END_TEST

/* --- whole requests --- */

static int judge(const char *feature, const char *request, struct hb_error *err)
{
	json_t *asked = hb_json_parse(request, strlen(request), err), *valid;

	ck_assert_msg(asked != NULL, "%s: %s", request, err->message);
	valid = hb_operation_validate(feature, asked, err);
	ck_assert_msg(valid != NULL, "%s: %s", request, err->message);
	int rc = hb_floor_check(feature, valid, err);
	json_decref(valid);
	json_decref(asked);
	return rc;
}

START_TEST(test_commands_of_every_feature)
{
	ck_fails(
		judge("local", "{\"command\":\"rm -rf ../../\",\"workdir\":\"/workspace/a\"}", err),
		"floor_recursive_delete");
	ck_works(judge("local", "{\"command\":\"rm -rf ../\",\"workdir\":\"/workspace/a\"}", err));
	ck_fails(judge("sandbox", "{\"command\":\"reboot\"}", err), "floor_shutdown");
	ck_fails(judge("ssh", "{\"profile\":\"a\",\"command\":\"sudo reboot\"}", err),
		 "floor_shutdown");
	ck_fails(judge("ssh", "{\"profile\":\"a\",\"argv\":[\"rm\",\"-rf\",\"/\"]}", err),
		 "floor_recursive_delete");
	ck_fails(judge("ssh", "{\"profile\":\"a\",\"argv\":[\"sh\",\"-c\",\"rm -rf /\"]}", err),
		 "floor_recursive_delete");
	ck_fails(judge("ssh", "{\"profile\":\"a\",\"argv\":[\"cat\",\"/run/docker.sock\"]}", err),
		 "floor_docker_socket");
	/* an argument is not a command */
	ck_works(judge("ssh", "{\"profile\":\"a\",\"argv\":[\"echo\",\"x; rm -rf /\"]}", err));
	ck_works(judge("runtime", "{\"action\":\"remove\"}", err));
}
END_TEST

#define RUN(fields) "{\"action\":\"run\",\"image\":\"sha256:" D "\"," fields "}"
#define BIND(source) \
	RUN("\"mounts\":[{\"type\":\"bind\",\"source\":\"" source "\",\"target\":\"/x\"}]")

START_TEST(test_docker_fields)
{
	static const char *const binds[] = {
		BIND("/"),
		BIND("/run"),
		BIND("/var"),
		BIND("/var/run"),
		BIND("/run/docker.sock"),
		BIND("/var/run/docker.sock"),
		BIND("/run/secrets"),
		BIND("/run/secrets/x"),
		BIND("/var/lib/docker/volumes"),
		BIND("/home/u/.docker/run/docker.sock"),
		RUN("\"mounts\":[{\"type\":\"volume\",\"source\":\"hermes-broker\",\"target\":\"/"
		    "x\"}]"),
	};

	for (size_t i = 0; i < sizeof(binds) / sizeof(binds[0]); i++)
		ck_fails(judge("docker", binds[i], err), "floor_bind");
	ck_works(judge("docker", BIND("/runner"), err));
	ck_works(judge("docker", BIND("/srv/app"), err));
	ck_fails(judge("docker", RUN("\"network\":\"hermes-control\""), err), "floor_own_network");
	ck_fails(judge("docker", RUN("\"name\":\"hermes-broker\""), err), "floor_own_container");
	ck_fails(judge("docker", RUN("\"devices\":[\"/dev/sda:/dev/x:rwm\"]"), err),
		 "floor_raw_device");
	ck_fails(judge("docker", RUN("\"devices\":[\"/dev/mem\"]"), err), "floor_raw_device");
	ck_works(judge("docker", RUN("\"devices\":[\"/dev/fuse\"]"), err));
	ck_fails(judge("docker", RUN("\"entrypoint\":[\"sh\",\"-c\"],\"command\":[\"rm -rf /\"]"),
		       err),
		 "floor_recursive_delete");
	ck_fails(judge("docker", RUN("\"command\":[\"ls\",\"/var/run/docker.sock\"]"), err),
		 "floor_docker_socket");
}
END_TEST

START_TEST(test_own_containers)
{
	static const char *const own[] = {"hermes-broker", "hermes-docker",
					  "proj-hermes-approver-1", "p_hermes-ssh_2"};
	static const char *const others[] = {"hermes-agent", "my-hermes-broker-x",
					     "hermes-brokerage", "xhermes-broker", "web"};

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		char *request = hb_asprintf("{\"action\":\"stop\",\"container\":\"%s\"}", own[i]);

		ck_fails(judge("docker", request, err), "floor_own_container");
		free(request);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		char *request = hb_asprintf("{\"action\":\"stop\",\"container\":\"%s\"}",
					    others[i]);

		ck_works(judge("docker", request, err));
		free(request);
	}
}
END_TEST

static int judge_own(const char *request, struct hb_error *err)
{
	static const char *const ids[] = {D};
	static const char *const paths[] = {"/opt/hermes/state", "/storage/executor-runtime"};
	static const struct hb_floor_own own = {ids, 1, ids, 1, paths, 2};
	json_t *asked = hb_json_parse(request, strlen(request), err);

	ck_assert_ptr_nonnull(asked);
	int rc = hb_floor_check_own(&own, "docker", asked, err);
	json_decref(asked);
	return rc;
}

START_TEST(test_identities_not_names)
{
	ck_fails(judge_own("{\"action\":\"stop\",\"container\":\"" D
			   "\",\"resolved_name\":\"harmless\"}",
			   err),
		 "floor_own_container");
	ck_fails(judge_own("{\"action\":\"run\",\"resolved_network_id\":\"" D
			   "\",\"network\":\"n\"}",
			   err),
		 "floor_own_network");
	ck_fails(judge_own(BIND("/opt/hermes/state/ssh"), err), "floor_bind");
	ck_fails(judge_own(BIND("/opt/hermes"), err), "floor_bind");
	ck_fails(judge_own(BIND("/storage"), err), "floor_bind");
	ck_works(judge_own(BIND("/opt/hermes/state-of-others"), err));
	ck_works(judge_own("{\"action\":\"stop\",\"container\":\"abc\"}", err));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("floor");
	TCase *t = test_case("floor");

	tcase_add_test(t, test_refused_commands);
	tcase_add_test(t, test_allowed_commands);
	tcase_add_test(t, test_nesting_has_an_end);
	tcase_add_test(t, test_words);
	tcase_add_test(t, test_commands_of_every_feature);
	tcase_add_test(t, test_docker_fields);
	tcase_add_test(t, test_own_containers);
	tcase_add_test(t, test_identities_not_names);
	suite_add_tcase(s, t);
	return test_run(s);
}
