/* Reading the files that say what is allowed: judged by descriptor, then read through that same
 * descriptor. */
#ifndef HB_POLICY_TRUSTED_H
#define HB_POLICY_TRUSTED_H

#include <sys/types.h>

#include "common/buf.h"
#include "common/error.h"

/* A regular file below dirfd that only root or `owner` may write, at most `max` bytes. `missing` is
 * the error code for a file that isn't there. Other codes: loose_permissions, too_large,
 * policy_unreadable. */
int hb_trusted_read(int dirfd, const char *path, uid_t owner, size_t max, const char *missing,
		    struct hb_buf *out, struct hb_error *err);

#endif
