/* Output of containers and sandboxed commands (output.h). */
#include "broker/docker/output.h"

#include <stdlib.h>

#define STDERR_CHARS 4000 /* enough for why it failed; all of it is in the output as well */

void hb_output_sink(enum hb_frame_stream stream, const char *data, size_t len, void *arg)
{
	struct hb_output *o = arg;

	hb_tail_add(&o->both, data, len);
	if (stream == HB_FRAME_STDERR)
		hb_tail_add(&o->error, data, len);
	else
		o->stdout_bytes += len;
}

void hb_output_result(const struct hb_output *o, json_t *result)
{
	bool truncated, ignored;
	char *both = hb_tail_text(&o->both, 0, &truncated),
	     *error = hb_tail_text(&o->error, STDERR_CHARS, &ignored);

	json_object_set_new(result, "output", json_string(both));
	json_object_set_new(result, "truncated", json_boolean(truncated));
	json_object_set_new(result, "stderr", json_string(error));
	json_object_set_new(result, "output_bytes", json_integer((json_int_t)o->both.total));
	json_object_set_new(result, "stdout_bytes", json_integer((json_int_t)o->stdout_bytes));
	json_object_set_new(result, "stderr_bytes", json_integer((json_int_t)o->error.total));
	json_object_set_new(result, "output_incomplete", json_boolean(o->incomplete));
	free(both);
	free(error);
}

void hb_output_free(struct hb_output *o)
{
	hb_tail_free(&o->both);
	hb_tail_free(&o->error);
}
