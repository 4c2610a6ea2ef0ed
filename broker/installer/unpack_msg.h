/*
 * What the installer and its unpack worker say to each other: fixed structs over a SOCK_SEQPACKET
 * pair.
 *
 * Both ends are the same program, so the structs are sent as they are; lengths and kinds are
 * checked all the same.
 */
#ifndef HB_INSTALLER_UNPACK_MSG_H
#define HB_INSTALLER_UNPACK_MSG_H

#include "broker/installer/unpack.h"

enum hb_unpack_kind {
	HB_UNPACK_LAYER = 1, /* to the worker, with the blob's descriptor (SCM_RIGHTS) */
	HB_UNPACK_FINISH,    /* to the worker */
	HB_UNPACK_READY,     /* from the worker: confined and waiting */
	HB_UNPACK_PROGRESS,
	HB_UNPACK_DONE,   /* the layer or the finish succeeded; info after the finish */
	HB_UNPACK_FAILED, /* error; nothing but the end can follow */
};

struct hb_unpack_request {
	uint32_t kind;
	struct hb_unpack_layer layer; /* blob_fd without meaning */
};

struct hb_unpack_reply {
	uint32_t kind;
	struct hb_unpack_progress progress;
	struct hb_tree_info info;
	struct hb_error error;
};

/* The worker's whole life; never returns. */
void hb_unpack_worker(int sock, int staging_fd, uid_t uid, gid_t gid,
		      const struct hb_unpack_limits *limits, bool degraded_ok)
	__attribute__((noreturn));

#endif
