#include "common/watched_secret.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define SECRET_MAX 512 /* the longest is a bot token, about 50 bytes */

static bool
same(const struct stat *a, const struct stat *b)
{
	/* The change time also moves with chmod and chown, which may have made the file unfit. */
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

int
hb_secret_watch(struct hb_watched_secret *w, struct hb_error *err)
{
	struct hb_secret fresh = {0};
	struct stat st = {0};

	/* A missing file goes on to hb_secret_read, whose message says what to do. */
	if (fstatat(AT_FDCWD, w->path, &st, AT_SYMLINK_NOFOLLOW) == 0 && w->loaded &&
	    same(&st, &w->seen))
		return 0;
	hb_secret_unwatch(w);
	if (hb_secret_read(AT_FDCWD, w->path, geteuid(), SECRET_MAX, &fresh, err) < 0)
		return -1;
	w->secret = fresh;
	w->seen = st;
	w->loaded = true;
	w->changes++;
	return 0;
}

void
hb_secret_unwatch(struct hb_watched_secret *w)
{
	if (w->loaded)
		hb_secret_free(&w->secret);
	w->loaded = false;
}
