/*
 * The runtime store: releases on disk and the two links that say which one serves.
 *
 *   releases/<manifest hex>/{rootfs/, manifest.mtree, config.json, COMPLETE}
 *   releases/.staging-<id>    a release being made; .discard-<id> one that was found damaged. Both
 * are leftovers after a crash current, previous         -> releases/<hex>
 *
 * A release exists when it has its COMPLETE marker, which is written last, after everything else
 * was synced.
 */
#ifndef HB_INSTALLER_STORE_H
#define HB_INSTALLER_STORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/digest.h"
#include "common/error.h"

struct hb_store {
	char *path; /* absolute */
	int fd, releases_fd, blobs_fd;
	uid_t unpack_uid, fetcher_uid;
};

/* Creates what is missing: the storage, releases (root, 0755), blobs/sha256 (the fetcher's). */
int hb_store_open(const char *path, uid_t unpack_uid, uid_t fetcher_uid, struct hb_store *out,
		  struct hb_error *err);
void hb_store_close(struct hb_store *s);

/* name: "current" or "previous". hex is "" when there is no such link; a link that points anywhere
 * but at releases/<64 hex> is an error (bad_link). */
int hb_store_link(const struct hb_store *s, const char *name, char hex[HB_HEX256],
		  struct hb_error *err);
/* hex "": remove the link. Durable when it returns. Nothing is written when it is right already. */
int hb_store_link_set(const struct hb_store *s, const char *name, const char *hex,
		      struct hb_error *err);

bool hb_store_has(const struct hb_store *s, const char *hex);
int hb_store_release_open(const struct hb_store *s, const char *hex, struct hb_error *err);
/* The COMPLETE marker: {manifest_digest, tree_digest, index_digest, config_digest, image, platform,
 * files, bytes, completed_at, ...}. Codes: release_missing, release_broken. */
json_t *hb_store_marker(const struct hb_store *s, const char *hex, struct hb_error *err);
/* config.json of a release, checked against the config digest in its marker. */
json_t *hb_store_image(const struct hb_store *s, const char *hex, struct hb_error *err);
/* Markers of all complete releases, each with "current" and "previous" added; newest first. */
json_t *hb_store_list(const struct hb_store *s, struct hb_error *err);

/* Makes an empty staging directory owned by the unpack worker; returns its descriptor. */
int hb_store_staging_create(const struct hb_store *s, const char *name, struct hb_error *err);
/* Make the staging directory a release: config.json, sync of the file system, COMPLETE, rename,
 * sync of releases/. A damaged release of the same name is exchanged for it and left as `name`. */
int hb_store_staging_finish(const struct hb_store *s, const char *name, int staging_fd,
			    const char *hex, const char *config, size_t config_len,
			    const json_t *marker, struct hb_error *err);
/* Take a release (hex) or all of them out of sight, durably; hb_store_clean then removes them. */
int hb_store_discard(const struct hb_store *s, const char *hex, struct hb_error *err);
int hb_store_discard_all(const struct hb_store *s, struct hb_error *err);
/* Remove every blob that none of the markers in `keep` (array) names, partial downloads of such ones
 * too. Nothing when one of them doesn't know its layers. */
int hb_store_prune_blobs(const struct hb_store *s, const json_t *keep, uint64_t *count,
			 uint64_t *bytes, struct hb_error *err);
/* Remove what begins with a dot in releases/: nothing that is in use. */
int hb_store_clean(const struct hb_store *s, struct hb_error *err);

#endif
