/* The bytes of an archive as libarchive wants them: one zstd frame, and nothing behind it. In the
 * confined reader only. */
#ifndef HB_INSTALLER_BACKUP_STREAM_H
#define HB_INSTALLER_BACKUP_STREAM_H

#include <archive.h>

#include "common/error.h"

struct hb_backup_stream;

/* fd is borrowed and read from its beginning. */
int hb_backup_stream_open(int fd, struct hb_backup_stream **out, struct hb_error *err);
void hb_backup_stream_free(struct hb_backup_stream *s);
struct archive *hb_backup_stream_archive(struct hb_backup_stream *s);
/* Why libarchive failed: bad_backup, or io_failed when the file can't be read. */
int hb_backup_stream_failed(const struct hb_backup_stream *s, struct hb_error *err);
/* After the last member: what libarchive takes for the end must be it. Two blocks of zeros and only
 * zeros behind them, the end of the frame, the end of the file. */
int hb_backup_stream_end(struct hb_backup_stream *s, struct hb_error *err);

#endif
