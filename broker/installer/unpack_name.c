/* Splitting and judging names of layer entries. */
#include "broker/installer/unpack_name.h"

#include <string.h>

#include "broker/installer/mtree.h"
#include "common/buf.h"

#define WHITEOUT ".wh."
#define AUFS ".wh..wh."
#define OPAQUE ".wh..wh..opq"

const char *hb_name_show(const char *raw, struct hb_shown *out)
{
	struct hb_buf b = HB_BUF_INIT;
	size_t room = sizeof(out->text) - 4, len;

	/* Four bytes a character at worst: never escape more than can be shown. */
	hb_mtree_escape(&b, raw, strnlen(raw, room));
	len = b.len < room ? b.len : room;
	if (len > 0)
		memcpy(out->text, b.data, len);
	out->text[len] = '\0';
	if (len < b.len || strnlen(raw, room + 1) > room)
		memcpy(out->text + len, "...", 4);
	hb_buf_free(&b);
	return out->text;
}

static int refuse(const char *raw, const char *why, struct hb_error *err)
{
	struct hb_shown shown;

	return hb_fail(err, "unsafe_path", "entry \"%s\" %s; the image is refused",
		       hb_name_show(raw, &shown), why);
}

/* Copies the components with single slashes, without "." ones. */
static int normalise(const char *raw, struct hb_name *out, struct hb_error *err)
{
	const char *p = raw, *end;
	size_t n = 0, len;

	out->parent[0] = '\0';
	while (*p != '\0') {
		end = strchrnul(p, '/');
		len = (size_t)(end - p);
#ifndef HB_TEST_NO_PATH_CHECKS
		if (len == 2 && p[0] == '.' && p[1] == '.')
			return refuse(raw, "climbs with \"..\"", err);
#endif
		if (len > 0 && !(len == 1 && p[0] == '.')) {
			if (n > 0)
				out->parent[n++] = '/';
			memcpy(out->parent + n, p, len);
			n += len;
			out->parent[n] = '\0';
		}
		p = *end == '/' ? end + 1 : end;
	}
	out->slash = raw[0] != '\0' && p[-1] == '/';
	out->parent_len = n;
	return 0;
}

static void split(struct hb_name *out)
{
	char *slash = strrchr(out->parent, '/');

	if (slash == NULL) { /* shift by one so that parent can be empty */
		memmove(out->parent + 1, out->parent, out->parent_len + 1);
		slash = out->parent;
	}
	*slash = '\0';
	out->parent_len = (size_t)(slash - out->parent);
	out->leaf = slash + 1;
}

static int check_length(const char *raw, uint32_t max_bytes, struct hb_error *err)
{
	size_t len = strlen(raw);
	struct hb_shown shown;

	if (len <= max_bytes && len < PATH_MAX - 1)
		return 0;
	return hb_fail(err, "limit_exceeded",
		       "entry \"%s\" has a path of %zu bytes, the limit is %u",
		       hb_name_show(raw, &shown), len, max_bytes);
}

/* AUFS names may stand anywhere in the path: .wh..wh.plnk/123.456 */
static int has_aufs_component(const char *path)
{
	for (const char *p = path; p != NULL; p = strchr(p, '/')) {
		p += *p == '/';
		if (strncmp(p, AUFS, strlen(AUFS)) == 0)
			return 1;
	}
	return 0;
}

static int has_whiteout_component(const char *path)
{
	for (const char *p = path; p != NULL; p = strchr(p, '/')) {
		p += *p == '/';
		if (strncmp(p, WHITEOUT, strlen(WHITEOUT)) == 0)
			return 1;
	}
	return 0;
}

static int classify(const char *raw, struct hb_name *out, struct hb_error *err)
{
	if (has_aufs_component(out->parent)) {
		out->kind = HB_NAME_IGNORED;
		return 0;
	}
	if (has_whiteout_component(out->parent))
		return refuse(raw, "lies below a whiteout", err);
	if (strcmp(out->leaf, OPAQUE) == 0) {
		out->kind = HB_NAME_OPAQUE;
	} else if (strncmp(out->leaf, AUFS, strlen(AUFS)) == 0) {
		out->kind = HB_NAME_IGNORED;
	} else if (strncmp(out->leaf, WHITEOUT, strlen(WHITEOUT)) == 0) {
		out->kind = HB_NAME_WHITEOUT;
		out->leaf += strlen(WHITEOUT);
		if (out->leaf[0] == '\0' || strcmp(out->leaf, ".") == 0 ||
		    strcmp(out->leaf, "..") == 0)
			return refuse(raw, "is a whiteout without a name", err);
	} else {
		out->kind = HB_NAME_ENTRY;
	}
	return 0;
}

int hb_name_parse(const char *raw, uint32_t max_bytes, struct hb_name *out, struct hb_error *err)
{
	if (raw[0] == '\0')
		return refuse(raw, "has no name", err);
	if (check_length(raw, max_bytes, err) < 0)
		return -1;
#ifndef HB_TEST_NO_PATH_CHECKS
	if (raw[0] == '/')
		return refuse(raw, "is absolute", err);
#endif
	if (normalise(raw, out, err) < 0)
		return -1;
	if (out->parent_len == 0) {
		out->kind = HB_NAME_ROOT;
		out->leaf = out->parent;
		return 0;
	}
	split(out);
	return classify(raw, out, err);
}

int hb_name_parse_target(const char *raw, uint32_t max_bytes, struct hb_name *out,
			 struct hb_error *err)
{
	if (check_length(raw, max_bytes, err) < 0 || normalise(raw, out, err) < 0)
		return -1;
	if (out->parent_len == 0)
		return refuse(raw, "is a hard link to a directory", err);
	split(out);
	out->kind = HB_NAME_ENTRY;
	return 0;
}
