/*
 * hermes.conf: strict INI (inih). Every key is in one table (config_keys.c) with its type, its default
 * and a line of help; an unknown or repeated key, a bad value or a key outside a section is an error
 * that names file and line.  Configuration holds no secret.
 */
#ifndef HB_COMMON_CONFIG_H
#define HB_COMMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "common/buf.h"
#include "common/error.h"

enum hb_config_type {
	HB_CONFIG_TEXT,  /* any single line, may be empty */
	HB_CONFIG_INT,   /* min..max */
	HB_CONFIG_BOOL,  /* yes | no */
	HB_CONFIG_WORD,  /* one of `words`, space separated */
	HB_CONFIG_LIST,  /* comma separated, blanks trimmed */
	HB_CONFIG_SIZE   /* bytes, suffix K M G T (1024) */
};

struct hb_config_key {
	const char *name; /* "runtime.image"; "runtime.env.*" takes any env.NAME */
	enum hb_config_type type;
	const char *fallback;
	long long min, max;
	const char *words;
	const char *help;
};

extern const struct hb_config_key hb_config_keys[];
extern const size_t hb_config_key_count;

struct hb_config;

/* Read `path` relative to dirfd (AT_FDCWD: the working directory), then apply `overrides`
 * ("section.key=value" each). A missing file is an error ("config_missing"). */
int hb_config_load(int dirfd, const char *path, const char *const *overrides, size_t override_count,
		   struct hb_config **out, struct hb_error *err);
/* Only defaults and overrides. */
int hb_config_defaults(const char *const *overrides, size_t override_count, struct hb_config **out,
		       struct hb_error *err);
void hb_config_free(struct hb_config *c);

/* Asking for a key that is not in the table is a programming error and aborts. */
const char *hb_config_text(const struct hb_config *c, const char *name);
long long hb_config_int(const struct hb_config *c, const char *name); /* INT and SIZE */
bool hb_config_bool(const struct hb_config *c, const char *name);

/* Lists and wildcard keys, in file order; item is NULL past the end. */
size_t hb_config_list(const struct hb_config *c, const char *name, const char ***items);
size_t hb_config_env(const struct hb_config *c, const char ***names, const char ***values);

/* Append a complete commented file with every key at its present value (used to write the first one). */
void hb_config_print(const struct hb_config *c, struct hb_buf *out);

/* SHA-256 over the canonical form of every [runtime] value: sealed into runtime operations, so that a
 * configuration that changed after approval is noticed. */
int hb_config_runtime_digest(const struct hb_config *c, char hex[65], struct hb_error *err);

#endif
