/*
 * Strict INI on top of inih: one reader for hermes.conf and bounds.conf.
 *
 *   [section]
 *   key = value        # and ; start a comment only at the beginning of a line
 *
 * Refused with file and line: a key outside a section, a line that is neither, a continued
 * (indented) line, a line over HB_INI_LINE_MAX bytes, a name or section over 48 bytes, text that is
 * not UTF-8, control characters. Unknown and repeated keys are the callback's business.
 */
#ifndef HB_COMMON_STRICT_INI_H
#define HB_COMMON_STRICT_INI_H

#include <stddef.h>

#include "common/error.h"

#define HB_INI_LINE_MAX 4096 /* a long list of mirrors or a command fits many times */
#define HB_INI_FILE_MAX 262144

/* 0, or -1 with err; file and line are put before the message. */
typedef int (*hb_ini_handler)(const char *section, const char *name, const char *value, int line,
			      void *arg, struct hb_error *err);

/* `file` is only for messages. Codes: ini_malformed and the handler's own. */
int hb_ini_parse(const char *file, const char *text, size_t len, hb_ini_handler handler, void *arg,
		 struct hb_error *err);

#endif
