/* hermes.conf: every key has a good default, and everything that is not exactly right is refused
 * with its line. */
#include "tests/unit/test_util.h"

#include <signal.h>
#include <sys/stat.h>

#include "common/config.h"
#include "common/strict_ini.h"

static struct hb_config *
load_with(const char *text, const char *const *overrides, size_t count)
{
	struct hb_config *c = NULL;

	unlink("hermes.conf");
	test_puts("hermes.conf", text);
	chmod("hermes.conf", 0644);
	ck_works(hb_config_load(AT_FDCWD, "hermes.conf", overrides, count, &c, err));
	return c;
}

/* The message of the refusal. */
static const char *
refusal(const char *text)
{
	static struct hb_error e;
	struct hb_config *c = NULL;

	unlink("hermes.conf");
	test_puts("hermes.conf", text);
	chmod("hermes.conf", 0644);
	ck_assert_msg(hb_config_load(AT_FDCWD, "hermes.conf", NULL, 0, &c, &e) == -1,
		      "accepted: %s", text);
	ck_assert_str_eq(e.code, "config_invalid");
	ck_assert_ptr_null(c);
	return e.message;
}

START_TEST(test_defaults)
{
	const char **items, **names, **values;
	struct hb_config *c;
	size_t n;

	ck_works(hb_config_defaults(NULL, 0, &c, err));
	ck_assert_int_eq(hb_config_int(c, "broker.pending_life"), 300);
	ck_assert(hb_config_bool(c, "runtime.enabled"));
	ck_assert(!hb_config_bool(c, "broker.listen_tcp_private"));
	ck_assert_str_eq(hb_config_text(c, "runtime.isolation"), "auto");
	ck_assert_int_eq(hb_config_int(c, "fetcher.max_image_size"), 8LL << 30);
	ck_assert_uint_eq(hb_config_list(c, "runtime.mcp_tools", &items), 2);
	ck_assert_str_eq(items[0], "execute");
	ck_assert_str_eq(items[1], "resume");
	ck_assert_uint_eq(hb_config_list(c, "broker.listen_tcp", &items), 0);
	n = hb_config_env(c, &names, &values);
	ck_assert_uint_eq(n, 3);
	ck_assert_str_eq(names[0], "EXECUTOR_HOST");
	ck_assert_str_eq(values[0], "127.0.0.1");
	ck_assert_str_eq(names[2], "PORT");
	ck_assert_str_eq(values[2], "4788");
	hb_config_free(c);
}
END_TEST

START_TEST(test_file_and_overrides)
{
	static const char *const overrides[] = {"runtime.port=5000", "runtime.env.TZ=UTC",
						"fetcher.max_blob_size=3M"};
	const char **items, **names, **values;
	struct hb_config *c = load_with(
		"# comment\n; another\n\n[runtime]\r\nport = 4999\n"
		"health_body = \"a;b\" ; # not a comment\nenv.A = 1=2\nenv.EXECUTOR_HOST =\n"
		"[fetcher]\nmirrors = ghcr.io=http://127.0.0.1:1/a , x=y\n[runtime]\nenabled=no",
		overrides, 3);
	size_t n;

	ck_assert_int_eq(hb_config_int(c, "runtime.port"), 5000);
	ck_assert_int_eq(hb_config_int(c, "fetcher.max_blob_size"), 3 << 20);
	ck_assert(!hb_config_bool(c, "runtime.enabled"));
	ck_assert_str_eq(hb_config_text(c, "runtime.health_body"), "\"a;b\" ; # not a comment");
	ck_assert_uint_eq(hb_config_list(c, "fetcher.mirrors", &items), 2);
	ck_assert_str_eq(items[0], "ghcr.io=http://127.0.0.1:1/a");
	ck_assert_str_eq(items[1], "x=y");
	n = hb_config_env(c, &names, &values);
	ck_assert_uint_eq(n, 5);
	ck_assert_str_eq(names[0], "EXECUTOR_HOST");
	ck_assert_str_eq(values[0], "");
	ck_assert_str_eq(names[2], "A");
	ck_assert_str_eq(values[2], "1=2");
	ck_assert_str_eq(names[3], "TZ");
	ck_assert_str_eq(names[4], "PORT");
	ck_assert_str_eq(values[4], "5000");
	hb_config_free(c);
}
END_TEST

START_TEST(test_refusals_name_file_and_line)
{
	static const struct {
		const char *text, *where, *what;
	} bad[] = {
		{"[runtime]\nport = 1\nprot = 2\n", "hermes.conf:3:", "no key runtime.prot"},
		{"[runtime]\nport = 1\n\nport = 2\n", "hermes.conf:4:", "already set on line 2"},
		{"[runtime]\nenv.A = 1\nenv.A = 1\n", "hermes.conf:3:", "already set on line 2"},
		{"port = 1\n", "hermes.conf:1:", "outside a [section]"},
		{"[nothing]\nkey = 1\n", "hermes.conf:2:", "no key nothing.key"},
		{"[runtime]\nport\n", "hermes.conf:2:", "key = value"},
		{"[runtime]\nport: 1\n", "hermes.conf:2:", "key = value"},
		{"[runtime]\ndata = /a\n  /b\n", "hermes.conf:3:", "begin with a blank"},
		{"[runtime\nport = 1\n", "hermes.conf:1:", "section"},
		{"[runtime] x\nport = 1\n", "hermes.conf:1:", "section"},
		{"[]\nport = 1\n", "hermes.conf:1:", "section"},
		{"[runtime]\nport = 0\n", "hermes.conf:2:", "from 1 to 65535"},
		{"[runtime]\nport = 65536\n", "hermes.conf:2:", "from 1 to 65535"},
		{"[runtime]\nport = 0x10\n", "hermes.conf:2:", "number"},
		{"[runtime]\nport = 1 2\n", "hermes.conf:2:", "number"},
		{"[runtime]\nport =\n", "hermes.conf:2:", "number"},
		{"[runtime]\nport = 99999999999999999999\n", "hermes.conf:2:", "number"},
		{"[runtime]\nport = 1K\n", "hermes.conf:2:", "number"},
		{"[runtime]\nenabled = true\n", "hermes.conf:2:", "yes or no"},
		{"[runtime]\nenabled = yes no\n", "hermes.conf:2:", "yes or no"},
		{"[runtime]\nisolation = chroot direct\n", "hermes.conf:2:", "one of these"},
		{"[runtime]\nisolation =\n", "hermes.conf:2:", "one of these"},
		{"[fetcher]\nmax_blob_size = 9999999T\n", "hermes.conf:2:", "size"},
		{"[fetcher]\nmax_blob_size = 1KK\n", "hermes.conf:2:", "size"},
		{"[fetcher]\nmirrors = a,,b\n", "hermes.conf:2:", "empty item"},
		{"[fetcher]\nmirrors = a,\n", "hermes.conf:2:", "empty item"},
		{"[runtime]\nenv.1A = x\n", "hermes.conf:2:", "letters"},
		{"[runtime]\nenv.A-B = x\n", "hermes.conf:2:", "letters"},
		{"[runtime]\nenv. = x\n", "hermes.conf:2:", "letters"},
		{"[runtime]\nenv.* = x\n", "hermes.conf:2:", "letters"},
		{"\xef\xbb\xbf[runtime]\n", "hermes.conf:1:", "key = value"},
		{"[runtime]\ndata = \xff\n", "hermes.conf:2:", "UTF-8"},
		{"[runtime]\ndata = a\x01"
		 "b\n",
		 "hermes.conf:2:", "UTF-8"},
		{"[runtime]\ndata = a\rport = 1\n", "hermes.conf:2:", "plain"},
		{"[runtime]\n= 1\n", "hermes.conf:2:", "key"},
		{"[runtime]\ndata_which_has_a_name_longer_than_inih_ever_keeps_of_one = 1\n",
		 "hermes.conf:2:", "too long"},
		{"[runtime]\nenv.A_VARIABLE_WHOSE_NAME_WOULD_BE_CUT_AND_THEN_BE_ANOTHER = 1\n",
		 "hermes.conf:2:", "too long"},
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *message = refusal(bad[i].text);

		ck_assert_msg(strncmp(message, bad[i].where, strlen(bad[i].where)) == 0, "%s: %s",
			      bad[i].text, message);
		ck_assert_msg(strstr(message, bad[i].what) != NULL, "%s: %s", bad[i].text, message);
	}
}
END_TEST

START_TEST(test_long_lines)
{
	struct hb_buf b = HB_BUF_INIT;
	struct hb_config *c;

	/* Longer than inih's usual 200 bytes, and with what looks like a key where it would be cut.
	 */
	hb_buf_adds(&b, "[runtime]\ncommand = ");
	while (b.len < 2 * HB_INI_LINE_MAX)
		hb_buf_adds(&b, "x port = 7");
	b.len = 10 + HB_INI_LINE_MAX;
	b.data[b.len] = '\0';
	c = load_with(b.data, NULL, 0);
	ck_assert_uint_eq(strlen(hb_config_text(c, "runtime.command")), HB_INI_LINE_MAX - 10);
	ck_assert_int_eq(hb_config_int(c, "runtime.port"), 4788);
	hb_config_free(c);
	hb_buf_addc(&b, 'y');
	ck_assert_ptr_nonnull(strstr(refusal(b.data), "too long"));
	hb_buf_free(&b);
}
END_TEST

START_TEST(test_missing_and_untrusted_files)
{
	struct hb_config *c = NULL;

	unlink("hermes.conf");
	ck_fails(hb_config_load(AT_FDCWD, "hermes.conf", NULL, 0, &c, err), "config_missing");
	test_puts("hermes.conf", "");
	chmod("hermes.conf", 0664);
	ck_fails(hb_config_load(AT_FDCWD, "hermes.conf", NULL, 0, &c, err), "loose_permissions");
	rename("hermes.conf", "other.conf");
	ck_assert_int_eq(symlink("other.conf", "hermes.conf"), 0);
	ck_fails(hb_config_load(AT_FDCWD, "hermes.conf", NULL, 0, &c, err), "config_unreadable");
	ck_assert_ptr_null(c);
}
END_TEST

START_TEST(test_bad_overrides)
{
	static const char *const bad[] = {"runtime.port", "runtime.port=x",
					  "port=1",       "runtime.data=a\nb",
					  "=1",           "runtime.env.*=1"};
	struct hb_config *c = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_fails(hb_config_defaults(&bad[i], 1, &c, err), "config_invalid");
	ck_assert_ptr_null(c);
}
END_TEST

static size_t
pins(struct hb_config *c)
{
	const char **items;
	size_t n = hb_config_list(c, "runtime.platform_digest", &items);

	hb_config_free(c);
	return n;
}

/* Pins of one image never apply to another. */
START_TEST(test_another_image_clears_the_platform_pins)
{
	static const char *const image[] = {"runtime.image=other@sha256:aa"};
	static const char *const both[] = {"runtime.platform_digest=a=b, c=d",
					   "runtime.image=other@sha256:aa"};
	struct hb_buf b = HB_BUF_INIT;
	struct hb_config *c;

	ck_assert_uint_eq(pins(load_with("", NULL, 0)), 1);
	ck_assert_uint_eq(pins(load_with("", image, 1)), 0);
	ck_assert_uint_eq(pins(load_with("", both, 2)), 2);
	ck_assert_uint_eq(pins(load_with("[runtime]\nimage = other@sha256:aa\n", NULL, 0)), 0);
	ck_assert_uint_eq(
		pins(load_with("[runtime]\nimage = o@sha256:aa\nplatform_digest = a=b\n", NULL, 0)),
		1);
	ck_assert_uint_eq(pins(load_with("[runtime]\nplatform_digest = a=b\n", image, 1)), 0);
	/* A file written with all defaults, and then --set with another image. */
	ck_works(hb_config_defaults(NULL, 0, &c, err));
	hb_config_print(c, &b);
	hb_config_free(c);
	ck_assert_uint_eq(pins(load_with(b.data, NULL, 0)), 1);
	ck_assert_uint_eq(pins(load_with(b.data, image, 1)), 0);
	hb_buf_free(&b);
}
END_TEST

START_TEST(test_printed_file_reads_back_the_same)
{
	static const char *const overrides[] = {"runtime.port=5001", "runtime.env.TZ=Europe/Paris",
						"broker.listen_tcp=127.0.0.1:8750,127.0.0.1:8751"};
	char before[65], after[65];
	struct hb_buf first = HB_BUF_INIT, second = HB_BUF_INIT;
	struct hb_config *c;

	ck_works(hb_config_defaults(overrides, 3, &c, err));
	ck_works(hb_config_runtime_digest(c, before, err));
	hb_config_print(c, &first);
	hb_config_free(c);
	c = load_with(first.data, NULL, 0);
	ck_works(hb_config_runtime_digest(c, after, err));
	ck_assert_str_eq(before, after);
	hb_config_print(c, &second);
	ck_assert_str_eq(first.data, second.data);
	hb_config_free(c);
	/* Every key is there, and none of the lines is too wide to read. */
	for (size_t i = 0; i < hb_config_key_count; i++) {
		char *line = hb_asprintf("\n%s =", strchr(hb_config_keys[i].name, '.') + 1);

		if (strchr(line, '*') == NULL)
			ck_assert_msg(strstr(first.data, line) != NULL, "%s", line);
		free(line);
	}
	hb_buf_free(&first);
	hb_buf_free(&second);
}
END_TEST

START_TEST(test_runtime_digest_sees_every_runtime_value)
{
	static const char *const same[] = {"log.level=debug", "fetcher.parallel=1"};
	static const char *const other[] = {"runtime.port=1", "runtime.env.A=1", "runtime.image=x",
					    "runtime.stop_timeout=21",
					    "runtime.env.EXECUTOR_HOST=::1"};
	char base[65], hex[65];
	struct hb_config *c;

	ck_works(hb_config_defaults(NULL, 0, &c, err));
	ck_works(hb_config_runtime_digest(c, base, err));
	hb_config_free(c);
	ck_works(hb_config_defaults(same, 2, &c, err));
	ck_works(hb_config_runtime_digest(c, hex, err));
	ck_assert_str_eq(hex, base);
	hb_config_free(c);
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		ck_works(hb_config_defaults(&other[i], 1, &c, err));
		ck_works(hb_config_runtime_digest(c, hex, err));
		ck_assert_str_ne(hex, base);
		hb_config_free(c);
	}
}
END_TEST

START_TEST(test_unknown_key_is_a_programming_error)
{
	struct hb_config *c;

	ck_works(hb_config_defaults(NULL, 0, &c, err));
	hb_config_text(c, "runtime.no_such_key");
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("config");
	TCase *t = test_case("config");

	tcase_add_test(t, test_defaults);
	tcase_add_test(t, test_file_and_overrides);
	tcase_add_test(t, test_refusals_name_file_and_line);
	tcase_add_test(t, test_long_lines);
	tcase_add_test(t, test_missing_and_untrusted_files);
	tcase_add_test(t, test_bad_overrides);
	tcase_add_test(t, test_another_image_clears_the_platform_pins);
	tcase_add_test(t, test_printed_file_reads_back_the_same);
	tcase_add_test(t, test_runtime_digest_sees_every_runtime_value);
	tcase_add_test_raise_signal(t, test_unknown_key_is_a_programming_error, SIGABRT);
	suite_add_tcase(s, t);
	return test_run(s);
}
