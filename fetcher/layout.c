/*
 * An OCI image layout on this host (image-spec, image-layout.md): for machines without network.
 * Blobs are copied, not linked: a link would leave whoever owns the layout able to change a blob
 * after it was verified.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fs.h"
#include "fetcher/source.h"

#define COPY_CHUNK (256u << 10)

int
hb_layout_open(const char *dir, int *fd, struct hb_error *err)
{
	char *path = hb_asprintf("%s/blobs/sha256", dir);
	int found = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

	if (found < 0 && errno == EACCES)
		rc = hb_fail(err, "layout_unreadable",
			     "the image layout %s can't be read by the fetcher: let its user "
			     "read it, and name it in runtime.image (a change takes effect when "
			     "the fetcher starts)",
			     dir);
	else if (found < 0)
		rc = hb_fail_errno(err, "layout_missing", "the image layout %s", dir);
	else
		*fd = found;
	free(path);
	return rc;
}

static int
open_blob(int fd, const char *name, const char *hex, struct hb_error *err)
{
	struct hb_error why;
	struct stat st;
	int blob = hb_fs_open_beneath(fd, hex, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0, &why);

	if (blob < 0)
		return hb_fail(err, "not_found",
			       "the image layout %s has no readable blob sha256:%s", name, hex);
	if (fstat(blob, &st) || !S_ISREG(st.st_mode)) {
		hb_close(&blob);
		return hb_fail(err, "not_found",
			       "the image layout %s: blob sha256:%s is not a file", name, hex);
	}
	return blob;
}

int
hb_layout_document(int fd, const char *name, const char *hex, size_t max, struct hb_buf *out,
		   struct hb_error *err)
{
	char found[HB_HEX256];
	int blob = open_blob(fd, name, hex, err);

	if (blob < 0)
		return -1;
	hb_close(&blob);
	if (hb_fs_read(fd, hex, max, out, err))
		return -1;
	hb_sha256_hex(out->len ? out->data : "", out->len, found);
	if (strcmp(found, hex) != 0)
		return hb_fail(err, "digest_mismatch",
			       "the image layout %s: blob sha256:%s has digest sha256:%s", name,
			       hex, found);
	return 0;
}

int
hb_layout_blob(int fd, const char *name, const char *hex, uint64_t size, struct hb_partial *to,
	       _Atomic uint64_t *done, const struct hb_stop *stop, struct hb_error *err)
{
	int blob = open_blob(fd, name, hex, err), rc = -1;
	char *chunk = NULL;
	struct stat st;

	if (blob < 0)
		return -1;
	if (fstat(blob, &st) || (uint64_t)st.st_size != size) {
		hb_fail(err, "size_mismatch",
			"the image layout %s: blob sha256:%s is not %llu bytes long", name, hex,
			(unsigned long long)size);
		goto out;
	}
	chunk = hb_calloc(1, COPY_CHUNK);
	/* A partial file may come from a registry: only the digest says whether it is right, so
	 * begin anew. */
	if (hb_partial_restart(to, err))
		goto out;
	for (;;) {
		ssize_t n = read(blob, chunk, COPY_CHUNK);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			hb_fail_errno(err, "layout_unreadable", "reading blob sha256:%s of %s", hex,
				      name);
			goto out;
		}
		if (n == 0)
			break;
		if (hb_stopped(stop)) {
			hb_fail(err, "cancelled", "the job was cancelled");
			goto out;
		}
		if (hb_partial_write(to, chunk, (size_t)n, err))
			goto out;
		atomic_store(done, hb_partial_done(to));
	}
	rc = hb_partial_finish(to, err);
out:
	free(chunk);
	hb_close(&blob);
	return rc;
}
