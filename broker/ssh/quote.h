/* An argument vector as text for a POSIX shell, so that the program there gets the same bytes. */
#ifndef HB_SSH_QUOTE_H
#define HB_SSH_QUOTE_H

#include <jansson.h>

#include "common/buf.h"
#include "common/error.h"

/* Appends "exec 'a' 'b' ...". Code argv_unsafe for what no quoting carries: an argument with NUL, a
 * program name that begins with a dash. */
int hb_quote_argv(const json_t *argv, struct hb_buf *out, struct hb_error *err);

#endif
