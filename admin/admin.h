/* What the files of admin share: the endpoint's state, and the steps every request passes. */
#ifndef HB_ADMIN_ADMIN_H
#define HB_ADMIN_ADMIN_H

#include "common/fs.h"
#include "common/process.h"
#include "policy/live.h"

struct admin {
	struct hb_process *process;
	uint16_t port[2];      /* the one it listens on, 0-terminated */
	int wrong_keys;        /* since the last right one */
	int64_t locked_until;  /* monotonic ms: wrong keys cost growing time */
};

/* Host, origin and key, in this order, before any route is looked at (auth.c). False: answered already. */
bool admin_before(struct hb_request *req, void *ctx);

/* Host names and origins, judged byte for byte; pure, for tests. */
bool admin_host_allowed(const char *host, const char *listen);
bool admin_origin_allowed(const char *origin, const char *const *allowed, size_t count);

/* Answers {"error": text, "code": code} (WIRE: an error is a string). */
void admin_refuse(struct hb_request *req, int status, const char *code, const char *text);

void admin_health(struct hb_request *req, void *ctx);      /* status.c */
void admin_status(struct hb_request *req, void *ctx);
void admin_audit(struct hb_request *req, void *ctx);       /* edit.c */
void admin_put_features(struct hb_request *req, void *ctx);
void admin_put_users(struct hb_request *req, void *ctx);

/* Our own failure to read key or policy, for /health; "" when well. */
int admin_self_check(struct admin *a, struct hb_error *err);

#endif
