/*
 * The one error convention of the tree.
 *
 * A function that can fail returns 0 or -1 (or a pointer, NULL on failure) and takes a
 * `struct hb_error *` as its last argument.  On failure it fills a stable machine-readable
 * code ("digest_mismatch") and a message that names the thing and what to do about it.
 * Outputs are untouched on failure.  Libraries never log and never exit.
 * A NULL error pointer is allowed everywhere and means "I don't want to know".
 */
#ifndef HB_COMMON_ERROR_H
#define HB_COMMON_ERROR_H

#include <stdarg.h>

#define HB_ERROR_CODE_MAX 48
#define HB_ERROR_MESSAGE_MAX 512

struct hb_error {
	char code[HB_ERROR_CODE_MAX];       /* [a-z0-9_]+, stable across releases */
	char message[HB_ERROR_MESSAGE_MAX]; /* UTF-8, one line, never holds a secret */
};

/* Fill err and return -1, so that `return hb_fail(...)` reads well. */
int hb_fail(struct hb_error *err, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int hb_vfail(struct hb_error *err, const char *code, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));

/* The same, with ": <strerror(errno)>" appended; keeps errno. Code "disk_full" replaces
 * the given one for ENOSPC and EDQUOT, so that a full disk reads the same everywhere. */
int hb_fail_errno(struct hb_error *err, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Put "prefix: " before the message already in err; returns -1. */
int hb_fail_prefix(struct hb_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same functions; that they return -1 is visible to the compiler and to static analysis. */
static inline int hb_minus_one(int rc)
{
	(void)rc;
	return -1;
}
#define hb_fail(...) hb_minus_one((hb_fail)(__VA_ARGS__))
#define hb_fail_errno(...) hb_minus_one((hb_fail_errno)(__VA_ARGS__))
#define hb_fail_prefix(...) hb_minus_one((hb_fail_prefix)(__VA_ARGS__))

#endif
