/*
 * Each entry gets a score; the highest wins, equal scores are decided by the smaller digest, so
 * that order can't matter. An entry that needs more than the machine has scores nothing. A variant
 * that says nothing we know (people have published "amd64/v8" and worse) counts as the base level,
 * behind every well-formed entry.
 */
#include "fetcher/platform.h"

#include <stdio.h>
#include <string.h>

#include "common/buf.h"
#include "common/json.h"

#define SCORE_JUNK 1     /* runnable as far as anyone can tell */
#define SCORE_PLAIN 1000 /* plus the level */

/* "v8" -> 80, "v8.2" -> 82 for arm64; "v7" -> 7 for arm; "v3" -> 3 for amd64. 0: not a variant of
 * that family. */
static int
variant_level(const char *arch, const char *variant)
{
	int major = variant[0] == 'v' && variant[1] >= '1' && variant[1] <= '9' ? variant[1] - '0'
										: 0;
	int minor = 0;

	if (!major)
		return 0;
	if (variant[2] == '.' && variant[3] >= '0' && variant[3] <= '9' && !variant[4])
		minor = variant[3] - '0';
	else if (variant[2])
		return 0;
	if (strcmp(arch, "arm64") == 0)
		return major >= 8 ? major * 10 + minor : 0;
	if (minor)
		return 0;
	if (strcmp(arch, "arm") == 0)
		return major >= 5 && major <= 8 ? major : 0;
	if (strcmp(arch, "amd64") == 0)
		return major <= 4 ? major : 0;
	return 0;
}

static int
default_level(const char *arch)
{
	if (strcmp(arch, "arm64") == 0)
		return 80;
	if (strcmp(arch, "arm") == 0)
		return 7; /* what every builder means by plain "arm" */
	return strcmp(arch, "amd64") == 0 ? 1 : 0;
}

int
hb_platform_host_level(void)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
	/* By features: not every compiler knows the names of the levels (x86-64 psABI, section 3.1.1). */
	if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("ssse3") || !__builtin_cpu_supports("popcnt"))
		return 1;
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("fma"))
		return 2;
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
	    !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
		return 3;
	return 4;
#else
	return 1;
#endif
}

int
hb_platform_parse(const char *text, struct hb_platform *out, struct hb_error *err)
{
	struct hb_platform p = {0};
	char variant[16] = "";
	int used = 0;

	if (sscanf(text, "%15[a-z0-9]/%15[a-z0-9]%n/%15[a-z0-9.]%n", p.os, p.arch, &used, variant,
		   &used) < 2 ||
	    text[used])
		return hb_fail(err, "bad_platform",
			       "the platform must read like linux/amd64 or linux/arm64");
	if (variant[0])
		p.level = variant_level(p.arch, variant);
	else if (strcmp(p.arch, "amd64") == 0)
		p.level = hb_platform_host_level();
	else
		p.level = default_level(p.arch);
	if (variant[0] && !p.level)
		return hb_fail(err, "bad_platform", "the platform has an unknown variant for %s",
			       p.arch);
	*out = p;
	return 0;
}

static int
score_of(const char *os, const char *arch, const char *variant, const struct hb_platform *want)
{
	int level;

	if (strcmp(os, want->os) != 0 || strcmp(arch, want->arch) != 0)
		return 0;
	if (!variant[0])
		level = default_level(arch);
	else
		level = variant_level(arch, variant);
	if (variant[0] && !level) /* 32-bit ARM differs too much for a guess */
		return strcmp(arch, "arm") == 0 ? 0 : SCORE_JUNK;
	return level > want->level ? 0 : SCORE_PLAIN + level;
}

static bool
is_manifest_type(const char *type)
{
	return strcmp(type, "application/vnd.oci.image.manifest.v1+json") == 0 ||
	       strcmp(type, "application/vnd.docker.distribution.manifest.v2+json") == 0;
}

/* Attestations carry the annotation, platform unknown/unknown, or both. */
static bool
is_attestation(const json_t *entry, const char *os, const char *arch)
{
	const json_t *notes = json_object_get(entry, "annotations");

	return hb_json_text(notes, "vnd.docker.reference.type", NULL) ||
	       strcmp(os, "unknown") == 0 || strcmp(arch, "unknown") == 0;
}

/* Names come from the registry: only plain ones are repeated to a person. */
static bool
is_plain(const char *text)
{
	size_t n = strlen(text);

	return n < 24 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == n;
}

static void
note_offer(struct hb_buf *offers, const char *os, const char *arch, const char *variant)
{
	char name[80];
	size_t n;

	if (!is_plain(os) || !is_plain(arch) || !is_plain(variant))
		snprintf(name, sizeof(name), "(unprintable)");
	else
		snprintf(name, sizeof(name), "%s/%s%s%s", os, arch, variant[0] ? "/" : "", variant);
	n = strlen(name);
	for (const char *p = offers->len ? offers->data : ""; (p = strstr(p, name)); p += n)
		if ((p == offers->data || p[-1] == ' ') && (p[n] == ',' || !p[n]))
			return;
	if (offers->len < 300)
		hb_buf_printf(offers, "%s%s", offers->len ? ", " : "", name);
}

struct choice {
	int score;
	long long size;
	char hex[HB_HEX256];
};

static int
consider(const json_t *entry, const struct hb_platform *want, const char *pin, struct choice *best,
	 struct hb_buf *offers, struct hb_error *err)
{
	const json_t *platform = json_object_get(entry, "platform");
	const char *os = hb_json_text(platform, "os", ""),
		   *arch = hb_json_text(platform, "architecture", "");
	const char *variant = hb_json_text(platform, "variant", "");
	long long size = hb_json_int(entry, "size", -1);
	char hex[HB_HEX256];
	int score;

	/* Every digest of the document is checked, those of entries nobody asked for too. */
	if (hb_digest_parse(hb_json_text(entry, "digest", ""), hex, err))
		return hb_fail_prefix(err, "the image index is refused");
	if (!os[0] || !arch[0] || is_attestation(entry, os, arch) ||
	    !is_manifest_type(hb_json_text(entry, "mediaType", "")))
		return 0;
	note_offer(offers, os, arch, variant);
	score = score_of(os, arch, variant, want);
	if (score == 0 || (pin && strcmp(pin, hex) != 0))
		return 0;
	if (size < 0)
		return hb_fail(err, "bad_manifest", "the image index gives no size for sha256:%s",
			       hex);
	if (score > best->score || (score == best->score && strcmp(hex, best->hex) < 0)) {
		best->score = score;
		best->size = size;
		memcpy(best->hex, hex, sizeof(hex));
	}
	return 0;
}

int
hb_platform_choose(const json_t *manifests, const struct hb_platform *want, const char *pin,
		   char hex[HB_HEX256], long long *size, struct hb_error *err)
{
	struct hb_buf offers = HB_BUF_INIT;
	struct choice best = {0}, unpinned = {0};
	const json_t *entry;
	size_t i;
	int rc = -1;

	json_array_foreach (manifests, i, entry)
		if (consider(entry, want, pin, &best, &offers, err) ||
		    (pin && consider(entry, want, NULL, &unpinned, &offers, err)))
			goto out;
	if (!best.score && unpinned.score) {
		hb_fail(err, "platform_mismatch",
			"the image's %s/%s manifest is sha256:%s, not the pinned sha256:%s",
			want->os, want->arch, unpinned.hex, pin);
		goto out;
	}
	if (!best.score) {
		hb_fail(err, "platform_absent", "the image has nothing for %s/%s%s; it offers: %s",
			want->os, want->arch,
			strcmp(want->arch, "arm") == 0 ? " (this variant or below)" : "",
			offers.len ? offers.data : "no platform at all");
		goto out;
	}
	memcpy(hex, best.hex, HB_HEX256);
	*size = best.size;
	rc = 0;
out:
	hb_buf_free(&offers);
	return rc;
}

int
hb_platform_check(const json_t *config, const struct hb_platform *want, struct hb_error *err)
{
	const char *os = hb_json_text(config, "os", ""),
		   *arch = hb_json_text(config, "architecture", "");
	const char *variant = hb_json_text(config, "variant", "");

	if (score_of(os, arch, variant, want))
		return 0;
	if (!is_plain(os) || !is_plain(arch) || !is_plain(variant) || !os[0] || !arch[0])
		return hb_fail(err, "platform_mismatch",
			       "the image's config does not say which platform it is for");
	return hb_fail(err, "platform_mismatch", "the image is for %s/%s%s%s, not for %s/%s", os,
		       arch, variant[0] ? "/" : "", variant, want->os, want->arch);
}
