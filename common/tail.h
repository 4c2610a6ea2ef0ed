/*
 * Output of a program, bounded: every byte is counted, the last ones are kept.
 *
 * What is kept is given back as text: the last `HB_TAIL_CHARS` characters, valid UTF-8 whatever the
 * program wrote (each byte that isn't part of a character becomes U+FFFD, and so does NUL, which
 * JSON readers stumble over).
 */
#ifndef HB_COMMON_TAIL_H
#define HB_COMMON_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_TAIL_CHARS 12000 /* what a client is given at most */

struct hb_tail {
	char *data; /* the last bytes, at most HB_TAIL_BYTES when read */
	size_t len;
	uint64_t total;
};

#define HB_TAIL_INIT \
	{ \
		0 \
	}

void hb_tail_add(struct hb_tail *t, const void *data, size_t len);
/* At most `chars` characters (0: HB_TAIL_CHARS); the caller frees it. *truncated: something was
 * left out. */
char *hb_tail_text(const struct hb_tail *t, size_t chars, bool *truncated);
void hb_tail_free(struct hb_tail *t);

#endif
