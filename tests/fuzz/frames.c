/* Output of a Docker engine. The first byte says how it is cut into reads, the second whether it has frames: however
 * it is cut, the same bytes must come out in the same streams, and the same verdict. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "broker/docker/frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
	size_t bytes[3];
	uint64_t hash[3];
};

static void sink(enum hb_frame_stream stream, const char *data, size_t len, void *arg)
{
	struct sum *s = arg;

	if (stream != HB_FRAME_STDOUT && stream != HB_FRAME_STDERR)
		abort();
	s->bytes[stream] += len;
	for (size_t i = 0; i < len; i++)
		s->hash[stream] = (s->hash[stream] ^ (uint8_t)data[i]) * 0x100000001b3u;
}

/* In pieces of `piece` bytes; 0: the stream was taken to its end. */
static int feed(const uint8_t *data, size_t size, size_t piece, bool plain, struct sum *sum,
		bool *whole, struct hb_error *err)
{
	struct hb_frames f = {.plain = plain};
	int rc = 0;

	memset(sum, 0, sizeof *sum);
	for (size_t at = 0; rc == 0 && at < size; at += piece) {
		size_t len = size - at < piece ? size - at : piece;
		char *copy = malloc(len); /* its very size, for the sanitizer */

		if (!copy)
			abort();
		memcpy(copy, data + at, len);
		rc = hb_frames_feed(&f, copy, len, sink, sum, err);
		free(copy);
	}
	*whole = hb_frames_whole(&f);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sum once, cut;
	struct hb_error first = {.code = ""}, second = {.code = ""};
	bool whole_once, whole_cut, plain;
	int rc;

	if (size < 2)
		return 0;
	plain = data[1] & 1;
	rc = feed(data + 2, size - 2, size, plain, &once, &whole_once, &first);
	if (feed(data + 2, size - 2, 1 + data[0], plain, &cut, &whole_cut, &second) != rc ||
	    memcmp(&once, &cut, sizeof once) != 0 || strcmp(first.code, second.code) != 0 ||
	    (rc == 0 && whole_once != whole_cut))
		abort();
	if (plain && (rc < 0 || !whole_once || once.bytes[HB_FRAME_STDOUT] != size - 2))
		abort();
	if (once.bytes[HB_FRAME_STDOUT] + once.bytes[HB_FRAME_STDERR] > size - 2)
		abort();
	return 0;
}
