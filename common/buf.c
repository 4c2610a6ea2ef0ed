/* The growable buffer and the allocation helpers that abort when memory is gone. */
#include "common/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void __attribute__((noreturn))
no_memory(void)
{
	fputs("out of memory\n", stderr);
	abort();
}

static void
reserve(struct hb_buf *b, size_t more)
{
	size_t need, cap;
	char *data;

	if (more > SIZE_MAX / 2 - b->len - 1)
		no_memory();
	need = b->len + more + 1;
	if (need <= b->cap)
		return;
	cap = b->cap < 64 ? 64 : b->cap;
	while (cap < need)
		cap *= 2;
	data = realloc(b->data, cap);
	if (data == NULL)
		no_memory();
	b->data = data;
	b->cap = cap;
}

void
hb_buf_add(struct hb_buf *b, const void *data, size_t len)
{
	reserve(b, len);
	if (len > 0)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
}

void
hb_buf_adds(struct hb_buf *b, const char *text)
{
	hb_buf_add(b, text, strlen(text));
}

void
hb_buf_addc(struct hb_buf *b, char c)
{
	hb_buf_add(b, &c, 1);
}

void
hb_buf_printf(struct hb_buf *b, const char *fmt, ...)
{
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (len < 0)
		no_memory();
	reserve(b, (size_t)len);
	va_start(ap, fmt);
	vsnprintf(b->data + b->len, (size_t)len + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)len;
}

void
hb_buf_clear(struct hb_buf *b)
{
	b->len = 0;
	if (b->data != NULL)
		b->data[0] = '\0';
}

void
hb_buf_free(struct hb_buf *b)
{
	free(b->data);
	*b = (struct hb_buf)HB_BUF_INIT;
}

char *
hb_buf_take(struct hb_buf *b)
{
	char *data;

	reserve(b, 0);
	b->data[b->len] = '\0';
	data = b->data;
	*b = (struct hb_buf)HB_BUF_INIT;
	return data;
}

void *
hb_calloc(size_t n, size_t size)
{
	void *p = calloc(n > 0 ? n : 1, size > 0 ? size : 1);

	if (p == NULL)
		no_memory();
	return p;
}

char *
hb_strdup(const char *s)
{
	char *copy = strdup(s);

	if (copy == NULL)
		no_memory();
	return copy;
}

char *
hb_asprintf(const char *fmt, ...)
{
	va_list ap;
	char *text;
	int len;

	va_start(ap, fmt);
	len = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (len < 0)
		no_memory();
	return text;
}
