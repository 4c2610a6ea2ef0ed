/* Getting a release onto the disk (install.h). */
#include "broker/installer/install.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/installer/seal.h"
#include "broker/installer/unpack.h"
#include "common/fs.h"
#include "common/ids.h"
#include "common/json.h"

/*
 * Space asked for before anything is fetched: what is still to be downloaded, and for the unpacked
 * tree three times the compressed layers plus 64 MiB. No format says the true unpacked size in a
 * place one can trust (gzip's own field wraps at 4 GiB and is written by whoever made the layer);
 * measured trees of this kind of image are 2.5 to 3 times as large.
 */
#define UNPACK_FACTOR 3
#define SPACE_RESERVE (64ull << 20)

void hb_installed_free(struct hb_installed *i)
{
	json_decref(i->marker);
	memset(i, 0, sizeof *i);
}

/* The chain again, from bytes, and equal to what was approved in every member. */
static int derive_again(struct hb_work *w, struct hb_chain *c, struct hb_error *err)
{
	const json_t *sealed = json_object_get(json_object_get(w->request, "sealed"), "resolved");
	struct hb_error first;
	json_t *found;
	int same;

	if (hb_seal_chain(w->store, w->config, w->request, c, &first) < 0) {
		/* The blob store is disposable: its documents may have been cleared since. Fetch
		 * them once more. */
		if (strcmp(first.code, "blob_missing") != 0) {
			*err = first;
			return -1;
		}
		if (hb_fetch_resolve(w->request, err) < 0 ||
		    hb_seal_chain(w->store, w->config, w->request, c, err) < 0)
			return -1;
	}
	found = hb_seal_resolved(w->config, w->request, c, err);
	if (!found) {
		hb_chain_free(c);
		return -1;
	}
	same = json_equal(found, sealed);
	json_decref(found);
	if (!same) {
		hb_chain_free(c);
		return hb_fail(err, "sealed_changed",
			       "the image no longer resolves to what was approved; prepare the "
			       "operation again");
	}
	return 0;
}

static uint64_t still_to_fetch(const struct hb_store *s, const struct hb_chain *c)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < c->layer_count; i++) {
		struct stat st;
		size_t j;

		for (j = 0; j < i && strcmp(c->layers[j].digest, c->layers[i].digest) != 0; j++)
			;
		if (j == i &&
		    (fstatat(s->blobs_fd, c->layers[i].digest, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		     st.st_size != (off_t)c->layers[i].size))
			sum += c->layers[i].size;
	}
	return sum;
}

int hb_install_space(const struct hb_store *s, const struct hb_chain *c, struct hb_error *err)
{
	uint64_t fetch = still_to_fetch(s, c),
		 unpacked = c->total_size * UNPACK_FACTOR + SPACE_RESERVE;
	uint64_t need = fetch + unpacked, bytes, inodes;

	if (hb_fs_space(s->fd, ".", &bytes, &inodes, err) < 0)
		return -1;
	if (bytes < need)
		return hb_fail(err, "not_enough_space",
			       "the file system of %s has %llu MiB free and about %llu MiB are "
			       "needed (%llu to "
			       "download, %llu unpacked); free %llu MiB more. Nothing was changed",
			       s->path, (unsigned long long)(bytes >> 20),
			       (unsigned long long)(need >> 20) + 1,
			       (unsigned long long)(fetch >> 20),
			       (unsigned long long)(unpacked >> 20),
			       (unsigned long long)((need - bytes) >> 20) + 1);
	return 0;
}

struct unpacking {
	struct hb_work *w;
	const struct hb_chain *chain;
	struct hb_unpacker *unpacker;
	struct hb_fetch *fetch;
	uint64_t before; /* blob bytes of finished layers */
};

static void on_unpacked(const struct hb_unpack_progress *u, void *arg)
{
	struct unpacking *p = arg;
	struct hb_progress progress = {.phase = "unpack",
				       .unit = "bytes",
				       .done = p->before + u->blob_done,
				       .total = p->chain->total_size,
				       .files_done = u->entries};

	hb_work_progress(p->w, &progress);
	hb_fetch_poll(p->fetch);
}

static int on_layer(struct hb_fetch *f, size_t i, void *arg, struct hb_error *err)
{
	struct unpacking *p = arg;
	const struct hb_chain_layer *from = &p->chain->layers[i];
	struct hb_unpack_layer layer = {.size = from->size};
	int rc;

	memcpy(layer.digest, from->digest, sizeof layer.digest);
	memcpy(layer.diff_id, from->diff_id, sizeof layer.diff_id);
	memcpy(layer.media_type, from->media_type, sizeof layer.media_type);
	layer.blob_fd = hb_blob_open(p->w->store->blobs_fd, from->digest, (int64_t)from->size, err);
	if (layer.blob_fd < 0)
		return -1;
	p->fetch = f;
	rc = hb_unpack_layer(p->unpacker, &layer, on_unpacked, p, err);
	close(layer.blob_fd);
	if (rc < 0)
		return hb_fail_prefix(err, "layer %zu of %zu (sha256:%.12s)", i + 1,
				      p->chain->layer_count, from->digest);
	p->before += from->size;
	return 0;
}

/* When the disk filled up in spite of the check: say where and how things stand. */
static void explain_full(const struct hb_store *s, struct hb_error *err)
{
	uint64_t bytes, inodes;

	if (strcmp(err->code, "disk_full") == 0 &&
	    hb_fs_space(s->fd, ".", &bytes, &inodes, NULL) == 0)
		hb_fail_prefix(err,
			       "the file system of %s ran full (%llu MiB free now); what was "
			       "unpacked is removed "
			       "again",
			       s->path, (unsigned long long)(bytes >> 20));
}

static json_t *marker_make(const struct hb_work *w, const struct hb_chain *c,
			   const struct hb_tree_info *t)
{
	json_t *layers = json_array();

	for (size_t i = 0; i < c->layer_count; i++)
		json_array_append_new(layers, json_string(c->layers[i].digest));
	return json_pack(
		"{s:s, s:s, s:s, s:s, s:O, s:O, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}",
		"manifest_digest", c->manifest, "tree_digest", t->tree_digest, "index_digest",
		c->index, "config_digest", c->config, "image", json_object_get(w->request, "image"),
		"platform", json_object_get(w->request, "platform"),
		"layer_digests", layers, "layers", (json_int_t)c->layer_count, "files", (json_int_t)t->files, "directories",
		(json_int_t)t->directories, "links", (json_int_t)t->links, "bytes",
		(json_int_t)t->bytes, "setuid_stripped", (json_int_t)t->setuid_stripped,
		"xattrs_dropped", (json_int_t)t->xattrs_dropped, "completed_at",
		(json_int_t)hb_now(), "operation_id", w->operation_id);
}

/* The tree as it lies on disk against the manifest made while unpacking. */
static int verify(struct hb_work *w, int fd, const json_t *marker, struct hb_error *err)
{
	struct hb_verify_result v = {0};
	const json_t *first;
	int rc;

	if (hb_verify_release(w, fd, marker, &v, err) < 0)
		return -1;
	first = json_array_get(v.differences, 0);
	rc = v.ok ? 0
		  : hb_fail(err, "tree_differs",
			    "the unpacked tree differs from its manifest in %llu places (first: "
			    "%.200s, %.40s); it "
			    "is not activated",
			    (unsigned long long)v.difference_count,
			    hb_json_text(first, "path", "?"), hb_json_text(first, "what", "?"));
	json_decref(v.differences);
	return rc;
}

/* Fetch and unpack into a staging directory, and make it a release. */
static int build(struct hb_work *w, const struct hb_chain *c, json_t **marker, struct hb_error *err)
{
	struct unpacking p = {.w = w, .chain = c};
	struct hb_tree_info tree = {0};
	char name[64];
	json_t *made = NULL;
	int staging, rc = -1;

	if (hb_install_space(w->store, c, err) < 0)
		return -1;
	snprintf(name, sizeof name, ".staging-%.32s", w->operation_id);
	staging = hb_store_staging_create(w->store, name, err);
	if (staging < 0)
		return -1;
	if (hb_unpack_start(staging, w->store->unpack_uid, (gid_t)w->store->unpack_uid,
			    &hb_unpack_default_limits, w->degraded_ok, &p.unpacker, err) < 0 ||
	    hb_fetch_layers(w, c, on_layer, &p, err) < 0 ||
	    hb_unpack_finish(p.unpacker, &tree, err) < 0)
		goto out;
	hb_unpack_free(p.unpacker);
	p.unpacker = NULL;
	made = marker_make(w, c, &tree);
	if (verify(w, staging, made, err) < 0 ||
	    hb_store_staging_finish(w->store, name, staging, c->manifest, c->config_bytes.data,
				    c->config_bytes.len, made, err) < 0)
		goto out;
	*marker = json_incref(made);
	rc = 0;
out:
	if (p.unpacker)
		hb_unpack_free(p.unpacker);
	close(staging);
	json_decref(made);
	/* The staging directory of a failure, or the damaged release that was exchanged. */
	(void)hb_fs_remove_tree(w->store->releases_fd, name, NULL);
	if (rc < 0)
		explain_full(w->store, err);
	return rc;
}

/* A complete release on disk counts when its tree is still as recorded. */
static json_t *usable(struct hb_work *w, const struct hb_chain *c)
{
	json_t *marker = hb_store_marker(w->store, c->manifest, NULL), *image = NULL;
	int fd = marker ? hb_store_release_open(w->store, c->manifest, NULL) : -1, rc = -1;

	if (fd >= 0 && strcmp(hb_json_text(marker, "config_digest", ""), c->config) == 0)
		image = hb_store_image(w->store, c->manifest, NULL);
	if (image)
		rc = verify(w, fd, marker, NULL);
	json_decref(image);
	hb_close(&fd);
	if (rc == 0)
		return marker;
	json_decref(marker);
	return NULL;
}

int hb_install_release(struct hb_work *w, struct hb_installed *out, struct hb_error *err)
{
	struct hb_chain c = {0};
	int rc = -1;

	if (derive_again(w, &c, err) < 0)
		return -1;
	memcpy(out->manifest, c.manifest, sizeof out->manifest);
	out->marker = usable(w, &c);
	out->reused = out->marker != NULL;
	rc = out->reused ? 0 : build(w, &c, &out->marker, err);
	hb_chain_free(&c);
	return rc;
}
