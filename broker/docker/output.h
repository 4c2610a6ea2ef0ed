/* What a program wrote, both streams: together in the order in which it came, and standard error
 * alone. */
#ifndef HB_DOCKER_OUTPUT_H
#define HB_DOCKER_OUTPUT_H

#include <jansson.h>

#include "broker/docker/frames.h"
#include "common/tail.h"

struct hb_output {
	struct hb_tail both, error;
	uint64_t stdout_bytes;
	bool incomplete; /* the stream was cut */
};

/* An hb_frame_sink; arg is the hb_output. */
void hb_output_sink(enum hb_frame_stream stream, const char *data, size_t len, void *arg);
/* output, truncated, output_bytes, stdout_bytes, stderr_bytes, stderr, output_incomplete */
void hb_output_result(const struct hb_output *o, json_t *result);
void hb_output_free(struct hb_output *o);

#endif
