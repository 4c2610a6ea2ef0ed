/* Files that the operator names on the command line: anywhere, while everything else is below the state directory. */
#ifndef HB_ADMIN_CTL_FILES_H
#define HB_ADMIN_CTL_FILES_H

#include "common/error.h"
#include "common/keys.h"

/* The directory of a file, opened; *name is its last component. -1 with err. */
int ctl_open_parent(const char *path, const char **name, struct hb_error *err);
int ctl_load_public_key(const char *path, struct hb_public_key *key, struct hb_error *err);

#endif
