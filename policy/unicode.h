/* What the escape rule and the warnings about names ask of a character. Tables: unicode_tables.h.
 */
#ifndef HB_POLICY_UNICODE_H
#define HB_POLICY_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

bool hb_unicode_is_shown(
	uint32_t c); /* printable ASCII, or a letter or decimal digit of another script */
bool hb_unicode_is_alnum(uint32_t c); /* letter or decimal digit */
bool hb_unicode_is_mark(uint32_t c);  /* combining mark that may stand behind a letter or digit */
bool hb_unicode_is_rtl(uint32_t c);   /* runs from right to left */
bool hb_unicode_is_lookalike(uint32_t c); /* can be taken for an ASCII letter or digit */

/* Index of the script of a letter; -1 for what has none (digits, signs, letters common to several).
 */
int hb_unicode_script(uint32_t c);
const char *hb_unicode_script_name(int script);

#endif
