/* Binary search in the generated tables; see unicode.h. */
#include "policy/unicode.h"

#include <stddef.h>

#include "policy/unicode_tables.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool within(const struct hb_unicode_range *table, size_t count, uint32_t c)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (c > table[middle].last)
			low = middle + 1;
		else if (c < table[middle].first)
			high = middle;
		else
			return true;
	}
	return false;
}

static bool ascii_letter(uint32_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool hb_unicode_is_shown(uint32_t c)
{
	if (c < 0x80)
		return c >= 0x20 && c < 0x7f;
	return within(hb_unicode_shown, COUNT(hb_unicode_shown), c);
}

bool hb_unicode_is_alnum(uint32_t c)
{
	if (c < 0x80)
		return ascii_letter(c) || (c >= '0' && c <= '9');
	return within(hb_unicode_shown, COUNT(hb_unicode_shown), c);
}

bool hb_unicode_is_mark(uint32_t c)
{
	return within(hb_unicode_marks, COUNT(hb_unicode_marks), c);
}

bool hb_unicode_is_rtl(uint32_t c)
{
	return within(hb_unicode_rtl, COUNT(hb_unicode_rtl), c);
}

bool hb_unicode_is_lookalike(uint32_t c)
{
	return within(hb_unicode_lookalikes, COUNT(hb_unicode_lookalikes), c);
}

int hb_unicode_script(uint32_t c)
{
	size_t low = 0, high = COUNT(hb_unicode_scripts);

	if (c < 0x80)
		return ascii_letter(c) ? HB_SCRIPT_LATIN : -1;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (c > hb_unicode_scripts[middle].last)
			low = middle + 1;
		else if (c < hb_unicode_scripts[middle].first)
			high = middle;
		else
			return hb_unicode_scripts[middle].script;
	}
	return -1;
}

const char *hb_unicode_script_name(int script)
{
	return script >= 0 && (size_t)script < COUNT(hb_script_names) ? hb_script_names[script]
								      : "unknown";
}
