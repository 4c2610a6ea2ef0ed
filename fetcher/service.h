/* The fetcher's routes, and its answer to /health. */
#ifndef HB_FETCHER_SERVICE_H
#define HB_FETCHER_SERVICE_H

#include "common/process.h"

extern const struct hb_route hb_fetcher_routes[];
extern const size_t hb_fetcher_route_count;

void *hb_fetcher_open(struct hb_process *p, struct hb_error *err);
int hb_fetcher_sandbox(struct hb_process *p, void *ctx, struct hb_sandbox *out,
		       struct hb_error *err);
void hb_fetcher_stop(struct hb_process *p, void *ctx);
void hb_fetcher_close(void *ctx);

#endif
