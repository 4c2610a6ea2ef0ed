/*
 * manifest.mtree: one line an entry, in the syntax of BSD mtree(5), so that other tools (bsdtar,
 * mtree) can read it.
 *
 *     #mtree
 *     . type=dir mode=0755 time=0.000000000
 *     ./bin type=link mode=0777 time=1700000000.000000000 link=usr/bin
 *     ./etc/motd type=file mode=0644 size=27 time=1700000000.000000000 sha256digest=9f86d0...
 *
 * Order: see walk.h. Bytes other than printable ASCII, and those that mean something in mtree(5),
 * are written \ooo. Owners are left out (they differ from host to host, the tree digest must not).
 * Names of one inode carry nlink=N and inode=G, where G counts such groups from 1 in the order in
 * which they are met. Lines end in a newline; the tree digest is the SHA-256 of the whole file.
 */
#ifndef HB_INSTALLER_MTREE_H
#define HB_INSTALLER_MTREE_H

#include <stdint.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/digest.h"
#include "common/error.h"

/* A path of 4,095 bytes and a link target of as many, both escaped, and the rest. */
#define HB_MTREE_LINE_MAX (2 * 4 * 4096 + 512)

struct hb_mtree_entry {
	const char *path; /* "." or "./..." */
	mode_t mode;      /* with the type: S_IFREG, S_IFDIR or S_IFLNK */
	uint64_t size;    /* files */
	int64_t mtime;
	uint32_t mtime_ns;
	const char *link;       /* links */
	char sha256[HB_HEX256]; /* files */
	uint64_t nlink, group;  /* 0: the only name */
};

void hb_mtree_escape(struct hb_buf *out, const char *bytes, size_t len);
/* In place; -1 if it is no valid escaping or holds a NUL. */
int hb_mtree_unescape(char *text);
/* The line with its newline, added to out. */
void hb_mtree_format(const struct hb_mtree_entry *e, struct hb_buf *out);
/* line without its newline; it is altered, and e points into it. Code: bad_manifest. */
int hb_mtree_parse(char *line, struct hb_mtree_entry *e, struct hb_error *err);

/* Writing: fd is borrowed. */
struct hb_mtree_writer;
struct hb_mtree_writer *hb_mtree_writer_new(int fd);
int hb_mtree_write(struct hb_mtree_writer *w, const struct hb_mtree_entry *e, struct hb_error *err);
/* Writes what is left and gives the tree digest. */
int hb_mtree_writer_finish(struct hb_mtree_writer *w, char tree_digest[HB_HEX256],
			   struct hb_error *err);
void hb_mtree_writer_free(struct hb_mtree_writer *w);

/* Reading, a line at a time; the digest covers all that was read. fd is borrowed. */
struct hb_mtree_reader;
struct hb_mtree_reader *hb_mtree_reader_new(int fd);
/* 1: e is filled and valid until the next call; 0: end; -1. */
int hb_mtree_read(struct hb_mtree_reader *r, struct hb_mtree_entry *e, struct hb_error *err);
void hb_mtree_reader_digest(struct hb_mtree_reader *r, char tree_digest[HB_HEX256]);
void hb_mtree_reader_free(struct hb_mtree_reader *r);

/* -1, 0 or 1: the order of walk.h for two paths. */
int hb_mtree_compare(const char *a, const char *b);

#endif
