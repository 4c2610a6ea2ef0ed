/*
 * Image references, read by one parser with no leniency: the grammar of the distribution reference
 * (host[:port]/path[:tag]@digest) with the digest required. A name without a host is Docker Hub's,
 * as every client of the field reads it, so that "alpine" and "docker.io/library/alpine" are one
 * name for the bounds.
 */
#include "policy/image_ref.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "policy/text.h"

#define NAME_MAX_CHARS 255 /* distribution-spec: host and path together */
#define DEFAULT_REGISTRY "docker.io"
#define DEFAULT_NAMESPACE "library/"

static int malformed(struct hb_error *err, const char *text, const char *why)
{
	char shown[161];

	hb_show(text, shown, sizeof(shown));
	return hb_fail(err, "image_malformed",
		       "image '%s': %s; write repository[:tag]@sha256:<64 hex digits>", shown, why);
}

/* [a-z0-9]+ parts joined by one '.', one or two '_', or any number of '-'. */
static bool path_component(const char *s, size_t len)
{
	size_t i = 0;

	while (i < len) {
		size_t start = i;

		while (i < len && (islower((unsigned char)s[i]) || isdigit((unsigned char)s[i])))
			i++;
		if (i == start)
			return false;
		if (i == len)
			return true;
		if (s[i] == '.') {
			i++;
		} else if (s[i] == '_') {
			i += i + 1 < len && s[i + 1] == '_' ? 2 : 1;
		} else if (s[i] == '-') {
			while (i < len && s[i] == '-')
				i++;
		} else {
			return false;
		}
	}
	return false;
}

static bool repository_path(const char *s)
{
	for (;;) {
		size_t len = strcspn(s, "/");

		if (len == 0 || !path_component(s, len))
			return false;
		if (s[len] == '\0')
			return true;
		s += len + 1;
	}
}

/* Does the part before the first slash name a host? (The rule of the reference library.) */
static bool looks_like_host(const char *s, size_t len)
{
	if (memchr(s, '.', len) || memchr(s, ':', len) || s[0] == '[')
		return true;
	if (len == 9 && memcmp(s, "localhost", 9) == 0)
		return true;
	for (size_t i = 0; i < len; i++) {
		if (isupper((unsigned char)s[i]))
			return true;
	}
	return false;
}

static bool valid_tag(const char *s)
{
	size_t len = strlen(s);

	if (len == 0 || len > 128 || !(isalnum((unsigned char)s[0]) || s[0] == '_'))
		return false;
	return strspn(s, HB_SET_ALNUM "_.-") == len;
}

/* False when it does not fit: nothing is ever cut. */
static bool copy(char *out, size_t size, const char *prefix, const char *text)
{
	size_t a = strlen(prefix), b = strlen(text);

	if (a + b >= size)
		return false;
	memcpy(out, prefix, a);
	memcpy(out + a, text, b + 1);
	return true;
}

static int parse_layout(const char *text, const char *dir, struct hb_image_ref *out,
			struct hb_error *err)
{
	if (!hb_path_normal(dir) || strcmp(dir, "/") == 0)
		return malformed(
			err, text,
			"the layout must be an absolute directory without '.', '..' or '//'");
	if (strspn(dir, HB_SET_ALNUM "/._+~-") != strlen(dir))
		return malformed(
			err, text,
			"the directory has a character other than letters, digits and /._+~-");
	out->layout = true;
	if (!copy(out->repository, sizeof(out->repository), "", dir))
		return malformed(err, text, "the directory is longer than 255 characters");
	return 0;
}

static int parse_name(const char *text, char *name, struct hb_image_ref *out, struct hb_error *err)
{
	char *slash = strchr(name, '/');
	char *path = name;

	if (slash && looks_like_host(name, (size_t)(slash - name))) {
		*slash = '\0';
		path = slash + 1;
		if (!hb_host_port(name) || !copy(out->registry, sizeof(out->registry), "", name))
			return malformed(err, text, "the registry host is not valid");
	} else {
		copy(out->registry, sizeof(out->registry), "", DEFAULT_REGISTRY);
	}

	char *colon = strchr(path, ':');
	if (colon) {
		*colon = '\0';
		if (!valid_tag(colon + 1) || !copy(out->tag, sizeof(out->tag), "", colon + 1))
			return malformed(err, text, "the tag is not valid");
	}
	if (!repository_path(path))
		return malformed(
			err, text,
			"the repository name is not valid (lower case, digits, . _ - and /)");
	bool bare = path == name && !strchr(path, '/');
	if (!copy(out->repository, sizeof(out->repository), bare ? DEFAULT_NAMESPACE : "", path) ||
	    strlen(out->registry) + strlen(out->repository) + 1 > NAME_MAX_CHARS)
		return malformed(err, text, "the name is longer than 255 characters");
	return 0;
}

int hb_image_ref_parse(const char *text, bool need_tag, struct hb_image_ref *out,
		       struct hb_error *err)
{
	struct hb_image_ref ref = {0};
	char name[NAME_MAX_CHARS + 130];
	const char *at = strchr(text, '@');
	char shown[161];

	if (!at) {
		hb_show(text, shown, sizeof(shown));
		return hb_fail(err, "image_not_pinned",
			       "image '%s' has no digest; a tag can be moved, so add @sha256:<64 "
			       "hex digits>",
			       shown);
	}
	if ((size_t)(at - text) >= sizeof(name) - sizeof(DEFAULT_NAMESPACE))
		return malformed(err, text, "the name is too long");
	memcpy(name, text, (size_t)(at - text));
	name[at - text] = '\0';

	if (hb_digest_parse(at + 1, ref.digest, err) < 0) {
		hb_show(text, shown, sizeof(shown));
		return hb_fail_prefix(err, "image '%s'", shown);
	}
	if (strncmp(name, "oci:", 4) == 0) {
		if (parse_layout(text, name + 4, &ref, err) < 0)
			return -1;
	} else if (parse_name(text, name, &ref, err) < 0) {
		return -1;
	}
	if (need_tag && !ref.layout && ref.tag[0] == '\0')
		return malformed(err, text, "a tag is required beside the digest");
	*out = ref;
	return 0;
}

void hb_image_ref_name(const struct hb_image_ref *ref, char *out, size_t size)
{
	if (ref->layout)
		snprintf(out, size, "oci:%s", ref->repository);
	else
		snprintf(out, size, "%s/%s", ref->registry, ref->repository);
}

const char *hb_host_platform(void)
{
	struct utsname u;

	if (uname(&u) < 0)
		return "unknown";
	if (strcmp(u.machine, "x86_64") == 0)
		return "linux/amd64";
	if (strcmp(u.machine, "aarch64") == 0)
		return "linux/arm64";
	return "unknown";
}
