/*
 * A minimal client of supervisord's XML-RPC interface (http://supervisord.org/api.html) over its Unix socket: one
 * request a connection, blocking with a short deadline, and just as much XML as its answers hold.
 */
#ifndef HB_INSTALLER_SUPERVISORD_RPC_H
#define HB_INSTALLER_SUPERVISORD_RPC_H

#include <stdbool.h>
#include <stddef.h>

#include "common/buf.h"
#include "common/error.h"

/* Faults that are answers (xmlrpc.Faults of supervisord). */
#define HB_SUPERVISORD_BAD_NAME 10
#define HB_SUPERVISORD_NOT_RUNNING 70
#define HB_SUPERVISORD_ALREADY_ADDED 90

/* params: "<param>..</param>" elements or "". *answer gets the body. The socket's server must be root or ourselves. Returns
 * 0, a positive fault code, or -1; err is filled for both of the latter. Code supervisord_unreachable, supervisord_failed. */
int hb_supervisord_call(const char *socket_path, const char *method, const char *params, struct hb_buf *answer,
			struct hb_error *err);

/* The text of member `name` of a struct in an answer, decoded; false when it isn't there. */
bool hb_supervisord_member(const char *xml, const char *name, char *out, size_t size);
/* -1 when it isn't there. */
long hb_supervisord_number(const char *xml, const char *name);
/* The answer's own value, when that is a text. */
bool hb_supervisord_text(const char *xml, struct hb_buf *out);

#endif
