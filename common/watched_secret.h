/*
 * A secret file that others may replace while we run (rotation): looked at with one fstatat(2)
 * before each use, and read again only when it changed.
 */
#ifndef HB_COMMON_WATCHED_SECRET_H
#define HB_COMMON_WATCHED_SECRET_H

#include <stdbool.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/fs.h"

struct hb_watched_secret {
	const char
		*path; /* relative to the working directory; must be owned by our own uid or root */
	struct stat seen;
	struct hb_secret secret;
	bool loaded;
	unsigned changes; /* raised with each reading */
};

/* Load, or reload if the file changed. On failure nothing is loaded; codes of hb_secret_read. */
int hb_secret_watch(struct hb_watched_secret *w, struct hb_error *err);
void hb_secret_unwatch(struct hb_watched_secret *w);

#endif
