/* The chain of an image is believed only as far as its bytes hash to what the document above says.
 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/chain.h"
#include "common/json.h"

#define OCI "application/vnd.oci.image."
#define HEX_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HEX_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define HEX_C "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

static char dir[] = "/tmp/hb-chain-XXXXXX";
static int blobs = -1;

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(dir));
	blobs = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(blobs, 0);
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof command, "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
	close(blobs);
	memcpy(dir, "/tmp/hb-chain-XXXXXX", sizeof dir);
}

static void put_named(const char *hex, const void *data, size_t len)
{
	int fd = openat(blobs, hex, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
	close(fd);
}

/* Store a document; its digest in hex, its length returned. `object` is stolen. */
static size_t put(json_t *object, char hex[HB_HEX256])
{
	char *text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
	size_t len = strlen(text);

	hb_sha256_hex(text, len, hex);
	put_named(hex, text, len);
	free(text);
	json_decref(object);
	return len;
}

static json_t *prefixed(const char *hex)
{
	char text[80];

	snprintf(text, sizeof text, "sha256:%s", hex);
	return json_string(text);
}

static json_t *descriptor(const char *type, const char *hex, size_t size)
{
	return json_pack("{s:s, s:o, s:I}", "mediaType", type, "digest", prefixed(hex), "size",
			 (json_int_t)size);
}

static json_t *entry(const char *hex, size_t size, const char *arch, const char *variant)
{
	json_t *d = descriptor(OCI "manifest.v1+json", hex, size);

	json_object_set_new(d, "platform",
			    json_pack("{s:s, s:s}", "os", "linux", "architecture", arch));
	if (variant)
		json_object_set_new(json_object_get(d, "platform"), "variant",
				    json_string(variant));
	return d;
}

struct image {
	char index[HB_HEX256], manifest[HB_HEX256], config[HB_HEX256];
	json_t *config_doc, *manifest_doc, *index_doc; /* changed before store() */
};

/* An image of one layer whose blob and diff_id are only names. */
static void prepare(struct image *i)
{
	i->config_doc = json_pack("{s:s, s:s, s:{s:[s]}, s:{s:s, s:[o]}}", "os", "linux",
				  "architecture", "amd64", "config", "Cmd", "run", "rootfs", "type",
				  "layers", "diff_ids", prefixed(HEX_B));
	i->manifest_doc = json_pack("{s:i, s:s, s:[o]}", "schemaVersion", 2, "mediaType",
				    OCI "manifest.v1+json", "layers",
				    descriptor(OCI "layer.v1.tar+gzip", HEX_A, 1234));
	i->index_doc =
		json_pack("{s:i, s:s}", "schemaVersion", 2, "mediaType", OCI "index.v1+json");
}

static void store(struct image *i)
{
	size_t len = put(i->config_doc, i->config);

	json_object_set_new(i->manifest_doc, "config",
			    descriptor(OCI "config.v1+json", i->config, len));
	len = put(i->manifest_doc, i->manifest);
	if (!json_object_get(i->index_doc, "manifests"))
		json_object_set_new(i->index_doc, "manifests",
				    json_pack("[o]", entry(i->manifest, len, "amd64", NULL)));
	put(i->index_doc, i->index);
}

static int derive(const char *index, const char *pin, struct hb_chain *c, struct hb_error *err)
{
	struct hb_chain_want want = {.index = index,
				     .platform = "linux/amd64",
				     .pin = pin,
				     .max_blob = 1 << 20,
				     .max_image = 1 << 20};

	return hb_chain_derive(blobs, &want, c, err);
}

static void refused(const char *index, const char *pin, const char *code)
{
	struct hb_chain c;
	struct hb_error err = {"", ""};

	ck_assert_int_eq(derive(index, pin, &c, &err), -1);
	ck_assert_str_eq(err.code, code);
}

START_TEST(test_whole_chain)
{
	struct image i;
	struct hb_chain c;
	struct hb_error err = {"", ""};

	prepare(&i);
	store(&i);
	ck_assert_msg(derive(i.index, "", &c, &err) == 0, "%s", err.message);
	ck_assert_str_eq(c.index, i.index);
	ck_assert_str_eq(c.manifest, i.manifest);
	ck_assert_str_eq(c.config, i.config);
	ck_assert_uint_eq(c.layer_count, 1);
	ck_assert_str_eq(c.layers[0].digest, HEX_A);
	ck_assert_str_eq(c.layers[0].diff_id, HEX_B);
	ck_assert_uint_eq(c.total_size, 1234);
	ck_assert_str_eq(json_string_value(json_array_get(
				 json_object_get(json_object_get(c.image, "config"), "Cmd"), 0)),
			 "run");
	hb_chain_free(&c);
	/* The pin that is right, and one that isn't. */
	ck_assert_int_eq(derive(i.index, i.manifest, &c, &err), 0);
	hb_chain_free(&c);
	refused(i.index, HEX_C, "platform_mismatch");
	/* Pinned to the manifest itself. */
	ck_assert_int_eq(derive(i.manifest, "", &c, &err), 0);
	ck_assert_str_eq(c.index, i.manifest);
	hb_chain_free(&c);
	refused(i.manifest, HEX_C, "platform_mismatch");
}
END_TEST

/* Each document in turn is replaced by other bytes of the same length. */
START_TEST(test_altered_document)
{
	struct image i;
	const char *victims[3];

	prepare(&i);
	store(&i);
	victims[0] = i.index;
	victims[1] = i.manifest;
	victims[2] = i.config;
	for (int v = 0; v < 3; v++) {
		int fd = openat(blobs, victims[v], O_RDWR);
		char byte;

		ck_assert_int_eq(pread(fd, &byte, 1, 5), 1);
		byte ^= 1;
		ck_assert_int_eq(pwrite(fd, &byte, 1, 5), 1);
		refused(i.index, "", "digest_mismatch");
		byte ^= 1;
		ck_assert_int_eq(pwrite(fd, &byte, 1, 5), 1);
		close(fd);
	}
	ck_assert_int_eq(unlinkat(blobs, i.config, 0), 0);
	refused(i.index, "", "blob_missing");
	/* A FIFO of that name must neither be waited for nor read. */
	ck_assert_int_eq(mkfifoat(blobs, i.config, 0644), 0);
	refused(i.index, "", "blob_missing");
	ck_assert_int_eq(unlinkat(blobs, i.config, 0), 0);
	put_named(i.config, "{}", 2);
	refused(i.index, "", "size_mismatch");
}
END_TEST

START_TEST(test_bad_documents)
{
	static const struct {
		const char *code, *patch_manifest, *patch_config;
	} cases[] = {
		{"bad_image", "{\"layers\":[]}", NULL},
		{"bad_image", "{\"layers\":7}", NULL},
		{"bad_image", "{\"manifests\":[]}", NULL},
		{"bad_image", "{\"subject\":{}}", NULL},
		{"bad_image", "{\"mediaType\":\"text/plain\"}", NULL},
		{"bad_digest",
		 "{\"layers\":[{\"digest\":\"sha256:../../x\",\"size\":1,\"mediaType\":\"" OCI
		 "layer.v1.tar\"}]}",
		 NULL},
		{"bad_image",
		 "{\"layers\":[{\"digest\":\"sha256:" HEX_A "\",\"size\":-1,\"mediaType\":\"" OCI
		 "layer.v1.tar\"}]}",
		 NULL},
		{"bad_image",
		 "{\"layers\":[{\"digest\":\"sha256:" HEX_A
		 "\",\"size\":1,\"mediaType\":\"text/plain\"}]}",
		 NULL},
		{"image_too_large",
		 "{\"layers\":[{\"digest\":\"sha256:" HEX_A
		 "\",\"size\":99999999,\"mediaType\":\"" OCI "layer.v1.tar\"}]}",
		 NULL},
		{"platform_mismatch", NULL, "{\"architecture\":\"arm64\"}"},
		{"platform_mismatch", NULL, "{\"os\":\"windows\"}"},
		{"bad_image", NULL, "{\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[]}}"},
		{"bad_image", NULL,
		 "{\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:" HEX_A
		 "\",\"sha256:" HEX_B "\"]}}"},
		{"bad_digest", NULL, "{\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"md5:1\"]}}"},
		{"bad_image", NULL,
		 "{\"rootfs\":{\"type\":\"other\",\"diff_ids\":[\"sha256:" HEX_A "\"]}}"},
		{"bad_image", NULL, "{\"config\":3}"},
	};

	for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
		struct image i;
		json_t *patch;

		prepare(&i);
		if (cases[n].patch_manifest) {
			patch = json_loads(cases[n].patch_manifest, 0, NULL);
			ck_assert_ptr_nonnull(patch);
			json_object_update(i.manifest_doc, patch);
			json_decref(patch);
		}
		if (cases[n].patch_config) {
			patch = json_loads(cases[n].patch_config, 0, NULL);
			ck_assert_ptr_nonnull(patch);
			json_object_update(i.config_doc, patch);
			json_decref(patch);
		}
		store(&i);
		refused(i.index, "", cases[n].code);
	}
}
END_TEST

static void choose(json_t *index, const char *platform, const char *pin, const char *expected)
{
	char hex[HB_HEX256] = "";
	int64_t size;
	struct hb_error err = {"", ""};
	json_t *list = json_object_get(index, "manifests"), *turned = json_array();

	/* Every rotation: the result must not depend on the order. */
	for (size_t r = 0; r < json_array_size(list); r++) {
		int rc;

		json_array_clear(turned);
		for (size_t i = 0; i < json_array_size(list); i++)
			json_array_append(turned,
					  json_array_get(list, (i + r) % json_array_size(list)));
		json_object_set(index, "manifests", turned);
		rc = hb_chain_choose(index, platform, pin, hex, &size, &err);
		if (strlen(expected) == 64) {
			ck_assert_msg(rc == 0, "%s", err.message);
			ck_assert_str_eq(hex, expected);
		} else {
			ck_assert_int_eq(rc, -1);
			ck_assert_str_eq(err.code, expected);
		}
	}
	json_decref(turned);
	json_decref(index);
}

static json_t *index_of(json_t *a, json_t *b, json_t *c)
{
	json_t *list = json_pack("[o]", a);

	if (b)
		json_array_append_new(list, b);
	if (c)
		json_array_append_new(list, c);
	return json_pack("{s:o}", "manifests", list);
}

START_TEST(test_h05_choosing_the_platform)
{
	json_t *attestation = entry(HEX_A, 1, "unknown", NULL),
	       *marked = entry(HEX_A, 1, "amd64", NULL);

	json_object_set_new(json_object_get(attestation, "platform"), "os", json_string("unknown"));
	json_object_set_new(
		marked, "annotations",
		json_pack("{s:s}", "vnd.docker.reference.type", "attestation-manifest"));
	/* arm64 without a variant and with v8 are the same thing; a newer one is never taken. */
	choose(index_of(entry(HEX_A, 1, "amd64", NULL), entry(HEX_B, 1, "arm64", NULL), NULL),
	       "linux/arm64", "", HEX_B);
	choose(index_of(entry(HEX_A, 1, "arm64", "v9"), entry(HEX_B, 1, "arm64", "v8"), NULL),
	       "linux/arm64", "", HEX_B);
	choose(index_of(entry(HEX_A, 1, "arm64", "v9"), entry(HEX_B, 1, "arm64", "v8.2"), NULL),
	       "linux/arm64", "", "platform_absent");
	/* Junk counts as the base, but behind a real entry. */
	choose(index_of(entry(HEX_B, 1, "amd64", "junk"), NULL, NULL), "linux/amd64", "", HEX_B);
	choose(index_of(entry(HEX_A, 1, "amd64", "junk"), entry(HEX_B, 1, "amd64", NULL), NULL),
	       "linux/amd64", "", HEX_B);
	/* Attestations never. */
	choose(index_of(attestation, marked, entry(HEX_B, 1, "amd64", NULL)), "linux/amd64", "",
	       HEX_B);
	/* Duplicates: the pin decides, else the smaller digest. */
	choose(index_of(entry(HEX_B, 1, "amd64", NULL), entry(HEX_A, 1, "amd64", NULL), NULL),
	       "linux/amd64", "", HEX_A);
	choose(index_of(entry(HEX_B, 1, "amd64", NULL), entry(HEX_A, 1, "amd64", NULL), NULL),
	       "linux/amd64", HEX_B, HEX_B);
	choose(index_of(entry(HEX_B, 1, "amd64", NULL), entry(HEX_A, 1, "amd64", NULL), NULL),
	       "linux/amd64", HEX_C, "platform_mismatch");
	/* A pin doesn't make an entry runnable. */
	choose(index_of(entry(HEX_B, 1, "arm64", "v9"), NULL, NULL), "linux/arm64", HEX_B,
	       "platform_absent");
	/* Absent: never the first. */
	choose(index_of(entry(HEX_A, 1, "arm", "v7"), entry(HEX_B, 1, "arm64", NULL), NULL),
	       "linux/amd64", "", "platform_absent");
	/* One bad digest refuses the whole. */
	choose(index_of(entry("../../etc/passwd", 1, "s390x", NULL), entry(HEX_B, 1, "amd64", NULL),
			NULL),
	       "linux/amd64", "", "bad_digest");
}
END_TEST

START_TEST(test_absence_names_what_is_offered)
{
	json_t *index =
		index_of(entry(HEX_A, 1, "arm", "v7"), entry(HEX_B, 1, "arm64", NULL), NULL);
	char hex[HB_HEX256];
	int64_t size;
	struct hb_error err;

	ck_assert_int_eq(hb_chain_choose(index, "linux/amd64", "", hex, &size, &err), -1);
	ck_assert_ptr_nonnull(strstr(err.message, "linux/arm/v7"));
	ck_assert_ptr_nonnull(strstr(err.message, "linux/arm64"));
	json_decref(index);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("chain");
	TCase *t = tcase_create("chain");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, test_whole_chain);
	tcase_add_test(t, test_altered_document);
	tcase_add_test(t, test_bad_documents);
	tcase_add_test(t, test_h05_choosing_the_platform);
	tcase_add_test(t, test_absence_names_what_is_offered);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
