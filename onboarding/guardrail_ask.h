/* One tool of the runtime, called through `execute`: what came of it, and nothing of what it
 * returned. */
#ifndef HB_ONBOARDING_GUARDRAIL_ASK_H
#define HB_ONBOARDING_GUARDRAIL_ASK_H

#include <jansson.h>

#include "common/error.h"
#include "onboarding/catalogue.h"

enum hb_did {
	HB_DID_RUN,   /* it answered well */
	HB_DID_BLOCK, /* refused by policy, or not there for whoever asks */
	HB_DID_FAIL,  /* it was tried, and the service or the runtime failed: `why` */
	HB_DID_PAUSE, /* it waits: `execution` */
};

struct hb_call_result {
	enum hb_did did;
	char why[160]; /* escaped, short */
	char execution[201];
	json_t *items; /* of each pointer the number of items, or null; NULL when it did not run */
};
void hb_call_result_free(struct hb_call_result *r);

/* `arguments` and `pointers` (array of texts, or NULL) are borrowed. -1: no usable answer
 * (bad_reply, ...). */
int hb_runtime_call(const struct hb_runtime *runtime, const char *tool, const json_t *arguments,
		    const json_t *pointers, struct hb_call_result *out, struct hb_error *err);
/* What becomes of a paused call. */
int hb_runtime_answer(const struct hb_runtime *runtime, const char *execution, const char *action,
		      struct hb_call_result *out, struct hb_error *err);

/* {path: "absent" | "needs" | "free" | "unknown"} for each path: is it there at all, does it need
 * an argument. */
json_t *hb_runtime_describe(const struct hb_runtime *runtime, const json_t *paths,
			    struct hb_error *err);

#endif
