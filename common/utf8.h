/* UTF-8 (RFC 3629): one strict decoder. Overlong forms, surrogates and values past U+10FFFF are
 * refused. */
#ifndef HB_COMMON_UTF8_H
#define HB_COMMON_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define HB_UTF8_BAD UINT32_MAX

/* Decode the code point at *p (p < end) and move *p past it. At a bad byte: HB_UTF8_BAD, *p moved
 * by one. */
uint32_t hb_utf8_next(const char **p, const char *end);

/* Code points in `len` bytes; (size_t)-1 when they are not valid UTF-8. */
size_t hb_utf8_count(const char *text, size_t len);

#endif
