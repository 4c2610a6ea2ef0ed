/* The end of a stream of any length in a fixed amount of memory (tail.h). */
#include "common/tail.h"

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/utf8.h"

#define KEEP (HB_TAIL_CHARS * 4 + 4) /* the longest characters, and one that is cut in front */
#define ROOM (KEEP * 2)              /* moved down once for each KEEP bytes */

void hb_tail_add(struct hb_tail *t, const void *data, size_t len)
{
	const char *from = data;

	t->total += len;
	if (len > KEEP) {
		from += len - KEEP;
		len = KEEP;
	}
	if (t->data == NULL)
		t->data = hb_calloc(1, ROOM);
	if (t->len + len > ROOM) {
		size_t keep = KEEP - len;

		if (keep > t->len)
			keep = t->len;
		memmove(t->data, t->data + t->len - keep, keep);
		t->len = keep;
	}
	memcpy(t->data + t->len, from, len);
	t->len += len;
}

char *hb_tail_text(const struct hb_tail *t, size_t chars, bool *truncated)
{
	struct hb_buf out = HB_BUF_INIT;
	const char *end = t->data + t->len, *p = t->data;
	size_t count = 0, skip;

	if (chars == 0)
		chars = HB_TAIL_CHARS;
	/* The rest of a character whose beginning is gone is no character. */
	for (int i = 0; i < 3 && t->total > t->len && p < end && ((unsigned char)*p & 0xc0) == 0x80;
	     i++)
		p++;
	for (const char *q = p; q < end; count++)
		hb_utf8_next(&q, end);
	skip = count > chars ? count - chars : 0;
	*truncated = skip > 0 || t->total > (uint64_t)(end - p);
	for (count = 0; p < end; count++) {
		const char *from = p;
		uint32_t c = hb_utf8_next(&p, end);

		if (count < skip)
			continue;
		if (c == HB_UTF8_BAD || c == 0)
			hb_buf_adds(&out, "\xef\xbf\xbd");
		else
			hb_buf_add(&out, from, (size_t)(p - from));
	}
	return hb_buf_take(&out);
}

void hb_tail_free(struct hb_tail *t)
{
	free(t->data);
	memset(t, 0, sizeof(*t));
}
