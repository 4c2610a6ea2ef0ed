/* Which entry of an index is chosen; every case is tried in every rotation and reversed. */
#include "tests/unit/test_util.h"

#include <jansson.h>

#include "common/digest.h"
#include "fetcher/document.h"
#include "fetcher/platform.h"

/* "os/arch/variant", or one of these with a note; the digest is made from the name. */
static json_t *
entry(const char *name)
{
	char hex[HB_HEX256], os[32] = "", arch[32] = "", variant[32] = "", digest[80];
	json_t *e, *p;

	hb_sha256_hex(name, strlen(name), hex);
	snprintf(digest, sizeof(digest), "sha256:%s", hex);
	ck_assert_int_ge(sscanf(name, "%31[^/]/%31[^/#]/%31[^#]", os, arch, variant), 2);
	e = json_pack("{s:s, s:s, s:i}", "mediaType",
		      strstr(name, "#index") ? "application/vnd.oci.image.index.v1+json"
					     : "application/vnd.oci.image.manifest.v1+json",
		      "digest", digest, "size", 7);
	p = json_pack("{s:s, s:s}", "os", os, "architecture", arch);
	if (variant[0])
		json_object_set_new(p, "variant", json_string(variant));
	json_object_set_new(e, "platform", p);
	if (strstr(name, "#attestation"))
		json_object_set_new(
			e, "annotations",
			json_pack("{s:s}", "vnd.docker.reference.type", "attestation-manifest"));
	return e;
}

/* The chosen name, or the error's code; the message goes to `said`. */
static const char *
choose(const char *platform, const char *const *names, const char *pin, char said[512])
{
	static char result[2][80];
	struct hb_platform want;
	size_t n = 0;

	ck_assert_int_eq(hb_platform_parse(platform, &want, NULL), 0);
	if (strcmp(platform, "linux/amd64") == 0)
		want.level = 2; /* whatever machine this runs on */
	while (names[n])
		n++;
	for (size_t turn = 0; turn < 2 * n; turn++) {
		json_t *list = json_array();
		struct hb_error err = {"", ""};
		char hex[HB_HEX256], found[HB_HEX256];
		long long size = 0;
		char *now = result[turn > 0];

		for (size_t i = 0; i < n; i++)
			json_array_append_new(
				list, entry(names[turn < n ? (turn + i) % n : (turn + n - i) % n]));
		snprintf(now, 80, "nothing");
		if (hb_platform_choose(list, &want, pin, found, &size, &err))
			snprintf(now, 80, "%s", err.code);
		for (size_t i = 0; !err.code[0] && i < n; i++) {
			hb_sha256_hex(names[i], strlen(names[i]), hex);
			if (strcmp(hex, found) == 0)
				snprintf(now, 80, "%s", names[i]);
		}
		json_decref(list);
		if (said)
			snprintf(said, 512, "%s", err.message);
		ck_assert_str_eq(result[0], now); /* the same for every order */
	}
	return result[0];
}

#define CHOOSE(platform, ...) choose(platform, (const char *const[]){__VA_ARGS__, NULL}, NULL, NULL)

START_TEST(test_h05_arm64)
{
	ck_assert_str_eq(CHOOSE("linux/arm64", "linux/amd64", "linux/arm64"), "linux/arm64");
	ck_assert_str_eq(CHOOSE("linux/arm64", "linux/arm64/v8", "linux/amd64"), "linux/arm64/v8");
	ck_assert_str_eq(CHOOSE("linux/arm64/v8", "linux/arm64", "linux/arm"), "linux/arm64");
	ck_assert_str_eq(CHOOSE("linux/arm64", "linux/arm64/v9", "linux/arm64"), "linux/arm64");
	ck_assert_str_eq(CHOOSE("linux/arm64", "linux/arm64/v8.1", "linux/arm64/v8"), "linux/arm64/"
										      "v8");
	ck_assert_str_eq(CHOOSE("linux/arm64", "linux/arm64/v9", "linux/amd64"), "platform_absent");
}
END_TEST

START_TEST(test_h05_arm)
{
	ck_assert_str_eq(CHOOSE("linux/arm/v6", "linux/arm/v7", "linux/arm/v5"), "linux/arm/v5");
	ck_assert_str_eq(CHOOSE("linux/arm/v7", "linux/arm/v7", "linux/arm/v5", "linux/arm/v6"),
			 "linux/arm/v7");
	/* plain "arm" means v7, too much for a v6 */
	ck_assert_str_eq(CHOOSE("linux/arm/v6", "linux/arm", "linux/arm64"), "platform_absent");
	ck_assert_str_eq(CHOOSE("linux/arm/v7", "linux/arm/junk", "linux/arm64"), "platform_"
										  "absent");
}
END_TEST

START_TEST(test_h05_amd64)
{
	ck_assert_str_eq(CHOOSE("linux/amd64", "linux/amd64/v99x", "linux/arm64"), "linux/amd64/"
										   "v99x");
	ck_assert_str_eq(CHOOSE("linux/amd64", "linux/amd64/junk", "linux/amd64"), "linux/amd64");
	ck_assert_str_eq(CHOOSE("linux/amd64", "linux/amd64/v3", "linux/amd64/v2", "linux/amd64"),
			 "linux/amd64/v2");
	ck_assert_str_eq(CHOOSE("linux/amd64", "linux/amd64/v4", "linux/386"), "platform_absent");
	ck_assert_int_ge(hb_platform_host_level(), 1);
}
END_TEST

START_TEST(test_h05_attestations_and_strange_entries)
{
	char said[512];

	ck_assert_str_eq(CHOOSE("linux/amd64", "unknown/unknown#attestation", "linux/amd64"),
			 "linux/amd64");
	ck_assert_str_eq(CHOOSE("linux/amd64", "linux/amd64#attestation", "linux/amd64"), "linux/"
											  "amd64");
	ck_assert_str_eq(CHOOSE("linux/amd64", "linux/amd64#index", "windows/amd64"), "platform_"
										      "absent");
	choose("linux/arm64",
	       (const char *const[]){"unknown/unknown", "linux/amd64", "linux/amd64#twin",
				     "linux/s390x", "evil\x1b[2J/x", NULL},
	       NULL, said);
	ck_assert_ptr_nonnull(strstr(said, "linux/amd64"));
	ck_assert_ptr_nonnull(strstr(said, "linux/s390x"));
	ck_assert_ptr_null(strstr(said, "unknown"));
	ck_assert_ptr_null(strchr(said, '\x1b'));
	ck_assert_ptr_null(strstr(strstr(said, "linux/amd64") + 1, "linux/amd64"));
}
END_TEST

START_TEST(test_h05_duplicates)
{
	const char *got = CHOOSE("linux/amd64", "linux/amd64#1", "linux/amd64#2", "linux/amd64#3");

	ck_assert(strncmp(got, "linux/amd64#", 12) == 0);
}
END_TEST

START_TEST(test_pin)
{
	const char *const names[] = {"linux/amd64", "linux/arm64", NULL};
	char amd[HB_HEX256], arm[HB_HEX256];

	hb_sha256_hex("linux/amd64", 11, amd);
	hb_sha256_hex("linux/arm64", 11, arm);
	ck_assert_str_eq(choose("linux/amd64", names, amd, NULL), "linux/amd64");
	ck_assert_str_eq(choose("linux/amd64", names, arm, NULL), "platform_mismatch");
	ck_assert_str_eq(choose("linux/s390x", names, arm, NULL), "platform_absent");
}
END_TEST

START_TEST(test_platform_names)
{
	static const char *const bad[] = {"",
					  "linux",
					  "linux/",
					  "/amd64",
					  "linux/amd64/",
					  "linux/amd64/v9x",
					  "Linux/amd64",
					  "linux/amd64 ",
					  "linux/arm/v9",
					  "linux/amd64/v1/x"};
	struct hb_platform p = {.level = 99};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_fails(hb_platform_parse(bad[i], &p, err), "bad_platform");
	ck_assert_int_eq(p.level, 99);
}
END_TEST

static int
decode(const char *text, struct hb_error *err)
{
	struct hb_buf b = HB_BUF_INIT;
	enum hb_document_kind kind;
	struct hb_manifest m;
	json_t *doc;
	int rc = -1;

	hb_buf_adds(&b, text);
	doc = hb_document_parse(&b, &kind, err);
	if (doc && kind == HB_DOCUMENT_MANIFEST && hb_manifest_decode(doc, &m, err) == 0) {
		hb_manifest_free(&m);
		rc = 0;
	}
	json_decref(doc);
	hb_buf_free(&b);
	return rc;
}

#define D64 "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DESC(digest, size) "{\"mediaType\":\"x\",\"digest\":\"" digest "\",\"size\":" size "}"
#define MANIFEST(config, layers) \
	"{\"schemaVersion\":2,\"config\":" config ",\"layers\":[" layers "]}"

START_TEST(test_h04_documents)
{
	ck_works(decode(MANIFEST(DESC(D64, "3"), ""), err));
	ck_works(decode(MANIFEST(DESC(D64, "3"), DESC(D64, "0")), err));
	ck_fails(decode(MANIFEST(DESC("sha256:../x", "3"), ""), err), "bad_digest");
	ck_fails(decode(MANIFEST(DESC(D64, "3"), DESC(D64, "0") "," DESC(D64 "/..", "0")), err),
		 "bad_digest");
	ck_fails(decode(MANIFEST(DESC(D64, "3"), DESC(D64, "-1")), err), "bad_manifest");
	ck_fails(decode(MANIFEST(DESC(D64, "3"), DESC(D64, "1e3")), err), "bad_manifest");
	ck_fails(decode(MANIFEST(DESC(D64, "3"), DESC(D64, "9000000000000000")), err), "blob_too_"
										       "large");
	ck_fails(decode(MANIFEST("{}", ""), err), "bad_digest");
	ck_fails(decode("{\"schemaVersion\":2,\"layers\":[],\"manifests\":[]}", err), "bad_"
										      "manifest");
	ck_fails(decode("{\"schemaVersion\":1}", err), "bad_manifest");
	ck_fails(decode("", err), "bad_manifest");
}
END_TEST

int
main(void)
{
	Suite *s = suite_create("fetcher_platform");
	TCase *t = test_case("platform");

	tcase_add_test(t, test_h05_arm64);
	tcase_add_test(t, test_h05_arm);
	tcase_add_test(t, test_h05_amd64);
	tcase_add_test(t, test_h05_attestations_and_strange_entries);
	tcase_add_test(t, test_h05_duplicates);
	tcase_add_test(t, test_pin);
	tcase_add_test(t, test_platform_names);
	tcase_add_test(t, test_h04_documents);
	suite_add_tcase(s, t);
	return test_run(s);
}
