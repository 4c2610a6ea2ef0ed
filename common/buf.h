/*
 * A growable byte buffer, always NUL-terminated one past `len` once anything was added.
 * Allocation failure aborts the process: nothing here can go on without memory.
 */
#ifndef HB_COMMON_BUF_H
#define HB_COMMON_BUF_H

#include <stddef.h>

struct hb_buf {
	char *data;
	size_t len, cap;
};

#define HB_BUF_INIT {0}

void hb_buf_add(struct hb_buf *b, const void *data, size_t len);
void hb_buf_adds(struct hb_buf *b, const char *text);
void hb_buf_addc(struct hb_buf *b, char c);
void hb_buf_printf(struct hb_buf *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), nonnull(1, 2)));
void hb_buf_clear(struct hb_buf *b); /* keeps the memory */
void hb_buf_free(struct hb_buf *b);
/* Give the bytes away (caller frees with free()); never NULL. */
char *hb_buf_take(struct hb_buf *b);

void *hb_calloc(size_t n, size_t size);
char *hb_strdup(const char *s);
char *hb_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
