/* Shared by store.c and partial.c. */
#ifndef HB_FETCHER_STORE_INTERNAL_H
#define HB_FETCHER_STORE_INTERNAL_H

#include <sys/stat.h>

#include "fetcher/store.h"

#define HB_STORE_CHUNK \
	(256u << 10) /* bytes a read, a write and a hash step: past this nothing gets faster */

int hb_store_open_file(const struct hb_store *s, const char *name, int flags, struct stat *st);
int hb_store_hash_fd(int fd, uint64_t len, struct hb_sha256 *hash, const struct hb_stop *stop,
		     struct hb_error *err);

#endif
