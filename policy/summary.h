/*
 * What a person is shown. Plain text, made from the operation alone, the same bytes in the broker,
 * the approver and `hermesctl explain`. Every field is shown, also with its default; values can't
 * imitate fields; two different operations never have the same text (docs/PROTOCOL.md, Summaries).
 */
#ifndef HB_POLICY_SUMMARY_H
#define HB_POLICY_SUMMARY_H

#include <jansson.h>

#include "common/buf.h"
#include "common/digest.h"
#include "common/error.h"

#define HB_SUMMARY_MAX \
	3500 /* after escaping; the stricter of UTF-16 units and code points. Telegram allows 4096 \
	      */

/* Append the text; `warnings` (array of {code, text}) is a new reference when not NULL. A request
 * that is not sealed shows "(sealed at prepare)" for those fields. Code too_long_to_show. */
int hb_summary(const char *feature, const json_t *request, struct hb_buf *out, json_t **warnings,
	       struct hb_error *err);

void hb_summary_digest(const struct hb_buf *text, char hex[HB_HEX256]);

/* The escaping rule for one value on one line. */
void hb_escape_value(const char *text, struct hb_buf *out);
/* Several lines, each behind "| ". */
void hb_escape_block(const char *text, struct hb_buf *out);

#endif
