/*
 * Small grammars that several schemas share. Each is exact: no trimming, no folding, no other
 * spelling of the same thing, since two spellings of one thing would be two digests and two
 * summaries.
 */
#ifndef HB_POLICY_TEXT_H
#define HB_POLICY_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#define HB_SET_LOWER "abcdefghijklmnopqrstuvwxyz"
#define HB_SET_UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define HB_SET_DIGIT "0123456789"
#define HB_SET_ALNUM HB_SET_LOWER HB_SET_UPPER HB_SET_DIGIT

/* A value for an error message: printable ASCII as it is, the rest as '?', cut with "..." when too
 * long. */
void hb_show(const char *text, char *out, size_t size);

/* First character from `first`, the others from `rest`, 1..max bytes. */
bool hb_word(const char *text, const char *first, const char *rest, size_t max);

/* Absolute, no "." or ".." component, no "//", no slash at the end except "/" itself. */
bool hb_path_normal(const char *path);
/* True when `path` is `dir` or below it, compared by components; both normal. */
bool hb_path_within(const char *path, const char *dir);

/* host or host:port; name, IPv4 or [IPv6]; port 1..65535. Never begins with '-'. */
bool hb_host_port(const char *text);
/* A host alone: DNS name (labels of letters, digits, '-', '_') or a numeric address without
 * brackets. */
bool hb_host_name(const char *text);
bool hb_is_address(const char *text);          /* numeric IPv4 or IPv6 */
bool hb_is_loopback_address(const char *text); /* 127.0.0.0/8 or ::1 */

/* 1..20 decimal digits without a leading zero ("0" itself is allowed). */
bool hb_is_user_id(const char *text);
/* "sha256:" and 64 lower-case hex digits. */
bool hb_is_digest(const char *text);
/* "SHA256:" and the 43 base64 characters of an SSH key fingerprint. */
bool hb_is_fingerprint(const char *text);

#endif
