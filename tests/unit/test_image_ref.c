/* Image references: the digest is required, one grammar, nothing cut, nothing guessed. */
#include "tests/unit/test_util.h"

#include "policy/image_ref.h"
#include "policy/text.h"

#define D "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define PIN "@sha256:" D

static struct hb_image_ref ref;

START_TEST(test_parts)
{
	char name[600];

	ck_works(hb_image_ref_parse("ghcr.io/owner/app_x/y.z:v1.5.12" PIN, true, &ref, err));
	ck_assert_str_eq(ref.registry, "ghcr.io");
	ck_assert_str_eq(ref.repository, "owner/app_x/y.z");
	ck_assert_str_eq(ref.tag, "v1.5.12");
	ck_assert_str_eq(ref.digest, D);
	ck_assert(!ref.layout);
	hb_image_ref_name(&ref, name, sizeof(name));
	ck_assert_str_eq(name, "ghcr.io/owner/app_x/y.z");

	ck_works(hb_image_ref_parse("127.0.0.1:5000/app" PIN, false, &ref, err));
	ck_assert_str_eq(ref.registry, "127.0.0.1:5000");
	ck_assert_str_eq(ref.repository, "app");
	ck_assert_str_eq(ref.tag, "");
	ck_works(hb_image_ref_parse("[::1]:5000/app" PIN, false, &ref, err));
	ck_assert_str_eq(ref.registry, "[::1]:5000");
	ck_works(hb_image_ref_parse("localhost/app" PIN, false, &ref, err));
	ck_assert_str_eq(ref.registry, "localhost");
}
END_TEST

START_TEST(test_docker_hub_has_one_name)
{
	static const char *const same[] = {"alpine" PIN, "library/alpine" PIN,
					   "docker.io/library/alpine" PIN};
	char name[600];

	for (size_t i = 0; i < 3; i++) {
		ck_works(hb_image_ref_parse(same[i], false, &ref, err));
		hb_image_ref_name(&ref, name, sizeof(name));
		ck_assert_str_eq(name, "docker.io/library/alpine");
	}
}
END_TEST

START_TEST(test_layout)
{
	char name[600];

	ck_works(hb_image_ref_parse("oci:/srv/images/app" PIN, true, &ref, err));
	ck_assert(ref.layout);
	ck_assert_str_eq(ref.repository, "/srv/images/app");
	hb_image_ref_name(&ref, name, sizeof(name));
	ck_assert_str_eq(name, "oci:/srv/images/app");
	ck_fails(hb_image_ref_parse("oci:relative" PIN, false, &ref, err), "image_malformed");
	ck_fails(hb_image_ref_parse("oci:/a/../b" PIN, false, &ref, err), "image_malformed");
	ck_fails(hb_image_ref_parse("oci:/" PIN, false, &ref, err), "image_malformed");
	ck_fails(hb_image_ref_parse("oci:/a b" PIN, false, &ref, err), "image_malformed");
}
END_TEST

START_TEST(test_tag_alone_is_refused)
{
	ck_fails(hb_image_ref_parse("ghcr.io/owner/app:v1", false, &ref, err), "image_not_pinned");
	ck_fails(hb_image_ref_parse("ghcr.io/owner/app", false, &ref, err), "image_not_pinned");
	ck_fails(hb_image_ref_parse("", false, &ref, err), "image_not_pinned");
	ck_fails(hb_image_ref_parse("ghcr.io/owner/app" PIN, true, &ref, err), "image_malformed");
}
END_TEST

START_TEST(test_h04_digest_is_exact)
{
	static const char *const bad[] = {
		"a/b@sha256:../../x",
		"a/b@sha256:"
		"123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"a/b@sha256:" D "0",
		"a/b@sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef",
		"a/b@sha256:" D "/..",
		"a/b@md5:" D,
		"a/b@",
		"a/b@" D,
		"a/b@sha256:" D "\n",
		"a/b" PIN PIN,
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_fails(hb_image_ref_parse(bad[i], false, &ref, err), "bad_digest");
}
END_TEST

START_TEST(test_malformed_names)
{
	static const char *const bad[] = {
		PIN,
		"/a" PIN,
		"a/" PIN,
		"a//b" PIN,
		"A/b:" PIN,
		"owner/App" PIN,
		"a:" PIN,
		"a:-x" PIN,
		"a:x:y" PIN,
		"ghcr.io:0/a" PIN,
		"ghcr.io:65536/a" PIN,
		"ghcr.io:/a" PIN,
		"-ghcr.io/a" PIN,
		"ghcr..io/a" PIN,
		"a/b..c" PIN,
		"a/b___c" PIN,
		"a/-b" PIN,
		"a/b-" PIN,
		"a b" PIN,
		"a/../b" PIN,
		"https://a.io/b" PIN,
		"user@host/a" PIN,
		"[::1/a" PIN,
		"[127.0.0.1]/a" PIN,
		"[]/a" PIN,
		"ghcr.io/caf\xc3\xa9" PIN,
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct hb_error err = {"", ""};

		ck_assert_msg(hb_image_ref_parse(bad[i], false, &ref, &err) < 0, "%s was taken",
			      bad[i]);
		ck_assert_msg(strcmp(err.code, "image_malformed") == 0 ||
				      strcmp(err.code, "bad_digest") == 0,
			      "%s: %s", bad[i], err.code);
	}
}
END_TEST

START_TEST(test_nothing_is_cut)
{
	char text[600];

	/* 255 characters of name are allowed and come out whole; 256 are not. */
	for (int extra = 0; extra < 2; extra++) {
		memset(text, 'a', sizeof(text));
		memcpy(text, "h.io/", 5);
		strcpy(text + 255 + extra, PIN);
		struct hb_error err = {"", ""};
		int rc = hb_image_ref_parse(text, false, &ref, &err);
		ck_assert_int_eq(rc, extra ? -1 : 0);
		if (!extra)
			ck_assert_uint_eq(strlen(ref.repository), 250);
		else
			ck_assert_str_eq(err.code, "image_malformed");
	}
	/* a directory of 255 characters, then of 256 */
	for (int extra = 0; extra < 2; extra++) {
		memset(text, 'a', sizeof(text));
		memcpy(text, "oci:/", 5);
		strcpy(text + 4 + 255 + extra, PIN);
		ck_assert_int_eq(hb_image_ref_parse(text, false, &ref, NULL), extra ? -1 : 0);
	}
	memset(text, 't', sizeof(text));
	memcpy(text, "h.io/a:", 7);
	strcpy(text + 7 + 128, PIN);
	ck_works(hb_image_ref_parse(text, false, &ref, err));
	ck_assert_uint_eq(strlen(ref.tag), 128);
	memset(text + 7 + 128, 't', 64);
	strcpy(text + 7 + 129, PIN);
	ck_fails(hb_image_ref_parse(text, false, &ref, err), "image_malformed");
}
END_TEST

START_TEST(test_host_platform_is_known)
{
	ck_assert_msg(strncmp(hb_host_platform(), "linux/", 6) == 0, "%s", hb_host_platform());
}
END_TEST

START_TEST(test_paths_are_compared_by_component)
{
	ck_assert(hb_path_within("/srv/app/x", "/srv/app"));
	ck_assert(hb_path_within("/srv/app", "/srv/app"));
	ck_assert(!hb_path_within("/srv/app-evil", "/srv/app"));
	ck_assert(!hb_path_within("/srv", "/srv/app"));
	ck_assert(hb_path_within("/anything", "/"));
	ck_assert(hb_path_normal("/"));
	ck_assert(!hb_path_normal("/a/"));
	ck_assert(!hb_path_normal("/a//b"));
	ck_assert(!hb_path_normal("/a/./b"));
	ck_assert(!hb_path_normal("/a/.."));
	ck_assert(!hb_path_normal("a"));
	ck_assert(!hb_path_normal(""));
	ck_assert(hb_path_normal("/a/..b/.c"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image_ref");
	TCase *t = test_case("references");

	tcase_add_test(t, test_parts);
	tcase_add_test(t, test_docker_hub_has_one_name);
	tcase_add_test(t, test_layout);
	tcase_add_test(t, test_tag_alone_is_refused);
	tcase_add_test(t, test_h04_digest_is_exact);
	tcase_add_test(t, test_malformed_names);
	tcase_add_test(t, test_nothing_is_cut);
	tcase_add_test(t, test_host_platform_is_known);
	tcase_add_test(t, test_paths_are_compared_by_component);
	suite_add_tcase(s, t);
	return test_run(s);
}
