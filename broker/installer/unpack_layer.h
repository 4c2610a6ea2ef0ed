/* Apply one layer's tar stream to the tree: entries by libarchive, rules by docs/UNPACK.md. */
#ifndef HB_INSTALLER_UNPACK_LAYER_H
#define HB_INSTALLER_UNPACK_LAYER_H

#include "broker/installer/unpack.h"
#include "broker/installer/unpack_tree.h"

/* What is counted over all layers of an image. */
struct hb_unpack_totals {
	uint64_t bytes, entries;
	uint64_t setuid_stripped, xattrs_dropped, devices_skipped;
};

typedef int (*hb_unpack_report)(const struct hb_unpack_progress *p, void *arg);

/* Loads what libraries load lazily, while files can still be opened. */
void hb_unpack_layer_prepare(void);

/* totals is added to. report is called a few times a second and ends the work by returning -1. */
int hb_unpack_apply(struct hb_tree *tree, const struct hb_unpack_layer *layer,
		    const struct hb_unpack_limits *limits, struct hb_unpack_totals *totals,
		    hb_unpack_report report, void *arg, struct hb_error *err);

#endif
