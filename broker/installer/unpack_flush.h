/* Writing a tree back to disk while it is still being made, so that the sync at the end finds little to do. */
#ifndef HB_INSTALLER_UNPACK_FLUSH_H
#define HB_INSTALLER_UNPACK_FLUSH_H

#include "common/error.h"

struct hb_flusher;

/* Starts a thread that syncs the file system of dirfd again and again; NULL when it can't (then the sync at the end does
 * all the work, which is slower and just as right). */
struct hb_flusher *hb_flusher_start(int dirfd);
/* Ends the thread, waiting for a sync under way. Failures of these syncs are not lost: the file system reports each to
 * every open descriptor, so the last sync on the staging directory meets it again. NULL is fine. */
void hb_flusher_stop(struct hb_flusher *f);

#endif
