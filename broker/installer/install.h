/* Getting a release onto the disk: chain, space, fetch, unpack, verify, COMPLETE. Nothing live is
 * touched. */
#ifndef HB_INSTALLER_INSTALL_H
#define HB_INSTALLER_INSTALL_H

#include <stdbool.h>

#include "broker/installer/chain.h"
#include "broker/installer/verify.h"
#include "broker/installer/work.h"

struct hb_installed {
	char manifest[HB_HEX256];
	json_t *marker; /* its COMPLETE marker */
	bool reused;    /* it was on disk, complete, and is as recorded */
};
/* For the sealed request of `w`. Codes: those of the chain, of the fetcher and of the unpack
 * worker; sealed_changed, not_enough_space, disk_full, tree_differs. After a failure nothing of the
 * new release is left. */
int hb_install_release(struct hb_work *w, struct hb_installed *out, struct hb_error *err);
/* The current release again, when the store has lost it: exactly this manifest, of the image that the
 * activation names. Nothing is done when it is there. (repull.c) */
int hb_install_again(struct hb_work *w, const char *manifest, struct hb_error *err);
void hb_installed_free(struct hb_installed *i);
/* Refuses (not_enough_space, with numbers) what can't be fetched and unpacked for lack of room. */
int hb_install_space(const struct hb_store *s, const struct hb_chain *c, struct hb_error *err);

/* Fetch the layers of c; `ready` is called for each in order, once its blob is there, while later
 * ones still download. A failure of `ready` ends the fetch. */
struct hb_fetch;
int hb_fetch_layers(struct hb_work *w, const struct hb_chain *c,
		    int (*ready)(struct hb_fetch *f, size_t layer, void *arg, struct hb_error *err),
		    void *arg, struct hb_error *err);
/* Let the download's events be handled without waiting; from within `ready`. */
void hb_fetch_poll(struct hb_fetch *f);
/* POST /resolve, blocking: the documents are in the blob store afterwards. */
int hb_fetch_resolve(const json_t *request, struct hb_error *err);

int hb_verify_release(struct hb_work *w, int fd, const json_t *marker, struct hb_verify_result *out,
		      struct hb_error *err);

#endif
