/*
 * The engine's way to carry two streams in one: frames of 8 bytes of header {type, 0, 0, 0, length
 * big-endian} and then `length` bytes (Docker Engine API, "Attach to a container", stream format).
 * Containers with a terminal have plain bytes instead; which it is comes from inspecting the
 * container, never from looking at the bytes.
 */
#ifndef HB_DOCKER_FRAMES_H
#define HB_DOCKER_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum hb_frame_stream { HB_FRAME_STDOUT = 1, HB_FRAME_STDERR = 2 };

typedef void (*hb_frame_sink)(enum hb_frame_stream stream, const char *data, size_t len, void *arg);

struct hb_frames {
	bool plain; /* no frames: everything is standard output */
	unsigned char head[8];
	size_t head_len;
	uint32_t left;     /* of the present frame */
	char trouble[200]; /* text of a frame of type 3 */
	size_t trouble_len;
};

/* Codes: bad_frame; engine_error for a frame in which the engine says what went wrong. */
int hb_frames_feed(struct hb_frames *f, const void *data, size_t len, hb_frame_sink sink, void *arg,
		   struct hb_error *err);
/* False when the stream was cut inside a header or a frame. */
bool hb_frames_whole(const struct hb_frames *f);

#endif
