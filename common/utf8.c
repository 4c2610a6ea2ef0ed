/* The strict UTF-8 decoder behind JSON canonicalisation, text rules and log escaping. */
#include "common/utf8.h"

uint32_t
hb_utf8_next(const char **p, const char *end)
{
	static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
	const unsigned char *s = (const unsigned char *)*p;
	size_t left = (size_t)(end - *p), more, i;
	uint32_t cp;

	(*p)++;
	if (s[0] < 0x80)
		return s[0];
	if ((s[0] & 0xe0) == 0xc0) {
		more = 1;
		cp = s[0] & 0x1f;
	} else if ((s[0] & 0xf0) == 0xe0) {
		more = 2;
		cp = s[0] & 0x0f;
	} else if ((s[0] & 0xf8) == 0xf0) {
		more = 3;
		cp = s[0] & 0x07;
	} else {
		return HB_UTF8_BAD;
	}
	if (left <= more)
		return HB_UTF8_BAD;
	for (i = 1; i <= more; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return HB_UTF8_BAD;
		cp = cp << 6 | (s[i] & 0x3f);
	}
	if (cp < least[more] || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
		return HB_UTF8_BAD;
	*p += more;
	return cp;
}

size_t
hb_utf8_count(const char *text, size_t len)
{
	const char *p = text, *end = text + len;
	size_t n = 0;

	while (p < end) {
		if (hb_utf8_next(&p, end) == HB_UTF8_BAD)
			return (size_t)-1;
		n++;
	}
	return n;
}
