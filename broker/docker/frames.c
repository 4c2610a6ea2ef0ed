/* Taking framed output apart (frames.h). Nothing is allocated, whatever length a header claims. */
#include "broker/docker/frames.h"

#include <string.h>

#define SYSTEM_ERROR 3

static int trouble_add(struct hb_frames *f, const char *data, size_t len, struct hb_error *err)
{
	size_t room = sizeof f->trouble - 1 - f->trouble_len, take = len < room ? len : room;

	memcpy(f->trouble + f->trouble_len, data, take);
	f->trouble_len += take;
	if (f->left > len && take == len)
		return 0; /* more of it comes */
	for (char *p = f->trouble; *p; p++)
		if ((unsigned char)*p < 32 || (unsigned char)*p > 126)
			*p = '?';
	return hb_fail(err, "engine_error", "the Docker engine broke off the output: %s",
		       f->trouble);
}

static int head_done(struct hb_frames *f, struct hb_error *err)
{
	if (f->head[0] > SYSTEM_ERROR || f->head[1] || f->head[2] || f->head[3])
		return hb_fail(err, "bad_frame",
			       "the Docker engine sent output in a frame of an unknown kind (%u)",
			       f->head[0]);
	f->left = (uint32_t)f->head[4] << 24 | (uint32_t)f->head[5] << 16 |
		  (uint32_t)f->head[6] << 8 | f->head[7];
	if (f->left == 0)
		f->head_len = 0;
	return 0;
}

int hb_frames_feed(struct hb_frames *f, const void *data, size_t len, hb_frame_sink sink, void *arg,
		   struct hb_error *err)
{
	const char *p = data;

	if (f->plain) {
		sink(HB_FRAME_STDOUT, p, len, arg);
		return 0;
	}
	while (len > 0) {
		size_t take;

		if (f->head_len < sizeof f->head) {
			f->head[f->head_len++] = (unsigned char)*p++;
			len--;
			if (f->head_len == sizeof f->head && head_done(f, err) < 0)
				return -1;
			continue;
		}
		take = len < f->left ? len : f->left;
		if (f->head[0] == SYSTEM_ERROR && trouble_add(f, p, take, err) < 0)
			return -1;
		if (f->head[0] != SYSTEM_ERROR)
			sink(f->head[0] == 2 ? HB_FRAME_STDERR : HB_FRAME_STDOUT, p, take, arg);
		f->left -= (uint32_t)take;
		if (f->left == 0)
			f->head_len = 0;
		p += take;
		len -= take;
	}
	return 0;
}

bool hb_frames_whole(const struct hb_frames *f)
{
	return f->plain || f->head_len == 0;
}
