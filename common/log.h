/*
 * Structured logging to standard error, one logfmt line a record:
 *   ts=2026-12-01T02:41:31Z level=info process=hermes-broker event=prepared operation=... msg="..."
 * Values are escaped so that one record is always one line.  Programs log; libraries don't.
 */
#ifndef HB_COMMON_LOG_H
#define HB_COMMON_LOG_H

enum hb_log_level { HB_LOG_ERROR, HB_LOG_WARN, HB_LOG_INFO, HB_LOG_DEBUG };

void hb_log_open(const char *process, enum hb_log_level least);

/* `event` is a stable word; then key, value pairs of const char *, ended by NULL. */
void hb_log(enum hb_log_level level, const char *event, ...) __attribute__((sentinel));

#endif
