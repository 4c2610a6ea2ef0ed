/* Profiles and keys as text. Keys here were made by ssh-keygen for this file and protect nothing. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "policy/ssh_profile.h"

#define ED25519 "AAAAC3NzaC1lZDI1NTE5AAAAIOn1F1XswCRJvLXqOrevFqQTeFE8Px9deunOSTDr5sUF"

static const char good[] =
	"{\"version\":2,\"host\":\"web.example\",\"port\":22,\"user\":\"deploy\","
	"\"authority\":\"user\",\"fingerprint\":"
	"\"SHA256:0123456789012345678901234567890123456789012\",\"auth\":\"publickey\","
	"\"credential_revision\":"
	"\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"}";

static struct hb_error err;

/* `good` with one piece of it replaced. */
static int parse_with(const char *from, const char *to)
{
	const char *at = strstr(good, from);
	struct hb_ssh_profile p;
	struct hb_buf text = HB_BUF_INIT;
	int rc;

	ck_assert_ptr_nonnull(at);
	hb_buf_add(&text, good, (size_t)(at - good));
	hb_buf_adds(&text, to);
	hb_buf_adds(&text, at + strlen(from));
	rc = hb_ssh_profile_parse(text.data, text.len, &p, &err);
	hb_buf_free(&text);
	return rc;
}

START_TEST(test_profile)
{
	struct hb_ssh_profile p;

	ck_assert_int_eq(hb_ssh_profile_parse(good, strlen(good), &p, &err), 0);
	ck_assert_str_eq(p.host, "web.example");
	ck_assert_str_eq(p.user, "deploy");
	ck_assert_int_eq(p.port, 22);
	ck_assert(!p.password);
	ck_assert_int_eq(parse_with("web.example", "2001:db8::1"), 0);
	ck_assert_int_eq(parse_with("web.example", "192.0.2.7"), 0);
	ck_assert_int_eq(parse_with("\"user\",\"fingerprint", "\"sudo-nopasswd\",\"fingerprint"), 0);
	ck_assert_int_eq(parse_with("publickey", "password"), 0);
}
END_TEST

START_TEST(test_h41_profile_fields)
{
	static const char *const hostile[] = {
		"-oProxyCommand=id", "[-oProxyCommand=id]", "-F/tmp/x", "a b", "a\\nb", "a;id",
		"`id`", "$(id)", "%h", "", "u@h", "h:22", "ssh://h", "[::1]", "a..b", "-", ".", "a/b"};

	for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
		ck_assert_int_eq(parse_with("web.example", hostile[i]), -1);
		ck_assert_str_eq(err.code, "profile_invalid");
		if (strcmp(hostile[i], "a..b") != 0) {
			ck_assert_int_eq(parse_with("deploy", hostile[i]), -1);
			ck_assert_str_eq(err.code, "profile_invalid");
		}
		/* What was there is not repeated in the message. */
		ck_assert(strlen(hostile[i]) < 4 || !strstr(err.message, hostile[i]));
	}
}
END_TEST

START_TEST(test_profile_is_exact)
{
	static const char *const changes[][2] = {
		{"\"version\":2", "\"version\":1"},
		{"\"version\":2", "\"version\":\"2\""},
		{"\"version\":2,", ""},
		{"\"version\":2", "\"version\":2,\"version\":2"},
		{"\"version\":2", "\"version\":2,\"proxy\":\"x\""},
		{"\"port\":22", "\"port\":0"},
		{"\"port\":22", "\"port\":65536"},
		{"\"port\":22", "\"port\":\"22\""},
		{"\"user\",\"finger", "\"admin\",\"finger"},
		{"publickey", "agent"},
		{"SHA256:0", "SHA256:0="},
		{"SHA256:0", "MD5:0"},
		{"aabbccddeeff0011", "AABBCCDDEEFF0011"},
		{"deploy", "root"}, /* with authority "user" */
	};

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		ck_assert_msg(parse_with(changes[i][0], changes[i][1]) == -1, "%s", changes[i][1]);
		ck_assert_str_eq(err.code, "profile_invalid");
	}
}
END_TEST

static int known(const char *text, struct hb_ssh_host_key *key)
{
	return hb_ssh_known_host(text, strlen(text), key, &err);
}

START_TEST(test_known_hosts)
{
	static const char *const bad[] = {
		"",
		"\n",
		"host\n",
		"host ssh-ed25519\n",
		"host ssh-ed25519 \n",
		"host ssh-rsa " ED25519 "\n", /* says another type than it is */
		"host ssh-ed25519 " ED25519 " comment\n",
		" ssh-ed25519 " ED25519 "\n",
		"@cert-authority host ssh-ed25519 " ED25519 "\n",
		"@revoked host ssh-ed25519 " ED25519 "\n",
		"# host ssh-ed25519 " ED25519 "\n",
		"host ssh-ed25519 " ED25519 "\nhost ssh-ed25519 " ED25519 "\n",
		"host ssh-ed25519 " ED25519 "\n\n",
		"host ssh-ed25519 " ED25519 "\r\n",
		"host ssh-ed25519 AAAA\n",
		"host ssh-ed25519 AAAAC3Nz!!!!\n",
	};
	struct hb_ssh_host_key key;

	ck_assert_int_eq(known("[127.0.0.1]:22 ssh-ed25519 " ED25519 "\n", &key), 0);
	ck_assert_str_eq(key.type, "ssh-ed25519");
	ck_assert_str_eq(key.base64, ED25519);
	ck_assert_str_eq(key.fingerprint, "SHA256:kIkvxPRy8guNEhVuJfdVg2Nm6RtenNK2YmWrG66Php8");
	ck_assert_int_eq(known("|1|salt|hash ssh-ed25519 " ED25519, &key), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_msg(known(bad[i], &key) == -1, "%s", bad[i]);
		ck_assert_str_eq(err.code, "known_hosts_invalid");
	}
	ck_assert_int_eq(known("h ssh-dss AAAAB3NzaC1kc3MAAAAB\n", &key), -1);
	ck_assert_str_eq(err.code, "key_type_refused");
}
END_TEST

START_TEST(test_scanned)
{
	struct hb_ssh_host_key key;

	ck_assert(hb_ssh_scanned_key("h ssh-ed25519 " ED25519 "\r\n", &key));
	ck_assert(!hb_ssh_scanned_key("# h:22 SSH-2.0-OpenSSH", &key));
	ck_assert(!hb_ssh_scanned_key("h", &key));
	ck_assert(!hb_ssh_scanned_key("", &key));
	ck_assert(!hb_ssh_scanned_key("h ssh-dss AAAAB3NzaC1kc3MAAAAB", &key));
}
END_TEST

START_TEST(test_h43_algorithms)
{
	ck_assert_str_eq(hb_ssh_key_algorithms("ssh-rsa"), "rsa-sha2-512,rsa-sha2-256");
	ck_assert_str_eq(hb_ssh_key_algorithms("ssh-ed25519"), "ssh-ed25519");
	ck_assert_ptr_null(hb_ssh_key_algorithms("ssh-dss"));
	ck_assert_ptr_null(hb_ssh_key_algorithms("sk-ssh-ed25519@openssh.com"));
	ck_assert_ptr_null(hb_ssh_key_algorithms("ssh-ed25519,ssh-rsa"));
}
END_TEST

#define KEY_BODY \
	"b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n" \
	"QyNTUxOQAAACDp9RdV7MAkSby16jq3rxakE3hRPD8fXXrpzkkw6+bFBQAAAIg4C9WlOAvV\n" \
	"pQAAAAtzc2gtZWQyNTUxOQAAACDp9RdV7MAkSby16jq3rxakE3hRPD8fXXrpzkkw6+bFBQ\n" \
	"AAAEBEwsK1xjvvUG0K2DnJmeZmWRkOJugUWfi/QPFTz8bi5un1F1XswCRJvLXqOrevFqQT\n" \
	"eFE8Px9deunOSTDr5sUFAAAABHRlc3QB\n"
#define BEGIN "-----BEGIN OPENSSH PRIVATE KEY-----\n"
#define END "-----END OPENSSH PRIVATE KEY-----\n"

START_TEST(test_identity)
{
	unsigned char pk[32], sk[64];
	char type[32], fingerprint[52];
	const char *key = BEGIN KEY_BODY END;

	ck_assert_int_eq(hb_ssh_identity(key, strlen(key), type, fingerprint, &err), 0);
	ck_assert_str_eq(type, "ssh-ed25519");
	ck_assert_str_eq(fingerprint, "SHA256:kIkvxPRy8guNEhVuJfdVg2Nm6RtenNK2YmWrG66Php8");
	ck_assert_int_eq(hb_ssh_ed25519(key, strlen(key), pk, sk, &err), 0);
	ck_assert_mem_eq(pk, sk + 32, 32);
	ck_assert_int_eq(pk[0], 0xe9);
}
END_TEST

START_TEST(test_identity_cut_anywhere)
{
	char type[32], fingerprint[52], text[sizeof(BEGIN KEY_BODY END)];
	unsigned char pk[32], sk[64];
	const char body[] = KEY_BODY;

	/* Every length that base64 can have: never read past the end, never a half-read key. */
	for (size_t len = 0; len + 1 < sizeof(body); len++) {
		snprintf(text, sizeof(text), BEGIN "%.*s\n" END, (int)len, body);
		if (hb_ssh_ed25519(text, strlen(text), pk, sk, &err) == 0)
			ck_assert_uint_ge(len, sizeof(body) - 16); /* what is cut off is padding */
		if (hb_ssh_identity(text, strlen(text), type, fingerprint, &err) == 0)
			ck_assert_str_eq(type, "ssh-ed25519");
	}
	ck_assert_int_eq(hb_ssh_identity("", 0, type, fingerprint, &err), -1);
	ck_assert_str_eq(err.code, "identity_format");
	ck_assert_int_eq(hb_ssh_identity(BEGIN, strlen(BEGIN), type, fingerprint, &err), -1);
	ck_assert_int_eq(hb_ssh_identity(BEGIN KEY_BODY, strlen(BEGIN KEY_BODY), type, fingerprint,
					 &err),
			 -1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ssh_profile");
	TCase *tests = tcase_create("ssh_profile");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tests);
	tcase_add_test(tests, test_profile);
	tcase_add_test(tests, test_h41_profile_fields);
	tcase_add_test(tests, test_profile_is_exact);
	tcase_add_test(tests, test_known_hosts);
	tcase_add_test(tests, test_scanned);
	tcase_add_test(tests, test_h43_algorithms);
	tcase_add_test(tests, test_identity);
	tcase_add_test(tests, test_identity_cut_anywhere);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
