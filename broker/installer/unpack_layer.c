/*
 * Reading a layer with libarchive and carrying out each entry.
 *
 * What libarchive (3.6 read; later ones behave alike) does not do is done here:
 * - Names. PAX names are converted from UTF-8 to the locale's character set. The worker runs in the C
 *   locale, where the conversion of anything but ASCII fails and the raw bytes are handed out with a
 *   warning, one of the few that are accepted. Names in ustar and GNU headers are not converted.
 * - Header sizes. It refuses special headers over 1 MiB, but 32 of them may stand in a row and old GNU
 *   sparse maps have no limit; so the bytes it takes for one entry's headers are counted.
 * - The end. It stops at the end marker; the stream goes on being hashed and counted to its last byte.
 */
#include "broker/installer/unpack_layer.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <iconv.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "broker/installer/unpack_stream.h"

#define PROGRESS_MS 200
/* Whole blocks are handed out, so the count of header bytes starts and ends up to a block away. */
#define HEADER_SLACK (2 * HB_STREAM_BLOCK)
/* The entry's own header, the one that announces the special header, padding of that and of the
 * data before. */
#define OWN_HEADERS ((la_int64_t)2048)
#define STRIPPED_BITS (S_ISUID | S_ISGID)

struct apply {
	struct hb_tree *tree;
	struct hb_stream *stream;
	struct archive *archive;
	const struct hb_unpack_limits *limits;
	struct hb_unpack_totals *totals;
	hb_unpack_report report;
	void *arg;
	struct hb_name name, target;
	uint64_t layer_entries;
	int64_t reported_at;
	bool in_header;
	uint64_t header_bytes; /* handed to libarchive since it was asked for an entry */
	struct hb_error *err;
};

void hb_unpack_layer_prepare(void)
{
	iconv_t cd = iconv_open("ANSI_X3.4-1968", "UTF-8");

	if (cd != (iconv_t)-1)
		iconv_close(cd);
	hb_sha256_free(hb_sha256_new());
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int report(struct apply *a)
{
	struct hb_unpack_progress p = {.entries = a->layer_entries};
	int64_t now = now_ms();

	if (now - a->reported_at < PROGRESS_MS)
		return 0;
	a->reported_at = now;
	hb_stream_progress(a->stream, &p.blob_done, &p.bytes);
	if (a->report(&p, a->arg) < 0)
		return hb_fail(a->err, "cancelled", "unpacking was given up");
	return 0;
}

static int header_too_large(struct apply *a)
{
	return hb_fail(a->err, "limit_exceeded",
		       "the headers of one entry are larger than %u bytes",
		       a->limits->header_bytes);
}

static la_ssize_t read_block(struct archive *archive, void *arg, const void **data)
{
	struct apply *a = arg;
	int64_t n = hb_stream_next(a->stream, data);

	if (n > 0 && a->in_header) {
		a->header_bytes += (uint64_t)n;
		if (a->header_bytes > a->limits->header_bytes + HEADER_SLACK) {
			header_too_large(a);
			archive_set_error(archive, E2BIG, "headers too large");
			return ARCHIVE_FATAL;
		}
	}
	if (n < 0)
		archive_set_error(archive, EIO, "stream failed");
	return n < 0 ? ARCHIVE_FATAL : (la_ssize_t)n;
}

/* Why libarchive stopped: our own limit, the stream below it, or the archive itself. */
static int archive_failed(struct apply *a)
{
	const char *why = archive_error_string(a->archive);

	if (a->err->code[0] != '\0' || hb_stream_failed(a->stream, a->err))
		return -1;
	if (why != NULL && strstr(why, "too large") != NULL)
		return header_too_large(a);
	if (why != NULL && strstr(why, "overflow") != NULL)
		return hb_fail(a->err, "limit_exceeded",
			       "an entry is said to have more bytes than can be counted");
	return hb_fail(a->err, "bad_archive", "the layer's tar archive is damaged: %.200s",
		       why != NULL ? why : "unknown reason");
}

/* Only complaints about what is dropped or kept as raw bytes anyway. */
static bool is_harmless(const char *warning)
{
	return warning != NULL && (strstr(warning, "can't be converted from") != NULL ||
				   strncmp(warning, "Parse error:", 12) == 0);
}

/* 1: an entry; 0: the end marker or end of the stream. */
static int next_entry(struct apply *a, struct archive_entry **entry)
{
	int rc;
	la_int64_t before = archive_filter_bytes(a->archive, 0);

	a->in_header = true;
	a->header_bytes = 0;
	rc = archive_read_next_header(a->archive, entry);
	a->in_header = false;
	if (rc == ARCHIVE_EOF)
		return 0;
	if (rc != ARCHIVE_OK &&
	    !(rc == ARCHIVE_WARN && is_harmless(archive_error_string(a->archive))))
		return archive_failed(a);
	/* Data of the last entry was read to its end, so all that was taken is headers (and one's
	 * padding). */
	if (archive_filter_bytes(a->archive, 0) - before >
	    (la_int64_t)a->limits->header_bytes + OWN_HEADERS)
		return header_too_large(a);
	a->layer_entries++;
	if (++a->totals->entries > a->limits->entries)
		return hb_fail(a->err, "limit_exceeded", "the image has more than %llu entries",
			       (unsigned long long)a->limits->entries);
	return 1;
}

static int skip_data(struct apply *a)
{
	return archive_read_data_skip(a->archive) < ARCHIVE_WARN ? archive_failed(a) : 0;
}

static mode_t mode_of(struct apply *a, struct archive_entry *entry)
{
	mode_t mode = archive_entry_perm(entry);

	if ((mode & STRIPPED_BITS) != 0)
		a->totals->setuid_stripped++;
	return mode & 07777 & ~(mode_t)STRIPPED_BITS;
}

static struct timespec mtime_of(struct archive_entry *entry)
{
	struct timespec ts = {.tv_sec = archive_entry_mtime(entry),
			      .tv_nsec = archive_entry_mtime_nsec(entry)};

	if (ts.tv_nsec < 0 || ts.tv_nsec > 999999999)
		ts.tv_nsec = 0;
	return ts;
}

static int apply_file(struct apply *a, struct archive_entry *entry)
{
	la_int64_t size = archive_entry_size(entry), offset;
	const void *data;
	size_t len;
	int rc;

	if (size < 0 || (uint64_t)size > a->limits->file_bytes) {
		struct hb_shown shown;

		return hb_fail(a->err, "limit_exceeded",
			       "\"%s\" is said to have %lld bytes, the limit is %llu",
			       hb_name_show(a->name.leaf, &shown), (long long)size,
			       (unsigned long long)a->limits->file_bytes);
	}
	/* Holes take no room in the stream, but work: they count. */
	a->totals->bytes += (uint64_t)size;
	if (a->totals->bytes > a->limits->total_bytes)
		return hb_fail(a->err, "limit_exceeded",
			       "the image's files are larger than %llu bytes",
			       (unsigned long long)a->limits->total_bytes);
	if (hb_tree_file_begin(a->tree, &a->name, mode_of(a, entry), a->err) < 0)
		return -1;
	while ((rc = archive_read_data_block(a->archive, &data, &len, &offset)) == ARCHIVE_OK) {
		if (offset < 0 || offset > size || len > (uint64_t)(size - offset))
			return hb_fail(a->err, "bad_archive",
				       "an entry has content beyond its size");
		if (hb_tree_file_write(a->tree, data, len, (uint64_t)offset, a->err) < 0 ||
		    report(a) < 0)
			return -1;
	}
	if (rc != ARCHIVE_EOF)
		return archive_failed(a);
	return hb_tree_file_end(a->tree, (uint64_t)size, mtime_of(entry), a->err);
}

static int apply_hardlink(struct apply *a, struct archive_entry *entry, const char *target)
{
	struct hb_shown shown;

	if (archive_entry_size(entry) > 0)
		return hb_fail(a->err, "bad_archive", "the hard link \"%s\" has content of its own",
			       hb_name_show(a->name.leaf, &shown));
	if (hb_name_parse_target(target, a->limits->path_bytes, &a->target, a->err) < 0)
		return -1;
	return hb_tree_hardlink(a->tree, &a->name, &a->target, a->err);
}

/* A whiteout is a file (AUFS images have hard links among them) and acts by its name alone. */
static int apply_whiteout(struct apply *a, struct archive_entry *entry)
{
	struct hb_shown shown;

	if (archive_entry_filetype(entry) != AE_IFREG && archive_entry_hardlink(entry) == NULL)
		return hb_fail(a->err, "bad_archive", "the whiteout \"%s\" is not a file",
			       hb_name_show(archive_entry_pathname(entry), &shown));
	if (skip_data(a) < 0)
		return -1;
	return a->name.kind == HB_NAME_OPAQUE ? hb_tree_opaque(a->tree, &a->name, a->err)
					      : hb_tree_whiteout(a->tree, &a->name, a->err);
}

static int apply_typed(struct apply *a, struct archive_entry *entry)
{
	const char *hardlink = archive_entry_hardlink(entry), *symlink;
	struct hb_shown shown;

	if (hardlink != NULL)
		return apply_hardlink(a, entry, hardlink);
	switch (archive_entry_filetype(entry)) {
	case AE_IFREG:
		if (!a->name.slash)
			return apply_file(a, entry);
		/* Before POSIX, a directory was a file whose name ends in a slash. */
		__attribute__((fallthrough));
	case AE_IFDIR:
		return hb_tree_directory(a->tree, &a->name, mode_of(a, entry), mtime_of(entry),
					 a->err);
	case AE_IFLNK:
		symlink = archive_entry_symlink(entry);
		return hb_tree_symlink(a->tree, &a->name, symlink == NULL ? "" : symlink,
				       mtime_of(entry), a->err);
	case AE_IFCHR:
	case AE_IFBLK:
	case AE_IFIFO:
	case AE_IFSOCK:
		a->totals->devices_skipped++;
		return hb_tree_vacate(a->tree, &a->name, a->err);
	default:
		return hb_fail(a->err, "bad_archive", "\"%s\" is of a type that is not supported",
			       hb_name_show(a->name.leaf, &shown));
	}
}

static int apply_entry(struct apply *a, struct archive_entry *entry)
{
	const char *raw = archive_entry_pathname(entry);
	int rc;

	if (hb_name_parse(raw == NULL ? "" : raw, a->limits->path_bytes, &a->name, a->err) < 0)
		return -1;
	if (a->name.kind == HB_NAME_IGNORED)
		return skip_data(a);
	if (a->name.kind == HB_NAME_WHITEOUT || a->name.kind == HB_NAME_OPAQUE)
		return apply_whiteout(a, entry);
	if (a->name.kind == HB_NAME_ROOT &&
	    (archive_entry_filetype(entry) != AE_IFDIR || archive_entry_hardlink(entry) != NULL))
		return hb_fail(a->err, "unsafe_path", "the root of the image is not a directory");
	if (archive_entry_xattr_count(entry) > 0 || archive_entry_acl_types(entry) != 0)
		a->totals->xattrs_dropped++;
	rc = apply_typed(a, entry);
	return rc < 0 ? -1 : skip_data(a);
}

static int apply_all(struct apply *a)
{
	struct archive_entry *entry;
	int rc;

	while ((rc = next_entry(a, &entry)) > 0)
		if (apply_entry(a, entry) < 0 || report(a) < 0)
			return -1;
	return rc;
}

static int open_archive(struct apply *a)
{
	a->archive = archive_read_new();
	if (a->archive == NULL)
		return hb_fail(a->err, "limit_exceeded", "no memory for reading a layer");
	if (archive_read_support_format_tar(a->archive) != ARCHIVE_OK ||
	    archive_read_support_format_empty(a->archive) != ARCHIVE_OK)
		return archive_failed(a);
	a->in_header = true; /* the first block is read to tell the format */
	if (archive_read_open(a->archive, a, NULL, read_block, NULL) != ARCHIVE_OK)
		return archive_failed(a);
	return 0;
}

int hb_unpack_apply(struct hb_tree *tree, const struct hb_unpack_layer *layer,
		    const struct hb_unpack_limits *limits, struct hb_unpack_totals *totals,
		    hb_unpack_report report_cb, void *arg, struct hb_error *err)
{
	struct hb_error own = {0}, cause = {0};
	struct apply a = {.tree = tree,
			  .limits = limits,
			  .totals = totals,
			  .report = report_cb,
			  .arg = arg,
			  .err = &own};
	uint64_t blob_done, bytes, files_before = totals->bytes;
	int rc = -1;

	if (hb_stream_start(layer->blob_fd, layer->size, layer->media_type,
			    limits->total_bytes - totals->bytes, &a.stream, err) < 0)
		return -1;
	hb_tree_begin_layer(tree);
	if (open_archive(&a) < 0 || apply_all(&a) < 0) {
		/* A damaged archive may be a damaged blob: then that is the cause to name. */
		if (strcmp(own.code, "bad_archive") == 0 &&
		    hb_stream_end(a.stream, layer->digest, layer->diff_id, &cause) < 0)
			own = cause;
		goto out;
	}
	if (hb_stream_end(a.stream, layer->digest, layer->diff_id, &own) < 0)
		goto out;
	/* The larger of stream and files counts: padding is in the one, holes are in the other. */
	hb_stream_progress(a.stream, &blob_done, &bytes);
	if (files_before + bytes > totals->bytes)
		totals->bytes = files_before + bytes;
	rc = 0;
out:
	archive_read_free(a.archive);
	hb_stream_free(a.stream);
	if (rc < 0 && err != NULL)
		*err = own;
	return rc;
}
