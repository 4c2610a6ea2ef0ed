/* The chain of an image, derived from bytes (chain.h). */
#include "broker/installer/chain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/json.h"

static const char *const index_types[] = {
	"application/vnd.oci.image.index.v1+json",
	"application/vnd.docker.distribution.manifest.list.v2+json", NULL};
static const char *const manifest_types[] = {"application/vnd.oci.image.manifest.v1+json",
					     "application/vnd.docker.distribution.manifest.v2+json",
					     NULL};
static const char *const config_types[] = {"application/vnd.oci.image.config.v1+json",
					   "application/vnd.docker.container.image.v1+json", NULL};
static const char *const layer_types[] = {"application/vnd.oci.image.layer.v1.tar",
					  "application/vnd.oci.image.layer.v1.tar+gzip",
					  "application/vnd.oci.image.layer.v1.tar+zstd",
					  "application/vnd.docker.image.rootfs.diff.tar",
					  "application/vnd.docker.image.rootfs.diff.tar.gzip",
					  "application/vnd.docker.image.rootfs.diff.tar.zstd",
					  NULL};

static bool is_one_of(const char *text, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(text, *list) == 0)
			return true;
	return false;
}

int hb_blob_open(int blobs_fd, const char *hex, int64_t size, struct hb_error *err)
{
	struct stat st;
	int fd;

	/* The fetcher owns this directory: without O_NONBLOCK a FIFO of that name would stop us for
	 * ever. */
	fd = hb_fs_open_beneath(blobs_fd, hex, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0, err);
	if (fd < 0)
		return hb_fail(
			err, "blob_missing",
			"blob sha256:%s is not in the blob store; the fetcher has not delivered it",
			hex);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return hb_fail(err, "blob_missing",
			       "blob sha256:%s is not a regular file in the blob store", hex);
	}
	if (size >= 0 && st.st_size != size) {
		close(fd);
		return hb_fail(err, "size_mismatch",
			       "blob sha256:%s has %lld bytes, its descriptor says %lld", hex,
			       (long long)st.st_size, (long long)size);
	}
	if (size < 0 && st.st_size > HB_CHAIN_DOCUMENT_MAX) {
		close(fd);
		return hb_fail(err, "bad_image", "document sha256:%s is larger than %u bytes", hex,
			       HB_CHAIN_DOCUMENT_MAX);
	}
	return fd;
}

/* A document of the chain: read whole, hashed, parsed. `bytes` gets the exact text. */
static json_t *document_read(int blobs_fd, const char *hex, int64_t size, struct hb_buf *bytes,
			     struct hb_error *err)
{
	char found[HB_HEX256], chunk[16384];
	json_t *doc = NULL;
	ssize_t n;
	int fd;

	if (size > HB_CHAIN_DOCUMENT_MAX) {
		hb_fail(err, "bad_image", "document sha256:%s claims %lld bytes, the limit is %u",
			hex, (long long)size, HB_CHAIN_DOCUMENT_MAX);
		return NULL;
	}
	fd = hb_blob_open(blobs_fd, hex, size, err);
	if (fd < 0)
		return NULL;
	while ((n = read(fd, chunk, sizeof chunk)) > 0 && bytes->len <= HB_CHAIN_DOCUMENT_MAX)
		hb_buf_add(bytes, chunk, (size_t)n);
	if (n < 0) {
		hb_fail_errno(err, "blob_missing", "blob sha256:%s can't be read", hex);
		goto out;
	}
	hb_sha256_hex(bytes->data ? bytes->data : "", bytes->len, found);
	if (strcmp(found, hex) != 0) {
		hb_fail(err, "digest_mismatch",
			"document sha256:%s in the blob store has digest sha256:%s", hex, found);
		goto out;
	}
	doc = hb_json_parse_foreign(bytes->data ? bytes->data : "", bytes->len, err);
	if (!doc)
		hb_fail_prefix(err, "document sha256:%s", hex);
	else if (!json_is_object(doc)) {
		hb_fail(err, "bad_image", "document sha256:%s is not a JSON object", hex);
		json_decref(doc);
		doc = NULL;
	}
out:
	close(fd);
	return doc;
}

static int descriptor_read(const json_t *d, const char *what, char hex[HB_HEX256], int64_t *size,
			   struct hb_error *err)
{
	const json_t *s = json_object_get(d, "size");
	const char *digest = hb_json_text(d, "digest", NULL);

	if (!json_is_object(d) || !digest || !json_is_integer(s))
		return hb_fail(err, "bad_image", "%s is not a descriptor with digest and size",
			       what);
	if (hb_digest_parse(digest, hex, err) < 0)
		return hb_fail_prefix(err, "%s", what);
	if (json_integer_value(s) < 0)
		return hb_fail(err, "bad_image", "%s has a negative size", what);
	*size = json_integer_value(s);
	return 0;
}

/*
 * The highest micro-architecture level of x86-64 that this CPU has (1 elsewhere), told by the
 * features that came with each level: compilers differ in whether they know the levels' own names.
 */
static int host_level(void)
{
	int level = 1;

#if defined(__x86_64__)
	__builtin_cpu_init();
	if (__builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.2") &&
	    __builtin_cpu_supports("popcnt"))
		level = 2;
	if (level == 2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
	    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma"))
		level = 3;
	if (level == 3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl"))
		level = 4;
#endif
	return level;
}

/*
 * How well a variant suits this machine: higher is better, 0 never. No variant means v1 for amd64
 * and v8 for arm64. Anything that looks like a level and is above the machine's is refused, since
 * an image that the CPU can't run only fails later; what is no level at all ("junk" appears in
 * published indexes) counts as the base, behind real ones.
 */
static int variant_rank(const char *arch, const char *variant)
{
	bool arm = strcmp(arch, "arm64") == 0;
	int base = arm ? 8 : 1, highest = arm ? 8 : host_level(), level;

	if (variant[0] == '\0')
		return 100 + base;
	if (variant[0] != 'v' || variant[1] < '0' || variant[1] > '9')
		return 1;
	if (variant[2] != '\0')
		return arm ? 0 : 1;
	level = variant[1] - '0';
	if (level < base || (!arm && level > 4))
		return 1;
	return level <= highest ? 100 + level : 0;
}

static bool is_attestation(const json_t *entry)
{
	const json_t *notes = json_object_get(entry, "annotations");
	const char *type = hb_json_text(notes, "vnd.docker.reference.type", NULL);

	return type && strcmp(type, "attestation-manifest") == 0;
}

static void offered_add(struct hb_buf *offered, const char *os, const char *arch,
			const char *variant)
{
	struct hb_buf one = HB_BUF_INIT;

	hb_buf_printf(&one, "%.24s/%.24s%s%.24s", os, arch, variant[0] ? "/" : "", variant);
	if (offered->len < 200 && !(offered->data && strstr(offered->data, one.data))) {
		hb_buf_adds(offered, offered->len ? ", " : "");
		hb_buf_adds(offered, one.data);
	}
	hb_buf_free(&one);
}

int hb_chain_choose(const json_t *index, const char *platform, const char *pin, char hex[HB_HEX256],
		    int64_t *size, struct hb_error *err)
{
	const json_t *entries = json_object_get(index, "manifests"), *entry;
	const char *arch = strchr(platform, '/') ? strchr(platform, '/') + 1 : "";
	struct hb_buf offered = HB_BUF_INIT;
	char best[HB_HEX256] = "", one[HB_HEX256];
	int best_rank = 0, rank, rc = -1;
	int64_t best_size = 0, one_size;
	size_t i;

	if (!json_is_array(entries))
		return hb_fail(err, "bad_image", "the image index has no list of manifests");
	json_array_foreach (entries, i, entry) {
		const json_t *p = json_object_get(entry, "platform");
		const char *os = hb_json_text(p, "os", ""),
			   *a = hb_json_text(p, "architecture", "");
		const char *variant = hb_json_text(p, "variant", "");
		const char *type = hb_json_text(entry, "mediaType", "");

		/* One bad digest refuses the whole document, whether or not it would have been
		 * chosen. */
		if (descriptor_read(entry, "an entry of the image index", one, &one_size, err) < 0)
			goto out;
		if (is_attestation(entry) || !is_one_of(type, manifest_types) ||
		    strcmp(os, "unknown") == 0 || os[0] == '\0')
			continue;
		offered_add(&offered, os, a, variant);
		if (strncmp(platform, os, strlen(os)) != 0 || platform[strlen(os)] != '/' ||
		    strcmp(a, arch) != 0)
			continue;
		rank = variant_rank(arch, variant);
		if (rank == 0)
			continue;
		/* The pin decides between duplicates; without one, the smaller digest: any rule
		 * that doesn't depend on the order of entries would do. */
		if (pin[0] && strcmp(one, pin) == 0)
			rank = 1000;
		if (rank > best_rank || (rank == best_rank && strcmp(one, best) < 0)) {
			best_rank = rank;
			best_size = one_size;
			memcpy(best, one, sizeof best);
		}
	}
	if (best_rank == 0) {
		hb_fail(err, "platform_absent", "the image has nothing for %s; it offers: %s",
			platform, offered.len ? offered.data : "no platform at all");
		goto out;
	}
	if (pin[0] && strcmp(best, pin) != 0) {
		hb_fail(err, "platform_mismatch",
			"the image's %s manifest is sha256:%s, but sha256:%s is pinned", platform,
			best, pin);
		goto out;
	}
	memcpy(hex, best, sizeof best);
	*size = best_size;
	rc = 0;
out:
	hb_buf_free(&offered);
	return rc;
}

/* What a document is: its own word, else its shape (OCI lets the field be absent). One that could
 * be read as both is neither: an image must mean one thing. */
static bool is_index(const json_t *doc)
{
	const char *type = hb_json_text(doc, "mediaType", "");

	return json_object_get(doc, "manifests") && !json_object_get(doc, "layers") &&
	       (type[0] == '\0' || is_one_of(type, index_types));
}

static bool is_manifest(const json_t *doc)
{
	const char *type = hb_json_text(doc, "mediaType", "");

	return json_object_get(doc, "layers") && !json_object_get(doc, "manifests") &&
	       (type[0] == '\0' || is_one_of(type, manifest_types));
}

static int layer_read(const json_t *d, const struct hb_chain_want *want, struct hb_chain_layer *out,
		      struct hb_error *err)
{
	const char *type = hb_json_text(d, "mediaType", "");
	int64_t size;

	if (descriptor_read(d, "a layer of the manifest", out->digest, &size, err) < 0)
		return -1;
	if (!is_one_of(type, layer_types))
		return hb_fail(err, "bad_image",
			       "layer sha256:%s has media type %.80s, which is not a layer archive",
			       out->digest, type[0] ? type : "(none)");
	out->size = (uint64_t)size;
	if (want->max_blob && out->size > want->max_blob)
		return hb_fail(err, "image_too_large",
			       "layer sha256:%s has %llu bytes; fetcher.max_blob_size allows %llu",
			       out->digest, (unsigned long long)out->size,
			       (unsigned long long)want->max_blob);
	memcpy(out->media_type, type, strlen(type) + 1);
	return 0;
}

static int layers_read(const json_t *manifest, const struct hb_chain_want *want, struct hb_chain *c,
		       struct hb_error *err)
{
	const json_t *list = json_object_get(manifest, "layers"), *d;
	size_t i, j;

	if (!json_is_array(list) || json_array_size(list) == 0 ||
	    json_array_size(list) > HB_CHAIN_LAYERS_MAX)
		return hb_fail(err, "bad_image", "manifest sha256:%s must list 1 to %d layers",
			       c->manifest, HB_CHAIN_LAYERS_MAX);
	c->layer_count = json_array_size(list);
	c->layers = hb_calloc(c->layer_count, sizeof *c->layers);
	json_array_foreach (list, i, d) {
		if (layer_read(d, want, &c->layers[i], err) < 0)
			return -1;
		for (j = 0; j < i && strcmp(c->layers[j].digest, c->layers[i].digest) != 0; j++)
			;
		c->total_size += c->layers[i].size;
		if (j < i && c->layers[j].size != c->layers[i].size)
			return hb_fail(err, "bad_image", "layer sha256:%s is listed with two sizes",
				       c->layers[i].digest);
		if (want->max_image && c->total_size > want->max_image)
			return hb_fail(err, "image_too_large",
				       "the image's layers are larger than fetcher.max_image_size "
				       "(%llu bytes)",
				       (unsigned long long)want->max_image);
	}
	return 0;
}

/* The config: platform as asked for, and one diff_id a layer. */
static int config_read(struct hb_chain *c, const char *platform, struct hb_error *err)
{
	const json_t *rootfs = json_object_get(c->image, "rootfs"),
		     *ids = json_object_get(rootfs, "diff_ids");
	const char *os = hb_json_text(c->image, "os", ""),
		   *arch = hb_json_text(c->image, "architecture", "");
	char found[64];
	size_t i;

	snprintf(found, sizeof found, "%.24s/%.24s", os, arch);
	if (strcmp(found, platform) != 0)
		return hb_fail(err, "platform_mismatch",
			       "the image's config says it is for %s, not for %s", found, platform);
	if (strcmp(hb_json_text(rootfs, "type", ""), "layers") != 0 || !json_is_array(ids))
		return hb_fail(err, "bad_image",
			       "config sha256:%s has no rootfs of type \"layers\"", c->config);
	if (json_array_size(ids) != c->layer_count)
		return hb_fail(err, "bad_image",
			       "config sha256:%s names %zu diff_ids for %zu layers", c->config,
			       json_array_size(ids), c->layer_count);
	for (i = 0; i < c->layer_count; i++) {
		const char *text = json_string_value(json_array_get(ids, i));

		if (hb_digest_parse(text ? text : "", c->layers[i].diff_id, err) < 0)
			return hb_fail_prefix(err, "diff_id %zu of config sha256:%s", i, c->config);
	}
	if (json_object_get(c->image, "config") &&
	    !json_is_object(json_object_get(c->image, "config")) &&
	    !json_is_null(json_object_get(c->image, "config")))
		return hb_fail(err, "bad_image", "config sha256:%s: \"config\" is not an object",
			       c->config);
	return 0;
}

static int manifest_read(int blobs_fd, const json_t *manifest, const struct hb_chain_want *want,
			 struct hb_chain *c, struct hb_error *err)
{
	const json_t *config = json_object_get(manifest, "config");
	int64_t size;

	if (!is_manifest(manifest))
		return hb_fail(err, "bad_image", "sha256:%s is not an image manifest", c->manifest);
	if (json_object_get(manifest, "artifactType") || json_object_get(manifest, "subject"))
		return hb_fail(err, "bad_image", "sha256:%s is an artifact, not an image",
			       c->manifest);
	if (descriptor_read(config, "the manifest's config", c->config, &size, err) < 0)
		return -1;
	if (!is_one_of(hb_json_text(config, "mediaType", ""), config_types))
		return hb_fail(err, "bad_image",
			       "config sha256:%s has media type %.80s, which is not an image's",
			       c->config, hb_json_text(config, "mediaType", "(none)"));
	if (layers_read(manifest, want, c, err) < 0)
		return -1;
	c->image = document_read(blobs_fd, c->config, size, &c->config_bytes, err);
	return c->image ? config_read(c, want->platform, err) : -1;
}

int hb_chain_derive(int blobs_fd, const struct hb_chain_want *want, struct hb_chain *out,
		    struct hb_error *err)
{
	struct hb_chain c = {.config_bytes = HB_BUF_INIT};
	struct hb_buf bytes = HB_BUF_INIT;
	json_t *index, *manifest = NULL;
	int64_t size = -1;
	int rc = -1;

	snprintf(c.index, sizeof c.index, "%s", want->index);
	index = document_read(blobs_fd, c.index, -1, &bytes, err);
	if (!index)
		goto out;
	if (is_index(index)) {
		if (hb_chain_choose(index, want->platform, want->pin, c.manifest, &size, err) < 0)
			goto out;
		hb_buf_clear(&bytes);
		manifest = document_read(blobs_fd, c.manifest, size, &bytes, err);
	} else {
		/* Pinned to one platform's manifest directly: it is its own index. */
		memcpy(c.manifest, c.index, sizeof c.manifest);
		if (want->pin[0] && strcmp(want->pin, c.manifest) != 0) {
			hb_fail(err, "platform_mismatch",
				"the image is manifest sha256:%s, but sha256:%s is pinned",
				c.manifest, want->pin);
			goto out;
		}
		manifest = json_incref(index);
	}
	if (!manifest || manifest_read(blobs_fd, manifest, want, &c, err) < 0)
		goto out;
	*out = c;
	memset(&c, 0, sizeof c);
	rc = 0;
out:
	json_decref(index);
	json_decref(manifest);
	hb_buf_free(&bytes);
	hb_chain_free(&c);
	return rc;
}

void hb_chain_free(struct hb_chain *c)
{
	free(c->layers);
	json_decref(c->image);
	hb_buf_free(&c->config_bytes);
	memset(c, 0, sizeof *c);
}
