/*
 * The unpack worker: applies OCI layers to one staging directory (OCI image-spec, layer.md).
 *
 * A forked child with uid hermes-unpack that Landlock confines to the staging directory; no
 * network, no exec. It gets each layer as a descriptor, hashes the compressed bytes it reads (they
 * must equal `digest`) and the tar stream that comes out (it must equal `diff_id`), and at the end
 * writes manifest.mtree, a BSD mtree(5) file of the tree.
 *
 * Policy: ownership squashed to the worker's uid and gid, setuid and setgid bits stripped
 * (counted), devices and fifos left out (counted: real base images carry a few), extended
 * attributes dropped (counted), file times kept. Every rule: docs/UNPACK.md.
 */
#ifndef HB_INSTALLER_UNPACK_H
#define HB_INSTALLER_UNPACK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/digest.h"
#include "common/error.h"

struct hb_unpack_limits {
	uint64_t total_bytes; /* decompressed, all layers, padding included */
	uint64_t file_bytes;
	uint64_t entries;
	uint32_t path_bytes;
	uint32_t header_bytes; /* one PAX or GNU header */
};
extern const struct hb_unpack_limits hb_unpack_default_limits;

struct hb_unpack_layer {
	int blob_fd; /* borrowed */
	char digest[HB_HEX256], diff_id[HB_HEX256];
	uint64_t size;        /* of the blob */
	char media_type[128]; /* tar, tar+gzip, tar+zstd; OCI or Docker name */
};

struct hb_unpack_progress {
	uint64_t blob_done, bytes, entries; /* of this layer */
};

struct hb_tree_info {
	char tree_digest[HB_HEX256]; /* SHA-256 of manifest.mtree */
	uint64_t files, directories, links, bytes;
	uint64_t setuid_stripped, xattrs_dropped, devices_skipped;
};

struct hb_unpacker;

/* staging_fd: an empty directory owned by uid, open for reading (not O_PATH); borrowed. rootfs/ and
 * manifest.mtree appear in it. limits NULL: the defaults. `degraded_ok`: see common/sandbox.h.
 * Forks without exec, so it must be called while no other thread of the process runs. */
int hb_unpack_start(int staging_fd, uid_t uid, gid_t gid, const struct hb_unpack_limits *limits,
		    bool degraded_ok, struct hb_unpacker **out, struct hb_error *err);
/* Blocks until the layer is applied; `progress` may be NULL and is called a few times a second.
 * Codes: digest_mismatch, diff_id_mismatch, short_blob, bad_archive, unsafe_path, limit_exceeded,
 * disk_full, io_failed, worker_died. After a failure nothing but hb_unpack_free makes sense; the
 * caller removes the staging directory. */
int hb_unpack_layer(struct hb_unpacker *u, const struct hb_unpack_layer *layer,
		    void (*progress)(const struct hb_unpack_progress *p, void *arg), void *arg,
		    struct hb_error *err);
/* Writes and syncs the manifest, ends the worker. */
int hb_unpack_finish(struct hb_unpacker *u, struct hb_tree_info *info, struct hb_error *err);
/* Ends the worker at any time; frees u (also needed after finish). */
void hb_unpack_free(struct hb_unpacker *u);

#endif
