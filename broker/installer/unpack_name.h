/*
 * Names in a layer: what one means (an entry, the root, a whiteout) and which are refused.
 *
 * The rules are listed in docs/UNPACK.md. Everything here is about bytes only; where a name leads
 * on disk is decided by unpack_tree.c, which never resolves one outside the root.
 */
#ifndef HB_INSTALLER_UNPACK_NAME_H
#define HB_INSTALLER_UNPACK_NAME_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum hb_name_kind {
	HB_NAME_ENTRY,
	HB_NAME_ROOT,     /* "." or "./" */
	HB_NAME_WHITEOUT, /* leaf is the name that is deleted */
	HB_NAME_OPAQUE,   /* parent is the directory whose older content is hidden */
	HB_NAME_IGNORED,  /* AUFS housekeeping: .wh..wh.plnk and its like */
};

struct hb_name {
	enum hb_name_kind kind;
	char parent[PATH_MAX]; /* "a/b", "" for the root */
	size_t parent_len;
	const char *leaf; /* in parent[], after its NUL */
	int slash;        /* the name ended in a slash */
};

/* Codes: unsafe_path, limit_exceeded. */
int hb_name_parse(const char *raw, uint32_t max_bytes, struct hb_name *out, struct hb_error *err);

/* The target of a hard link is a name too, but absolute ones are taken from the image's root. */
int hb_name_parse_target(const char *raw, uint32_t max_bytes, struct hb_name *out,
			 struct hb_error *err);

/* For messages: escaped as in manifest.mtree and cut. */
struct hb_shown {
	char text[168];
};
const char *hb_name_show(const char *raw, struct hb_shown *out);

#endif
